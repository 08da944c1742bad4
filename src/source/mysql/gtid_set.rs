//! Sets of MySQL's GTIDs in binary form, as a dump asks with them and as each file of the log begins with them (MySQL
//! source, `sql/rpl_gtid_set.cc`, `Gtid_set::encode`).
//!
//! ```text
//! count of sources u64 · for each: UUID [16] · (tag) · count of intervals u64 · for each: first u64, behind the last u64
//! ```
//!
//! With tags the set has another form, which servers without tags do not know: a 1 in the highest byte of the count,
//! which then stands in the bytes above the lowest.

use super::wire::{Malformed, Reader};
use crate::gtid::{GtidSource, MysqlGtids};

/// The form with tags.
const TAGGED: u64 = 1 << 56;

/// A set as the server reads it. The form with tags is used only where there is one.
pub(super) fn encode(set: &MysqlGtids) -> Vec<u8> {
    let has_tags = set.sources().iter().any(|(source, _)| !source.tag.is_empty());
    let count = u64::try_from(set.sources().len()).unwrap_or_default();
    let head = if has_tags { TAGGED | count << 8 } else { count };
    let mut out = head.to_le_bytes().to_vec();
    for (source, intervals) in set.sources() {
        out.extend_from_slice(&source.uuid);
        if has_tags {
            // lengths below 128 are one byte, shifted by one
            out.push(u8::try_from(source.tag.len()).unwrap_or_default() << 1);
            out.extend_from_slice(source.tag.as_bytes());
        }
        out.extend_from_slice(&u64::try_from(intervals.len()).unwrap_or_default().to_le_bytes());
        for interval in intervals {
            out.extend_from_slice(&interval.first.to_le_bytes());
            out.extend_from_slice(&(interval.last + 1).to_le_bytes());
        }
    }
    out
}

/// Reads a set, such as the body of a PREVIOUS_GTIDS event.
pub(super) fn decode(bytes: &[u8]) -> Result<MysqlGtids, Malformed> {
    let mut reader = Reader::new(bytes);
    let head = reader.u64()?;
    let has_tags = head >> 56 == 1;
    let count = if has_tags { (head & !TAGGED) >> 8 } else { head };
    let mut set = MysqlGtids::default();
    for _ in 0..count {
        let mut source = GtidSource::default();
        source.uuid.copy_from_slice(reader.take(16)?);
        if has_tags {
            let length = usize::from(reader.u8()? >> 1);
            let tag = std::str::from_utf8(reader.take(length)?);
            tag.map_err(|_| Malformed::new("a GTID's tag is no text"))?.clone_into(&mut source.tag);
        }
        for _ in 0..reader.u64()? {
            let (first, behind) = (reader.u64()?, reader.u64()?);
            if first == 0 || first >= behind {
                return Err(Malformed::new("an interval of GTIDs is empty"));
            }
            set.add_range(&source, first, behind - 1);
        }
    }
    if reader.is_empty() { Ok(set) } else { Err(Malformed::new("a set of GTIDs is followed by something")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sets_are_encoded_with_ends_that_are_not_included() {
        let uuid = "3e11fa47-71ca-11e1-9e33-c80aa9429562";
        let plain = encode(&format!("{uuid}:1-5:7").parse().unwrap());
        assert_eq!((plain.len(), &plain[..8]), (8 + 16 + 8 + 32, [1, 0, 0, 0, 0, 0, 0, 0].as_slice()));
        assert_eq!(plain[24..40], [2, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(plain[40..48], [6, 0, 0, 0, 0, 0, 0, 0]);
        let tagged = encode(&format!("{uuid}:1-5,{uuid}:ab:7").parse().unwrap());
        assert_eq!(tagged[..8], [0, 2, 0, 0, 0, 0, 0, 1]);
        assert_eq!((tagged[24], tagged.len()), (0, 8 + (16 + 1 + 8 + 16) + (16 + 3 + 8 + 16)));
    }

    #[test]
    fn sets_round_trip() {
        for text in [
            "",
            "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5:7",
            "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5:7,4e11fa47-71ca-11e1-9e33-c80aa9429562:9",
            "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5:tag:1-3:9",
        ] {
            let set: MysqlGtids = text.parse().unwrap();
            assert_eq!(decode(&encode(&set)).unwrap(), set, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_set_or_refused(bytes: Vec<u8>, count in 0_u64..3) {
            let _ = decode(&bytes);
            let _ = decode(&[count.to_le_bytes().as_slice(), &bytes].concat());
        }
    }
}
