//! What stands in a record's way before it is sent: its topic's existence, limits and refusals.

use tokio::time::Instant;

use super::admin::{self, Creation};
use super::client::Mode;
use super::failure::{self, restart};
use super::session::Session;
use super::topics::{self, Found, Verdict};
use super::{KafkaSink, batch_bytes_for, event_id, illegal_topic, size};
use crate::record::Record;
use crate::sink::{Blocked, Enqueued, SinkError};
use crate::state::Reason;

impl KafkaSink {
    /// Remembers why the next record has to wait.
    fn block(&mut self, blocked: Option<Blocked>, until: Option<Instant>) -> Enqueued {
        self.blocked = blocked;
        self.retry_at = until;
        Enqueued::Blocked
    }

    /// Acts on what is known about the record's topic; `None` if nothing stands in its way.
    pub(super) fn hold_back(&mut self, record: &Record<'_>) -> Result<Option<Enqueued>, SinkError> {
        let Some(session) = &mut self.session else { return Ok(None) };
        if let Some(trying) = &session.trying {
            if !session.is_idle() {
                let denial = self.topics.denial(trying);
                return Ok(Some(self.block(denial, None)));
            }
            self.topics.forget(trying);
            session.trying = None;
        }
        let topic = record.topic;
        let verdict = match self.topics.verdict(topic, Instant::now) {
            Verdict::Send { limit } => {
                let too_large = || limit.and_then(|limit| self.too_large(record, limit));
                match self.lacks_partition(record).or_else(too_large) {
                    Some(blocked) => self.topics.no_room(topic, blocked, Instant::now()),
                    None => return limit.map_or(Ok(None), |limit| self.fit_batches(topic, limit)),
                }
            }
            verdict => verdict,
        };
        match verdict {
            Verdict::Send { .. } => Ok(None),
            Verdict::Try => Ok(self.try_alone(topic)),
            Verdict::Wait { blocked, until } => Ok(Some(self.block(blocked, until))),
            Verdict::LookUp { before } => {
                if let Some(why) = topics::illegal_name(topic) {
                    self.topics.forget(topic);
                    return Err(illegal_topic(record, why));
                }
                self.look_up(topic.to_owned());
                Ok(Some(self.block(before, None)))
            }
        }
    }

    /// Asks the brokers about a topic; [`Sink::acknowledged`] takes the answer.
    pub(super) fn look_up(&mut self, topic: String) {
        let Some(admin) = self.session.as_ref().and_then(Session::admin) else { return };
        let creation = self.config.create_topics.then(|| Creation::of_events(&self.config));
        let asks_limit = self.asks_settings;
        self.lookups.spawn(async move { (topic.clone(), admin::look_up(admin, topic, creation, asks_limit).await) });
    }

    /// Takes what a look-up found.
    pub(super) fn learn(&mut self, topic: String, found: Found) {
        let now = Instant::now();
        if let (Some(session), Found::Usable { partitions: Some(count), .. }) = (&mut self.session, &found) {
            session.partitions.learn(&topic, *count, now);
        }
        self.topics.learn(topic, found, now);
    }

    /// Lets one record of a topic that refused us pass, with nothing beside it that would be sent twice.
    fn try_alone(&mut self, topic: &str) -> Option<Enqueued> {
        let session = self.session.as_mut()?;
        if session.is_idle() {
            session.trying = Some(topic.to_owned());
            return None;
        }
        let denial = self.topics.denial(topic);
        Some(self.block(denial, None))
    }

    /// Says that a record is for a partition that its topic does not have.
    fn lacks_partition(&self, record: &Record<'_>) -> Option<Blocked> {
        let partitions = self.topics.lacks(record.topic, record.partition?)?;
        Some(failure::lacks_partition(record, &event_id(record), Some(partitions)))
    }

    /// Says that a record does not fit; with compression only the broker can tell.
    fn too_large(&self, record: &Record<'_>, limit: u64) -> Option<Blocked> {
        let exceeds = |bytes: usize| u64::try_from(bytes).unwrap_or(u64::MAX) > limit;
        // The bound first: it is cheaper than the exact size, and enough nearly always.
        if self.compresses || !exceeds(record.batch_bytes()) {
            return None;
        }
        let bytes = size::batch_bytes(record);
        exceeds(bytes).then(|| Blocked {
            reason: Reason::RecordTooLarge,
            detail: format!(
                "event \"{}\" for topic \"{}\" has {bytes} bytes, the topic takes {limit}",
                event_id(record),
                record.topic
            ),
            hint: format!("raise max.message.bytes of topic \"{}\" to {bytes} or more", record.topic),
        })
    }

    /// Ends the session if its batches may be larger than the topic takes: a batch that is refused is not split.
    fn fit_batches(&mut self, topic: &str, limit: u64) -> Result<Option<Enqueued>, SinkError> {
        let present = self.session.as_ref().map(|session| session.mode);
        match present {
            Some(Mode::Batches { bytes }) if bytes > batch_bytes_for(limit) => {
                self.session = None;
                Err(restart(
                    Reason::Starting,
                    format!("topic \"{topic}\" takes {limit} bytes: making batches smaller"),
                    true,
                ))
            }
            _ => Ok(None),
        }
    }
}
