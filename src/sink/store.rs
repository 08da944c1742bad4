//! The stored position as a person's commands read, write and remove it, whatever sink keeps it.

use std::time::Duration;

use prometheus_client::metrics::family::Family;

use crate::config::Config;
use crate::sink::kafka::KafkaSink;
use crate::sink::positions::PositionRecord;
use crate::sink::stdout::StdoutSink;
use crate::sink::{Acknowledgements, Sink, SinkError};
use crate::state::Reason;

/// Longest wait for a position to be acknowledged.
const WRITE_TIMEOUT: Duration = Duration::from_secs(20);

/// Where an instance's position is kept.
pub enum PositionStore {
    /// In Kafka's positions topic.
    Kafka(Box<KafkaSink>),
    /// In a file beside standard output.
    File(Box<StdoutSink>),
}

impl PositionStore {
    /// The one that is configured; connects to nothing.
    ///
    /// # Errors
    /// [`SinkError::Configuration`]
    pub fn new(config: &Config) -> Result<Self, SinkError> {
        if let Some(kafka) = &config.sink.kafka {
            return Ok(Self::Kafka(Box::new(KafkaSink::new(kafka.clone(), &config.name, Family::default())?)));
        }
        let Some(stdout) = &config.sink.stdout else {
            return Err(SinkError::Configuration {
                message: "no sink is configured".to_owned(),
                hint: "see the options in the README".to_owned(),
            });
        };
        Ok(Self::File(Box::new(StdoutSink::new(stdout))))
    }

    /// The position record of `instance`, without making anything.
    ///
    /// # Errors
    /// As [`Sink::open`].
    pub async fn peek(&mut self, instance: &str) -> Result<Option<PositionRecord>, SinkError> {
        match self {
            Self::Kafka(sink) => sink.peek(instance).await,
            Self::File(sink) => sink.stored_position(instance).await,
        }
    }

    /// Makes a position durable, as a session does it.
    ///
    /// # Errors
    /// As [`Sink::open`] and [`Sink::commit`].
    pub async fn write(&mut self, record: &PositionRecord) -> Result<(), SinkError> {
        match self {
            Self::Kafka(sink) => write(sink.as_mut(), record).await,
            Self::File(sink) => write(sink.as_mut(), record).await,
        }
    }

    /// Removes the position record of `instance`.
    ///
    /// # Errors
    /// The sink cannot be reached, or does not take it.
    pub async fn remove(&mut self, instance: &str) -> Result<(), SinkError> {
        match self {
            Self::Kafka(sink) => sink.forget(instance).await,
            Self::File(sink) => sink.forget().await,
        }
    }
}

async fn write<K: Sink>(sink: &mut K, record: &PositionRecord) -> Result<(), SinkError> {
    sink.open(&record.instance).await?;
    let written = async {
        while !sink.commit(record)? {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let mut acknowledgements = Acknowledgements::default();
        while acknowledgements.committed.is_none() {
            sink.acknowledged(&mut acknowledgements).await?;
        }
        Ok(())
    };
    let written = tokio::time::timeout(WRITE_TIMEOUT, written).await.unwrap_or_else(|_| {
        Err(SinkError::Restart {
            reason: Reason::SinkUnreachable,
            message: format!("the position was not acknowledged within {WRITE_TIMEOUT:?}"),
            at_once: false,
        })
    });
    sink.close(Duration::from_secs(1)).await;
    written
}
