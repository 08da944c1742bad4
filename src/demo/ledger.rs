//! What the shop wrote and what the consumer read, and whether the two agree.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

/// An event as the shop writes it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Event {
    /// Column `aggregatetype`: the topic is `outbox.event.` and this.
    pub(super) aggregate: &'static str,
    /// Column `aggregateid`: the record's key.
    pub(super) key: String,
    /// Column `type`.
    pub(super) kind: &'static str,
    /// Column `payload`.
    pub(super) payload: Value,
}

/// An event in the table, under the id that the database gave it.
#[derive(Clone, Debug)]
pub(super) struct Written {
    /// Column `id`.
    pub(super) id: String,
    /// The rest.
    pub(super) event: Event,
}

/// A record as the consumer reads it.
#[derive(Clone, Debug)]
pub(super) struct Arrival {
    /// Header `id`.
    pub(super) id: String,
    /// Topic.
    pub(super) topic: String,
    /// Key.
    pub(super) key: String,
    /// Value, if it is JSON.
    pub(super) payload: Option<Value>,
    /// When it was read.
    pub(super) at: Instant,
}

#[derive(Debug)]
enum Fate {
    Committed { at: Instant },
    RolledBack,
}

/// What is to be said about a record that has just arrived.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Judgement {
    /// As it should be: the time from COMMIT to the consumer.
    Good(Duration),
    /// Something is wrong with it.
    Bad(&'static str),
    /// Not the shop's own.
    Foreign,
}

#[derive(Debug, Default)]
struct Books {
    entries: HashMap<String, (Event, Fate)>,
    /// Ids in the order of their commits.
    committed: Vec<String>,
    arrivals: Vec<Arrival>,
    delays: Vec<Duration>,
    transactions: u64,
}

/// The books. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Ledger {
    books: Arc<Mutex<Books>>,
}

impl Ledger {
    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a COMMIT that is about to be sent. Of one key, COMMITs are noted in the order in which they take effect.
    pub(super) fn commit(&self, rows: &[Written]) {
        let (mut books, at) = (self.books(), Instant::now());
        books.transactions += 1;
        for row in rows {
            books.committed.push(row.id.clone());
            books.entries.insert(row.id.clone(), (row.event.clone(), Fate::Committed { at }));
        }
    }

    /// Notes rows that are rolled back.
    pub(super) fn roll_back(&self, rows: &[Written]) {
        let mut books = self.books();
        for row in rows {
            books.entries.insert(row.id.clone(), (row.event.clone(), Fate::RolledBack));
        }
    }

    /// Notes a record that was read.
    pub(super) fn arrived(&self, arrival: Arrival) -> Judgement {
        let mut books = self.books();
        let judgement = match books.entries.get(&arrival.id) {
            _ if books.arrivals.iter().any(|before| before.id == arrival.id) => Judgement::Bad("for the second time"),
            Some((_, Fate::Committed { at })) => Judgement::Good(arrival.at.saturating_duration_since(*at)),
            Some((_, Fate::RolledBack)) => Judgement::Bad("although it was rolled back"),
            None => Judgement::Foreign,
        };
        if let Judgement::Good(delay) = judgement {
            books.delays.push(delay);
        }
        books.arrivals.push(arrival);
        judgement
    }

    /// Committed events that have not arrived.
    pub(super) fn outstanding(&self) -> usize {
        let books = self.books();
        // each good arrival left one delay
        books.committed.len().saturating_sub(books.delays.len())
    }

    /// Compares both sides.
    pub(super) fn tally(&self) -> Tally {
        let books = self.books();
        let mut tally = Tally {
            transactions: books.transactions,
            committed: books.committed.len(),
            rolled_back: books.entries.len() - books.committed.len(),
            ..Tally::default()
        };
        let mut written: BTreeMap<(String, &str), Vec<&str>> = BTreeMap::new();
        for id in &books.committed {
            let Some((event, _)) = books.entries.get(id) else { continue };
            written.entry((event.topic(), &event.key)).or_default().push(id);
        }
        let mut times: HashMap<&str, usize> = HashMap::new();
        let mut read: BTreeMap<(String, &str), Vec<&str>> = BTreeMap::new();
        for arrival in &books.arrivals {
            match books.entries.get(&arrival.id) {
                None => tally.unknown += 1,
                Some((_, Fate::RolledBack)) => tally.from_rollback += 1,
                Some((event, Fate::Committed { .. })) => {
                    *times.entry(&arrival.id).or_default() += 1;
                    let unchanged = arrival.payload.as_ref() == Some(&event.payload);
                    tally.altered += usize::from(!unchanged);
                    read.entry((arrival.topic.clone(), &arrival.key)).or_default().push(&arrival.id);
                }
            }
        }
        tally.missing = books.committed.iter().filter(|id| !times.contains_key(id.as_str())).count();
        tally.repeated = times.values().filter(|count| **count > 1).count();
        tally.keys = written.len();
        tally.out_of_order = written.iter().filter(|(key, ids)| read.get(*key) != Some(*ids)).count();
        tally.delays.clone_from(&books.delays);
        tally.delays.sort_unstable();
        tally
    }
}

impl Event {
    /// The topic to which the event belongs.
    pub(super) fn topic(&self) -> String {
        format!("outbox.event.{}", self.aggregate)
    }
}

/// What the comparison found.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    /// Transactions that were committed.
    pub(super) transactions: u64,
    /// Events that were committed.
    pub(super) committed: usize,
    /// Outbox rows that were rolled back.
    pub(super) rolled_back: usize,
    /// Committed events that did not arrive.
    pub(super) missing: usize,
    /// Committed events that arrived more than once.
    pub(super) repeated: usize,
    /// Records whose row was rolled back.
    pub(super) from_rollback: usize,
    /// Records that the shop does not know.
    pub(super) unknown: usize,
    /// Records whose value is another one than was written.
    pub(super) altered: usize,
    /// Keys, each in its topic.
    pub(super) keys: usize,
    /// Keys whose records are not exactly those that were committed, in that order.
    pub(super) out_of_order: usize,
    /// Times from COMMIT to the consumer, the shortest first.
    pub(super) delays: Vec<Duration>,
}

impl Tally {
    /// Whether everything is as promised.
    pub(super) fn is_proven(&self) -> bool {
        let wrong = self.missing + self.repeated + self.from_rollback + self.unknown + self.altered + self.out_of_order;
        wrong == 0 && self.committed > 0
    }

    /// The delay that this share of the events, in percent, does not exceed.
    pub(super) fn delay(&self, percent: usize) -> Duration {
        let index = (self.delays.len() * percent).div_ceil(100).saturating_sub(1);
        self.delays.get(index).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(id: &str, key: &str) -> Written {
        let event = Event { aggregate: "Order", key: key.to_owned(), kind: "Placed", payload: id.into() };
        Written { id: id.to_owned(), event }
    }

    fn arrival(id: &str, key: &str) -> Arrival {
        let topic = "outbox.event.Order".to_owned();
        Arrival { id: id.to_owned(), topic, key: key.to_owned(), payload: Some(id.into()), at: Instant::now() }
    }

    /// Two of one key and one of another are committed, one is rolled back.
    fn shop() -> Ledger {
        let ledger = Ledger::default();
        ledger.commit(&[written("a", "1"), written("b", "2")]);
        ledger.roll_back(&[written("x", "1")]);
        ledger.commit(&[written("c", "1")]);
        ledger
    }

    fn after(arrivals: &[(&str, &str)]) -> Tally {
        let ledger = shop();
        for (id, key) in arrivals {
            ledger.arrived(arrival(id, key));
        }
        ledger.tally()
    }

    #[test]
    fn all_once_in_order_is_proven() {
        for order in [[("a", "1"), ("b", "2"), ("c", "1")], [("b", "2"), ("a", "1"), ("c", "1")]] {
            let tally = after(&order);
            assert!(tally.is_proven(), "{tally:?}");
            assert_eq!((tally.committed, tally.rolled_back, tally.keys, tally.transactions), (3, 1, 2, 2));
        }
    }

    #[test]
    fn everything_else_is_not() {
        let all = [("a", "1"), ("b", "2"), ("c", "1")];
        let with = |more: &[(&'static str, &'static str)]| after(&[&all, more].concat());
        assert_eq!(after(&[]).missing, 3);
        let lost = after(&[("a", "1"), ("b", "2")]);
        assert_eq!((lost.missing, lost.out_of_order), (1, 1));
        assert_eq!(after(&[("c", "1"), ("a", "1"), ("b", "2")]).out_of_order, 1);
        assert_eq!(with(&[("a", "1")]).repeated, 1);
        assert_eq!(with(&[("x", "1")]).from_rollback, 1);
        assert_eq!(with(&[("z", "1")]).unknown, 1);
        assert_eq!(after(&[("a", "2"), ("b", "2"), ("c", "1")]).out_of_order, 2, "wrong key");
        for tally in [after(&[]), lost, with(&[("a", "1")]), with(&[("x", "1")]), with(&[("z", "1")])] {
            assert!(!tally.is_proven(), "{tally:?}");
        }
        let ledger = shop();
        ledger.arrived(Arrival { payload: None, ..arrival("a", "1") });
        assert_eq!(ledger.tally().altered, 1);
        assert!(!Ledger::default().tally().is_proven(), "nothing was written");
    }

    #[test]
    fn each_record_is_judged_as_it_arrives() {
        let ledger = shop();
        assert!(matches!(ledger.arrived(arrival("a", "1")), Judgement::Good(_)));
        assert_eq!(ledger.arrived(arrival("a", "1")), Judgement::Bad("for the second time"));
        assert_eq!(ledger.arrived(arrival("x", "1")), Judgement::Bad("although it was rolled back"));
        assert_eq!(ledger.arrived(arrival("mine", "1")), Judgement::Foreign);
        assert_eq!(ledger.outstanding(), 2);
    }

    #[test]
    fn percentiles_are_of_the_sorted_delays() {
        let delays = (1..=200).map(Duration::from_millis).collect();
        let tally = Tally { delays, ..Tally::default() };
        assert_eq!([50, 99, 100].map(|percent| tally.delay(percent).as_millis()), [100, 198, 200]);
        assert_eq!(Tally::default().delay(50), Duration::ZERO);
    }
}
