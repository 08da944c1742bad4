//! What librdkafka's polling thread writes down, and the relay's task picks up.
//!
//! ```text
//!  polling thread                                        relay's task
//!  delivery(ordinal) ──▶ sum per ordinal ──▶ Mutex ──▶ take(): swaps the vector out
//!  error, statistics ──▶ connected, first cause   └──▶ Notify
//! ```
//!
//! A record costs one addition under a lock that is nearly always free; a whole gulp costs one wake-up.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Headers, Message};
use rdkafka::producer::ProducerContext;
use serde::Deserialize;
use tokio::sync::Notify;
use tracing::{debug, info, warn};

use crate::metrics::ErrorLabel;
use crate::position::Position;
use crate::record::window_bytes;
use crate::sink::{Ack, Acknowledgements, Ordinal};
use crate::state::Reason;

/// The delivery opaque of a position record; no transaction gets this far.
pub(super) const POSITION_OPAQUE: usize = usize::MAX;

/// Beside an ordinal: where the record has arrived is to be told.
pub(super) const FIRST_FLAG: usize = 1 << (usize::BITS - 1);

/// At most one warning about connections in this time.
const WARN_INTERVAL: Duration = Duration::from_secs(10);

/// The first record that failed for a reason of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cause {
    /// Its topic.
    pub(super) topic: String,
    /// The event id, as text as far as it is text.
    pub(super) id: String,
    /// Its share of the window.
    pub(super) bytes: u64,
    /// What the broker or librdkafka said.
    pub(super) code: RDKafkaErrorCode,
    /// Whether it is a position record, not an event.
    pub(super) is_position: bool,
}

/// Why a producer can no longer be used.
#[derive(Clone, Debug, Default)]
pub(super) struct Failure {
    /// The record that began it.
    pub(super) cause: Option<Cause>,
    /// librdkafka's words if it gave up by itself.
    pub(super) fatal: Option<String>,
    /// When the first sign of it came.
    pub(super) since: Option<Instant>,
}

/// A broker was reached and would not have us: the password, or a certificate on either side. librdkafka goes on with
/// what it read at its start, so only a new session can do better.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    /// The stable code.
    pub(super) reason: Reason,
    /// Who refused what.
    pub(super) words: String,
}

impl Refusal {
    fn from_error(code: RDKafkaErrorCode, words: &str) -> Option<Self> {
        // In TLS 1.3 the broker's word about our certificate follows after the handshake.
        let alert = words.contains("SSL alert number");
        let (reason, what) = match code {
            RDKafkaErrorCode::Authentication => (Reason::AuthenticationFailed, "a broker refused the login"),
            RDKafkaErrorCode::SSL => (Reason::SinkUnreachable, "TLS with a broker failed"),
            _ if alert => (Reason::AuthenticationFailed, "a broker refused the client's certificate"),
            _ => return None,
        };
        Some(Self { reason, words: format!("{what}: {words}") })
    }
}

/// Sums of a session.
#[derive(Debug, Default)]
struct Delivered {
    acks: Vec<Ack>,
    committing: Option<Position>,
    committed: Option<Position>,
    records: u64,
    /// Topics and partitions that first records have arrived at.
    opened: Vec<(String, i32)>,
    failure: Failure,
}

/// The last error about connections, for messages and for the rate of warnings.
#[derive(Debug, Default)]
struct Trouble {
    /// The last one that says why.
    words: Option<String>,
    last: Option<(RDKafkaErrorCode, String)>,
    /// The wrapper hands every error event over twice; the second one is not news.
    second_follows: bool,
    warned: Option<Instant>,
    unsaid: u64,
    /// The first refusal that is not forgotten.
    refusal: Option<Refusal>,
}

/// A session's state, shared between the polling thread and the relay's task.
pub(super) struct Shared {
    delivered: Mutex<Delivered>,
    trouble: Mutex<Trouble>,
    connected: AtomicBool,
    wake: Arc<Notify>,
    publish_errors: Family<ErrorLabel, Counter>,
}

/// Locks; a panic elsewhere leaves sums that are still sums.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// The state of a session that begins.
    pub(super) fn new(wake: Arc<Notify>, publish_errors: Family<ErrorLabel, Counter>) -> Self {
        Self {
            delivered: Mutex::default(),
            trouble: Mutex::default(),
            connected: AtomicBool::new(false),
            wake,
            publish_errors,
        }
    }

    /// Moves what was acknowledged into `into`. Returns whether there was anything.
    pub(super) fn take(&self, into: &mut Acknowledgements) -> bool {
        let mut delivered = lock(&self.delivered);
        if into.acks.is_empty() {
            std::mem::swap(&mut into.acks, &mut delivered.acks);
        } else {
            into.acks.append(&mut delivered.acks);
        }
        let committed = delivered.committed.take();
        drop(delivered);
        let is_news = committed.is_some();
        if is_news {
            into.committed = committed;
        }
        !into.acks.is_empty() || is_news
    }

    /// Takes the topics and partitions that first records have arrived at.
    pub(super) fn take_opened(&self) -> Vec<(String, i32)> {
        std::mem::take(&mut lock(&self.delivered).opened)
    }

    /// Records acknowledged since the session began.
    pub(super) fn records(&self) -> u64 {
        lock(&self.delivered).records
    }

    /// Notes the position that is about to be sent; false if one is on its way.
    pub(super) fn begin_commit(&self, position: Position) -> bool {
        let mut delivered = lock(&self.delivered);
        let free = delivered.committing.is_none();
        if free {
            delivered.committing = Some(position);
        }
        free
    }

    /// Takes [`Shared::begin_commit`] back.
    pub(super) fn cancel_commit(&self) {
        lock(&self.delivered).committing = None;
    }

    /// What has failed, if anything has.
    pub(super) fn failure(&self) -> Option<Failure> {
        let delivered = lock(&self.delivered);
        delivered.failure.since.map(|_| delivered.failure.clone())
    }

    /// Whether a broker can be reached, as far as is known.
    pub(super) fn is_connected(&self) -> bool {
        self.connected.load(Ordering::Relaxed)
    }

    /// Notes that the session is open: what a broker refused on the way there did not keep us from it.
    pub(super) fn set_open(&self) {
        self.connected.store(true, Ordering::Relaxed);
        lock(&self.trouble).refusal = None;
    }

    /// What a broker refused.
    pub(super) fn refusal(&self) -> Option<Refusal> {
        lock(&self.trouble).refusal.clone()
    }

    /// Notes a refusal, if it is one.
    fn note_refusal(&self, code: RDKafkaErrorCode, words: &str) {
        let Some(refusal) = Refusal::from_error(code, words) else { return };
        lock(&self.trouble).refusal.get_or_insert(refusal);
        self.wake.notify_one();
    }

    /// The last that was heard about the connections.
    pub(super) fn trouble(&self) -> Option<String> {
        lock(&self.trouble).words.clone()
    }

    /// Whether no position is on its way.
    pub(super) fn is_free(&self) -> bool {
        lock(&self.delivered).committing.is_none()
    }

    /// Notes that librdkafka refuses to go on.
    pub(super) fn fatal(&self, words: &str) {
        let mut delivered = lock(&self.delivered);
        delivered.failure.since.get_or_insert_with(Instant::now);
        delivered.failure.fatal.get_or_insert_with(|| words.to_owned());
        drop(delivered);
        self.wake.notify_one();
    }

    /// Notes the log's words about a connection that ended; some are told in no other way.
    fn hung_up(&self, message: &str) {
        let words = message.split_once("]: ").map_or(message, |(_thread, words)| words);
        let at_first_word = words.contains("APIVERSION_QUERY") && words.contains("Disconnected");
        let question = if at_first_word { "; does security.protocol fit this listener?" } else { "" };
        lock(&self.trouble).words = Some(format!("{words}{question}"));
    }

    fn open(&self, topic: &str, partition: i32) {
        lock(&self.delivered).opened.push((topic.to_owned(), partition));
    }

    fn acknowledge(&self, ordinal: Ordinal, bytes: u64) {
        let mut delivered = lock(&self.delivered);
        let news = if ordinal == POSITION_OPAQUE {
            delivered.committed = delivered.committing.take();
            true
        } else {
            delivered.records += 1;
            let first = delivered.acks.is_empty();
            match delivered.acks.last_mut() {
                Some(ack) if ack.ordinal == ordinal && ack.records < u32::MAX => {
                    ack.records += 1;
                    ack.bytes += bytes;
                }
                _ => delivered.acks.push(Ack { ordinal, records: 1, bytes }),
            }
            first
        };
        drop(delivered);
        if news {
            self.connected.store(true, Ordering::Relaxed);
            self.wake.notify_one();
        }
    }

    fn fail(&self, code: RDKafkaErrorCode, cause: impl FnOnce() -> Cause) {
        let consequence = is_consequence(code);
        if !consequence {
            self.count(code);
        }
        let mut delivered = lock(&self.delivered);
        delivered.failure.since.get_or_insert_with(Instant::now);
        if !consequence && delivered.failure.cause.is_none() {
            delivered.failure.cause = Some(cause());
        }
        drop(delivered);
        self.wake.notify_one();
    }

    fn count(&self, code: RDKafkaErrorCode) {
        self.publish_errors.get_or_create(&ErrorLabel { error: format!("{code:?}") }).inc();
    }

    fn global_error(&self, code: RDKafkaErrorCode, words: &str) {
        let mut trouble = lock(&self.trouble);
        let repeated =
            trouble.second_follows && trouble.last.as_ref().is_some_and(|(last, text)| *last == code && text == words);
        trouble.second_follows = !repeated;
        if repeated {
            return;
        }
        trouble.last = Some((code, words.to_owned()));
        if code != RDKafkaErrorCode::AllBrokersDown {
            trouble.words = Some(words.to_owned());
        }
        self.count(code);
        if code == RDKafkaErrorCode::AllBrokersDown {
            self.connected.store(false, Ordering::Relaxed);
            self.wake.notify_one();
        }
        if trouble.warned.is_some_and(|at| at.elapsed() < WARN_INTERVAL) {
            trouble.unsaid += 1;
            debug!(error = ?code, "Kafka: {words}");
            return;
        }
        warn!(error = ?code, more_before = trouble.unsaid, "Kafka: {words}");
        trouble.warned = Some(Instant::now());
        trouble.unsaid = 0;
    }
}

/// Whether a record failed only because another one did.
fn is_consequence(code: RDKafkaErrorCode) -> bool {
    matches!(
        code,
        RDKafkaErrorCode::PurgeQueue
            | RDKafkaErrorCode::PurgeInflight
            | RDKafkaErrorCode::GaplessGuarantee
            | RDKafkaErrorCode::Fatal
    )
}

/// The producer's context.
pub(super) struct Context(pub(super) Arc<Shared>);

impl ClientContext for Context {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        if facility == "FAIL" {
            self.0.hung_up(message);
        }
        log(level, facility, message);
    }

    fn stats_raw(&self, statistics: &[u8]) {
        if let Some(connected) = any_broker_up(statistics) {
            self.0.connected.store(connected, Ordering::Relaxed);
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        match error.rdkafka_error_code() {
            Some(RDKafkaErrorCode::Fatal) => self.0.fatal(reason),
            Some(code) => {
                self.0.note_refusal(code, reason);
                self.0.global_error(code, reason);
            }
            None => warn!(%error, "Kafka: {reason}"),
        }
    }
}

impl ProducerContext for Context {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, ordinal: usize) {
        match result {
            // Counted as delivered because a later one was, or as written before: where, nobody knows, and whether.
            Ok(message) if message.offset() < 0 => self.0.fatal(&format!(
                "the delivery of a record for topic \"{}\" [{}] is not certain: what is not committed is sent again",
                message.topic(),
                message.partition()
            )),
            Ok(message) => {
                let bytes = share_of_window(message);
                if ordinal != POSITION_OPAQUE && ordinal & FIRST_FLAG != 0 {
                    self.0.open(message.topic(), message.partition());
                    self.0.acknowledge(ordinal & !FIRST_FLAG, bytes);
                } else {
                    self.0.acknowledge(ordinal, bytes);
                }
            }
            Err((error, message)) => {
                let code = error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Unknown);
                self.0.fail(code, || {
                    let id = message.headers().and_then(|headers| headers.iter().find(|header| header.key == "id"));
                    let id = id.and_then(|header| header.value);
                    Cause {
                        topic: message.topic().to_owned(),
                        id: id.map_or_else(|| "unknown".to_owned(), |id| String::from_utf8_lossy(id).into_owned()),
                        bytes: share_of_window(message),
                        code,
                        is_position: ordinal == POSITION_OPAQUE,
                    }
                });
            }
        }
    }
}

/// What [`Record::window_bytes`](crate::record::Record::window_bytes) gave when the message was sent.
fn share_of_window<M: Message>(message: &M) -> u64 {
    let headers = message.headers().into_iter().flat_map(|headers| headers.iter());
    window_bytes(message.key(), message.payload(), headers.map(|header| (header.key, header.value)))
}

/// The context of the clients that only ask: their errors come back with the answer, but for a refusal, which librdkafka
/// would try again for as long as the question lasts.
#[derive(Clone)]
pub(super) struct AskingContext(pub(super) Arc<Shared>);

impl ClientContext for AskingContext {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        if let Some(code) = error.rdkafka_error_code() {
            self.0.note_refusal(code, reason);
        }
        debug!(%error, "Kafka: {reason}");
    }
}

impl rdkafka::consumer::ConsumerContext for AskingContext {}

/// librdkafka's own log. Lines about connections come as errors too, where their rate is limited.
fn log(level: RDKafkaLogLevel, facility: &str, message: &str) {
    let about_connections = matches!(facility, "FAIL" | "ERROR" | "FATAL" | "CONNECT" | "CLOSE");
    match level {
        RDKafkaLogLevel::Emerg
        | RDKafkaLogLevel::Alert
        | RDKafkaLogLevel::Critical
        | RDKafkaLogLevel::Error
        | RDKafkaLogLevel::Warning
            if !about_connections && facility != "CONFWARN" =>
        {
            warn!(target: "librdkafka", facility, "{message}");
        }
        RDKafkaLogLevel::Notice => info!(target: "librdkafka", facility, "{message}"),
        _ => debug!(target: "librdkafka", facility, "{message}"),
    }
}

/// The part of librdkafka's statistics that is read (STATISTICS.md).
#[derive(Deserialize)]
struct Statistics {
    #[serde(default)]
    brokers: std::collections::HashMap<String, BrokerStatistics>,
}

#[derive(Deserialize)]
struct BrokerStatistics {
    #[serde(default)]
    state: String,
}

/// Whether a broker can be reached; `None` if the statistics do not tell: connections that were never needed are
/// neither up nor down.
fn any_broker_up(statistics: &[u8]) -> Option<bool> {
    let statistics: Statistics = serde_json::from_slice(statistics).ok()?;
    let mut states = statistics.brokers.values().map(|broker| broker.state.as_str());
    if states.clone().any(|state| matches!(state, "UP" | "UPDATE")) {
        return Some(true);
    }
    states.any(|state| matches!(state, "DOWN" | "CONNECT" | "TRY_CONNECT" | "SSL_HANDSHAKE")).then_some(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::position::Lsn;

    fn shared() -> Shared {
        Shared::new(Arc::new(Notify::new()), Family::default())
    }

    #[test]
    fn sums_neighbours_and_keeps_the_position_apart() {
        let shared = shared();
        for (ordinal, bytes) in [(7, 10), (7, 20), (8, 1), (7, 5)] {
            shared.acknowledge(ordinal, bytes);
        }
        assert!(shared.begin_commit(Position::Postgres(Lsn(9))));
        assert!(!shared.begin_commit(Position::Postgres(Lsn(10))));
        shared.acknowledge(POSITION_OPAQUE, 0);
        let mut into = Acknowledgements::default();
        assert!(shared.take(&mut into));
        let expected =
            [(7, 2, 30), (8, 1, 1), (7, 1, 5)].map(|(ordinal, records, bytes)| Ack { ordinal, records, bytes });
        assert_eq!(into.acks, expected);
        assert_eq!(into.committed, Some(Position::Postgres(Lsn(9))));
        assert_eq!(shared.records(), 4);
        assert!(!shared.take(&mut Acknowledgements::default()));
        assert!(shared.begin_commit(Position::Postgres(Lsn(11))));
    }

    #[test]
    fn keeps_the_first_cause_not_its_consequences() {
        let shared = shared();
        let cause = |topic: &str, code| Cause {
            topic: topic.to_owned(),
            id: String::new(),
            bytes: 0,
            code,
            is_position: false,
        };
        assert!(shared.failure().is_none());
        shared.fail(RDKafkaErrorCode::PurgeQueue, || unreachable!());
        assert!(shared.failure().is_some_and(|failure| failure.cause.is_none()));
        for topic in ["guilty", "later"] {
            let code = RDKafkaErrorCode::MessageSizeTooLarge;
            shared.fail(code, || cause(topic, code));
        }
        let failure = shared.failure().unwrap();
        assert_eq!(failure.cause.unwrap().topic, "guilty");
    }

    #[test]
    fn reads_the_connection_from_the_statistics() {
        let up = br#"{"name":"x","brokers":{"a:1/1":{"state":"DOWN","x":1},"b:1/2":{"state":"UP"}},"topics":{}}"#;
        assert_eq!(any_broker_up(up), Some(true));
        assert_eq!(any_broker_up(br#"{"brokers":{"a:1/1":{"state":"TRY_CONNECT"}}}"#), Some(false));
        assert_eq!(any_broker_up(br#"{"brokers":{"a:1/1":{"state":"INIT"}}}"#), None);
        assert_eq!(any_broker_up(b"not json"), None);
    }

    #[test]
    fn a_refusal_is_told_from_an_outage() {
        let shared = shared();
        shared.note_refusal(RDKafkaErrorCode::BrokerTransportFailure, "Connect to a:1 failed: Connection refused");
        assert_eq!(shared.refusal(), None);
        let alert =
            "Receive failed: error:0A00045C:SSL routines::tlsv13 alert certificate required: SSL alert number 116";
        shared.note_refusal(RDKafkaErrorCode::BrokerTransportFailure, alert);
        shared.note_refusal(RDKafkaErrorCode::Authentication, "later");
        let refusal = shared.refusal().unwrap();
        assert_eq!(refusal.reason, Reason::AuthenticationFailed);
        assert!(refusal.words.ends_with(alert), "{refusal:?}");
        shared.set_open();
        assert_eq!(shared.refusal(), None);
    }

    #[test]
    fn counts_an_error_that_is_said_twice_once() {
        let shared = shared();
        for _ in 0..2 {
            shared.global_error(RDKafkaErrorCode::AllBrokersDown, "1/1 brokers are down");
        }
        let label = ErrorLabel { error: "AllBrokersDown".to_owned() };
        assert_eq!(shared.publish_errors.get_or_create(&label).get(), 1);
        assert!(!shared.is_connected());
    }
}
