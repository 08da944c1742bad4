//! The MySQL and MariaDB source: a replica that reads the binary log.
//!
//! ```text
//! attach: settings, tables ─▶ lock of the instance ─▶ compare with what was published ─▶ dump from the GTIDs on
//! read:   socket ─▶ packets ─▶ events ─▶ assembler ─▶ Batch         beside it: the lock, used every few seconds
//! ```
//!
//! The server keeps nothing for its readers: the position is the relay's own, and what was purged before it was read is
//! gone. Files that decode are pure: `wire`, `events`, `table_map`, `layout`, `value`, `temporal`, `decimal`, `double`,
//! `charset`, `jsonb`, `statement`, `payload`, `gtid_set`, `place`, `assembler`.

mod assembler;
mod auth;
mod catalog;
pub mod charset;
mod client;
pub mod decimal;
pub mod double;
mod dump;
mod error;
mod events;
mod gtid_set;
mod guard;
pub mod jsonb;
mod layout;
mod lock;
mod login;
mod open;
mod overlap;
mod payload;
mod place;
mod prepared;
#[cfg(test)]
mod recorded;
mod server;
pub mod settings;
pub mod setup;
mod socket;
mod statement;
mod stream;
pub mod survey;
mod table;
mod table_map;
mod temporal;
mod trouble;
pub mod url;
mod value;
mod wire;

use std::sync::{Arc, OnceLock};

use tracing::{info, warn};

use self::assembler::{Assembler, Reading};
use self::client::Client;
use self::dump::Way;
use self::guard::Begin;
use self::layout::Wanted;
use self::lock::NamedLock;
use self::server::Server;
use self::settings::MysqlSettings;
pub use self::stream::BinlogSource;
pub use self::table::TableReader;
use crate::config::Start;
use crate::position::Position;
use crate::sink::positions::PositionRecord;
use crate::source::{self, Attached, Begun, Ready, SourceError};
use crate::state::{Reason, StatusBoard};

/// Feeds events to the decoder, as a server could send them: each with its length in two bytes before it.
#[cfg(fuzzing)]
pub fn fuzz_events(input: &[u8]) {
    for by_place in [false, true] {
        fuzz_reading(input, Reading { by_place, is_resumed: by_place });
    }
}

#[cfg(fuzzing)]
fn fuzz_reading(mut input: &[u8], reading: Reading) {
    use crate::change::{Batch, Item};
    use crate::position::BinlogPosition;
    let outbox = crate::config::TableName { schema: "app".to_owned(), table: "outbox".to_owned() };
    let columns = ["id", "aggregatetype", "aggregateid", "payload", "at", "kind", "price", "raw"].map(str::to_owned);
    let wanted = Wanted { columns: columns.to_vec(), ..Wanted::default() };
    let Ok(begin) = "@bin.000001:4".parse::<BinlogPosition>() else { return };
    let mut assembler = Assembler::new(vec![outbox], false, wanted, &begin, reading);
    while let Some((length, rest)) = input.split_first_chunk::<2>() {
        let (event, rest) = rest.split_at(usize::from(u16::from_le_bytes(*length)).min(rest.len()));
        input = rest;
        let mut event = event.to_vec();
        let length = u32::try_from(event.len()).unwrap_or_default().to_le_bytes();
        if let Some(said) = event.get_mut(9..13) {
            said.copy_from_slice(&length);
        }
        let mut batch = Batch::default();
        if assembler.event(&event.into(), &mut batch).is_err() {
            return;
        }
        while matches!(assembler.unpack(&mut batch), Ok(Some(_))) {}
        assembler.progress(&mut batch);
        for item in batch.items() {
            if let Item::Row(row) = item {
                let view = batch.view(row);
                assert!((0..view.relation.columns.len()).all(|cell| view.value(cell).is_some()));
            }
        }
    }
}

/// Connects sessions of one instance.
#[derive(Debug)]
pub struct Connector {
    settings: Arc<MysqlSettings>,
    /// Where the stream begins once what stands in the tables is published.
    behind_tables: Arc<OnceLock<Position>>,
    tables_were_read: bool,
    /// The lock that the first read was made under: the stream goes on with it, so that no other instance comes between.
    lock: Option<Arc<NamedLock>>,
}

impl Connector {
    /// Nothing is connected yet.
    #[must_use]
    pub fn new(settings: MysqlSettings) -> Self {
        let behind_tables = Arc::new(OnceLock::new());
        Self { settings: Arc::new(settings), behind_tables, tables_were_read: false, lock: None }
    }
}

impl source::Connector for Connector {
    type Stream = BinlogSource;
    type Tables = TableReader;
    type Ready = Standing;

    async fn attach(
        &mut self,
        record: Option<&PositionRecord>,
        _board: &StatusBoard,
    ) -> Result<Attached<Self>, SourceError> {
        let settings = Arc::clone(&self.settings);
        let mut client = Client::connect(&settings.connect).await?;
        let server = Server::inspect(&mut client, &settings).await?;
        let mut findings = server.findings(&settings);
        let catalog = server::catalog(&mut client, &settings).await?;
        findings.extend(server::table_findings(&settings, &catalog));
        server::refusal(&findings)?;
        let kept = self.lock.take().filter(|lock| lock.check().is_ok());
        let lock = match kept {
            Some(lock) => lock,
            None => match NamedLock::acquire(&settings).await {
                Ok(lock) => Arc::new(lock),
                Err(error) => {
                    // a standby comes again and again, and the server notes who goes without a word
                    client.close().await;
                    return Err(error);
                }
            },
        };
        let begin = if self.tables_were_read { self.behind_tables.get().cloned() } else { None };
        if record.is_none() && begin.is_none() {
            if settings.follows_connector {
                let takeover = settings.command("takeover");
                warn!(
                    takeover,
                    "no position is stored: if the connector has published before, stop and run this first"
                );
            }
            prepared::wait_for_decisions(&mut client, &settings, &server).await?;
            if settings.start == Start::Table {
                self.lock = Some(Arc::clone(&lock));
                let reader = TableReader::begin(&settings, (&server, &catalog), client, lock).await?;
                self.behind_tables = reader.behind();
                return Ok(Attached::Tables(reader));
            }
        }
        let wanted = settings.wanted(server::special(&catalog), &server.end);
        Ok(Attached::Stream(Standing { settings, client, server, wanted, lock, begin }))
    }

    fn tables_were_read(&mut self) {
        self.tables_were_read = true;
    }
}

/// The server is known and the instance's lock is ours; nothing of the log is read.
pub struct Standing {
    settings: Arc<MysqlSettings>,
    client: Client,
    server: Server,
    wanted: Wanted,
    lock: Arc<NamedLock>,
    /// Where to begin if nothing is stored; `None`: where the log ends.
    begin: Option<Position>,
}

impl Ready for Standing {
    type Stream = BinlogSource;

    async fn begin(self, record: Option<&PositionRecord>) -> Result<Begun<BinlogSource>, SourceError> {
        let Self { settings, mut client, mut server, wanted, lock, begin } = self;
        // the lock may have been waited for while the one that held it went on publishing
        server.see_end(&mut client, &settings).await?;
        if let Some(pending) = record.and_then(|record| guard::pending(&server, record)) {
            server.wait_for(&mut client, &settings, &pending).await?;
        }
        if let Some(pending) = record.and_then(|record| guard::pending(&server, record))
            && server.waits_for_replicas()
        {
            return Err(SourceError::Connection {
                reason: Reason::SourceUnreachable,
                message: format!(
                    "transactions {pending} were published, and {} does not count them as committed yet: it waits for a \
                     replica to acknowledge them (semi-synchronous replication)",
                    settings.connect.address
                ),
                source: None,
            });
        }
        let begin = match (record, begin) {
            (Some(record), _) => guard::verify(&server, &settings, record)?,
            (None, Some(Position::Binlog(begin))) => guard::begin(&server, &settings, &begin)?,
            (None, _) => {
                // again, behind the place: one may have been prepared since
                prepared::wait_for_decisions(&mut client, &settings, &server).await?;
                Begin::at_end(&server)
            }
        };
        let Begin { place: begin, way } = begin;
        dump::begin(&mut client, &settings, &begin, way).await?;
        info!(server = server.identity().server(), version = server.version, position = %begin, "streaming begins");
        let reading = Reading { by_place: way == Way::Place, is_resumed: record.is_some() };
        let assembler = Assembler::new(settings.tables.clone(), server.ignores_case(), wanted, &begin, reading);
        let position = Position::Binlog(Arc::new(begin));
        let stream = BinlogSource { client, assembler, settings, lock, handed_over: position.clone() };
        Ok(Begun { stream, identity: server.identity(), position })
    }
}
