//! The exact size of a record on the wire, alone in its batch: what the broker compares with `max.message.bytes`.
//!
//! Kafka documentation, "Message Format": a record batch (magic 2) is 61 bytes and its records; lengths are varints in
//! zigzag encoding.

use crate::record::Record;

/// Bytes of a record batch before its first record.
const BATCH_HEADER: usize = 61;
/// Attributes, timestamp delta 0 and offset delta 0, one byte each.
const RECORD_HEADER: usize = 3;

/// The size in bytes of an uncompressed batch that holds only this record.
pub(super) fn batch_bytes(record: &Record<'_>) -> usize {
    let part = |bytes: Option<&[u8]>| match bytes {
        None => 1,
        Some(bytes) => varint_bytes(bytes.len()) + bytes.len(),
    };
    let headers = record.headers.iter().map(|header| part(Some(header.key.as_bytes())) + part(header.value.as_deref()));
    let body = RECORD_HEADER
        + part(record.key.as_deref())
        + part(record.payload.as_deref())
        + varint_bytes(record.headers.len())
        + headers.sum::<usize>();
    BATCH_HEADER + varint_bytes(body) + body
}

/// Bytes of a non-negative number as a zigzag varint: 7 bits each, one bit goes to the sign.
fn varint_bytes(number: usize) -> usize {
    let mut bytes = 1;
    let mut rest = number >> 6;
    while rest > 0 {
        bytes += 1;
        rest >>= 7;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;

    #[test]
    fn varints_have_javas_lengths() {
        // ByteUtils.sizeOfVarint: 63 is the last of one byte, 8191 of two, 1048575 of three.
        for (number, bytes) in [(0, 1), (63, 1), (64, 2), (8_191, 2), (8_192, 3), (1_048_575, 3), (1_048_576, 4)] {
            assert_eq!(varint_bytes(number), bytes, "{number}");
        }
    }

    #[test]
    fn never_exceeds_the_upper_bound() {
        for length in [0, 1, 63, 64, 9_000, 2_000_000] {
            let record = Record {
                topic: "t",
                partition: None,
                key: Some(Cow::Owned(vec![1; length])),
                payload: Some(Cow::Owned(vec![1; length])),
                headers: vec![crate::record::Header { key: "id", value: None }],
                timestamp_ms: 1,
            };
            assert!(batch_bytes(&record) <= record.batch_bytes(), "{length}");
        }
    }
}
