//! XA transactions between PREPARE and the decision: their rows wait here.
//!
//! Their events come when they are prepared; whether they count is known when they are decided, which may be much later
//! and in any order. Until then the position says that they were not read.

use std::collections::HashMap;

use super::client::Client;
use super::error::{ClientError, ServerError, from_client, grants};
use super::open::{Step, bytes_of};
use super::server::{Server, refusal};
use super::settings::{ConnectSettings, Flavour, MysqlSettings};
use super::trouble::Trouble;
use crate::finding::Finding;
use crate::gtid::Gtid;
use crate::position::BinlogPosition;
use crate::source::SourceError;
use crate::state::Reason;

/// Most that all of them may hold together.
const MAX_BYTES: usize = 256 << 20;

/// Says that reading cannot begin while transactions are prepared: their rows are in the log before it, and whether they
/// count is said behind it. To be asked after the place where reading begins.
///
/// # Errors
/// There are some, or there may be.
pub(super) async fn wait_for_decisions(
    client: &mut Client,
    settings: &MysqlSettings,
    server: &Server,
) -> Result<(), SourceError> {
    let rows = match client.query(LIST).await {
        Ok(rows) => rows,
        Err(ClientError::Server(error)) => {
            return hidden(settings, server, &error).map_or(Ok(()), |finding| refusal(&[finding]));
        }
        Err(error) => return Err(from_client("see prepared XA transactions", &settings.connect, error)),
    };
    if rows.is_empty() {
        return Ok(());
    }
    Err(SourceError::Connection {
        reason: Reason::SlotCreating,
        message: format!(
            "reading cannot begin while XA transactions are prepared on {}: there are {} (XA RECOVER lists them)",
            settings.connect.address,
            rows.len()
        ),
        source: None,
    })
}

const LIST: &str = "XA RECOVER";

/// What is wrong if prepared transactions cannot be seen.
pub(super) async fn finding(client: &mut Client, settings: &MysqlSettings, server: &Server) -> Option<Finding> {
    match client.query(LIST).await {
        Err(ClientError::Server(error)) => hidden(settings, server, &error),
        _ => None,
    }
}

fn hidden(settings: &MysqlSettings, server: &Server, error: &ServerError) -> Option<Finding> {
    if server.flavour == Flavour::Mysql && server.has_gtids() {
        // there it is noticed when one is committed, however late
        return None;
    }
    let ConnectSettings { user, flavour, .. } = &settings.connect;
    let message = format!("user \"{user}\" may not see which XA transactions are prepared: {error}");
    Some(Finding::error(message, format!("have an administrator run: {}", grants(*flavour, user))))
}

/// A prepared transaction.
#[derive(Debug)]
pub(super) struct Waiting {
    /// The transaction that prepared it, where it does not count as read before the decision.
    pub gtid: Option<Gtid>,
    pub steps: Vec<Step>,
    /// The position before it.
    before: BinlogPosition,
}

/// All that are not decided.
#[derive(Debug, Default)]
pub(super) struct Prepared {
    waiting: HashMap<Vec<u8>, Waiting>,
    bytes: usize,
}

impl Prepared {
    /// Whether so many bytes more can be held.
    pub(super) fn has_room(&self, bytes: usize) -> Result<(), Trouble> {
        if self.bytes + bytes <= MAX_BYTES {
            return Ok(());
        }
        Err(Trouble::new(
            Reason::LogNotUnderstood,
            format!("XA transactions that are prepared and not decided hold more than {MAX_BYTES} bytes of the outbox"),
            "decide them (XA RECOVER lists them), and start the relay again",
        ))
    }

    pub(super) fn add(&mut self, xid: Vec<u8>, gtid: Option<Gtid>, steps: Vec<Step>, before: BinlogPosition) {
        self.bytes += bytes_of(&steps);
        self.waiting.insert(xid, Waiting { gtid, steps, before });
    }

    /// Takes the one that is decided.
    pub(super) fn take(&mut self, xid: &[u8]) -> Option<Waiting> {
        let found = self.waiting.remove(xid)?;
        self.bytes = self.bytes.saturating_sub(bytes_of(&found.steps));
        Some(found)
    }

    /// The position that must not be passed: before the oldest that wrote to the outbox, where the server's identifiers have
    /// no gaps.
    pub(super) fn holds_back(&self) -> Option<&BinlogPosition> {
        let holds = |waiting: &&Waiting| waiting.gtid.is_none() && !waiting.steps.is_empty();
        self.waiting.values().filter(holds).map(|waiting| &waiting.before).min()
    }
}
