//! The positions topic: verified at each start, read to its end once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::admin::ConfigResource;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Message};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use tracing::warn;

use super::admin::{self, Admin, Creation, Existence, words};
use super::context::AskingContext;
use super::failure::restart;
use super::oauth::Login;
use crate::config::KafkaConfig;
use crate::sink::SinkError;
use crate::sink::positions::PositionRecord;
use crate::state::Reason;

/// Longest time in which the reading may make no progress.
pub(super) const READ_TIMEOUT: Duration = Duration::from_secs(10);
/// How many records from the end are read first.
const TAIL_RECORDS: i64 = 10_000;

/// "The brokers did not answer", with their addresses.
pub(super) fn unreachable(config: &KafkaConfig, doing: &str, error: &KafkaError) -> SinkError {
    SinkError::Restart {
        reason: Reason::SinkUnreachable,
        message: format!("could not {doing} at {}: {}", config.bootstrap_servers, words(error)),
        at_once: false,
    }
}

/// The number of partitions of the positions topic, which is made if it is missing and may be made.
///
/// # Errors
/// [`SinkError::Configuration`] if it cannot be used, [`SinkError::Restart`] if no broker answers.
pub(super) async fn find_or_make(admin: &Arc<Admin>, config: &KafkaConfig) -> Result<usize, SinkError> {
    let topic = &config.positions_topic;
    let no_answer = |error| no_look_up(config, &error);
    match admin::existence(admin, topic).await.map_err(no_answer)? {
        Existence::Exists(partitions) => Ok(partitions),
        Existence::Refused(code) => Err(not_usable(topic, &format!("cannot be used: {code}"))),
        Existence::Missing if !config.create_topics => {
            Err(not_usable(topic, "does not exist, and create-topics is off"))
        }
        Existence::Missing => {
            let created = admin::create(admin, topic, &Creation::of_positions(config)).await.map_err(no_answer)?;
            created.map_err(|code| not_usable(topic, &format!("could not be created: {code}")))?;
            // somebody else may have been faster, with another number
            match admin::existence(admin, topic).await.map_err(no_answer)? {
                Existence::Exists(partitions) => Ok(partitions),
                Existence::Refused(code) => Err(not_usable(topic, &format!("cannot be used: {code}"))),
                Existence::Missing => Err(restart(
                    Reason::SinkUnreachable,
                    format!("not every broker knows yet that the positions topic \"{topic}\" was made"),
                    false,
                )),
            }
        }
    }
}

/// Verifies that the positions topic keeps its records.
///
/// # Errors
/// [`SinkError::Configuration`] if a position would not be safe there, [`SinkError::Restart`] if no broker answers.
pub(super) async fn verify(admin: &Admin, config: &KafkaConfig) -> Result<(), SinkError> {
    let topic = &config.positions_topic;
    match admin::configuration(admin, topic).await.map_err(|error| no_look_up(config, &error))? {
        Ok(found) if keeps_the_last_record(&found) => {}
        Ok(found) => return Err(not_compacted(config, &setting(&found, "cleanup.policy"))),
        Err(code) => warn!(
            topic,
            error = %code,
            "could not verify that the positions topic is compacted; grant DESCRIBE_CONFIGS on it"
        ),
    }
    Ok(())
}

fn no_look_up(config: &KafkaConfig, error: &KafkaError) -> SinkError {
    unreachable(config, &format!("look up the positions topic \"{}\"", config.positions_topic), error)
}

/// An option of a topic; empty if it is not told.
pub(super) fn setting(found: &ConfigResource, name: &str) -> String {
    found.get(name).and_then(|entry| entry.value.clone()).unwrap_or_default()
}

/// Whether the last record of a key stays for ever: compaction, and no deletion by age or size beside it.
fn keeps_the_last_record(found: &ConfigResource) -> bool {
    let policy = setting(found, "cleanup.policy");
    let has = |word: &str| policy.split(',').any(|part| part.trim() == word);
    let unlimited = |name: &str| setting(found, name) == "-1";
    has("compact") && (!has("delete") || (unlimited("retention.ms") && unlimited("retention.bytes")))
}

fn not_compacted(config: &KafkaConfig, policy: &str) -> SinkError {
    let topic = &config.positions_topic;
    SinkError::Configuration {
        message: format!(
            "the positions topic \"{topic}\" has cleanup.policy \"{policy}\": positions would expire, and an expired \
             position looks like a first start"
        ),
        hint: format!(
            "kafka-configs --bootstrap-server {} --alter --entity-type topics --entity-name {topic} \
             --add-config cleanup.policy=compact",
            config.bootstrap_servers
        ),
    }
}

fn not_usable(topic: &str, why: &str) -> SinkError {
    SinkError::Configuration {
        message: format!("the positions topic \"{topic}\" {why}"),
        hint: format!(
            "kafka-topics --create --topic {topic} --partitions 1 --config cleanup.policy=compact, and grant READ, \
             WRITE, DESCRIBE and DESCRIBE_CONFIGS on it to the user"
        ),
    }
}

/// Reads the last position record of `instance`. Blocks.
///
/// # Errors
/// [`SinkError::Configuration`] if a record of the instance is not understood, [`SinkError::Restart`] if the brokers
/// do not answer.
pub(super) fn read_last(
    client: &ClientConfig,
    context: AskingContext,
    config: &KafkaConfig,
    login: Option<&Login>,
    partitions: usize,
    instance: &str,
) -> Result<Option<PositionRecord>, SinkError> {
    let topic = &config.positions_topic;
    let failed = |error: KafkaError| unreachable(config, &format!("read the positions topic \"{topic}\""), &error);
    let consumer: BaseConsumer<AskingContext> = client.create_with_context(context).map_err(failed)?;
    if let Some(login) = login {
        login.install(consumer.client())?;
    }
    // Without this the consumer finds no leader at first, and asks again after half a second only.
    consumer.fetch_metadata(Some(topic), READ_TIMEOUT).map_err(failed)?;
    let mut ends = BTreeMap::new();
    for partition in 0..i32::try_from(partitions).unwrap_or(i32::MAX) {
        ends.insert(partition, consumer.fetch_watermarks(topic, partition, READ_TIMEOUT).map_err(failed)?);
    }
    // A busy instance writes a record every 100 ms, and compaction leaves the newest segment alone: the whole topic may
    // be large, but one's own record nearly always stands close to the end. With one partition the tail tells the last.
    let from = |(low, high): (i64, i64)| if partitions == 1 { low.max(high - TAIL_RECORDS) } else { low };
    let errors = Errors { failed: &failed, denied: &|why: &str| not_usable(topic, why) };
    let read = |from: &dyn Fn((i64, i64)) -> i64| {
        let mut last = Last::default();
        let mut see = |message: &BorrowedMessage<'_>| {
            if message.key() == Some(instance.as_bytes()) { last.see(message, instance) } else { Ok(()) }
        };
        read_from(&consumer, topic, &ends, from, &mut see, &errors).map(|()| last)
    };
    let last = read(&from)?;
    if last.seen || ends.values().all(|&ends| from(ends) == ends.0) {
        return Ok(last.newest());
    }
    read(&|(low, _)| low).map(Last::newest)
}

/// What reading a topic ends with.
pub(super) struct Errors<'a> {
    /// The brokers do not answer.
    pub(super) failed: &'a dyn Fn(KafkaError) -> SinkError,
    /// The topic may not be read, with the reason.
    pub(super) denied: &'a dyn Fn(&str) -> SinkError,
}

/// Reads every partition to its end, beginning `from` its lowest and highest offset, and shows every record.
pub(super) fn read_from(
    consumer: &BaseConsumer<AskingContext>,
    topic: &str,
    ends: &BTreeMap<i32, (i64, i64)>,
    from: &dyn Fn((i64, i64)) -> i64,
    see: &mut dyn FnMut(&BorrowedMessage<'_>) -> Result<(), SinkError>,
    errors: &Errors<'_>,
) -> Result<(), SinkError> {
    let mut assignment = TopicPartitionList::new();
    for (partition, ends) in ends {
        assignment.add_partition_offset(topic, *partition, Offset::Offset(from(*ends))).map_err(errors.failed)?;
    }
    consumer.assign(&assignment).map_err(errors.failed)?;

    let mut open: BTreeSet<i32> = ends.keys().copied().collect();
    let mut deadline = Instant::now() + READ_TIMEOUT;
    let mut trouble = KafkaError::MessageConsumption(RDKafkaErrorCode::OperationTimedOut);
    while !open.is_empty() {
        match consumer.poll(Duration::from_millis(100)) {
            Some(Ok(message)) => {
                deadline = Instant::now() + READ_TIMEOUT;
                see(&message)?;
            }
            Some(Err(KafkaError::PartitionEOF(partition))) => {
                deadline = Instant::now() + READ_TIMEOUT;
                open.remove(&partition);
            }
            Some(Err(error)) => match error.rdkafka_error_code() {
                Some(RDKafkaErrorCode::TopicAuthorizationFailed) => {
                    return Err((errors.denied)(&format!("cannot be read: {}", words(&error))));
                }
                // The group is a name only: nothing is asked of its coordinator.
                Some(RDKafkaErrorCode::GroupAuthorizationFailed) => {}
                _ => trouble = error,
            },
            None => {}
        }
        if Instant::now() > deadline {
            return Err((errors.failed)(trouble));
        }
    }
    Ok(())
}

/// The last record of each partition. There is more than one only if the topic was given more partitions later.
#[derive(Default)]
struct Last {
    records: BTreeMap<i32, PositionRecord>,
    /// Whether there was any record of the instance, a tombstone too.
    seen: bool,
}

impl Last {
    fn see(&mut self, message: &BorrowedMessage<'_>, instance: &str) -> Result<(), SinkError> {
        self.seen = true;
        let Some(payload) = message.payload() else {
            self.records.remove(&message.partition());
            return Ok(());
        };
        let record = PositionRecord::parse(payload, instance).map_err(|why| SinkError::Configuration {
            message: format!(
                "the position record at topic \"{}\", partition {}, offset {}, key \"{instance}\" \
                 is not understood: {why}",
                message.topic(),
                message.partition(),
                message.offset()
            ),
            hint: "was it written by a newer version, or by another program?".to_owned(),
        })?;
        // a predecessor that was only paused may have written once more behind its successor
        let newest = self.records.entry(message.partition()).or_insert_with(|| record.clone());
        if record.generation >= newest.generation {
            *newest = record;
        }
        Ok(())
    }

    fn newest(self) -> Option<PositionRecord> {
        let rank = |record: &PositionRecord| (record.generation, record.position.clone());
        self.records.into_values().max_by_key(rank)
    }
}
