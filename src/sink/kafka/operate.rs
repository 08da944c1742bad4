//! What a person's commands do with positions, outside of a session: look without making anything, and forget.

use std::sync::Arc;
use std::time::Duration;

use rdkafka::error::KafkaError;
use rdkafka::producer::{FutureProducer, FutureRecord};

use super::admin::{self, Existence};
use super::context::AskingContext;
use super::positions::unreachable;
use super::{KafkaSink, client, restart, with_trouble};
use crate::sink::SinkError;
use crate::sink::positions::PositionRecord;
use crate::state::Reason;

/// Longest wait for the acknowledgement of a tombstone.
const TOMBSTONE_TIMEOUT: Duration = Duration::from_secs(20);

impl KafkaSink {
    /// The position record of `instance`, without a session and without making the positions topic.
    ///
    /// # Errors
    /// As [`open`](crate::sink::Sink::open).
    pub async fn peek(&self, instance: &str) -> Result<Option<PositionRecord>, SinkError> {
        let (mut session, admin) = self.dial().await?;
        let read = async {
            match self.positions_partitions(&admin).await? {
                0 => Ok(None),
                partitions => {
                    session.positions_partitions = partitions;
                    self.read_position(&session, instance).await
                }
            }
        };
        read.await.map_err(|error| with_trouble(error, &session.shared))
    }

    /// Removes the position record of `instance`, by a tombstone in every partition.
    ///
    /// # Errors
    /// As [`open`](crate::sink::Sink::open); a tombstone that is not acknowledged in time may have been written.
    pub async fn forget(&self, instance: &str) -> Result<(), SinkError> {
        let (session, admin) = self.dial().await?;
        let topic = &self.config.positions_topic;
        let failed = |error: &KafkaError| {
            unreachable(&self.config, &format!("remove the position record from topic \"{topic}\""), error)
        };
        let partitions = self.positions_partitions(&admin).await;
        let partitions = partitions.map_err(|error| with_trouble(error, &session.shared))?;
        let password = client::read_password(&self.config).await?;
        let connection = client::connection(&self.config, &self.name, password.as_ref());
        let settings = client::producer(&connection, client::Mode::Isolating);
        let producer: FutureProducer<AskingContext> =
            settings.create_with_context(AskingContext(Arc::clone(&session.shared))).map_err(|error| failed(&error))?;
        // a topic that was given more partitions may hold an older record in another one
        for partition in 0..i32::try_from(partitions).unwrap_or(i32::MAX) {
            let record = FutureRecord::<[u8], [u8]>::to(topic).key(instance.as_bytes()).partition(partition);
            let sent = tokio::time::timeout(TOMBSTONE_TIMEOUT, producer.send(record, TOMBSTONE_TIMEOUT)).await;
            let sent = sent.map_err(|_| {
                let message =
                    format!("topic \"{topic}\" did not acknowledge the removal of the position record in time");
                restart(Reason::SinkUnreachable, message, false)
            })?;
            sent.map_err(|(error, _)| failed(&error))?;
        }
        Ok(())
    }

    /// Partitions of the positions topic; 0 if there is no such topic.
    async fn positions_partitions(&self, admin: &Arc<admin::Admin>) -> Result<usize, SinkError> {
        let topic = &self.config.positions_topic;
        let found = admin::existence(admin, topic).await;
        let found = found
            .map_err(|error| unreachable(&self.config, &format!("look up the positions topic \"{topic}\""), &error))?;
        match found {
            Existence::Exists(partitions) => Ok(partitions),
            Existence::Missing => Ok(0),
            Existence::Refused(code) => Err(SinkError::Configuration {
                message: format!("the positions topic \"{topic}\" cannot be used: {code}"),
                hint: format!("grant READ, WRITE, DESCRIBE and DESCRIBE_CONFIGS on topic \"{topic}\" to the user"),
            }),
        }
    }
}
