//! How long attaching may take: each answer has no limit of its own, and a session of the server may be stuck while the
//! server lives.

use std::time::Duration;

use super::settings::PostgresSettings;
use crate::source::SourceError;
use crate::state::{Reason, StatusBoard};

/// How often it is looked at what is being done.
const LOOK: Duration = Duration::from_millis(500);

/// Ends when attaching has taken too long, and says so. The time in which a new slot waits for transactions does not count:
/// they may take as long as they like.
pub(super) async fn overdue(settings: &PostgresSettings, board: &StatusBoard) -> SourceError {
    let limit = limit(settings);
    let mut waited = Duration::ZERO;
    while waited < limit {
        tokio::time::sleep(LOOK).await;
        if board.get().reason != Reason::SlotCreating {
            waited += LOOK;
        }
    }
    SourceError::Connection {
        reason: Reason::SourceSilent,
        message: format!("{} lets us in and does not answer: gave up after {limit:?}", settings.connect.address),
        source: None,
    }
}

/// The silence that a server is allowed, beside the time for the connections: SQL, replication, and one in reserve.
fn limit(settings: &PostgresSettings) -> Duration {
    const CONNECTIONS: u32 = 3;
    let servers = u32::try_from(settings.connect.addresses.len()).unwrap_or(1).max(1);
    settings
        .silence_timeout
        .saturating_add(settings.connect.timeout.saturating_mul(CONNECTIONS.saturating_mul(servers)))
}
