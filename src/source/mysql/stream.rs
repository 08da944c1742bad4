//! A dump that is being read.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes};

use super::assembler::Assembler;
use super::client::{Client, refusal};
use super::dump;
use super::error::{ClientError, unreachable};
use super::lock::NamedLock;
use super::settings::MysqlSettings;
use super::trouble::Trouble;
use crate::change::{Batch, Item};
use crate::position::Position;
use crate::source::{Source, SourceError, Terminal};
use crate::state::{Gap, Reason};

/// A batch of so many steps is handed over, although more was read.
const MAX_ITEMS: usize = 4096;

/// The same for so many bytes of events.
const MAX_BYTES: usize = 1 << 20;

const OK: u8 = 0x00;
const EOF: u8 = 0xFE;

/// A started stream.
pub struct BinlogSource {
    pub(super) client: Client,
    pub(super) assembler: Assembler,
    pub(super) settings: Arc<MysqlSettings>,
    pub(super) lock: Arc<NamedLock>,
    /// The last position of a transaction's end that was handed over.
    pub(super) handed_over: Position,
}

impl Source for BinlogSource {
    async fn read(&mut self, batch: &mut Batch) -> Result<(), SourceError> {
        loop {
            self.lock.check()?;
            let drained = self.drain(batch);
            self.note(batch);
            drained?;
            if !batch.is_empty() {
                return Ok(());
            }
            self.fill().await?;
        }
    }

    async fn confirm(&mut self, _durable: Option<Position>) -> Result<(), SourceError> {
        // the server keeps nothing for its readers
        self.lock.check()
    }

    fn wants_word(&self) -> bool {
        false
    }

    fn silent_for(&self) -> Duration {
        self.client.last_read().elapsed()
    }

    fn verified(&self) -> Position {
        // the log itself says what it holds
        self.handed_over.clone()
    }

    fn retained_bytes(&self) -> Option<u64> {
        None
    }

    async fn close(self) {
        // the server notices that the connection has gone when it writes the next event
        drop(self.client);
    }
}

impl BinlogSource {
    /// Waits for more to come from the server. Cancel-safe.
    pub(super) async fn fill(&mut self) -> Result<(), SourceError> {
        tokio::select! {
            biased;
            error = self.lock.lost() => Err(error),
            count = self.client.fill() => match count {
                Ok(_) => Ok(()),
                Err(error) => Err(unreachable(format!("the connection to {} broke", self.settings.connect.address), error)),
            },
        }
    }

    /// Takes what was read, as far as it fits into one batch.
    pub(super) fn drain(&mut self, batch: &mut Batch) -> Result<(), SourceError> {
        let mut bytes = 0;
        while batch.items().len() < MAX_ITEMS && bytes < MAX_BYTES {
            if let Some(size) = self.assembler.unpack(batch).map_err(|trouble| self.terminal(&trouble))? {
                bytes += size;
                continue;
            }
            let packet = self.client.next_packet().map_err(|error| self.broken(ClientError::Protocol(error)))?;
            let Some(packet) = packet else { break };
            bytes += packet.len();
            self.packet(packet, batch)?;
        }
        self.assembler.progress(batch);
        Ok(())
    }

    fn packet(&mut self, mut packet: Bytes, batch: &mut Batch) -> Result<(), SourceError> {
        match packet.first() {
            Some(&OK) => {
                packet.advance(1);
                self.assembler.event(&packet, batch).map_err(|trouble| self.terminal(&trouble))
            }
            Some(&EOF) if packet.len() < 9 => Err(SourceError::Connection {
                reason: Reason::ServerStopping,
                message: format!("the server {} ended the stream", self.settings.connect.address),
                source: None,
            }),
            _ => Err(match refusal(&packet) {
                ClientError::Server(error) => dump::failure(&self.settings, self.handed_over.clone(), error),
                other => self.broken(other),
            }),
        }
    }

    /// Remembers how far the stream was handed over.
    fn note(&mut self, batch: &Batch) {
        let last = batch.items().iter().rev().find_map(|item| match item {
            Item::Commit(position) | Item::Progress(position) => Some(position),
            _ => None,
        });
        if let Some(position) = last {
            self.handed_over = position.clone();
        }
    }

    fn broken(&self, error: ClientError) -> SourceError {
        unreachable(format!("the stream from {} broke", self.settings.connect.address), error)
    }

    /// What the log holds cannot be passed over.
    fn terminal(&self, trouble: &Trouble) -> SourceError {
        if trouble.passes {
            let (reason, message) = (trouble.reason, trouble.message.clone());
            return SourceError::Connection { reason, message, source: None };
        }
        SourceError::Terminal(Box::new(Terminal {
            reason: trouble.reason,
            message: format!("{} (at {} of the binary log)", trouble.message, self.assembler.place()),
            gap: Some(Gap { from: Some(self.assembler.position()), to: None }),
            hint: trouble.hint.to_owned(),
        }))
    }
}
