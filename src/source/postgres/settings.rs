//! What the configuration says about a PostgreSQL server, ready for connecting.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use tokio_postgres::config::Host;

use crate::config::names::{self, MAX_IDENTIFIER_BYTES};
use crate::config::secret::Secret;
use crate::config::{Config, PostgresConfig, Start, TableName};
use crate::tls::SslMode;

/// A host and port to connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Host name or address.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// How to reach the server.
#[derive(Clone, Debug)]
pub struct ConnectSettings {
    /// Where it listens.
    pub address: Address,
    /// Role to log in as.
    pub user: String,
    /// Database name.
    pub database: String,
    /// Password of the URL.
    password: Option<Secret>,
    /// File of the password, read at each connect; it wins over the URL's.
    password_file: Option<PathBuf>,
    /// Protection of the connection.
    pub ssl_mode: SslMode,
    /// PEM file of certificate authorities.
    pub ssl_roots: Option<PathBuf>,
    /// `application_name`: tells our own sessions from others'.
    pub application_name: String,
    /// Longest time for making a connection.
    pub timeout: Duration,
}

/// Names of what belongs to the instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// Instance name: the key of the position record.
    pub instance: String,
    /// Replication slot.
    pub slot: String,
    /// Publication.
    pub publication: String,
    /// Configuration file, if there is one: commands are named with it.
    pub file: Option<PathBuf>,
}

impl Names {
    /// The slot that lives as long as the first read of the tables. Its name is fixed, so that of two instances only one
    /// reads.
    #[must_use]
    pub fn temporary_slot(&self) -> String {
        const SUFFIX: &str = "_first_read";
        let stem: String = self.slot.chars().take(MAX_IDENTIFIER_BYTES - SUFFIX.len()).collect();
        format!("{stem}{SUFFIX}")
    }

    /// How a person leaves a terminal state, knowing the gap.
    #[must_use]
    pub fn leave_hint(&self) -> String {
        format!(
            "find out whether consumers lack events of the gap, and have the application write those again; then stop the \
             relay, run {}, and start it again",
            self.resume_command("now")
        )
    }

    /// The command that goes on from somewhere, as it is typed.
    #[must_use]
    pub fn resume_command(&self, from: &str) -> String {
        self.command(&format!("resume --from {from}"))
    }

    /// A command on this instance, as it is typed.
    #[must_use]
    pub fn command(&self, words: &str) -> String {
        match &self.file {
            Some(file) => format!("outboxd {words} --config {}", shell_word(&file.display().to_string())),
            None => format!("outboxd {words} (with the flags and variables of this instance)"),
        }
    }
}

/// A text as one word for a shell.
fn shell_word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%,=".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

/// All that the source needs of the configuration.
#[derive(Clone, Debug)]
pub struct PostgresSettings {
    /// How to reach the server.
    pub connect: ConnectSettings,
    /// Names of what belongs to the instance.
    pub names: Names,
    /// What happens with the rows that stand in the table when there is no slot yet.
    pub start: Start,
    /// Whether a slot that is made is synchronized to standbys.
    pub failover_slot: bool,
    /// Longest silence of the server before the connection is given up.
    pub silence_timeout: Duration,
    /// The outbox tables.
    pub tables: Vec<TableName>,
    /// The columns that every outbox table must have.
    pub columns: Vec<String>,
    /// Further columns that become headers where a table has them.
    pub optional_columns: Vec<String>,
    /// Which of the rows that stand in a table are published at the first start.
    pub start_where: Option<String>,
    /// By what those rows are ordered.
    pub start_order_by: Vec<String>,
}

impl PostgresSettings {
    /// Collects them.
    ///
    /// # Errors
    /// [`UrlError`]
    pub fn new(config: &Config, postgres: &PostgresConfig) -> Result<Self, UrlError> {
        let slot = postgres.slot(&config.name);
        Ok(Self {
            connect: ConnectSettings::new(postgres, &names::default_object_name(&config.name))?,
            names: Names {
                instance: config.name.clone(),
                slot,
                publication: postgres.publication(&config.name),
                file: config.file.clone(),
            },
            start: postgres.start,
            failover_slot: postgres.failover_slot,
            silence_timeout: postgres.silence_timeout,
            tables: config.outbox.tables.iter().filter_map(|name| TableName::parse(name).ok()).collect(),
            columns: config.required_columns(),
            optional_columns: config.optional_columns(),
            start_where: config.outbox.start_where.clone(),
            start_order_by: config.outbox.start_order_by.clone(),
        })
    }
}

/// The URL cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("option \"source.postgres.url\": {0}")]
pub struct UrlError(String);

impl ConnectSettings {
    /// Reads the URL. The parameters of TLS are taken here, since the driver's parser does not know `verify-ca` and
    /// `verify-full`; everything else is the driver's to parse.
    ///
    /// # Errors
    /// [`UrlError`] names the part that is wrong and never shows the password.
    pub fn new(config: &PostgresConfig, application_name: &str) -> Result<Self, UrlError> {
        let (url, ssl_mode, ssl_roots) = split_ssl(config.url.expose())?;
        // the driver's message names the key and not its value, so no password can be in it
        let parsed = tokio_postgres::Config::from_str(&url)
            .map_err(|error| UrlError(format!("it cannot be read: {}", crate::chain(&error))))?;
        let host = match parsed.get_hosts() {
            [Host::Tcp(host)] => host.clone(),
            #[cfg(unix)]
            [Host::Unix(_)] => return Err(UrlError("Unix sockets are not available in this version".to_owned())),
            [] => return Err(UrlError("it names no host".to_owned())),
            _ => return Err(UrlError("more than one host is not available in this version".to_owned())),
        };
        let port = parsed.get_ports().first().copied().unwrap_or(5432);
        let user =
            parsed.get_user().filter(|user| !user.is_empty()).ok_or_else(|| UrlError("it names no user".to_owned()))?;
        let password = parsed.get_password().map(|bytes| Secret::new(String::from_utf8_lossy(bytes)));
        Ok(Self {
            address: Address { host, port },
            user: user.to_owned(),
            database: parsed.get_dbname().unwrap_or(user).to_owned(),
            password,
            password_file: config.password_file.clone(),
            ssl_mode,
            ssl_roots,
            application_name: application_name.to_owned(),
            timeout: config.connect_timeout,
        })
    }

    /// The password as it is now.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn password(&self) -> Result<Option<Secret>, std::io::Error> {
        let Some(path) = &self.password_file else { return Ok(self.password.clone()) };
        let text = std::fs::read_to_string(path)
            .map_err(|error| std::io::Error::new(error.kind(), format!("\"{}\": {error}", path.display())))?;
        Ok(Some(Secret::new(text.trim_end_matches(['\r', '\n']))))
    }
}

/// Takes the parameters of TLS out of the URL.
fn split_ssl(url: &str) -> Result<(String, SslMode, Option<PathBuf>), UrlError> {
    let (base, query) = url.split_once('?').unwrap_or((url, ""));
    let (mut mode, mut roots, mut rest) = (SslMode::Prefer, None, Vec::new());
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        match key {
            "sslmode" => {
                mode = SslMode::parse(value).ok_or_else(|| {
                    UrlError(format!(
                        "unknown sslmode \"{value}\": expected disable, prefer, require, verify-ca or verify-full"
                    ))
                })?;
            }
            "sslrootcert" => roots = Some(PathBuf::from(percent_decode(value)?)),
            "sslcert" | "sslkey" => {
                return Err(UrlError(format!("client certificates (\"{key}\") are not available in this version")));
            }
            // ours, so that instances know each other
            "application_name" => return Err(UrlError("\"application_name\" is set by the relay".to_owned())),
            _ => rest.push(pair),
        }
    }
    let url = if rest.is_empty() { base.to_owned() } else { format!("{base}?{}", rest.join("&")) };
    Ok((url, mode, roots))
}

fn percent_decode(text: &str) -> Result<String, UrlError> {
    let wrong = || UrlError("a value has a broken %-escape".to_owned());
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|b| char::from(b).to_digit(16)).ok_or_else(wrong);
        let value = digit()? * 16 + digit()?;
        bytes.push(u8::try_from(value).map_err(|_| wrong())?);
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(url: &str) -> Result<ConnectSettings, UrlError> {
        let config = PostgresConfig { url: Secret::new(url), ..PostgresConfig::default() };
        ConnectSettings::new(&config, "outboxd_test")
    }

    #[test]
    fn commands_can_be_typed_as_they_are_named() {
        let mut names =
            Names { instance: "a".into(), slot: "b".into(), publication: "c".into(), file: Some("/etc/o.toml".into()) };
        assert_eq!(names.resume_command("now"), "outboxd resume --from now --config /etc/o.toml");
        names.file = Some("my file's.toml".into());
        assert_eq!(names.command("check"), r"outboxd check --config 'my file'\''s.toml'");
        names.file = None;
        assert!(names.command("check").starts_with("outboxd check (with the flags"));
    }

    #[test]
    fn reads_all_parts() {
        let read = settings("postgres://al%40x:p%2fw@db.internal:6432/shop?sslmode=verify-full&sslrootcert=/a%20b.pem");
        let read = read.unwrap();
        assert_eq!(read.address.to_string(), "db.internal:6432");
        assert_eq!((read.user.as_str(), read.database.as_str()), ("al@x", "shop"));
        assert_eq!(read.password().unwrap().unwrap().expose(), "p/w");
        assert_eq!(read.ssl_mode, SslMode::VerifyFull);
        assert_eq!(read.ssl_roots, Some(PathBuf::from("/a b.pem")));
    }

    #[test]
    fn the_database_defaults_to_the_user_and_tls_to_prefer() {
        let read = settings("postgresql://app@localhost").unwrap();
        assert_eq!((read.database.as_str(), read.address.port, read.ssl_mode), ("app", 5432, SslMode::Prefer));
    }

    #[test]
    fn says_what_is_wrong_without_the_password() {
        for (url, words) in [
            ("postgres://u:geheim@h/d?sslmode=maybe", "unknown sslmode \"maybe\""),
            ("postgres://u:geheim@h:99999/d", "cannot be read"),
            ("postgres://u:geheim@h/d?colour=red", "colour"),
            ("postgres://:geheim@h/d", "no user"),
            ("postgres://u:geheim@a,b/d", "more than one host"),
            ("mysql://u:geheim@h/d", "cannot be read"),
        ] {
            let error = settings(url).unwrap_err().to_string();
            assert!(error.contains(words), "{url}: {error}");
            assert!(!error.contains("geheim"), "{error}");
        }
    }
}
