//! Kafka, over librdkafka: idempotent, acknowledged by all in-sync replicas, never given up.
//!
//! ```text
//!  enqueue ──▶ topic known? fits? ──▶ producer ──▶ broker
//!     │ Blocked     │ no                              │ delivery reports, on librdkafka's polling thread
//!     ▼             ▼                                 ▼
//!  acknowledged ◀── look-up (task) ◀── Notify ◀── sums per transaction, first cause of a failure
//! ```
//!
//! **Fail-stop.** The broker refuses batches, not records, and a producer that goes on after a refusal lets later
//! records of a key go first. So `enable.gapless.guarantee` ends the producer at the first refusal. The next session
//! sends one record per batch until the guilty one stands alone; then it has a name.
//!
//! Where a batch was too large for a topic whose limit nobody tells, batches are made smaller first.
//!
//! **Ask before, not after.** Existence and `max.message.bytes` of a topic are looked up before its first record. What
//! can mend itself by a person's act outside (a topic, a right, a limit) blocks and is tried again; only what lies in
//! the record itself is an error.

mod admin;
mod check;
mod client;
mod context;
mod dial;
mod failure;
mod foreign;
mod gate;
mod oauth;
mod operate;
pub mod options;
mod partitions;
mod positions;
mod session;
mod size;
mod topics;

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::producer::BaseRecord;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::warn;

pub use check::findings_of;
pub use options::{forbidden_option, invalid_option, option_findings};

use crate::config::KafkaConfig;
use crate::metrics::ErrorLabel;
use crate::record::Record;
use crate::sink::positions::PositionRecord;
use crate::sink::{Acknowledgements, Blocked, Enqueued, Ordinal, Sink, SinkError};
use crate::state::Reason;
use client::Mode;
use context::{Cause, FIRST_FLAG, Failure, POSITION_OPAQUE, Refusal, Shared};
use failure::{Remedy, restart};
use oauth::Login;
use partitions::Admission;
use session::Session;
#[cfg(test)]
pub(crate) use topics::illegal_name;
use topics::{Found, Topics};

/// How long the record that began a failure is waited for, after the first sign that something failed.
const CAUSE_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a session may take to end before the next one begins.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// A topic that vanishes twice in this time is not looked up at once again.
const LOOK_UP_PAUSE: Duration = Duration::from_secs(10);

/// The sink. It outlives its sessions: what was learned about topics stays.
pub struct KafkaSink {
    config: KafkaConfig,
    name: String,
    publish_errors: Family<ErrorLabel, Counter>,
    compresses: bool,
    asks_settings: bool,
    wake: Arc<Notify>,
    topics: Topics,
    lookups: JoinSet<(String, Found)>,
    session: Option<Session>,
    /// How tokens for the login are got, where the login is by token.
    login: Option<Arc<Login>>,
    /// Acknowledgements to wait for until sending in batches is safe again; 0 outside of isolation.
    isolate: u64,
    looked_up_again: Option<Instant>,
    blocked: Option<Blocked>,
    retry_at: Option<Instant>,
}

impl KafkaSink {
    /// Prepares a sink; connects to nothing. `name` is the client's id.
    ///
    /// # Errors
    /// [`SinkError::Configuration`] with all findings about `options`.
    pub fn new(
        config: KafkaConfig,
        name: &str,
        publish_errors: Family<ErrorLabel, Counter>,
    ) -> Result<Self, SinkError> {
        let mut findings = option_findings(&config.options);
        if config.bootstrap_servers.trim().is_empty() {
            findings.push("bootstrap-servers is empty".to_owned());
        }
        if let Some(why) = topics::illegal_name(&config.positions_topic) {
            findings.push(format!("positions-topic \"{}\": {why}", config.positions_topic));
        }
        if !findings.is_empty() {
            return Err(SinkError::Configuration {
                message: findings.join("; "),
                hint: "see [sink.kafka] in the configuration".to_owned(),
            });
        }
        let login = Login::new(&config.oauth);
        Ok(Self {
            compresses: client::compresses(&config),
            asks_settings: true,
            config,
            name: name.to_owned(),
            publish_errors,
            wake: Arc::new(Notify::new()),
            topics: Topics::default(),
            lookups: JoinSet::new(),
            session: None,
            login,
            isolate: 0,
            looked_up_again: None,
            blocked: None,
            retry_at: None,
        })
    }

    /// Leaves out the questions about the settings of topics, for the broker inside this process (librdkafka's mock),
    /// which cannot answer them: no topic's limit is known, and nothing says that the positions topic keeps its records.
    #[must_use]
    pub fn without_topic_settings(mut self) -> Self {
        self.asks_settings = false;
        self
    }

    /// The batch size that no known topic refuses.
    fn batch_bytes(&self) -> u64 {
        let configured = client::configured_batch_bytes(&self.config);
        self.topics.smallest_limit().map_or(configured, |limit| configured.min(batch_bytes_for(limit)))
    }

    /// Says why the session is over, once the cause is known or was waited for long enough.
    fn ended(&mut self) -> Option<SinkError> {
        let Some(session) = &self.session else {
            return Some(no_session());
        };
        if let Some(failure) = session.shared.failure() {
            let waited = failure.since.is_none_or(|since| since.elapsed() >= CAUSE_TIMEOUT);
            return (failure.cause.is_some() || waited).then(|| self.conclude(failure));
        }
        if let Some(Refusal { reason, words }) = session.shared.refusal() {
            // The next session reads the password and the certificates anew, or gets a new token.
            self.session = None;
            self.forget_token();
            return Some(restart(reason, words, false));
        }
        let (mode, committed) = (session.mode, session.acknowledged_at_commit);
        if mode == Mode::Isolating && committed >= self.isolate && session.shared.is_free() {
            self.isolate = 0;
            self.session = None;
            return Some(restart(Reason::Starting, "going back from single records to batches".to_owned(), true));
        }
        None
    }

    /// Ends the session and decides how the next one begins.
    fn conclude(&mut self, failure: Failure) -> SinkError {
        let Some(session) = self.session.take() else {
            return restart(Reason::SinkUnreachable, "the session is over".to_owned(), true);
        };
        let Some(cause) = failure.cause else {
            let words = failure.fatal.unwrap_or_else(|| "records were given up".to_owned());
            return restart(Reason::SinkUnreachable, format!("the Kafka producer gave up: {words}"), false);
        };
        let Cause { topic, id, code, .. } = &cause;
        let mut message = format!("event \"{id}\" for topic \"{topic}\" failed: {code}");
        if cause.is_position {
            message = format!("the position could not be written to topic \"{topic}\": {code}");
            let denied = *code == RDKafkaErrorCode::TopicAuthorizationFailed;
            return restart(if denied { Reason::TopicNotAuthorized } else { Reason::SinkUnreachable }, message, false);
        }
        if let Mode::Batches { bytes } = session.mode
            && failure::is_too_large(*code)
            && let Some(bytes) = self.topics.guess(topic, bytes)
        {
            return restart(Reason::Starting, format!("{message}; making batches of {bytes} bytes at most"), true);
        }
        match failure::remedy(*code) {
            Remedy::Isolate if session.mode == Mode::Isolating => failure::refused(&cause),
            Remedy::Isolate => {
                // Its limit may be another one than it was.
                self.topics.forget(topic);
                // Everything that may be sent again, the guilty record among it.
                self.isolate = session.sent.saturating_sub(session.acknowledged_at_commit).max(1);
                restart(Reason::RecordRefused, format!("{message}; sending records one by one to find it"), true)
            }
            Remedy::Deny => {
                self.topics.deny(topic, admin::refused(topic, *code), Instant::now());
                restart(Reason::TopicNotAuthorized, message, true)
            }
            Remedy::LookUp => {
                self.topics.forget(topic);
                let again = self.looked_up_again.is_some_and(|at| at.elapsed() < LOOK_UP_PAUSE);
                self.looked_up_again = Some(Instant::now());
                restart(Reason::TopicMissing, message, !again)
            }
            Remedy::Retry => restart(Reason::SinkUnreachable, message, false),
        }
    }

    /// When [`Sink::acknowledged`] has something to do although nothing came from the brokers.
    fn wake_at(&self) -> Option<Instant> {
        let failed = self.session.as_ref().and_then(|session| session.shared.failure());
        let cause = failed.and_then(|failure| failure.since).map(|since| Instant::from_std(since) + CAUSE_TIMEOUT);
        [self.retry_at, cause].into_iter().flatten().min()
    }
}

fn no_session() -> SinkError {
    restart(Reason::SinkUnreachable, "there is no session with the brokers".to_owned(), false)
}

impl Sink for KafkaSink {
    async fn open(&mut self, instance: &str) -> Result<Option<PositionRecord>, SinkError> {
        self.close(Duration::ZERO).await;
        let (mut session, admin) = self.dial().await?;
        let read = async {
            session.positions_partitions = positions::find_or_make(&admin, &self.config).await?;
            if self.asks_settings {
                positions::verify(&admin, &self.config).await?;
            }
            self.read_position(&session, instance).await
        };
        let position = read.await.map_err(|error| {
            if session.shared.refusal().is_some() {
                self.forget_token();
            }
            with_trouble(error, &session.shared)
        })?;
        session.shared.set_open();
        self.session = Some(session);
        Ok(position)
    }

    async fn close(&mut self, timeout: Duration) {
        self.lookups.shutdown().await;
        self.topics.forget_unanswered();
        self.blocked = None;
        self.retry_at = None;
        if let Some(session) = self.session.take() {
            let closing = tokio::task::spawn_blocking(move || session.close(timeout));
            if tokio::time::timeout(timeout + END_TIMEOUT, closing).await.is_err() {
                warn!("a Kafka producer takes long to end");
            }
        }
    }

    async fn stored_position(&mut self, instance: &str) -> Result<Option<PositionRecord>, SinkError> {
        match &self.session {
            Some(session) => self.read_position(session, instance).await,
            None => Err(no_session()),
        }
    }

    fn enqueue(&mut self, record: &Record<'_>, ordinal: Ordinal) -> Result<Enqueued, SinkError> {
        if self.session.is_none()
            && let Some(error) = self.ended()
        {
            return Err(error);
        }
        if let Some(held_back) = self.hold_back(record)? {
            return Ok(held_back);
        }
        let Some(session) = &mut self.session else { return Ok(Enqueued::Full) };
        let (topics, shared, sent) = (&self.topics, &session.shared, session.sent);
        let is_idle = || shared.records() == sent;
        let count = || topics.partitions(record.topic);
        let admission = session.partitions.admit(record, session.now, is_idle, count);
        let (partition, opaque) = match admission {
            Admission::Send(partition) => (partition, ordinal),
            Admission::First(partition) => (partition, ordinal | FIRST_FLAG),
            Admission::Wait => return Ok(Enqueued::Full),
        };
        let Some(producer) = session.producer() else { return Ok(Enqueued::Full) };
        let Err((error, _)) = producer.send(session::to_kafka(record, partition, opaque)) else {
            session.sent += 1;
            return Ok(Enqueued::Queued);
        };
        if matches!(admission, Admission::First(_)) {
            session.partitions.not_sent(record.topic, partition);
        }
        session.trying = None;
        match error.rdkafka_error_code() {
            Some(RDKafkaErrorCode::QueueFull) => Ok(Enqueued::Full),
            // The polling thread will tell the cause, or that there is none.
            Some(RDKafkaErrorCode::Fatal) => {
                session.shared.fatal("the producer is in a fatal state");
                Ok(Enqueued::Full)
            }
            // the topic has it by now, and the producer does not know
            Some(RDKafkaErrorCode::UnknownPartition) => {
                self.session = None;
                self.topics.forget(record.topic);
                let blocked = failure::lacks_partition(record, &event_id(record), None);
                Err(restart(blocked.reason, blocked.detail, false))
            }
            code => Err(failure::refused(&Cause {
                topic: record.topic.to_owned(),
                id: event_id(record),
                bytes: record.window_bytes(),
                code: code.unwrap_or(RDKafkaErrorCode::InvalidArgument),
                is_position: false,
            })),
        }
    }

    async fn acknowledged(&mut self, into: &mut Acknowledgements) -> Result<(), SinkError> {
        loop {
            if let Some(error) = self.ended() {
                return Err(error);
            }
            if let Some(session) = &mut self.session {
                session.now = Instant::now();
                for (topic, partition) in session.shared.take_opened() {
                    session.partitions.acknowledged(&topic, partition, session.now);
                }
                let (due, has_news) = (session.partitions.due(session.now), session.shared.take(into));
                if let Some(topic) = due {
                    self.look_up(topic);
                }
                if has_news {
                    return Ok(());
                }
            }
            let wake_at = self.wake_at();
            tokio::select! {
                () = self.wake.notified() => {}
                Some(done) = self.lookups.join_next() => {
                    match done {
                        Ok((topic, found)) => self.learn(topic, found),
                        Err(error) => {
                            warn!(%error, "a topic's look-up was given up");
                            self.topics.forget_unanswered();
                        }
                    }
                    return Ok(());
                }
                () = tokio::time::sleep_until(wake_at.unwrap_or_else(Instant::now)), if wake_at.is_some() => {
                    if self.retry_at.is_some_and(|at| at <= Instant::now()) {
                        self.retry_at = None;
                        return Ok(());
                    }
                }
            }
        }
    }

    fn commit(&mut self, record: &PositionRecord) -> Result<bool, SinkError> {
        if let Some(error) = self.ended() {
            return Err(error);
        }
        let Some(session) = &mut self.session else { return Ok(false) };
        let json = serde_json::to_vec(record).map_err(|error| SinkError::Configuration {
            message: format!("the position record cannot be written as JSON: {error}"),
            hint: "this is an error in the program".to_owned(),
        })?;
        if !session.shared.begin_commit(record.position.clone()) {
            return Ok(false);
        }
        let acknowledged = session.shared.records();
        let kafka = BaseRecord::with_opaque_to(&self.config.positions_topic, POSITION_OPAQUE)
            .key(record.instance.as_bytes())
            .payload(json.as_slice());
        let Some(producer) = session.producer() else { return Ok(false) };
        let sent = producer.send(kafka).map_err(|(error, _)| error);
        match sent {
            Ok(()) => {
                session.acknowledged_at_commit = acknowledged;
                return Ok(true);
            }
            Err(error) if error.rdkafka_error_code() == Some(RDKafkaErrorCode::Fatal) => {
                session.shared.fatal("the producer is in a fatal state");
            }
            // The queue is full: the next tick tries again.
            Err(_) => {}
        }
        session.shared.cancel_commit();
        Ok(false)
    }

    fn blocked(&self) -> Option<Blocked> {
        self.blocked.clone()
    }

    fn is_connected(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.shared.is_connected())
    }
}

/// The `batch.size` for a topic's limit. It counts the whole request, so the batch in it is smaller.
fn batch_bytes_for(limit: u64) -> u64 {
    // librdkafka's own bounds of the option.
    limit.clamp(1, 2_147_483_647)
}

/// Adds what the producer said about its connections meanwhile; a refusal says it all.
fn with_trouble(error: SinkError, shared: &Shared) -> SinkError {
    match (error, shared.refusal(), shared.trouble()) {
        (SinkError::Restart { at_once, .. }, Some(Refusal { reason, words }), _) => {
            SinkError::Restart { reason, message: words, at_once }
        }
        (SinkError::Restart { reason, message, at_once }, None, Some(words)) => {
            SinkError::Restart { reason, message: format!("{message} ({words})"), at_once }
        }
        (error, _, _) => error,
    }
}

/// The event id as text, as far as it is text.
fn event_id(record: &Record<'_>) -> String {
    record.id().map_or_else(|| "unknown".to_owned(), |id| String::from_utf8_lossy(id).into_owned())
}

fn illegal_topic(record: &Record<'_>, why: &str) -> SinkError {
    SinkError::Refused {
        reason: Reason::RecordRefused,
        message: format!(
            "event \"{}\" goes to topic \"{}\", which cannot exist: {why}",
            event_id(record),
            record.topic
        ),
        hint: "correct the value that chooses the topic, or record.topic".to_owned(),
    }
}
