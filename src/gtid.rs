//! Global transaction identifiers: what a MySQL or MariaDB server calls its transactions, and sets of them.
//!
//! MySQL: `uuid[:tag]:number`, sets with gaps, in any order (MySQL manual, "GTID Format and Storage"). MariaDB:
//! `domain-server-sequence`; the last one of each domain stands for all before it (MariaDB, "Global Transaction ID").

use std::fmt;
use std::str::FromStr;

/// Largest number of a MySQL transaction (`GNO_END` in the server's source).
const MAX_NUMBER: u64 = i64::MAX.unsigned_abs();

/// Longest tag.
const MAX_TAG: usize = 32;

/// The text is not a set of GTIDs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is not a set of GTIDs")]
pub struct ParseGtidError(String);

/// Whose transactions: a server, and a tag that a session may have chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GtidSource {
    /// The server's UUID.
    pub uuid: [u8; 16],
    /// The tag; empty: none.
    pub tag: String,
}

impl fmt::Display for GtidSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.uuid.iter().enumerate() {
            let dash = if matches!(index, 4 | 6 | 8 | 10) { "-" } else { "" };
            write!(f, "{dash}{byte:02x}")?;
        }
        if self.tag.is_empty() { Ok(()) } else { write!(f, ":{}", self.tag) }
    }
}

/// Numbers from `first` to `last`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Interval {
    /// First number.
    pub first: u64,
    /// Last number.
    pub last: u64,
}

/// A set of MySQL's transactions.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct MysqlGtids {
    /// Sorted by source; intervals sorted, apart from each other by at least one number, never none.
    sources: Vec<(GtidSource, Vec<Interval>)>,
}

impl MysqlGtids {
    /// The sources with their intervals, sorted.
    #[must_use]
    pub fn sources(&self) -> &[(GtidSource, Vec<Interval>)] {
        &self.sources
    }

    /// Whether nothing is in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    /// Adds one transaction.
    pub fn add(&mut self, source: &GtidSource, number: u64) {
        self.add_interval(source, Interval { first: number, last: number });
    }

    /// Adds the transactions from `first` to `last`, both included.
    pub fn add_range(&mut self, source: &GtidSource, first: u64, last: u64) {
        self.add_interval(source, Interval { first, last });
    }

    /// Adds all of `other`.
    pub fn add_all(&mut self, other: &Self) {
        for (source, intervals) in &other.sources {
            for interval in intervals {
                self.add_interval(source, *interval);
            }
        }
    }

    fn add_interval(&mut self, source: &GtidSource, new: Interval) {
        let at = match self.sources.binary_search_by(|(present, _)| present.cmp(source)) {
            Ok(at) => at,
            Err(at) => {
                self.sources.insert(at, (source.clone(), Vec::with_capacity(1)));
                at
            }
        };
        let Some((_, intervals)) = self.sources.get_mut(at) else { return };
        // nearly always it follows the last one
        if let Some(end) = intervals.last_mut()
            && end.last.checked_add(1) == Some(new.first)
        {
            end.last = new.last;
            return;
        }
        let mut merged = new;
        intervals.retain(|present| {
            let apart = present.last.saturating_add(1) < merged.first || merged.last.saturating_add(1) < present.first;
            if !apart {
                merged.first = merged.first.min(present.first);
                merged.last = merged.last.max(present.last);
            }
            apart
        });
        let at = intervals.partition_point(|present| present.first < merged.first);
        intervals.insert(at, merged);
    }

    /// Whether a transaction is in it.
    #[must_use]
    pub fn contains(&self, source: &GtidSource, number: u64) -> bool {
        self.intervals(source).iter().any(|present| present.first <= number && number <= present.last)
    }

    fn intervals(&self, source: &GtidSource) -> &[Interval] {
        let found = self.sources.iter().find(|(present, _)| present == source);
        found.map_or(&[], |(_, intervals)| intervals)
    }

    /// What is in this set and not in `other`.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        let mut rest = Self::default();
        for (source, intervals) in &self.sources {
            let removed = other.intervals(source);
            for interval in intervals {
                let mut next = interval.first;
                for gap in removed.iter().filter(|gap| gap.first <= interval.last && gap.last >= interval.first) {
                    if gap.first > next {
                        rest.add_interval(source, Interval { first: next, last: gap.first - 1 });
                    }
                    next = next.max(gap.last.saturating_add(1));
                }
                if next <= interval.last {
                    rest.add_interval(source, Interval { first: next, last: interval.last });
                }
            }
        }
        rest
    }

    /// Whether all of it is in `other`.
    #[must_use]
    pub fn is_within(&self, other: &Self) -> bool {
        self.without(other).is_empty()
    }
}

impl fmt::Display for MysqlGtids {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (source, intervals)) in self.sources.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{source}")?;
            for Interval { first, last } in intervals {
                if first == last { write!(f, ":{first}")? } else { write!(f, ":{first}-{last}")? }
            }
        }
        Ok(())
    }
}

fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let well_formed = text.len() == 36
        && text.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        });
    let number = u128::from_str_radix(&text.replace('-', ""), 16).ok();
    number.filter(|_| well_formed).map(u128::to_be_bytes)
}

fn parse_number(text: &str) -> Option<u64> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|number| plain && (1..=MAX_NUMBER).contains(number))
}

fn is_tag(text: &str) -> bool {
    let begins = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    begins && text.len() <= MAX_TAG && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

impl FromStr for MysqlGtids {
    type Err = ParseGtidError;

    /// Reads the server's text, in which a tag may follow the intervals of an earlier one: `uuid:1-5:tag:1`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || ParseGtidError(text.to_owned());
        let mut set = Self::default();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let mut words = part.split(':').map(str::trim);
            let uuid = words.next().and_then(parse_uuid).ok_or_else(wrong)?;
            let mut source = GtidSource { uuid, tag: String::new() };
            let mut is_complete = false;
            for word in words {
                if is_tag(word) {
                    source.tag = word.to_ascii_lowercase();
                    is_complete = false;
                    continue;
                }
                let (first, last) = word.split_once('-').unwrap_or((word, word));
                let interval = (parse_number(first.trim()), parse_number(last.trim()));
                let (Some(first), Some(last)) = interval else { return Err(wrong()) };
                if first > last {
                    return Err(wrong());
                }
                set.add_interval(&source, Interval { first, last });
                is_complete = true;
            }
            if !is_complete {
                return Err(wrong());
            }
        }
        Ok(set)
    }
}

/// One MariaDB transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MariadbGtid {
    /// Replication domain: transactions of one domain are in one order.
    pub domain: u32,
    /// The server that made it.
    pub server: u32,
    /// Its number in the domain.
    pub sequence: u64,
}

impl fmt::Display for MariadbGtid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}", self.domain, self.server, self.sequence)
    }
}

/// The last transaction of each domain of a MariaDB server.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct MariadbGtids {
    /// Sorted by domain.
    last: Vec<MariadbGtid>,
}

impl MariadbGtids {
    /// The last transactions, sorted by domain.
    #[must_use]
    pub fn last(&self) -> &[MariadbGtid] {
        &self.last
    }

    /// Whether no domain is in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.last.is_empty()
    }

    /// A transaction was read: it is now the last of its domain.
    pub fn set(&mut self, gtid: MariadbGtid) {
        match self.last.binary_search_by_key(&gtid.domain, |present| present.domain) {
            Ok(at) => {
                if let Some(present) = self.last.get_mut(at) {
                    *present = gtid;
                }
            }
            Err(at) => self.last.insert(at, gtid),
        }
    }

    /// The last transaction of a domain.
    #[must_use]
    pub fn of(&self, domain: u32) -> Option<MariadbGtid> {
        self.last.iter().find(|present| present.domain == domain).copied()
    }
}

impl fmt::Display for MariadbGtids {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, gtid) in self.last.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{gtid}")?;
        }
        Ok(())
    }
}

impl FromStr for MariadbGtids {
    type Err = ParseGtidError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || ParseGtidError(text.to_owned());
        let mut set = Self::default();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let digits = |word: &&str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
            let words: Vec<&str> = part.split('-').collect();
            let [domain, server, sequence] = words.as_slice() else { return Err(wrong()) };
            if !words.iter().all(digits) {
                return Err(wrong());
            }
            let (Ok(domain), Ok(server), Ok(sequence)) = (domain.parse(), server.parse(), sequence.parse()) else {
                return Err(wrong());
            };
            set.set(MariadbGtid { domain, server, sequence });
        }
        Ok(set)
    }
}

/// A transaction's identifier, of either kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gtid {
    /// MySQL's: whose, and its number.
    Mysql(GtidSource, u64),
    /// MariaDB's.
    Mariadb(MariadbGtid),
}

/// A set of either kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Gtids {
    /// MySQL's.
    Mysql(MysqlGtids),
    /// MariaDB's.
    Mariadb(MariadbGtids),
}

impl Gtids {
    /// Adds one transaction. One of the other kind begins a set of its own: an empty text is taken for MySQL's.
    pub fn add(&mut self, gtid: &Gtid) {
        match (self, gtid) {
            (Self::Mysql(set), Gtid::Mysql(source, number)) => set.add(source, *number),
            (Self::Mariadb(set), Gtid::Mariadb(gtid)) => set.set(*gtid),
            (present, Gtid::Mysql(source, number)) => {
                let mut set = MysqlGtids::default();
                set.add(source, *number);
                *present = Self::Mysql(set);
            }
            (present, Gtid::Mariadb(gtid)) => {
                let mut set = MariadbGtids::default();
                set.set(*gtid);
                *present = Self::Mariadb(set);
            }
        }
    }

    /// Whether nothing is in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Mysql(set) => set.is_empty(),
            Self::Mariadb(set) => set.is_empty(),
        }
    }
}

impl fmt::Display for Gtids {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mysql(set) => set.fmt(f),
            Self::Mariadb(set) => set.fmt(f),
        }
    }
}

impl FromStr for Gtids {
    type Err = ParseGtidError;

    /// An empty text is MySQL's empty set.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.is_empty() || text.contains(':') {
            text.parse().map(Self::Mysql)
        } else {
            text.parse().map(Self::Mariadb)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const A: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";

    fn mysql(text: &str) -> MysqlGtids {
        text.replace('A', A).parse().unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn sets_are_printed_in_one_form_whatever_was_read() {
        for (read, printed) in [
            ("", ""),
            ("A:1", "A:1"),
            ("A:5-7:1-3:4", "A:1-7"),
            ("A:1-3, A:5,\nA:tag:2", "A:1-3:5,A:tag:2"),
            ("A:1-22:Tag_1:1:3-4", "A:1-22,A:tag_1:1:3-4"),
        ] {
            assert_eq!(mysql(read).to_string(), printed.replace('A', A), "{read}");
        }
        assert_eq!("1-5-9,0-1-17,0-2-18".parse::<MariadbGtids>().unwrap().to_string(), "0-2-18,1-5-9");
    }

    #[test]
    fn what_no_server_prints_is_refused() {
        for text in ["A", "A:", "A:0", "A:5-4", "A:1-", "A:x", "A:tag", "3e11:1", "A:1:tag", "A:9223372036854775808"] {
            assert!(text.replace('A', A).parse::<MysqlGtids>().is_err(), "{text}");
        }
        for text in ["0-1", "0-1-2-3", "-1-2-3", "a-1-2", "0-1-+2", "4294967296-1-1"] {
            assert!(text.parse::<MariadbGtids>().is_err(), "{text}");
        }
    }

    #[test]
    fn differences_name_what_is_missing() {
        let all = mysql("A:1-100,A:t:1-5");
        assert_eq!(all.without(&mysql("A:1-50:60-70:200")).to_string(), format!("{A}:51-59:71-100,{A}:t:1-5"));
        assert!(mysql("A:7").is_within(&all) && !mysql("A:101").is_within(&all) && mysql("").is_within(&all));
        let (source, _) = &all.sources()[0];
        assert!(all.contains(source, 100) && !all.contains(source, 101));
    }

    proptest! {
        /// A set is the numbers that were added, in whatever order; the text form round-trips.
        #[test]
        fn sets_hold_what_was_added(mut numbers in prop::collection::vec(1_u64..60, 0..80), others in prop::collection::vec(1_u64..60, 0..40)) {
            let source = GtidSource { uuid: [7; 16], tag: String::new() };
            let build = |numbers: &[u64]| {
                let mut set = MysqlGtids::default();
                numbers.iter().for_each(|number| set.add(&source, *number));
                set
            };
            let (set, other) = (build(&numbers), build(&others));
            for number in 0..61 {
                prop_assert_eq!(set.contains(&source, number), numbers.contains(&number));
                let in_rest = numbers.contains(&number) && !others.contains(&number);
                prop_assert_eq!(set.without(&other).contains(&source, number), in_rest);
            }
            prop_assert_eq!(&set.to_string().parse::<MysqlGtids>().unwrap(), &set);
            numbers.sort_unstable();
            prop_assert_eq!(build(&numbers), set);
        }

        #[test]
        fn any_text_is_read_or_refused(text in ".*") {
            let _ = text.parse::<Gtids>();
        }
    }
}
