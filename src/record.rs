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

/// What a record costs in memory beside its key and value: librdkafka's own message, headers, ours.
const OVERHEAD_BYTES: u64 = 512;

impl Record<'_> {
    /// The record's share of the window, in bytes. The sink reports the same figure with its acknowledgement.
    #[must_use]
    pub fn window_bytes(&self) -> u64 {
        window_bytes(self.key.as_deref(), self.payload.as_deref())
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

/// The share of the window that a record of this key and value takes, in bytes.
#[must_use]
pub fn window_bytes(key: Option<&[u8]>, payload: Option<&[u8]>) -> u64 {
    let length = |part: Option<&[u8]>| part.map_or(0, <[u8]>::len);
    u64::try_from(length(key) + length(payload)).unwrap_or(u64::MAX).saturating_add(OVERHEAD_BYTES)
}
