//! Where a source stands in its server's log.
//!
//! A [`Position`] is always a resume point: everything that committed before it has been handed over by the source.
//! For PostgreSQL that is the end LSN of a commit, or the LSN of a keepalive outside a transaction (PostgreSQL
//! manual, "Streaming Replication Protocol"). For MySQL and MariaDB it is the set of transactions that were handed over,
//! with the place in the binary log behind the last one.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use crate::gtid::Gtids;

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
#[error("\"{text}\" is not a position: expected an LSN such as 16/B374D848, or GTIDs@FILE:OFFSET")]
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

/// A place in the binary log of a MySQL or MariaDB server.
///
/// Sets of transactions have no order, and files may begin anew, so places are ordered by when this process came to
/// know them; a place that was read from a record is before all of them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BinlogPosition {
    order: u64,
    /// The transactions before it.
    pub gtids: Gtids,
    /// File of the binary log, without its folder.
    pub file: String,
    /// Offset in the file, behind the last transaction.
    pub offset: u64,
}

impl BinlogPosition {
    /// The newest place of this process.
    #[must_use]
    pub fn new(gtids: Gtids, file: String, offset: u64) -> Self {
        static ORDER: AtomicU64 = AtomicU64::new(1);
        Self { order: ORDER.fetch_add(1, Ordering::Relaxed), gtids, file, offset }
    }

    /// Whether it stands before `other` in the files of one log; never in those of two.
    #[must_use]
    pub fn stands_before(&self, other: &Self) -> bool {
        let parts = |file: &str| {
            let (base, number) = file.rsplit_once('.')?;
            Some((base.to_owned(), number.parse::<u64>().ok()?))
        };
        match (parts(&self.file), parts(&other.file)) {
            (Some((base, file)), Some((other_base, other_file))) => {
                base == other_base && (file, self.offset) < (other_file, other.offset)
            }
            _ => false,
        }
    }
}

/// Printed as `GTIDs@FILE:OFFSET`.
impl fmt::Display for BinlogPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}:{}", self.gtids, self.file, self.offset)
    }
}

impl FromStr for BinlogPosition {
    type Err = ParsePositionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parsed = text.split_once('@').and_then(|(gtids, place)| {
            let (file, offset) = place.rsplit_once(':')?;
            let plain = !offset.is_empty() && offset.bytes().all(|byte| byte.is_ascii_digit());
            let offset = offset.parse().ok().filter(|_| plain && !file.is_empty())?;
            Some(Self { order: 0, gtids: gtids.parse().ok()?, file: file.to_owned(), offset })
        });
        parsed.ok_or_else(|| ParsePositionError { text: text.to_owned() })
    }
}

/// A resume point in a server's log. Ordered within one server and timeline only.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Position {
    /// PostgreSQL: the LSN behind the last complete transaction.
    Postgres(Lsn),
    /// MySQL and MariaDB: the place behind the last complete transaction. Shared: it may hold a long set.
    Binlog(Arc<BinlogPosition>),
}

impl Position {
    /// PostgreSQL's position; `None` for another server's.
    #[must_use]
    pub fn lsn(&self) -> Option<Lsn> {
        match self {
            Self::Postgres(lsn) => Some(*lsn),
            Self::Binlog(_) => None,
        }
    }

    /// The place in a binary log; `None` for another kind of server.
    #[must_use]
    pub fn binlog(&self) -> Option<&Arc<BinlogPosition>> {
        match self {
            Self::Postgres(_) => None,
            Self::Binlog(place) => Some(place),
        }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Postgres(lsn) => lsn.fmt(f),
            Self::Binlog(place) => place.fmt(f),
        }
    }
}

impl FromStr for Position {
    type Err = ParsePositionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.contains('@') {
            return text.parse().map(|place| Self::Binlog(Arc::new(place)));
        }
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

    #[test]
    fn places_in_a_binary_log_round_trip() {
        for text in [
            "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5:7@bin.000003:157",
            "@bin.000001:4",
            "0-1-17,5-9-1@a@b:c.000001:99999999999",
        ] {
            let place: Position = text.parse().unwrap();
            assert_eq!(place.to_string(), text);
            assert!(place.lsn().is_none() && place.binlog().is_some());
        }
        for text in ["@", "@bin:", "@:4", "x@bin.000001:4", "@bin.000001:+4", "0-1-17@bin.000001"] {
            assert!(text.parse::<Position>().is_err(), "{text}");
        }
    }

    #[test]
    fn files_of_a_log_have_an_order() {
        let place = |text: &str| format!("@{text}").parse::<BinlogPosition>().unwrap();
        for (one, other) in
            [("bin.000002:9", "bin.000010:4"), ("bin.999999:4", "bin.1000000:4"), ("a.b.01:4", "a.b.01:5")]
        {
            assert!(place(one).stands_before(&place(other)) && !place(other).stands_before(&place(one)), "{one}");
            assert!(!place(one).stands_before(&place(one)));
        }
        assert!(!place("bin.000001:4").stands_before(&place("other.000002:4")));
        assert!(!place("bin:4").stands_before(&place("bin:5")));
    }

    #[test]
    fn places_are_ordered_by_when_they_became_known() {
        let set = || "0-1-17".parse().unwrap();
        let stored: BinlogPosition = "0-1-99@bin.000009:9".parse().unwrap();
        let first = BinlogPosition::new(set(), "bin.000002".to_owned(), 4);
        let second = BinlogPosition::new(set(), "bin.000001".to_owned(), 4);
        assert!(stored < first && first < second);
    }

    proptest! {
        #[test]
        fn text_form_round_trips(raw: u64) {
            let position = Position::Postgres(Lsn(raw));
            prop_assert_eq!(&position.to_string().parse::<Position>().unwrap(), &position);
            let json = serde_json::to_string(&position).unwrap();
            prop_assert_eq!(serde_json::from_str::<Position>(&json).unwrap(), position);
        }
    }
}
