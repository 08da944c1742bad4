//! What the configuration says about a PostgreSQL server, ready for connecting.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::address::{Address, SessionKind};
use super::password::PasswordSource;
use super::url::{self, ChannelBinding, UrlError};
use crate::config::names::{self, MAX_IDENTIFIER_BYTES};
use crate::config::{Config, PostgresConfig, Start, TableName, TablePattern};
use crate::route::TableCheck;
use crate::tls::TlsSettings;

/// How to reach the server.
#[derive(Clone, Debug)]
pub struct ConnectSettings {
    /// Where to connect to; with several servers the one that was chosen.
    pub address: Address,
    /// All that the URL names, in the order in which they are tried.
    pub addresses: Vec<Address>,
    /// Which of them is wanted.
    pub target: SessionKind,
    /// Role to log in as.
    pub user: String,
    /// Database name.
    pub database: String,
    /// Where the password comes from.
    pub(super) password: PasswordSource,
    /// Protection of the connection.
    pub tls: TlsSettings,
    /// Whether the login has to be bound to it.
    pub channel_binding: ChannelBinding,
    /// `application_name`: tells our own sessions from others'.
    pub application_name: String,
    /// Longest time for making a connection to one server.
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
    /// Further flags that belong to the file.
    pub file_flags: Vec<String>,
}

impl Names {
    /// The slot that lives as long as the first read of the tables. Its name is fixed, so that of two instances only one
    /// reads.
    #[must_use]
    pub fn temporary_slot(&self) -> String {
        self.slot_beside("_first_read")
    }

    /// A slot with this at the end of its name.
    #[must_use]
    pub(super) fn slot_beside(&self, suffix: &str) -> String {
        let stem: String = self.slot.chars().take(MAX_IDENTIFIER_BYTES - suffix.len()).collect();
        format!("{stem}{suffix}")
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
        names::command(self.file.as_deref(), &self.file_flags, words)
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
    /// The outbox tables that are configured by name.
    pub tables: Vec<TableName>,
    /// Patterns of further ones.
    pub patterns: Vec<TablePattern>,
    /// The tables that the patterns fitted when the server was reached.
    pub found: Vec<TableName>,
    /// The columns that every outbox table must have.
    pub columns: Vec<String>,
    /// Further columns that become headers where a table has them.
    pub optional_columns: Vec<String>,
    /// Which of the rows that stand in a table are published at the first start.
    pub start_where: Option<String>,
    /// By what those rows are ordered.
    pub start_order_by: Vec<String>,
    /// What the columns' types have to be.
    pub types: Arc<TableCheck>,
}

impl PostgresSettings {
    /// Collects them.
    ///
    /// # Errors
    /// [`UrlError`]
    pub fn new(config: &Config, postgres: &PostgresConfig) -> Result<Self, UrlError> {
        let slot = postgres.slot(&config.name);
        let (patterns, names): (Vec<_>, Vec<_>) =
            config.outbox.tables.iter().partition(|text| TablePattern::is_one(text));
        let (patterns, names) = (patterns.into_iter(), names.into_iter());
        Ok(Self {
            connect: ConnectSettings::new(postgres, &names::default_object_name(&config.name))?,
            names: Names {
                instance: config.name.clone(),
                slot,
                publication: postgres.publication(&config.name),
                file: config.file.clone(),
                file_flags: config.file_flags.clone(),
            },
            start: postgres.start,
            failover_slot: postgres.failover_slot,
            silence_timeout: postgres.silence_timeout,
            tables: names.filter_map(|name| TableName::parse(name).ok()).collect(),
            patterns: patterns.filter_map(|text| TablePattern::parse(text).ok()).collect(),
            found: Vec::new(),
            columns: config.required_columns(),
            optional_columns: config.optional_columns(),
            start_where: config.outbox.start_where.clone(),
            start_order_by: config.outbox.start_order_by.clone(),
            types: Arc::new(TableCheck::new(config)),
        })
    }
}

impl PostgresSettings {
    /// The tables that are known: those configured by name, and those that patterns fitted.
    pub(super) fn all_tables(&self) -> impl Iterator<Item = &TableName> {
        self.tables.iter().chain(&self.found)
    }

    /// Whether a pattern fits the table.
    #[must_use]
    pub(super) fn is_matched(&self, table: &TableName) -> bool {
        self.patterns.iter().any(|pattern| pattern.matches(&table.schema, &table.table))
    }
}

impl ConnectSettings {
    /// The same for one of the servers.
    pub(super) fn at(&self, address: &Address) -> Self {
        Self { address: address.clone(), ..self.clone() }
    }

    /// Reads the URL.
    ///
    /// # Errors
    /// [`UrlError`] names the part that is wrong and never shows the password.
    pub fn new(config: &PostgresConfig, application_name: &str) -> Result<Self, UrlError> {
        let parsed = url::parse(config.url.expose())?;
        let address = parsed.addresses.first().cloned().unwrap_or_else(|| Address::new(String::new(), 0));
        Ok(Self {
            address,
            addresses: parsed.addresses,
            target: parsed.target,
            user: parsed.user,
            database: parsed.database,
            password: PasswordSource {
                command: config.password_command.clone(),
                file: config.password_file.clone(),
                given: config.password.clone().or(parsed.password),
                passfile: parsed.passfile,
                usual_passfile: config.usual_passfile(),
            },
            tls: parsed.tls,
            channel_binding: parsed.channel_binding,
            application_name: application_name.to_owned(),
            timeout: config.connect_timeout,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_can_be_typed_as_they_are_named() {
        let mut names = Names {
            instance: "a".into(),
            slot: "b".into(),
            publication: "c".into(),
            file: Some("/etc/o.toml".into()),
            file_flags: Vec::new(),
        };
        assert_eq!(names.resume_command("now"), "outboxd resume --from now --config /etc/o.toml");
        names.file_flags = ["--worker-config", "w.properties"].map(str::to_owned).to_vec();
        assert_eq!(names.command("run"), "outboxd run --config /etc/o.toml --worker-config w.properties");
        names.file_flags.clear();
        names.file = Some("my file's.toml".into());
        assert_eq!(names.command("check"), r"outboxd check --config 'my file'\''s.toml'");
        names.file = None;
        assert!(names.command("check").starts_with("outboxd check (with the flags"));
    }
}
