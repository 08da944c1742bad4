//! The replication slot: is it one that we can read, making it, having standbys keep it, who holds it.
//!
//! A slot that is made waits for all transactions that are open at that moment. It begins at a point of the log to which a
//! snapshot belongs: what is committed before the point is in the snapshot, what is committed behind it is in the stream.

use std::time::Duration;

use tracing::{info, warn};

use super::attach::{Lost, broken};
use super::catalog::{self, SlotFacts};
use super::client::ReplicationClient;
use super::error::{from_driver, from_server, quote_literal, unreachable};
use super::inspect::Finding;
use super::settings::PostgresSettings;
use super::sql::SqlSession;
use crate::config::names::quote_identifier;
use crate::position::{Lsn, Position};
use crate::source::{SourceError, Terminal};
use crate::state::{Gap, Phase, Reason, Status, StatusBoard};

/// How many slots there are for a moment at the end of the first read.
const PLACES: i64 = 2;

/// A slot of our name must be of our plug-in and our database.
///
/// # Errors
/// [`SourceError::Configuration`] if it is somebody else's.
pub(super) fn is_ours(settings: &PostgresSettings, slot: &SlotFacts) -> Result<(), SourceError> {
    let name = &settings.names.slot;
    let refuse = |message: String| SourceError::Configuration {
        reason: Reason::Configuration,
        message,
        hint: "choose another name in option \"source.postgres.slot\"".to_owned(),
    };
    let plugin = slot.plugin.as_deref().unwrap_or("none: it is a physical slot");
    if plugin != "pgoutput" {
        return Err(refuse(format!("slot \"{name}\" belongs to another output plug-in ({plugin}), not to pgoutput")));
    }
    let database = slot.database.as_deref().unwrap_or_default();
    if database != settings.connect.database {
        return Err(refuse(format!(
            "slot \"{name}\" belongs to database \"{database}\", not to \"{}\"",
            settings.connect.database
        )));
    }
    Ok(())
}

/// A slot that stands there must be one that we can read.
///
/// # Errors
/// It is somebody else's, or sends what is not asked for; a terminal state if it has lost its log.
pub(super) fn check(settings: &PostgresSettings, slot: &SlotFacts, lost: Option<&Lost<'_>>) -> Result<(), SourceError> {
    is_ours(settings, slot)?;
    let name = &settings.names.slot;
    if slot.two_phase {
        let (text, copy) = (quote_literal(name), quote_literal(&settings.names.slot_beside("_copy")));
        return Err(SourceError::Configuration {
            reason: Reason::Configuration,
            message: format!(
                "slot \"{name}\" was made with two_phase: it sends prepared transactions before they are committed, in a form \
                 that the relay does not ask for"
            ),
            // a copy begins where its original stands, and is without two_phase
            hint: format!(
                "SELECT pg_copy_logical_replication_slot({text}, {copy}, false); SELECT pg_drop_replication_slot({text}); \
                 SELECT pg_copy_logical_replication_slot({copy}, {text}, false); SELECT pg_drop_replication_slot({copy}); -- \
                 while the relay is stopped; nothing is lost by it"
            ),
        });
    }
    if let Some(why) = slot.why_unusable() {
        let message = format!("slot \"{name}\" was invalidated ({why}): the server no longer has the log it needs");
        let from = lost.map(|lost| lost.record.position.clone()).or(slot.confirmed.map(Position::Postgres));
        let to = lost.map(|lost| Position::Postgres(lost.wal_end));
        return Err(SourceError::Terminal(Box::new(Terminal {
            reason: Reason::SlotInvalidated,
            message,
            gap: Some(Gap { from, to }),
            hint: settings.names.leave_hint(),
        })));
    }
    Ok(())
}

/// A slot that somebody made for us is taken as it is; rows committed before it are not in it.
pub(super) async fn announce_adoption(session: &SqlSession, settings: &PostgresSettings, slot: &SlotFacts) {
    let position = slot.confirmed.unwrap_or_default();
    for table in settings.all_tables() {
        // a count may take long on a large table, and the right to read it is not needed for streaming
        let sql = format!("SELECT count(*) FROM (SELECT FROM {table} LIMIT 100000) AS some");
        let count = tokio::time::timeout(Duration::from_secs(5), session.client.query_one(&sql, &[])).await;
        let rows = match count.map(|row| row.and_then(|row| row.try_get::<_, i64>(0))) {
            Ok(Ok(100_000)) => "100000 or more".to_owned(),
            Ok(Ok(count)) => count.to_string(),
            _ => "unknown".to_owned(),
        };
        let table = table.plain();
        info!(slot = settings.names.slot, %position, table, rows, "adopted the slot; the table is not read");
    }
}

/// What is in the way of making two slots; `None` if nothing is.
///
/// # Errors
/// What the server says to the question.
pub(super) async fn lacks_places(
    session: &SqlSession,
    settings: &PostgresSettings,
) -> Result<Option<Finding>, SourceError> {
    let temporary = settings.names.temporary_slot();
    let places = catalog::slot_places(&session.client, &temporary).await;
    let (places, taken) = places.map_err(|error| from_driver("count the slots", &settings.connect, error))?;
    if places - taken >= PLACES {
        return Ok(None);
    }
    Ok(Some(Finding {
        reason: Reason::Configuration,
        message: format!(
            "{taken} of {places} replication slots are in use, and the first start needs {PLACES}: slot \"{}\", and a \
             temporary one while the table is read",
            settings.names.slot
        ),
        hint: "drop a slot that nobody uses any more (SELECT slot_name, active FROM pg_replication_slots), or raise \
               max_replication_slots and restart the server"
            .to_owned(),
    }))
}

/// Where a new slot begins.
#[derive(Clone, Debug)]
pub(super) struct Made {
    /// What was committed before it is in the snapshot.
    pub position: Lsn,
    /// Name of the snapshot. It lives until the connection's next command.
    pub snapshot: String,
}

/// Makes the permanent slot, with nothing read before. Waits for all transactions that are open, as long as they are.
///
/// # Errors
/// [`SourceError::SlotInUse`] while another instance reads the tables: a slot that is made now would pass over rows that
/// it has not read.
pub(super) async fn make_permanent(
    client: &mut ReplicationClient,
    session: &SqlSession,
    settings: &PostgresSettings,
    version: i32,
    board: &StatusBoard,
) -> Result<(), SourceError> {
    let (slot, temporary) = (&settings.names.slot, settings.names.temporary_slot());
    let reader = catalog::slot(&session.client, version, &temporary).await;
    if reader.map_err(|error| from_driver("read the slots", &settings.connect, error))?.is_some() {
        return Err(in_use(session, settings, version, None, &temporary, "").await);
    }
    match make(client, settings, version, slot, Kind::permanent(settings, version), board).await? {
        Some(made) => info!(slot, position = %made.position, "made the slot"),
        None => info!(slot, "another instance made the slot"),
    }
    Ok(())
}

/// Makes the slot that lives as long as the first read, on a connection that must stay idle from then on. `None` if another
/// session has one of this name: then another instance reads the tables, or one that has just died still holds it.
///
/// # Errors
/// What the server says.
pub(super) async fn make_temporary(
    client: &mut ReplicationClient,
    settings: &PostgresSettings,
    version: i32,
    board: &StatusBoard,
) -> Result<Option<Made>, SourceError> {
    make(client, settings, version, &settings.names.temporary_slot(), Kind::Temporary, board).await
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Stays.
    Permanent,
    /// Stays, on standbys too.
    Failover,
    /// Lives as long as its connection.
    Temporary,
}

impl Kind {
    /// What the configuration asks for, as far as the server can.
    #[must_use]
    pub(super) fn permanent(settings: &PostgresSettings, version: i32) -> Self {
        if version >= 170_000 && settings.failover_slot { Self::Failover } else { Self::Permanent }
    }
}

/// Makes a slot; `None` if there is one of this name.
///
/// # Errors
/// What the server says.
pub(super) async fn make(
    client: &mut ReplicationClient,
    settings: &PostgresSettings,
    version: i32,
    slot: &str,
    kind: Kind,
    board: &StatusBoard,
) -> Result<Option<Made>, SourceError> {
    let temporary = if kind == Kind::Temporary { "TEMPORARY " } else { "" };
    // before 15 options are words without commas
    let options = match kind {
        Kind::Failover => "(SNAPSHOT 'export', FAILOVER true)",
        _ if version >= 150_000 => "(SNAPSHOT 'export')",
        _ => "EXPORT_SNAPSHOT",
    };
    let quoted = quote_identifier(slot);
    let create = format!("CREATE_REPLICATION_SLOT {quoted} {temporary}LOGICAL pgoutput {options}");
    let detail = format!("making slot \"{slot}\": it waits for all transactions that were open before it");
    board.set(Status::new(Phase::Connecting, Reason::SlotCreating, detail));
    let rows = match client.query(&create).await.map_err(|error| broken(settings, "make the slot", error))? {
        Ok(rows) => rows,
        Err(error) if error.sqlstate == "42710" => return Ok(None),
        Err(error) => return Err(from_server("make a replication slot", &settings.connect, error)),
    };
    let row = rows.into_iter().next().unwrap_or_default();
    let column = |index: usize| row.get(index).cloned().flatten().unwrap_or_default();
    Ok(Some(Made { position: column(1).parse().unwrap_or_default(), snapshot: column(2) }))
}

/// Makes the permanent slot out of the temporary one, on the connection that holds that: it begins at the same point, so
/// the stream brings what the snapshot did not have.
///
/// # Errors
/// A terminal state if somebody else has made a slot of this name meanwhile: it lacks what was committed between `begin`,
/// where the snapshot is, and itself. Else what the server says; it has no permanent slot then.
pub(super) async fn copy_to_permanent(
    client: &mut ReplicationClient,
    settings: &PostgresSettings,
    begin: Lsn,
) -> Result<(), SourceError> {
    let (temporary, slot) = (settings.names.temporary_slot(), &settings.names.slot);
    // the third argument: not temporary, as its original is
    let copy = format!(
        "SELECT pg_copy_logical_replication_slot({}, {}, false)",
        quote_literal(&temporary),
        quote_literal(slot)
    );
    let action = "make the slot";
    let rows = client.query(&copy).await.map_err(|error| broken(settings, action, error))?;
    rows.map_err(|error| match error.sqlstate.as_str() {
        "42710" => SourceError::Terminal(Box::new(Terminal {
            reason: Reason::SlotMovedAhead,
            message: format!(
                "slot \"{slot}\" was made by somebody else while the tables were read: what was committed behind {begin} \
                 and before that slot is in neither"
            ),
            gap: Some(Gap { from: Some(Position::Postgres(begin)), to: None }),
            hint: format!("drop slot \"{slot}\" and start again: the tables are read again then"),
        })),
        // the temporary slot has gone or has lost its log: again from the beginning
        "55000" | "42704" => unreachable(format!("could not {action} \"{slot}\""), error),
        _ => from_server(action, &settings.connect, error),
    })?;
    info!(slot, "made the slot");
    Ok(())
}

/// Has standbys keep a slot that was made without that. The relay works without it, so a refusal is only told.
pub(super) async fn enable_failover(
    client: &mut ReplicationClient,
    settings: &PostgresSettings,
) -> Result<(), SourceError> {
    let slot = &settings.names.slot;
    let command = format!("ALTER_REPLICATION_SLOT {} (FAILOVER true)", quote_identifier(slot));
    match client.query(&command).await.map_err(|error| broken(settings, "switch failover on", error))? {
        Ok(_) => info!(slot, "standbys keep the slot from now on"),
        Err(error) => warn!(slot, %error, "could not have standbys keep the slot"),
    }
    Ok(())
}

/// Tells who holds a slot: another instance of ours that lives, our own ghost, or a stranger.
pub(super) async fn in_use(
    session: &SqlSession,
    settings: &PostgresSettings,
    version: i32,
    ghost: Option<i32>,
    name: &str,
    words: &str,
) -> SourceError {
    let in_use = |by_peer, message| SourceError::SlotInUse { by_peer, message };
    let slot = catalog::slot(&session.client, version, name).await.ok().flatten();
    let Some(pid) = slot.and_then(|slot| slot.active_pid) else {
        let words = if words.is_empty() { format!("slot \"{name}\" is in use") } else { words.to_owned() };
        return in_use(false, words);
    };
    if ghost == Some(pid) {
        let message = format!("slot \"{name}\" is still held by our own previous connection (process {pid})");
        return in_use(false, message);
    }
    let holder = catalog::session(&session.client, pid).await.ok().flatten().unwrap_or_default();
    let (user, application, since) = holder;
    let is_peer = user.as_deref() == Some(settings.connect.user.as_str())
        && application.as_deref() == Some(settings.connect.application_name.as_str());
    let known = |part: Option<String>| part.filter(|part| !part.is_empty()).unwrap_or_else(|| "unknown".to_owned());
    let message = format!(
        "slot \"{name}\" is held by process {pid} (user {}, application {}, since {})",
        known(user),
        known(application),
        known(since)
    );
    in_use(is_peer, message)
}
