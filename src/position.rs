//! Where a source stands in its server's log.
//!
//! A [`Position`] is always a resume point: everything that committed before it has been handed over by the source.
//! For PostgreSQL that is the end LSN of a commit, or the LSN of a keepalive outside a transaction (PostgreSQL
//! manual, "Streaming Replication Protocol").

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A PostgreSQL log sequence number: a byte position in the write-ahead log.
///
/// Printed as the server prints it, two hexadecimal halves: `16/B374D848`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(pub u64);

impl Lsn {
    /// Returns the distance in bytes from `earlier` to this LSN, 0 if it is behind.
    #[must_use]
    pub fn bytes_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:X}/{:X}", self.0 >> 32, self.0 & 0xFFFF_FFFF)
    }
}

/// The text is not a position.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{text}\" is not a position: expected an LSN such as 16/B374D848")]
pub struct ParsePositionError {
    text: String,
}

impl FromStr for Lsn {
    type Err = ParsePositionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let half = |digits: &str| {
            let plain = (1..=8).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_hexdigit());
            plain.then(|| u64::from_str_radix(digits, 16).ok()).flatten()
        };
        let parsed = text.split_once('/').and_then(|(high, low)| Some(half(high)? << 32 | half(low)?));
        parsed.map(Self).ok_or_else(|| ParsePositionError { text: text.to_owned() })
    }
}

/// A resume point in a server's log. Ordered within one server and timeline only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Position {
    /// PostgreSQL: the LSN behind the last complete transaction.
    Postgres(Lsn),
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Postgres(lsn) => lsn.fmt(f),
        }
    }
}

impl FromStr for Position {
    type Err = ParsePositionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self::Postgres)
    }
}

impl From<Position> for String {
    fn from(position: Position) -> Self {
        position.to_string()
    }
}

impl TryFrom<String> for Position {
    type Error = ParsePositionError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn refuses_what_the_server_never_prints() {
        for text in ["", "/", "0", "0/", "/0", "0/0/0", "+1/2", "1/-2", "g/0", "123456789/0", "0/123456789", " 0/1"] {
            assert!(text.parse::<Lsn>().is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn text_form_round_trips(raw: u64) {
            let position = Position::Postgres(Lsn(raw));
            prop_assert_eq!(position.to_string().parse::<Position>().unwrap(), position);
            let json = serde_json::to_string(&position).unwrap();
            prop_assert_eq!(serde_json::from_str::<Position>(&json).unwrap(), position);
        }
    }
}
