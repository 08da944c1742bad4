//! What was read and is not yet acknowledged, and the position up to which everything is.
//!
//! A queue of source transactions in commit order. Acknowledgements come in any order; the durable position follows the
//! front of the queue. Pure, constant work per acknowledged transaction.

use std::collections::VecDeque;

use crate::position::Position;
use crate::sink::{Ack, Ordinal};

/// One source transaction.
#[derive(Debug)]
struct Entry {
    commit_ts_us: i64,
    /// Set when the transaction is complete; raised by progress behind it.
    end: Option<Position>,
    /// Records handed to the sink and not acknowledged.
    outstanding: u64,
    /// Records handed to the sink.
    records: u64,
}

/// A transaction all of whose records, and all before it, are acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finished {
    /// Its commit time, microseconds since 1970.
    pub commit_ts_us: i64,
    /// How many records it had.
    pub records: u64,
}

/// The transactions between what was read and what is durable.
#[derive(Debug)]
pub struct Window {
    entries: VecDeque<Entry>,
    /// Ordinal of the first entry.
    first: Ordinal,
    records: u64,
    bytes: u64,
    limit_bytes: u64,
    durable: Option<Position>,
}

impl Window {
    /// An empty window that takes about this many bytes.
    #[must_use]
    pub fn new(limit_bytes: u64) -> Self {
        Self { entries: VecDeque::new(), first: 0, records: 0, bytes: 0, limit_bytes, durable: None }
    }

    /// Whether one more record may be handed over. An empty window takes a record of any size.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.bytes < self.limit_bytes
    }

    /// A transaction begins; its ordinal goes with each of its records.
    pub fn begin(&mut self, commit_ts_us: i64) -> Ordinal {
        self.entries.push_back(Entry { commit_ts_us, end: None, outstanding: 0, records: 0 });
        self.first + self.entries.len() - 1
    }

    /// A record of the open transaction was handed over.
    pub fn sent(&mut self, bytes: u64) {
        if let Some(entry) = self.entries.back_mut() {
            entry.outstanding += 1;
            entry.records += 1;
            self.records += 1;
            self.bytes += bytes;
        }
    }

    /// The open transaction is complete at `end`.
    pub fn complete(&mut self, end: Position) {
        if let Some(entry) = self.entries.back_mut() {
            entry.end = Some(end);
        }
    }

    /// Everything before `position` has been handed over, and no transaction is open.
    pub fn progress(&mut self, position: Position) {
        match self.entries.back_mut() {
            None => raise(&mut self.durable, position),
            Some(Entry { end: Some(end), .. }) if *end < position => *end = position,
            Some(Entry { end: Some(_), .. }) => {}
            // inside a transaction a position ahead of it means nothing
            Some(Entry { end: None, .. }) => {}
        }
    }

    /// Records were acknowledged.
    pub fn acknowledge(&mut self, ack: Ack) {
        let index = ack.ordinal.checked_sub(self.first);
        let Some(entry) = index.and_then(|index| self.entries.get_mut(index)) else { return };
        entry.outstanding = entry.outstanding.saturating_sub(u64::from(ack.records));
        self.records = self.records.saturating_sub(u64::from(ack.records));
        self.bytes = self.bytes.saturating_sub(ack.bytes);
    }

    /// Takes the next transaction off the front that is acknowledged whole, and moves the durable position behind it.
    pub fn pop_finished(&mut self) -> Option<Finished> {
        let front = self.entries.front()?;
        let end = front.end.clone().filter(|_| front.outstanding == 0)?;
        let finished = Finished { commit_ts_us: front.commit_ts_us, records: front.records };
        raise(&mut self.durable, end);
        self.entries.pop_front();
        self.first += 1;
        Some(finished)
    }

    /// Everything before it is acknowledged. `None` until something is.
    #[must_use]
    pub fn durable(&self) -> Option<&Position> {
        self.durable.as_ref()
    }

    /// Commit time of the oldest transaction that has records outstanding, microseconds since 1970.
    #[must_use]
    pub fn oldest_commit_ts_us(&self) -> Option<i64> {
        self.entries.front().map(|entry| entry.commit_ts_us)
    }

    /// Records that are not acknowledged.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Bytes that are not acknowledged.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether nothing is open or outstanding.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

/// Moves a position forward, never back.
fn raise(present: &mut Option<Position>, position: Position) {
    if present.as_ref() < Some(&position) {
        *present = Some(position);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::position::Lsn;

    fn at(lsn: u64) -> Position {
        Position::Postgres(Lsn(lsn))
    }

    fn ack(ordinal: Ordinal, records: u32) -> Ack {
        Ack { ordinal, records, bytes: u64::from(records) * 10 }
    }

    fn pop_all(window: &mut Window) {
        while window.pop_finished().is_some() {}
    }

    #[test]
    fn acknowledgements_out_of_order_wait_for_the_front() {
        let mut window = Window::new(1000);
        for lsn in [10, 20] {
            window.begin(0);
            window.sent(10);
            window.complete(at(lsn));
        }
        window.acknowledge(ack(1, 1));
        pop_all(&mut window);
        assert_eq!(window.durable(), None);
        window.acknowledge(ack(0, 1));
        pop_all(&mut window);
        assert_eq!((window.durable(), window.bytes(), window.records()), (Some(&at(20)), 0, 0));
    }

    #[test]
    fn an_open_transaction_is_not_durable_however_much_is_acknowledged() {
        let mut window = Window::new(1000);
        window.begin(0);
        window.sent(10);
        window.acknowledge(ack(0, 1));
        window.progress(at(99));
        pop_all(&mut window);
        assert_eq!(window.durable(), None);
        window.complete(at(10));
        pop_all(&mut window);
        assert_eq!(window.durable(), Some(at(10)).as_ref());
    }

    #[test]
    fn progress_counts_at_once_when_nothing_is_outstanding_and_else_behind_it() {
        let mut window = Window::new(1000);
        window.progress(at(5));
        assert_eq!(window.durable(), Some(at(5)).as_ref());
        window.begin(0);
        window.sent(10);
        window.complete(at(10));
        window.progress(at(15));
        assert_eq!(window.durable(), Some(at(5)).as_ref());
        window.acknowledge(ack(0, 1));
        pop_all(&mut window);
        assert_eq!(window.durable(), Some(at(15)).as_ref());
    }

    #[test]
    fn a_record_of_any_size_fits_into_an_empty_window_and_then_nothing_more() {
        let mut window = Window::new(1000);
        window.begin(0);
        assert!(window.has_room());
        window.sent(1 << 30);
        assert!(!window.has_room());
    }

    /// What a source and a sink may do to a window.
    #[derive(Clone, Debug)]
    enum Step {
        Transaction(u8),
        Progress,
        Acknowledge(prop::sample::Index),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            (0_u8..5).prop_map(Step::Transaction),
            Just(Step::Progress),
            any::<prop::sample::Index>().prop_map(Step::Acknowledge),
        ];
        prop::collection::vec(step, 0..200)
    }

    proptest! {
        /// The durable position never passes an unacknowledged record, never goes back, and reaches the end when all is
        /// acknowledged.
        #[test]
        fn durable_never_passes_an_unacknowledged_record(steps in steps()) {
            let mut window = Window::new(u64::MAX);
            let mut lsn = 0;
            let mut outstanding: Vec<(Ordinal, u64)> = Vec::new();
            let mut last = None;
            for step in steps {
                match step {
                    Step::Transaction(records) => {
                        let ordinal = window.begin(0);
                        lsn += 10;
                        for _ in 0..records {
                            window.sent(10);
                            outstanding.push((ordinal, lsn));
                        }
                        window.complete(at(lsn));
                    }
                    Step::Progress => {
                        lsn += 1;
                        window.progress(at(lsn));
                    }
                    Step::Acknowledge(index) if !outstanding.is_empty() => {
                        let (ordinal, _) = outstanding.remove(index.index(outstanding.len()));
                        window.acknowledge(ack(ordinal, 1));
                    }
                    Step::Acknowledge(_) => {}
                }
                pop_all(&mut window);
                let oldest = outstanding.iter().map(|(_, end)| *end).min();
                if let (Some(durable), Some(oldest)) = (window.durable(), oldest) {
                    prop_assert!(*durable < at(oldest), "{durable} passed {oldest}");
                }
                prop_assert!(window.durable() >= last.as_ref());
                last = window.durable().cloned();
                prop_assert_eq!(window.records(), u64::try_from(outstanding.len()).unwrap());
            }
            for (ordinal, _) in outstanding {
                window.acknowledge(ack(ordinal, 1));
            }
            pop_all(&mut window);
            if lsn > 0 {
                prop_assert_eq!(window.durable().cloned(), Some(at(lsn)));
            }
            prop_assert_eq!((window.bytes(), window.is_empty()), (0, true));
        }
    }
}
