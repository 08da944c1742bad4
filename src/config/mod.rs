//! The configuration: one TOML file, the same tree whatever it was read from.
//!
//! Every option has one shape, a kebab-case name, and its unit in the name unless the type says it.
//!
//! ```text
//! file ──parse──▶ tree ──unknown keys, ${env:…}──▶ Config ──flags, environment──▶ validate ──▶ Config
//!        every step adds its findings; all of them are refused at once, at the end
//! ```

#[cfg(test)]
mod container;
pub mod debezium;
mod defaults;
pub mod error;
pub mod load;
pub mod names;
mod oauth;
pub mod options;
mod pattern;
mod placeholder;
mod properties;
#[cfg(test)]
mod readme;
pub mod record;
pub mod secret;
mod tree;
pub mod validate;
mod validate_record;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use debezium::Connector;
pub use error::{ConfigError, Finding};
pub use load::Overrides;
pub use names::{HeaderColumn, TableName};
pub use oauth::OauthConfig;
pub use pattern::TablePattern;
pub use record::{
    BinaryAs, DecimalAs, Delegate, ExpandEmpty, ExpandJson, HeaderFormat, KeyFormat, MissingColumns, MysqlValues,
    RecordConfig, RecordTime, TimeFormat, ValueFormat,
};
pub use validate::{OptionCheck, SinkChecks};

use secret::Secret;
#[cfg(test)]
pub(crate) use validate_record::record_findings;

/// The whole configuration.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Config {
    /// Name of the instance: default of slot and publication, client.id, key of the position record, metric label.
    pub name: String,
    /// What happens in a terminal state: stay up and red, or end with exit code 3.
    pub on_terminal: OnTerminal,
    /// Where rows come from.
    pub source: SourceConfig,
    /// Which tables are outboxes, and their columns.
    pub outbox: OutboxConfig,
    /// How a row becomes a record.
    pub record: RecordConfig,
    /// Where records go.
    pub sink: SinkConfig,
    /// Guarantees and limits of the way between.
    pub delivery: DeliveryConfig,
    /// Metrics and health.
    pub http: HttpConfig,
    /// Log output.
    pub log: LogConfig,
    /// The file that it was read from, for words that name a command.
    #[serde(skip)]
    pub file: Option<PathBuf>,
    /// Further flags without which the file cannot be loaded, for the same.
    #[serde(skip)]
    pub file_flags: Vec<String>,
    /// What of the file has no effect, or a different one than where it comes from.
    #[serde(skip)]
    pub warnings: Vec<String>,
    /// The connector whose configuration it is.
    #[serde(skip)]
    pub connector: Option<Connector>,
}

impl Config {
    /// The columns without which a row cannot become a record, each once.
    #[must_use]
    pub fn required_columns(&self) -> Vec<String> {
        let ColumnsConfig { id, key, route_by, payload, timestamp, .. } = &self.outbox.columns;
        let mut columns = vec![id.clone(), key.clone(), route_by.clone(), payload.clone()];
        columns.extend(timestamp.clone());
        if self.record.missing_columns == MissingColumns::Error {
            columns.extend(self.placed_columns());
        }
        columns.sort();
        columns.dedup();
        columns
    }

    /// The columns that become part of a record where a table has them, each once.
    #[must_use]
    pub fn optional_columns(&self) -> Vec<String> {
        let required = self.required_columns();
        let mut columns = self.placed_columns();
        columns.extend(self.outbox.columns.tracing_context.clone());
        columns.retain(|column| !required.contains(column));
        columns.sort();
        columns.dedup();
        columns
    }

    /// The columns that `record` places: headers, envelope, partition.
    fn placed_columns(&self) -> Vec<String> {
        let placed = self.record.headers.iter().chain(&self.record.envelope);
        let placed = placed.filter_map(|entry| HeaderColumn::parse(entry).ok()).map(|entry| entry.column);
        placed.chain(self.record.partition.clone()).collect()
    }
}

impl PostgresConfig {
    /// The replication slot of the instance `name`.
    #[must_use]
    pub fn slot(&self, name: &str) -> String {
        self.slot.clone().unwrap_or_else(|| names::default_object_name(name))
    }

    /// The file in which libpq looks for passwords when none is given.
    #[must_use]
    pub fn usual_passfile(&self) -> Option<PathBuf> {
        std::env::home_dir().map(|home| home.join(".pgpass"))
    }

    /// The publication of the instance `name`.
    #[must_use]
    pub fn publication(&self, name: &str) -> String {
        self.publication.clone().unwrap_or_else(|| names::default_object_name(name))
    }
}

/// What happens in a terminal state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnTerminal {
    /// Stay up, answer `/readyz` with 503 and the reason.
    #[default]
    Wait,
    /// End with exit code 3.
    Exit,
}

/// Where rows come from: exactly one of the tables.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct SourceConfig {
    /// A PostgreSQL server.
    pub postgres: Option<PostgresConfig>,
    /// A MySQL server.
    pub mysql: Option<MysqlConfig>,
    /// A MariaDB server.
    pub mariadb: Option<MysqlConfig>,
}

/// `[source.mysql]` and `[source.mariadb]`
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct MysqlConfig {
    /// Connection URL: `mysql://user@host:3306/database?sslmode=verify-full&sslrootcert=/path`. A password in it is accepted;
    /// `password-file` is better.
    #[serde(serialize_with = "secret::url")]
    pub url: Secret,
    /// The password itself, as `${env:NAME}` or `${file:PATH:KEY}`; read once.
    pub password: Option<Secret>,
    /// File whose content, without trailing line feeds, is the password. Read at each connect.
    pub password_file: Option<PathBuf>,
    /// Program and arguments that print the password, for tokens that expire. Run at each connect, for at most 10 s.
    pub password_command: Vec<String>,
    /// The relay's number among the server's replicas. Default: made from the instance's name.
    pub server_id: Option<u32>,
    /// What happens with the rows that stand in the table when no position is stored yet.
    pub start: Start,
    /// Longest time without any byte from the server, although it sends heartbeats, before the connection is given up.
    #[serde(with = "humantime_serde")]
    pub silence_timeout: Duration,
    /// Longest time for making a connection.
    #[serde(with = "humantime_serde")]
    pub connect_timeout: Duration,
}

/// What a column of ids holds, where its bytes do not tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum IdFormat {
    /// What the column's type says.
    #[default]
    Column,
    /// Sixteen bytes are a UUID.
    Uuid,
}

/// `[source.postgres]`
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct PostgresConfig {
    /// Connection URL: `postgres://user@host:5432/database?sslmode=verify-full&sslrootcert=/path`. A password in it is
    /// accepted; `password-file` is better.
    #[serde(serialize_with = "secret::url")]
    pub url: Secret,
    /// The password itself, as `${env:NAME}` or `${file:PATH:KEY}`; read once.
    pub password: Option<Secret>,
    /// File whose content, without trailing line feeds, is the password. Read at each connect.
    pub password_file: Option<PathBuf>,
    /// Program and arguments that print the password, for tokens that expire. Run at each connect, for at most 10 s.
    pub password_command: Vec<String>,
    /// Logical replication slot. Default: `outboxd_<name>`.
    pub slot: Option<String>,
    /// Publication. Default: `outboxd_<name>`.
    pub publication: Option<String>,
    /// What happens with the rows that stand in the table when there is no slot yet.
    pub start: Start,
    /// Whether a slot that is made is synchronized to standbys (PostgreSQL 17 and later).
    pub failover_slot: bool,
    /// Longest time without any byte from the server, although it was asked to answer, before the connection is given up.
    #[serde(with = "humantime_serde")]
    pub silence_timeout: Duration,
    /// Longest time for making a connection.
    #[serde(with = "humantime_serde")]
    pub connect_timeout: Duration,
}

/// What happens with the rows that stand in the table when there is no slot yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Start {
    /// Rows that stand in the table are published first, then those committed afterwards.
    #[default]
    Table,
    /// Rows that stand in the table are left alone; rows committed from now on are published.
    Now,
}

/// `[outbox]`
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct OutboxConfig {
    /// Outbox tables as `schema.table`. A part with a dot or a double quote in it is written in double quotes. With a `*`
    /// outside of double quotes: all tables that the pattern fits, those that are made later too.
    pub tables: Vec<String>,
    /// SQL condition: of the rows that stand in a table at the first start only those that fulfil it are published.
    pub start_where: Option<String>,
    /// Columns by which the rows that stand in a table at the first start are ordered. None: as they lie in the table.
    pub start_order_by: Vec<String>,
    /// What happens when a row of the outbox is updated. It is never an event.
    pub on_update: OnUpdate,
    /// Which column holds what.
    pub columns: ColumnsConfig,
}

/// What happens when a row of the outbox is updated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnUpdate {
    /// One warning and a counter.
    #[default]
    Warn,
    /// One error line and a counter.
    Error,
    /// The relay stops with reason `row_error`.
    Stop,
}

/// `[outbox.columns]`: which column holds what.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct ColumnsConfig {
    /// Column of the event id: header `id`.
    pub id: String,
    /// What that column holds: what its type says, or a UUID in 16 bytes (MySQL and MariaDB).
    pub id_format: IdFormat,
    /// Column of the record's key.
    pub key: String,
    /// Column of the value that chooses the topic.
    pub route_by: String,
    /// Column of the record's value.
    pub payload: String,
    /// Column of the record's time. Unset: `record.timestamp` says.
    pub timestamp: Option<String>,
    /// Column with a `java.util.Properties` text, whose `traceparent` and `tracestate` become headers in front of `id`.
    pub tracing_context: Option<String>,
}

/// Where records go: exactly one of the tables.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct SinkConfig {
    /// A Kafka cluster.
    pub kafka: Option<KafkaConfig>,
    /// Standard output, one JSON line per record.
    pub stdout: Option<StdoutConfig>,
}

/// `[sink.kafka]`
///
/// `Debug` shows the names of `options` without their values, since one may be a password.
#[derive(Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct KafkaConfig {
    /// Brokers to begin with, `host:port`, separated by commas.
    pub bootstrap_servers: String,
    /// Compacted topic of the position records.
    pub positions_topic: String,
    /// Whether topics that do not exist are made.
    pub create_topics: bool,
    /// Partitions of a topic that is made; unset: the broker's default.
    pub topic_partitions: Option<u32>,
    /// Replication factor of a topic that is made; unset: the broker's default.
    pub topic_replication_factor: Option<u32>,
    /// Configuration of a topic that is made.
    pub topic_config: BTreeMap<String, String>,
    /// SASL user, for PLAIN and SCRAM.
    pub sasl_username: Option<String>,
    /// SASL password itself, as `${env:NAME}` or `${file:PATH:KEY}`; read once.
    pub sasl_password: Option<Secret>,
    /// File whose content, without trailing line feeds, is the SASL password. Read at each start of a session.
    pub sasl_password_file: Option<PathBuf>,
    /// Login by a token, SASL OAUTHBEARER.
    pub oauth: OauthConfig,
    /// librdkafka's own options by their own names.
    #[serde(serialize_with = "secret::options")]
    pub options: BTreeMap<String, String>,
}

/// `[sink.stdout]`
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct StdoutConfig {
    /// File of the position record, replaced atomically.
    pub positions_file: PathBuf,
}

/// `[delivery]`
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct DeliveryConfig {
    /// How often a record may arrive.
    pub guarantee: Guarantee,
    /// What happens with a row that can never be published.
    pub on_row_error: OnRowError,
    /// Bound of what is read and not yet acknowledged, in bytes.
    pub window_bytes: u64,
    /// How often the position is made durable and confirmed while it moves.
    #[serde(with = "humantime_serde")]
    pub position_interval: Duration,
    /// Longest wait for acknowledgements when the relay is asked to stop.
    #[serde(with = "humantime_serde")]
    pub shutdown_timeout: Duration,
}

/// How often a record may arrive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Guarantee {
    /// Once or more; the header `id` tells repeats.
    #[default]
    AtLeastOnce,
    /// Records and position in one Kafka transaction. Not available in this version: [`validate`] refuses it.
    ExactlyOnce,
}

/// What happens with a row that can never be published.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnRowError {
    /// The position stays before it and the relay is red.
    #[default]
    Stop,
    /// It goes to a topic of its own. Not available in this version: [`validate`] refuses it.
    DeadLetter,
    /// It is counted and left out. Not available in this version: [`validate`] refuses it.
    Skip,
}

/// `[http]`
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct HttpConfig {
    /// Address of `/metrics`, `/healthz` and `/readyz`; empty: no listener.
    pub listen: String,
}

impl HttpConfig {
    /// The address to listen on; `None`: no listener. [`validate`] has seen to it that a text is an address.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.listen.parse().ok()
    }
}

/// `[log]`
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct LogConfig {
    /// `text` for a terminal, `json` for a collector.
    pub format: LogFormat,
    /// Level, or a filter such as `info,outboxd::sink=debug`.
    pub level: String,
}

/// Form of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    /// Lines for people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}
