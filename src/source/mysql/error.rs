//! What the server says when something is wrong, and what that means for the relay (MySQL, "Server Error Message
//! Reference"; MariaDB, "MariaDB Error Code Reference").

use std::fmt;

use super::settings::{ConnectSettings, Flavour};
use super::wire::{Malformed, Reader};
use crate::source::SourceError;
use crate::state::Reason;

/// An error of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServerError {
    pub code: u16,
    pub message: String,
}

impl ServerError {
    /// Reads an ERR packet behind its first byte.
    pub(super) fn read(body: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(body);
        let code = reader.u16()?;
        let rest = reader.rest();
        // a # and five characters of SQLSTATE, but not before the login
        let message = rest.strip_prefix(b"#").and_then(|rest| rest.get(5..)).unwrap_or(rest);
        Ok(Self { code, message: String::from_utf8_lossy(message).into_owned() })
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} [error {}]", self.message, self.code)
    }
}

impl std::error::Error for ServerError {}

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ClientError {
    /// The connection broke.
    #[error("the connection broke")]
    Io(#[from] std::io::Error),
    /// The server refused.
    #[error(transparent)]
    Server(ServerError),
    /// The server did not answer in time.
    #[error("there was no answer within {0:?}")]
    Timeout(std::time::Duration),
    /// The answer is none.
    #[error("the server's answer is not understood: {0}")]
    Protocol(Malformed),
}

impl From<Malformed> for ClientError {
    fn from(malformed: Malformed) -> Self {
        Self::Protocol(malformed)
    }
}

/// A connection that could not be made or broke.
pub(super) fn unreachable<E>(what: impl Into<String>, error: E) -> SourceError
where
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    SourceError::Connection { reason: Reason::SourceUnreachable, message: what.into(), source: Some(error.into()) }
}

pub(super) fn refuse(message: impl Into<String>, hint: impl Into<String>) -> SourceError {
    SourceError::Configuration { reason: Reason::Configuration, message: message.into(), hint: hint.into() }
}

/// What an error means. `action` is a bare verb phrase such as "read the server's settings".
pub(super) fn from_client(action: &str, settings: &ConnectSettings, error: ClientError) -> SourceError {
    match error {
        ClientError::Server(error) => from_server(action, settings, error),
        other => unreachable(format!("could not {action} on {}", settings.address), other),
    }
}

/// What is not listed is tried again: a server says many things that pass by themselves, and trying again loses nothing.
fn from_server(action: &str, settings: &ConnectSettings, error: ServerError) -> SourceError {
    let ConnectSettings { address, user, .. } = settings;
    let login = |hint: String| SourceError::Configuration {
        reason: Reason::AuthenticationFailed,
        message: format!("the server {address} refused to log in user \"{user}\": {error}"),
        hint,
    };
    match error.code {
        // the server is stopping; the connection was ended by it
        1053 | 1077 | 1079 | 3169 => SourceError::Connection {
            reason: Reason::ServerStopping,
            message: format!("could not {action}: the server {address} is stopping or starting"),
            source: Some(error.into()),
        },
        1044 | 1045 | 1130 | 1698 | 1820 | 1862 | 3118 | 4151 => login(format!(
            "check the password (options \"password-file\" and \"password-command\" of [source.{}], or the URL's), and that \
             the account is for the relay's host; outboxd setup --print shows the account that is needed",
            settings.flavour.option()
        )),
        1251 | 1275 => login("give the user a login method that the server and the relay have".to_owned()),
        3159 => login(format!("set sslmode=require or more in option \"{}\"", settings.option("url"))),
        1142 | 1143 | 1227 => refuse(
            format!("user \"{user}\" is not allowed to {action}: {error}"),
            format!("have an administrator run: {}", grants(settings.flavour, user)),
        ),
        _ => unreachable(format!("could not {action} on {address}"), error),
    }
}

/// The rights that the relay needs.
pub(super) fn grants(flavour: Flavour, user: &str) -> String {
    let monitor = match flavour {
        Flavour::Mysql => "REPLICATION CLIENT, XA_RECOVER_ADMIN",
        Flavour::Mariadb => "BINLOG MONITOR",
    };
    let user = user.replace('\'', "''");
    format!("GRANT REPLICATION SLAVE, {monitor}, SELECT ON *.* TO '{user}'@'%';")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_read_with_and_without_a_state() {
        let read = |body: &[u8]| ServerError::read(body).unwrap().to_string();
        assert_eq!(read(b"\xd4\x04#HY000gone"), "gone [error 1236]");
        assert_eq!(read(b"\x6a\x04blocked"), "blocked [error 1130]");
        assert!(ServerError::read(b"\x01").is_err());
    }
}
