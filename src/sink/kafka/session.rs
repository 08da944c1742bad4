//! One session: a producer, its sums, and the client that asks. It ends at the first refusal.

use std::sync::Arc;
use std::time::Duration;

use rdkafka::config::ClientConfig;
use rdkafka::error::KafkaResult;
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseRecord, Producer, PurgeConfig, ThreadedProducer};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::admin::Admin;
use super::client::Mode;
use super::context::{Context, Shared};
use super::oauth::{self, Login};
use super::partitions::Partitions;
use crate::record::Record;
use crate::sink::SinkError;

/// A producer and what belongs to it.
pub(super) struct Session {
    /// Present until the session is dropped.
    clients: Option<Clients>,
    /// What the polling thread writes down.
    pub(super) shared: Arc<Shared>,
    /// How it sends.
    pub(super) mode: Mode,
    /// Records enqueued.
    pub(super) sent: u64,
    /// Records acknowledged when the commit that is under way, or was last, began.
    pub(super) acknowledged_at_commit: u64,
    /// The partitions that it writes to.
    pub(super) partitions: Partitions,
    /// The time, as of the last look at what was acknowledged: records are too many to ask for each.
    pub(super) now: Instant,
    /// The topic whose refusal is being tried again; nothing else is sent until its record is acknowledged.
    pub(super) trying: Option<String>,
    /// Settings of the consumer that reads positions.
    pub(super) consumer: ClientConfig,
    /// Partitions of the positions topic.
    pub(super) positions_partitions: usize,
    /// Renews the token, where the login is by token.
    tasks: JoinSet<()>,
}

struct Clients {
    producer: Arc<ThreadedProducer<Context>>,
    admin: Option<Arc<Admin>>,
}

impl Session {
    /// Begins a session.
    ///
    /// # Errors
    /// librdkafka does not take the settings.
    pub(super) fn new(settings: &ClientConfig, shared: Shared, mode: Mode) -> KafkaResult<Self> {
        let shared = Arc::new(shared);
        let producer: ThreadedProducer<Context> = settings.create_with_context(Context(Arc::clone(&shared)))?;
        let clients = Some(Clients { producer: Arc::new(producer), admin: None });
        Ok(Self {
            clients,
            shared,
            mode,
            sent: 0,
            acknowledged_at_commit: 0,
            partitions: Partitions::default(),
            now: Instant::now(),
            trying: None,
            consumer: ClientConfig::new(),
            positions_partitions: 0,
            tasks: JoinSet::new(),
        })
    }

    /// The producer.
    pub(super) fn producer(&self) -> Option<&ThreadedProducer<Context>> {
        self.clients.as_ref().map(|clients| clients.producer.as_ref())
    }

    /// Keeps the client that asks for as long as the session, so that it ends with it.
    pub(super) fn adopt(&mut self, admin: Admin) -> Arc<Admin> {
        let admin = Arc::new(admin);
        if let Some(clients) = &mut self.clients {
            clients.admin = Some(Arc::clone(&admin));
        }
        admin
    }

    /// Gives the clients the present token, and goes on with that for as long as the session lasts.
    ///
    /// # Errors
    /// librdkafka does not take it.
    pub(super) fn log_in(&mut self, login: &Arc<Login>) -> Result<(), SinkError> {
        let Some(Clients { producer, admin }) = &self.clients else { return Ok(()) };
        login.install(producer.client())?;
        if let Some(admin) = admin {
            login.install(admin.inner())?;
        }
        let admin = admin.as_ref().map(Arc::downgrade).unwrap_or_default();
        let clients = oauth::Clients { producer: Arc::downgrade(producer), admin };
        self.tasks.spawn(Arc::clone(login).keep_fresh(clients));
        Ok(())
    }

    /// The client that asks.
    pub(super) fn admin(&self) -> Option<Arc<Admin>> {
        self.clients.as_ref().and_then(|clients| clients.admin.clone())
    }

    /// Whether every record is acknowledged.
    pub(super) fn is_idle(&self) -> bool {
        self.shared.records() == self.sent
    }

    /// Waits up to `timeout` for what is on its way, then ends the session. Blocks.
    pub(super) fn close(mut self, timeout: Duration) {
        self.tasks.abort_all();
        if let Some(clients) = self.clients.take() {
            // What is left then is sent again by the next session.
            let _ = clients.producer.flush(timeout);
            clients.close();
        }
    }
}

impl Clients {
    /// Ends both clients without waiting for anything to be sent. Blocks for their threads.
    fn close(self) {
        self.producer.purge(PurgeConfig::default().queue().inflight());
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(clients) = self.clients.take() {
            // Joining librdkafka's threads blocks, and drop may run on the relay's task.
            let named = std::thread::Builder::new().name("kafka-close".to_owned());
            // Without a thread the clients are dropped right here.
            let _ = named.spawn(move || clients.close());
        }
    }
}

/// The record as librdkafka takes it, with its partition, if that is chosen.
pub(super) fn to_kafka<'a>(
    record: &'a Record<'_>,
    partition: Option<i32>,
    opaque: usize,
) -> BaseRecord<'a, [u8], [u8], usize> {
    // librdkafka takes 0 for "now"; a millisecond later is closer to what was meant.
    let timestamp = if record.timestamp_ms == 0 { 1 } else { record.timestamp_ms };
    let mut kafka = BaseRecord::with_opaque_to(record.topic, opaque).timestamp(timestamp);
    kafka.partition = partition;
    kafka.key = record.key.as_deref();
    kafka.payload = record.payload.as_deref();
    if !record.headers.is_empty() {
        let mut headers = OwnedHeaders::new_with_capacity(record.headers.len());
        for header in &record.headers {
            headers = headers.insert(Header { key: header.key, value: header.value.as_deref() });
        }
        kafka.headers = Some(headers);
    }
    kafka
}
