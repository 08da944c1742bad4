//! Keeps account of what arrives: every row, its repeats, and each key's order.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{Headers, Message};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use super::{Kafka, eventually, within};

/// Reads a topic while it grows and keeps account: what came, what came again, and that first deliveries of a key are
/// in order.
pub(crate) struct Ledger {
    consumer: BaseConsumer,
    topic: String,
    /// Offset behind the last record, for each partition.
    next: Vec<i64>,
    seen: HashSet<u64>,
    newest: HashMap<Vec<u8>, u64>,
    pub(crate) records: u64,
    pub(crate) repeats: u64,
    /// Records by the tenth of a second in which the broker took them.
    pace: HashMap<u128, u64>,
}

impl Ledger {
    const PARTITIONS: i32 = 4;

    /// Makes a topic and reads it from the beginning.
    #[track_caller]
    pub(crate) fn open(kafka: &Kafka, topic: String) -> Self {
        kafka.create_topic(&topic, Self::PARTITIONS, &[("message.timestamp.type", "LogAppendTime")]);
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &kafka.bootstrap).set("group.id", "ledger").set("log_level", "0");
        config.set("enable.auto.commit", "false").set("fetch.wait.max.ms", "20").set("reconnect.backoff.max.ms", "500");
        let consumer: BaseConsumer = config.create().unwrap();
        let mut list = TopicPartitionList::new();
        for partition in 0..Self::PARTITIONS {
            list.add_partition_offset(&topic, partition, Offset::Beginning).unwrap();
        }
        consumer.assign(&list).unwrap();
        let next = vec![0; usize::try_from(Self::PARTITIONS).unwrap()];
        let (seen, newest, pace) = (HashSet::new(), HashMap::new(), HashMap::new());
        Self { consumer, topic, next, seen, newest, records: 0, repeats: 0, pace }
    }

    pub(crate) fn arrived(&self) -> u64 {
        u64::try_from(self.seen.len()).unwrap()
    }

    /// Reads what is there, at most a few hundred records.
    #[track_caller]
    pub(crate) fn read(&mut self) {
        let mut patience = Duration::from_millis(20);
        for _ in 0..500 {
            match self.consumer.poll(patience) {
                Some(Ok(message)) => {
                    let taken = u128::try_from(message.timestamp().to_millis().expect("no time")).unwrap();
                    let place = (message.partition(), message.offset(), taken);
                    let key = message.key().expect("no key").to_vec();
                    let number = number(message.payload().expect("no value"));
                    let headers = message.headers().expect("no headers");
                    let id = headers.iter().find(|header| header.key == "id").and_then(|header| header.value);
                    let wanted = format!("00000000-0000-4000-8000-{number:012x}");
                    assert_eq!(id.map(String::from_utf8_lossy).as_deref(), Some(wanted.as_str()), "id of row {number}");
                    self.enter(place, &key, number);
                }
                // what passes by itself: a broker that is away
                Some(Err(_)) => {}
                None => return,
            }
            patience = Duration::ZERO;
        }
    }

    #[track_caller]
    fn enter(&mut self, (partition, offset, taken): (i32, i64, u128), key: &[u8], number: u64) {
        self.next[usize::try_from(partition).unwrap()] = offset + 1;
        self.records += 1;
        *self.pace.entry(taken / 100).or_default() += 1;
        if !self.seen.insert(number) {
            self.repeats += 1;
            return;
        }
        if let Some(before) = self.newest.insert(key.to_vec(), number) {
            let key = String::from_utf8_lossy(key);
            assert!(before < number, "key {key}: the first delivery of {number} came after that of {before}");
        }
    }

    /// Reads until `count` different rows have come.
    #[track_caller]
    pub(crate) fn read_until(&mut self, count: u64, seconds: u64) {
        let (begin, limit) = (Instant::now(), within(seconds));
        while self.arrived() < count {
            assert!(begin.elapsed() < limit, "{} of {count} rows arrived within {limit:?}", self.arrived());
            self.read();
        }
    }

    /// Reads to the topic's present end.
    #[track_caller]
    pub(crate) fn read_to_end(&mut self) {
        let timeout = Duration::from_secs(10);
        let ends: Vec<i64> = (0..Self::PARTITIONS)
            .map(|partition| {
                let ask = || self.consumer.fetch_watermarks(&self.topic, partition, timeout).ok();
                eventually("the end of the topic", 30, ask).1
            })
            .collect();
        let begin = Instant::now();
        while self.next.iter().zip(&ends).any(|(next, end)| next < end) {
            assert!(begin.elapsed() < within(60), "{} could not be read to its end", self.topic);
            self.read();
        }
    }

    /// Reads until all `numbers` have come, then on to the end, and checks that nothing else came. Gives up when
    /// nothing came for the given time.
    #[track_caller]
    pub(crate) fn complete(&mut self, numbers: impl Iterator<Item = u64>, seconds: u64) {
        let numbers: HashSet<u64> = numbers.collect();
        let (mut last, limit) = ((self.records, Instant::now()), within(seconds));
        while self.arrived() < u64::try_from(numbers.len()).unwrap() && last.1.elapsed() < limit {
            self.read();
            if self.records > last.0 {
                last = (self.records, Instant::now());
            }
        }
        self.read_to_end();
        let mut missing: Vec<_> = numbers.difference(&self.seen).collect();
        missing.sort();
        let first = &missing[..missing.len().min(10)];
        assert!(
            missing.is_empty(),
            "{} of {} rows missing, {limit:?} after the last record: {first:?} …",
            missing.len(),
            numbers.len()
        );
        assert_eq!(self.arrived(), u64::try_from(numbers.len()).unwrap(), "rows came that were never committed");
    }

    /// Records that the broker took at a time or later.
    pub(crate) fn taken_since(&self, time: SystemTime) -> u64 {
        let first = time.duration_since(UNIX_EPOCH).unwrap().as_millis() / 100;
        self.pace.iter().filter(|(tenth, _)| **tenth >= first).map(|(_, count)| count).sum()
    }
}

/// The number that a payload begins with.
#[track_caller]
fn number(payload: &[u8]) -> u64 {
    let text = std::str::from_utf8(payload).unwrap();
    text.split(' ').next().and_then(|digits| digits.parse().ok()).unwrap_or_else(|| panic!("not a payload: {text:?}"))
}

/// Random numbers that can be had again.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn new() -> Self {
        let now = || u64::from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().subsec_nanos());
        Self(std::env::var("OUTBOX_TEST_SEED").ok().map_or_else(now, |seed| seed.parse().unwrap()) | 1)
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end.max(1)
    }
}
