//! Reads a topic that other programs write: the last record of a key.

use std::collections::BTreeMap;
use std::sync::Arc;

use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Message};

use super::admin::{self, Existence};
use super::context::AskingContext;
use super::positions::{Errors, READ_TIMEOUT, read_from, unreachable};
use super::{KafkaSink, restart, with_trouble};
use crate::config::KafkaConfig;
use crate::sink::SinkError;
use crate::state::Reason;

impl KafkaSink {
    /// The value of the last record in `topic` whose key is the one; `None` if there is none, or it is a tombstone.
    ///
    /// # Errors
    /// The brokers do not answer, the topic does not exist, or it may not be read.
    pub async fn last_of(
        &self,
        topic: &str,
        is_key: impl Fn(&[u8]) -> bool + Send + 'static,
    ) -> Result<Option<Vec<u8>>, SinkError> {
        let (session, admin) = self.dial().await?;
        let found = admin::existence(&admin, topic).await;
        let found = found.map_err(|error| unreachable(&self.config, &format!("look up topic \"{topic}\""), &error));
        let partitions = match found.map_err(|error| with_trouble(error, &session.shared))? {
            Existence::Exists(partitions) => partitions,
            Existence::Missing => return Err(not_usable(topic, "does not exist")),
            Existence::Refused(code) => return Err(not_usable(topic, &format!("cannot be read: {code}"))),
        };
        let (consumer, config, name) = (session.consumer.clone(), self.config.clone(), topic.to_owned());
        let context = AskingContext(Arc::clone(&session.shared));
        let read = move || read_last_of(&consumer, context, &config, &name, partitions, &is_key);
        let read = tokio::task::spawn_blocking(read).await.map_err(|error| {
            restart(Reason::SinkUnreachable, format!("reading topic \"{topic}\" was given up: {error}"), false)
        })?;
        read.map_err(|error| with_trouble(error, &session.shared))
    }
}

fn not_usable(topic: &str, why: &str) -> SinkError {
    SinkError::Configuration {
        message: format!("topic \"{topic}\" {why}"),
        hint: "name the topic as the Connect worker's file has it in offset.storage.topic, and grant READ and DESCRIBE on it"
            .to_owned(),
    }
}

/// Blocks.
fn read_last_of(
    client: &ClientConfig,
    context: AskingContext,
    config: &KafkaConfig,
    topic: &str,
    partitions: usize,
    is_key: &dyn Fn(&[u8]) -> bool,
) -> Result<Option<Vec<u8>>, SinkError> {
    let failed = |error: KafkaError| unreachable(config, &format!("read topic \"{topic}\""), &error);
    let consumer: BaseConsumer<AskingContext> = client.create_with_context(context).map_err(failed)?;
    consumer.fetch_metadata(Some(topic), READ_TIMEOUT).map_err(failed)?;
    let mut ends = BTreeMap::new();
    for partition in 0..i32::try_from(partitions).unwrap_or(i32::MAX) {
        ends.insert(partition, consumer.fetch_watermarks(topic, partition, READ_TIMEOUT).map_err(failed)?);
    }
    // of two partitions, after more were added to the topic, the later record counts
    let mut last: Option<(i64, Option<Vec<u8>>)> = None;
    let mut see = |message: &BorrowedMessage<'_>| {
        let time = message.timestamp().to_millis().unwrap_or_default();
        if message.key().is_some_and(is_key) && last.as_ref().is_none_or(|(known, _)| *known <= time) {
            last = Some((time, message.payload().map(<[u8]>::to_vec)));
        }
        Ok(())
    };
    let errors = Errors { failed: &failed, denied: &|why: &str| not_usable(topic, why) };
    read_from(&consumer, topic, &ends, &|(low, _)| low, &mut see, &errors)?;
    Ok(last.and_then(|(_, value)| value))
}
