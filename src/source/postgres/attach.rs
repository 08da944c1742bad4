//! Attaching to the server: look at everything, make what is missing and may be made, take the slot.
//!
//! The publication comes before the slot: a slot sees the catalogue as it was at its own position, and a publication that
//! was made later does not exist for it. Nothing is made again once something was published from it: then its absence
//! means that events may be missing.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tracing::{info, warn};

use super::address::reach;
use super::catalog::{self, SlotFacts};
use super::client::ReplicationClient;
use super::error::{ServerError, from_driver, from_server, quote_literal, unreachable};
use super::guard::{Fork, Standing, difference, other_server, parse_history};
use super::inspect::{self, Facts, refusal};
use super::settings::PostgresSettings;
use super::sql::SqlSession;
use crate::config::Start;
use crate::config::names::quote_identifier;
use crate::position::{Lsn, Position};
use crate::sink::positions::{PositionRecord, SourceIdentity};
use crate::source::{SourceError, Terminal};
use crate::state::{Gap, Phase, Reason, Status, StatusBoard};

/// The server ends a walsender whose client is silent for this long, and so frees the slot of a dead predecessor.
const WAL_SENDER_TIMEOUT: &str = "8s";

/// The session's settings: text forms that do not depend on the server's configuration, warnings sent to us, and no
/// time-out that could end the stream (`wal_sender_timeout` apart, which our feedback keeps from passing).
const PARAMETERS: &[(&str, &str)] = &[
    ("client_encoding", "UTF8"),
    ("client_min_messages", "warning"),
    ("datestyle", "ISO"),
    ("timezone", "UTC"),
    ("intervalstyle", "postgres"),
    ("bytea_output", "hex"),
    ("extra_float_digits", "1"),
    ("statement_timeout", "0"),
    ("lock_timeout", "0"),
    ("idle_in_transaction_session_timeout", "0"),
    ("idle_session_timeout", "0"),
    ("wal_sender_timeout", WAL_SENDER_TIMEOUT),
];

/// A slot that is ours, with the stream started and nothing of it read.
pub(super) struct Attachment {
    /// With the address of the server that was chosen.
    pub settings: Arc<PostgresSettings>,
    /// The SQL session beside it.
    pub session: SqlSession,
    /// The started stream.
    pub client: ReplicationClient,
    /// What the server holds.
    pub standing: Standing,
    /// Whether every table of the publication is an outbox.
    pub all_are_outboxes: bool,
}

/// What is known about earlier sessions of this process and this instance.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Past<'a> {
    /// What was published, as far as is known before the slot is ours.
    pub record: Option<&'a PositionRecord>,
    /// The server's process of our previous stream: while it holds the slot, we wait for our own ghost.
    pub walsender_pid: Option<i32>,
}

/// Attaches.
///
/// # Errors
/// Every finding at once as [`SourceError::Configuration`]; [`SourceError::SlotInUse`]; a terminal state if something was
/// published before and what it was published from has gone.
pub(super) async fn attach(
    settings: &Arc<PostgresSettings>,
    past: Past<'_>,
    board: &StatusBoard,
) -> Result<Attachment, SourceError> {
    let (chosen, session) = reach(settings).await?;
    let settings = &chosen;
    let mut facts = read_facts(&session, settings).await?;
    let findings = facts.findings(settings);
    let connected = ReplicationClient::connect(&settings.connect, PARAMETERS).await;
    // what the catalogue told says more than a refused login
    let mut client = connected.map_err(|error| refusal(&findings).unwrap_or(error))?;
    let server = identify(&mut client, settings).await?;
    let lost = past.record.map(|record| Lost { settings, record, wal_end: server.wal_end });
    if let Some(lost) = &lost {
        lost.check(&server, &facts)?;
    }
    if let Some(error) = refusal(&findings) {
        return Err(error);
    }
    if facts.publication.is_none() {
        make_publication(&session, settings).await?;
        facts = read_facts(&session, settings).await?;
    }
    for warning in facts.warnings(settings) {
        warn!("{warning}");
    }
    if facts.server.version >= 170_000 {
        run(&mut client, settings, "set up the session", "SET transaction_timeout = 0").await?;
    }
    let slot = match read_slot(&session, settings, facts.server.version).await? {
        Some(slot) => {
            check_slot(settings, &slot, lost.as_ref())?;
            if past.record.is_none() {
                announce_adoption(&session, settings, &slot).await;
            }
            slot
        }
        None => {
            if let Some(lost) = &lost {
                let message = format!("slot \"{}\" was dropped", settings.names.slot);
                return Err(lost.terminal_from(lost.record.position, Reason::SlotMissing, message));
            }
            make_slot(&mut client, &session, settings, facts.server.version, board).await?;
            let made = read_slot(&session, settings, facts.server.version).await?;
            made.ok_or_else(|| unreachable("could not make the slot", "it was dropped at once"))?
        }
    };
    if facts.server.version >= 170_000 && settings.failover_slot && !slot.failover && slot.active_pid.is_none() {
        enable_failover(&mut client, settings).await?;
    }
    let identity = server.identity(settings, &facts);
    start(&mut client, &session, settings, &facts, past.walsender_pid).await?;
    // read again now that nobody else can move it
    let slot = read_slot(&session, settings, facts.server.version).await?.unwrap_or(slot);
    let SourceIdentity::Postgres { tables, .. } = &identity;
    let all_are_outboxes = facts.publication.as_ref().is_some_and(|publication| !publication.reaches_beyond(tables));
    let standing =
        Standing { identity, slot: slot.confirmed.unwrap_or_default(), wal_end: server.wal_end, forks: server.forks };
    Ok(Attachment { settings: chosen, session, client, standing, all_are_outboxes })
}

/// Makes terminal states of what is missing although something was published.
struct Lost<'a> {
    settings: &'a PostgresSettings,
    record: &'a PositionRecord,
    wal_end: Lsn,
}

impl Lost<'_> {
    /// Rows may be missing from the last check of the catalogue on.
    fn terminal(&self, reason: Reason, message: String) -> SourceError {
        self.terminal_from(self.record.verified, reason, message)
    }

    fn terminal_from(&self, from: Position, reason: Reason, message: String) -> SourceError {
        let gap = Gap { from: Some(from), to: Some(Position::Postgres(self.wal_end)) };
        let hint = self.settings.names.leave_hint();
        SourceError::Terminal(Box::new(Terminal { reason, message, gap: Some(gap), hint }))
    }

    /// Another server, a publication or tables that have gone, are others than before, or are no longer published.
    fn check(&self, server: &ServerIdentity, facts: &Facts) -> Result<(), SourceError> {
        let SourceIdentity::Postgres { system_id, tables, .. } = &self.record.source;
        if *system_id != server.system_id {
            let terminal = other_server(self.record, &server.system_id, &self.settings.names);
            return Err(SourceError::Terminal(Box::new(terminal)));
        }
        if facts.publication.is_none() {
            let message = format!("publication \"{}\" was dropped", self.settings.names.publication);
            return Err(self.terminal(Reason::PublicationMissing, message));
        }
        let was_used = |name: &str| tables.iter().any(|table| table.name == name);
        let absent = facts.tables.iter().find(|(name, table)| table.is_none() && was_used(&name.plain()));
        if let Some((name, _)) = absent {
            return Err(
                self.terminal(Reason::TableRemade, format!("table \"{}\" was dropped or renamed", name.plain()))
            );
        }
        let now = server.identity(self.settings, facts);
        difference(&self.record.source, &now).map_or(Ok(()), |(reason, message)| Err(self.terminal(reason, message)))
    }
}

/// Who the server says it is.
struct ServerIdentity {
    system_id: String,
    timeline: u32,
    wal_end: Lsn,
    forks: Vec<Fork>,
}

impl ServerIdentity {
    /// With what the catalogue says: everything that a position depends on.
    fn identity(&self, settings: &PostgresSettings, facts: &Facts) -> SourceIdentity {
        SourceIdentity::Postgres {
            system_id: self.system_id.clone(),
            timeline: self.timeline,
            database: settings.connect.database.clone(),
            slot: settings.names.slot.clone(),
            publication: settings.names.publication.clone(),
            publication_oid: facts.publication.as_ref().map_or(0, |publication| publication.oid),
            tables: facts.table_identities(),
        }
    }
}

async fn read_facts(session: &SqlSession, settings: &PostgresSettings) -> Result<Facts, SourceError> {
    let facts = inspect::read(&session.client, settings).await;
    facts.map_err(|error| from_driver("read the catalogue", &settings.connect, error))
}

async fn read_slot(
    session: &SqlSession,
    settings: &PostgresSettings,
    version: i32,
) -> Result<Option<SlotFacts>, SourceError> {
    let slot = catalog::slot(&session.client, version, &settings.names.slot).await;
    slot.map_err(|error| from_driver("read the slot's state", &settings.connect, error))
}

/// Makes the publication; without the right to, gives the statement for somebody who has it.
async fn make_publication(session: &SqlSession, settings: &PostgresSettings) -> Result<(), SourceError> {
    let name = &settings.names.publication;
    let tables: Vec<String> = settings.tables.iter().map(ToString::to_string).collect();
    let statement = format!(
        "CREATE PUBLICATION {} FOR TABLE {} WITH (publish = 'insert', publish_via_partition_root = true);",
        quote_identifier(name),
        tables.join(", ")
    );
    match session.client.batch_execute(&statement).await {
        Ok(()) => {
            info!(publication = name, tables = tables.join(", "), "made the publication");
            Ok(())
        }
        Err(error) => match error.as_db_error().map(ServerError::from) {
            // another instance was faster
            Some(db) if db.sqlstate == "42710" => Ok(()),
            Some(db) if db.sqlstate == "42501" => Err(SourceError::Configuration {
                reason: Reason::PublicationMissing,
                message: format!(
                    "publication \"{name}\" does not exist and user \"{}\" may not make it: {}",
                    settings.connect.user, db.message
                ),
                hint: format!("have the owner of the table run: {statement}"),
            }),
            _ => Err(from_driver("make the publication", &settings.connect, error)),
        },
    }
}

/// A slot that stands there must be one that we can read.
fn check_slot(settings: &PostgresSettings, slot: &SlotFacts, lost: Option<&Lost<'_>>) -> Result<(), SourceError> {
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
    let is_lost = slot.wal_status.as_deref() == Some("lost");
    if is_lost || slot.invalidation.is_some() {
        let why = slot.invalidation.as_deref().unwrap_or("wal_removed");
        let message = format!("slot \"{name}\" was invalidated ({why}): the server no longer has the log it needs");
        let from = lost.map(|lost| lost.record.position).or(slot.confirmed.map(Position::Postgres));
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
async fn announce_adoption(session: &SqlSession, settings: &PostgresSettings, slot: &SlotFacts) {
    let position = slot.confirmed.unwrap_or_default();
    for table in &settings.tables {
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

/// Makes the slot. Waits for all transactions that are open, as long as they are.
async fn make_slot(
    client: &mut ReplicationClient,
    session: &SqlSession,
    settings: &PostgresSettings,
    version: i32,
    board: &StatusBoard,
) -> Result<(), SourceError> {
    let slot = &settings.names.slot;
    let quoted = quote_identifier(slot);
    // asked before too, so that a refusal leaves no slot behind, whatever becomes of the connection
    if settings.start == Start::Empty
        && let Some(error) = standing_rows(session, settings, None).await
    {
        return Err(error);
    }
    let create = match version {
        170_000.. if settings.failover_slot => {
            format!("CREATE_REPLICATION_SLOT {quoted} LOGICAL pgoutput (SNAPSHOT 'export', FAILOVER true)")
        }
        150_000.. => format!("CREATE_REPLICATION_SLOT {quoted} LOGICAL pgoutput (SNAPSHOT 'export')"),
        _ => format!("CREATE_REPLICATION_SLOT {quoted} LOGICAL pgoutput EXPORT_SNAPSHOT"),
    };
    let detail = format!("making slot \"{slot}\": it waits for all transactions that were open before it");
    board.set(Status::new(Phase::Connecting, Reason::SlotCreating, detail));
    let rows = match client.query(&create).await.map_err(|error| broken(settings, "make the slot", error))? {
        Ok(rows) => rows,
        // another instance was faster
        Err(error) if error.sqlstate == "42710" => return Ok(()),
        Err(error) => return Err(from_server("make a replication slot", &settings.connect, error)),
    };
    let row = rows.into_iter().next().unwrap_or_default();
    let column = |index: usize| row.get(index).cloned().flatten().unwrap_or_default();
    let (position, snapshot) = (column(1), column(2));
    if settings.start == Start::Empty
        && let Some(error) = standing_rows(session, settings, Some(&snapshot)).await
    {
        let drop = format!("DROP_REPLICATION_SLOT {quoted}");
        run(client, settings, "drop the slot again", &drop).await?;
        return Err(error);
    }
    info!(slot, position, "made the slot");
    Ok(())
}

/// Whether rows stand in a table, now or at the slot's own moment: they were committed before it and would never be
/// published.
async fn standing_rows(
    session: &SqlSession,
    settings: &PostgresSettings,
    snapshot: Option<&str>,
) -> Option<SourceError> {
    let mut begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;".to_owned();
    if let Some(snapshot) = snapshot {
        begin.push_str(&format!("SET TRANSACTION SNAPSHOT {};", quote_literal(snapshot)));
    }
    let mut found = session.client.batch_execute(&begin).await.err().map(|error| crate::chain(&error));
    for table in &settings.tables {
        if found.is_some() {
            break;
        }
        let sql = format!("SELECT EXISTS (SELECT FROM {table})");
        found = match session.client.query_one(&sql, &[]).await.and_then(|row| row.try_get::<_, bool>(0)) {
            Ok(false) => None,
            Ok(true) => Some(format!("rows stand in table \"{}\"", table.plain())),
            Err(error) => Some(format!("cannot look into table \"{}\": {}", table.plain(), crate::chain(&error))),
        };
    }
    // ends the transaction, whether it failed or not
    let _ = session.client.batch_execute("ROLLBACK").await;
    found.map(|what| SourceError::Configuration {
        reason: Reason::Configuration,
        message: format!("{what}: they were committed before the slot and would not be published"),
        hint: "set source.postgres.start = \"now\" to publish only what is committed from now on, or empty the table"
            .to_owned(),
    })
}

/// Has standbys keep a slot that was made without that. The relay works without it, so a refusal is only told.
async fn enable_failover(client: &mut ReplicationClient, settings: &PostgresSettings) -> Result<(), SourceError> {
    let slot = &settings.names.slot;
    let command = format!("ALTER_REPLICATION_SLOT {} (FAILOVER true)", quote_identifier(slot));
    match client.query(&command).await.map_err(|error| broken(settings, "switch failover on", error))? {
        Ok(_) => info!(slot, "standbys keep the slot from now on"),
        Err(error) => warn!(slot, %error, "could not have standbys keep the slot"),
    }
    Ok(())
}

/// Asks the server who it is and where its log forked.
async fn identify(client: &mut ReplicationClient, settings: &PostgresSettings) -> Result<ServerIdentity, SourceError> {
    let rows = run(client, settings, "identify the server", "IDENTIFY_SYSTEM").await?;
    let row = rows.into_iter().next().unwrap_or_default();
    let column = |index: usize| row.get(index).cloned().flatten().unwrap_or_default();
    let timeline: u32 = column(1).parse().unwrap_or_default();
    let mut forks = Vec::new();
    if timeline > 1 {
        let command = format!("TIMELINE_HISTORY {timeline}");
        let answer = client.query(&command).await.map_err(|error| broken(settings, "read the history", error))?;
        // the file may be gone; without it a change of timeline cannot be judged, and the guard then says so
        if let Some(Some(content)) = answer.ok().and_then(|rows| rows.into_iter().next()?.into_iter().nth(1)) {
            forks = parse_history(&content);
        }
    }
    Ok(ServerIdentity { system_id: column(0), timeline, wal_end: column(2).parse().unwrap_or_default(), forks })
}

/// Takes the slot and starts the stream at the position that the server has.
async fn start(
    client: &mut ReplicationClient,
    session: &SqlSession,
    settings: &PostgresSettings,
    facts: &Facts,
    ghost: Option<i32>,
) -> Result<(), SourceError> {
    let command = format!(
        "START_REPLICATION SLOT {} LOGICAL 0/0 (proto_version '1', publication_names {})",
        quote_identifier(&settings.names.slot),
        quote_literal(&quote_identifier(&settings.names.publication)),
    );
    let action = "start the stream";
    match client.start_replication(&command).await.map_err(|error| broken(settings, action, error))? {
        Ok(()) => Ok(()),
        Err(error) if error.sqlstate == "55006" => {
            Err(slot_in_use(session, settings, facts.server.version, ghost, &error.message).await)
        }
        Err(error) => Err(from_server(action, &settings.connect, error)),
    }
}

/// Tells who holds the slot: another instance of ours that lives, our own ghost, or a stranger.
async fn slot_in_use(
    session: &SqlSession,
    settings: &PostgresSettings,
    version: i32,
    ghost: Option<i32>,
    words: &str,
) -> SourceError {
    let in_use = |by_peer, message| SourceError::SlotInUse { by_peer, message };
    let slot = catalog::slot(&session.client, version, &settings.names.slot).await.ok().flatten();
    let Some(pid) = slot.and_then(|slot| slot.active_pid) else { return in_use(false, words.to_owned()) };
    let name = &settings.names.slot;
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

/// Runs a command and takes an error of the server for one of ours.
async fn run(
    client: &mut ReplicationClient,
    settings: &PostgresSettings,
    action: &str,
    command: &str,
) -> Result<Vec<Vec<Option<String>>>, SourceError> {
    let answer = client.query(command).await.map_err(|error| broken(settings, action, error))?;
    answer.map_err(|error| from_server(action, &settings.connect, error))
}

fn broken(settings: &PostgresSettings, action: &str, error: io::Error) -> SourceError {
    unreachable(format!("could not {action} on {}", settings.connect.address), error)
}
