//! The transaction that is being read.

use super::prepared::Held;
use crate::change::{Batch, Item};
use crate::gtid::Gtid;

/// The transaction that is being read.
#[derive(Debug)]
pub(super) struct Open {
    /// `None`: it has none.
    pub gtid: Option<Gtid>,
    /// Where in the file it begins.
    pub offset: u64,
    pub commit_ts_us: i64,
    /// Whether its beginning was handed over.
    pub is_begun: bool,
    /// One statement follows, and nothing that ends it.
    pub is_standalone: bool,
    /// BEGIN, or what stands for it, was read.
    pub is_framed: bool,
    /// Rows are held until the transaction is committed by another one.
    pub holds: Option<Vec<Held>>,
}

impl Open {
    /// Hands over the beginning, once.
    pub(super) fn begin(&mut self, batch: &mut Batch) {
        if !self.is_begun {
            self.is_begun = true;
            batch.push(Item::Begin { commit_ts_us: self.commit_ts_us });
        }
    }
}
