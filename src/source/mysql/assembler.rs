//! From events to transactions: keeps the tables' layouts and the position, and hands over the rows of the outbox.
//!
//! ```text
//! GTID ─▶ BEGIN ─▶ (TABLE_MAP ─▶ rows…)… ─▶ Xid | COMMIT          rows are handed over as they come
//! GTID ─▶ XA START ─▶ … ─▶ XA PREPARE   …   GTID ─▶ XA COMMIT     rows are held until the second transaction
//! GTID ─▶ TRANSACTION_PAYLOAD (all of the first line, packed)
//! ```
//!
//! Pure. What may hold rows and is not understood is an error by name; nothing is passed over in silence.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use tracing::debug;

use super::events::{self, FLAG_ARTIFICIAL, FLAG_IGNORABLE, HEADER_BYTES, Header, kind};
use super::layout::{Layout, RowProblem, Wanted, inflate};
use super::payload::Payload;
use super::prepared::{Held, Prepared};
use super::statement::{Statement, classify, mentions};
use super::table_map::{table_map, table_name};
use super::wire::Malformed;
use crate::change::{Batch, Ignored, Item};
use crate::config::TableName;
use crate::gtid::{GtidSource, Gtids, MariadbGtid};
use crate::position::{BinlogPosition, Position};
use crate::state::Reason;

/// More tables than this are mostly those of the past.
const MAX_TABLES: usize = 10_000;

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
}

impl Trouble {
    pub(super) fn new(reason: Reason, message: impl Into<String>, hint: &'static str) -> Self {
        Self { reason, message: message.into(), hint }
    }
}

const REPORT: &str =
    "the relay does not understand this server's log: see whether a newer version of it does, and report this";

impl From<Malformed> for Trouble {
    fn from(malformed: Malformed) -> Self {
        Self::new(Reason::LogNotUnderstood, malformed.to_string(), REPORT)
    }
}

/// The transaction that is being read.
#[derive(Debug)]
struct Open {
    gtid: Gtid,
    commit_ts_us: i64,
    /// Whether its beginning was handed over.
    is_begun: bool,
    /// One statement follows, and nothing that ends it.
    is_standalone: bool,
    /// BEGIN, or what stands for it, was read.
    is_framed: bool,
    /// Rows are held until the transaction is committed by another one.
    holds: Option<Vec<Held>>,
}

/// A transaction's identifier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Gtid {
    Mysql(GtidSource, u64),
    Mariadb(MariadbGtid),
}

/// What is known of a table by its number.
#[derive(Debug)]
enum Table {
    Other,
    Outbox { map: Bytes, layout: Arc<Layout> },
}

/// The state between two events.
pub(super) struct Assembler {
    outboxes: Vec<TableName>,
    /// Whether names of schemas and tables have no case.
    ignores_case: bool,
    wanted: Wanted,
    gtids: Gtids,
    file: String,
    offset: u64,
    has_checksums: Option<bool>,
    tables: HashMap<u64, Table>,
    open: Option<Open>,
    payload: Option<Payload>,
    prepared: Prepared,
    /// Whether the position has moved since it was last handed over.
    has_moved: bool,
}

impl Assembler {
    /// Begins behind the transactions of `begin`.
    pub(super) fn new(outboxes: Vec<TableName>, ignores_case: bool, wanted: Wanted, begin: &BinlogPosition) -> Self {
        Self {
            outboxes,
            ignores_case,
            wanted,
            gtids: begin.gtids.clone(),
            file: begin.file.clone(),
            offset: begin.offset,
            has_checksums: None,
            tables: HashMap::new(),
            open: None,
            payload: None,
            prepared: Prepared::default(),
            has_moved: false,
        }
    }

    /// Where all that is complete was handed over.
    pub(super) fn position(&self) -> Position {
        let place = match self.prepared.holds_back() {
            Some(place) => place.clone(),
            None => BinlogPosition::new(self.gtids.clone(), self.file.clone(), self.offset),
        };
        Position::Binlog(Arc::new(place))
    }

    /// Where the log is being read, for a message.
    pub(super) fn place(&self) -> String {
        format!("{}:{}", self.file, self.offset)
    }

    /// Hands over how far the log was read, if it was and no transaction is open.
    pub(super) fn progress(&mut self, batch: &mut Batch) {
        if self.has_moved && self.open.is_none() && self.prepared.holds_back().is_none() {
            self.has_moved = false;
            batch.push(Item::Progress(self.position()));
        }
    }

    /// Takes the next event of a compressed transaction, and says how long it is; `None` if no such transaction is open.
    pub(super) fn unpack(&mut self, batch: &mut Batch) -> Result<Option<usize>, Trouble> {
        let Some(payload) = &mut self.payload else { return Ok(None) };
        let event = payload.next()?;
        let size = event.as_ref().map_or(0, Bytes::len);
        match event {
            Some(event) => {
                let header = Header::read(&event)?;
                if header.kind == kind::TRANSACTION_PAYLOAD {
                    return Err(Malformed::new("a compressed transaction holds another one").into());
                }
                self.dispatch(&header, &event.slice(HEADER_BYTES..), batch)?;
            }
            None => self.payload = None,
        }
        Ok(Some(size))
    }

    /// Takes one event as the server sent it.
    pub(super) fn event(&mut self, event: &Bytes, batch: &mut Batch) -> Result<(), Trouble> {
        let header = Header::read(event)?;
        if usize::try_from(header.length) != Ok(event.len()) {
            return Err(Malformed::new("an event has another length than it says").into());
        }
        let is_format = header.kind == kind::FORMAT_DESCRIPTION;
        if is_format {
            self.has_checksums = Some(events::has_checksums(event)?);
            self.tables.clear();
        }
        let content = match self.has_checksums {
            // the first event names the file, before the format is known
            None => events::verified(event).unwrap_or(event),
            Some(true) => events::verified(event)?,
            // a format description has its checksum always
            Some(false) if is_format => events::verified(event)?,
            Some(false) => event,
        };
        let body = event.slice_ref(content.get(HEADER_BYTES..).unwrap_or_default());
        self.count(&header);
        self.dispatch(&header, &body, batch)
    }

    /// Moves the offset behind an event.
    fn count(&mut self, header: &Header) {
        let is_none = matches!(header.kind, kind::ROTATE | kind::HEARTBEAT | kind::HEARTBEAT_V2);
        if is_none || header.flags & FLAG_ARTIFICIAL != 0 {
            return;
        }
        // some servers leave positions out inside of transactions, and none has more than 32 bits
        let counted = self.offset.saturating_add(u64::from(header.length));
        self.offset = if header.end == 0 { counted } else { nearest(counted, header.end) };
    }

    fn dispatch(&mut self, header: &Header, body: &Bytes, batch: &mut Batch) -> Result<(), Trouble> {
        match header.kind {
            kind::TABLE_MAP => self.table(body),
            kind::WRITE_ROWS_V1 | kind::WRITE_ROWS => self.insert(body, header.kind == kind::WRITE_ROWS, false, batch),
            kind::MARIADB_WRITE_ROWS_V1_COMPRESSED | kind::MARIADB_WRITE_ROWS_COMPRESSED => {
                self.insert(body, header.kind == kind::MARIADB_WRITE_ROWS_COMPRESSED, true, batch)
            }
            kind::UPDATE_ROWS_V1
            | kind::UPDATE_ROWS
            | kind::PARTIAL_UPDATE_ROWS
            | kind::MARIADB_UPDATE_ROWS_V1_COMPRESSED
            | kind::MARIADB_UPDATE_ROWS_COMPRESSED => self.ignored(body, Ignored::Update, batch),
            kind::DELETE_ROWS_V1
            | kind::DELETE_ROWS
            | kind::MARIADB_DELETE_ROWS_V1_COMPRESSED
            | kind::MARIADB_DELETE_ROWS_COMPRESSED => self.ignored(body, Ignored::Delete, batch),
            kind::GTID | kind::GTID_TAGGED => self.mysql_begins(header, body),
            kind::MARIADB_GTID => self.mariadb_begins(header, body),
            kind::XID => self.complete(batch),
            kind::XA_PREPARE => self.prepare(body, batch),
            kind::QUERY => {
                let query = events::query(body)?;
                self.statement(query.sql, batch)
            }
            kind::MARIADB_QUERY_COMPRESSED => {
                let query = events::query(body)?;
                let sql = inflate(query.sql)?;
                self.statement(&sql, batch)
            }
            kind::EXECUTE_LOAD_QUERY => {
                let query = events::execute_load_query(body)?;
                self.statement(query.sql, batch)
            }
            kind::TRANSACTION_PAYLOAD => {
                self.payload = Some(Payload::open(body)?);
                Ok(())
            }
            kind::ROTATE => self.rotate(body),
            _ => other(header),
        }
    }

    fn rotate(&mut self, body: &[u8]) -> Result<(), Trouble> {
        let rotate = events::rotate(body)?;
        let file = std::str::from_utf8(rotate.file).map_err(|_| Malformed::new("a file's name is not UTF-8"))?;
        if self.file != file {
            debug!(file, "the log goes on in another file");
        }
        file.clone_into(&mut self.file);
        self.offset = rotate.offset;
        Ok(())
    }

    /// A table's rows follow. What was known by this number holds as long as nothing has changed.
    fn table(&mut self, body: &Bytes) -> Result<(), Trouble> {
        let name = table_name(body)?;
        match self.tables.get(&name.id) {
            Some(Table::Other) => return Ok(()),
            Some(Table::Outbox { map, .. }) if map == body => return Ok(()),
            _ => {}
        }
        let (schema, table) = (String::from_utf8_lossy(name.schema), String::from_utf8_lossy(name.table));
        let outbox = self.outboxes.iter().find(|outbox| {
            let same = |a: &str, b: &str| a == b || (self.ignores_case && a.to_lowercase() == b.to_lowercase());
            same(&outbox.schema, &schema) && same(&outbox.table, &table)
        });
        if self.tables.len() >= MAX_TABLES {
            self.tables.clear();
        }
        let Some(outbox) = outbox else {
            self.tables.insert(name.id, Table::Other);
            return Ok(());
        };
        let layout = Layout::new(&outbox.schema, &outbox.table, table_map(body)?, &self.wanted).map_err(|problem| {
            Trouble::new(
                Reason::LogNotUnderstood,
                format!("table \"{schema}.{table}\" {problem}"),
                "mend the setting or the column, see outboxd check; rows that were written before stay as they are, so \
                 go on behind them with outboxd resume --from now",
            )
        })?;
        self.tables.insert(name.id, Table::Outbox { map: body.clone(), layout: Arc::new(layout) });
        Ok(())
    }

    /// The layout of the outbox whose rows these are; `None` for another table's.
    fn layout(&self, body: &[u8]) -> Result<Option<Arc<Layout>>, Trouble> {
        match self.tables.get(&events::table_id(body)?) {
            Some(Table::Other) => Ok(None),
            Some(Table::Outbox { layout, .. }) => Ok(Some(Arc::clone(layout))),
            None => Err(Malformed::new("rows are of a table that was not announced").into()),
        }
    }

    fn insert(&mut self, body: &Bytes, is_v2: bool, is_packed: bool, batch: &mut Batch) -> Result<(), Trouble> {
        let Some(layout) = self.layout(body)? else { return Ok(()) };
        let held = Held { layout, body: body.clone(), is_v2, is_packed };
        let Some(open) = &mut self.open else {
            return Err(Malformed::new("rows came outside of a transaction").into());
        };
        if let Some(holds) = &mut open.holds {
            self.prepared.make_room(body.len())?;
            holds.push(held);
            return Ok(());
        }
        open.begin(batch);
        held.hand_over(batch)
    }

    /// An update or a delete is no event.
    fn ignored(&mut self, body: &Bytes, what: Ignored, batch: &mut Batch) -> Result<(), Trouble> {
        let Some(layout) = self.layout(body)? else { return Ok(()) };
        match &mut self.open {
            Some(open) if open.holds.is_some() => {}
            Some(open) => {
                open.begin(batch);
                batch.push(Item::Ignored(what, Arc::clone(&layout.relation)));
            }
            None => return Err(Malformed::new("rows came outside of a transaction").into()),
        }
        Ok(())
    }

    fn begins(&mut self, open: Open) -> Result<(), Trouble> {
        if self.open.is_some() {
            return Err(Malformed::new("a transaction begins before the one before it has ended").into());
        }
        self.open = Some(open);
        Ok(())
    }

    fn mysql_begins(&mut self, header: &Header, body: &[u8]) -> Result<(), Trouble> {
        let begin =
            if header.kind == kind::GTID { events::mysql_gtid(body)? } else { events::mysql_gtid_tagged(body)? };
        let commit_ts_us = match i64::try_from(begin.commit_ts_us) {
            Ok(known) if known > 0 => known,
            _ => i64::from(header.timestamp) * 1_000_000,
        };
        self.begins(Open {
            gtid: Gtid::Mysql(begin.source, begin.number),
            commit_ts_us,
            is_begun: false,
            is_standalone: false,
            is_framed: false,
            holds: None,
        })
    }

    fn mariadb_begins(&mut self, header: &Header, body: &[u8]) -> Result<(), Trouble> {
        let begin = events::mariadb_gtid(body, header.server)?;
        self.begins(Open {
            gtid: Gtid::Mariadb(begin.gtid),
            commit_ts_us: i64::from(header.timestamp) * 1_000_000,
            is_begun: false,
            is_standalone: begin.is_standalone,
            is_framed: !begin.is_standalone,
            holds: begin.prepares.map(|_| Vec::new()),
        })
    }

    fn statement(&mut self, sql: &[u8], batch: &mut Batch) -> Result<(), Trouble> {
        let statement = classify(sql);
        let Some(open) = &mut self.open else {
            return Err(Trouble::new(
                Reason::LogNotUnderstood,
                "a statement came without a GTID",
                "switch GTIDs on (gtid_mode = ON), and go on with outboxd resume --from now",
            ));
        };
        match statement {
            Statement::Begin => {
                open.is_framed = true;
                Ok(())
            }
            Statement::XaStart => {
                open.is_framed = true;
                open.holds.get_or_insert_default();
                Ok(())
            }
            Statement::Commit => self.complete(batch),
            Statement::Rollback | Statement::RollbackTo if open.is_begun => Err(Trouble::new(
                Reason::LogNotUnderstood,
                "a transaction that wrote to the outbox, and to a table without transactions, was rolled back: its rows were \
                 handed over before that was known",
                "write to the outbox in transactions of tables with transactions (InnoDB) only",
            )),
            Statement::Rollback => self.complete(batch),
            Statement::XaCommit(xid) => self.decide(&xid, true, batch),
            Statement::XaRollback(xid) => self.decide(&xid, false, batch),
            Statement::Writes => {
                self.written_as_statement(sql)?;
                self.ends_by_itself(batch)
            }
            Statement::RollbackTo | Statement::Frame | Statement::Other => self.ends_by_itself(batch),
        }
    }

    /// A statement outside of BEGIN and COMMIT is a transaction by itself.
    fn ends_by_itself(&mut self, batch: &mut Batch) -> Result<(), Trouble> {
        match &self.open {
            Some(open) if open.is_standalone || !open.is_framed => self.complete(batch),
            _ => Ok(()),
        }
    }

    /// Rows of a statement are not in the log.
    fn written_as_statement(&self, sql: &[u8]) -> Result<(), Trouble> {
        match self.outboxes.iter().find(|outbox| mentions(sql, &outbox.table)) {
            None => Ok(()),
            Some(outbox) => Err(Trouble::new(
                Reason::StatementLogged,
                format!(
                    "a session with binlog_format = STATEMENT or MIXED wrote to table \"{}\", or used it: the log holds the \
                     statement in place of the rows",
                    outbox.plain()
                ),
                "have every session that writes to the outbox use binlog_format = ROW, have the application write the events \
                 of this statement again, and go on with outboxd resume --from now",
            )),
        }
    }

    /// The open transaction has ended.
    fn complete(&mut self, batch: &mut Batch) -> Result<(), Trouble> {
        let Some(open) = self.open.take() else {
            return Err(Malformed::new("a transaction ends that has not begun").into());
        };
        self.done(&open.gtid);
        if let Some(holds) = open.holds {
            // committed in one phase: nothing else decides
            let mut begun = Open { is_begun: open.is_begun, holds: None, gtid: open.gtid, ..open };
            for held in holds {
                begun.begin(batch);
                held.hand_over(batch)?;
            }
            return self.end(begun.is_begun, batch);
        }
        self.end(open.is_begun, batch)
    }

    fn end(&mut self, is_begun: bool, batch: &mut Batch) -> Result<(), Trouble> {
        self.has_moved = true;
        if is_begun {
            self.has_moved = false;
            batch.push(Item::Commit(self.position()));
        }
        Ok(())
    }

    /// A transaction is behind us.
    fn done(&mut self, gtid: &Gtid) {
        match (&mut self.gtids, gtid) {
            (Gtids::Mysql(set), Gtid::Mysql(source, number)) => set.add(source, *number),
            (Gtids::Mariadb(set), Gtid::Mariadb(gtid)) => set.set(*gtid),
            // an empty text is MySQL's set
            (present, Gtid::Mariadb(gtid)) => {
                let mut set = crate::gtid::MariadbGtids::default();
                set.set(*gtid);
                *present = Gtids::Mariadb(set);
            }
            (present, Gtid::Mysql(source, number)) => {
                let mut set = crate::gtid::MysqlGtids::default();
                set.add(source, *number);
                *present = Gtids::Mysql(set);
            }
        }
    }

    /// The open transaction is prepared: another one will decide.
    fn prepare(&mut self, body: &[u8], batch: &mut Batch) -> Result<(), Trouble> {
        let (is_one_phase, xid) = events::xa_prepare(body)?;
        if is_one_phase {
            return self.complete(batch);
        }
        let before = BinlogPosition::new(self.gtids.clone(), self.file.clone(), self.offset);
        let Some(open) = self.open.take() else {
            return Err(Malformed::new("a transaction is prepared that has not begun").into());
        };
        // MySQL's sets may have gaps: this transaction is asked for again until it is decided
        let waits = match &open.gtid {
            gtid @ Gtid::Mysql(..) => Some(gtid.clone()),
            Gtid::Mariadb(_) => None,
        };
        if waits.is_none() {
            self.done(&open.gtid);
        }
        self.prepared.add(xid, waits, open.holds.unwrap_or_default(), before);
        self.end(open.is_begun, batch)
    }

    /// A prepared transaction is committed or undone.
    fn decide(&mut self, xid: &[u8], is_commit: bool, batch: &mut Batch) -> Result<(), Trouble> {
        let Some(mut open) = self.open.take() else {
            return Err(Malformed::new("a prepared transaction is decided outside of a transaction").into());
        };
        let prepared = self.prepared.take(xid);
        if is_commit && prepared.is_none() {
            return Err(Trouble::new(
                Reason::LogNotUnderstood,
                "an XA transaction was committed that was prepared before the position where reading began: its rows, if it \
                 wrote to the outbox, are not known",
                "see whether it wrote to the outbox, have the application write its events again, and go on with outboxd \
                 resume --from now",
            ));
        }
        if let Some(prepared) = prepared {
            if let Some(gtid) = &prepared.gtid {
                self.done(gtid);
            }
            if is_commit {
                for held in prepared.rows {
                    open.begin(batch);
                    held.hand_over(batch)?;
                }
            }
        }
        self.done(&open.gtid);
        self.end(open.is_begun, batch)
    }
}

impl Open {
    /// Hands over the beginning, once.
    fn begin(&mut self, batch: &mut Batch) {
        if !self.is_begun {
            self.is_begun = true;
            batch.push(Item::Begin { commit_ts_us: self.commit_ts_us });
        }
    }
}

/// The offset with these low 32 bits that is nearest to what was counted.
fn nearest(counted: u64, low: u32) -> u64 {
    const SPAN: u64 = 1 << 32;
    let base = (counted & !(SPAN - 1)) | u64::from(low);
    let candidates = [base.checked_sub(SPAN), Some(base), base.checked_add(SPAN)];
    candidates.into_iter().flatten().min_by_key(|candidate| candidate.abs_diff(counted)).unwrap_or(base)
}

/// Events that hold no rows. One that may is an error.
fn other(header: &Header) -> Result<(), Trouble> {
    match header.kind {
        kind::STOP
        | kind::INTVAR
        | kind::RAND
        | kind::USER_VAR
        | kind::FORMAT_DESCRIPTION
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
            "the log holds a transaction without a GTID: gtid_mode was not ON",
            "set gtid_mode = ON, and go on with outboxd resume --from now",
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
