//! Where a server listens, and which of several is wanted.

use std::fmt;
use std::path::PathBuf;

use super::error::from_driver;
use super::settings::{ConnectSettings, PostgresSettings};
use super::sql::SqlSession;
use crate::source::SourceError;
use crate::state::Reason;

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A host name or address, and a port.
    Tcp {
        /// Host name or address.
        host: String,
        /// TCP port.
        port: u16,
    },
    /// A Unix socket.
    Unix {
        /// The folder that it is in.
        folder: PathBuf,
        /// The number in its name.
        port: u16,
    },
}

impl Address {
    /// A host that begins with a slash is the folder of a socket, as libpq has it.
    pub(super) fn new(host: String, port: u16) -> Self {
        if host.starts_with('/') { Self::Unix { folder: host.into(), port } } else { Self::Tcp { host, port } }
    }

    /// The socket's file.
    pub(super) fn socket(&self) -> Option<PathBuf> {
        match self {
            Self::Tcp { .. } => None,
            Self::Unix { folder, port } => Some(folder.join(format!(".s.PGSQL.{port}"))),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix { folder, port } => write!(f, "{}/.s.PGSQL.{port}", folder.display()),
        }
    }
}

/// What `target_session_attrs` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionKind {
    /// The first server that lets us in.
    Any,
    /// One whose transactions may write.
    ReadWrite,
    /// One whose transactions may not write.
    ReadOnly,
    /// One that is not in recovery.
    Primary,
    /// One that is in recovery.
    Standby,
    /// One that is in recovery, else any.
    PreferStandby,
}

impl SessionKind {
    /// Reads PostgreSQL's word.
    pub(super) fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "any" => Self::Any,
            "read-write" => Self::ReadWrite,
            "read-only" => Self::ReadOnly,
            "primary" => Self::Primary,
            "standby" => Self::Standby,
            "prefer-standby" => Self::PreferStandby,
            _ => return None,
        })
    }

    /// Whether a standby is as good as its primary, or better.
    #[must_use]
    pub(super) fn takes_standby(self) -> bool {
        matches!(self, Self::ReadOnly | Self::Standby | Self::PreferStandby)
    }

    /// What to look for, one pass over all hosts after the other.
    fn passes(self) -> &'static [Self] {
        match self {
            Self::Any => &[Self::Any],
            Self::ReadWrite => &[Self::ReadWrite],
            Self::ReadOnly => &[Self::ReadOnly],
            Self::Primary => &[Self::Primary],
            Self::Standby => &[Self::Standby],
            Self::PreferStandby => &[Self::Standby, Self::Any],
        }
    }

    /// Why a server is not what is asked for.
    fn objection(self, in_recovery: bool, read_only: bool) -> Option<&'static str> {
        match self {
            Self::ReadWrite if read_only => Some("its transactions are read-only"),
            Self::ReadOnly if !read_only => Some("its transactions may write"),
            Self::Primary if in_recovery => Some("it is a standby"),
            Self::Standby if !in_recovery => Some("it is no standby"),
            _ => None,
        }
    }
}

/// Connects to the first server of the URL that can be reached and is what is asked for. All further connections of an
/// attachment go to the same one, by the settings that are handed back.
///
/// # Errors
/// As [`reach_any`].
pub(super) async fn reach(settings: &PostgresSettings) -> Result<(PostgresSettings, SqlSession), SourceError> {
    let (connect, session) = reach_any(&settings.connect).await?;
    let mut chosen = PostgresSettings { connect, ..settings.clone() };
    if !chosen.patterns.is_empty() {
        let found = super::catalog::matching(&session.client, &chosen).await;
        let found = found.map_err(|error| super::error::from_driver("read the catalogue", &chosen.connect, error))?;
        chosen.found = found.into_iter().map(|table| table.name).collect();
    }
    Ok((chosen, session))
}

/// Connects to the first server of the URL that can be reached and is what is asked for; its address comes with the
/// session.
///
/// # Errors
/// What a server says to the login, as [`SqlSession::connect`]: the others would say the same. Else why none of them
/// can be used.
pub(super) async fn reach_any(settings: &ConnectSettings) -> Result<(ConnectSettings, SqlSession), SourceError> {
    let mut failures: Vec<SourceError> = Vec::new();
    for kind in settings.target.passes() {
        for address in &settings.addresses {
            let here = settings.at(address);
            match connect(&here, *kind).await {
                Ok(session) => return Ok((here, session)),
                Err(error @ SourceError::Connection { .. }) => failures.push(error),
                Err(error) => return Err(error),
            }
        }
    }
    if failures.len() < 2 {
        let none = || SourceError::Connection {
            reason: Reason::SourceUnreachable,
            message: "there is no server to connect to".to_owned(),
            source: None,
        };
        return Err(failures.pop().unwrap_or_else(none));
    }
    let same = |reason: Reason| failures.iter().all(|failure| failure.reason() == reason).then_some(reason);
    let reason = failures.first().and_then(|failure| same(failure.reason())).unwrap_or(Reason::SourceUnreachable);
    let words: Vec<String> = failures.iter().map(|failure| crate::chain(failure)).collect();
    let message = format!("no server of the URL can be used: {}", words.join("; "));
    Err(SourceError::Connection { reason, message, source: None })
}

async fn connect(settings: &ConnectSettings, kind: SessionKind) -> Result<SqlSession, SourceError> {
    let session = SqlSession::connect(settings).await?;
    if kind == SessionKind::Any {
        return Ok(session);
    }
    let question = "SELECT pg_is_in_recovery(), current_setting('transaction_read_only') = 'on'";
    let failed = |error| from_driver("ask for the kind of server", settings, error);
    let row = session.client.query_one(question, &[]).await.map_err(failed)?;
    let (in_recovery, read_only) = (row.try_get(0).map_err(failed)?, row.try_get(1).map_err(failed)?);
    match kind.objection(in_recovery, read_only) {
        None => Ok(session),
        Some(objection) => Err(SourceError::Connection {
            reason: Reason::SourceUnreachable,
            message: format!("{} is not the kind of server that is asked for: {objection}", settings.address),
            source: None,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_objections() {
        use SessionKind as Kind;
        for (kind, in_recovery, read_only, fits) in [
            (Kind::Any, true, true, true),
            (Kind::ReadWrite, false, false, true),
            (Kind::ReadWrite, false, true, false),
            (Kind::ReadOnly, false, false, false),
            (Kind::ReadOnly, true, true, true),
            (Kind::Primary, false, true, true),
            (Kind::Primary, true, true, false),
            (Kind::Standby, true, true, true),
            (Kind::Standby, false, false, false),
        ] {
            assert_eq!(kind.objection(in_recovery, read_only).is_none(), fits, "{kind:?}");
        }
    }
}
