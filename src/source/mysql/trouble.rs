//! What stops the reading: something in the log that cannot be passed over.

use super::events::{FLAG_IGNORABLE, Header, kind};
use super::layout::RowProblem;
use super::wire::Malformed;
use crate::state::Reason;

/// What the log holds is not as it has to be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(super) struct Trouble {
    /// The stable code.
    pub reason: Reason,
    /// What, with the names of table and column.
    pub message: String,
    /// What to do about it.
    pub hint: &'static str,
    /// Whether it is enough to connect anew.
    pub passes: bool,
}

impl Trouble {
    pub(super) fn new(reason: Reason, message: impl Into<String>, hint: &'static str) -> Self {
        Self { reason, message: message.into(), hint, passes: false }
    }

    /// A new connection mends it.
    pub(super) fn passing(message: impl Into<String>) -> Self {
        Self { passes: true, ..Self::new(Reason::SourceUnreachable, message, "") }
    }
}

const REPORT: &str =
    "the relay does not understand this server's log: see whether a newer version of it does, and report this";

impl From<Malformed> for Trouble {
    fn from(malformed: Malformed) -> Self {
        Self::new(Reason::LogNotUnderstood, malformed.to_string(), REPORT)
    }
}

/// Events that hold no rows. One that may is an error.
pub(super) fn pass_over(header: &Header) -> Result<(), Trouble> {
    match header.kind {
        kind::STOP
        | kind::INTVAR
        | kind::RAND
        | kind::USER_VAR
        | kind::FORMAT_DESCRIPTION
        | kind::APPEND_BLOCK
        | kind::DELETE_FILE
        | kind::BEGIN_LOAD_QUERY
        | kind::HEARTBEAT
        | kind::HEARTBEAT_V2
        | kind::IGNORABLE
        | kind::ROWS_QUERY
        | kind::PREVIOUS_GTIDS
        | kind::TRANSACTION_CONTEXT
        | kind::VIEW_CHANGE
        | kind::MARIADB_ANNOTATE_ROWS
        | kind::MARIADB_CHECKPOINT
        | kind::MARIADB_GTID_LIST
        | kind::MARIADB_START_ENCRYPTION => Ok(()),
        kind::ANONYMOUS_GTID => Err(Trouble::new(
            Reason::LogNotUnderstood,
            "the log holds a transaction without a GTID, and reading began by GTIDs: gtid_mode was changed",
            "start the relay again: it goes on by the place in the server's files as long as gtid_mode is not ON",
        )),
        kind::INCIDENT => Err(Trouble::new(
            Reason::LogNotUnderstood,
            "the server notes in its log that it lost events there (an incident event)",
            "see the server's error log, compare the table with the topics, and go on with outboxd resume --from now",
        )),
        _ if header.flags & FLAG_IGNORABLE != 0 => Ok(()),
        unknown => Err(Trouble::new(
            Reason::LogNotUnderstood,
            format!("the log holds an event of type {unknown}, which is not known and may hold rows"),
            REPORT,
        )),
    }
}

impl From<RowProblem> for Trouble {
    fn from(problem: RowProblem) -> Self {
        match problem {
            RowProblem::Malformed(malformed) => malformed.into(),
            RowProblem::Text { table, id, column, error } => Self::new(
                Reason::RowError,
                format!(
                    "column \"{column}\" of the row with id {id} of table \"{table}\" holds no text of its character set: {error}"
                ),
                "have the application write this event again, with text, and go on with outboxd resume --from now",
            ),
            RowProblem::Partial(column) => Self::new(
                Reason::RowError,
                format!(
                    "a row of the outbox was written with a partial row image: column \"{column}\" is not in the log, and its \
                     default is not known"
                ),
                "have every session that writes to the outbox use binlog_row_image = FULL, have the application write this \
                 event again, and go on with outboxd resume --from now",
            ),
        }
    }
}
