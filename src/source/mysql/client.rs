//! A connection: packets, login, statements, and the beginning of a dump of the binary log (MySQL source documentation,
//! "Client/Server Protocol").
//!
//! ```text
//! packet: length u24 · sequence u8 · payload; one of 2^24-1 bytes goes on in the next
//! ```
//!
//! Why not a published client: those that read the binary log unpack compressed transactions as a whole, in memory and
//! without an error for what is cut; they read event by event; and they have a TLS set-up of their own.

use std::io;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;

use super::error::{ClientError, ServerError, from_client};
use super::login::{Session, open};
use super::settings::ConnectSettings;
use super::socket::Stream;
use super::wire::{Malformed, Reader};
use crate::source::SourceError;

/// Longest payload of one packet on the wire.
const MAX_PACKET: usize = 0xFF_FFFF;

/// No packet of the server is longer, all its parts together: `max_allowed_packet` ends at 1 GiB.
const MAX_PAYLOAD: usize = (1 << 30) + (1 << 20);

/// How much is asked of the socket at once.
const READ_BYTES: usize = 256 << 10;

/// Longest wait for the answer to a statement.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

const COM_QUIT: u8 = 0x01;
const COM_QUERY: u8 = 0x03;
const OK: u8 = 0x00;
const NULL: u8 = 0xFB;
const LOCAL_INFILE: u8 = 0xFB;
const EOF: u8 = 0xFE;
const ERR: u8 = 0xFF;

/// A row of an answer; NULL is `None`.
pub(super) type TextRow = Vec<Option<Bytes>>;

/// A connection that is logged in.
pub(super) struct Client {
    socket: Box<dyn Stream>,
    inbox: BytesMut,
    /// The parts so far of a payload that spans packets.
    parts: BytesMut,
    sequence: u8,
    last_read: Instant,
    /// The server's version as it says it.
    pub(super) version: String,
}

impl Client {
    /// Connects and logs in.
    ///
    /// # Errors
    /// As the relay's dispositions say.
    pub(super) async fn connect(settings: &ConnectSettings) -> Result<Self, SourceError> {
        let Session { socket, inbox, version } = open(settings).await?;
        let last_read = Instant::now();
        Ok(Self { socket, inbox, parts: BytesMut::new(), sequence: 0, last_read, version })
    }

    /// When the last byte came.
    pub(super) fn last_read(&self) -> Instant {
        self.last_read
    }

    /// Reads from the socket what is there, and waits for at least one byte. Cancel-safe.
    pub(super) async fn fill(&mut self) -> io::Result<usize> {
        self.inbox.reserve(READ_BYTES);
        let count = self.socket.read_buf(&mut self.inbox).await?;
        if count == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection"));
        }
        self.last_read = Instant::now();
        Ok(count)
    }

    /// Takes the next complete payload of what was read.
    pub(super) fn next_packet(&mut self) -> Result<Option<Bytes>, Malformed> {
        loop {
            let mut header = Reader::new(&self.inbox);
            let (Ok(length), Ok(sequence)) = (header.uint(3), header.u8()) else { return Ok(None) };
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            if header.rest().len() < length {
                return Ok(None);
            }
            if sequence != self.sequence {
                return Err(Malformed(format!("packet {sequence} came in the place of {}", self.sequence)));
            }
            self.sequence = self.sequence.wrapping_add(1);
            self.inbox.advance(4);
            let payload = self.inbox.split_to(length);
            if length < MAX_PACKET && self.parts.is_empty() {
                return Ok(Some(payload.freeze()));
            }
            if self.parts.len() + length > MAX_PAYLOAD {
                return Err(Malformed(format!("a packet is longer than {MAX_PAYLOAD} bytes")));
            }
            self.parts.extend_from_slice(&payload);
            if length < MAX_PACKET {
                return Ok(Some(std::mem::take(&mut self.parts).freeze()));
            }
        }
    }

    async fn packet(&mut self) -> Result<Bytes, ClientError> {
        loop {
            if let Some(packet) = self.next_packet()? {
                return Ok(packet);
            }
            self.fill().await?;
        }
    }

    /// Sends a command. Its answer begins with sequence number 1.
    pub(super) async fn command(&mut self, body: &[u8]) -> Result<(), ClientError> {
        let mut packet = Vec::with_capacity(body.len() + 4);
        let length = u32::try_from(body.len()).ok().filter(|_| body.len() < MAX_PACKET);
        let length = length.ok_or_else(|| Malformed::new("a command is too long"))?;
        packet.extend_from_slice(length.to_le_bytes().get(..3).unwrap_or_default());
        packet.push(0);
        packet.extend_from_slice(body);
        self.sequence = 1;
        self.socket.write_all(&packet).await?;
        self.socket.flush().await?;
        Ok(())
    }

    /// Waits for the OK of a command that has no rows.
    pub(super) async fn ok(&mut self) -> Result<(), ClientError> {
        match self.packet().await? {
            packet if packet.first() == Some(&OK) => Ok(()),
            packet => Err(refusal(&packet)),
        }
    }

    /// Runs a statement and gives all its rows, which should be few.
    pub(super) async fn query(&mut self, sql: &str) -> Result<Vec<TextRow>, ClientError> {
        let answer = async {
            let mut rows = Vec::new();
            let columns = self.begin_query(sql).await?;
            if columns > 0 {
                while let Some(row) = self.row(columns).await? {
                    rows.push(row);
                }
            }
            Ok(rows)
        };
        tokio::time::timeout(ANSWER_TIMEOUT, answer).await.unwrap_or(Err(ClientError::Timeout(ANSWER_TIMEOUT)))
    }

    /// Runs a statement; gives its first row's texts. Columns that are NULL or no text are empty.
    pub(super) async fn first(&mut self, sql: &str) -> Result<Option<Vec<String>>, ClientError> {
        let text =
            |cell: Option<Bytes>| cell.map_or_else(String::new, |text| String::from_utf8_lossy(&text).into_owned());
        let rows = self.query(sql).await?;
        Ok(rows.into_iter().next().map(|row| row.into_iter().map(text).collect()))
    }

    /// Sends a statement; returns how many columns its rows have, 0 for one without rows.
    pub(super) async fn begin_query(&mut self, sql: &str) -> Result<usize, ClientError> {
        let mut body = vec![COM_QUERY];
        body.extend_from_slice(sql.as_bytes());
        self.command(&body).await?;
        let packet = self.packet().await?;
        match packet.first() {
            Some(&OK) => return Ok(0),
            Some(&ERR) => return Err(refusal(&packet)),
            Some(&LOCAL_INFILE) | None => return Err(Malformed::new("a statement's answer is no result").into()),
            Some(_) => {}
        }
        let columns = Reader::new(&packet).length()?;
        for _ in 0..columns {
            self.packet().await?;
        }
        match self.packet().await? {
            packet if is_end(&packet) => Ok(columns),
            packet => Err(refusal(&packet)),
        }
    }

    /// The next row; `None` behind the last. Not cancel-safe.
    pub(super) async fn row(&mut self, columns: usize) -> Result<Option<TextRow>, ClientError> {
        let packet = self.packet().await?;
        Ok(read_row(&packet, columns)?)
    }

    /// Says goodbye, as far as the server listens.
    pub(super) async fn close(mut self) {
        let goodbye = async {
            self.command(&[COM_QUIT]).await.ok();
            self.socket.shutdown().await.ok();
        };
        let _ = tokio::time::timeout(Duration::from_secs(1), goodbye).await;
    }
}

/// Runs a statement and turns its error into the source's.
pub(super) async fn run(
    client: &mut Client,
    settings: &ConnectSettings,
    action: &str,
    sql: &str,
) -> Result<Vec<TextRow>, SourceError> {
    client.query(sql).await.map_err(|error| from_client(action, settings, error))
}

fn is_end(packet: &[u8]) -> bool {
    packet.first() == Some(&EOF) && packet.len() < 9
}

fn read_row(packet: &Bytes, columns: usize) -> Result<Option<TextRow>, RowError> {
    if is_end(packet) {
        return Ok(None);
    }
    if packet.first() == Some(&ERR) {
        return Err(RowError(refusal(packet)));
    }
    let mut reader = Reader::new(packet);
    let mut row = Vec::with_capacity(columns);
    for _ in 0..columns {
        if reader.rest().first() == Some(&NULL) {
            reader.take(1).map_err(RowError::from)?;
            row.push(None);
        } else {
            row.push(Some(packet.slice_ref(reader.lenenc_bytes().map_err(RowError::from)?)));
        }
    }
    Ok(Some(row))
}

/// An error in the place of a row.
struct RowError(ClientError);

impl From<Malformed> for RowError {
    fn from(malformed: Malformed) -> Self {
        Self(malformed.into())
    }
}

impl From<RowError> for ClientError {
    fn from(error: RowError) -> Self {
        error.0
    }
}

/// What a packet says that is not what was hoped for.
pub(super) fn refusal(packet: &[u8]) -> ClientError {
    match packet.split_first() {
        Some((&ERR, body)) => ServerError::read(body).map_or_else(ClientError::Protocol, ClientError::Server),
        Some((kind, _)) => Malformed(format!("a packet begins with {kind:#04x}")).into(),
        None => Malformed::new("a packet is empty").into(),
    }
}
