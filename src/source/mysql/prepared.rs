//! XA transactions between PREPARE and the decision: their rows wait here.
//!
//! Their events come when they are prepared; whether they count is known when they are decided, which may be much later
//! and in any order. Until then the position says that they were not read.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;

use super::assembler::{Gtid, Trouble};
use super::events;
use super::layout::{Layout, inflate};
use crate::change::Batch;
use crate::position::BinlogPosition;
use crate::state::Reason;

/// Most that all of them may hold together.
const MAX_BYTES: usize = 256 << 20;

/// Rows of an insert, as the server sent them.
#[derive(Debug)]
pub(super) struct Held {
    pub layout: Arc<Layout>,
    pub body: Bytes,
    pub is_v2: bool,
    pub is_packed: bool,
}

impl Held {
    /// Adds the rows to `batch`.
    pub(super) fn hand_over(&self, batch: &mut Batch) -> Result<(), Trouble> {
        let mut rows = events::rows(&self.body, self.is_v2)?;
        let unpacked;
        if self.is_packed {
            unpacked = inflate(rows.rows)?;
            rows.rows = &unpacked;
        }
        Ok(self.layout.insert(&rows, batch)?)
    }
}

/// A prepared transaction.
#[derive(Debug)]
pub(super) struct Waiting {
    /// The transaction that prepared it, where it does not count as read before the decision.
    pub gtid: Option<Gtid>,
    pub rows: Vec<Held>,
    /// The position before it.
    before: BinlogPosition,
}

/// All that are not decided.
#[derive(Debug, Default)]
pub(super) struct Prepared {
    waiting: HashMap<Vec<u8>, Waiting>,
    bytes: usize,
}

impl Prepared {
    /// Whether so many bytes more can be held.
    pub(super) fn make_room(&mut self, bytes: usize) -> Result<(), Trouble> {
        self.bytes += bytes;
        if self.bytes <= MAX_BYTES {
            return Ok(());
        }
        Err(Trouble::new(
            Reason::LogNotUnderstood,
            format!("XA transactions that are prepared and not decided hold more than {MAX_BYTES} bytes of the outbox"),
            "decide them (XA RECOVER lists them), and start the relay again",
        ))
    }

    pub(super) fn add(&mut self, xid: Vec<u8>, gtid: Option<Gtid>, rows: Vec<Held>, before: BinlogPosition) {
        self.waiting.insert(xid, Waiting { gtid, rows, before });
    }

    /// Takes the one that is decided.
    pub(super) fn take(&mut self, xid: &[u8]) -> Option<Waiting> {
        let found = self.waiting.remove(xid)?;
        let bytes: usize = found.rows.iter().map(|held| held.body.len()).sum();
        self.bytes = self.bytes.saturating_sub(bytes);
        Some(found)
    }

    /// The position that must not be passed: before the oldest, where the server's identifiers have no gaps.
    pub(super) fn holds_back(&self) -> Option<&BinlogPosition> {
        self.waiting.values().filter(|waiting| waiting.gtid.is_none()).map(|waiting| &waiting.before).min()
    }
}
