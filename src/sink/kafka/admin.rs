//! Questions to the brokers about topics, and the making of topics. Every answer has a time limit.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::admin::{AdminClient, AdminOptions, ConfigResource, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::metadata::Metadata;
use tracing::{debug, info};

use super::context::AskingContext;
use super::topics::Found;
use crate::config::KafkaConfig;
use crate::sink::Blocked;
use crate::state::Reason;

/// The client that asks.
pub(super) type Admin = AdminClient<AskingContext>;

/// Longest wait for one answer.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// The first part of it, after which a refusal ends the waiting. The parts double, since a question is asked anew in
/// each: a slow broker needs a long one.
const FIRST_SLICE: Duration = Duration::from_millis(250);
/// Pause between looks at a topic that has just been made and is not known everywhere yet.
const PROPAGATION_PAUSE: Duration = Duration::from_millis(50);
/// How often it is looked at.
const PROPAGATION_LOOKS: u32 = 100;

/// Compacted, in segments small enough that compaction gets to work: it leaves the newest one alone.
const POSITIONS_CONFIG: &[(&str, &str)] =
    &[("cleanup.policy", "compact"), ("segment.bytes", "16777216"), ("min.cleanable.dirty.ratio", "0.1")];

/// What is needed to make a topic.
#[derive(Clone, Debug)]
pub(super) struct Creation {
    /// Partitions, or -1 for the broker's default.
    pub(super) partitions: i32,
    /// Replicas, or -1 for the broker's default.
    pub(super) replication: i32,
    /// The topic's configuration.
    pub(super) config: Vec<(String, String)>,
}

impl Creation {
    /// As configured for topics of events.
    pub(super) fn of_events(config: &KafkaConfig) -> Self {
        let pairs = config.topic_config.iter().map(|(key, value)| (key.clone(), value.clone()));
        Self {
            partitions: or_default(config.topic_partitions),
            replication: or_default(config.topic_replication_factor),
            config: pairs.collect(),
        }
    }

    /// For the positions topic.
    pub(super) fn of_positions(config: &KafkaConfig) -> Self {
        Self {
            partitions: 1,
            replication: or_default(config.topic_replication_factor),
            config: POSITIONS_CONFIG.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        }
    }
}

/// The configured number, or -1, which leaves it to the broker (Kafka 2.4 and later, KIP-464).
fn or_default(number: Option<u32>) -> i32 {
    number.and_then(|number| i32::try_from(number).ok()).unwrap_or(-1)
}

/// What the brokers' metadata say about a topic.
#[derive(Debug)]
pub(super) enum Existence {
    /// It exists, with so many partitions.
    Exists(usize),
    /// It does not, or not yet.
    Missing,
    /// The broker does not say, with its code.
    Refused(RDKafkaErrorCode),
}

/// Asks for a topic's metadata.
///
/// # Errors
/// No broker answered, or a broker refuses us.
pub(super) async fn existence(admin: &Arc<Admin>, topic: &str) -> Result<Existence, KafkaError> {
    let (client, name) = (Arc::clone(admin), topic.to_owned());
    let asked = tokio::task::spawn_blocking(move || {
        let metadata = metadata(&client, &name)?;
        let Some(found) = metadata.topics().iter().find(|found| found.name() == name) else {
            return Ok(Existence::Missing);
        };
        Ok(match found.error().map(RDKafkaErrorCode::from) {
            None => Existence::Exists(found.partitions().len()),
            Some(RDKafkaErrorCode::LeaderNotAvailable) if !found.partitions().is_empty() => {
                Existence::Exists(found.partitions().len())
            }
            Some(
                RDKafkaErrorCode::UnknownTopicOrPartition
                | RDKafkaErrorCode::UnknownTopic
                | RDKafkaErrorCode::LeaderNotAvailable,
            ) => Existence::Missing,
            Some(code) => Existence::Refused(code),
        })
    });
    asked.await.unwrap_or(Err(KafkaError::Canceled))
}

/// Waits for a topic's metadata, in slices: a refused login is not tried again until the time is over. Blocks.
fn metadata(admin: &Admin, topic: &str) -> Result<Metadata, KafkaError> {
    let deadline = Instant::now() + ANSWER_TIMEOUT;
    let mut slice = FIRST_SLICE;
    loop {
        let asked = admin.inner().fetch_metadata(Some(topic), slice);
        let left = deadline.saturating_duration_since(Instant::now());
        if asked.is_ok() || left.is_zero() || admin.inner().context().0.refusal().is_some() {
            return asked;
        }
        slice = (slice * 2).min(left);
    }
}

/// Asks for a topic's configuration; `Ok(Err(code))` if the broker does not tell.
///
/// # Errors
/// No broker answered.
pub(super) async fn configuration(
    admin: &Admin,
    topic: &str,
) -> Result<Result<ConfigResource, RDKafkaErrorCode>, KafkaError> {
    let answers = admin.describe_configs(&[ResourceSpecifier::Topic(topic)], &options()).await?;
    Ok(answers.into_iter().next().unwrap_or(Err(RDKafkaErrorCode::UnknownTopicOrPartition)))
}

/// Makes a topic, and waits until the brokers know it; `Ok(Err(code))` if the broker refuses.
///
/// # Errors
/// No broker answered.
pub(super) async fn create(
    admin: &Arc<Admin>,
    topic: &str,
    creation: &Creation,
) -> Result<Result<(), RDKafkaErrorCode>, KafkaError> {
    let mut new = NewTopic::new(topic, creation.partitions, TopicReplication::Fixed(creation.replication));
    for (key, value) in &creation.config {
        new = new.set(key, value);
    }
    let answers = admin.create_topics([&new], &options()).await?;
    match answers.into_iter().next() {
        Some(Ok(_)) => info!(topic, partitions = creation.partitions, config = ?creation.config, "created the topic"),
        Some(Err((_, RDKafkaErrorCode::TopicAlreadyExists))) => {}
        Some(Err((_, code))) => return Ok(Err(code)),
        None => return Ok(Err(RDKafkaErrorCode::Unknown)),
    }
    for _ in 0..PROPAGATION_LOOKS {
        if matches!(existence(admin, topic).await?, Existence::Exists(_)) {
            return Ok(Ok(()));
        }
        tokio::time::sleep(PROPAGATION_PAUSE).await;
    }
    Ok(Err(RDKafkaErrorCode::UnknownTopicOrPartition))
}

fn options() -> AdminOptions {
    AdminOptions::new().request_timeout(Some(ANSWER_TIMEOUT)).operation_timeout(Some(ANSWER_TIMEOUT))
}

/// Finds out whether a topic can be written to and, if `asks_limit`, what it takes; makes it if `creation` says so.
pub(super) async fn look_up(admin: Arc<Admin>, topic: String, creation: Option<Creation>, asks_limit: bool) -> Found {
    match try_look_up(&admin, &topic, creation.as_ref(), asks_limit).await {
        Ok(found) => found,
        Err(error) => Found::Unusable(Blocked {
            reason: Reason::SinkUnreachable,
            detail: format!("no broker answered about topic \"{topic}\": {}", words(&error)),
            hint: "check that the brokers run and can be reached".to_owned(),
        }),
    }
}

async fn try_look_up(
    admin: &Arc<Admin>,
    topic: &str,
    creation: Option<&Creation>,
    asks_limit: bool,
) -> Result<Found, KafkaError> {
    let partitions = match existence(admin, topic).await? {
        Existence::Exists(partitions) => i32::try_from(partitions).ok(),
        Existence::Refused(code) => return Ok(Found::Unusable(refused(topic, code))),
        Existence::Missing => {
            let Some(creation) = creation else { return Ok(Found::Unusable(missing(topic))) };
            if let Err(code) = create(admin, topic, creation).await? {
                return Ok(Found::Unusable(not_created(topic, code)));
            }
            match existence(admin, topic).await? {
                Existence::Exists(partitions) => i32::try_from(partitions).ok(),
                _ => None,
            }
        }
    };
    if !asks_limit {
        return Ok(Found::Usable { limit: None, partitions });
    }
    let limit = match configuration(admin, topic).await? {
        Ok(config) => {
            config.get("max.message.bytes").and_then(|entry| entry.value.as_deref()).and_then(|text| text.parse().ok())
        }
        Err(code) => {
            debug!(topic, error = ?code, "the broker does not tell the topic's configuration");
            None
        }
    };
    Ok(Found::Usable { limit, partitions })
}

fn missing(topic: &str) -> Blocked {
    Blocked {
        reason: Reason::TopicMissing,
        detail: format!("topic \"{topic}\" does not exist, and create-topics is off"),
        hint: format!("kafka-topics --create --topic {topic}, or sink.kafka.create-topics = true"),
    }
}

fn not_created(topic: &str, code: RDKafkaErrorCode) -> Blocked {
    let not_authorized =
        matches!(code, RDKafkaErrorCode::TopicAuthorizationFailed | RDKafkaErrorCode::ClusterAuthorizationFailed);
    Blocked {
        reason: if not_authorized { Reason::TopicNotAuthorized } else { Reason::TopicMissing },
        detail: format!("topic \"{topic}\" does not exist and could not be created: {code}"),
        hint: if not_authorized {
            format!("grant CREATE on topic \"{topic}\" to the user, or create it")
        } else {
            format!("check topic-partitions, topic-replication-factor and topic-config, or create \"{topic}\" yourself")
        },
    }
}

/// What to say when the user may not see or write a topic, or the broker refuses it otherwise.
pub(super) fn refused(topic: &str, code: RDKafkaErrorCode) -> Blocked {
    let not_authorized = code == RDKafkaErrorCode::TopicAuthorizationFailed;
    Blocked {
        reason: if not_authorized { Reason::TopicNotAuthorized } else { Reason::TopicMissing },
        detail: format!("topic \"{topic}\" cannot be written: {code}"),
        hint: if not_authorized {
            format!("grant WRITE and DESCRIBE on topic \"{topic}\" to the user")
        } else {
            "see the brokers' log".to_owned()
        },
    }
}

/// librdkafka's words without the wrapper's.
pub(super) fn words(error: &KafkaError) -> String {
    error.rdkafka_error_code().map_or_else(|| error.to_string(), |code| code.to_string())
}
