//! What the server says when something is wrong, and what that means for the relay.
//!
//! Codes: PostgreSQL manual, appendix "PostgreSQL Error Codes".

use std::fmt;

use fallible_iterator::FallibleIterator;
use postgres_protocol::message::backend::ErrorFields;

use super::settings::ConnectSettings;
use crate::config::names::quote_identifier;
use crate::source::SourceError;
use crate::state::Reason;

/// An error or notice of the server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(not(fuzzing), expect(unreachable_pub, reason = "in a signature that the fuzz target needs"))]
pub struct ServerError {
    /// `ERROR`, `FATAL`, `WARNING`, … in English whatever the server's language is.
    pub severity: String,
    /// The five characters of SQLSTATE.
    pub sqlstate: String,
    /// The message, in the server's language.
    pub message: String,
    /// Further words.
    pub detail: Option<String>,
}

impl ServerError {
    /// Reads the fields of an ErrorResponse or NoticeResponse.
    pub(super) fn from_fields(mut fields: ErrorFields<'_>) -> Self {
        let mut error = Self::default();
        while let Ok(Some(field)) = fields.next() {
            let value = String::from_utf8_lossy(field.value_bytes()).into_owned();
            match field.type_() {
                b'V' => error.severity = value,
                b'C' => error.sqlstate = value,
                b'M' => error.message = value,
                b'D' => error.detail = Some(value),
                _ => {}
            }
        }
        error
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.message)?;
        if let Some(detail) = &self.detail {
            write!(f, " ({detail})")?;
        }
        write!(f, " [SQLSTATE {}]", self.sqlstate)
    }
}

impl std::error::Error for ServerError {}

impl From<&tokio_postgres::error::DbError> for ServerError {
    fn from(error: &tokio_postgres::error::DbError) -> Self {
        Self {
            severity: error.severity().to_owned(),
            sqlstate: error.code().code().to_owned(),
            message: error.message().to_owned(),
            detail: error.detail().map(str::to_owned),
        }
    }
}

/// A connection that could not be made or broke.
pub(super) fn unreachable<E>(what: impl Into<String>, error: E) -> SourceError
where
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    SourceError::Connection { reason: Reason::SourceUnreachable, message: what.into(), source: Some(error.into()) }
}

/// What an error of the SQL driver means. `action` is a bare verb phrase such as "read the slot's state".
pub(super) fn from_driver(action: &str, settings: &ConnectSettings, error: tokio_postgres::Error) -> SourceError {
    match error.as_db_error() {
        Some(db) => from_server(action, settings, ServerError::from(db)),
        None => unreachable(format!("could not {action} on {}", settings.address), error),
    }
}

/// What an error of the server means.
///
/// What is not listed is tried again: a server says many things that pass by themselves, and trying again loses nothing.
pub(super) fn from_server(action: &str, settings: &ConnectSettings, error: ServerError) -> SourceError {
    let ConnectSettings { address, user, database, .. } = settings;
    let refuse = |reason, message: String, hint: String| SourceError::Configuration { reason, message, hint };
    match error.sqlstate.as_str() {
        "57P01" | "57P02" | "57P03" => SourceError::Connection {
            reason: Reason::ServerStopping,
            message: format!("could not {action}: the server {address} is stopping or starting"),
            source: Some(error.into()),
        },
        "55006" => SourceError::SlotInUse { by_peer: false, message: error.message },
        "28000" if error.message.contains("does not exist") => refuse(
            Reason::AuthenticationFailed,
            format!("the server {address} refused to log in user \"{user}\": {error}"),
            "let an administrator make the role: outboxd setup --admin-url postgres://ADMIN@HOST/DATABASE".to_owned(),
        ),
        "28P01" | "28000" => refuse(
            Reason::AuthenticationFailed,
            format!("the server {address} refused to log in user \"{user}\": {error}"),
            "check the password (options \"password-file\" and \"password-command\" of [source.postgres], or the URL's), the role's LOGIN and \
             REPLICATION attributes, and the lines of pg_hba.conf for this user, database and address"
                .to_owned(),
        ),
        "3D000" => refuse(
            Reason::Configuration,
            format!("database \"{database}\" does not exist on {address}"),
            "correct the database name in option \"source.postgres.url\"".to_owned(),
        ),
        "53400" => refuse(
            Reason::Configuration,
            format!("could not {action}: all replication slots of {address} are in use ({error})"),
            "drop a slot that nobody uses any more (SELECT slot_name, active FROM pg_replication_slots), or raise \
             max_replication_slots and restart the server"
                .to_owned(),
        ),
        "42501" => refuse(
            Reason::Configuration,
            format!("user \"{user}\" is not allowed to {action}: {error}"),
            format!("have an administrator run: {}", replication_right(user)),
        ),
        "08P01" if error.message.contains("unsupported startup parameter") => refuse(
            Reason::Configuration,
            format!("{address} is a connection pooler and not a PostgreSQL server: {error}"),
            "point option \"source.postgres.url\" at the server itself: replication does not pass through a pooler"
                .to_owned(),
        ),
        _ => unreachable(format!("could not {action} on {address}"), error),
    }
}

/// The statement that lets a role open replication connections.
#[must_use]
pub(super) fn replication_right(user: &str) -> String {
    let user = quote_identifier(user);
    format!("ALTER ROLE {user} REPLICATION; -- on Amazon RDS and Aurora: GRANT rds_replication TO {user};")
}

/// A text as an SQL literal, safe whatever `standard_conforming_strings` says.
#[must_use]
pub(super) fn quote_literal(text: &str) -> String {
    let quoted = text.replace('\'', "''");
    if text.contains('\\') { format!("E'{}'", quoted.replace('\\', "\\\\")) } else { format!("'{quoted}'") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_quoted() {
        assert_eq!(quote_literal("it's"), "'it''s'");
        assert_eq!(quote_literal("a\\b'"), "E'a\\\\b'''");
    }
}
