//! The way to the server: TCP or a Unix socket, and TLS on it.

use std::io;

use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tokio_rustls::TlsConnector;

use super::error::{refuse, unreachable};
use super::login::no_answer;
use super::settings::ConnectSettings;
use super::url::Address;
use crate::source::{SourceError, tcp};
use crate::state::Reason;
use crate::tls::client_config;

/// A socket, with or without TLS.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Opens a socket to the server.
///
/// # Errors
/// The server cannot be reached.
pub(super) async fn connect(settings: &ConnectSettings) -> Result<Box<dyn Stream>, SourceError> {
    match &settings.address {
        Address::Unix(path) => {
            let socket = UnixStream::connect(path).await.map_err(|error| no_answer(settings, error))?;
            Ok(Box::new(socket))
        }
        Address::Tcp { host, port } => {
            let socket = tcp::connect(host, *port).await.map_err(|error| no_answer(settings, error))?;
            Ok(Box::new(socket))
        }
    }
}

/// Begins TLS on a socket whose server waits for it.
///
/// # Errors
/// [`SourceError::Configuration`] if the certificate cannot be trusted: that stays so. Anything else may pass.
pub(super) async fn begin_tls(
    settings: &ConnectSettings,
    socket: Box<dyn Stream>,
) -> Result<Box<dyn Stream>, SourceError> {
    let option = settings.option("url");
    let address = &settings.address;
    let Address::Tcp { host, .. } = address else { return Ok(socket) };
    let tls = client_config(&settings.tls).map_err(|error| {
        refuse(crate::chain(&error), format!("correct sslrootcert, sslcert and sslkey in option \"{option}\""))
    })?;
    let name = ServerName::try_from(host.clone())
        .map_err(|error| refuse(format!("\"{host}\" is not a host name: {error}"), "correct the host"))?;
    let stream = TlsConnector::from(tls).connect(name, socket).await;
    let stream = stream.map_err(|error| tls_failure(settings, error))?;
    Ok(Box::new(stream))
}

fn tls_failure(settings: &ConnectSettings, error: io::Error) -> SourceError {
    let (address, option) = (&settings.address, settings.option("url"));
    let cause = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match cause {
        Some(rustls::Error::InvalidCertificate(_)) => refuse(
            format!("the certificate of {address} is not trusted: {error}"),
            "give the authority that signed the server's certificate as sslrootcert, and with sslmode=verify-full use a \
             host name that the certificate holds",
        ),
        Some(alert @ rustls::Error::AlertReceived(_)) if settings.tls.identity.is_some() => {
            SourceError::Configuration {
                reason: Reason::AuthenticationFailed,
                message: format!("the server {address} refused our certificate: {alert}"),
                hint: format!("correct sslcert and sslkey in option \"{option}\", or ssl_ca at the server"),
            }
        }
        _ => unreachable(format!("could not begin TLS with {address}"), error),
    }
}
