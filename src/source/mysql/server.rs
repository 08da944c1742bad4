//! What a server is and how it is set: read once for each session, before anything else.

use std::collections::HashMap;

use super::charset;
use super::client::{Client, TextRow, run};
use super::error::{grants, refuse};
use super::layout::{Special, SpecialKind};
use super::settings::{Flavour, MysqlSettings};
use crate::change::ColumnType;
use crate::config::{MysqlValues, Start, TableName};
use crate::finding::Finding;
use crate::gtid::{Gtids, MariadbGtids, MysqlGtids};
use crate::position::BinlogPosition;
use crate::sink::positions::SourceIdentity;
use crate::source::SourceError;
use crate::source::mysql::error::unreachable;
use crate::state::Reason;

/// Variables that are looked at.
const VARIABLES: &[&str] = &[
    "binlog_expire_logs_seconds",
    "binlog_format",
    "binlog_row_image",
    "binlog_row_metadata",
    "binlog_row_value_options",
    "gtid_mode",
    "log_bin",
    "log_replica_updates",
    "log_slave_updates",
    "lower_case_table_names",
    "rpl_semi_sync_master_enabled",
    "rpl_semi_sync_source_enabled",
    "server_id",
    "server_uuid",
    "sync_binlog",
];

/// A server as it was when it was asked.
#[derive(Clone, Debug)]
pub(super) struct Server {
    pub flavour: Flavour,
    /// The version as the server says it.
    pub version: String,
    variables: HashMap<String, String>,
    /// Where its log ends.
    pub end: BinlogPosition,
    /// The files of its log with their lengths, oldest first.
    logs: Vec<(String, u64)>,
    /// Databases that alone are written to the log; none: all.
    only: Vec<String>,
    /// Databases that are left out of the log.
    except: Vec<String>,
}

/// How GTIDs are switched on.
pub(super) const GTIDS_ON: &str =
    "SET PERSIST enforce_gtid_consistency = ON; then gtid_mode by steps: OFF_PERMISSIVE, ON_PERMISSIVE, ON";

/// What `SHOW BINARY LOG STATUS` says.
struct Status {
    file: String,
    offset: u64,
    only: Vec<String>,
    except: Vec<String>,
}

impl Server {
    /// Asks the server.
    ///
    /// # Errors
    /// It cannot be asked, or is another kind of server than is configured, or has no binary log.
    pub(super) async fn inspect(client: &mut Client, settings: &MysqlSettings) -> Result<Self, SourceError> {
        let connect = &settings.connect;
        let flavour = if client.version.contains("MariaDB") { Flavour::Mariadb } else { Flavour::Mysql };
        if flavour != connect.flavour {
            return Err(refuse(
                format!("the server {} is {} ({})", connect.address, flavour.title(), client.version),
                format!(
                    "name the table [source.{}] in place of [source.{}]",
                    flavour.option(),
                    connect.flavour.option()
                ),
            ));
        }
        let names: Vec<String> = VARIABLES.iter().map(|name| format!("'{name}'")).collect();
        let sql = format!("SHOW GLOBAL VARIABLES WHERE Variable_name IN ({})", names.join(", "));
        let mut variables = HashMap::new();
        for row in run(client, connect, "read the server's settings", &sql).await? {
            let mut texts = texts(row).into_iter();
            if let (Some(name), Some(value)) = (texts.next(), texts.next()) {
                variables.insert(name.to_ascii_lowercase(), value);
            }
        }
        let version = client.version.clone();
        let end = BinlogPosition::new(Gtids::Mysql(MysqlGtids::default()), String::new(), 0);
        let (logs, only, except) = (Vec::new(), Vec::new(), Vec::new());
        let mut server = Self { flavour, version, variables, end, logs, only, except };
        if server.is_on("log_bin") {
            server.see_end(client, settings).await?;
        }
        Ok(server)
    }

    /// Waits for transactions to be committed, for longer than a replica is waited for by default, and looks where the log
    /// ends then.
    pub(super) async fn wait_for(
        &mut self,
        client: &mut Client,
        settings: &MysqlSettings,
        gtids: &str,
    ) -> Result<(), SourceError> {
        const SECONDS: u32 = 25;
        let sql = format!("SELECT WAIT_FOR_EXECUTED_GTID_SET({}, {SECONDS})", literal(gtids));
        run(client, &settings.connect, "wait for transactions that are being committed", &sql).await?;
        self.see_end(client, settings).await
    }

    /// Looks where the log ends now, and which files it has.
    pub(super) async fn see_end(&mut self, client: &mut Client, settings: &MysqlSettings) -> Result<(), SourceError> {
        self.logs = self.files(client, settings).await?;
        // before the place: what it holds is then before it
        let gtids = self.gtids(client, settings).await?;
        let status = self.status(client, settings).await?;
        self.end = BinlogPosition::new(gtids, status.file, status.offset);
        self.only = status.only;
        self.except = status.except;
        if self.flavour == Flavour::Mysql {
            let purged = self.one(client, settings, "SELECT @@GLOBAL.gtid_purged").await?;
            self.variables.insert("gtid_purged".to_owned(), purged);
        }
        Ok(())
    }

    /// The place where the log ends now.
    pub(super) async fn log_end(
        &self,
        client: &mut Client,
        settings: &MysqlSettings,
    ) -> Result<BinlogPosition, SourceError> {
        let status = self.status(client, settings).await?;
        Ok(BinlogPosition::new(self.no_gtids(), status.file, status.offset))
    }

    /// Where the log ends, and what is kept out of it.
    async fn status(&self, client: &mut Client, settings: &MysqlSettings) -> Result<Status, SourceError> {
        // the words changed in MySQL 8.2, and the old ones went in 8.4
        let is_new = self.flavour == Flavour::Mysql && self.version_number() >= (8, 2);
        let sql = if is_new { "SHOW BINARY LOG STATUS" } else { "SHOW MASTER STATUS" };
        let rows = run(client, &settings.connect, "see where the binary log ends", sql).await?;
        let mut row = rows.into_iter().next().map(texts).unwrap_or_default().into_iter();
        let mut next = || row.next().unwrap_or_default();
        let (file, offset, only, except) = (next(), next(), next(), next());
        let list = |text: String| -> Vec<String> {
            text.split(',').map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect()
        };
        if file.is_empty() {
            return Err(refuse(
                "the server tells no place in its binary log",
                format!("have an administrator run: {}", grants(self.flavour, &settings.connect.user)),
            ));
        }
        let offset = offset.parse().map_err(|error| unreachable("the place in the binary log is no number", error));
        Ok(Status { file, offset: offset?, only: list(only), except: list(except) })
    }

    /// The files of the log.
    async fn files(&self, client: &mut Client, settings: &MysqlSettings) -> Result<Vec<(String, u64)>, SourceError> {
        let rows = run(client, &settings.connect, "list the binary logs", "SHOW BINARY LOGS").await?;
        let file = |row: TextRow| {
            let mut texts = texts(row).into_iter();
            Some((texts.next()?, texts.next()?.parse().ok()?))
        };
        Ok(rows.into_iter().filter_map(file).collect())
    }

    /// The transactions that its log has, or had.
    async fn gtids(&self, client: &mut Client, settings: &MysqlSettings) -> Result<Gtids, SourceError> {
        let not_read = |error| unreachable("the server's GTIDs cannot be read", error);
        if !self.has_gtids() {
            return Ok(self.no_gtids());
        }
        let (is_mysql, sql) = match self.flavour {
            Flavour::Mysql => (true, "SELECT @@GLOBAL.gtid_executed"),
            Flavour::Mariadb => (false, "SELECT @@GLOBAL.gtid_binlog_pos"),
        };
        let text = self.one(client, settings, sql).await?;
        if is_mysql { text.parse().map(Gtids::Mysql) } else { text.parse().map(Gtids::Mariadb) }.map_err(not_read)
    }

    /// The one value of a query, without line feeds.
    async fn one(&self, client: &mut Client, settings: &MysqlSettings, sql: &str) -> Result<String, SourceError> {
        let rows = run(client, &settings.connect, "see what the binary log has", sql).await?;
        let text = rows.into_iter().next().map(texts).and_then(|row| row.into_iter().next()).unwrap_or_default();
        Ok(text.replace('\n', ""))
    }

    /// A server for tests.
    #[cfg(test)]
    pub(super) fn sample(flavour: Flavour, variables: &[(&str, &str)], end: BinlogPosition) -> Self {
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let (logs, only, except) = (Vec::new(), Vec::new(), Vec::new());
        Self { flavour, version: "9.0".to_owned(), variables, end, logs, only, except }
    }

    /// The same with these files.
    #[cfg(test)]
    pub(super) fn with_logs(self, logs: &[(&str, u64)]) -> Self {
        Self { logs: logs.iter().map(|(file, length)| ((*file).to_owned(), *length)).collect(), ..self }
    }

    pub(super) fn variable(&self, name: &str) -> &str {
        self.variables.get(name).map_or("", String::as_str)
    }

    fn is_on(&self, name: &str) -> bool {
        matches!(self.variable(name).to_ascii_uppercase().as_str(), "ON" | "1")
    }

    /// Major and minor version.
    pub(super) fn version_number(&self) -> (u32, u32) {
        let text = &self.version;
        let mut parts = text.split(['.', '-']).map(|part| part.parse().unwrap_or_default());
        (parts.next().unwrap_or_default(), parts.next().unwrap_or_default())
    }

    /// Whether every transaction has a GTID. Without them the position is a place in the server's own files.
    pub(super) fn has_gtids(&self) -> bool {
        self.flavour == Flavour::Mariadb || self.variable("gtid_mode").eq_ignore_ascii_case("ON")
    }

    /// Whether a commit waits for a replica, after it was sent to all of them.
    pub(super) fn waits_for_replicas(&self) -> bool {
        self.is_on("rpl_semi_sync_source_enabled") || self.is_on("rpl_semi_sync_master_enabled")
    }

    /// The files of the log with their lengths, oldest first.
    pub(super) fn logs(&self) -> &[(String, u64)] {
        &self.logs
    }

    /// Who it is.
    pub(super) fn identity(&self) -> SourceIdentity {
        match self.flavour {
            Flavour::Mysql => SourceIdentity::Mysql { server: self.variable("server_uuid").to_owned() },
            Flavour::Mariadb => {
                SourceIdentity::Mariadb { server: self.variable("server_id").parse().unwrap_or_default() }
            }
        }
    }

    /// Whether names of schemas and tables have no case.
    pub(super) fn ignores_case(&self) -> bool {
        !matches!(self.variable("lower_case_table_names"), "" | "0")
    }

    /// The transactions that the log no longer has.
    pub(super) fn purged(&self) -> Option<MysqlGtids> {
        self.variable("gtid_purged").replace('\n', "").parse().ok()
    }

    /// An empty set of the server's kind.
    pub(super) fn no_gtids(&self) -> Gtids {
        match self.flavour {
            Flavour::Mysql => Gtids::Mysql(MysqlGtids::default()),
            Flavour::Mariadb => Gtids::Mariadb(MariadbGtids::default()),
        }
    }

    /// Settings with which rows would be missing.
    pub(super) fn findings(&self, settings: &MysqlSettings) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mut error = |message: String, hint: String| findings.push(Finding::error(message, hint));
        let oldest = match self.flavour {
            Flavour::Mysql => (8, 0),
            Flavour::Mariadb => (10, 6),
        };
        if self.version_number() < oldest {
            let message = format!(
                "the server has version {}, and {}.{} is the oldest that is read",
                self.version, oldest.0, oldest.1
            );
            error(message, "read from a newer server".to_owned());
        }
        if !self.is_on("log_bin") {
            let hint = "set log_bin in the server's configuration file, and restart it";
            error("the server writes no binary log (log_bin = OFF)".to_owned(), hint.to_owned());
        }
        let wanted = [("binlog_format", "ROW"), ("binlog_row_image", "FULL"), ("binlog_row_metadata", "FULL")];
        for (name, value) in wanted {
            let present = self.variable(name);
            // a server without the variable has no other way
            if present.is_empty() || present.eq_ignore_ascii_case(value) {
                continue;
            }
            let scope = if self.flavour == Flavour::Mysql { "PERSIST" } else { "GLOBAL" };
            let too = if scope == "GLOBAL" { ", and write it into the server's configuration file" } else { "" };
            let hint = format!("SET {scope} {name} = {value};{too}; sessions that are open keep what they have");
            error(format!("{name} is {present}, and {value} is needed"), hint);
        }
        if self.is_on("log_bin") && !self.has_gtids() && settings.start == Start::Table {
            let message = format!(
                "gtid_mode is {}, and {} is \"table\": without GTIDs the server cannot tell which rows a snapshot holds",
                self.variable("gtid_mode"),
                settings.connect.option("start")
            );
            error(message, format!("set the option to \"now\", or {GTIDS_ON}"));
        }
        for table in &settings.tables {
            let in_list = |list: &[String]| list.contains(&table.schema);
            if in_list(&self.except) || (!self.only.is_empty() && !in_list(&self.only)) {
                let hint = "change binlog_do_db or binlog_ignore_db in the server's configuration file, and restart it";
                error(format!("database \"{}\" is kept out of the binary log", table.schema), hint.to_owned());
            }
        }
        findings
    }
}

/// A row's texts; NULL is empty.
pub(super) fn texts(row: TextRow) -> Vec<String> {
    let text =
        |cell: Option<bytes::Bytes>| cell.map_or_else(String::new, |cell| String::from_utf8_lossy(&cell).into_owned());
    row.into_iter().map(text).collect()
}

/// A text as an SQL literal.
pub(super) fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}

/// The outbox tables with their columns; none: there is no such table, or it cannot be seen.
pub(super) type Catalog = Vec<(TableName, Vec<CatalogColumn>)>;

/// Reads the outbox tables' columns.
pub(super) async fn catalog(client: &mut Client, settings: &MysqlSettings) -> Result<Catalog, SourceError> {
    let mut catalog = Vec::with_capacity(settings.tables.len());
    for table in &settings.tables {
        catalog.push((table.clone(), columns(client, settings, table).await?));
    }
    Ok(catalog)
}

/// Columns whose type the log does not tell: it has their bytes alone.
pub(super) fn special(catalog: &Catalog) -> Vec<Special> {
    let mut found = Vec::new();
    for (table, columns) in catalog {
        for column in columns {
            let kind = match column.kind.as_str() {
                "uuid" => SpecialKind::Uuid,
                "inet6" => SpecialKind::Inet6,
                "inet4" => SpecialKind::Inet4,
                _ => continue,
            };
            found.push(Special { table: table.clone(), column: column.name.clone(), kind });
        }
    }
    found
}

/// What is wrong with the outbox tables.
pub(super) fn table_findings(settings: &MysqlSettings, catalog: &Catalog) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (table, columns) in catalog {
        if columns.is_empty() {
            let hint = format!(
                "make it, correct option \"outbox.tables\", or have an administrator run: GRANT SELECT ON {} TO …;",
                quoted(table)
            );
            let message = format!(
                "table \"{}\" does not exist, or user \"{}\" may not read it",
                table.plain(),
                settings.connect.user
            );
            findings.push(Finding::error(message, hint));
            continue;
        }
        for wanted in settings.columns.iter().chain(&settings.optional_columns) {
            let found = columns.iter().find(|column| super::layout::same_name(&column.name, wanted));
            let is_needed = settings.columns.contains(wanted);
            let message = match found {
                None if is_needed => format!("table \"{}\" has no column \"{wanted}\"", table.plain()),
                None => continue,
                Some(column) => match column.problem() {
                    Some(problem) => format!("column \"{wanted}\" of table \"{}\" {problem}", table.plain()),
                    None => continue,
                },
            };
            let hint = "change the table, or the column's option in [outbox.columns] or \"record.headers\"";
            findings.push(Finding::error(message, hint));
        }
    }
    findings
}

/// A column as the catalogue has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CatalogColumn {
    pub name: String,
    /// Name of the type alone, such as `varchar`.
    pub kind: String,
    /// The type with length and sign, such as `binary(16)`.
    pub full: String,
    /// Digits of a second.
    digits: u8,
    /// Number of the collation; 0: none.
    pub collation: u64,
    collation_name: String,
}

impl CatalogColumn {
    /// What its values mean: the same as in the log.
    pub(super) fn meaning(&self, values: MysqlValues) -> ColumnType {
        let is_unsigned = self.full.contains("unsigned");
        match self.kind.as_str() {
            "tinyint" => ColumnType::Int16,
            "smallint" if !is_unsigned => ColumnType::Int16,
            "smallint" | "mediumint" | "year" => ColumnType::Int32,
            "int" if !is_unsigned => ColumnType::Int32,
            "int" | "bigint" => ColumnType::Int64,
            "float" => ColumnType::Float32,
            "double" => ColumnType::Float64,
            "decimal" => ColumnType::Numeric,
            "date" => ColumnType::Date,
            "datetime" => ColumnType::Timestamp(self.digits),
            "timestamp" => ColumnType::TimestampTz(self.digits),
            "bit" if self.full == "bit(1)" => ColumnType::Bool,
            "bit" if values == MysqlValues::Debezium => ColumnType::Bits,
            "bit" | "binary" | "varbinary" | "tinyblob" | "blob" | "mediumblob" | "longblob" => ColumnType::Bytes,
            "time" if values == MysqlValues::Debezium => ColumnType::Time(6),
            "json" => ColumnType::Json,
            "uuid" => ColumnType::Uuid,
            _ => ColumnType::Text,
        }
    }

    /// Why its values cannot be read.
    fn problem(&self) -> Option<String> {
        let spatial = ["geometry", "point", "linestring", "polygon", "geometrycollection", "geomcollection"];
        if spatial.contains(&self.kind.as_str()) || self.kind.starts_with("multi") || self.kind == "vector" {
            return Some(format!("has type {}, which has no text", self.kind));
        }
        let number = u16::try_from(self.collation).ok();
        let is_known = self.collation == 0 || number.and_then(charset::decoder).is_some();
        (!is_known).then(|| {
            format!("has collation {}, whose character set is not available here: use utf8mb4", self.collation_name)
        })
    }
}

/// The columns of a table, in their order; none: there is no such table, or it cannot be seen.
async fn columns(
    client: &mut Client,
    settings: &MysqlSettings,
    table: &TableName,
) -> Result<Vec<CatalogColumn>, SourceError> {
    let sql = format!(
        "SELECT c.COLUMN_NAME, c.DATA_TYPE, COALESCE(l.ID, 0), COALESCE(c.COLLATION_NAME, ''), c.COLUMN_TYPE, \
         COALESCE(c.DATETIME_PRECISION, 0) \
         FROM information_schema.COLUMNS c LEFT JOIN information_schema.COLLATIONS l ON l.COLLATION_NAME = c.COLLATION_NAME \
         WHERE c.TABLE_SCHEMA = {} AND c.TABLE_NAME = {} ORDER BY c.ORDINAL_POSITION",
        literal(&table.schema),
        literal(&table.table)
    );
    let rows = run(client, &settings.connect, "read the outbox table's columns", &sql).await?;
    let column = |row: TextRow| {
        let mut texts = texts(row).into_iter();
        let mut next = || texts.next().unwrap_or_default();
        let (name, kind, collation, collation_name) = (next(), next(), next(), next());
        let (full, digits) = (next(), next());
        CatalogColumn {
            name,
            kind: kind.to_ascii_lowercase(),
            full: full.to_ascii_lowercase(),
            digits: digits.parse().unwrap_or_default(),
            collation: collation.parse().unwrap_or_default(),
            collation_name,
        }
    };
    Ok(rows.into_iter().map(column).collect())
}

/// A table's name for SQL.
pub(super) fn quoted(table: &TableName) -> String {
    format!("{}.{}", quoted_name(&table.schema), quoted_name(&table.table))
}

/// A name for SQL.
pub(super) fn quoted_name(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

/// Findings as the relay's error.
pub(super) fn refusal(findings: &[Finding]) -> Result<(), SourceError> {
    let errors: Vec<&Finding> = findings.iter().filter(|finding| finding.is_error()).collect();
    if errors.is_empty() {
        return Ok(());
    }
    let lines = |line: fn(&Finding) -> &str| errors.iter().map(|finding| line(finding)).collect::<Vec<_>>().join("\n");
    Err(SourceError::Configuration {
        reason: Reason::Configuration,
        message: lines(|finding| &finding.message),
        hint: lines(|finding| &finding.hint),
    })
}
