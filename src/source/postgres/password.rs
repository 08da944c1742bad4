//! Where the password comes from, anew for each connection: so a changed one is taken without a restart.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tracing::warn;

use super::address::Address;
use super::settings::ConnectSettings;
use crate::config::secret::Secret;
use crate::source::SourceError;
use crate::source::password::{from_command, from_file, refuse};

/// All that may hold it. The first that is set counts.
#[derive(Clone, Debug, Default)]
pub(super) struct PasswordSource {
    /// Program and arguments; it prints the password.
    pub command: Vec<String>,
    /// The file whose content is the password.
    pub file: Option<PathBuf>,
    /// The URL's.
    pub url: Option<Secret>,
    /// A file as libpq reads it, named in the URL.
    pub passfile: Option<PathBuf>,
    /// The same at its usual place, where it may be missing.
    pub usual_passfile: Option<PathBuf>,
}

impl ConnectSettings {
    /// The password as it is now; `None` if none is set.
    ///
    /// # Errors
    /// What is set for it cannot be read.
    pub(super) async fn password(&self) -> Result<Option<Secret>, SourceError> {
        let source = &self.password;
        if let Some((program, arguments)) = source.command.split_first() {
            return from_command(program, arguments, "source.postgres.password-command").await.map(Some);
        }
        if let Some(path) = &source.file {
            return from_file(path, "source.postgres.password-file").await.map(Some);
        }
        if source.url.is_some() {
            return Ok(source.url.clone());
        }
        let Some(path) = source.passfile.as_ref().or(source.usual_passfile.as_ref()) else { return Ok(None) };
        match read_passfile(path).await {
            Ok(text) => Ok(find(&text, &self.address, &self.database, &self.user).map(Secret::new)),
            Err(error) if source.passfile.is_some() => {
                let message = format!("could not read the password file \"{}\": {error}", path.display());
                Err(refuse(message, "correct passfile in option \"source.postgres.url\"".to_owned()))
            }
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    warn!(path = %path.display(), %error, "did not use the password file");
                }
                Ok(None)
            }
        }
    }
}

async fn read(path: &Path) -> io::Result<String> {
    tokio::fs::read_to_string(path).await
}

/// Reads a password file of libpq, unless others may read it too (PostgreSQL manual, "The Password File").
async fn read_passfile(path: &Path) -> io::Result<String> {
    let metadata = tokio::fs::metadata(path).await?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is not a plain file"));
    }
    if metadata.permissions().mode() & 0o077 != 0 {
        return Err(io::Error::other("group or others have access to it; permissions should be u=rw (0600) or less"));
    }
    read(path).await
}

/// The password of the first line that fits: `host:port:database:user:password`.
fn find(text: &str, address: &Address, database: &str, user: &str) -> Option<String> {
    let (host, port) = match address {
        Address::Tcp { host, port } => (host.clone(), port),
        Address::Unix { folder, port } => (folder.display().to_string(), port),
    };
    // libpq's name for a socket in its usual folder, which differs by distribution
    let is_usual = matches!(host.as_str(), "/tmp" | "/run/postgresql" | "/var/run/postgresql");
    let port = port.to_string();
    text.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let mut rest = line.trim_end_matches('\r');
        for wanted in [host.as_str(), &port, database, user] {
            let (pattern, tail) = field(rest)?;
            let fits = pattern
                .is_none_or(|pattern| pattern == wanted || (is_usual && wanted == host && pattern == "localhost"));
            if !fits {
                return None;
            }
            rest = tail;
        }
        Some(unescape(rest))
    })
}

/// The first field, `None` for `*`, and what follows its colon.
fn field(line: &str) -> Option<(Option<String>, &str)> {
    let mut is_escaped = false;
    let end = line.char_indices().find(|(_, c)| {
        let ends = *c == ':' && !is_escaped;
        is_escaped = *c == '\\' && !is_escaped;
        ends
    });
    let (field, rest) = line.split_at_checked(end?.0)?;
    Some(((field != "*").then(|| unescape(field)), rest.strip_prefix(':')?))
}

/// Takes away the backslashes that protect colons and backslashes.
fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        out.push(if c == '\\' { rest.next().unwrap_or('\\') } else { c });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str, host: &str) -> Option<String> {
        find(text, &Address::new(host.to_owned(), 5432), "shop", "app")
    }

    #[test]
    fn the_first_line_that_fits_counts() {
        let text = "# comment\nother:*:*:*:no\n\ndb:5433:*:*:no\ndb:5432:shop:app:first\n*:*:*:*:second\r\n";
        assert_eq!(found(text, "db").as_deref(), Some("first"));
        assert_eq!(found(text, "elsewhere").as_deref(), Some("second"));
        assert_eq!(found("db:*:*:other:no\nbroken", "db"), None);
    }

    #[test]
    fn colons_and_backslashes_are_escaped() {
        assert_eq!(found("\\:\\:1:*:*:app:a\\:b\\\\c:d", "::1").as_deref(), Some("a:b\\c:d"));
        assert_eq!(found("\\*:*:*:*:no", "db"), None);
    }

    #[test]
    fn a_socket_is_its_folder_or_localhost() {
        assert_eq!(found("localhost:*:*:*:yes", "/tmp").as_deref(), Some("yes"));
        assert_eq!(found("/run/pg:*:*:*:yes", "/run/pg").as_deref(), Some("yes"));
        assert_eq!(found("localhost:*:*:*:no", "/run/pg"), None);
    }

    #[tokio::test]
    async fn a_file_that_others_may_read_is_not_used() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pgpass");
        std::fs::write(&path, "x").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        assert!(read_passfile(&path).await.unwrap_err().to_string().contains("0600"));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(read_passfile(&path).await.unwrap(), "x");
        assert!(read_passfile(dir.path()).await.is_err());
    }
}
