//! Which partition a record goes to, and whether the brokers know the session's producer there.
//!
//! A broker takes any sequence number from a producer that it does not know on a partition (KAFKA-15591). Were the first
//! batch of a session refused for a moment, by a broker that does not have the partition yet or has too few replicas in
//! sync, and the second one, on its way already, taken, then librdkafka would count the first as taken too: lost, and
//! acknowledged. So the first record for a partition goes alone, and what follows for it waits until that is acknowledged.
//! From then on the broker refuses everything but the next in order.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::record::Record;

/// After so long without a record a broker is taken to have forgotten the producer. Kafka's `producer.id.expiration.ms`
/// is a day, others' are less.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(300);

/// How often a topic is asked for its partitions, as Java's producer does (`metadata.max.age.ms`).
const ASK_AGAIN: Duration = Duration::from_secs(300);

/// How often it is looked at which topics should be asked.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);

/// What the brokers know of the producer on a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// Nothing.
    Unknown,
    /// Its first record is on its way.
    Opening,
    /// Its sequence, when this was last used.
    Known(Instant),
}

/// What to do with a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// Send it, to this partition, or to any if that is `None`.
    Send(Option<i32>),
    /// The same, and tell [`Partitions::acknowledged`] where it has arrived.
    First(Option<i32>),
    /// Another one has to be acknowledged before.
    Wait,
}

#[derive(Debug)]
struct Topic {
    standings: Vec<Standing>,
    asked: Instant,
}

/// The partitions that a session writes to.
#[derive(Debug, Default)]
pub(super) struct Partitions {
    topics: HashMap<String, Topic>,
    /// When it is next looked at which topics should be asked again.
    look_at: Option<Instant>,
}

impl Partitions {
    /// What to do with `record`; `count` gives how many partitions its topic has, and is asked for once. `is_idle`: nothing
    /// is on its way.
    pub(super) fn admit(
        &mut self,
        record: &Record<'_>,
        now: Instant,
        is_idle: impl Fn() -> bool,
        count: impl FnOnce() -> Option<i32>,
    ) -> Admission {
        if !self.topics.contains_key(record.topic) {
            // a topic whose partitions are not known yet is written to record by record
            let Some(count) = count() else {
                return if is_idle() { Admission::First(record.partition) } else { Admission::Wait };
            };
            self.learn(record.topic, count, now);
        }
        let Some(topic) = self.topics.get_mut(record.topic) else { return Admission::Wait };
        let count = u32::try_from(topic.standings.len()).unwrap_or_default();
        let Some(partition) = record.partition.or_else(|| choose(record.key.as_deref()?, count)) else {
            // librdkafka chooses one by chance
            let are_known = topic.standings.iter().all(|standing| standing.is_known(now));
            return match are_known {
                true => Admission::Send(None),
                false if is_idle() => Admission::First(None),
                false => Admission::Wait,
            };
        };
        let standing = usize::try_from(partition).ok().and_then(|partition| topic.standings.get_mut(partition));
        match standing {
            Some(standing @ Standing::Known(_)) if standing.is_known(now) => {
                *standing = Standing::Known(now);
                Admission::Send(Some(partition))
            }
            Some(Standing::Opening) => Admission::Wait,
            Some(standing) => {
                *standing = Standing::Opening;
                Admission::First(Some(partition))
            }
            // it has none such: the broker's word counts
            None => Admission::First(Some(partition)),
        }
    }

    /// Notes that a record was not sent although it was admitted as the first.
    pub(super) fn not_sent(&mut self, topic: &str, partition: Option<i32>) {
        self.set(topic, partition, Standing::Unknown);
    }

    /// Notes that a record which was admitted as the first has arrived.
    pub(super) fn acknowledged(&mut self, topic: &str, partition: i32, now: Instant) {
        self.set(topic, Some(partition), Standing::Known(now));
    }

    fn set(&mut self, topic: &str, partition: Option<i32>, standing: Standing) {
        let standings = self.topics.get_mut(topic).map(|topic| &mut topic.standings);
        let index = partition.and_then(|partition| usize::try_from(partition).ok());
        if let Some(found) = standings.zip(index).and_then(|(standings, index)| standings.get_mut(index)) {
            *found = standing;
        }
    }

    /// Notes how many partitions a topic has.
    pub(super) fn learn(&mut self, topic: &str, count: i32, now: Instant) {
        let count = usize::try_from(count).unwrap_or_default();
        let topic = self.topics.entry(topic.to_owned()).or_insert(Topic { standings: Vec::new(), asked: now });
        topic.standings.resize(count, Standing::Unknown);
        topic.asked = now;
    }

    /// A topic that should be asked for its partitions again; says so once.
    pub(super) fn due(&mut self, now: Instant) -> Option<String> {
        if self.look_at.is_some_and(|at| at > now) {
            return None;
        }
        let due = self.topics.iter_mut().find(|(_, topic)| now.duration_since(topic.asked) >= ASK_AGAIN);
        match due {
            Some((name, topic)) => {
                topic.asked = now;
                Some(name.clone())
            }
            None => {
                self.look_at = Some(now + LOOK_INTERVAL);
                None
            }
        }
    }
}

impl Standing {
    fn is_known(self, now: Instant) -> bool {
        matches!(self, Self::Known(last) if now.duration_since(last) < FORGOTTEN_AFTER)
    }
}

/// The partition that Java's producer chooses for a key (`BuiltInPartitioner.partitionForKey`).
fn choose(key: &[u8], count: u32) -> Option<i32> {
    let positive = murmur2(key) & 0x7fff_ffff;
    positive.checked_rem(count).and_then(|partition| i32::try_from(partition).ok())
}

/// Kafka's form of MurmurHash2 (Austin Appleby, public domain): 32 bits, little endian, with a seed of its own.
fn murmur2(key: &[u8]) -> u32 {
    const SEED: u32 = 0x9747_b28c;
    const MIX: u32 = 0x5bd1_e995;
    const SHIFT: u32 = 24;
    let mut hash = SEED ^ u32::try_from(key.len()).unwrap_or(u32::MAX);
    let (words, rest) = key.as_chunks::<4>();
    for word in words {
        let mut word = u32::from_le_bytes(*word).wrapping_mul(MIX);
        word ^= word >> SHIFT;
        hash = hash.wrapping_mul(MIX) ^ word.wrapping_mul(MIX);
    }
    if !rest.is_empty() {
        for (place, byte) in rest.iter().enumerate() {
            hash ^= u32::from(*byte) << (8 * place);
        }
        hash = hash.wrapping_mul(MIX);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(MIX);
    hash ^ hash >> 15
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;

    fn record<'a>(key: Option<&'a str>, partition: Option<i32>) -> Record<'a> {
        let key = key.map(|key| Cow::Borrowed(key.as_bytes()));
        Record { topic: "t", partition, key, payload: None, headers: Vec::new(), timestamp_ms: 0 }
    }

    #[test]
    fn keys_have_javas_partitions() {
        for (key, hash) in [
            ("kafka", 0xd067_cf64),
            ("giberish123456789", 0x8f55_2b0c),
            ("1234", 0x9fc9_7b14),
            ("234", 0xe7c0_09ca),
            ("34", 0x8739_30da),
            ("4", 0x5a4b_5ca1),
            ("", 0x106e_08d9),
        ] {
            assert_eq!(murmur2(key.as_bytes()), hash, "{key}");
        }
        for (key, count, partition) in [("1", 12, 3), ("order-0007", 12, 8), ("é", 12, 3), ("a", 3, 1)] {
            assert_eq!(choose(key.as_bytes(), count), Some(partition), "{key}");
        }
        assert_eq!(choose(b"a", 0), None);
    }

    #[test]
    fn the_first_record_of_a_partition_goes_alone() {
        let (mut partitions, now) = (Partitions::default(), Instant::now());
        let admit =
            |partitions: &mut Partitions, key, now| partitions.admit(&record(key, None), now, || false, || Some(3));
        assert_eq!(admit(&mut partitions, Some("a"), now), Admission::First(Some(1)));
        assert_eq!(admit(&mut partitions, Some("a"), now), Admission::Wait);
        // another partition is another matter
        let other = ["b", "c", "d", "e"].into_iter().find(|key| choose(key.as_bytes(), 3) != Some(1)).unwrap();
        assert!(matches!(admit(&mut partitions, Some(other), now), Admission::First(_)));
        partitions.acknowledged("t", 1, now);
        assert_eq!(admit(&mut partitions, Some("a"), now), Admission::Send(Some(1)));
        let later = now + FORGOTTEN_AFTER;
        assert_eq!(admit(&mut partitions, Some("a"), later), Admission::First(Some(1)), "it may be forgotten");
        partitions.not_sent("t", Some(1));
        assert_eq!(admit(&mut partitions, Some("a"), later), Admission::First(Some(1)));
    }

    #[test]
    fn a_record_for_any_partition_waits_until_all_are_known() {
        let (mut partitions, now) = (Partitions::default(), Instant::now());
        let admit = |partitions: &mut Partitions, idle| partitions.admit(&record(None, None), now, || idle, || Some(2));
        assert_eq!(admit(&mut partitions, false), Admission::Wait);
        assert_eq!(admit(&mut partitions, true), Admission::First(None));
        partitions.acknowledged("t", 0, now);
        assert_eq!(admit(&mut partitions, false), Admission::Wait);
        partitions.acknowledged("t", 1, now);
        assert_eq!(admit(&mut partitions, false), Admission::Send(None));
        assert_eq!(partitions.admit(&record(None, Some(1)), now, || false, || None), Admission::Send(Some(1)));
    }

    #[test]
    fn partitions_that_come_later_are_used() {
        let (mut partitions, now) = (Partitions::default(), Instant::now());
        let admit = |partitions: &mut Partitions| partitions.admit(&record(Some("1"), None), now, || false, || Some(2));
        assert_eq!(admit(&mut partitions), Admission::First(choose(b"1", 2)));
        partitions.acknowledged("t", choose(b"1", 2).unwrap(), now);
        assert_eq!(partitions.due(now), None);
        let later = now + ASK_AGAIN;
        assert_eq!((partitions.due(later).as_deref(), partitions.due(later)), (Some("t"), None));
        partitions.learn("t", 12, later);
        assert_eq!(admit(&mut partitions), Admission::First(Some(3)));
    }

    #[test]
    fn a_topic_of_unknown_size_takes_one_record_at_a_time() {
        let (mut partitions, now) = (Partitions::default(), Instant::now());
        assert_eq!(partitions.admit(&record(Some("a"), None), now, || true, || None), Admission::First(None));
        assert_eq!(partitions.admit(&record(Some("a"), None), now, || false, || None), Admission::Wait);
    }
}
