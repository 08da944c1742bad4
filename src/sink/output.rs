//! A stream whose writing may block for as long as its reader likes: it is written on a thread where nothing else waits.
//!
//! ```text
//! lines ─▶ pending ─▶ being written, then acknowledged
//!            │ full: no more is taken until the write before is done
//! ```

use std::io::{self, Write};
use std::time::Duration;

use tokio::task::JoinHandle;

use super::{Ack, Ordinal};

/// Lines are gathered up to this size while others are written.
const BUFFER_BYTES: usize = 256 << 10;

/// A stream with what is to be written to it.
pub(super) struct Output<W> {
    writer: Writer<W>,
    /// Whole lines that follow.
    pending: Vec<u8>,
    pending_acks: Vec<Ack>,
    /// What is acknowledged when the present write is done.
    writing_acks: Vec<Ack>,
}

enum Writer<W> {
    Idle(W),
    Writing(JoinHandle<Written<W>>),
    /// Its thread died with it.
    Lost,
}

struct Written<W> {
    stream: W,
    /// Empty, to be used again.
    buffer: Vec<u8>,
    outcome: io::Result<()>,
}

impl<W: Write + Send + 'static> Output<W> {
    /// Nothing is to be written yet.
    pub(super) fn new(stream: W) -> Self {
        Self { writer: Writer::Idle(stream), pending: Vec::new(), pending_acks: Vec::new(), writing_acks: Vec::new() }
    }

    /// Takes a line, which `write` writes, of a record of transaction `ordinal` that takes `bytes` of the window. False: there
    /// is no room until the present write is done.
    ///
    /// # Errors
    /// What `write` says.
    pub(super) fn add(
        &mut self,
        ordinal: Ordinal,
        bytes: u64,
        write: impl FnOnce(&mut Vec<u8>) -> io::Result<()>,
    ) -> io::Result<bool> {
        if self.pending.len() >= BUFFER_BYTES {
            self.begin();
        }
        if self.pending.len() >= BUFFER_BYTES {
            return Ok(false);
        }
        let before = self.pending.len();
        write(&mut self.pending).inspect_err(|_| self.pending.truncate(before))?;
        match self.pending_acks.last_mut() {
            Some(ack) if ack.ordinal == ordinal && ack.records < u32::MAX => {
                ack.records += 1;
                ack.bytes += bytes;
            }
            _ => self.pending_acks.push(Ack { ordinal, records: 1, bytes }),
        }
        Ok(true)
    }

    /// Begins to write what is pending, unless a write is under way.
    fn begin(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        self.writer = match std::mem::replace(&mut self.writer, Writer::Lost) {
            Writer::Idle(mut stream) => {
                let mut buffer = std::mem::take(&mut self.pending);
                self.writing_acks.append(&mut self.pending_acks);
                Writer::Writing(tokio::task::spawn_blocking(move || {
                    let outcome = stream.write_all(&buffer).and_then(|()| stream.flush());
                    buffer.clear();
                    Written { stream, buffer, outcome }
                }))
            }
            other => other,
        };
    }

    /// Writes what there is, and adds to `into` what that acknowledges. Waits for ever if there is nothing. Cancel-safe.
    ///
    /// # Errors
    /// What the stream says. Nothing of that write is acknowledged.
    pub(super) async fn written(&mut self, into: &mut Vec<Ack>) -> io::Result<()> {
        self.begin();
        let Writer::Writing(writing) = &mut self.writer else {
            return match self.writer {
                Writer::Lost => Err(io::Error::other("the thread that writes has died")),
                _ => std::future::pending().await,
            };
        };
        let joined = writing.await;
        self.writer = Writer::Lost;
        let Written { stream, buffer, outcome } = joined.map_err(io::Error::other)?;
        self.writer = Writer::Idle(stream);
        if self.pending.is_empty() {
            self.pending = buffer;
        }
        let mut acks = std::mem::take(&mut self.writing_acks);
        outcome?;
        into.append(&mut acks);
        Ok(())
    }

    /// Drops what is not being written; nothing that was taken so far is acknowledged any more.
    pub(super) fn forget(&mut self) {
        self.pending.clear();
        self.pending_acks.clear();
        self.writing_acks.clear();
    }

    /// Waits up to `timeout` until all is written, or cannot be.
    pub(super) async fn drain(&mut self, timeout: Duration) {
        let all = async {
            let mut acks = Vec::new();
            while !self.pending.is_empty() || matches!(self.writer, Writer::Writing(_)) {
                if self.written(&mut acks).await.is_err() {
                    return;
                }
            }
        };
        // what is left then is sent again
        let _: Result<(), _> = tokio::time::timeout(timeout, all).await;
    }
}
