//! A look at a server for an operator: what it is, what keeps the relay from working, who publishes. Changes nothing.

use super::client::{Client, run};
use super::error::{grants, unreachable};
use super::guard;
use super::lock;
use super::prepared;
use super::server::{GTIDS_ON, Server, catalog, literal, table_findings, texts};
use super::settings::{Flavour, MysqlSettings};
use crate::finding::{Finding, Report};
use crate::gtid::Gtids;
use crate::position::{BinlogPosition, Position};
use crate::sink::positions::{PositionRecord, SourceIdentity};
use crate::source::SourceError;

use std::sync::Arc;

/// A server as an operator sees it.
pub struct Survey<'a> {
    settings: &'a MysqlSettings,
    client: Client,
    server: Server,
    /// The connection that holds the instance's lock.
    holder: Option<String>,
}

impl<'a> Survey<'a> {
    /// Asks the server.
    ///
    /// # Errors
    /// It cannot be asked.
    pub async fn take(settings: &'a MysqlSettings) -> Result<Self, SourceError> {
        let mut client = Client::connect(&settings.connect).await?;
        let server = Server::inspect(&mut client, settings).await?;
        let sql = format!("SELECT IS_USED_LOCK({})", literal(&lock::name(&settings.instance)));
        let rows = run(&mut client, &settings.connect, "see who publishes", &sql).await?;
        let holder = rows.into_iter().next().and_then(|row| row.into_iter().next().flatten());
        let holder = holder.map(|id| String::from_utf8_lossy(&id).into_owned());
        Ok(Self { settings, client, server, holder })
    }

    /// Who the server is.
    #[must_use]
    pub fn identity(&self) -> SourceIdentity {
        self.server.identity()
    }

    /// Kind and address of the server.
    #[must_use]
    pub fn place(&self) -> String {
        format!("{} at {}", self.server.flavour.title(), self.settings.connect.address)
    }

    /// MariaDB's transactions before a place in its log; `None` if the log has no such place.
    ///
    /// # Errors
    /// The server can no longer be asked.
    pub async fn gtids_at(&mut self, file: &str, offset: u64) -> Result<Option<Gtids>, SourceError> {
        let sql = format!("SELECT BINLOG_GTID_POS({}, {offset})", literal(file));
        let action = "turn the place in the binary log into GTIDs";
        let rows = run(&mut self.client, &self.settings.connect, action, &sql).await?;
        let Some(text) = rows.into_iter().next().and_then(|row| row.into_iter().next().flatten()) else {
            return Ok(None);
        };
        let set = String::from_utf8_lossy(&text).parse();
        set.map(|set| Some(Gtids::Mariadb(set)))
            .map_err(|error| unreachable("the server's GTIDs cannot be read", error))
    }

    /// Where its log ends.
    #[must_use]
    pub fn end(&self) -> Position {
        Position::Binlog(Arc::new(self.server.end.clone()))
    }

    /// The instance that publishes, in words; `None` if none does.
    #[must_use]
    pub fn holder(&self) -> Option<String> {
        let id = self.holder.as_ref()?;
        Some(format!("an instance holds lock \"{}\": connection {id}", lock::name(&self.settings.instance)))
    }

    /// Whether the relay could go on from a record.
    ///
    /// # Errors
    /// The state that it would be in.
    pub fn judge(&self, record: &PositionRecord) -> Result<(), SourceError> {
        guard::verify(&self.server, self.settings, record).map(|_| ())
    }

    /// A position as the server could serve it.
    ///
    /// # Errors
    /// It cannot.
    pub fn serves(&self, position: &Arc<BinlogPosition>) -> Result<Position, SourceError> {
        guard::begin(&self.server, self.settings, position).map(|begin| Position::Binlog(Arc::new(begin.place)))
    }

    /// Says that reading cannot begin at the log's end while transactions are prepared.
    ///
    /// # Errors
    /// There are some, or there may be.
    pub async fn wait_for_decisions(&mut self) -> Result<(), SourceError> {
        prepared::wait_for_decisions(&mut self.client, self.settings, &self.server).await
    }

    /// What is there, and everything that keeps the relay from working or may surprise later.
    ///
    /// # Errors
    /// The server can no longer be asked.
    pub async fn check(&mut self) -> Result<Report, SourceError> {
        let (settings, server) = (self.settings, &self.server);
        let mut report = Report::default();
        let title = server.flavour.title();
        report.fact(format!(
            "server: {title} {} at {}, as user \"{}\"",
            server.version, settings.connect.address, settings.connect.user
        ));
        report.fact(format!("binary log: ends at {}", server.end));
        report.fact(format!("server id of the relay: {}", settings.server_id));
        if let Some(holder) = self.holder() {
            report.fact(holder);
        }
        for finding in server.findings(settings) {
            report.add(finding);
        }
        let catalog = catalog(&mut self.client, settings).await?;
        for finding in table_findings(settings, &catalog) {
            report.add(finding);
        }
        if let Some(finding) = prepared::finding(&mut self.client, settings, &self.server).await {
            report.add(finding);
        }
        for finding in self.warnings() {
            report.add(finding);
        }
        if let Err(error) =
            run(&mut self.client, &settings.connect, "read the grants", "SHOW GRANTS").await.map(|rows| {
                let rows: Vec<String> =
                    rows.into_iter().flat_map(texts).map(|text| text.to_ascii_uppercase()).collect();
                let may =
                    |right: &str| rows.iter().any(|row| row.contains(right) || row.contains("ALL PRIVILEGES ON *.*"));
                if !may("REPLICATION SLAVE") && !may("REPLICATION REPLICA") {
                    let hint = format!(
                        "have an administrator run: {}",
                        grants(settings.connect.flavour, &settings.connect.user)
                    );
                    report.error(format!("user \"{}\" may not read the binary log", settings.connect.user), hint);
                }
            })
        {
            report.warning(crate::chain(&error), "");
        }
        Ok(report)
    }

    /// Settings under which something may surprise later.
    fn warnings(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        let server = &self.server;
        if server.variable("sync_binlog") != "1" {
            findings.push(Finding::warning(
                format!(
                    "sync_binlog is {}: a crash of the server's machine may lose transactions that were published, and use \
                     their GTIDs again",
                    server.variable("sync_binlog")
                ),
                "SET GLOBAL sync_binlog = 1; and write it into the server's configuration file",
            ));
        }
        if !server.has_gtids() {
            findings.push(Finding::warning(
                format!(
                    "gtid_mode is {}: the position is a place in this server's files, and after a failover the relay cannot go \
                     on by itself",
                    server.variable("gtid_mode")
                ),
                GTIDS_ON,
            ));
        }
        if server.may_hide_changes() {
            let name = server.replica_updates();
            findings.push(Finding::warning(
                format!("{name} is OFF: if the server is a replica, what other servers send is not in its binary log"),
                format!(
                    "set {name} in the server's configuration file, and restart it; whether it is a replica shows to a user \
                     with the right {}",
                    match server.flavour {
                        Flavour::Mysql => "REPLICATION CLIENT",
                        Flavour::Mariadb => "REPLICA MONITOR",
                    }
                ),
            ));
        }
        let kept = server.variable("binlog_expire_logs_seconds").parse::<u64>().unwrap_or_default();
        if kept > 0 && kept < 86_400 {
            findings.push(Finding::warning(
                format!("binary logs are kept for {} h: a relay that is away for longer loses events", kept / 3600),
                "SET GLOBAL binlog_expire_logs_seconds = 604800; and write it into the server's configuration file",
            ));
        }
        if server.variable("binlog_row_value_options").contains("PARTIAL_JSON") {
            findings
                .push(Finding::warning("binlog_row_value_options has PARTIAL_JSON; updates are no events here", ""));
        }
        findings
    }
}
