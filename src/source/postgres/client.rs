//! A connection to PostgreSQL, in replication mode or not: start-up, login, simple queries, and the copy stream.
//!
//! Built on postgres-protocol's messages. The published client libraries pass over notices and read a row at a time;
//! the relay depends on both (PostgreSQL manual, chapters "Message Flow" and "Streaming Replication Protocol").

use std::io;
use std::time::{Duration, Instant, SystemTime};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use fallible_iterator::FallibleIterator;
use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{self, SCRAM_SHA_256, SCRAM_SHA_256_PLUS, ScramSha256};
use postgres_protocol::message::backend::{AuthenticationSaslBody, Header, Message};
use postgres_protocol::message::frontend;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::error::{ServerError, from_server, unreachable};
use super::login::{not_bound, password_missing, unknown_login};
use super::settings::ConnectSettings;
use super::socket::{Opened, Stream, open, refused_certificate};
use super::url::ChannelBinding;
use crate::config::secret::Secret;
use crate::source::SourceError;
use crate::state::Reason;

/// Room for one read: large enough that a busy stream needs few of them.
const READ_BYTES: usize = 256 << 10;

/// Longest message that PostgreSQL makes (`MaxAllocSize`); a longer one is not its.
const MAX_FRAME_BYTES: usize = 1 << 30;

/// What the stream of a started replication brings.
#[derive(Debug)]
pub enum Frame {
    /// CopyData's content.
    Data(Bytes),
    /// A warning or information of the server.
    Notice(ServerError),
    /// The server ended the stream with an error.
    Error(ServerError),
    /// The server ended the stream in good order: it is stopping.
    End,
}

/// A logged-in connection whose bytes we read ourselves; most often in replication mode.
pub struct ReplicationClient {
    stream: Box<dyn Stream>,
    read: BytesMut,
    write: BytesMut,
    last_read: Instant,
    backend_pid: i32,
}

impl ReplicationClient {
    /// Connects and logs in. The session settings make the server's text forms independent of its configuration and
    /// keep its time-outs from ending the stream. With `replication` among them it is a replication connection.
    ///
    /// # Errors
    /// As [`open`], and what the server says to the login.
    pub async fn connect(settings: &ConnectSettings, parameters: &[(&str, &str)]) -> Result<Self, SourceError> {
        let Opened { stream, end_point } = open(settings).await?;
        let read = BytesMut::with_capacity(READ_BYTES);
        let mut client = Self { stream, read, write: BytesMut::new(), last_read: Instant::now(), backend_pid: 0 };
        let login = client.log_in(settings, parameters, end_point);
        tokio::time::timeout(settings.timeout, login).await.unwrap_or_else(|_| {
            let message = format!("{} did not log us in within {:?}", settings.address, settings.timeout);
            Err(SourceError::Connection { reason: Reason::SourceUnreachable, message, source: None })
        })?;
        Ok(client)
    }

    /// Process id of the server's session.
    pub(super) fn backend_pid(&self) -> i32 {
        self.backend_pid
    }

    /// When the last bytes came.
    pub(super) fn last_read(&self) -> Instant {
        self.last_read
    }

    async fn log_in(
        &mut self,
        settings: &ConnectSettings,
        parameters: &[(&str, &str)],
        end_point: Option<Vec<u8>>,
    ) -> Result<(), SourceError> {
        let broken = |error: io::Error| login_broke(settings, error);
        let own = [
            ("user", settings.user.as_str()),
            ("database", settings.database.as_str()),
            ("application_name", settings.application_name.as_str()),
        ];
        frontend::startup_message(own.into_iter().chain(parameters.iter().copied()), &mut self.write)
            .map_err(broken)?;
        self.flush().await.map_err(broken)?;
        let mut end_point = end_point.filter(|_| settings.channel_binding != ChannelBinding::Disable);
        let mut scram = None;
        // whether a login that was begun is over: the server has proved that it knows the password too
        let (mut is_proved, mut is_bound) = (true, false);
        loop {
            match self.message().await.map_err(broken)? {
                Message::AuthenticationOk if !is_proved => return Err(unknown_login(settings)),
                Message::AuthenticationOk if !is_bound && settings.channel_binding == ChannelBinding::Require => {
                    return Err(not_bound(settings));
                }
                Message::AuthenticationOk | Message::ParameterStatus(_) | Message::NoticeResponse(_) => {}
                Message::BackendKeyData(body) => self.backend_pid = body.process_id(),
                Message::ReadyForQuery(_) => return Ok(()),
                Message::ErrorResponse(body) => {
                    return Err(from_server("log in", settings, ServerError::from_fields(body.fields())));
                }
                // only SCRAM can be bound
                Message::AuthenticationCleartextPassword | Message::AuthenticationMd5Password(_)
                    if settings.channel_binding == ChannelBinding::Require =>
                {
                    return Err(not_bound(settings));
                }
                Message::AuthenticationCleartextPassword => {
                    let password = password(settings).await?;
                    self.send_password(password.expose().as_bytes()).await.map_err(broken)?;
                }
                Message::AuthenticationMd5Password(body) => {
                    let password = password(settings).await?;
                    let hash = md5_hash(settings.user.as_bytes(), password.expose().as_bytes(), body.salt());
                    self.send_password(hash.as_bytes()).await.map_err(broken)?;
                }
                Message::AuthenticationSasl(body) => {
                    let (begun, binds) = self.begin_scram(settings, &body, end_point.take()).await?;
                    (scram, is_proved, is_bound) = (Some(begun), false, binds);
                }
                Message::AuthenticationSaslContinue(body) => {
                    let Some(scram) = &mut scram else { return Err(unknown_login(settings)) };
                    scram.update(body.data()).map_err(broken)?;
                    frontend::sasl_response(scram.message(), &mut self.write).map_err(broken)?;
                    self.flush().await.map_err(broken)?;
                }
                Message::AuthenticationSaslFinal(body) => {
                    let Some(scram) = &mut scram else { return Err(unknown_login(settings)) };
                    scram.finish(body.data()).map_err(broken)?;
                    is_proved = true;
                }
                _ => return Err(unknown_login(settings)),
            }
        }
    }

    async fn send_password(&mut self, password: &[u8]) -> io::Result<()> {
        frontend::password_message(password, &mut self.write)?;
        self.flush().await
    }

    /// Begins SCRAM; tells whether it is bound to the TLS connection.
    async fn begin_scram(
        &mut self,
        settings: &ConnectSettings,
        body: &AuthenticationSaslBody,
        end_point: Option<Vec<u8>>,
    ) -> Result<(ScramSha256, bool), SourceError> {
        let broken = |error: io::Error| login_broke(settings, error);
        let mechanisms: Vec<&str> = body.mechanisms().collect().map_err(broken)?;
        let (mechanism, binding) = match end_point {
            Some(end_point) if mechanisms.contains(&SCRAM_SHA_256_PLUS) => {
                (SCRAM_SHA_256_PLUS, sasl::ChannelBinding::tls_server_end_point(end_point))
            }
            _ if settings.channel_binding == ChannelBinding::Require => return Err(not_bound(settings)),
            _ if !mechanisms.contains(&SCRAM_SHA_256) => return Err(unknown_login(settings)),
            // says that we could, so that nobody between us can hide that the server can too
            Some(_) => (SCRAM_SHA_256, sasl::ChannelBinding::unrequested()),
            None => (SCRAM_SHA_256, sasl::ChannelBinding::unsupported()),
        };
        let scram = ScramSha256::new(password(settings).await?.expose().as_bytes(), binding);
        frontend::sasl_initial_response(mechanism, scram.message(), &mut self.write).map_err(broken)?;
        self.flush().await.map_err(broken)?;
        Ok((scram, mechanism == SCRAM_SHA_256_PLUS))
    }

    /// Runs a command of the replication protocol or an SQL statement; gives the rows as text.
    ///
    /// # Errors
    /// The inner error is the server's; the outer one that of the connection.
    pub(super) async fn query(&mut self, text: &str) -> io::Result<Result<Vec<Vec<Option<String>>>, ServerError>> {
        frontend::query(text, &mut self.write)?;
        self.flush().await?;
        let (mut rows, mut failure) = (Vec::new(), None);
        loop {
            match self.message().await? {
                Message::DataRow(body) => {
                    let buffer = body.buffer();
                    let cell = |range: Option<std::ops::Range<usize>>| {
                        let bytes = range.and_then(|range| buffer.get(range));
                        Ok(bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned()))
                    };
                    rows.push(body.ranges().map(cell).collect()?);
                }
                Message::ErrorResponse(body) => failure = Some(ServerError::from_fields(body.fields())),
                Message::ReadyForQuery(_) => return Ok(failure.map_or(Ok(rows), Err)),
                _ => {}
            }
        }
    }

    /// Takes the next message that is complete in the buffer, outside of a stream.
    ///
    /// # Errors
    /// The bytes are not a message.
    pub(super) fn next_message(&mut self) -> io::Result<Option<Message>> {
        match self.frame_length()? {
            Some(length) if self.read.len() >= length => Message::parse(&mut self.read),
            _ => Ok(None),
        }
    }

    /// Writes a simple query, to be sent with the next [`exchange`](Self::exchange).
    ///
    /// # Errors
    /// The text has a zero byte in it.
    pub(super) fn begin_query(&mut self, text: &str) -> io::Result<()> {
        frontend::query(text, &mut self.write)
    }

    /// Sends what is to be sent and reads once into the buffer; gives the number of bytes read. Cancel-safe.
    ///
    /// # Errors
    /// As [`fill`](Self::fill).
    pub(super) async fn exchange(&mut self) -> io::Result<usize> {
        if !self.write.is_empty() {
            self.flush().await?;
        }
        self.fill().await
    }

    /// Runs `START_REPLICATION`; afterwards [`next_frame`](Self::next_frame) and [`fill`](Self::fill) give the stream.
    ///
    /// # Errors
    /// As [`query`](Self::query).
    pub async fn start_replication(&mut self, command: &str) -> io::Result<Result<(), ServerError>> {
        frontend::query(command, &mut self.write)?;
        self.flush().await?;
        loop {
            let length = self.frame_length()?;
            let Some(length) = length.filter(|length| self.read.len() >= *length) else {
                self.fill().await?;
                continue;
            };
            // postgres-protocol does not know CopyBothResponse
            if self.read.first() == Some(&b'W') {
                self.read.advance(length);
                return Ok(Ok(()));
            }
            if let Message::ErrorResponse(body) = self.message().await? {
                return Ok(Err(ServerError::from_fields(body.fields())));
            }
        }
    }

    /// Takes the next frame that is complete in the buffer.
    ///
    /// # Errors
    /// The bytes are not a frame.
    pub fn next_frame(&mut self) -> io::Result<Option<Frame>> {
        loop {
            let Some(length) = self.frame_length()?.filter(|length| self.read.len() >= *length) else {
                return Ok(None);
            };
            if self.read.first() == Some(&b'd') {
                let mut frame = self.read.split_to(length);
                frame.advance(5);
                return Ok(Some(Frame::Data(frame.freeze())));
            }
            match Message::parse(&mut self.read)? {
                Some(Message::NoticeResponse(body)) => {
                    return Ok(Some(Frame::Notice(ServerError::from_fields(body.fields()))));
                }
                Some(Message::ErrorResponse(body)) => {
                    return Ok(Some(Frame::Error(ServerError::from_fields(body.fields()))));
                }
                Some(Message::CopyDone | Message::CommandComplete(_)) => return Ok(Some(Frame::End)),
                Some(_) => {}
                None => return Ok(None),
            }
        }
    }

    /// Reads once into the buffer; gives the number of bytes. Cancel-safe.
    ///
    /// # Errors
    /// The connection broke or was closed.
    pub async fn fill(&mut self) -> io::Result<usize> {
        // a long frame needs its whole length; it grows with what has come, never by what was announced
        if self.read.capacity() - self.read.len() < READ_BYTES / 4 {
            self.read.reserve(READ_BYTES.max(self.read.len()));
        }
        match self.stream.read_buf(&mut self.read).await? {
            0 => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection")),
            count => {
                self.last_read = Instant::now();
                Ok(count)
            }
        }
    }

    /// Sends a standby status update: everything before `flushed` is durable, `written` was received. LSNs.
    ///
    /// # Errors
    /// The connection broke, or takes nothing for 5 s.
    pub(super) async fn send_status(&mut self, written: u64, flushed: u64, ask_reply: bool) -> io::Result<()> {
        const FEEDBACK_LENGTH: usize = 34;
        let mut body = BytesMut::with_capacity(FEEDBACK_LENGTH);
        body.put_u8(b'r');
        body.put_u64(written);
        body.put_u64(flushed);
        body.put_u64(flushed);
        body.put_i64(postgres_clock());
        body.put_u8(u8::from(ask_reply));
        frontend::CopyData::new(body.freeze())?.write(&mut self.write);
        tokio::time::timeout(Duration::from_secs(5), self.flush())
            .await
            .unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "the server takes no feedback")))
    }

    /// Ends the stream and the session in good order, so that the slot is free at once.
    pub(super) async fn close(mut self) {
        let end = async {
            frontend::copy_done(&mut self.write);
            self.flush().await?;
            loop {
                let length = self.frame_length()?;
                let Some(length) = length.filter(|length| self.read.len() >= *length) else {
                    self.fill().await?;
                    continue;
                };
                let is_ready_for_query = self.read.first() == Some(&b'Z');
                self.read.advance(length);
                if is_ready_for_query {
                    break;
                }
            }
            frontend::terminate(&mut self.write);
            self.flush().await
        };
        // the slot is free once the socket is closed, whatever became of the words of good-bye
        let _: Result<io::Result<()>, _> = tokio::time::timeout(Duration::from_millis(500), end).await;
    }

    /// Says good-bye outside of a stream, so that the server ends the session, and what belongs to it, at once.
    pub(super) async fn terminate(mut self) {
        let end = async {
            frontend::terminate(&mut self.write);
            self.flush().await
        };
        // the session ends with the socket anyway
        let _: Result<io::Result<()>, _> = tokio::time::timeout(Duration::from_millis(500), end).await;
    }

    async fn flush(&mut self) -> io::Result<()> {
        self.stream.write_all_buf(&mut self.write).await?;
        self.stream.flush().await
    }

    async fn message(&mut self) -> io::Result<Message> {
        loop {
            if let Some(length) = self.frame_length()?
                && self.read.len() >= length
                && let Some(message) = Message::parse(&mut self.read)?
            {
                return Ok(message);
            }
            self.fill().await?;
        }
    }

    /// Length of the first frame with its tag, once its header is there.
    fn frame_length(&self) -> io::Result<Option<usize>> {
        let Some(header) = Header::parse(&self.read)? else { return Ok(None) };
        let length = usize::try_from(header.len()).ok().filter(|length| *length < MAX_FRAME_BYTES);
        let wrong = || io::Error::new(io::ErrorKind::InvalidData, "a message has an impossible length");
        Ok(Some(length.ok_or_else(wrong)? + 1))
    }
}

/// Microseconds since 2000-01-01 UTC: `pg_stat_replication.reply_time` shows it.
fn postgres_clock() -> i64 {
    const POSTGRES_EPOCH: Duration = Duration::from_secs(946_684_800);
    let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().saturating_sub(POSTGRES_EPOCH);
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

async fn password(settings: &ConnectSettings) -> Result<Secret, SourceError> {
    settings.password().await?.ok_or_else(|| password_missing(settings))
}

fn login_broke(settings: &ConnectSettings, error: io::Error) -> SourceError {
    let refused = refused_certificate(settings, &error);
    refused.unwrap_or_else(|| unreachable(format!("could not log in to {}", settings.address), error))
}
