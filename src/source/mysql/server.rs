//! What a server is and how it is set: read once for each session, before anything else.

use std::collections::HashMap;

pub(super) use super::catalog::{catalog, special, table_findings};
use super::client::{Client, TextRow, run};
use super::error::{grants, refuse};
use super::settings::{Flavour, MysqlSettings};
use crate::config::{Start, TableName};
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
    "wsrep_on",
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
    /// Of whom it takes changes that it leaves out of its log.
    unlogged: Unlogged,
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
        let mut server = Self { flavour, version, variables, end, logs, only, except, unlogged: Unlogged::Nothing };
        if server.is_on("log_bin") {
            server.see_end(client, settings).await?;
            if !server.logs_what_it_replicates() {
                server.unlogged = unlogged(client, settings, flavour).await?;
            }
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
        let unlogged = Unlogged::Nothing;
        Self { flavour, version: "9.0".to_owned(), variables, end, logs, only, except, unlogged }
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

    /// Whether changes that come from another server are in the log too.
    fn logs_what_it_replicates(&self) -> bool {
        // the first name is the newer one
        ["log_replica_updates", "log_slave_updates"].iter().any(|name| self.is_on(name))
    }

    /// The name that the variable has here.
    pub(super) fn replica_updates(&self) -> &'static str {
        if self.variable("log_replica_updates").is_empty() { "log_slave_updates" } else { "log_replica_updates" }
    }

    /// Whether it may take changes from another server that are not in its log, as far as this user may see.
    pub(super) fn may_hide_changes(&self) -> bool {
        self.unlogged == Unlogged::Unknown
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
            // a server without the variable has no other way; inserts are whole in MariaDB's FULL_NODUP too
            if ["", value, "FULL_NODUP"].iter().any(|fits| present.eq_ignore_ascii_case(fits)) {
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
        let is_galera = self.is_on("wsrep_on") && !self.logs_what_it_replicates();
        let other = match &self.unlogged {
            Unlogged::Source(source) => Some(format!("it is a replica ({source})")),
            _ if is_galera => Some("it is a node of a Galera cluster".to_owned()),
            _ => None,
        };
        if let Some(other) = other {
            let name = self.replica_updates();
            let message = format!("{name} is OFF, and {other}: what other servers send is not in its binary log");
            error(
                message,
                format!("set {name} in the server's configuration file, and restart it; or read from the other server"),
            );
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

/// What a server does that does not log what it replicates.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Unlogged {
    /// It is no replica.
    Nothing,
    /// It is one of this server.
    Source(String),
    /// It was one, and the user may not see whether it still is.
    Unknown,
}

/// Looks for servers that this one replicates.
async fn unlogged(client: &mut Client, settings: &MysqlSettings, flavour: Flavour) -> Result<Unlogged, SourceError> {
    let sources = match flavour {
        // the names of columns are those of each version
        Flavour::Mysql => client.query("SHOW REPLICA STATUS").await.ok(),
        Flavour::Mariadb => client.query("SHOW ALL SLAVES STATUS").await.ok(),
    };
    if let Some(sources) = sources {
        // in front: the state, and the host; of MariaDB the name and the SQL thread's state before them
        let host = if flavour == Flavour::Mysql { 1 } else { 3 };
        let source = sources.into_iter().next().map(|row| texts(row).into_iter().nth(host).unwrap_or_default());
        return Ok(source.map_or(Unlogged::Nothing, |host| Unlogged::Source(format!("of \"{host}\""))));
    }
    if flavour == Flavour::Mysql {
        return Ok(Unlogged::Unknown);
    }
    // what MariaDB tells anybody: replicas that run, and whether there was one
    let action = "see whether it is a replica";
    let rows = run(client, &settings.connect, action, "SHOW GLOBAL STATUS LIKE 'Slaves_running'").await?;
    let running = rows.into_iter().next().and_then(|row| texts(row).into_iter().nth(1));
    if running.is_some_and(|running| running != "0") {
        return Ok(Unlogged::Source("its threads run".to_owned()));
    }
    let rows = run(client, &settings.connect, action, "SELECT @@GLOBAL.gtid_slave_pos").await?;
    let was_one = rows.into_iter().flat_map(texts).any(|applied| !applied.is_empty());
    Ok(if was_one { Unlogged::Unknown } else { Unlogged::Nothing })
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
