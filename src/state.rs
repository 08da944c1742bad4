//! The states of the relay and their reason codes: the one list that the log, `/readyz`, the metrics and the exit
//! code read.

use std::fmt;
use std::time::SystemTime;

use tokio::sync::watch;

use crate::position::Position;

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $code:literal,)*) => {
        /// Why the relay is in its state. The code is stable: alarms and scripts may match it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Reason { $($(#[$doc])* $name,)* }

        impl Reason {
            /// Every reason, in the order of the documentation.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The stable code.
            #[must_use]
            pub fn code(self) -> &'static str {
                match self { $(Self::$name => $code,)* }
            }
        }
    };
}

reasons! {
    /// The process has begun and has not yet connected.
    Starting = "starting",
    /// The rows that stood in the tables at the first start are read and published.
    ReadingTable = "reading_table",
    /// Changes are read and published.
    Streaming = "streaming",
    /// Another instance of the same name holds the slot; this one waits to take over.
    Standby = "standby",
    /// A stop was asked for; what is in flight is being acknowledged.
    Stopping = "stopping",
    /// The database cannot be reached, or the connection broke.
    SourceUnreachable = "source_unreachable",
    /// The database's connection is open but nothing comes through it, not even an answer.
    SourceSilent = "source_silent",
    /// The database server is shutting down or starting up.
    ServerStopping = "server_stopping",
    /// Somebody else uses the slot.
    SlotInUse = "slot_in_use",
    /// The slot waits for transactions that were open before it.
    SlotCreating = "slot_creating",
    /// The database or a broker refused the user, the password or the certificate.
    AuthenticationFailed = "authentication_failed",
    /// The brokers cannot be reached, or do not acknowledge.
    SinkUnreachable = "sink_unreachable",
    /// A topic does not exist and may not be made.
    TopicMissing = "topic_missing",
    /// The user may not write to a topic.
    TopicNotAuthorized = "topic_not_authorized",
    /// A record is larger than its topic allows.
    RecordTooLarge = "record_too_large",
    /// The broker refuses a record for good.
    RecordRefused = "record_refused",
    /// A row cannot be turned into a record.
    RowError = "row_error",
    /// What is configured does not fit what the servers hold.
    Configuration = "configuration",
    /// The server no longer has the log that the slot needs.
    SlotInvalidated = "slot_invalidated",
    /// The slot has gone although events were published from it.
    SlotMissing = "slot_missing",
    /// The slot stands behind what was published: somebody moved it or made it again.
    SlotMovedAhead = "slot_moved_ahead",
    /// The instance published from another slot before.
    OtherSlot = "other_slot",
    /// The publication has gone.
    PublicationMissing = "publication_missing",
    /// The publication is another one than before.
    PublicationRemade = "publication_remade",
    /// The publication was made after the slot's position, where the server cannot see it.
    PublicationNewerThanSlot = "publication_newer_than_slot",
    /// An outbox table is not in the publication, or no longer published as needed.
    TableNotPublished = "table_not_published",
    /// An outbox table is another one than before, or has gone.
    TableRemade = "table_remade",
    /// The database server is another one than before.
    OtherServer = "other_server",
    /// The server's history forked before what was published.
    TimelineDiverged = "timeline_diverged",
    /// The server's log ends before what was published.
    ServerBehind = "server_behind",
    /// The server counts this relay as a synchronous standby.
    SynchronousStandby = "synchronous_standby",
    /// The log holds something that is not understood.
    LogNotUnderstood = "log_not_understood",
    /// The server no longer has the part of its binary log that is needed.
    LogPurged = "log_purged",
    /// A session wrote to the outbox in a way that leaves its rows out of the binary log.
    StatementLogged = "statement_logged",
    /// Another replica uses the relay's server id.
    ServerIdInUse = "server_id_in_use",
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

/// What the relay is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Connecting, for the first time or again.
    Connecting,
    /// Ready to take over from another instance.
    Standby,
    /// Publishing the rows that stand in the tables, before the first change is read.
    Reading,
    /// Reading changes and publishing them.
    Streaming,
    /// Connected, but something outside must change before the next record can go out. Tried again by itself.
    Blocked,
    /// Ending in good order.
    Stopping,
    /// Ended for good until a person decides.
    Terminal,
}

impl Phase {
    /// The word for logs, JSON and the metric label.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Standby => "standby",
            Self::Reading => "reading",
            Self::Streaming => "streaming",
            Self::Blocked => "blocked",
            Self::Stopping => "stopping",
            Self::Terminal => "terminal",
        }
    }
}

/// The part of the log in which events may be missing. Open at a side that is not known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gap {
    /// Everything before this was published.
    pub from: Option<Position>,
    /// From here on nothing is missing.
    pub to: Option<Position>,
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = |position: &Option<Position>| position.as_ref().map_or_else(|| "?".to_owned(), ToString::to_string);
        write!(f, "{} to {}", side(&self.from), side(&self.to))
    }
}

/// A state with its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// What the relay is doing.
    pub phase: Phase,
    /// Why.
    pub reason: Reason,
    /// One line for a person: what, where.
    pub detail: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// Where events may be missing.
    pub gap: Option<Gap>,
    /// Since when phase and reason are what they are.
    pub since: SystemTime,
}

impl Status {
    /// A state that holds from now on.
    #[must_use]
    pub fn new(phase: Phase, reason: Reason, detail: impl Into<String>) -> Self {
        Self { phase, reason, detail: detail.into(), hint: None, gap: None, since: SystemTime::now() }
    }

    /// Whether a load balancer or an orchestrator may call this instance ready: it publishes, or it stands by for one
    /// that does.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        matches!(self.phase, Phase::Reading | Phase::Streaming | Phase::Standby)
    }
}

/// Publishes the present [`Status`] to whoever shows it.
#[derive(Clone, Debug)]
pub struct StatusBoard {
    sender: watch::Sender<Status>,
}

impl Default for StatusBoard {
    fn default() -> Self {
        let (sender, _) = watch::channel(Status::new(Phase::Connecting, Reason::Starting, "starting"));
        Self { sender }
    }
}

impl StatusBoard {
    /// Sets the state. While phase and reason stay, so does their `since`. Returns whether they changed.
    pub fn set(&self, mut status: Status) -> bool {
        let mut changed = false;
        self.sender.send_modify(|present| {
            changed = (present.phase, present.reason) != (status.phase, status.reason);
            if !changed {
                status.since = present.since;
            }
            *present = status;
        });
        changed
    }

    /// The present state.
    #[must_use]
    pub fn get(&self) -> Status {
        self.sender.borrow().clone()
    }
}
