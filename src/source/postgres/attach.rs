//! Attaching to the server: look at everything, make what is missing and may be made, take the slot.
//!
//! The publication comes before the slot: a slot sees the catalogue as it was at its own position, and a publication that
//! was made later does not exist for it. Nothing is made again once something was published from it: then its absence
//! means that events may be missing.

use std::io;
use std::sync::Arc;

use tracing::{info, warn};

use super::address::reach;
use super::catalog::{self, PublicationFacts, SlotFacts};
use super::client::ReplicationClient;
use super::error::{ServerError, from_driver, from_server, quote_literal, unreachable};
use super::guard::{Difference, Fork, Standing, difference, other_server, parse_history};
use super::inspect::{self, Facts, Finding, OLDEST_VERSION, refusal};
use super::reader::TableReader;
use super::relations::Gone;
use super::settings::PostgresSettings;
use super::slot;
use super::sql::SqlSession;
use super::table::{self, TableQuery};
use crate::config::names::quote_identifier;
use crate::config::{Start, TableName};
use crate::position::{Lsn, Position};
use crate::sink::positions::{PositionRecord, SourceIdentity, TableIdentity};
use crate::source::SourceError;
use crate::state::{Gap, Reason, StatusBoard};

/// The server ends a walsender whose client is silent for this long, and so frees the slot of a dead predecessor.
const WAL_SENDER_TIMEOUT: &str = "8s";

/// The session's settings: text forms that do not depend on the server's configuration, warnings sent to us, and no
/// time-out that could end the session. The server finds a client that has died within half a minute, also where it has
/// nothing to send; a client that merely takes nothing for long is left alone.
pub(super) const PARAMETERS: &[(&str, &str)] = &[
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
    ("tcp_keepalives_idle", "10"),
    ("tcp_keepalives_interval", "5"),
    ("tcp_keepalives_count", "4"),
    ("tcp_user_timeout", "0"),
];

/// Those of a replication connection. Our feedback keeps the stream within its time-out; an idle one has none.
pub(super) fn replication_parameters() -> Vec<(&'static str, &'static str)> {
    let own = [("replication", "database"), ("wal_sender_timeout", WAL_SENDER_TIMEOUT)];
    own.into_iter().chain(PARAMETERS.iter().copied()).collect()
}

/// How a session begins.
pub(super) enum Begin {
    /// The stream is started.
    Stream(Attachment),
    /// There was no slot and no position: the rows that stand in the tables come first.
    Tables(TableReader),
}

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
    /// What a table of the stream is that has gone.
    pub gone: Gone,
}

/// What is known about earlier sessions of this process and this instance.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Past<'a> {
    /// What was published, as far as is known before the slot is ours.
    pub record: Option<&'a PositionRecord>,
    /// The server's process of our previous connection: while it holds a slot, we wait for our own ghost.
    pub walsender_pid: Option<i32>,
    /// Whether this process has just published the rows that stand in the tables.
    pub tables_were_read: bool,
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
) -> Result<Begin, SourceError> {
    let (chosen, session) = reach(settings).await?;
    let settings = &Arc::new(chosen);
    let mut facts = read_facts(&session, settings).await?;
    let version = facts.server.version;
    let connected = ReplicationClient::connect(&settings.connect, &replication_parameters()).await;
    facts.server.may_replicate |= connected.is_ok();
    let mut findings = facts.findings(settings);
    if past.record.is_none() {
        findings.extend(facts.uncovered(settings));
    }
    // what the catalogue told says more than a refused login
    let mut client = connected.map_err(|error| refusal(&findings).unwrap_or(error))?;
    let server = identify(&mut client, settings).await?;
    let has_slot = read_slot(&session, settings, version).await?.is_some();
    let lost = past.record.map(|record| Lost { settings, record, wal_end: server.wal_end });
    if let Some(lost) = &lost {
        lost.check(&server, &facts, has_slot)?;
    }
    let may_read = past.record.is_none() && settings.start == Start::Table && version >= OLDEST_VERSION;
    let reads_tables = may_read && !has_slot;
    let mut queries = Vec::new();
    if reads_tables {
        queries = table::queries(settings, &facts);
        findings.extend(first_read_findings(&session, settings, &facts, &mut queries).await?);
    }
    if let Some(error) = refusal(&findings) {
        return Err(error);
    }
    if facts.publication.is_none() {
        make_publication(&session, settings, Keep::Yes).await?;
        facts = read_facts(&session, settings).await?;
    }
    for warning in facts.warnings(settings) {
        warn!("{}; to mend it: {}", warning.message, warning.hint);
    }
    if version >= 170_000 {
        run(&mut client, settings, "set up the session", "SET transaction_timeout = 0").await?;
    }
    if reads_tables {
        let identity = server.identity(settings, &facts);
        let reader = begin_read(settings, (session, client), version, identity, queries, past.walsender_pid, board);
        return reader.await.map(Begin::Tables);
    }
    let slot = take_slot(&mut client, &session, settings, version, past, lost.as_ref(), board).await?;
    if version >= 170_000 && settings.failover_slot && !slot.failover && slot.active_pid.is_none() {
        slot::enable_failover(&mut client, settings).await?;
    }
    let identity = server.identity(settings, &facts);
    start(&mut client, &session, settings, &facts, past.walsender_pid).await?;
    // read again now that nobody else can move it; the same for the end of the log: whoever had the slot until now may
    // have published what was committed behind the end that was told before
    let slot = read_slot(&session, settings, version).await?.unwrap_or(slot);
    let wal_end = log_end(&session, settings).await?.max(server.wal_end);
    let gone = facts
        .publication
        .as_ref()
        .map_or(Gone::Unknown, |publication| what_has_gone(publication, settings, &facts, identity.tables()));
    let (slot, in_recovery) = (slot.confirmed.unwrap_or_default(), facts.server.in_recovery);
    let standing = Standing { identity, slot, wal_end, in_recovery, forks: server.forks };
    Ok(Begin::Stream(Attachment { settings: Arc::clone(settings), session, client, standing, gone }))
}

/// What a table of the stream is that the catalogue no longer has.
fn what_has_gone(
    publication: &PublicationFacts,
    settings: &PostgresSettings,
    facts: &Facts,
    tables: &[TableIdentity],
) -> Gone {
    let is_partitioned = facts.tables.iter().filter_map(|(_, table)| table.as_ref()).any(|table| table.is_partitioned);
    // of a table that a pattern fits it is not known once it has gone
    let may_have_partitions = is_partitioned || !settings.patterns.is_empty();
    if !publication.reaches_beyond(tables) {
        Gone::Partition
    } else if publication.via_root || !may_have_partitions {
        Gone::Other
    } else {
        Gone::Unknown
    }
}

/// What keeps the tables from being read, and the publication from being made where it must be made too.
async fn first_read_findings(
    session: &SqlSession,
    settings: &PostgresSettings,
    facts: &Facts,
    queries: &mut [TableQuery],
) -> Result<Vec<Finding>, SourceError> {
    let mut findings = table::probe(session, settings, facts, queries).await?;
    findings.extend(slot::lacks_places(session, settings).await?);
    let tables_exist = facts.tables.iter().all(|(_, table)| table.is_some());
    if !findings.is_empty() && facts.publication.is_none() && tables_exist {
        let tried = make_publication(session, settings, Keep::No).await;
        if let Err(SourceError::Configuration { reason, message, hint }) = tried {
            findings.push(Finding { reason, message, hint });
        }
    }
    Ok(findings)
}

/// Makes the temporary slot and begins to read the tables as they are where it begins.
async fn begin_read(
    settings: &Arc<PostgresSettings>,
    (session, mut client): (SqlSession, ReplicationClient),
    version: i32,
    identity: SourceIdentity,
    queries: Vec<TableQuery>,
    ghost: Option<i32>,
    board: &StatusBoard,
) -> Result<TableReader, SourceError> {
    let name = settings.names.temporary_slot();
    let Some(made) = slot::make_temporary(&mut client, settings, version, board).await? else {
        return Err(slot::in_use(&session, settings, version, ghost, &name, "").await);
    };
    // another instance may have come to the end of its first read while this one waited for its slot
    if read_slot(&session, settings, version).await?.is_some() {
        let message = format!("slot \"{}\" was made meanwhile", settings.names.slot);
        return Err(SourceError::SlotInUse { by_peer: false, message });
    }
    // a table that was made meanwhile may have rows that neither the read nor the stream would bring
    let now = read_facts(&session, settings).await?;
    let appeared = now.tables.iter().find(|(table, _)| !queries.iter().any(|query| query.name == *table));
    if let Some((table, _)) = appeared {
        let message = format!("table \"{}\" appeared while the first read began", table.plain());
        return Err(SourceError::Connection { reason: Reason::Starting, message, source: None });
    }
    info!(slot = name, position = %made.position, "made a temporary slot for the first read");
    TableReader::begin(settings, (session, client), version, identity, made, queries).await
}

/// Finds the slot, or makes it without reading the tables.
async fn take_slot(
    client: &mut ReplicationClient,
    session: &SqlSession,
    settings: &PostgresSettings,
    version: i32,
    past: Past<'_>,
    lost: Option<&Lost<'_>>,
    board: &StatusBoard,
) -> Result<SlotFacts, SourceError> {
    if let Some(slot) = read_slot(session, settings, version).await? {
        slot::check(settings, &slot, lost)?;
        if past.record.is_none() && !past.tables_were_read {
            slot::announce_adoption(session, settings, &slot).await;
        }
        return Ok(slot);
    }
    if let Some(lost) = lost {
        return Err(lost.slot());
    }
    slot::make_permanent(client, session, settings, version, board).await?;
    let made = read_slot(session, settings, version).await?;
    made.ok_or_else(|| unreachable("could not make the slot", "it was dropped at once"))
}

/// Makes terminal states of what is missing although something was published.
pub(super) struct Lost<'a> {
    /// What is configured.
    pub settings: &'a PostgresSettings,
    /// What was published.
    pub record: &'a PositionRecord,
    /// Where the server's log ends.
    pub wal_end: Lsn,
}

impl Lost<'_> {
    /// Rows may be missing from the last check of the catalogue on.
    fn terminal(&self, reason: Reason, message: String) -> SourceError {
        self.differs(Difference::new(reason, message), self.record.verified.clone())
    }

    /// Rows may be missing from `from` on.
    fn differs(&self, difference: Difference, from: Position) -> SourceError {
        let gap = Gap { from: Some(from), to: Some(Position::Postgres(self.wal_end)) };
        SourceError::Terminal(Box::new(difference.terminal(&self.settings.names, gap)))
    }

    /// The slot has gone.
    pub(super) fn slot(&self) -> SourceError {
        let message = format!("slot \"{}\" was dropped", self.settings.names.slot);
        self.differs(Difference::new(Reason::SlotMissing, message), self.record.position.clone())
    }

    /// A standby has no slot of its primary's, so its lack says nothing. A name that is that of the primary may point to one
    /// for a moment, while it moves from server to server.
    fn is_chance_standby(&self, facts: &Facts) -> bool {
        facts.server.in_recovery && !self.settings.connect.target.takes_standby()
    }

    /// Another server, a publication or tables that have gone, are others than before, or are no longer published.
    pub(super) fn check(&self, server: &ServerIdentity, facts: &Facts, has_slot: bool) -> Result<(), SourceError> {
        let tables = self.record.source.tables();
        if self.record.source.system_id() != Some(&server.system_id) {
            let terminal = other_server(self.record, &server.system_id, &self.settings.names);
            return Err(SourceError::Terminal(Box::new(terminal)));
        }
        if !has_slot && self.is_chance_standby(facts) {
            return Err(SourceError::Connection {
                reason: Reason::SourceUnreachable,
                message: format!(
                    "the server at {} is a standby without slot \"{}\": waiting for its primary to be there",
                    self.settings.connect.address, self.settings.names.slot
                ),
                source: None,
            });
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
        let taken_out = facts.taken_out(self.settings, &self.record.source);
        let now = server.identity(self.settings, facts);
        match taken_out.or_else(|| difference(&self.record.source, &now)) {
            None => Ok(()),
            Some(found) => Err(self.differs(found, self.record.verified.clone())),
        }
    }
}

/// Who the server says it is.
#[derive(Clone, Debug)]
pub(super) struct ServerIdentity {
    /// `IDENTIFY_SYSTEM`'s system identifier.
    pub system_id: String,
    /// The timeline that it writes.
    pub timeline: u32,
    /// Where the log ends.
    pub wal_end: Lsn,
    /// Its history, if it has one.
    pub forks: Vec<Fork>,
}

impl ServerIdentity {
    /// With what the catalogue says: everything that a position depends on.
    pub(super) fn identity(&self, settings: &PostgresSettings, facts: &Facts) -> SourceIdentity {
        SourceIdentity::Postgres {
            system_id: self.system_id.clone(),
            timeline: self.timeline,
            database: settings.connect.database.clone(),
            slot: settings.names.slot.clone(),
            publication: settings.names.publication.clone(),
            publication_oid: facts.publication.as_ref().map_or(0, |publication| publication.oid),
            publication_xmin: facts.publication.as_ref().and_then(|publication| publication.xmin),
            tables: facts.table_identities(),
            schemas: facts.schema_identities(),
        }
    }
}

/// Reads what the catalogue says.
pub(super) async fn read_facts(session: &SqlSession, settings: &PostgresSettings) -> Result<Facts, SourceError> {
    let facts = inspect::read(&session.client, settings).await;
    facts.map_err(|error| from_driver("read the catalogue", &settings.connect, error))
}

/// Asks where the log ends now.
pub(super) async fn log_end(session: &SqlSession, settings: &PostgresSettings) -> Result<Lsn, SourceError> {
    let end = catalog::wal_end(&session.client).await;
    end.map_err(|error| from_driver("ask for the end of the log", &settings.connect, error))
}

/// Reads the state of our slot; `None` if there is none.
pub(super) async fn read_slot(
    session: &SqlSession,
    settings: &PostgresSettings,
    version: i32,
) -> Result<Option<SlotFacts>, SourceError> {
    let slot = catalog::slot(&session.client, version, &settings.names.slot).await;
    slot.map_err(|error| from_driver("read the slot's state", &settings.connect, error))
}

/// Whether what is made stays, or is only tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keep {
    Yes,
    No,
}

/// The statement that makes the publication.
pub(super) fn publication_statement(settings: &PostgresSettings) -> String {
    let tables: Vec<String> = settings.all_tables().map(ToString::to_string).collect();
    format!(
        "CREATE PUBLICATION {} FOR TABLE {} WITH (publish = 'insert', publish_via_partition_root = true);",
        quote_identifier(&settings.names.publication),
        tables.join(", ")
    )
}

/// Makes the publication; without the right to, gives the statement for somebody who has it.
pub(super) async fn make_publication(
    session: &SqlSession,
    settings: &PostgresSettings,
    keep: Keep,
) -> Result<(), SourceError> {
    let name = &settings.names.publication;
    let statement = publication_statement(settings);
    let made = match keep {
        Keep::Yes => session.client.batch_execute(&statement).await,
        Keep::No => {
            let made = session.client.batch_execute(&format!("BEGIN; {statement}")).await;
            // whether it failed or not
            let _ = session.client.batch_execute("ROLLBACK").await;
            made
        }
    };
    match made {
        Ok(()) if keep == Keep::No => Ok(()),
        Ok(()) => {
            let tables: Vec<String> = settings.tables.iter().map(TableName::plain).collect();
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

/// Asks the server who it is and where its log forked.
pub(super) async fn identify(
    client: &mut ReplicationClient,
    settings: &PostgresSettings,
) -> Result<ServerIdentity, SourceError> {
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
            let (version, name) = (facts.server.version, &settings.names.slot);
            Err(slot::in_use(session, settings, version, ghost, name, &error.message).await)
        }
        Err(error) => Err(from_server(action, &settings.connect, error)),
    }
}

/// Runs a command and takes an error of the server for one of ours.
pub(super) async fn run(
    client: &mut ReplicationClient,
    settings: &PostgresSettings,
    action: &str,
    command: &str,
) -> Result<Vec<Vec<Option<String>>>, SourceError> {
    let answer = client.query(command).await.map_err(|error| broken(settings, action, error))?;
    answer.map_err(|error| from_server(action, &settings.connect, error))
}

/// A connection that broke while something was being done.
pub(super) fn broken(settings: &PostgresSettings, action: &str, error: io::Error) -> SourceError {
    unreachable(format!("could not {action} on {}", settings.connect.address), error)
}
