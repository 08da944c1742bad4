//! The transaction that is being read. What it did to the outbox is held until it is known to count: MariaDB writes some
//! transactions into its log that it undid.

use std::sync::Arc;

use bytes::Bytes;

use super::events;
use super::layout::{Layout, inflate};
use super::trouble::Trouble;
use crate::change::{Batch, Ignored, Item, Relation};
use crate::gtid::Gtid;
use crate::state::Reason;

/// A transaction that holds more is handed over as it comes.
const MAX_HELD_BYTES: usize = 1 << 20;

/// Rows of an insert, as the server sent them.
#[derive(Debug)]
pub(super) struct Rows {
    pub layout: Arc<Layout>,
    pub body: Bytes,
    pub is_v2: bool,
    pub is_packed: bool,
}

/// What a transaction did to the outbox.
#[derive(Debug)]
pub(super) enum Step {
    Inserted(Rows),
    Ignored(Ignored, Arc<Relation>),
}

impl Step {
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Inserted(rows) => rows.body.len(),
            Self::Ignored(..) => 0,
        }
    }

    fn hand_over(self, batch: &mut Batch) -> Result<(), Trouble> {
        match self {
            Self::Inserted(Rows { layout, body, is_v2, is_packed }) => {
                let mut rows = events::rows(&body, is_v2)?;
                let unpacked;
                if is_packed {
                    unpacked = inflate(rows.rows)?;
                    rows.rows = &unpacked;
                }
                layout.insert(&rows, batch)?;
            }
            Self::Ignored(what, relation) => batch.push(Item::Ignored(what, relation)),
        }
        Ok(())
    }
}

/// The bytes that steps hold.
pub(super) fn bytes_of(steps: &[Step]) -> usize {
    steps.iter().map(Step::bytes).sum()
}

/// The transaction that is being read.
#[derive(Debug, Default)]
pub(super) struct Open {
    /// `None`: it has none.
    pub gtid: Option<Gtid>,
    /// Where in the file it begins.
    pub offset: u64,
    pub commit_ts_us: i64,
    /// One statement follows, and nothing that ends it.
    pub is_standalone: bool,
    /// BEGIN, or what stands for it, was read.
    pub is_framed: bool,
    /// All its steps are held: another transaction may decide whether they count.
    pub is_xa: bool,
    /// What is held, in its order.
    pub steps: Vec<Step>,
    held_bytes: usize,
    /// How many steps were handed over; `None`: not even the transaction's beginning.
    handed_over: Option<usize>,
    /// Names with the number of steps before them.
    savepoints: Vec<(Vec<u8>, usize)>,
}

impl Open {
    /// Nothing of it was read.
    pub(super) fn new(gtid: Option<Gtid>, offset: u64, commit_ts_us: i64) -> Self {
        Self { gtid, offset, commit_ts_us, ..Self::default() }
    }

    /// Whether something was handed over.
    pub(super) fn is_begun(&self) -> bool {
        self.handed_over.is_some()
    }

    /// The bytes that its steps hold.
    pub(super) fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Adds a step.
    pub(super) fn push(&mut self, step: Step, batch: &mut Batch) -> Result<(), Trouble> {
        self.held_bytes += step.bytes();
        self.steps.push(step);
        if !self.is_xa && self.held_bytes > MAX_HELD_BYTES {
            self.hand_over(batch)?;
        }
        Ok(())
    }

    /// Hands over what is held.
    pub(super) fn hand_over(&mut self, batch: &mut Batch) -> Result<(), Trouble> {
        let steps = std::mem::take(&mut self.steps);
        self.held_bytes = 0;
        self.hand_over_all(steps, batch)
    }

    /// Hands over these steps as its own.
    pub(super) fn hand_over_all(&mut self, steps: Vec<Step>, batch: &mut Batch) -> Result<(), Trouble> {
        if steps.is_empty() {
            return Ok(());
        }
        if self.handed_over.is_none() {
            batch.push(Item::Begin { commit_ts_us: self.commit_ts_us });
        }
        *self.handed_over.get_or_insert_default() += steps.len();
        steps.into_iter().try_for_each(|step| step.hand_over(batch))
    }

    /// Undoes all of it.
    pub(super) fn undo(&mut self) -> Result<(), Trouble> {
        self.undo_to(0)
    }

    /// Remembers a savepoint, given the statement that set it.
    pub(super) fn set_savepoint(&mut self, sql: &[u8]) {
        let name = last_word(sql);
        self.savepoints.retain(|(known, _)| *known != name);
        self.savepoints.push((name, self.handed_over.unwrap_or_default() + self.steps.len()));
    }

    /// Undoes what followed a savepoint, given the statement that says so.
    pub(super) fn undo_to_savepoint(&mut self, sql: &[u8]) -> Result<(), Trouble> {
        let name = last_word(sql);
        let at = self.savepoints.iter().rposition(|(known, _)| *known == name);
        // one that was set before the first change need not be in the log
        let count = at.and_then(|at| self.savepoints.get(at)).map_or(0, |(_, count)| *count);
        self.savepoints.truncate(at.map_or(0, |at| at + 1));
        self.undo_to(count)
    }

    /// Undoes all but the first steps.
    fn undo_to(&mut self, count: usize) -> Result<(), Trouble> {
        let Some(kept) = count.checked_sub(self.handed_over.unwrap_or_default()) else {
            return Err(undone_too_late("was rolled back"));
        };
        self.steps.truncate(kept);
        self.held_bytes = bytes_of(&self.steps);
        Ok(())
    }

    /// The log goes on in a file that does not have the rest of it: the server died while it wrote it, and has undone it.
    pub(super) fn cut_off(self) -> Result<(), Trouble> {
        if self.is_begun() { Err(undone_too_late("was cut off when the server died")) } else { Ok(()) }
    }
}

fn undone_too_late(what: &str) -> Trouble {
    Trouble::new(
        Reason::LogNotUnderstood,
        format!("a transaction of more than {MAX_HELD_BYTES} bytes {what} after a part of its rows was handed over"),
        "those rows were published, or are about to be, although they do not count: tell those who consume them, and go on with \
         outboxd resume --from now",
    )
}

/// The name at a statement's end, as savepoints have it: in quotes or not, and without case.
fn last_word(sql: &[u8]) -> Vec<u8> {
    let sql = sql.trim_ascii_end();
    let name = match sql.strip_suffix(b"`") {
        Some(quoted) => quoted.rsplit(|byte| *byte == b'`').next(),
        None => sql.rsplit(u8::is_ascii_whitespace).next(),
    };
    name.unwrap_or_default().to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(number: u64) -> Step {
        let relation = Relation { serial: number, schema: String::new(), table: String::new(), columns: Vec::new() };
        Step::Ignored(Ignored::Delete, Arc::new(relation))
    }

    fn shown(open: &Open) -> Vec<u64> {
        let number = |step: &Step| match step {
            Step::Ignored(_, relation) => relation.serial,
            Step::Inserted(_) => 0,
        };
        open.steps.iter().map(number).collect()
    }

    #[test]
    fn savepoints_undo_what_followed_them() {
        let (mut open, mut batch) = (Open::default(), Batch::default());
        let mut push = |open: &mut Open, number| open.push(step(number), &mut batch).unwrap();
        push(&mut open, 1);
        open.set_savepoint(b"SAVEPOINT `my point`");
        push(&mut open, 2);
        open.set_savepoint(b"savepoint Inner");
        push(&mut open, 3);
        open.undo_to_savepoint(b"ROLLBACK TO `inner`").unwrap();
        assert_eq!(shown(&open), [1, 2]);
        push(&mut open, 4);
        open.undo_to_savepoint(b"ROLLBACK TO `my point` ").unwrap();
        assert_eq!(shown(&open), [1]);
        open.undo_to_savepoint(b"ROLLBACK TO unknown").unwrap();
        assert_eq!(shown(&open), Vec::<u64>::new());
    }

    #[test]
    fn what_was_handed_over_cannot_be_undone() {
        let (mut open, mut batch) = (Open::default(), Batch::default());
        open.push(step(1), &mut batch).unwrap();
        open.hand_over(&mut batch).unwrap();
        assert_eq!(batch.items().len(), 2);
        open.set_savepoint(b"SAVEPOINT a");
        open.push(step(2), &mut batch).unwrap();
        open.undo_to_savepoint(b"ROLLBACK TO a").unwrap();
        assert_eq!(shown(&open), Vec::<u64>::new());
        assert!(open.undo().is_err() && open.cut_off().is_err());
        assert!(Open::default().cut_off().is_ok());
    }
}
