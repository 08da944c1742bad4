//! Sinks: where records go, and where the position is kept that the relay comes back to.

pub mod kafka;
mod output;
pub mod positions;
pub mod stdout;
pub mod store;

use std::future::Future;
use std::time::Duration;

use crate::record::Record;
use crate::sink::positions::PositionRecord;
use crate::state::Reason;

/// Number of a source transaction since the session began; handed back with each acknowledgement.
pub type Ordinal = usize;

/// Acknowledged records of one transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    /// The transaction.
    pub ordinal: Ordinal,
    /// How many records.
    pub records: u32,
    /// Their share of the window, in bytes (see [`crate::record::window_bytes`]).
    pub bytes: u64,
}

/// What a sink has to say since it was last asked.
#[derive(Debug, Default)]
pub struct Acknowledgements {
    /// Acknowledged records, summed by transaction, in no order.
    pub acks: Vec<Ack>,
    /// The newest position that has become durable by [`Sink::commit`].
    pub committed: Option<crate::position::Position>,
}

/// What became of a record that was handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enqueued {
    /// It is on its way; an acknowledgement follows.
    Queued,
    /// The queue is full. Try again after the next acknowledgement.
    Full,
    /// Its topic is being looked up or is not usable; [`Sink::blocked`] says why. Try again when
    /// [`Sink::acknowledged`] returns.
    Blocked,
}

/// What stands in the way of the next record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// The stable code.
    pub reason: Reason,
    /// What, by name: topic, id, size, limit.
    pub detail: String,
    /// What to do about it.
    pub hint: String,
}

/// A receiver of records. It works in sessions: [`open`](Self::open) begins one, an error ends it.
pub trait Sink: Send {
    /// Begins a session, after ending the one before; gives the position record of `instance`. Cancelled half-way it
    /// leaves the sink without a session.
    ///
    /// # Errors
    /// [`SinkError`] if the sink cannot be reached, or positions would not be safe in it.
    fn open(&mut self, instance: &str) -> impl Future<Output = Result<Option<PositionRecord>, SinkError>> + Send;

    /// The position record of `instance` as it is now; a session must have begun.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    fn stored_position(
        &mut self,
        instance: &str,
    ) -> impl Future<Output = Result<Option<PositionRecord>, SinkError>> + Send;

    /// Ends the session, after waiting up to `timeout` for what is on its way.
    fn close(&mut self, timeout: Duration) -> impl Future<Output = ()> + Send;

    /// Hands over a record without waiting. The order of calls is the order per key.
    ///
    /// # Errors
    /// [`SinkError`] if the session is over; nothing was handed over then.
    fn enqueue(&mut self, record: &Record<'_>, ordinal: Ordinal) -> Result<Enqueued, SinkError>;

    /// Adds to `into` what was acknowledged since the last call; waits until there is something to say: records
    /// acknowledged, a position committed, or a blocked topic that is worth another try. Cancel-safe.
    ///
    /// # Errors
    /// [`SinkError`] if the session is over: records may be refused or lost on the way, and everything behind the last
    /// committed position has to be sent again.
    fn acknowledged(&mut self, into: &mut Acknowledgements) -> impl Future<Output = Result<(), SinkError>> + Send;

    /// Begins to make a position durable. Its end is told by [`Acknowledgements::committed`]. At most one is under
    /// way: returns false, and does nothing, while an earlier one is.
    ///
    /// # Errors
    /// [`SinkError`] if the session is over.
    fn commit(&mut self, record: &PositionRecord) -> Result<bool, SinkError>;

    /// Why the last [`Enqueued::Blocked`] was said; `None` while a topic is merely being looked up.
    fn blocked(&self) -> Option<Blocked>;

    /// Whether at least one broker can be reached, as far as is known.
    fn is_connected(&self) -> bool;
}

/// Why a sink's session is over.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    /// The session must begin again from the last committed position; nothing is wrong with the records.
    #[error("{message}")]
    Restart {
        /// The stable code.
        reason: Reason,
        /// What happened.
        message: String,
        /// Whether to begin again at once, without a pause: the sink has learned something and will do better.
        at_once: bool,
    },
    /// What is configured cannot work with what the brokers hold.
    #[error("{message}")]
    Configuration {
        /// What is wrong.
        message: String,
        /// What to do about it.
        hint: String,
    },
    /// The broker refuses one record for good.
    #[error("{message}")]
    Refused {
        /// The stable code.
        reason: Reason,
        /// Which record, by topic and event id, and the broker's words.
        message: String,
        /// What to do about it.
        hint: String,
    },
    /// Nobody takes records any more, and nobody will: the relay ends.
    #[error("{message}")]
    Closed {
        /// What happened.
        message: String,
    },
}
