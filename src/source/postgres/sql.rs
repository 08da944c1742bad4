//! The SQL session beside the replication connection: an ordinary tokio-postgres client over our own socket, so that
//! TLS and passwords are handled in one place.

use tokio::task::JoinHandle;
use tokio_postgres::{Client, NoTls, config::SslMode};

use super::client::open;
use super::error::from_driver;
use super::settings::ConnectSettings;
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
        let stream = open(settings).await?;
        let mut config = tokio_postgres::Config::new();
        config
            .user(&settings.user)
            .dbname(&settings.database)
            .application_name(&settings.application_name)
            // the socket has its TLS already
            .ssl_mode(SslMode::Disable)
            // without row_security a policy that would hide rows is an error
            .options(
                "-c statement_timeout=0 -c lock_timeout=0 -c idle_in_transaction_session_timeout=0 -c row_security=off",
            );
        let password = settings.password().map_err(|error| SourceError::Configuration {
            reason: Reason::AuthenticationFailed,
            message: format!("could not read the password from {error}"),
            hint: "correct option \"source.postgres.password-file\"".to_owned(),
        })?;
        if let Some(password) = password {
            config.password(password.expose());
        }
        let login = tokio::time::timeout(settings.timeout, config.connect_raw(stream, NoTls)).await;
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

fn login_failure(settings: &ConnectSettings, error: tokio_postgres::Error) -> SourceError {
    // the driver asks for a password that is not set in words of its own
    if error.as_db_error().is_none() && crate::chain(&error).contains("password missing") {
        return SourceError::Configuration {
            reason: Reason::AuthenticationFailed,
            message: format!("the server {} asks for a password and none is set", settings.address),
            hint: "set option \"source.postgres.password-file\"".to_owned(),
        };
    }
    from_driver("log in", settings, error)
}
