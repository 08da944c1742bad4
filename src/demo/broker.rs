//! A broker inside this process that speaks Kafka's protocol (librdkafka's mock), and a consumer that reads from it over
//! TCP like any other.
//!
//! The mock keeps 5 MiB of a partition, has no requests for administration and compacts nothing: its topics are made
//! here, and the sink asks nothing about their settings. For a demo that is enough, for nothing else.

use std::time::Instant;

use anyhow::Context;
use rdkafka::client::ClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{Consumer, ConsumerContext, StreamConsumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Headers, Message};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use super::ledger::{Arrival, Judgement, Ledger};
use super::screen::{Row, Screen, Side, millis};
use super::shop::{AGGREGATES, RUSH};

const PARTITIONS: i32 = 3;

/// The broker; it ends when dropped.
pub(super) struct Broker {
    cluster: MockCluster<'static, DefaultProducerContext>,
}

impl Broker {
    /// Starts it, with the topics of the shop and `positions_topic`.
    ///
    /// # Errors
    /// librdkafka cannot listen.
    pub(super) fn start(positions_topic: &str) -> anyhow::Result<Self> {
        let cluster = MockCluster::new(1).context("start the broker")?;
        for aggregate in AGGREGATES {
            cluster.create_topic(&topic(aggregate), PARTITIONS, 1).context("make a topic")?;
        }
        cluster.create_topic(positions_topic, 1, 1).context("make a topic")?;
        Ok(Self { cluster })
    }

    /// Where it listens.
    pub(super) fn address(&self) -> String {
        self.cluster.bootstrap_servers()
    }
}

fn topic(aggregate: &str) -> String {
    format!("outbox.event.{aggregate}")
}

/// The shop's consumer.
pub(super) type ShopConsumer = StreamConsumer<Quiet>;

/// Keeps what librdkafka calls errors off the screen: the end of a partition is one, and what matters is returned too.
pub(super) struct Quiet;

impl ClientContext for Quiet {
    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(%error, "the consumer of the demo: {reason}");
    }
}

impl ConsumerContext for Quiet {}

/// A consumer of all topics of the shop, from their beginning.
///
/// # Errors
/// librdkafka's.
pub(super) fn consumer(address: &str) -> anyhow::Result<ShopConsumer> {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", address).set("client.id", "demo-consumer");
    // partitions are assigned by hand; librdkafka wants a name all the same
    config.set("group.id", "demo").set("enable.auto.commit", "false").set("auto.offset.reset", "earliest");
    // unlike a real broker, the mock answers not before this time is over, whatever arrives meanwhile
    config.set("fetch.wait.max.ms", "2");
    // tells when it has nothing more to read
    config.set("enable.partition.eof", "true");
    let consumer: ShopConsumer = config.create_with_context(Quiet).context("create the consumer")?;
    let mut assignment = TopicPartitionList::new();
    for aggregate in AGGREGATES {
        for partition in 0..PARTITIONS {
            let from = Offset::Beginning;
            assignment.add_partition_offset(&topic(aggregate), partition, from).context("assign partitions")?;
        }
    }
    consumer.assign(&assignment).context("assign partitions")?;
    Ok(consumer)
}

/// Waits until the consumer stands at the end of every partition: the first event is not to wait for that.
///
/// # Errors
/// The broker cannot be read from.
pub(super) async fn ready(consumer: &ShopConsumer) -> anyhow::Result<()> {
    let mut open = AGGREGATES.iter().map(|_| PARTITIONS).sum::<i32>();
    while open > 0 {
        match consumer.recv().await {
            Err(KafkaError::PartitionEOF(_)) => open -= 1,
            Err(error) => return Err(error).context("read from the broker"),
            Ok(_) => {}
        }
    }
    Ok(())
}

/// Reads for as long as it is polled: into the books, and onto the screen.
///
/// # Errors
/// The broker cannot be read from.
pub(super) async fn consume(consumer: &ShopConsumer, ledger: &Ledger, screen: &Screen) -> anyhow::Result<()> {
    loop {
        let message = match consumer.recv().await {
            Err(KafkaError::PartitionEOF(_)) => continue,
            message => message.context("read from the broker")?,
        };
        let arrival = arrival(&message);
        let place = format!("partition {}, offset {}", message.partition(), message.offset());
        let (id, topic, key) = (arrival.id.clone(), arrival.topic.clone(), arrival.key.clone());
        let judgement = ledger.arrived(arrival);
        if topic.ends_with(RUSH) && matches!(judgement, Judgement::Good(_)) {
            continue;
        }
        let (side, what, note) = match judgement {
            Judgement::Good(delay) => (Side::Read, "arrived", format!("{:>8}  {place}", millis(delay))),
            Judgement::Bad(why) => (Side::NotKept, "WRONG", format!("it arrived {why}")),
            Judgement::Foreign => (Side::Read, "arrived", format!("{:>8}  {place}", "")),
        };
        screen.row(Row { side, what, key: &key, id: &id, subject: &topic, note: &note });
    }
}

fn arrival(message: &BorrowedMessage<'_>) -> Arrival {
    let at = Instant::now();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let id = message.headers().and_then(|headers| headers.iter().find(|header| header.key == "id"));
    Arrival {
        id: id.and_then(|header| header.value).map(text).unwrap_or_default(),
        topic: message.topic().to_owned(),
        key: message.key().map(text).unwrap_or_default(),
        payload: message.payload().and_then(|bytes| serde_json::from_slice(bytes).ok()),
        at,
    }
}
