//! What the configuration says about a MySQL or MariaDB server, ready for connecting.

use std::path::PathBuf;
use std::time::Duration;

use super::layout::{Special, Wanted};
use super::url::{self, Address, UrlError};
use crate::config::secret::Secret;
use crate::config::{Config, IdFormat, MysqlConfig, MysqlValues, Start, TableName, names};
use crate::position::BinlogPosition;
use crate::source::SourceError;
use crate::source::password::{from_command, from_file};
use crate::tls::TlsSettings;

/// Which of the two it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flavour {
    /// MySQL, or a server that says it is.
    #[default]
    Mysql,
    /// MariaDB.
    Mariadb,
}

impl Flavour {
    /// The name of its table in the configuration.
    #[must_use]
    pub fn option(self) -> &'static str {
        match self {
            Self::Mysql => "mysql",
            Self::Mariadb => "mariadb",
        }
    }

    /// Its name for a person.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::Mysql => "MySQL",
            Self::Mariadb => "MariaDB",
        }
    }
}

/// How to reach the server.
#[derive(Clone, Debug)]
pub(super) struct ConnectSettings {
    pub flavour: Flavour,
    pub address: Address,
    pub user: String,
    pub tls: TlsSettings,
    /// Longest time for making a connection.
    pub timeout: Duration,
    password: PasswordSource,
}

/// All that may hold it. The first that is set counts.
#[derive(Clone, Debug)]
struct PasswordSource {
    command: Vec<String>,
    file: Option<PathBuf>,
    given: Option<Secret>,
}

impl ConnectSettings {
    /// Collects them.
    pub(super) fn new(mysql: &MysqlConfig, flavour: Flavour) -> Result<Self, UrlError> {
        let url = url::parse(mysql.url.expose(), flavour.option())?;
        Ok(Self {
            flavour,
            address: url.address,
            user: url.user,
            tls: url.tls,
            timeout: mysql.connect_timeout,
            password: PasswordSource {
                command: mysql.password_command.clone(),
                file: mysql.password_file.clone(),
                given: mysql.password.clone().or(url.password),
            },
        })
    }

    /// An option of the source by its full name.
    pub(super) fn option(&self, key: &str) -> String {
        format!("source.{}.{key}", self.flavour.option())
    }

    /// The password as it is now; `None` if none is set.
    pub(super) async fn password(&self) -> Result<Option<Secret>, SourceError> {
        let source = &self.password;
        if let Some((program, arguments)) = source.command.split_first() {
            return from_command(program, arguments, &self.option("password-command")).await.map(Some);
        }
        match &source.file {
            Some(path) => from_file(path, &self.option("password-file")).await.map(Some),
            None => Ok(source.given.clone()),
        }
    }
}

/// All that the source needs of the configuration.
#[derive(Clone, Debug)]
pub struct MysqlSettings {
    /// How to reach the server.
    pub(super) connect: ConnectSettings,
    /// Instance name: the key of the position record, and the name of the lock.
    pub instance: String,
    /// Configuration file, if there is one: commands are named with it.
    pub file: Option<PathBuf>,
    /// The relay's number among the server's replicas.
    pub server_id: u32,
    /// What happens with the rows that stand in the table when no position is stored yet.
    pub start: Start,
    /// Longest silence of the server before the connection is given up.
    pub silence_timeout: Duration,
    /// The outbox tables.
    pub tables: Vec<TableName>,
    /// The columns that every outbox table must have.
    pub columns: Vec<String>,
    /// Further columns that become headers where a table has them.
    pub optional_columns: Vec<String>,
    /// The column with the event's id.
    pub id_column: String,
    /// The column whose sixteen bytes are a UUID.
    pub uuid_column: Option<String>,
    /// Whose form values have.
    pub values: MysqlValues,
    /// Whether a Debezium connector may have published before.
    pub follows_connector: bool,
    /// Which of the rows that stand in a table are published at the first start.
    pub start_where: Option<String>,
    /// By what those rows are ordered.
    pub start_order_by: Vec<String>,
}

impl MysqlSettings {
    /// Collects them.
    ///
    /// # Errors
    /// [`UrlError`]
    pub fn new(config: &Config, mysql: &MysqlConfig, flavour: Flavour) -> Result<Self, UrlError> {
        let database = url::parse(mysql.url.expose(), flavour.option())?.database;
        Ok(Self {
            connect: ConnectSettings::new(mysql, flavour)?,
            instance: config.name.clone(),
            file: config.file.clone(),
            server_id: mysql.server_id.unwrap_or_else(|| default_server_id(&config.name)),
            start: mysql.start,
            silence_timeout: mysql.silence_timeout,
            tables: tables(config, database.as_deref()),
            columns: config.required_columns(),
            optional_columns: config.optional_columns(),
            id_column: config.outbox.columns.id.clone(),
            uuid_column: (config.outbox.columns.id_format == IdFormat::Uuid).then(|| config.outbox.columns.id.clone()),
            values: config.record.mysql_values,
            follows_connector: config.connector.is_some(),
            start_where: config.outbox.start_where.clone(),
            start_order_by: config.outbox.start_order_by.clone(),
        })
    }

    /// The columns that are read; those whose type the log does not tell were read when it ended at `known_at`.
    pub(super) fn wanted(&self, special: Vec<Special>, known_at: &BinlogPosition) -> Wanted {
        Wanted {
            flavour: self.flavour(),
            columns: self.columns.iter().chain(&self.optional_columns).cloned().collect(),
            id: self.id_column.clone(),
            uuid: self.uuid_column.clone(),
            values: self.values,
            special,
            known_at: Some(known_at.clone()),
        }
    }

    /// Which of the two kinds of server it is.
    #[must_use]
    pub fn flavour(&self) -> Flavour {
        self.connect.flavour
    }

    /// A command on this instance, as it is typed.
    #[must_use]
    pub fn command(&self, words: &str) -> String {
        names::command(self.file.as_deref(), &[], words)
    }

    /// How a person leaves a terminal state, knowing the gap.
    pub(super) fn leave_hint(&self) -> String {
        format!(
            "find out whether consumers lack events of the gap, and have the application write those again; then stop the \
             relay, run {}, and start it again",
            self.command("resume --from now")
        )
    }
}

/// The tables; the default's schema is PostgreSQL's, so here it is the URL's database.
fn tables(config: &Config, database: Option<&str>) -> Vec<TableName> {
    let is_default = config.outbox.tables == crate::config::OutboxConfig::default().tables;
    match database {
        Some(database) if is_default => vec![TableName { schema: database.to_owned(), table: "outbox".to_owned() }],
        _ => config.outbox.tables.iter().filter_map(|name| TableName::parse(name).ok()).collect(),
    }
}

/// A number that two instances of different names hardly share, far from those that people choose (FNV-1a).
fn default_server_id(name: &str) -> u32 {
    const BASE: u32 = 1 << 31;
    let hash = name.bytes().fold(0x811C_9DC5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    BASE | hash
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(url: &str, change: impl FnOnce(&mut Config)) -> MysqlSettings {
        let mut config = Config::default();
        change(&mut config);
        let mysql = MysqlConfig { url: Secret::new(url), ..MysqlConfig::default() };
        MysqlSettings::new(&config, &mysql, Flavour::Mysql).unwrap()
    }

    #[test]
    fn the_default_table_is_in_the_urls_database() {
        let plain = |settings: &MysqlSettings| settings.tables[0].plain();
        assert_eq!(plain(&settings("mysql://u@h/shop", |_| {})), "shop.outbox");
        assert_eq!(plain(&settings("mysql://u@h/shop", |config| config.outbox.tables = vec!["a.b".into()])), "a.b");
        assert_eq!(plain(&settings("mysql://u@h", |_| {})), "public.outbox");
    }

    #[test]
    fn server_ids_follow_from_names() {
        let of = |name: &str| settings("mysql://u@h/d", |config| config.name = name.to_owned()).server_id;
        assert_eq!(of("shop"), of("shop"));
        assert!(of("shop") != of("shop2") && of("shop") >= 1 << 31);
    }
}
