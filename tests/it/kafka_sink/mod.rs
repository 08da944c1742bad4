//! The Kafka sink against a real broker: `OUTBOX_TEST_KAFKA` is its address.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use outboxd::config::KafkaConfig;
use outboxd::position::{Lsn, Position};
use outboxd::record::{Header, Record};
use outboxd::sink::kafka::KafkaSink;
use outboxd::sink::positions::{FORMAT, PositionRecord, SourceIdentity};
use outboxd::sink::{Acknowledgements, Blocked, Enqueued, Sink, SinkError};
use outboxd::state::Reason;
use prometheus_client::metrics::family::Family;
use rdkafka::admin::{AdminClient, AdminOptions, AlterConfig, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Headers, Message};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

mod first;

/// Longest time a test waits for anything.
const DEADLINE: Duration = Duration::from_secs(60);
/// The records' times are fixed and long past: without this the broker would delete them by age.
const KEEP: (&str, &str) = ("retention.ms", "-1");

fn broker() -> String {
    std::env::var("OUTBOX_TEST_KAFKA").expect("OUTBOX_TEST_KAFKA must hold the address of a Kafka broker, host:port")
}

/// A name that no other test or run uses.
fn unique(name: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
    format!("sink-test.{name}.{now}.{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

fn config() -> KafkaConfig {
    let topic_config = BTreeMap::from([KEEP].map(|(key, value)| (key.to_owned(), value.to_owned())));
    KafkaConfig {
        bootstrap_servers: broker(),
        positions_topic: unique("positions"),
        topic_config,
        ..KafkaConfig::default()
    }
}

fn admin() -> AdminClient<DefaultClientContext> {
    ClientConfig::new().set("bootstrap.servers", broker()).create().unwrap()
}

async fn create_topic(name: &str, partitions: i32, settings: &[(&str, &str)]) {
    let mut topic = NewTopic::new(name, partitions, TopicReplication::Fixed(1));
    for (key, value) in settings.iter().chain([&KEEP]) {
        topic = topic.set(key, value);
    }
    let created = admin().create_topics([&topic], &AdminOptions::new()).await.unwrap();
    created.into_iter().for_each(|outcome| drop(outcome.unwrap()));
}

async fn alter_topic(name: &str, key: &str, value: &str) {
    let change = AlterConfig::new(ResourceSpecifier::Topic(name)).set(key, value);
    admin().alter_configs([&change], &AdminOptions::new()).await.unwrap().into_iter().for_each(|outcome| {
        outcome.unwrap();
    });
}

async fn delete_topics(names: &[&str]) {
    // What the test has shown does not depend on it.
    let _ = admin().delete_topics(names, &AdminOptions::new()).await;
}

/// A record as a consumer sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    partition: i32,
    key: Option<Vec<u8>>,
    payload: Option<Vec<u8>>,
    headers: Vec<(String, Option<Vec<u8>>)>,
    timestamp_ms: Option<i64>,
}

impl Seen {
    fn of(message: &BorrowedMessage<'_>) -> Self {
        let headers = message.headers().map(|headers| {
            headers.iter().map(|header| (header.key.to_owned(), header.value.map(<[u8]>::to_vec))).collect()
        });
        Self {
            partition: message.partition(),
            key: message.key().map(<[u8]>::to_vec),
            payload: message.payload().map(<[u8]>::to_vec),
            headers: headers.unwrap_or_default(),
            timestamp_ms: message.timestamp().to_millis(),
        }
    }

    fn id(&self) -> usize {
        let id = self.headers.iter().find(|(key, _)| key == "id").and_then(|(_, value)| value.clone()).unwrap();
        String::from_utf8(id).unwrap().parse().unwrap()
    }
}

/// Reads a whole topic, partition by partition.
fn read_topic(topic: &str, partitions: i32) -> Vec<Seen> {
    read_topic_of(&broker(), topic, partitions)
}

fn read_topic_of(broker: &str, topic: &str, partitions: i32) -> Vec<Seen> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", broker)
        .set("group.id", "sink-test")
        .set("enable.partition.eof", "true")
        .create()
        .unwrap();
    let mut assignment = TopicPartitionList::new();
    for partition in 0..partitions {
        assignment.add_partition_offset(topic, partition, Offset::Beginning).unwrap();
    }
    consumer.assign(&assignment).unwrap();
    let (mut seen, mut open, begun) = (Vec::new(), partitions, Instant::now());
    while open > 0 {
        match consumer.poll(Duration::from_millis(200)) {
            Some(Ok(message)) => seen.push(Seen::of(&message)),
            Some(Err(KafkaError::PartitionEOF(_))) => open -= 1,
            Some(Err(error)) => panic!("{topic}: {error}"),
            None => assert!(begun.elapsed() < DEADLINE, "{topic} was not read to its end"),
        }
    }
    seen
}

/// An event of the tests: its id is its place.
#[derive(Clone, Debug)]
struct Event {
    topic: String,
    key: Option<Vec<u8>>,
    payload: Option<Vec<u8>>,
}

impl Event {
    fn new(topic: &str, key: &str, payload: impl Into<Vec<u8>>) -> Self {
        Self { topic: topic.to_owned(), key: Some(key.into()), payload: Some(payload.into()) }
    }
}

fn position(instance: &str, events: usize) -> PositionRecord {
    let source = SourceIdentity::Postgres {
        system_id: "7".to_owned(),
        timeline: 1,
        database: "shop".to_owned(),
        slot: "s".to_owned(),
        publication: "p".to_owned(),
        publication_oid: 1,
        publication_xmin: None,
        tables: Vec::new(),
        schemas: Vec::new(),
    };
    PositionRecord {
        version: FORMAT,
        instance: instance.to_owned(),
        generation: 1,
        source,
        position: Position::Postgres(Lsn(events as u64)),
        verified: Position::Postgres(Lsn(events as u64)),
    }
}

/// The smallest relay: every event is a transaction of its own; the position is the number of events that are done.
struct Relay {
    sink: KafkaSink,
    instance: String,
    events: Vec<Event>,
    next: usize,
    done: usize,
    acknowledged: BTreeSet<usize>,
    committed: usize,
    /// What is on its way takes so many bytes.
    window: u64,
    opened: bool,
    restarts: Vec<String>,
    blocked: Vec<Blocked>,
}

impl Relay {
    fn new(config: KafkaConfig, events: Vec<Event>) -> Self {
        let instance = unique("instance");
        Self {
            sink: KafkaSink::new(config, &instance, Family::default()).unwrap(),
            instance,
            events,
            next: 0,
            done: 0,
            acknowledged: BTreeSet::new(),
            committed: 0,
            window: 0,
            opened: false,
            restarts: Vec::new(),
            blocked: Vec::new(),
        }
    }

    /// Publishes until `until` events are committed, or something stands in the way that `stop` does not want to wait
    /// for.
    async fn run(&mut self, until: usize, stop: impl Fn(&Blocked) -> bool) -> Result<(), SinkError> {
        let deadline = Instant::now() + DEADLINE;
        while self.committed < until {
            assert!(
                Instant::now() < deadline,
                "{} of {until}, {:?}, {:?}",
                self.committed,
                self.restarts,
                self.blocked
            );
            match self.step(&stop).await {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(SinkError::Restart { message, at_once, .. }) => {
                    self.opened = false;
                    self.restarts.push(message);
                    if !at_once {
                        tokio::time::sleep(Duration::from_millis(500)).await;
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn step(&mut self, stop: &impl Fn(&Blocked) -> bool) -> Result<bool, SinkError> {
        if !self.opened {
            let stored = self.sink.open(&self.instance).await?;
            self.committed = stored.map_or(0, |record| record.position.lsn().unwrap().0 as usize);
            (self.next, self.done, self.opened) = (self.committed, self.committed, true);
            self.acknowledged.clear();
            self.window = 0;
        }
        while let Some(event) = self.events.get(self.next) {
            let id = self.next.to_string();
            let record = Record {
                topic: &event.topic,
                partition: None,
                key: event.key.as_deref().map(Cow::Borrowed),
                payload: event.payload.as_deref().map(Cow::Borrowed),
                headers: vec![
                    Header { key: "id", value: Some(Cow::Borrowed(id.as_bytes())) },
                    Header { key: "none", value: None },
                    Header { key: "empty", value: Some(Cow::Borrowed(b"")) },
                    Header { key: "none", value: Some(Cow::Borrowed(b"again")) },
                ],
                timestamp_ms: 1_700_000_000_000 + self.next as i64,
            };
            match self.sink.enqueue(&record, self.next)? {
                Enqueued::Queued => {
                    self.next += 1;
                    self.window += record.window_bytes();
                }
                Enqueued::Full => break,
                Enqueued::Blocked => {
                    if let Some(blocked) = self.sink.blocked() {
                        let stopped = stop(&blocked);
                        self.blocked.push(blocked);
                        if stopped {
                            return Ok(false);
                        }
                    }
                    break;
                }
            }
        }
        let mut news = Acknowledgements::default();
        // The pause stands for the relay's tick: a commit may be due although nothing else happens.
        if let Ok(outcome) = tokio::time::timeout(Duration::from_millis(100), self.sink.acknowledged(&mut news)).await {
            outcome?;
        }
        self.window -= news.acks.iter().map(|ack| ack.bytes).sum::<u64>();
        self.acknowledged.extend(news.acks.iter().map(|ack| ack.ordinal));
        while self.acknowledged.remove(&self.done) {
            self.done += 1;
        }
        if let Some(Position::Postgres(Lsn(lsn))) = news.committed {
            self.committed = lsn as usize;
        }
        if self.done > self.committed {
            self.sink.commit(&position(&self.instance, self.done))?;
        }
        Ok(true)
    }
}

/// Per key, the ids in the order of their first delivery.
fn first_deliveries(seen: &[Seen]) -> BTreeMap<Option<Vec<u8>>, Vec<usize>> {
    let mut ids: BTreeMap<_, Vec<usize>> = BTreeMap::new();
    let mut known = BTreeSet::new();
    for record in seen {
        if known.insert(record.id()) {
            ids.entry(record.key.clone()).or_default().push(record.id());
        }
    }
    ids
}

fn assert_complete_and_in_order(seen: &[Seen], events: usize) {
    let ids = first_deliveries(seen);
    assert_eq!(ids.values().map(Vec::len).sum::<usize>(), events, "every event arrived");
    for (key, ids) in ids {
        assert!(ids.is_sorted(), "key {key:?}: {ids:?}");
    }
}

fn refused(error: SinkError) -> (Reason, String, String) {
    match error {
        SinkError::Refused { reason, message, hint } => (reason, message, hint),
        other => panic!("{other:?}"),
    }
}

/// Keys go to the partitions that Java's producer chooses.
#[tokio::test(flavor = "multi_thread")]
async fn chooses_javas_partitions() {
    let config = config();
    for (key, partitions, expected) in [
        ("fd7af248-ce5c-46a5-93d7-1c0c9005b99d", 32, 26),
        ("354afe16-939a-4ea8-8e17-8bb0840b6886", 10, 4),
        ("f562ac3b-2224-4e25-a0ab-56094e10c239", 10, 5),
        ("1", 12, 3),
        ("42", 12, 4),
        ("order-0007", 12, 8),
        ("é", 12, 3),
        ("a", 3, 1),
    ] {
        let topic = unique("murmur2");
        create_topic(&topic, partitions, &[]).await;
        let mut relay = Relay::new(config.clone(), vec![Event::new(&topic, key, "x")]);
        relay.run(1, |_| false).await.unwrap();
        assert_eq!(read_topic(&topic, partitions)[0].partition, expected, "{key}");
        delete_topics(&[&topic]).await;
    }
    delete_topics(&[&config.positions_topic]).await;
}

/// Null and empty stay apart: key, payload, header; so do repeated headers and the time. Topics are made as configured.
/// What a record took of the window comes back with its acknowledgement, to the byte.
#[tokio::test(flavor = "multi_thread")]
async fn keeps_every_part_of_a_record() {
    let topic = unique("parts");
    let mut config = config();
    config.topic_partitions = Some(3);
    let mut events = Vec::new();
    for key in [None, Some(Vec::new()), Some(vec![0, 255])] {
        for payload in [None, Some(Vec::new()), Some(vec![255, 0])] {
            events.push(Event { topic: topic.clone(), key: key.clone(), payload });
        }
    }
    let mut relay = Relay::new(config.clone(), events.clone());
    relay.run(events.len(), |_| false).await.unwrap();
    assert_eq!(relay.restarts, Vec::<String>::new());
    assert_eq!(relay.window, 0);
    let mut seen = read_topic(&topic, 3);
    seen.sort_by_key(Seen::id);
    assert_eq!(seen.len(), events.len());
    for (event, seen) in events.iter().zip(&seen) {
        assert_eq!((&event.key, &event.payload), (&seen.key, &seen.payload));
        let headers: Vec<_> = seen.headers.iter().map(|(key, value)| (key.as_str(), value.as_deref())).collect();
        let id = seen.id().to_string();
        let expected: Vec<(&str, Option<&[u8]>)> =
            vec![("id", Some(id.as_bytes())), ("none", None), ("empty", Some(b"")), ("none", Some(b"again"))];
        assert_eq!(headers, expected);
        assert_eq!(seen.timestamp_ms, Some(1_700_000_000_000 + seen.id() as i64));
    }
    // Java hashes an empty key: 275646681 with 3 partitions is 0.
    assert!(seen.iter().filter(|seen| seen.key == Some(Vec::new())).all(|seen| seen.partition == 0), "{seen:?}");
    delete_topics(&[&topic, &config.positions_topic]).await;
}

/// The position comes back, and only to its own instance.
#[tokio::test(flavor = "multi_thread")]
async fn remembers_the_position() {
    let topic = unique("remembered");
    let config = config();
    create_topic(&topic, 1, &[]).await;
    let mut relay = Relay::new(config.clone(), vec![Event::new(&topic, "k", "x"); 50]);
    relay.run(50, |_| false).await.unwrap();
    let stored = relay.sink.open(&relay.instance.clone()).await.unwrap();
    assert_eq!(stored, Some(position(&relay.instance, 50)));
    assert_eq!(relay.sink.open("another").await.unwrap(), None);
    // Behind more records of others than are read at first.
    let producer: rdkafka::producer::BaseProducer =
        ClientConfig::new().set("bootstrap.servers", broker()).create().unwrap();
    for _ in 0..10_100 {
        let foreign = rdkafka::producer::BaseRecord::to(&config.positions_topic).key("another").payload("not ours");
        producer.send(foreign).unwrap();
    }
    rdkafka::producer::Producer::flush(&producer, DEADLINE).unwrap();
    let stored = relay.sink.open(&relay.instance.clone()).await.unwrap();
    assert_eq!(stored, Some(position(&relay.instance, 50)));
    relay.sink.close(Duration::from_secs(1)).await;
    delete_topics(&[&topic, &config.positions_topic]).await;
}

/// A positions topic that forgets is refused, with the command that mends it; so is a record that is not understood.
#[tokio::test(flavor = "multi_thread")]
async fn refuses_positions_that_would_not_be_safe() {
    let config = config();
    create_topic(&config.positions_topic, 1, &[("cleanup.policy", "delete")]).await;
    let mut sink = KafkaSink::new(config.clone(), "shop", Family::default()).unwrap();
    match sink.open("shop").await.unwrap_err() {
        SinkError::Configuration { hint, .. } => {
            assert!(hint.contains("--add-config cleanup.policy=compact"), "{hint}")
        }
        other => panic!("{other:?}"),
    }
    alter_topic(&config.positions_topic, "cleanup.policy", "compact").await;
    assert_eq!(sink.open("shop").await.unwrap(), None);
    let producer: rdkafka::producer::BaseProducer =
        ClientConfig::new().set("bootstrap.servers", broker()).create().unwrap();
    let foreign = rdkafka::producer::BaseRecord::to(&config.positions_topic).key("shop").payload("not ours");
    producer.send(foreign).unwrap();
    rdkafka::producer::Producer::flush(&producer, DEADLINE).unwrap();
    match sink.open("shop").await.unwrap_err() {
        SinkError::Configuration { message, .. } => {
            assert!(message.contains("partition 0, offset 0, key \"shop\""), "{message}");
        }
        other => panic!("{other:?}"),
    }
    delete_topics(&[&config.positions_topic]).await;
}

/// A missing topic blocks by name; when it is made, its events follow by themselves, in order.
#[tokio::test(flavor = "multi_thread")]
async fn waits_for_a_missing_topic() {
    let (there, missing) = (unique("there"), unique("missing"));
    let mut config = config();
    create_topic(&config.positions_topic, 1, &[("cleanup.policy", "compact")]).await;
    create_topic(&there, 1, &[]).await;
    config.create_topics = false;
    let events = vec![Event::new(&there, "a", "1"), Event::new(&missing, "a", "2"), Event::new(&there, "a", "3")];
    let mut relay = Relay::new(config.clone(), events);
    relay.run(3, |_| true).await.unwrap();
    let blocked = relay.blocked.last().unwrap();
    assert_eq!(blocked.reason, Reason::TopicMissing);
    assert!(blocked.detail.contains(&missing), "{}", blocked.detail);
    create_topic(&missing, 1, &[]).await;
    relay.run(3, |_| false).await.unwrap();
    assert_eq!(relay.restarts, Vec::<String>::new());
    assert_eq!(read_topic(&missing, 1).len(), 1);
    assert_eq!(read_topic(&there, 1).iter().map(Seen::id).collect::<Vec<_>>(), [0, 2]);
    delete_topics(&[&there, &missing, &config.positions_topic]).await;
}

/// A topic that cannot exist is the record's failure, found before anything is sent.
#[tokio::test(flavor = "multi_thread")]
async fn refuses_an_illegal_topic() {
    let config = config();
    let mut relay = Relay::new(config.clone(), vec![Event::new("a b", "k", "x")]);
    let (reason, message, _) = refused(relay.run(1, |_| false).await.unwrap_err());
    assert_eq!(reason, Reason::RecordRefused);
    assert!(message.contains("\"a b\"") && message.contains("event \"0\""), "{message}");
    delete_topics(&[&config.positions_topic]).await;
}

/// A record that is larger than its topic allows blocks before it is sent, to the byte; a raised limit lets it go on.
#[tokio::test(flavor = "multi_thread")]
async fn waits_for_a_limit_to_be_raised() {
    let topic = unique("large");
    let config = config();
    create_topic(&topic, 1, &[("max.message.bytes", "10000")]).await;
    let events = vec![Event::new(&topic, "k", "small"), Event::new(&topic, "k", vec![b'x'; 20_000])];
    let mut relay = Relay::new(config.clone(), events);
    relay.run(2, |_| true).await.unwrap();
    let blocked = relay.blocked.last().unwrap().clone();
    assert_eq!(blocked.reason, Reason::RecordTooLarge);
    assert!(blocked.detail.contains(&topic) && blocked.detail.contains("event \"1\""), "{}", blocked.detail);
    let size: u64 = blocked.hint.split_whitespace().rev().nth(2).unwrap().parse().unwrap();
    // One byte less than what the message asks for is still too small for us; exactly that is enough for the broker.
    alter_topic(&topic, "max.message.bytes", &size.to_string()).await;
    relay.run(2, |_| false).await.unwrap();
    assert_eq!(read_topic(&topic, 1).iter().map(|seen| seen.payload.as_ref().unwrap().len()).max(), Some(20_000));

    alter_topic(&topic, "max.message.bytes", &(size - 1).to_string()).await;
    let mut unknowing = Relay::new(config.clone(), vec![Event::new(&topic, "k", vec![b'x'; 20_000])]);
    unknowing.run(1, |_| true).await.unwrap();
    assert_eq!(unknowing.blocked.len(), 1, "{:?}", unknowing.blocked);
    delete_topics(&[&topic, &config.positions_topic]).await;
}

/// A limit that is lowered after it was looked up: batches are refused, yet nothing is lost and the order stands.
#[tokio::test(flavor = "multi_thread")]
async fn survives_a_limit_that_is_lowered() {
    let topic = unique("lowered");
    let config = config();
    create_topic(&topic, 1, &[]).await;
    let mut events: Vec<_> = (0..500).map(|i| Event::new(&topic, &format!("k{}", i % 7), vec![b'x'; 100])).collect();
    events.insert(400, Event::new(&topic, "k1", vec![b'x'; 20_000]));
    let mut relay = Relay::new(config.clone(), events[..100].to_vec());
    relay.run(100, |_| false).await.unwrap();
    alter_topic(&topic, "max.message.bytes", "10000").await;
    relay.events = events;
    relay.run(501, |blocked| blocked.reason == Reason::RecordTooLarge).await.unwrap();
    assert!(relay.restarts[0].contains("one by one"), "{:?}", relay.restarts);
    assert!(relay.blocked.last().unwrap().detail.contains("event \"400\""), "{:?}", relay.blocked);
    alter_topic(&topic, "max.message.bytes", "1048588").await;
    relay.run(501, |_| false).await.unwrap();
    assert_complete_and_in_order(&read_topic(&topic, 1), 501);
    delete_topics(&[&topic, &config.positions_topic]).await;
}

/// A limit that the user may not see: batches become smaller until they fit, and stay so.
#[tokio::test(flavor = "multi_thread")]
async fn finds_batches_that_fit_where_no_limit_is_told() {
    let topic = unique("untold");
    let config = config();
    create_topic(&topic, 1, &[("max.message.bytes", "100000")]).await;
    let event = |i: usize| Event::new(&topic, &format!("k{}", i % 7), vec![b'x'; 500]);
    let mut relay = Relay::new(config.clone(), (0..4_000).map(event).collect());
    // the same as without the right DESCRIBE_CONFIGS
    relay.sink = relay.sink.without_topic_settings();
    relay.run(4_000, |_| false).await.unwrap();
    assert!(relay.restarts.iter().all(|words| words.contains("making batches of")), "{:?}", relay.restarts);
    let restarts = relay.restarts.len();
    assert!((1..=4).contains(&restarts), "{:?}", relay.restarts);
    relay.events.extend((4_000..8_000).map(event));
    relay.run(8_000, |_| false).await.unwrap();
    assert_eq!(relay.restarts.len(), restarts, "{:?}", relay.restarts);
    assert_complete_and_in_order(&read_topic(&topic, 1), 8_000);
    delete_topics(&[&topic, &config.positions_topic]).await;
}

/// What the broker alone can refuse is refused alone: a record without key in a compacted topic, by its id.
#[tokio::test(flavor = "multi_thread")]
async fn finds_the_refused_record() {
    let topic = unique("compacted");
    let config = config();
    create_topic(&topic, 1, &[("cleanup.policy", "compact")]).await;
    let mut events: Vec<_> = (0..300).map(|i| Event::new(&topic, &format!("k{}", i % 5), "x")).collect();
    events[217].key = None;
    let mut relay = Relay::new(config.clone(), events);
    let (reason, message, hint) = refused(relay.run(300, |_| false).await.unwrap_err());
    assert_eq!(reason, Reason::RecordRefused, "{message}");
    assert!(message.contains("event \"217\"") && message.contains(&topic), "{message}");
    assert!(hint.contains("compacted"), "{hint}");
    assert_eq!(first_deliveries(&read_topic(&topic, 1)).values().flatten().count(), 217, "what came before went out");

    // Mended, it goes on, and back to batches.
    relay.events[217].key = Some(b"k2".to_vec());
    relay.opened = false;
    relay.run(300, |_| false).await.unwrap();
    assert_complete_and_in_order(&read_topic(&topic, 1), 300);
    for i in 300..600 {
        relay.events.push(Event::new(&topic, &format!("k{}", i % 5), "x"));
    }
    relay.run(600, |_| false).await.unwrap();
    assert!(relay.restarts.last().unwrap().contains("back"), "{:?}", relay.restarts);
    delete_topics(&[&topic, &config.positions_topic]).await;
}

/// No broker: an error with its address in about ten seconds, not a hang.
#[tokio::test(flavor = "multi_thread")]
async fn says_that_no_broker_answers() {
    let config = KafkaConfig { bootstrap_servers: "127.0.0.1:9".to_owned(), ..KafkaConfig::default() };
    let mut sink = KafkaSink::new(config, "shop", Family::default()).unwrap();
    let begun = Instant::now();
    match sink.open("shop").await.unwrap_err() {
        SinkError::Restart { reason: Reason::SinkUnreachable, message, at_once: false } => {
            assert!(message.contains("127.0.0.1:9") && message.contains("refused"), "{message}");
        }
        other => panic!("{other:?}"),
    }
    assert!(begun.elapsed() < Duration::from_secs(15));
    assert!(!sink.is_connected());
}
