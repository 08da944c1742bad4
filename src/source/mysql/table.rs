//! The first read: the rows that stand in the outbox tables when the relay begins, as a source of their own.
//!
//! ```text
//! START TRANSACTION WITH CONSISTENT SNAPSHOT ─▶ SELECT, table after table ─▶ Batch ─▶ relay: all acknowledged
//!         └ its position in the log ──────────────────────────────────────────────▶ the stream begins there
//! ```
//!
//! No lock is taken. MariaDB tells the place in its log that belongs to a snapshot. MySQL does not: there `overlap` finds
//! out which of the latest transactions are in it. Until the stream has stored a position nothing is promised: whatever
//! happens, the read begins again with another snapshot.
//!
//! Rows come as text, as the server prints them, from a socket that is simply not read while the window is full.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::{BufMut, Bytes, BytesMut};
use tokio::time::Instant;
use tracing::info;

use super::catalog::{Catalog, CatalogColumn};
use super::client::{Client, Row, TextRow, run};
use super::double;
use super::error::{ClientError, from_client, refuse, unreachable};
use super::layout::{next_serial, same_name};
use super::lock::NamedLock;
use super::overlap::{Overlap, Span};
use super::prepared;
use super::server::{Server, quoted, quoted_name, special, texts};
use super::settings::{Flavour, MysqlSettings};
use crate::change::{Batch, Cell, Column, ColumnType, Item, Relation};
use crate::config::{MysqlValues, TableName};
use crate::gtid::Gtids;
use crate::position::{BinlogPosition, Position};
use crate::source::{Source, SourceError};
use crate::state::{Phase, Reason, Status};

/// A batch of so many bytes is handed over, although more was read.
const MAX_BYTES: usize = 1 << 20;

/// How often a line tells how far it is.
const PROGRESS: Duration = Duration::from_secs(10);

/// For the session: text as UTF-8, times in UTC, and a server that waits for us as long as a broker may be away.
const SESSION: [&str; 3] = [
    "SET NAMES utf8mb4, SESSION time_zone = '+00:00', SESSION sql_mode = ''",
    "SET SESSION net_write_timeout = 86400, SESSION wait_timeout = 86400",
    "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
];

/// What becomes of a cell's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    None,
    /// Bytes that are no text.
    Binary,
    /// Bytes in the opposite order.
    ReversedBits,
    /// Sixteen bytes as the text of a UUID.
    Uuid,
    /// A bit as a boolean.
    Bool,
    /// A moment gets its zone, UTC.
    Moment,
    /// A year as a number, the year zero too.
    Year,
    /// A FLOAT with all the digits that it needs, and no more.
    Float,
}

/// A table that is to be read, or is being read.
struct Table {
    relation: Arc<Relation>,
    changes: Vec<Change>,
    sql: String,
}

/// The rows that stand in the tables, in one snapshot.
pub struct TableReader {
    settings: Arc<MysqlSettings>,
    client: Client,
    lock: Arc<NamedLock>,
    /// Before it everything is in the snapshot.
    begin: Arc<BinlogPosition>,
    overlap: Overlap,
    /// Where the stream goes on, once all is published.
    behind: Arc<OnceLock<Position>>,
    tables: VecDeque<Table>,
    current: Option<Table>,
    is_at_end: bool,
    rows: u64,
    begun: Instant,
    told: Instant,
}

impl TableReader {
    /// Takes a snapshot.
    ///
    /// # Errors
    /// As for any connection.
    pub(super) async fn begin(
        settings: &Arc<MysqlSettings>,
        (server, catalog): (&Server, &Catalog),
        mut client: Client,
        lock: Arc<NamedLock>,
    ) -> Result<Self, SourceError> {
        for sql in SESSION {
            run(&mut client, &settings.connect, "set up the session", sql).await?;
        }
        let unlimited = match server.flavour {
            Flavour::Mysql => "SET SESSION max_execution_time = 0",
            Flavour::Mariadb => "SET SESSION max_statement_time = 0",
        };
        run(&mut client, &settings.connect, "set up the session", unlimited).await?;
        let mut tables = VecDeque::with_capacity(settings.tables.len());
        for table in catalog {
            tables.push_back(Table::new(settings, &table.name, &table.columns));
        }
        for table in &tables {
            // a condition that cannot be is told before anything has begun
            let explained = client.query(&format!("EXPLAIN {}", table.sql)).await;
            explained.map_err(|error| refused(settings, &table.relation, error))?;
        }
        let (begin, overlap) = match server.flavour {
            Flavour::Mysql => {
                let begin = mysql_snapshot(settings, server, &mut client).await?;
                // one that was prepared just before would be half in the snapshot
                prepared::wait_for_decisions(&mut client, settings, server).await?;
                let end = server.log_end(&mut client, settings).await?;
                let (wanted, span) = (settings.wanted(special(catalog), &begin), Span { begin: &begin, end: &end });
                let overlap = Overlap::read(settings, server, wanted, &lock, span).await?;
                (begin, overlap)
            }
            Flavour::Mariadb => (mariadb_snapshot(settings, &mut client).await?, Overlap::default()),
        };
        info!(position = %begin, "reading the tables begins");
        let now = Instant::now();
        Ok(Self {
            settings: Arc::clone(settings),
            client,
            lock,
            begin: Arc::new(begin),
            overlap,
            behind: Arc::default(),
            tables,
            current: None,
            is_at_end: false,
            rows: 0,
            begun: now,
            told: now,
        })
    }

    /// Where the stream goes on; known once all is published.
    pub(super) fn behind(&self) -> Arc<OnceLock<Position>> {
        Arc::clone(&self.behind)
    }

    /// Takes rows of what was read, as far as they fit into one batch.
    fn drain(&mut self, batch: &mut Batch) -> Result<(), SourceError> {
        let (before, mut bytes, mut result) = (self.rows, 0, Ok(()));
        while bytes < MAX_BYTES && result.is_ok() {
            let Some(table) = &self.current else { break };
            match self.client.ready_row(table.relation.columns.len()) {
                Ok(Row::Incomplete) => break,
                Ok(Row::End) => self.current = None,
                Ok(Row::Cells(row)) => {
                    if self.rows == before {
                        batch.push(Item::Begin { commit_ts_us: now_us() });
                    }
                    self.rows += 1;
                    bytes += table.hand_over(&row, batch);
                }
                Err(error) => result = Err(self.refused(error)),
            }
        }
        if self.rows > before {
            // the same for all: the session of a first read commits no position
            batch.push(Item::Commit(self.verified()));
            self.overlap.find(batch);
        }
        result
    }

    /// The server ended the query.
    fn refused(&self, error: ClientError) -> SourceError {
        match &self.current {
            Some(table) => refused(&self.settings, &table.relation, error),
            None => from_client("read a table", &self.settings.connect, error),
        }
    }
}

/// What the server's error means for the first read.
fn refused(settings: &MysqlSettings, relation: &Relation, error: ClientError) -> SourceError {
    let name = format!("{}.{}", relation.schema, relation.table);
    let narrows = settings.start_where.is_some() || !settings.start_order_by.is_empty();
    match error {
        // what a condition cannot take; the server's own troubles have other numbers
        ClientError::Server(error) if narrows && is_data_error(error.code) => refuse(
            format!("the rows of table \"{name}\" cannot be read as configured: {error}"),
            "correct options \"outbox.start-where\" and \"outbox.start-order-by\"",
        ),
        other => from_client(&format!("read table \"{name}\""), &settings.connect, other),
    }
}

/// Errors of a statement, and of the values in it.
fn is_data_error(code: u16) -> bool {
    matches!(code, 1052 | 1054 | 1064 | 1111 | 1242 | 1292 | 1305 | 1365 | 1411 | 1582 | 1690 | 3140 | 3141 | 3143)
}

impl Source for TableReader {
    async fn read(&mut self, batch: &mut Batch) -> Result<(), SourceError> {
        loop {
            self.lock.check()?;
            self.drain(batch)?;
            if !batch.is_empty() {
                return Ok(());
            }
            if self.is_at_end {
                return Err(self.lock.lost().await);
            }
            if self.current.is_none() {
                // not cancel-safe: what was begun is dropped with the whole read, which begins again
                match self.tables.pop_front() {
                    None => {
                        self.is_at_end = true;
                        batch.push(Item::End);
                        return Ok(());
                    }
                    Some(table) => {
                        let sent = self.client.send_query(&table.sql).await;
                        self.current = Some(table);
                        sent.map_err(|error| self.refused(error))?;
                    }
                }
            }
            tokio::select! {
                biased;
                error = self.lock.lost() => return Err(error),
                count = self.client.fill() => {
                    count.map_err(|error| {
                        unreachable(format!("the connection to {} broke", self.settings.connect.address), error)
                    })?;
                }
            }
        }
    }

    /// Nothing is confirmed; tells how far it is.
    async fn confirm(&mut self, _durable: Option<Position>) -> Result<(), SourceError> {
        self.lock.check()?;
        if !self.is_at_end && self.told.elapsed() >= PROGRESS {
            self.told = Instant::now();
            info!(rows = self.rows, seconds = self.begun.elapsed().as_secs(), "reading the tables");
        }
        Ok(())
    }

    fn wants_word(&self) -> bool {
        false
    }

    /// A sort may take long before its first row; then the lock's connection tells that the server lives.
    fn silent_for(&self) -> Duration {
        self.client.last_read().elapsed().min(self.lock.held_for())
    }

    fn verified(&self) -> Position {
        Position::Binlog(Arc::clone(&self.begin))
    }

    fn retained_bytes(&self) -> Option<u64> {
        None
    }

    fn status(&self) -> Status {
        let detail = format!("publishing the rows that stand in the tables: {} read", self.rows);
        Status::new(Phase::Reading, Reason::ReadingTable, detail)
    }

    async fn complete(&mut self) -> Result<(), SourceError> {
        let behind = self.overlap.complete(&self.begin);
        info!(
            rows = self.rows,
            seconds = self.begun.elapsed().as_secs(),
            position = %behind,
            "all rows that stood in the tables are published"
        );
        self.behind.get_or_init(|| Position::Binlog(Arc::new(behind)));
        Ok(())
    }

    async fn close(self) {
        self.client.close().await;
    }
}

impl Table {
    fn new(settings: &MysqlSettings, table: &TableName, columns: &[CatalogColumn]) -> Self {
        let wanted = settings.columns.iter().chain(&settings.optional_columns);
        let found: Vec<(&String, &CatalogColumn)> = wanted
            .filter_map(|name| columns.iter().find(|column| same_name(&column.name, name)).map(|column| (name, column)))
            .collect();
        let described: Vec<Column> = found
            .iter()
            .map(|(name, column)| Column { name: (*name).clone(), kind: column.meaning(settings.values) })
            .collect();
        let is_uuid = |name: &str| settings.uuid_column.as_deref().is_some_and(|uuid| same_name(uuid, name));
        let changes: Vec<Change> =
            found.iter().map(|(name, column)| change(column, is_uuid(name), settings.values)).collect();
        let described = described.into_iter().zip(&changes).map(|(column, change)| match change {
            Change::Uuid => Column { kind: ColumnType::Uuid, ..column },
            _ => column,
        });
        let list: Vec<String> = found.iter().map(|(_, column)| expression(column)).collect();
        let mut sql = format!("SELECT {} FROM {}", list.join(", "), quoted(table));
        if let Some(condition) = &settings.start_where {
            sql.push_str(&format!(" WHERE ({condition}\n)"));
        }
        if !settings.start_order_by.is_empty() {
            let order: Vec<String> = settings.start_order_by.iter().map(|name| quoted_name(name)).collect();
            sql.push_str(&format!(" ORDER BY {}", order.join(", ")));
        }
        let relation = Relation {
            serial: next_serial(),
            schema: table.schema.clone(),
            table: table.table.clone(),
            columns: described.collect(),
        };
        Self { relation: Arc::new(relation), changes, sql }
    }

    /// Adds a row to `batch`; gives its bytes.
    fn hand_over(&self, row: &TextRow, batch: &mut Batch) -> usize {
        let size = row.iter().flatten().map(Bytes::len).sum::<usize>();
        let mut body = BytesMut::with_capacity(size + 32);
        let mut cells = Vec::with_capacity(row.len());
        for (cell, change) in row.iter().zip(&self.changes) {
            let Some(text) = cell else {
                cells.push(Cell::Null);
                continue;
            };
            let begin = body.len();
            match change {
                Change::ReversedBits => body.extend(text.iter().rev()),
                Change::Year if text.as_ref() == b"0000" => body.put_u8(b'0'),
                Change::None | Change::Binary | Change::Year => body.extend_from_slice(text),
                Change::Float => float(text, &mut body),
                Change::Bool => body.put_u8(if text.iter().all(|byte| *byte == 0) { b'f' } else { b't' }),
                Change::Uuid => body.extend_from_slice(super::value::uuid_text(text).as_bytes()),
                Change::Moment => {
                    body.extend_from_slice(text);
                    if !text.starts_with(b"0000") {
                        body.extend_from_slice(b"+00");
                    }
                }
            }
            let range = begin..body.len();
            let is_binary = matches!(change, Change::Binary | Change::ReversedBits);
            cells.push(if is_binary { Cell::Binary(range) } else { Cell::Text(range) });
        }
        batch.push_row(Arc::clone(&self.relation), body.freeze(), cells);
        size
    }
}

/// What is selected of a column, so that a number is shown as it is, not as its definition says.
fn expression(column: &CatalogColumn) -> String {
    let name = quoted_name(&column.name);
    match column.kind.as_str() {
        // with six digits, or with those of FLOAT(7,2)
        "float" | "double" => format!("{name} * 1e0"),
        _ if column.full.contains("zerofill") => format!("{name} + 0"),
        _ => name,
    }
}

fn change(column: &CatalogColumn, is_uuid: bool, values: MysqlValues) -> Change {
    match column.meaning(values) {
        ColumnType::Float32 => Change::Float,
        ColumnType::Bool => Change::Bool,
        ColumnType::TimestampTz(_) => Change::Moment,
        ColumnType::Bytes if is_uuid && column.full == "binary(16)" => Change::Uuid,
        ColumnType::Bits => Change::ReversedBits,
        ColumnType::Int32 if values == MysqlValues::Debezium && column.full.starts_with("year") => Change::Year,
        ColumnType::Bytes => Change::Binary,
        _ => Change::None,
    }
}

/// The server shows the number that a FLOAT is among the DOUBLEs.
fn float(text: &[u8], body: &mut BytesMut) {
    match std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()) {
        Some(value) => {
            let mut shown = Vec::new();
            double::write_float(value, &mut shown);
            body.extend_from_slice(&shown);
        }
        None => body.extend_from_slice(text),
    }
}

/// MariaDB's snapshot has its place in the log with it.
async fn mariadb_snapshot(settings: &MysqlSettings, client: &mut Client) -> Result<BinlogPosition, SourceError> {
    let connect = &settings.connect;
    run(client, connect, "take a snapshot", "START TRANSACTION WITH CONSISTENT SNAPSHOT").await?;
    let rows =
        run(client, connect, "see the snapshot's place in the log", "SHOW STATUS LIKE 'binlog_snapshot_%'").await?;
    let rows: Vec<Vec<String>> = rows.into_iter().map(texts).collect();
    let value = |name: &str| {
        let row = rows.iter().find(|row| row.first().is_some_and(|found| found.eq_ignore_ascii_case(name)));
        row.and_then(|row| row.get(1)).cloned().unwrap_or_default()
    };
    let (file, offset) = (value("binlog_snapshot_file"), value("binlog_snapshot_position"));
    let wrong = |error| unreachable("the snapshot's place in the log is no number", error);
    let offset: u64 = offset.parse().map_err(wrong)?;
    let sql = format!("SELECT BINLOG_GTID_POS('{}', {offset})", file.replace('\'', "''"));
    let rows = run(client, connect, "turn the snapshot's place into GTIDs", &sql).await?;
    let text = rows.into_iter().next().map(texts).and_then(|row| row.into_iter().next()).unwrap_or_default();
    let gtids = text.parse().map_err(|error| unreachable("the snapshot's GTIDs cannot be read", error))?;
    Ok(BinlogPosition::new(Gtids::Mariadb(gtids), file, offset))
}

/// A snapshot of MySQL, with transactions that are surely in it.
async fn mysql_snapshot(
    settings: &MysqlSettings,
    server: &Server,
    client: &mut Client,
) -> Result<BinlogPosition, SourceError> {
    let statements = ["SELECT @@GLOBAL.gtid_executed", "START TRANSACTION WITH CONSISTENT SNAPSHOT"];
    // both at once, so that little can be committed in between
    let answers = client.queries(&statements).await;
    let answers = answers.map_err(|error| from_client("take a snapshot", &settings.connect, error))?;
    let row = answers.into_iter().next().and_then(|rows| rows.into_iter().next()).map(texts).unwrap_or_default();
    let gtids = row.into_iter().next().unwrap_or_default().replace('\n', "").parse();
    let gtids = gtids.map_err(|error| unreachable("the snapshot's GTIDs cannot be read", error))?;
    Ok(BinlogPosition::new(Gtids::Mysql(gtids), server.end.file.clone(), server.end.offset))
}

fn now_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}
