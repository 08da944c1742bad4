//! The MySQL and MariaDB source: a replica that reads the binary log.
//!
//! ```text
//! attach: settings, tables ─▶ lock of the instance ─▶ compare with what was published ─▶ dump from the GTIDs on
//! read:   socket ─▶ packets ─▶ events ─▶ assembler ─▶ Batch         beside it: the lock, used every few seconds
//! ```
//!
//! The server keeps nothing for its readers: the position is the relay's own, and what was purged before it was read is
//! gone. Files that decode are pure: `wire`, `events`, `table_map`, `layout`, `value`, `temporal`, `decimal`, `double`,
//! `charset`, `jsonb`, `statement`, `payload`, `assembler`.

mod assembler;
mod auth;
pub mod charset;
mod client;
pub mod decimal;
pub mod double;
mod dump;
mod error;
mod events;
mod guard;
pub mod jsonb;
mod layout;
mod lock;
mod login;
mod payload;
mod prepared;
mod server;
pub mod settings;
mod socket;
mod statement;
mod stream;
mod table_map;
mod temporal;
pub mod url;
mod value;
mod wire;

use std::sync::Arc;

use tracing::info;

use self::assembler::Assembler;
use self::client::Client;
use self::lock::NamedLock;
use self::server::Server;
use self::settings::MysqlSettings;
pub use self::stream::BinlogSource;
use crate::config::Start;
use crate::position::Position;
use crate::sink::positions::PositionRecord;
use crate::source::{self, Attached, Begun, Ready, SourceError};
use crate::state::StatusBoard;

/// Connects sessions of one instance.
#[derive(Debug)]
pub struct Connector {
    settings: Arc<MysqlSettings>,
}

impl Connector {
    /// Nothing is connected yet.
    #[must_use]
    pub fn new(settings: MysqlSettings) -> Self {
        Self { settings: Arc::new(settings) }
    }
}

impl source::Connector for Connector {
    type Stream = BinlogSource;
    type Tables = BinlogSource;
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
        findings.extend(server::table_findings(&mut client, &settings).await?);
        server::refusal(&findings)?;
        let lock = NamedLock::acquire(&settings).await?;
        if record.is_none() && settings.start == Start::Table {
            return Err(error::refuse(
                "reading the rows that stand in the tables is not available in this version",
                format!("set source.{}.start = \"now\"", settings.connect.flavour.option()),
            ));
        }
        Ok(Attached::Stream(Standing { settings, client, server, lock }))
    }

    fn tables_were_read(&mut self) {}
}

/// The server is known and the instance's lock is ours; nothing of the log is read.
pub struct Standing {
    settings: Arc<MysqlSettings>,
    client: Client,
    server: Server,
    lock: NamedLock,
}

impl Ready for Standing {
    type Stream = BinlogSource;

    async fn begin(self, record: Option<&PositionRecord>) -> Result<Begun<BinlogSource>, SourceError> {
        let Self { settings, mut client, server, lock } = self;
        let begin = match record {
            Some(record) => guard::verify(&server, &settings, record)?,
            None => server.end.clone(),
        };
        dump::begin(&mut client, &settings, &begin).await?;
        info!(server = server.identity().server(), version = server.version, position = %begin, "streaming begins");
        let assembler = Assembler::new(settings.tables.clone(), server.ignores_case(), settings.wanted(), &begin);
        let position = Position::Binlog(Arc::new(begin));
        let stream = BinlogSource { client, assembler, settings, lock, handed_over: position.clone() };
        Ok(Begun { stream, identity: server.identity(), position })
    }
}
