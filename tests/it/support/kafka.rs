//! Kafka brokers: reading what arrived, making topics.

use std::ops::Deref;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rdkafka::admin::{
    AdminClient, AdminOptions, AlterConfig, NewPartitions, NewTopic, ResourceSpecifier, TopicReplication,
};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Headers, Message};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use super::postgres::block_on;
use super::{free_port, must_run, private_dir, script, signal, variable, within};

/// One record as a consumer sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rec {
    pub(crate) topic: String,
    pub(crate) partition: i32,
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) value: Option<Vec<u8>>,
    pub(crate) headers: Vec<(String, Option<Vec<u8>>)>,
    pub(crate) timestamp: i64,
}

impl Rec {
    fn of(message: &BorrowedMessage<'_>) -> Self {
        let headers = message.headers().map(|headers| {
            headers.iter().map(|header| (header.key.to_owned(), header.value.map(<[u8]>::to_vec))).collect()
        });
        Self {
            topic: message.topic().to_owned(),
            partition: message.partition(),
            key: message.key().map(<[u8]>::to_vec),
            value: message.payload().map(<[u8]>::to_vec),
            headers: headers.unwrap_or_default(),
            timestamp: message.timestamp().to_millis().unwrap_or(-1),
        }
    }

    /// The value as text; `<null>` for a tombstone.
    pub(crate) fn text(&self) -> String {
        self.value.as_deref().map_or_else(|| "<null>".to_owned(), |value| String::from_utf8_lossy(value).into_owned())
    }

    /// The key as text; `<null>` for none.
    pub(crate) fn key_text(&self) -> String {
        self.key.as_deref().map_or_else(|| "<null>".to_owned(), |key| String::from_utf8_lossy(key).into_owned())
    }

    /// A header: `None` if it is not there, `Some(None)` if it is null.
    #[expect(clippy::option_option, reason = "absent and null differ")]
    pub(crate) fn header(&self, name: &str) -> Option<Option<&[u8]>> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_deref())
    }

    /// A header that is there and not null, as text.
    #[track_caller]
    pub(crate) fn header_text(&self, name: &str) -> String {
        let value = self.header(name).flatten().unwrap_or_else(|| panic!("no header {name:?}: {:?}", self.headers));
        String::from_utf8_lossy(value).into_owned()
    }
}

/// A cluster.
#[derive(Clone, Debug)]
pub(crate) struct Kafka {
    pub(crate) bootstrap: String,
}

impl Kafka {
    /// The one that all tests share. It makes no topics by itself.
    pub(crate) fn shared() -> Self {
        Self { bootstrap: variable("OUTBOX_TEST_KAFKA") }
    }

    fn client(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config
            .set("bootstrap.servers", &self.bootstrap)
            .set("log_level", "0")
            .set("group.id", "outboxd-tests")
            .set("enable.auto.commit", "false")
            .set("enable.partition.eof", "true")
            .set("fetch.wait.max.ms", "50")
            .set("reconnect.backoff.max.ms", "500")
            .set("allow.auto.create.topics", "false");
        config
    }

    fn consumer(&self) -> BaseConsumer {
        self.client().create().unwrap()
    }

    fn admin(&self) -> AdminClient<DefaultClientContext> {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &self.bootstrap).set("log_level", "0").create().unwrap()
    }

    /// How many partitions a topic has; `None` if there is no such topic, or no answer.
    pub(crate) fn partitions(&self, topic: &str) -> Option<i32> {
        partitions(&self.consumer(), topic)
    }

    /// The names of all topics that begin so.
    pub(crate) fn topics(&self, prefix: &str) -> Vec<String> {
        let metadata = self.consumer().fetch_metadata(None, Duration::from_secs(10)).unwrap();
        let names = metadata.topics().iter().map(|topic| topic.name().to_owned());
        names.filter(|name| name.starts_with(prefix)).collect()
    }

    /// How many records there are in all topics that begin so, those of compaction and transactions not set off.
    pub(crate) fn count(&self, prefix: &str) -> u64 {
        let consumer = self.consumer();
        let mut count = 0;
        for topic in self.topics(prefix) {
            for partition in 0..partitions(&consumer, &topic).unwrap_or(0) {
                let (first, end) =
                    consumer.fetch_watermarks(&topic, partition, Duration::from_secs(5)).unwrap_or((0, 0));
                count += u64::try_from(end - first).unwrap_or(0);
            }
        }
        count
    }

    /// Makes a topic and waits until it is there.
    #[track_caller]
    pub(crate) fn create_topic(&self, topic: &str, partitions: i32, config: &[(&str, &str)]) {
        let mut new = NewTopic::new(topic, partitions, TopicReplication::Fixed(1));
        for (name, value) in config {
            new = new.set(name, value);
        }
        let results = block_on(self.admin().create_topics([&new], &AdminOptions::new())).unwrap();
        for result in results {
            result.unwrap_or_else(|(topic, code)| panic!("{topic}: {code}"));
        }
        super::eventually("the new topic is there", 10, || self.partitions(topic));
    }

    /// Gives a topic more partitions, `count` in all.
    #[track_caller]
    pub(crate) fn add_partitions(&self, topic: &str, count: usize) {
        let more = NewPartitions::new(topic, count);
        let results = block_on(self.admin().create_partitions([&more], &AdminOptions::new())).unwrap();
        for result in results {
            result.unwrap_or_else(|(topic, code)| panic!("{topic}: {code}"));
        }
    }

    /// Changes an option of a topic.
    #[track_caller]
    pub(crate) fn set_topic_option(&self, topic: &str, name: &str, value: &str) {
        let change = AlterConfig::new(ResourceSpecifier::Topic(topic)).set(name, value);
        let results = block_on(self.admin().alter_configs([&change], &AdminOptions::new())).unwrap();
        for result in results {
            result.unwrap_or_else(|(resource, code)| panic!("{resource:?}: {code}"));
        }
    }

    /// An option of a topic as the broker tells it.
    #[track_caller]
    pub(crate) fn topic_option(&self, topic: &str, name: &str) -> Option<String> {
        let resource = ResourceSpecifier::Topic(topic);
        let results = block_on(self.admin().describe_configs([&resource], &AdminOptions::new())).unwrap();
        let config = results.into_iter().next()?.ok()?;
        config.entry_map().get(name).and_then(|entry| entry.value.clone())
    }

    /// Waits until a topic holds at least `count` records; returns those that were read, all partitions' together,
    /// in order within each partition.
    #[track_caller]
    pub(crate) fn consume(&self, topic: &str, count: usize, seconds: u64) -> Vec<Rec> {
        self.consume_until(topic, seconds, |records| records.len() >= count)
    }

    /// Reads a topic from its beginning until what was read is enough; asked at the beginning and after each record.
    #[track_caller]
    pub(crate) fn consume_until(
        &self,
        topic: &str,
        seconds: u64,
        mut is_enough: impl FnMut(&[Rec]) -> bool,
    ) -> Vec<Rec> {
        let begin = Instant::now();
        let limit = within(seconds);
        let consumer = self.consumer();
        let found = super::eventually(&format!("topic {topic}"), seconds, || partitions(&consumer, topic));
        assign(&consumer, topic, found);
        let mut records = Vec::new();
        while !is_enough(&records) {
            // errors pass by themselves: the end of a partition, a broker that is away
            loop {
                assert!(begin.elapsed() < limit, "{} records in {topic}, too few within {limit:?}", records.len());
                if let Some(Ok(message)) = consumer.poll(Duration::from_millis(100)) {
                    records.push(Rec::of(&message));
                    break;
                }
            }
        }
        records
    }

    /// Everything that a topic holds; nothing if there is no such topic.
    #[track_caller]
    pub(crate) fn read_all(&self, topic: &str) -> Vec<Rec> {
        let consumer = self.consumer();
        let Some(count) = partitions(&consumer, topic) else { return Vec::new() };
        assign(&consumer, topic, count);
        let begin = Instant::now();
        let mut records = Vec::new();
        let mut ended = std::collections::HashSet::new();
        while ended.len() < usize::try_from(count).unwrap() {
            assert!(begin.elapsed() < within(30), "topic {topic} could not be read to its end");
            match consumer.poll(Duration::from_millis(100)) {
                Some(Ok(message)) => records.push(Rec::of(&message)),
                Some(Err(KafkaError::PartitionEOF(partition))) => _ = ended.insert(partition),
                Some(Err(_)) | None => {}
            }
        }
        records
    }

    /// The newest position of an instance.
    #[track_caller]
    pub(crate) fn position(&self, topic: &str, instance: &str) -> Option<u64> {
        let records = self.read_all(topic);
        let newest = records.iter().rev().find(|record| record.key.as_deref() == Some(instance.as_bytes()))?;
        let json: serde_json::Value = serde_json::from_slice(newest.value.as_deref()?).unwrap();
        Some(super::lsn(json["position"].as_str().unwrap()))
    }
}

fn partitions(consumer: &BaseConsumer, topic: &str) -> Option<i32> {
    // all topics: asking for one could make it
    let metadata = consumer.fetch_metadata(None, Duration::from_secs(5)).ok()?;
    let found = metadata.topics().iter().find(|found| found.name() == topic)?;
    let count = found.partitions().len();
    (found.error().is_none() && count > 0).then(|| i32::try_from(count).unwrap())
}

fn assign(consumer: &BaseConsumer, topic: &str, partitions: i32) {
    let mut list = TopicPartitionList::new();
    for partition in 0..partitions {
        list.add_partition_offset(topic, partition, Offset::Beginning).unwrap();
    }
    consumer.assign(&list).unwrap();
}

/// A broker of one test, which may stop it, kill it and freeze it.
pub(crate) struct PrivateKafka {
    kafka: Kafka,
    port: u16,
    dir: PathBuf,
}

impl PrivateKafka {
    /// Makes and starts one.
    #[track_caller]
    pub(crate) fn start() -> Self {
        let broker = Self::prepare();
        broker.start_again();
        broker
    }

    /// Chooses an address; nothing runs there before [`start_again`](Self::start_again).
    pub(crate) fn prepare() -> Self {
        let port = free_port();
        Self { kafka: Kafka { bootstrap: format!("127.0.0.1:{port}") }, port, dir: private_dir("kafka") }
    }

    /// Starts it, for the first time or again.
    #[track_caller]
    pub(crate) fn start_again(&self) {
        self.start_with("");
    }

    /// Starts it for the first time, with these lines more in its configuration.
    #[track_caller]
    pub(crate) fn start_with(&self, configuration: &str) {
        self.start_with_jvm(configuration, "");
    }

    /// The same with further options of the Java machine.
    #[track_caller]
    pub(crate) fn start_with_jvm(&self, configuration: &str, jvm: &str) {
        let mut command = script("kafka.sh");
        command.arg("start").arg(&self.dir).arg(self.port.to_string());
        command.env("KAFKA_JARS", variable("OUTBOX_TEST_KAFKA_JARS"));
        command.env("KAFKA_PROPS", format!("auto.create.topics.enable=false\n{configuration}"));
        command.env("KAFKA_JVM_MORE", jvm);
        must_run(&mut command);
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(self.dir.join("broker.log")).unwrap_or_default()).into_owned()
    }

    /// Ends it in good order.
    #[track_caller]
    pub(crate) fn stop(&self) {
        must_run(script("kafka.sh").arg("stop").arg(&self.dir));
    }

    fn pid(&self) -> u32 {
        std::fs::read_to_string(self.dir.join("broker.pid")).unwrap().trim().parse().unwrap()
    }

    /// Freezes it: connections stay, nothing answers.
    pub(crate) fn freeze(&self) {
        assert!(signal(self.pid(), "STOP"));
    }

    /// Lets it go on.
    pub(crate) fn thaw(&self) {
        assert!(signal(self.pid(), "CONT"));
    }
}

impl Deref for PrivateKafka {
    type Target = Kafka;

    fn deref(&self) -> &Kafka {
        &self.kafka
    }
}

impl Drop for PrivateKafka {
    fn drop(&mut self) {
        let _ = script("kafka.sh").arg("kill").arg(&self.dir).status();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}
