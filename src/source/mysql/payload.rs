//! Compressed transactions of MySQL: all events of a transaction in one, packed with zstd (MySQL source documentation,
//! "Transaction_payload_event").
//!
//! They are unpacked one event at a time: a transaction may be larger than the memory.

use std::io::{BufRead, Read};

use bytes::buf::Reader as BytesReader;
use bytes::{Buf, Bytes};
use zstd::stream::read::Decoder;

use super::events::{HEADER_BYTES, Header};
use super::wire::{Malformed, Reader};

/// A server refuses larger events (`max_allowed_packet`), so this is no event.
const MAX_EVENT_BYTES: usize = 1 << 30;

/// The events of a compressed transaction.
pub(super) struct Payload {
    content: Content,
    /// How many bytes are to come, as the event says.
    left: u64,
}

enum Content {
    Plain(BytesReader<Bytes>),
    Zstd(Box<Decoder<'static, BytesReader<Bytes>>>),
}

impl Payload {
    /// Reads what stands before the packed bytes.
    pub(super) fn open(body: &Bytes) -> Result<Self, Malformed> {
        const END: u64 = 0;
        const SIZE: u64 = 1;
        const COMPRESSION: u64 = 2;
        const UNPACKED_SIZE: u64 = 3;
        const ZSTD: u64 = 0;
        const NONE: u64 = 255;
        let (mut size, mut compression, mut unpacked) = (None, None, None);
        let mut reader = Reader::new(body);
        loop {
            let field = reader.lenenc()?;
            if field == END {
                break;
            }
            let mut value = Reader::new(reader.lenenc_bytes()?);
            match field {
                SIZE => size = Some(value.lenenc()?),
                COMPRESSION => compression = Some(value.lenenc()?),
                UNPACKED_SIZE => unpacked = Some(value.lenenc()?),
                _ => {}
            }
        }
        let packed = body.slice_ref(reader.rest());
        if size.is_some_and(|size| u64::try_from(packed.len()) != Ok(size)) {
            return Err(Malformed::new("a compressed transaction has another size than it says"));
        }
        let failed = |error: std::io::Error| Malformed(format!("a compressed transaction cannot be unpacked: {error}"));
        let packed_size = u64::try_from(packed.len()).unwrap_or(u64::MAX);
        let content = match compression {
            Some(ZSTD) => Content::Zstd(Box::new(Decoder::with_buffer(packed.reader()).map_err(failed)?)),
            Some(NONE) => Content::Plain(packed.reader()),
            other => {
                return Err(Malformed(format!("a transaction is compressed by method {other:?}, and zstd is known")));
            }
        };
        Ok(Self { content, left: unpacked.unwrap_or(packed_size) })
    }

    /// The next event; `None` behind the last. These have no checksum.
    pub(super) fn next(&mut self) -> Result<Option<Bytes>, Malformed> {
        let failed = |error: std::io::Error| Malformed(format!("a compressed transaction cannot be unpacked: {error}"));
        if self.left == 0 {
            let is_at_end = self.buffer().map_err(failed)?;
            return if is_at_end {
                Ok(None)
            } else {
                Err(Malformed::new("a compressed transaction is longer than it says"))
            };
        }
        let mut event = vec![0; HEADER_BYTES];
        self.read_exact(&mut event).map_err(failed)?;
        let header = Header::read(&event)?;
        let length = usize::try_from(header.length).unwrap_or(usize::MAX);
        let is_within = u64::from(header.length) <= self.left;
        if !(HEADER_BYTES..=MAX_EVENT_BYTES).contains(&length) || !is_within {
            return Err(Malformed::new("an event of a compressed transaction has no length that is possible"));
        }
        self.left -= u64::from(header.length);
        event.resize(length, 0);
        self.read_exact(event.get_mut(HEADER_BYTES..).unwrap_or_default()).map_err(failed)?;
        Ok(Some(event.into()))
    }

    fn read_exact(&mut self, into: &mut [u8]) -> std::io::Result<()> {
        match &mut self.content {
            Content::Plain(reader) => reader.read_exact(into),
            Content::Zstd(decoder) => decoder.read_exact(into),
        }
    }

    /// Whether nothing is left.
    fn buffer(&mut self) -> std::io::Result<bool> {
        match &mut self.content {
            Content::Plain(reader) => reader.fill_buf().map(<[u8]>::is_empty),
            Content::Zstd(decoder) => Ok(decoder.read(&mut [0])? == 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn event(length: usize) -> Vec<u8> {
        let mut event = vec![7; length];
        event[9..13].copy_from_slice(&u32::try_from(length).unwrap().to_le_bytes());
        event
    }

    fn body(events: &[u8], said: usize) -> Bytes {
        let packed = zstd::encode_all(events, 3).unwrap();
        let mut body = vec![2, 1, 0, 1, 3, 0xFC];
        body.extend_from_slice(&u16::try_from(packed.len()).unwrap().to_le_bytes());
        body.extend_from_slice(&[3, 3, 0xFC]);
        body.extend_from_slice(&u16::try_from(said).unwrap().to_le_bytes());
        body.push(0);
        body.extend_from_slice(&packed);
        body.into()
    }

    #[test]
    fn events_come_out_one_by_one() {
        let events = [event(30), event(19), event(500)].concat();
        let mut payload = Payload::open(&body(&events, events.len())).unwrap();
        let mut lengths = Vec::new();
        while let Some(event) = payload.next().unwrap() {
            lengths.push(event.len());
        }
        assert_eq!(lengths, [30, 19, 500]);
    }

    #[test]
    fn what_is_cut_or_longer_than_said_is_an_error_and_no_end() {
        let drain = |body: &Bytes| -> Result<(), Malformed> {
            let mut payload = Payload::open(body)?;
            while payload.next()?.is_some() {}
            Ok(())
        };
        let events = [event(30), event(40)].concat();
        let whole = body(&events, events.len());
        assert_eq!(drain(&whole), Ok(()));
        for length in 0..whole.len() {
            assert!(drain(&whole.slice(..length)).is_err(), "cut to {length}");
        }
        for said in [0, 30, 60, 71, 200] {
            assert!(drain(&body(&events, said)).is_err(), "{said}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_unpacked_or_refused(body: Vec<u8>) {
            if let Ok(mut payload) = Payload::open(&Bytes::from(body)) {
                while let Ok(Some(_)) = payload.next() {}
            }
        }
    }
}
