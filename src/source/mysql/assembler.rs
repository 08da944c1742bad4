//! From events to transactions: keeps the tables' layouts and the position, and hands over the rows of the outbox.
//!
//! ```text
//! GTID ─▶ BEGIN ─▶ (TABLE_MAP ─▶ rows…)… ─▶ Xid | COMMIT          rows are handed over at the end, or when there are many
//! GTID ─▶ XA START ─▶ … ─▶ XA PREPARE   …   GTID ─▶ XA COMMIT     rows are held until the second transaction
//! GTID ─▶ TRANSACTION_PAYLOAD (all of the first line, packed)
//! ```
//!
//! Pure. What may hold rows and is not understood is an error by name; nothing is passed over in silence.

use std::collections::HashMap;
use std::sync::Arc;

use super::events::{self, HEADER_BYTES, Header, kind};
use super::gtid_set;
use super::layout::{Layout, Wanted, inflate};
use super::open::{Open, Rows, Step};
use super::payload::Payload;
use super::place::Place;
use super::prepared::Prepared;
use super::statement::{Statement, classify, names};
use super::table_map::{table_map, table_name};
use super::trouble::{Trouble, pass_over};
use super::wire::Malformed;
use crate::change::{Batch, Ignored, Item};
use crate::config::TableName;
use crate::gtid::{Gtid, Gtids, MysqlGtids};
use crate::position::{BinlogPosition, Position};
use crate::state::Reason;
use bytes::Bytes;

/// So many tables are known by their numbers.
const MAX_TABLES: usize = 10_000;

/// How the log is read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reading {
    /// Transactions need no GTIDs: the position is a place in the server's files.
    pub by_place: bool,
    /// Reading goes on behind what this instance has published before.
    pub is_resumed: bool,
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
    reading: Reading,
    /// Read by place they are not known before a file begins with them; empty until then.
    gtids: Gtids,
    has_gtids: bool,
    place: Place,
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
    pub(super) fn new(
        outboxes: Vec<TableName>,
        ignores_case: bool,
        wanted: Wanted,
        begin: &BinlogPosition,
        reading: Reading,
    ) -> Self {
        let gtids = if reading.by_place { Gtids::Mysql(MysqlGtids::default()) } else { begin.gtids.clone() };
        Self {
            outboxes,
            ignores_case,
            wanted,
            reading,
            gtids,
            has_gtids: !reading.by_place,
            place: Place::new(begin),
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
            None => self.place.position(&self.gtids),
        };
        Position::Binlog(Arc::new(place))
    }

    /// Whether the server has looked for transactions up to this place of its log.
    pub(super) fn has_reached(&self, end: &BinlogPosition) -> bool {
        self.place.has_reached(end)
    }

    /// Where the log is being read, for a message.
    pub(super) fn place(&self) -> String {
        self.place.to_string()
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
            if let Some(open) = self.open.take() {
                self.payload = None;
                open.cut_off()?;
            }
        }
        let content = match self.has_checksums {
            // the first event names the file, before the format is known
            None => events::verified(event).unwrap_or(event),
            Some(true) => events::verified(event)?,
            Some(false) => event,
        };
        let body = event.slice_ref(content.get(HEADER_BYTES..).unwrap_or_default());
        self.place.count(&header);
        self.dispatch(&header, &body, batch)
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
            kind::ANONYMOUS_GTID if self.reading.by_place => self.mysql_begins(header, body),
            kind::PREVIOUS_GTIDS if self.reading.by_place => {
                self.gtids = Gtids::Mysql(gtid_set::decode(body)?);
                self.has_gtids = true;
                Ok(())
            }
            kind::MARIADB_GTID => self.mariadb_begins(header, body),
            kind::XID => self.complete(batch),
            kind::XA_PREPARE => self.prepare(body, batch),
            kind::QUERY => {
                let query = events::query(body)?;
                self.statement(query.schema, query.sql, batch)
            }
            kind::MARIADB_QUERY_COMPRESSED => {
                let query = events::query(body)?;
                let sql = inflate(query.sql)?;
                self.statement(query.schema, &sql, batch)
            }
            kind::EXECUTE_LOAD_QUERY => {
                let query = events::execute_load_query(body)?;
                self.statement(query.schema, query.sql, batch)
            }
            kind::TRANSACTION_PAYLOAD => {
                self.payload = Some(Payload::open(body)?);
                Ok(())
            }
            kind::ROTATE => self.rotate(body),
            _ => pass_over(header),
        }
    }

    fn rotate(&mut self, body: &[u8]) -> Result<(), Trouble> {
        self.place.rotate(body)?;
        // else the position would stay in a file that is purged while nothing is written
        self.has_moved |= self.reading.by_place;
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
        let Some(outbox) = outbox else {
            self.tables.insert(name.id, Table::Other);
            return Ok(());
        };
        let map = table_map(body, self.wanted.flavour)?;
        let layout = Layout::new(&outbox.schema, &outbox.table, map, &self.wanted).map_err(|problem| {
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
        self.step(Step::Inserted(Rows { layout, body: body.clone(), is_v2, is_packed }), batch)
    }

    /// An update or a delete is no event.
    fn ignored(&mut self, body: &Bytes, what: Ignored, batch: &mut Batch) -> Result<(), Trouble> {
        let Some(layout) = self.layout(body)? else { return Ok(()) };
        self.step(Step::Ignored(what, Arc::clone(&layout.relation)), batch)
    }

    fn step(&mut self, step: Step, batch: &mut Batch) -> Result<(), Trouble> {
        let Some(open) = &mut self.open else {
            return Err(Malformed::new("rows came outside of a transaction").into());
        };
        if open.is_xa {
            self.prepared.has_room(open.held_bytes() + step.bytes())?;
        }
        open.push(step, batch)
    }

    fn begins(&mut self, open: Open) -> Result<(), Trouble> {
        if self.open.is_some() {
            return Err(Malformed::new("a transaction begins before the one before it has ended").into());
        }
        // more are mostly those of the past; not in the middle of a statement, whose rows refer to them
        if self.tables.len() >= MAX_TABLES {
            self.tables.clear();
        }
        self.open = Some(open);
        Ok(())
    }

    fn mysql_begins(&mut self, header: &Header, body: &[u8]) -> Result<(), Trouble> {
        let begin = match header.kind {
            kind::GTID_TAGGED => events::mysql_gtid_tagged(body)?,
            _ => events::mysql_gtid(body)?,
        };
        let is_anonymous = header.kind == kind::ANONYMOUS_GTID;
        let commit_ts_us = match i64::try_from(begin.commit_ts_us) {
            Ok(known) if known > 0 => known,
            _ => i64::from(header.timestamp) * 1_000_000,
        };
        let gtid = (!is_anonymous).then_some(Gtid::Mysql(begin.source, begin.number));
        self.begins(Open::new(gtid, self.place.event(), commit_ts_us))
    }

    fn mariadb_begins(&mut self, header: &Header, body: &[u8]) -> Result<(), Trouble> {
        let begin = events::mariadb_gtid(body, header.server)?;
        let commit_ts_us = i64::from(header.timestamp) * 1_000_000;
        let mut open = Open::new(Some(Gtid::Mariadb(begin.gtid)), self.place.event(), commit_ts_us);
        open.is_standalone = begin.is_standalone;
        open.is_framed = !begin.is_standalone;
        open.is_xa = begin.prepares.is_some();
        self.begins(open)
    }

    fn statement(&mut self, schema: &[u8], sql: &[u8], batch: &mut Batch) -> Result<(), Trouble> {
        let statement = classify(sql)?;
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
                open.is_xa = true;
                Ok(())
            }
            Statement::Commit => self.complete(batch),
            Statement::Rollback => {
                open.undo()?;
                self.complete(batch)
            }
            Statement::RollbackTo => {
                open.undo_to_savepoint(sql)?;
                self.ends_by_itself(batch)
            }
            Statement::Savepoint => {
                open.set_savepoint(sql);
                self.ends_by_itself(batch)
            }
            Statement::XaCommit(xid) => self.decide(&xid, true, batch),
            Statement::XaRollback(xid) => self.decide(&xid, false, batch),
            Statement::Writes(part) => {
                self.written_as_statement(schema, part)?;
                self.ends_by_itself(batch)
            }
            Statement::Defines => {
                self.ends_by_itself(batch)?;
                self.wanted.hold_behind(sql, schema, &self.outboxes, &self.place.position(&self.gtids))
            }
            Statement::Frame | Statement::Other => self.ends_by_itself(batch),
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
    fn written_as_statement(&self, schema: &[u8], sql: &[u8]) -> Result<(), Trouble> {
        match self.outboxes.iter().find(|outbox| names(sql, schema, outbox)) {
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
        let Some(mut open) = self.open.take() else {
            return Err(Malformed::new("a transaction ends that has not begun").into());
        };
        self.count_in(open.gtid.as_ref());
        // also one of XA that was committed in one phase: nothing else decides
        open.hand_over(batch)?;
        self.end(open.is_begun(), batch)
    }

    fn end(&mut self, is_begun: bool, batch: &mut Batch) -> Result<(), Trouble> {
        self.has_moved = true;
        if is_begun {
            self.has_moved = false;
            batch.push(Item::Commit(self.position()));
        }
        Ok(())
    }

    /// The open transaction is prepared: another one will decide.
    fn prepare(&mut self, body: &[u8], batch: &mut Batch) -> Result<(), Trouble> {
        let (is_one_phase, xid) = events::xa_prepare(body)?;
        if is_one_phase {
            return self.complete(batch);
        }
        let Some(open) = self.open.take() else {
            return Err(Malformed::new("a transaction is prepared that has not begun").into());
        };
        let before = self.place.position_at(&self.gtids, open.offset);
        // MySQL's sets may have gaps: this transaction is asked for again until it is decided
        let waits = match &open.gtid {
            Some(Gtid::Mysql(..)) if !self.reading.by_place => open.gtid.clone(),
            _ => None,
        };
        if waits.is_none() {
            self.count_in(open.gtid.as_ref());
        }
        let is_begun = open.is_begun();
        self.prepared.add(xid, waits, open.steps, before);
        self.end(is_begun, batch)
    }

    /// A prepared transaction is committed or undone.
    fn decide(&mut self, xid: &[u8], is_commit: bool, batch: &mut Batch) -> Result<(), Trouble> {
        let Some(mut open) = self.open.take() else {
            return Err(Malformed::new("a prepared transaction is decided outside of a transaction").into());
        };
        if open.is_xa {
            // it was begun here, and never prepared
            if !is_commit {
                open.undo()?;
            }
            self.open = Some(open);
            return self.complete(batch);
        }
        let prepared = self.prepared.take(xid);
        // where GTIDs have no gaps the position waits before what is prepared, so what it has passed was published
        let has_gaps = !self.reading.by_place && matches!(open.gtid, Some(Gtid::Mysql(..)));
        let was_published = self.reading.is_resumed && !has_gaps;
        if is_commit && prepared.is_none() && !was_published {
            return Err(Trouble::new(
                Reason::LogNotUnderstood,
                "an XA transaction was committed that was prepared before the position where reading began: its rows, if it \
                 wrote to the outbox, are not known",
                "see whether it wrote to the outbox, have the application write its events again, and go on with outboxd \
                 resume --from now; a first start waits for such transactions where the user may run XA RECOVER (on MySQL: \
                 XA_RECOVER_ADMIN)",
            ));
        }
        if let Some(prepared) = prepared {
            if prepared.gtid.is_some() {
                self.count_in(prepared.gtid.as_ref());
            }
            if is_commit {
                open.hand_over_all(prepared.steps, batch)?;
            }
        }
        self.count_in(open.gtid.as_ref());
        self.end(open.is_begun(), batch)
    }

    /// Counts a transaction among those that were read.
    fn count_in(&mut self, gtid: Option<&Gtid>) {
        match gtid {
            Some(gtid) if self.has_gtids => self.gtids.add(gtid),
            Some(_) => {}
            // from here on a set would not say all that was read
            None => {
                self.gtids = Gtids::Mysql(MysqlGtids::default());
                self.has_gtids = false;
            }
        }
    }
}
