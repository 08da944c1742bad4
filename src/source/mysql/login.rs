//! From the server's greeting to a session: TLS, the user, and the method that the server wants.

use std::io;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::auth::{Method, encrypt, terminated};
use super::client::refusal;
use super::error::{ClientError, from_client, refuse, unreachable};
use super::settings::ConnectSettings;
use super::socket::{Stream, begin_tls, connect};
use super::wire::{Malformed, Reader, put_lenenc_bytes};
use crate::source::SourceError;
use crate::state::Reason;
use crate::tls::SslMode;

/// Longest packet of a login.
const MAX_PACKET: usize = 64 << 10;

const LONG_PASSWORD: u32 = 1;
const LONG_FLAG: u32 = 4;
const PROTOCOL_41: u32 = 1 << 9;
const SSL: u32 = 1 << 11;
const TRANSACTIONS: u32 = 1 << 13;
const SECURE_CONNECTION: u32 = 1 << 15;
const PLUGIN_AUTH: u32 = 1 << 19;
const PLUGIN_AUTH_LENENC: u32 = 1 << 21;

/// The requests for the server's RSA key, by method.
const SHA256_KEY: u8 = 1;
const CACHING_SHA2_KEY: u8 = 2;

/// utf8mb4_general_ci, which both servers have.
const COLLATION: u8 = 45;

/// A login that succeeded.
pub(super) struct Session {
    pub socket: Box<dyn Stream>,
    pub inbox: BytesMut,
    pub version: String,
}

/// The server's first packet.
#[derive(Debug, PartialEq, Eq)]
struct Greeting {
    version: String,
    nonce: Vec<u8>,
    capabilities: u32,
    method: Vec<u8>,
}

/// Connects and logs in, within the time that is configured.
///
/// # Errors
/// As the relay's dispositions say.
pub(super) async fn open(settings: &ConnectSettings) -> Result<Session, SourceError> {
    let password = settings.password().await?;
    let password = password.as_ref().map_or(&b""[..], |password| password.expose().as_bytes());
    let session = async {
        let socket = connect(settings).await?;
        let login = Login { socket, inbox: BytesMut::new(), sequence: 0, is_secret: false, has_tls: false };
        login.run(settings, password).await
    };
    tokio::time::timeout(settings.timeout, session).await.unwrap_or_else(|_| {
        let message = format!("{} did not answer within {:?}", settings.address, settings.timeout);
        Err(SourceError::Connection { reason: Reason::SourceUnreachable, message, source: None })
    })
}

struct Login {
    socket: Box<dyn Stream>,
    inbox: BytesMut,
    sequence: u8,
    /// Whether nobody else can read what is sent.
    is_secret: bool,
    has_tls: bool,
}

impl Login {
    async fn run(mut self, settings: &ConnectSettings, password: &[u8]) -> Result<Session, SourceError> {
        let failed = |error: ClientError| from_client("log in", settings, error);
        let first = self.packet().await.map_err(failed)?;
        if first.first() == Some(&0xFF) {
            return Err(failed(refusal(&first)));
        }
        let greeting = greeting(&first).map_err(|error| failed(error.into()))?;
        self.is_secret = matches!(settings.address, super::url::Address::Unix(_));
        self.protect(settings, &greeting).await?;
        // one that sends the password itself is left to the server to ask for
        let method = Method::parse(&greeting.method).filter(|method| !method.sends_password());
        let method = method.unwrap_or(Method::CachingSha2);
        let answer = method.answer(password, &greeting.nonce);
        let mut body = head(greeting.capabilities, self.has_tls);
        body.extend_from_slice(settings.user.as_bytes());
        body.push(0);
        put_lenenc_bytes(&mut body, &answer);
        body.extend_from_slice(method.name().as_bytes());
        body.push(0);
        self.send(&body).await.map_err(failed)?;
        self.negotiate(settings, password, method, greeting.nonce).await?;
        let Self { socket, inbox, .. } = self;
        Ok(Session { socket, inbox, version: greeting.version })
    }

    /// Begins TLS if it is asked for.
    async fn protect(&mut self, settings: &ConnectSettings, greeting: &Greeting) -> Result<(), SourceError> {
        let mode = settings.tls.mode;
        // as with PostgreSQL, a Unix socket has no TLS
        if mode == SslMode::Disable || self.is_secret {
            return Ok(());
        }
        if greeting.capabilities & SSL == 0 {
            if mode == SslMode::Prefer {
                return Ok(());
            }
            return Err(refuse(
                format!("the server {} does not offer TLS, which sslmode asks for", settings.address),
                format!(
                    "give the server a certificate (ssl_cert, ssl_key), or change sslmode in option \"{}\"",
                    settings.option("url")
                ),
            ));
        }
        let body = head(greeting.capabilities, true);
        self.send(&body).await.map_err(|error| from_client("begin TLS", settings, error))?;
        if !self.inbox.is_empty() {
            let words = Malformed::new("bytes came before TLS had begun: somebody may be in between");
            return Err(from_client("begin TLS", settings, words.into()));
        }
        let plain = std::mem::replace(&mut self.socket, Box::new(tokio::io::empty()));
        self.socket = begin_tls(settings, plain).await?;
        self.is_secret = true;
        self.has_tls = true;
        Ok(())
    }

    /// Answers what the server asks until it lets us in.
    async fn negotiate(
        &mut self,
        settings: &ConnectSettings,
        password: &[u8],
        mut method: Method,
        mut nonce: Vec<u8>,
    ) -> Result<(), SourceError> {
        const FAST: u8 = 3;
        const FULL: u8 = 4;
        let failed = |error: ClientError| from_client("log in", settings, error);
        loop {
            let packet = self.packet().await.map_err(failed)?;
            match packet.split_first() {
                Some((0x00, _)) => return Ok(()),
                Some((0xFE, rest)) => {
                    let mut reader = Reader::new(rest);
                    let name = reader.nul_terminated().map_err(|error| failed(error.into()))?;
                    method = Method::parse(name).ok_or_else(|| unknown_method(settings, name))?;
                    let challenge = reader.rest();
                    nonce = challenge.get(..method.nonce_bytes()).unwrap_or(challenge).to_vec();
                    let answer = match method {
                        Method::ClearPassword if !self.may_send_password(settings) => {
                            return Err(not_secret(settings, method));
                        }
                        Method::Sha256 if !self.is_secret => {
                            self.encrypted(password, &nonce, SHA256_KEY).await.map_err(failed)?
                        }
                        _ => method.answer(password, &nonce),
                    };
                    self.send(&answer).await.map_err(failed)?;
                }
                Some((0x01, [FAST])) if method == Method::CachingSha2 => {}
                Some((0x01, [FULL])) if method == Method::CachingSha2 => {
                    let answer = if self.is_secret {
                        terminated(password)
                    } else {
                        self.encrypted(password, &nonce, CACHING_SHA2_KEY).await.map_err(failed)?
                    };
                    self.send(&answer).await.map_err(failed)?;
                }
                _ => return Err(failed(refusal(&packet))),
            }
        }
    }

    /// The password, packed with the server's key, which it is asked for.
    async fn encrypted(&mut self, password: &[u8], nonce: &[u8], request: u8) -> Result<Vec<u8>, ClientError> {
        self.send(&[request]).await?;
        let key = self.packet().await?;
        if key.first() == Some(&0xFF) {
            return Err(refusal(&key));
        }
        let packed = encrypt(password, nonce, key.strip_prefix(&[1]).unwrap_or(&key));
        packed.ok_or_else(|| Malformed::new("its RSA key cannot be used").into())
    }

    /// Whether the password may be seen by whoever ends the connection: the server is known, or was asked for without a
    /// look at who it is.
    fn may_send_password(&self, settings: &ConnectSettings) -> bool {
        self.is_secret && settings.tls.mode != SslMode::Prefer
    }

    async fn packet(&mut self) -> Result<Vec<u8>, ClientError> {
        loop {
            let mut header = Reader::new(&self.inbox);
            if let (Ok(length), Ok(sequence)) = (header.uint(3), header.u8()) {
                let length = usize::try_from(length).unwrap_or(usize::MAX);
                if length > MAX_PACKET {
                    return Err(Malformed::new("it does not speak MySQL's protocol").into());
                }
                if header.rest().len() >= length {
                    self.sequence = sequence.wrapping_add(1);
                    self.inbox.advance(4);
                    return Ok(self.inbox.split_to(length).to_vec());
                }
            }
            if self.socket.read_buf(&mut self.inbox).await? == 0 {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection").into());
            }
        }
    }

    async fn send(&mut self, body: &[u8]) -> Result<(), ClientError> {
        let length = u32::try_from(body.len()).map_err(|_| Malformed::new("a login is too long"))?;
        let mut packet = length.to_le_bytes().get(..3).unwrap_or_default().to_vec();
        packet.push(self.sequence);
        packet.extend_from_slice(body);
        self.sequence = self.sequence.wrapping_add(1);
        self.socket.write_all(&packet).await?;
        self.socket.flush().await?;
        Ok(())
    }
}

/// What begins the answer to the greeting, and the request for TLS.
fn head(server: u32, with_tls: bool) -> Vec<u8> {
    let wanted = LONG_PASSWORD
        | LONG_FLAG
        | PROTOCOL_41
        | TRANSACTIONS
        | SECURE_CONNECTION
        | PLUGIN_AUTH
        | PLUGIN_AUTH_LENENC
        | if with_tls { SSL } else { 0 };
    let mut body = (wanted & server).to_le_bytes().to_vec();
    body.extend_from_slice(&(1_u32 << 30).to_le_bytes());
    body.push(COLLATION);
    body.extend_from_slice(&[0; 23]);
    body
}

fn greeting(packet: &[u8]) -> Result<Greeting, Malformed> {
    const PROTOCOL: u8 = 10;
    let mut reader = Reader::new(packet);
    let protocol = reader.u8()?;
    if protocol != PROTOCOL {
        return Err(Malformed(format!("it speaks protocol {protocol}, not MySQL's 10")));
    }
    let version = String::from_utf8_lossy(reader.nul_terminated()?).into_owned();
    // MariaDB's disguise for replicas that expect one digit
    let version = version.strip_prefix("5.5.5-").map(str::to_owned).unwrap_or(version);
    let _connection = reader.u32()?;
    let mut nonce = reader.take(8)?.to_vec();
    reader.take(1)?;
    let low = reader.u16()?;
    reader.take(1 + 2)?;
    let high = reader.u16()?;
    let nonce_length = reader.u8()?;
    reader.take(10)?;
    let rest = reader.take(usize::from(nonce_length).saturating_sub(8).max(13))?;
    // twelve bytes more, and a zero
    nonce.extend_from_slice(rest.get(..12).unwrap_or(rest));
    let method = reader.nul_terminated().unwrap_or(reader.rest()).to_vec();
    Ok(Greeting { version, nonce, capabilities: u32::from(high) << 16 | u32::from(low), method })
}

fn unknown_method(settings: &ConnectSettings, name: &[u8]) -> SourceError {
    SourceError::Configuration {
        reason: Reason::AuthenticationFailed,
        message: format!(
            "the server {} asks for login method \"{}\", which is not known",
            settings.address,
            String::from_utf8_lossy(name).escape_debug()
        ),
        hint: "use caching_sha2_password (MySQL), ed25519 or mysql_native_password (MariaDB) for this user".to_owned(),
    }
}

fn not_secret(settings: &ConnectSettings, method: Method) -> SourceError {
    SourceError::Configuration {
        reason: Reason::AuthenticationFailed,
        message: format!(
            "the server {} asks for the password itself ({}), and the connection is not protected",
            settings.address,
            method.name()
        ),
        hint: format!("set sslmode=verify-full, or require, in option \"{}\"", settings.option("url")),
    }
}

/// Says that the server cannot be reached.
pub(super) fn no_answer(settings: &ConnectSettings, error: io::Error) -> SourceError {
    unreachable(format!("could not connect to {}", settings.address), error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_greeting_has_a_challenge_of_twenty_bytes() {
        let mut packet = b"\x0a9.7.4\0\x09\0\0\0abcdefgh\0\xff\xff\xff\x02\0\xff\xdf\x15".to_vec();
        packet.extend_from_slice(&[0; 10]);
        packet.extend_from_slice(b"ijklmnopqrst\0caching_sha2_password\0");
        let greeting = greeting(&packet).unwrap();
        assert_eq!(greeting.version, "9.7.4");
        assert_eq!(greeting.nonce, b"abcdefghijklmnopqrst");
        assert_eq!(greeting.method, b"caching_sha2_password");
        assert_eq!(greeting.capabilities, 0xDFFF_FFFF);
    }

    proptest! {
        #[test]
        fn any_greeting_is_read_or_refused(packet: Vec<u8>) {
            let _ = greeting(&packet);
        }
    }
}
