//! Sources: readers of a database server's log.

pub mod mysql;
mod password;
pub mod postgres;
pub mod setup;
mod tcp;

use std::future::Future;
use std::time::Duration;

use crate::change::Batch;
use crate::position::Position;
use crate::sink::positions::{PositionRecord, SourceIdentity};
use crate::state::{Gap, Reason, Status, StatusBoard};

/// A reader of one server's log, positioned and streaming.
pub trait Source: Send {
    /// Adds to `batch` what one read brings, in commit order; waits for at least one item, or until the server
    /// [wants a word](Self::wants_word). Cancel-safe: a cancelled call has added nothing and lost nothing.
    ///
    /// # Errors
    /// Any [`SourceError`]. What was added before the error is valid and complete up to there.
    fn read(&mut self, batch: &mut Batch) -> impl Future<Output = Result<(), SourceError>> + Send;

    /// Tells the server what is durable; `None` means nothing new. Never moves backwards. It is the liveness message
    /// too, so the relay calls it on every tick, also while it does not read. Not cancel-safe.
    ///
    /// # Errors
    /// [`SourceError::Connection`] if the server can no longer be reached, [`SourceError::Terminal`] if what it
    /// publishes has changed.
    fn confirm(&mut self, durable: Option<Position>) -> impl Future<Output = Result<(), SourceError>> + Send;

    /// Whether the server waits for the next [`confirm`](Self::confirm).
    fn wants_word(&self) -> bool;

    /// How long nothing has come from the server.
    fn silent_for(&self) -> Duration;

    /// Whether everything has been read that the server had a moment ago. If not, it is still looking through what it has,
    /// and nobody knows whether there are rows in it.
    fn is_caught_up(&self) -> bool {
        true
    }

    /// The position up to which the server is known to bring every row: what is behind it was not yet checked against the
    /// server's catalogue.
    fn verified(&self) -> Position;

    /// Log that the relay's position holds back on the server, in bytes, if known.
    fn retained_bytes(&self) -> Option<u64>;

    /// What is being done while nothing is in the way.
    fn status(&self) -> Status {
        Status::streaming()
    }

    /// Everything up to [`Item::End`](crate::change::Item::End) is acknowledged: does what has to follow. Not
    /// cancel-safe.
    ///
    /// # Errors
    /// Any [`SourceError`]; then what was read is read again.
    fn complete(&mut self) -> impl Future<Output = Result<(), SourceError>> + Send {
        std::future::ready(Ok(()))
    }

    /// Ends the session in good order.
    fn close(self) -> impl Future<Output = ()> + Send;
}

/// Connects the sessions of one instance to its server.
pub trait Connector: Send {
    /// Reads the log.
    type Stream: Source;
    /// Reads what stands in the tables.
    type Tables: Source;
    /// The log is ours to read, nothing of it is read.
    type Ready: Ready<Stream = Self::Stream>;

    /// Attaches to the server and sees to it that no other instance reads. `record` is what is known to be published;
    /// another instance may have published more by the time the log is ours, so nothing is read before
    /// [`Ready::begin`].
    ///
    /// # Errors
    /// As the dispositions say: every finding at once, another instance that reads, or a terminal state.
    fn attach(
        &mut self,
        record: Option<&PositionRecord>,
        board: &StatusBoard,
    ) -> impl Future<Output = Result<Attached<Self>, SourceError>> + Send;

    /// What stands in the tables is published, and the next session reads the log from there.
    fn tables_were_read(&mut self);

    /// Asks a server with which there is no session how much log it holds back for us, in bytes. `None` if it does not
    /// tell, or holds nothing back for anybody.
    fn retained_bytes(&mut self) -> impl Future<Output = Option<u64>> + Send {
        std::future::ready(None)
    }
}

/// How a session begins.
pub enum Attached<C: Connector + ?Sized> {
    /// With the log.
    Stream(C::Ready),
    /// With what stands in the tables: this is the first start.
    Tables(C::Tables),
}

/// The log of a server that no other instance reads.
pub trait Ready: Send {
    /// Reads the log.
    type Stream: Source;

    /// Compares what the server has with what was published, and begins to read.
    ///
    /// # Errors
    /// A terminal state if events may be missing.
    fn begin(
        self,
        record: Option<&PositionRecord>,
    ) -> impl Future<Output = Result<Begun<Self::Stream>, SourceError>> + Send;
}

/// A stream that has begun.
pub struct Begun<S> {
    /// The stream.
    pub stream: S,
    /// Who and what the server is.
    pub identity: SourceIdentity,
    /// Where the stream begins.
    pub position: Position,
}

/// A state that ends the relay until a person decides.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Terminal {
    /// The stable code.
    pub reason: Reason,
    /// What happened, with the names of slot, publication, table.
    pub message: String,
    /// Where events may be missing.
    pub gap: Option<Gap>,
    /// What to do about it.
    pub hint: String,
}

/// Why a source cannot go on. [`disposition`](SourceError::disposition) says what follows.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The connection could not be made, or broke, or the server said something that passes by itself.
    #[error("{message}")]
    Connection {
        /// The stable code.
        reason: Reason,
        /// What was being done, where.
        message: String,
        /// The cause, if it is another error.
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
    /// Another session uses the slot.
    #[error("{message}")]
    SlotInUse {
        /// Whether the holder is another instance of this relay that is alive.
        by_peer: bool,
        /// Who holds it, since when.
        message: String,
    },
    /// What is configured cannot work with what the server holds; several findings are separated by line feeds.
    #[error("{message}")]
    Configuration {
        /// The stable code.
        reason: Reason,
        /// Every finding.
        message: String,
        /// The statement or setting that mends it.
        hint: String,
    },
    /// Events may be missing, or the log cannot be understood.
    #[error(transparent)]
    Terminal(Box<Terminal>),
}

/// What the relay does after an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// Connect again after a growing pause.
    Retry,
    /// Ask again each second.
    Poll,
    /// At the first start: end with exit code 2. Later: as `Retry`, since what worked once may be mended while we
    /// wait.
    Refuse,
    /// Stay red, or end with exit code 3, until a person decides.
    Stop,
}

impl SourceError {
    /// What the relay does after this error.
    #[must_use]
    pub fn disposition(&self) -> Disposition {
        match self {
            Self::Connection { .. } => Disposition::Retry,
            Self::SlotInUse { .. } => Disposition::Poll,
            Self::Configuration { .. } => Disposition::Refuse,
            Self::Terminal(_) => Disposition::Stop,
        }
    }

    /// The stable code.
    #[must_use]
    pub fn reason(&self) -> Reason {
        match self {
            Self::Connection { reason, .. } | Self::Configuration { reason, .. } => *reason,
            Self::SlotInUse { by_peer: true, .. } => Reason::Standby,
            Self::SlotInUse { by_peer: false, .. } => Reason::SlotInUse,
            Self::Terminal(terminal) => terminal.reason,
        }
    }

    /// What to do about it, if a person can do something.
    #[must_use]
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::Connection { .. } | Self::SlotInUse { .. } => None,
            Self::Configuration { hint, .. } => Some(hint),
            Self::Terminal(terminal) => Some(&terminal.hint),
        }
    }
}
