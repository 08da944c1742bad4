//! The SQL session beside the replication connection: an ordinary tokio-postgres client over our own socket, so that
//! TLS and passwords are handled in one place.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::JoinHandle;
use tokio_postgres::Client;
use tokio_postgres::config::{SslMode, SslNegotiation};
use tokio_postgres::tls::{self, TlsConnect, TlsStream};

use super::error::from_driver;
use super::login::{not_bound, password_missing, unknown_login};
use super::settings::ConnectSettings;
use super::socket::{Opened, Stream, open, refused_certificate};
use super::url::ChannelBinding;
use crate::source::SourceError;
use crate::state::Reason;

/// A session that ends with its owner.
#[derive(Debug)]
pub(crate) struct SqlSession {
    /// Runs statements.
    pub(crate) client: Client,
    driver: JoinHandle<()>,
}

impl SqlSession {
    /// Connects and logs in. No time-out of the server's configuration applies to the session.
    ///
    /// # Errors
    /// As [`open`], and what the server says to the login.
    pub(crate) async fn connect(settings: &ConnectSettings) -> Result<Self, SourceError> {
        let Opened { stream, end_point } = open(settings).await?;
        let mut config = tokio_postgres::Config::new();
        config
            .user(&settings.user)
            .dbname(&settings.database)
            .application_name(&settings.application_name)
            // the socket has its TLS, or not, already: nothing is negotiated, and AsOpened only hands it on
            .ssl_mode(SslMode::Require)
            .ssl_negotiation(SslNegotiation::Direct)
            .channel_binding(match settings.channel_binding {
                ChannelBinding::Disable => tokio_postgres::config::ChannelBinding::Disable,
                ChannelBinding::Prefer => tokio_postgres::config::ChannelBinding::Prefer,
                ChannelBinding::Require => tokio_postgres::config::ChannelBinding::Require,
            })
            // without row_security a policy that would hide rows is an error
            .options(
                "-c statement_timeout=0 -c lock_timeout=0 -c idle_in_transaction_session_timeout=0 -c row_security=off",
            );
        if let Some(password) = settings.password().await? {
            config.password(password.expose());
        }
        let login = tokio::time::timeout(settings.timeout, config.connect_raw(stream, AsOpened { end_point })).await;
        let (client, connection) = login
            .map_err(|_| SourceError::Connection {
                reason: Reason::SourceUnreachable,
                message: format!("{} did not log us in within {:?}", settings.address, settings.timeout),
                source: None,
            })?
            .map_err(|error| login_failure(settings, error))?;
        // its errors reach every statement that is under way; afterwards the client says that it is closed
        let driver = tokio::spawn(async move {
            let _ = connection.await;
        });
        let session = Self { client, driver };
        // unknown before 14, so it cannot be a start-up option of one connection string for all
        let _ = session.client.batch_execute("SET idle_session_timeout = 0").await;
        Ok(session)
    }

    /// Whether the server has ended the session.
    pub(super) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }
}

impl Drop for SqlSession {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// Hands a socket on as it was opened, with what a login can be bound to.
struct AsOpened {
    end_point: Option<Vec<u8>>,
}

/// A socket that knows what a login can be bound to.
struct Bindable<S> {
    stream: S,
    end_point: Option<Vec<u8>>,
}

impl<S: Stream> TlsConnect<S> for AsOpened {
    type Stream = Bindable<S>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Bindable<S>, Infallible>>;

    fn connect(self, stream: S) -> Self::Future {
        std::future::ready(Ok(Bindable { stream, end_point: self.end_point }))
    }
}

impl<S: Stream> TlsStream for Bindable<S> {
    fn channel_binding(&self) -> tls::ChannelBinding {
        self.end_point.clone().map_or_else(tls::ChannelBinding::none, tls::ChannelBinding::tls_server_end_point)
    }
}

impl<S: Stream> AsyncRead for Bindable<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: Stream> AsyncWrite for Bindable<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

fn login_failure(settings: &ConnectSettings, error: tokio_postgres::Error) -> SourceError {
    if error.as_db_error().is_none() {
        if let Some(refused) = refused_certificate(settings, &error) {
            return refused;
        }
        // the driver says these in words of its own
        let words = crate::chain(&error);
        if words.contains("password missing") {
            return password_missing(settings);
        }
        if words.contains("did not use channel binding") {
            return not_bound(settings);
        }
        if words.contains("unsupported authentication method") || words.contains("unsupported SASL mechanism") {
            return unknown_login(settings);
        }
    }
    from_driver("log in", settings, error)
}
