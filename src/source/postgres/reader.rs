//! The first read: the rows that stand in the outbox tables when the relay begins, as a source of their own.
//!
//! ```text
//! replication connection: CREATE_REPLICATION_SLOT … TEMPORARY (SNAPSHOT 'export') ── idle ──▶ copy the slot, permanent
//! reading connection:      SET TRANSACTION SNAPSHOT ─▶ SELECT, table after table ─▶ Batch ─┐         ▲
//!                                                                                          ▼         │
//!                                                                   relay: all of it is acknowledged ┘
//! ```
//!
//! The snapshot is the tables as they are where the slot begins, so that the stream, begun from the permanent copy of that
//! slot, has neither a gap nor a repeat. Until there is a permanent slot, nothing is promised: whatever happens, the read
//! begins again with another snapshot. So no position is ever committed or confirmed here.
//!
//! Rows are read with the simple protocol, as text and with the stream's own settings, from a socket that is simply not
//! read while the window is full: the server waits in the middle of its scan, and memory is bounded by bytes. The snapshot
//! keeps the server from cleaning up rows that were deleted since, for as long as the read takes (PostgreSQL manual,
//! "Logical Decoding Concepts: Exported Snapshots"; "Snapshot Synchronization Functions").

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fallible_iterator::FallibleIterator;
use postgres_protocol::message::backend::{DataRowBody, Message};
use tokio::time::Instant;
use tracing::{info, warn};

use super::attach::{PARAMETERS, broken, run};
use super::client::ReplicationClient;
use super::error::{ServerError, from_server, quote_literal, unreachable};
use super::relations::next_serial;
use super::settings::PostgresSettings;
use super::slot::{self, Made};
use super::sql::SqlSession;
use super::table::TableQuery;
use super::types::{self, Bases};
use super::watch::{Watch, Watched};
use super::{GULP_BYTES, GULP_PAUSE};
use crate::change::{Batch, Cell, Column, Item, Relation};
use crate::position::{Lsn, Position};
use crate::sink::positions::SourceIdentity;
use crate::source::{Source, SourceError};
use crate::state::{Phase, Reason, Status};

/// How often a line tells how far it is.
const PROGRESS: Duration = Duration::from_secs(10);

/// Longest time for making the permanent slot.
const COPY_TIMEOUT: Duration = Duration::from_secs(30);

/// A table that is to be read, or is being read.
struct Table {
    relation: Arc<Relation>,
    sql: String,
}

/// The rows that stand in the tables, in one snapshot.
pub struct TableReader {
    settings: Arc<PostgresSettings>,
    /// Holds the temporary slot. Its next command lets go of the snapshot's name.
    holder: ReplicationClient,
    client: ReplicationClient,
    watch: Watch,
    begin: Lsn,
    /// Those that are not begun.
    tables: VecDeque<Table>,
    current: Option<Table>,
    is_at_end: bool,
    cells: Vec<Cell>,
    pause_until: Option<Instant>,
    progress: Progress,
}

impl TableReader {
    /// Takes up the snapshot. `connections` are a session for the watch, and the one that holds the temporary slot.
    ///
    /// # Errors
    /// [`SourceError`] as for any connection.
    pub(super) async fn begin(
        settings: &Arc<PostgresSettings>,
        (session, holder): (SqlSession, ReplicationClient),
        version: i32,
        identity: SourceIdentity,
        made: Made,
        queries: Vec<TableQuery>,
    ) -> Result<Self, SourceError> {
        let mut client = ReplicationClient::connect(&settings.connect, &parameters(settings)).await?;
        if version >= 170_000 {
            run(&mut client, settings, "set up the session", "SET transaction_timeout = 0").await?;
        }
        let begin = format!(
            "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET TRANSACTION SNAPSHOT {};",
            quote_literal(&made.snapshot)
        );
        run(&mut client, settings, "take up the snapshot", &begin).await?;
        let estimate = queries.iter().map(|query| query.estimate).sum();
        let mut tables = VecDeque::with_capacity(queries.len());
        for query in queries {
            tables.push_back(describe(&mut client, settings, query).await?);
        }
        let watched = Watched {
            identity,
            before: None,
            slot: settings.names.temporary_slot(),
            is_idle: true,
            begin: made.position,
            wal_end: made.position,
            walsender_pid: holder.backend_pid(),
        };
        info!(position = %made.position, rows = estimate, "reading the tables begins; the number is the planner's guess");
        Ok(Self {
            watch: Watch::start(session, Arc::clone(settings), watched),
            settings: Arc::clone(settings),
            holder,
            client,
            begin: made.position,
            tables,
            current: None,
            is_at_end: false,
            cells: Vec::new(),
            pause_until: None,
            progress: Progress::new(estimate),
        })
    }

    /// The server's process that holds the temporary slot.
    #[must_use]
    pub(super) fn backend_pid(&self) -> i32 {
        self.holder.backend_pid()
    }

    /// Takes all complete messages of the buffer. What it adds is complete in itself, as a transaction is.
    fn drain(&mut self, batch: &mut Batch) -> Result<(), SourceError> {
        let (before, mut result) = (self.progress.rows, Ok(()));
        while !self.is_at_end {
            if self.current.is_none() && !self.begin_next()? {
                break;
            }
            match self.client.next_message() {
                Ok(None) => break,
                Ok(Some(message)) => result = self.message(message, before, batch),
                Err(error) => result = Err(broken(&self.settings, "read a table", error)),
            }
            if result.is_err() {
                break;
            }
        }
        if self.progress.rows > before {
            // the same for all: the session of a first read commits no position
            batch.push(Item::Commit(Position::Postgres(self.begin)));
        }
        if self.is_at_end {
            batch.push(Item::End);
        }
        result
    }

    /// Begins with the next table; false if there is none.
    fn begin_next(&mut self) -> Result<bool, SourceError> {
        let Some(table) = self.tables.pop_front() else {
            self.is_at_end = true;
            return Ok(false);
        };
        let begun = self.client.begin_query(&table.sql);
        begun.map_err(|error| broken(&self.settings, "read a table", error))?;
        self.current = Some(table);
        Ok(true)
    }

    fn message(&mut self, message: Message, before: u64, batch: &mut Batch) -> Result<(), SourceError> {
        match message {
            Message::DataRow(body) => {
                if self.progress.rows == before {
                    batch.push(Item::Begin { commit_ts_us: now_us() });
                }
                self.row(&body, batch).map_err(|error| broken(&self.settings, "read a table", error))?;
                self.progress.rows += 1;
                Ok(())
            }
            Message::ErrorResponse(body) => Err(self.refused(ServerError::from_fields(body.fields()))),
            Message::NoticeResponse(body) => {
                warn!(notice = %ServerError::from_fields(body.fields()), "the server says");
                Ok(())
            }
            Message::ReadyForQuery(_) => {
                self.current = None;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn row(&mut self, body: &DataRowBody, batch: &mut Batch) -> io::Result<()> {
        let Some(table) = &self.current else { return Err(io::Error::other("a row came before its query")) };
        self.cells.clear();
        let mut ranges = body.ranges();
        while let Some(range) = ranges.next()? {
            self.cells.push(range.map_or(Cell::Null, Cell::Text));
        }
        if self.cells.len() != table.relation.columns.len() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a row has not one value a column"));
        }
        batch.push_row(Arc::clone(&table.relation), body.buffer_bytes().clone(), self.cells.drain(..));
        Ok(())
    }

    /// The server ended the query.
    fn refused(&self, error: ServerError) -> SourceError {
        let name = self.current.as_ref().map_or_else(String::new, |table| {
            let Relation { schema, table, .. } = &*table.relation;
            format!("{schema}.{table}")
        });
        match error.sqlstate.get(..2) {
            // a value that the condition cannot take, a function that failed
            Some("22" | "P0") => SourceError::Configuration {
                reason: Reason::Configuration,
                message: format!("the rows of table \"{name}\" cannot be read as configured: {error}"),
                hint: "correct option \"outbox.start-where\"".to_owned(),
            },
            Some("57") => from_server("read a table", &self.settings.connect, error),
            _ => unreachable(format!("could not read table \"{name}\""), error),
        }
    }

    /// Whatever is wrong with what was promised to nobody yet: the read begins again.
    fn again(alarm: SourceError) -> SourceError {
        match alarm {
            SourceError::Terminal(terminal) => SourceError::Connection {
                reason: terminal.reason,
                message: format!("{}; the first read begins again", terminal.message),
                source: None,
            },
            other => other,
        }
    }
}

impl Source for TableReader {
    async fn read(&mut self, batch: &mut Batch) -> Result<(), SourceError> {
        loop {
            if self.is_at_end {
                return Err(Self::again(self.watch.alarm().await));
            }
            self.drain(batch)?;
            if !batch.is_empty() {
                return Ok(());
            }
            if let Some(until) = self.pause_until {
                tokio::time::sleep_until(until).await;
                self.pause_until = None;
            }
            tokio::select! {
                biased;
                alarm = self.watch.alarm() => return Err(Self::again(alarm)),
                count = self.client.exchange() => {
                    let count = count.map_err(|error| broken(&self.settings, "read a table", error))?;
                    self.pause_until = (count >= GULP_BYTES).then(|| Instant::now() + GULP_PAUSE);
                }
            }
        }
    }

    /// Nothing is confirmed; looks whether all is well, and tells how far it is.
    async fn confirm(&mut self, _durable: Option<Position>) -> Result<(), SourceError> {
        if let Some(alarm) = self.watch.try_alarm() {
            return Err(Self::again(alarm));
        }
        if !self.is_at_end {
            self.progress.tell();
        }
        Ok(())
    }

    fn wants_word(&self) -> bool {
        false
    }

    /// A sort may take long before its first row; then the other session's answers tell that the server lives.
    fn silent_for(&self) -> Duration {
        self.client.last_read().elapsed().min(self.watch.last_answer().elapsed())
    }

    fn verified(&self) -> Position {
        Position::Postgres(self.begin)
    }

    fn retained_bytes(&self) -> Option<u64> {
        self.watch.retained_bytes()
    }

    fn status(&self) -> Status {
        let Progress { rows, estimate, .. } = self.progress;
        let detail =
            format!("publishing the rows that stand in the tables: {rows} read, about {estimate} were expected");
        Status::new(Phase::Reading, Reason::ReadingTable, detail)
    }

    async fn complete(&mut self) -> Result<(), SourceError> {
        let (rows, seconds) = (self.progress.rows, self.progress.begun.elapsed().as_secs());
        info!(rows, seconds, "all rows that stood in the tables are published");
        let copied =
            tokio::time::timeout(COPY_TIMEOUT, slot::copy_to_permanent(&mut self.holder, &self.settings, self.begin))
                .await;
        copied.unwrap_or_else(|_| {
            let message = format!("the slot could not be made within {COPY_TIMEOUT:?}");
            Err(SourceError::Connection { reason: Reason::SourceUnreachable, message, source: None })
        })
    }

    async fn close(self) {
        let Self { holder, client, watch, .. } = self;
        drop((watch, client));
        holder.terminate().await;
    }
}

/// The session's parameters: those of the stream, rows in their physical order, and no policy that hides any.
fn parameters(settings: &PostgresSettings) -> Vec<(&'static str, &'static str)> {
    let mut parameters = PARAMETERS.to_vec();
    parameters.extend([
        ("row_security", "off"),
        // a scan begins at the table's beginning, and its rows are not mixed with those of a helper
        ("synchronize_seqscans", "off"),
        ("max_parallel_workers_per_gather", "0"),
    ]);
    if settings.start_order_by.is_empty() {
        // an index for the condition may be used, in the order of the rows and not in its own
        parameters.extend([("enable_indexscan", "off"), ("enable_indexonlyscan", "off")]);
    }
    parameters
}

/// Asks for the types of a query's columns: the catalogue's, as the stream tells them, and not those of the query's result,
/// which stand for what a domain is made of.
async fn describe(
    client: &mut ReplicationClient,
    settings: &PostgresSettings,
    query: TableQuery,
) -> Result<Table, SourceError> {
    let sql = format!(
        "SELECT attname, atttypid, atttypmod FROM pg_catalog.pg_attribute \
         WHERE attrelid = {} AND attnum > 0 AND NOT attisdropped",
        query.oid
    );
    let rows = run(client, settings, "read a table's columns", &sql).await?;
    let text = |row: &[Option<String>], index: usize| row.get(index).cloned().flatten().unwrap_or_default();
    let bases = match types::question(rows.iter().filter_map(|row| text(row, 1).parse().ok())) {
        Some(question) => Bases::read(&run(client, settings, "read the types of a table's columns", &question).await?),
        None => Bases::default(),
    };
    let column = |name: &String| {
        let row = rows.iter().find(|row| text(row, 0) == *name);
        let described = row.and_then(|row| Some(bases.kind(text(row, 1).parse().ok()?, text(row, 2).parse().ok()?)));
        let missing = || unreachable(format!("could not read table \"{}\"", query.name.plain()), "it has changed");
        described.map(|kind| Column { name: name.clone(), kind }).ok_or_else(missing)
    };
    let columns = query.columns.iter().map(column).collect::<Result<Vec<_>, _>>()?;
    let crate::config::TableName { schema, table } = query.name.clone();
    let relation = Arc::new(Relation { serial: next_serial(), schema, table, columns });
    Ok(Table { relation, sql: query.sql })
}

/// How far the read is.
#[derive(Clone, Copy, Debug)]
struct Progress {
    begun: Instant,
    told: Instant,
    rows: u64,
    /// Rows when it was told last.
    rows_told: u64,
    estimate: u64,
}

impl Progress {
    fn new(estimate: u64) -> Self {
        let now = Instant::now();
        Self { begun: now, told: now, rows: 0, rows_told: 0, estimate }
    }

    /// A line every few seconds.
    fn tell(&mut self) {
        if self.told.elapsed() < PROGRESS {
            return;
        }
        let milliseconds = u64::try_from(self.told.elapsed().as_millis()).unwrap_or(u64::MAX).max(1);
        let rate = (self.rows - self.rows_told).saturating_mul(1000) / milliseconds;
        let left = self.estimate.checked_sub(self.rows).and_then(|left| left.checked_div(rate));
        let left = left.map_or_else(|| "unknown".to_owned(), |left| format!("{left} s"));
        let (rows, expected) = (self.rows, self.estimate);
        info!(rows, expected, rows_per_second = rate, time_left = left, "reading the tables");
        (self.told, self.rows_told) = (Instant::now(), self.rows);
    }
}

fn now_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}
