//! Where in the server's files the log is being read.

use tracing::debug;

use super::events::{self, FLAG_ARTIFICIAL, Header, kind};
use super::wire::Malformed;
use crate::gtid::Gtids;
use crate::position::BinlogPosition;

/// A place behind an event.
#[derive(Debug)]
pub(super) struct Place {
    file: String,
    /// All 64 bits, although no event tells more than 32.
    offset: u64,
    /// Where the event begins that was counted last.
    event: u64,
    /// The low 32 bits of how far the server has looked in the file when it last said that it lives: it passes over what was
    /// read before.
    looked: Option<u32>,
}

impl Place {
    pub(super) fn new(begin: &BinlogPosition) -> Self {
        Self { file: begin.file.clone(), offset: begin.offset, event: begin.offset, looked: None }
    }

    /// Where the event begins that was counted last.
    pub(super) fn event(&self) -> u64 {
        self.event
    }

    /// The position here.
    pub(super) fn position(&self, gtids: &Gtids) -> BinlogPosition {
        BinlogPosition::new(gtids.clone(), self.file.clone(), self.offset)
    }

    /// The position at an offset in this file.
    pub(super) fn position_at(&self, gtids: &Gtids, offset: u64) -> BinlogPosition {
        BinlogPosition::new(gtids.clone(), self.file.clone(), offset)
    }

    /// Whether the server has looked up to `end`.
    pub(super) fn has_reached(&self, end: &BinlogPosition) -> bool {
        let looked = self.looked.map_or(0, |low| nearest(end.offset, low));
        let here = self.position_at(&end.gtids, self.offset.max(looked));
        here.file == end.file && here.offset >= end.offset || end.stands_before(&here)
    }

    /// Moves behind an event.
    pub(super) fn count(&mut self, header: &Header) {
        self.event = self.offset;
        if matches!(header.kind, kind::HEARTBEAT | kind::HEARTBEAT_V2) {
            self.looked = Some(header.end);
            return;
        }
        // the one that a dump begins with stands at the file's beginning
        let is_repeated = header.kind == kind::FORMAT_DESCRIPTION && header.end == 0;
        if header.kind == kind::ROTATE || is_repeated || header.flags & FLAG_ARTIFICIAL != 0 {
            return;
        }
        // some servers leave positions out inside of transactions, and none has more than 32 bits
        let counted = self.offset.saturating_add(u64::from(header.length));
        self.offset = if header.end == 0 { counted } else { nearest(counted, header.end) };
    }

    /// Moves to another file, or to another place in the same one.
    pub(super) fn rotate(&mut self, body: &[u8]) -> Result<(), Malformed> {
        let rotate = events::rotate(body)?;
        let file = std::str::from_utf8(rotate.file).map_err(|_| Malformed::new("a file's name is not UTF-8"))?;
        if self.file != file {
            debug!(file, "the log goes on in another file");
        }
        file.clone_into(&mut self.file);
        self.offset = rotate.offset;
        self.looked = None;
        Ok(())
    }
}

/// As a person reads it.
impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.file, self.offset)
    }
}

/// The offset with these low 32 bits that is nearest to what was counted.
fn nearest(counted: u64, low: u32) -> u64 {
    const SPAN: u64 = 1 << 32;
    let base = (counted & !(SPAN - 1)) | u64::from(low);
    let candidates = [base.checked_sub(SPAN), Some(base), base.checked_add(SPAN)];
    candidates.into_iter().flatten().min_by_key(|candidate| candidate.abs_diff(counted)).unwrap_or(base)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(kind: u8, length: u32, end: u32) -> Header {
        Header { timestamp: 0, kind, server: 1, length, end, flags: 0 }
    }

    #[test]
    fn offsets_go_on_beyond_32_bits() {
        let mut place = Place::new(&"@bin.000001:4294967000".parse().unwrap());
        // an event that ends behind 4 GiB says the low bits of its end
        place.count(&header(kind::WRITE_ROWS, 400, 104));
        assert_eq!((place.offset, place.event()), ((1 << 32) + 104, 4_294_967_000));
        // as inside of MariaDB's transactions
        place.count(&header(kind::WRITE_ROWS, 400, 0));
        assert_eq!(place.offset, (1 << 32) + 504);
        place.count(&header(kind::XID, 31, 535));
        assert_eq!(place.to_string(), format!("bin.000001:{}", (1_u64 << 32) + 535));
    }

    #[test]
    fn a_server_that_passes_over_what_was_read_says_how_far_it_is() {
        let end = |text: &str| text.parse::<BinlogPosition>().unwrap();
        let mut place = Place::new(&BinlogPosition::new(end("@x:4").gtids, String::new(), 0));
        assert!(!place.has_reached(&end("@bin.000002:157")));
        place.rotate(b"\x04\0\0\0\0\0\0\0bin.000002").unwrap();
        assert!(place.has_reached(&end("@bin.000001:999")) && !place.has_reached(&end("@bin.000002:157")));
        place.count(&header(kind::HEARTBEAT, 39, 157));
        assert!(place.has_reached(&end("@bin.000002:157")) && !place.has_reached(&end("@bin.000002:158")));
        // behind 4 GiB it says the low bits alone
        place.count(&header(kind::HEARTBEAT_V2, 39, 500));
        assert!(
            place.has_reached(&end("@bin.000002:4294967796")) && !place.has_reached(&end("@bin.000002:4294967797"))
        );
        assert!(!place.has_reached(&end("@bin.000003:4")));
    }

    #[test]
    fn what_is_not_in_the_file_is_not_counted() {
        let mut place = Place::new(&"@bin.000001:1000".parse().unwrap());
        place.count(&header(kind::FORMAT_DESCRIPTION, 126, 0));
        place.count(&header(kind::HEARTBEAT, 39, 1000));
        place.count(&Header { flags: FLAG_ARTIFICIAL, ..header(kind::ROTATE, 40, 0) });
        assert_eq!(place.offset, 1000);
        place.rotate(b"\x04\0\0\0\0\0\0\0bin.000002").unwrap();
        place.count(&header(kind::FORMAT_DESCRIPTION, 126, 130));
        assert_eq!(place.to_string(), "bin.000002:130");
    }
}
