//! What a sink receives: one Kafka record, with nothing of the source left in it.

use std::borrow::Cow;

/// A record header. Kafka allows a header without value and the same key more than once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header<'a> {
    /// The header's key.
    pub key: &'a str,
    /// The header's value; `None` is Kafka's null.
    pub value: Option<Cow<'a, [u8]>>,
}

/// One record, borrowed from the row it was made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Topic name.
    pub topic: &'a str,
    /// A fixed partition; `None` leaves it to the hash of the key.
    pub partition: Option<i32>,
    /// The key; `None` is Kafka's null, an empty slice is a key of no bytes.
    pub key: Option<Cow<'a, [u8]>>,
    /// The value; `None` is a tombstone.
    pub payload: Option<Cow<'a, [u8]>>,
    /// The headers in order.
    pub headers: Vec<Header<'a>>,
    /// Milliseconds since 1970-01-01 UTC.
    pub timestamp_ms: i64,
}

/// What a record costs in memory beside its key, value and headers: librdkafka's own message, ours.
const OVERHEAD_BYTES: usize = 512;

/// What a header costs in memory beside its name and value: librdkafka's own header, and the list that it is in.
const HEADER_OVERHEAD_BYTES: usize = 64;

impl Record<'_> {
    /// The record's share of the window, in bytes. The sink reports the same figure with its acknowledgement.
    #[must_use]
    pub fn window_bytes(&self) -> u64 {
        let headers = self.headers.iter().map(|header| (header.key, header.value.as_deref()));
        window_bytes(self.key.as_deref(), self.payload.as_deref(), headers)
    }

    /// The event id, as the header `id` carries it.
    #[must_use]
    pub fn id(&self) -> Option<&[u8]> {
        self.headers.iter().find(|header| header.key == "id").and_then(|header| header.value.as_deref())
    }

    /// An upper bound of the record's size on the wire in a batch of its own (Kafka protocol, record batch v2): what
    /// the broker compares with `max.message.bytes`, give or take a few bytes.
    #[must_use]
    pub fn batch_bytes(&self) -> usize {
        const BATCH_HEADER: usize = 61;
        const RECORD_HEADER: usize = 21;
        const HEADER_LENGTHS: usize = 10;
        let headers = self
            .headers
            .iter()
            .map(|header| HEADER_LENGTHS + header.key.len() + header.value.as_deref().map_or(0, <[u8]>::len));
        BATCH_HEADER
            + RECORD_HEADER
            + self.key.as_deref().map_or(0, <[u8]>::len)
            + self.payload.as_deref().map_or(0, <[u8]>::len)
            + headers.sum::<usize>()
    }
}

/// The share of the window that a record of this key, this value, and headers of these names and values takes, in bytes.
#[must_use]
pub fn window_bytes<'h>(
    key: Option<&[u8]>,
    payload: Option<&[u8]>,
    headers: impl Iterator<Item = (&'h str, Option<&'h [u8]>)>,
) -> u64 {
    let length = |part: Option<&[u8]>| part.map_or(0, <[u8]>::len);
    let headers: usize = headers.map(|(name, value)| HEADER_OVERHEAD_BYTES + name.len() + length(value)).sum();
    u64::try_from(OVERHEAD_BYTES + length(key) + length(payload) + headers).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory is bounded by this figure, so nothing large may be left out of it.
    #[test]
    fn every_part_takes_its_share_of_the_window() {
        let value = |length: usize| Some(Cow::Owned(vec![1; length]));
        let record = |key, payload, header: Option<Cow<'static, [u8]>>| {
            let headers = vec![Header { key: "name", value: header }];
            Record { topic: "t", partition: None, key, payload, headers, timestamp_ms: 0 }.window_bytes()
        };
        let bare = record(None, None, None);
        assert_eq!(record(value(1_000), value(20_000), value(300_000)), bare + 321_000);
        let none =
            Record { topic: "t", partition: None, key: None, payload: None, headers: Vec::new(), timestamp_ms: 0 };
        assert!(bare >= none.window_bytes() + 4, "the name of a header too");
    }
}
