//! The way to the server: TCP or a Unix socket, and TLS on it.

use std::error::Error;
use std::io;

use bytes::BytesMut;
use postgres_protocol::message::frontend;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

use super::address::Address;
use super::error::unreachable;
use super::settings::ConnectSettings;
use crate::source::{SourceError, tcp};
use crate::state::Reason;
use crate::tls::{SslMode, client_config, server_end_point};

/// A socket, with or without TLS.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// An open way to the server.
pub(super) struct Opened {
    /// The socket.
    pub stream: Box<dyn Stream>,
    /// What a login can be bound to: without TLS nothing.
    pub end_point: Option<Vec<u8>>,
}

/// Opens a socket to the server and, if asked for, TLS on it. As in libpq, a Unix socket has no TLS.
///
/// # Errors
/// [`SourceError::Connection`] if the server cannot be reached in time, [`SourceError::Configuration`] if TLS is asked
/// for and cannot be had, or the certificate cannot be trusted.
pub(super) async fn open(settings: &ConnectSettings) -> Result<Opened, SourceError> {
    let address = &settings.address;
    let failed = |error| unreachable(format!("could not connect to {address}"), error);
    let connect = async {
        match address {
            Address::Unix { .. } => {
                let path = address.socket().unwrap_or_default();
                let socket = UnixStream::connect(path).await.map_err(failed)?;
                Ok(Opened { stream: Box::new(socket), end_point: None })
            }
            Address::Tcp { host, port } => {
                let socket = tcp::connect(host, *port).await.map_err(failed)?;
                negotiate_tls(settings, host, socket).await
            }
        }
    };
    tokio::time::timeout(settings.timeout, connect).await.unwrap_or_else(|_| {
        let message = format!("{address} did not answer within {:?}", settings.timeout);
        Err(SourceError::Connection { reason: Reason::SourceUnreachable, message, source: None })
    })
}

fn refuse(message: String, hint: &str) -> SourceError {
    SourceError::Configuration { reason: Reason::Configuration, message, hint: hint.to_owned() }
}

async fn negotiate_tls(settings: &ConnectSettings, host: &str, mut socket: TcpStream) -> Result<Opened, SourceError> {
    let address = &settings.address;
    if settings.tls.mode == SslMode::Disable {
        return Ok(Opened { stream: Box::new(socket), end_point: None });
    }
    let mut request = BytesMut::new();
    frontend::ssl_request(&mut request);
    let asked = async {
        socket.write_all(&request).await?;
        socket.read_u8().await
    };
    match asked.await.map_err(|error| unreachable(format!("could not ask {address} for TLS"), error))? {
        b'S' => {}
        b'N' if settings.tls.mode == SslMode::Prefer => {
            return Ok(Opened { stream: Box::new(socket), end_point: None });
        }
        b'N' => {
            return Err(refuse(
                format!("the server {address} does not offer TLS, which sslmode asks for"),
                "switch TLS on at the server (ssl = on), or change sslmode in option \"source.postgres.url\"",
            ));
        }
        other => {
            return Err(refuse(
                format!("{address} is not a PostgreSQL server: it answered {other:#04x} to the request for TLS"),
                "correct host and port in option \"source.postgres.url\"",
            ));
        }
    }
    let tls = client_config(&settings.tls).map_err(|error| {
        refuse(crate::chain(&error), "correct sslrootcert, sslcert and sslkey in option \"source.postgres.url\"")
    })?;
    let name = ServerName::try_from(host.to_owned())
        .map_err(|error| refuse(format!("\"{host}\" is not a host name: {error}"), "correct the host"))?;
    let stream = TlsConnector::from(tls).connect(name, socket).await.map_err(|error| tls_failure(settings, error))?;
    let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    Ok(Opened { end_point: certificate.and_then(server_end_point), stream: Box::new(stream) })
}

/// A certificate that is not trusted stays so: the configuration is wrong. Anything else may pass.
fn tls_failure(settings: &ConnectSettings, error: io::Error) -> SourceError {
    let address = &settings.address;
    if let Some(refused) = refused_certificate(settings, &error) {
        return refused;
    }
    let cause = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let Some(rustls::Error::InvalidCertificate(reason)) = cause else {
        return unreachable(format!("could not begin TLS with {address}"), error);
    };
    let reason = format!("{reason:?}");
    let hint = if reason.contains("CaUsedAsEndEntity") {
        "the server uses the certificate of an authority as its own: issue it a certificate signed by that authority \
         and give the authority's as sslrootcert"
    } else if reason.contains("UnsupportedCertVersion") {
        "the server's certificate is of X.509 version 1, which names no host in the way that is verified: issue it anew \
         with subjectAltName (openssl x509 -req -extfile)"
    } else {
        "give the authority that signed the server's certificate as sslrootcert, and with sslmode=verify-full use a \
         host name that the certificate holds"
    };
    refuse(format!("the certificate of {address} is not trusted: {error}"), hint)
}

/// Whether it is our own certificate that the server does not like. In TLS 1.3 it says so only after the handshake.
pub(super) fn refused_certificate(settings: &ConnectSettings, error: &(dyn Error + 'static)) -> Option<SourceError> {
    settings.tls.identity.as_ref()?;
    let mut next = Some(error);
    while let Some(error) = next {
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        let inner = inner.and_then(|inner| inner.downcast_ref::<rustls::Error>());
        if let Some(alert @ rustls::Error::AlertReceived(_)) = inner.or_else(|| error.downcast_ref()) {
            return Some(SourceError::Configuration {
                reason: Reason::AuthenticationFailed,
                message: format!("the server {} refused our certificate: {alert}", settings.address),
                hint: "correct sslcert and sslkey in option \"source.postgres.url\", or ssl_ca_file at the server"
                    .to_owned(),
            });
        }
        next = error.source();
    }
    None
}
