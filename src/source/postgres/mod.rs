//! The PostgreSQL source: a logical-replication subscriber that reads pgoutput.
//!
//! ```text
//! attach: catalogue ─▶ publication ─▶ no slot yet: first read of the tables (reader), which ends with the slot
//!                                  └▶ slot ─▶ START_REPLICATION ─▶ verify against what was published
//! read:   socket ─▶ frames ─▶ pgoutput messages ─▶ Batch            beside it: watch (SQL, every few seconds)
//! confirm: standby status update ─▶ socket
//! ```
//!
//! The server sends a transaction when it has committed, so rows are handed over as they come; only the position waits
//! for the commit. Reading is paced: a reader that wakes for each row halves the rate of both sides, so while the stream
//! is full a short pause lets the next gulp gather; a stream that trickles is read at once.

pub mod address;
mod attach;
mod catalog;
pub mod check;
mod check_server;
#[cfg(not(fuzzing))]
#[expect(unreachable_pub, reason = "what the fuzz target reads a stream with is public there")]
mod client;
#[cfg(fuzzing)]
pub mod client;
mod error;
mod guard;
mod inspect;
mod login;
mod newcomers;
mod password;
mod patience;
pub mod pgoutput;
mod reader;
mod relations;
pub mod settings;
pub mod setup;
mod slot;
mod socket;
pub(crate) mod sql;
mod surroundings;
pub mod survey;
mod table;
mod types;
pub mod url;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use self::attach::{Attachment, Begin, Past, attach};
use self::client::{Frame, ReplicationClient};
use self::error::{ServerError, unreachable};
use self::pgoutput::{Message, RelationMessage};
pub use self::reader::TableReader;
use self::relations::{Known, Relations};
use self::settings::{Names, PostgresSettings};
use self::types::Bases;
use self::watch::{Watch, Watched, verdict};
use crate::change::{Batch, Cell, Ignored, Item};
use crate::position::{Lsn, Position};
use crate::sink::positions::{PositionRecord, SourceIdentity};
use crate::source::{self, Attached, Begun, Ready, Source, SourceError, Terminal};
use crate::state::{Gap, Reason, Status, StatusBoard};

/// A read of at least this many bytes means that more is waiting.
const GULP_BYTES: usize = 16 << 10;

/// The pause that lets the next gulp gather.
const GULP_PAUSE: Duration = Duration::from_millis(1);

/// Longest time between two words to the server. It also asks for an answer when the stream is quiet.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);

/// Shortest time between two answers to the server's requests: a stopping server asks again after each.
const REPLY_INTERVAL: Duration = Duration::from_millis(50);

/// A server that asks for answers without pause for this long is stopping and waits for us.
const REQUEST_BURST: Duration = Duration::from_secs(1);

/// Connects sessions of one instance.
#[derive(Debug)]
pub struct Connector {
    settings: Arc<PostgresSettings>,
    walsender_pid: Option<i32>,
    tables_were_read: bool,
}

impl Connector {
    /// Nothing is connected yet.
    #[must_use]
    pub fn new(settings: PostgresSettings) -> Self {
        Self { settings: Arc::new(settings), walsender_pid: None, tables_were_read: false }
    }
}

impl source::Connector for Connector {
    type Stream = PostgresSource;
    type Tables = TableReader;
    type Ready = Slot;

    /// Takes the slot, if there is one: its existence says that the tables were read.
    async fn attach(
        &mut self,
        record: Option<&PositionRecord>,
        board: &StatusBoard,
    ) -> Result<Attached<Self>, SourceError> {
        let Self { walsender_pid, tables_were_read, .. } = *self;
        let past = Past { record, walsender_pid, tables_were_read };
        let attached = tokio::select! {
            attached = attach(&self.settings, past, board) => attached,
            overdue = patience::overdue(&self.settings, board) => Err(overdue),
        };
        match attached? {
            Begin::Stream(attachment) => {
                self.walsender_pid = Some(attachment.client.backend_pid());
                Ok(Attached::Stream(Slot { settings: Arc::clone(&attachment.settings), attachment }))
            }
            Begin::Tables(reader) => {
                self.walsender_pid = Some(reader.backend_pid());
                Ok(Attached::Tables(reader))
            }
        }
    }

    fn tables_were_read(&mut self) {
        self.tables_were_read = true;
    }

    async fn retained_bytes(&mut self) -> Option<u64> {
        let asked =
            tokio::time::timeout(self.settings.silence_timeout, Box::pin(watch::retained_bytes(&self.settings))).await;
        asked.ok()?.inspect_err(|error| debug!(error = %crate::chain(error), "could not ask for the slot's log")).ok()
    }
}

/// The slot is ours, nothing of the stream is read.
pub struct Slot {
    settings: Arc<PostgresSettings>,
    attachment: Attachment,
}

impl Ready for Slot {
    type Stream = PostgresSource;

    async fn begin(self, record: Option<&PositionRecord>) -> Result<Begun<PostgresSource>, SourceError> {
        let Self { settings, attachment } = self;
        let Attachment { session, client, standing, gone, .. } = attachment;
        let names: &Names = &settings.names;
        if let Some(record) = record {
            standing.judge(names, record)?;
        }
        let tables = standing.identity.tables();
        let relations = Relations::new(settings.all_tables(), &settings.patterns, tables, gone);
        info!(slot = names.slot, position = %standing.slot, "streaming begins");
        let watched = Watched {
            identity: standing.identity.clone(),
            before: record.map(|record| record.source.clone()),
            slot: names.slot.clone(),
            is_idle: false,
            begin: standing.slot,
            wal_end: standing.wal_end,
            walsender_pid: client.backend_pid(),
        };
        let (identity, position) = (standing.identity.clone(), Position::Postgres(standing.slot));
        let stream = PostgresSource {
            watch: Watch::start(session, Arc::clone(&settings), watched),
            client,
            relations,
            identity: standing.identity,
            settings,
            in_transaction: false,
            pending: None,
            received: standing.slot,
            flushed: standing.slot,
            last_status: Instant::now(),
            is_reply_due: false,
            burst: None,
            pause_until: None,
            cells: Vec::new(),
        };
        Ok(Begun { stream, identity, position })
    }
}

/// A started stream.
pub struct PostgresSource {
    watch: Watch,
    client: ReplicationClient,
    relations: Relations,
    identity: SourceIdentity,
    settings: Arc<PostgresSettings>,
    in_transaction: bool,
    pending: Option<Pending>,
    received: Lsn,
    flushed: Lsn,
    last_status: Instant,
    is_reply_due: bool,
    burst: Option<Burst>,
    pause_until: Option<Instant>,
    cells: Vec<Cell>,
}

/// A question to the catalogue that must be answered before the stream goes on. It runs as a task of its own, so that
/// a cancelled read does not begin it again.
enum Pending {
    /// Which table's partition is this?
    Root(RelationMessage, JoinHandle<Result<(Option<catalog::Root>, Bases), SourceError>>),
    /// What does the server's last word mean?
    Verdict(JoinHandle<SourceError>),
}

/// Requests for an answer, one after the other, with nothing else between.
#[derive(Clone, Copy, Debug)]
struct Burst {
    begun: Instant,
    last: Instant,
}

impl Source for PostgresSource {
    async fn read(&mut self, batch: &mut Batch) -> Result<(), SourceError> {
        loop {
            self.settle().await?;
            self.drain(batch)?;
            if !batch.is_empty() || self.wants_word() {
                return Ok(());
            }
            if self.pending.is_some() {
                continue;
            }
            if let Some(until) = self.pause_until {
                tokio::time::sleep_until(until).await;
                self.pause_until = None;
            }
            tokio::select! {
                biased;
                alarm = self.watch.alarm() => return Err(alarm),
                count = self.client.fill() => {
                    let count = count.map_err(|error| self.broken(error))?;
                    self.pause_until = (count >= GULP_BYTES).then(|| Instant::now() + GULP_PAUSE);
                }
            }
        }
    }

    async fn confirm(&mut self, durable: Option<Position>) -> Result<(), SourceError> {
        if let Some(alarm) = self.watch.try_alarm() {
            return Err(alarm);
        }
        let mut has_moved = false;
        if let Some(Position::Postgres(lsn)) = durable
            && lsn > self.flushed
        {
            self.flushed = lsn;
            self.received = self.received.max(lsn);
            self.watch.set_confirmed(lsn);
            has_moved = true;
        }
        let since = self.last_status.elapsed();
        if !has_moved && !self.wants_word() && since < STATUS_INTERVAL {
            return Ok(());
        }
        // an answer makes a quiet stream tell that it lives
        let ask_reply = self.client.last_read().elapsed() >= STATUS_INTERVAL;
        self.last_status = Instant::now();
        self.is_reply_due = false;
        let sent = self.client.send_status(self.received.0, self.flushed.0, ask_reply).await;
        sent.map_err(|error| self.broken(error))
    }

    fn wants_word(&self) -> bool {
        // an answer that is not due yet is left to the relay's next tick
        self.is_reply_due && self.last_status.elapsed() >= REPLY_INTERVAL
    }

    fn silent_for(&self) -> Duration {
        self.client.last_read().elapsed()
    }

    fn is_caught_up(&self) -> bool {
        self.received >= self.watch.due()
    }

    fn verified(&self) -> Position {
        Position::Postgres(self.watch.verified())
    }

    fn status(&self) -> Status {
        self.watch.status().unwrap_or_else(Status::streaming)
    }

    fn retained_bytes(&self) -> Option<u64> {
        self.watch.retained_bytes()
    }

    async fn close(self) {
        self.client.close().await;
    }
}

impl PostgresSource {
    /// Waits for the answer of a pending question and acts on it. Cancel-safe.
    async fn settle(&mut self) -> Result<(), SourceError> {
        let died = |error: tokio::task::JoinError| unreachable("could not ask the catalogue", error);
        match &mut self.pending {
            None => Ok(()),
            Some(Pending::Verdict(task)) => Err(task.await.unwrap_or_else(died)),
            Some(Pending::Root(message, task)) => {
                let (root, bases) = task.await.map_err(died)??;
                let announced = self.relations.announce(message, root, &bases);
                self.pending = None;
                announced.map_err(|error| self.not_understood(error.to_string()))
            }
        }
    }

    /// Takes all complete frames of the buffer, up to one that needs an answer first.
    fn drain(&mut self, batch: &mut Batch) -> Result<(), SourceError> {
        while self.pending.is_none() {
            match self.client.next_frame().map_err(|error| self.broken(error))? {
                None => return Ok(()),
                Some(Frame::Data(body)) => self.data(body, batch)?,
                Some(Frame::Notice(notice)) => self.notice(notice),
                Some(Frame::Error(error)) => self.judge(error),
                Some(Frame::End) => {
                    return Err(SourceError::Connection {
                        reason: Reason::ServerStopping,
                        message: format!("the server {} ended the stream", self.settings.connect.address),
                        source: None,
                    });
                }
            }
        }
        Ok(())
    }

    /// One CopyData message: a keepalive, or a piece of log with a pgoutput message in it.
    fn data(&mut self, mut body: Bytes, batch: &mut Batch) -> Result<(), SourceError> {
        let header: Option<(&[u8; 17], _)> = body.split_first_chunk();
        let kind = header.and_then(|(header, _)| header.first().copied());
        let lsn = |at: usize| {
            let bytes = body.get(at..).and_then(<[u8]>::first_chunk::<8>);
            bytes.map(|bytes| Lsn(u64::from_be_bytes(*bytes)))
        };
        match (kind, lsn(1), lsn(9)) {
            (Some(b'k'), Some(end), _) => {
                self.received = self.received.max(end);
                if body.get(17).copied() == Some(1) {
                    self.requested()?;
                }
                // inside a transaction the server's position is ahead of what may be confirmed
                if !self.in_transaction {
                    batch.push(Item::Progress(Position::Postgres(end)));
                }
                Ok(())
            }
            (Some(b'w'), Some(start), Some(_)) if body.len() > LOG_HEADER_BYTES => {
                self.burst = None;
                self.received = self.received.max(start);
                body.advance(LOG_HEADER_BYTES);
                self.change(body, batch)
            }
            _ => Err(self.not_understood("a message of the stream is neither log nor keepalive".to_owned())),
        }
    }

    /// One pgoutput message.
    fn change(&mut self, body: Bytes, batch: &mut Batch) -> Result<(), SourceError> {
        let mut cells = std::mem::take(&mut self.cells);
        let decoded = pgoutput::decode(&body, &mut cells);
        let result = match decoded.map_err(|error| self.not_understood(error.to_string()))? {
            Message::Begin { .. } if self.in_transaction => Err(self.out_of_order("Begin")),
            Message::Insert { .. } | Message::Commit { .. } if !self.in_transaction => {
                Err(self.out_of_order("Insert or Commit"))
            }
            Message::Insert { relation_oid } => match self.known(relation_oid)? {
                Known::Outbox(relation) if cells.len() == relation.columns.len() => {
                    batch.push_row(Arc::clone(relation), body, cells.drain(..));
                    Ok(())
                }
                Known::Outbox(relation) => {
                    let (count, table) = (cells.len(), &relation.table);
                    Err(self.not_understood(format!("a row of table \"{table}\" has {count} values, not one a column")))
                }
                Known::Other(relation) => {
                    batch.push(Item::Ignored(Ignored::OtherTable, Arc::clone(relation)));
                    Ok(())
                }
            },
            Message::Begin { commit_ts_us, .. } => {
                self.in_transaction = true;
                batch.push(Item::Begin { commit_ts_us });
                Ok(())
            }
            Message::Commit { end_lsn } => {
                self.in_transaction = false;
                batch.push(Item::Commit(Position::Postgres(Lsn(end_lsn))));
                Ok(())
            }
            Message::Relation(message) => self.announced(message),
            Message::Update { relation_oid } => self.ignored(Ignored::Update, relation_oid, batch),
            Message::Delete { relation_oid } => self.ignored(Ignored::Delete, relation_oid, batch),
            Message::Truncate { relation_oids } => {
                relation_oids.into_iter().try_for_each(|oid| self.ignored(Ignored::Truncate, oid, batch))
            }
            Message::Other => Ok(()),
        };
        self.cells = cells;
        result
    }

    fn ignored(&self, what: Ignored, relation_oid: u32, batch: &mut Batch) -> Result<(), SourceError> {
        if let Known::Outbox(relation) = self.known(relation_oid)? {
            batch.push(Item::Ignored(what, Arc::clone(relation)));
        }
        Ok(())
    }

    fn known(&self, oid: u32) -> Result<&Known, SourceError> {
        let known = self.relations.get(oid);
        known.ok_or_else(|| self.not_understood(format!("a row refers to table {oid}, which was not announced")))
    }

    /// A table is announced: known at once if it is configured and has the server's own types only, else the catalogue is
    /// asked whose partition it is and what its types are made of.
    fn announced(&mut self, message: RelationMessage) -> Result<(), SourceError> {
        let oid = message.oid;
        let configured = self.relations.configured(&message);
        let types: Vec<u32> = message.columns.iter().map(|column| column.type_oid).collect();
        if configured.is_some() && types::question(types.iter().copied()).is_none() {
            let announced = self.relations.announce(&message, configured, &Bases::default());
            return announced.map_err(|error| self.not_understood(error.to_string()));
        }
        let settings = Arc::clone(&self.settings);
        let task = tokio::spawn(async move { types::look_up(&settings, oid, configured, types).await });
        self.pending = Some(Pending::Root(message, task));
        Ok(())
    }

    /// The server asks for an answer. A healthy one does so seldom; one that is stopping does so without pause until all
    /// is confirmed, and would wait for a broker that is away.
    fn requested(&mut self) -> Result<(), SourceError> {
        self.is_reply_due = true;
        let now = Instant::now();
        let goes_on = self.burst.filter(|burst| now - burst.last < REQUEST_BURST / 2);
        let burst = Burst { begun: goes_on.map_or(now, |burst| burst.begun), last: now };
        self.burst = Some(burst);
        if now - burst.begun < REQUEST_BURST {
            return Ok(());
        }
        Err(SourceError::Connection {
            reason: Reason::ServerStopping,
            message: format!("the server {} waits for us to stop", self.settings.connect.address),
            source: None,
        })
    }

    /// From version 18 on a missing publication is only a warning, and rows are skipped behind it.
    fn notice(&mut self, notice: ServerError) {
        let skips_rows = notice.severity == "WARNING" && matches!(notice.sqlstate.as_str(), "55000" | "42704");
        if skips_rows {
            self.judge(notice);
        } else {
            warn!(notice = %notice, "the server says");
        }
    }

    /// The stream has ended, or must not be followed further: finds out by SQL what that means.
    fn judge(&mut self, words: ServerError) {
        let (settings, identity) = (Arc::clone(&self.settings), self.identity.clone());
        let confirmed = self.flushed;
        self.pending = Some(Pending::Verdict(tokio::spawn(async move {
            verdict(&settings, &identity, confirmed, words).await.unwrap_or_else(|error| error)
        })));
    }

    fn broken(&self, error: std::io::Error) -> SourceError {
        unreachable(format!("the connection to {} broke", self.settings.connect.address), error)
    }

    fn out_of_order(&self, message: &str) -> SourceError {
        let place = if self.in_transaction { "inside" } else { "outside of" };
        self.not_understood(format!("{message} {place} a transaction"))
    }

    fn not_understood(&self, what: String) -> SourceError {
        SourceError::Terminal(Box::new(Terminal {
            reason: Reason::LogNotUnderstood,
            message: format!("the log at {} cannot be understood: {what}", self.received),
            gap: Some(Gap { from: Some(Position::Postgres(self.flushed)), to: None }),
            hint: "report this with the server's version; nothing behind the position was confirmed".to_owned(),
        }))
    }
}

/// Tag, start and end of the log, the server's clock (manual, "Streaming Replication Protocol", XLogData).
const LOG_HEADER_BYTES: usize = 25;
