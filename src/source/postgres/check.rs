//! The PostgreSQL half of `outboxd check`: everything that would keep the relay from working, or may surprise later, each
//! with the statement that mends it. Reads only.

use super::attach::publication_statement;
use super::catalog::{PublicationFacts, TableFacts};
use super::check_server::NO_WALSENDER;
use super::error::{from_driver, quote_literal};
use super::inspect::alteration;
use super::settings::PostgresSettings;
use super::surroundings::{self, TableMore};
use super::survey::Survey;
use crate::config::names::quote_identifier;
use crate::config::{Config, Start};
use crate::finding::{Finding, Report, bytes};
use crate::sink::positions::PositionRecord;
use crate::source::SourceError;

/// Most routing values that are asked for.
const MAX_VALUES: i64 = 50;

/// What is known about earlier runs.
#[derive(Clone, Copy, Debug)]
pub enum Published<'a> {
    /// The position could not be read.
    Unknown,
    /// Nothing, as far as is known.
    Nothing,
    /// Everything before this.
    Upto(&'a PositionRecord),
}

/// Checks one server for one configuration.
pub struct Check<'a> {
    config: &'a Config,
    pub(super) settings: &'a PostgresSettings,
    pub(super) survey: &'a Survey,
}

impl<'a> Check<'a> {
    /// Of a server that was looked at.
    #[must_use]
    pub fn new(config: &'a Config, survey: &'a Survey) -> Self {
        Self { config, settings: &survey.settings, survey }
    }

    /// Everything, where `published` is what is known about earlier runs.
    pub async fn run(&self, published: Published<'_>) -> Report {
        let mut report = Report::default();
        let connect = &self.settings.connect;
        report.fact(format!(
            "PostgreSQL {} at {}, database \"{}\", user \"{}\"",
            self.survey.version(),
            connect.address,
            connect.database,
            connect.user
        ));
        let uncovered = self.survey.facts.uncovered(self.settings);
        for finding in self.survey.facts.findings(self.settings).into_iter().chain(uncovered) {
            report.error(finding.message, finding.hint);
        }
        for finding in self.survey.facts.warnings(self.settings) {
            report.warning(finding.message, finding.hint);
        }
        if let Err(error) = self.all(published, &mut report).await {
            let error = from_driver("look further", connect, error);
            findings_of(&error).into_iter().for_each(|finding| report.add(finding));
        }
        if let Err(error) = &self.survey.server {
            // a login that was refused for a reason that is in the list already is not said twice
            let is_told = !self.survey.facts.server.may_replicate
                || report.findings.iter().any(|finding| finding.message.starts_with(NO_WALSENDER));
            if !is_told {
                findings_of(error).into_iter().for_each(|finding| report.add(finding));
            }
        }
        report
    }

    async fn all(&self, published: Published<'_>, report: &mut Report) -> Result<(), tokio_postgres::Error> {
        let client = &self.survey.session.client;
        let version = self.survey.facts.server.version;
        let room = surroundings::room(client, version).await?;
        let mut tables = Vec::new();
        for (_, table) in &self.survey.facts.tables {
            if let Some(table) = table {
                tables.push((table, surroundings::table(client, table, self.settings).await?));
            }
        }
        if room.in_recovery {
            self.standby(report);
        }
        let name = &self.settings.names.publication;
        let (via_root, generated) = surroundings::publication(client, version, name).await?;
        for (table, more) in &tables {
            self.table(table, more, generated, report);
        }
        self.publication(&tables, via_root, published, report).await?;
        self.slot(published, report);
        self.free_room(&room, published, report);
        self.first_start(&tables, published, report).await;
        self.limits(&room, report).await?;
        self.failover(&room, report);
        self.start(published, report).await;
        Ok(())
    }

    fn table(&self, table: &TableFacts, more: &TableMore, generated_come: bool, report: &mut Report) {
        let (name, plain) = (&table.name, table.name.plain());
        let columns = &self.config.outbox.columns;
        for column in &more.columns {
            let quoted = quote_identifier(&column.name);
            if column.is_generated && !generated_come {
                let message =
                    format!("column \"{}\" of table \"{plain}\" is computed: the log does not have it", column.name);
                report.error(message, format!("ALTER TABLE {name} ALTER COLUMN {quoted} DROP EXPRESSION;"));
            }
            if columns.route_by == column.name && column.is_nullable {
                report.warning(
                    format!(
                        "column \"{}\" of table \"{plain}\" may be NULL: such a row has no topic and stops the relay",
                        column.name
                    ),
                    format!("ALTER TABLE {name} ALTER COLUMN {quoted} SET NOT NULL;"),
                );
            }
        }
    }

    async fn publication(
        &self,
        tables: &[(&TableFacts, TableMore)],
        via_root: bool,
        published: Published<'_>,
        report: &mut Report,
    ) -> Result<(), tokio_postgres::Error> {
        let name = &self.settings.names.publication;
        let facts = &self.survey.facts;
        let Some(publication) = &facts.publication else {
            // whoever has published from it has lost it, which is said with the start
            if !matches!(published, Published::Upto(_)) && tables.len() == facts.tables.len() {
                self.missing_publication(tables, report).await?;
            }
            return Ok(());
        };
        report.fact(format!("publication \"{name}\": {}", describe(publication, tables)));
        let partitioned = tables.iter().find(|(_, more)| more.is_partitioned && !via_root);
        if let Some((table, _)) = partitioned {
            report.warning(
                format!(
                    "publication \"{name}\" brings the rows of table \"{}\" as its partitions' (publish_via_partition_root \
                     is off): a partition that is detached and dropped before its rows were read may stop the relay",
                    table.name.plain()
                ),
                alteration(self.settings, "publish_via_partition_root = true"),
            );
        }
        Ok(())
    }

    async fn missing_publication(
        &self,
        tables: &[(&TableFacts, TableMore)],
        report: &mut Report,
    ) -> Result<(), tokio_postgres::Error> {
        let name = &self.settings.names.publication;
        let slot = &self.settings.names.slot;
        if self.survey.slot.is_some() {
            report.error(
                format!(
                    "publication \"{name}\" does not exist and slot \"{slot}\" does: a publication that is made now is \
                     newer than the slot, which cannot see it"
                ),
                format!(
                    "SELECT pg_drop_replication_slot({}); -- if nothing was published from it; the relay makes both",
                    quote_literal(slot)
                ),
            );
        } else if tables.iter().all(|(_, more)| more.is_owner)
            && surroundings::may_create(&self.survey.session.client).await?
        {
            report.fact(format!("publication \"{name}\": does not exist; the relay makes it"));
        } else {
            report.error(
                format!(
                    "publication \"{name}\" does not exist and user \"{}\" may not make it",
                    self.settings.connect.user
                ),
                format!("{} -- as the owner of the table", publication_statement(self.settings)),
            );
        }
        Ok(())
    }

    fn slot(&self, published: Published<'_>, report: &mut Report) {
        let name = &self.settings.names.slot;
        let Some(slot) = &self.survey.slot else {
            if !matches!(published, Published::Upto(_)) {
                report.fact(format!("slot \"{name}\": does not exist; the relay makes it"));
            }
            return;
        };
        let position = slot.confirmed.map_or_else(|| "?".to_owned(), |lsn| lsn.to_string());
        let held = slot
            .retained_bytes
            .and_then(|held| u64::try_from(held).ok())
            .map_or_else(String::new, |held| format!(", holds back {} of log", bytes(held)));
        let used = match self.survey.holder() {
            None => "not in use".to_owned(),
            Some(holder) => format!("in use by process {}", holder.pid),
        };
        report.fact(format!("slot \"{name}\": at {position}{held}, {used}"));
        if let Some(holder) = self.survey.holder().filter(|holder| !holder.is_peer) {
            report.error(
                format!("{}, which is no instance of this relay", holder.words),
                format!(
                    "SELECT pg_terminate_backend({}); -- after its owner has agreed; or choose another \
                     source.postgres.slot",
                    holder.pid
                ),
            );
        }
        if matches!(slot.wal_status.as_deref(), Some("unreserved")) {
            report.warning(
                format!("slot \"{name}\" is about to be invalidated: the next checkpoint may remove log that it needs"),
                "start the relay, or ALTER SYSTEM SET max_slot_wal_keep_size to more and SELECT pg_reload_conf();",
            );
        }
    }

    /// The rows that stand in the table, and the right to look at them.
    async fn first_start(&self, tables: &[(&TableFacts, TableMore)], published: Published<'_>, report: &mut Report) {
        let user = quote_identifier(&self.settings.connect.user);
        let is_first = self.survey.slot.is_none() && !matches!(published, Published::Upto(_));
        let needs_read = is_first && self.settings.start != Start::Now;
        for (table, more) in tables {
            let (name, plain) = (&table.name, table.name.plain());
            if !more.may_read && needs_read {
                report.error(
                    format!(
                        "user \"{}\" may not read table \"{plain}\", which the first start does",
                        self.settings.connect.user
                    ),
                    format!(
                        "GRANT USAGE ON SCHEMA {} TO {user}; GRANT SELECT ON {name} TO {user};",
                        quote_identifier(&name.schema)
                    ),
                );
            } else if more.hides_rows && needs_read {
                report.error(
                    format!(
                        "row level security of table \"{plain}\" hides rows from user \"{}\": the first start would not \
                         see them",
                        self.settings.connect.user
                    ),
                    format!("ALTER ROLE {user} BYPASSRLS;"),
                );
            }
        }
        let Some(rows) = self.survey.standing_rows().await else { return };
        let names: Vec<String> = tables.iter().map(|(table, _)| format!("\"{}\"", table.name.plain())).collect();
        let text = match rows {
            100_000.. => "100,000 rows or more stand".to_owned(),
            1 => "1 row stands".to_owned(),
            _ => format!("{rows} rows stand"),
        };
        let what = match self.settings.start {
            _ if rows == 0 || !is_first => "",
            Start::Now => "; source.postgres.start = \"now\" leaves them alone",
            Start::Table => "; they are published first",
        };
        if !names.is_empty() {
            report.fact(format!("table {}: {text} in it{what}", names.join(", ")));
        }
    }

    /// Would `run` stream?
    async fn start(&self, published: Published<'_>, report: &mut Report) {
        if self.survey.server.is_err() {
            return;
        }
        let record = match published {
            Published::Unknown => return,
            Published::Nothing => None,
            Published::Upto(record) => Some(record),
        };
        match self.survey.gap(record).await {
            Ok(()) => match (&self.survey.slot, record) {
                (Some(slot), Some(record)) => report.fact(format!(
                    "start: goes on at {}; everything before {} was published",
                    slot.confirmed.unwrap_or_default(),
                    record.position
                )),
                (Some(slot), None) => report.fact(format!(
                    "start: adopts the slot at {}; rows committed before are not published",
                    slot.confirmed.unwrap_or_default()
                )),
                _ => {}
            },
            Err(error) => findings_of(&error).into_iter().for_each(|finding| report.add(finding)),
        }
    }

    /// Routing values of the rows that stand in the tables: which topics will be needed.
    pub async fn routing_values(&self) -> Vec<String> {
        let mut values = Vec::new();
        for (_, table) in &self.survey.facts.tables {
            let Some(table) = table else { continue };
            let route_by = &self.config.outbox.columns.route_by;
            let found = surroundings::values(&self.survey.session.client, table, route_by, MAX_VALUES).await;
            // the right to read is not needed for streaming
            values.extend(found.unwrap_or_default());
        }
        values.sort();
        values.dedup();
        values
    }
}

/// What a source's error says, one finding for each line of it.
#[must_use]
pub fn findings_of(error: &SourceError) -> Vec<Finding> {
    match error {
        SourceError::Configuration { message, hint, .. } => Finding::errors(message, hint),
        SourceError::Terminal(terminal) => {
            let gap =
                terminal.gap.as_ref().map_or_else(String::new, |gap| format!("; events may be missing from {gap}"));
            vec![Finding::error(format!("{} ({}){gap}", terminal.message, terminal.reason), terminal.hint.clone())]
        }
        SourceError::Connection { .. } => {
            let hint = "check host and port in option \"source.postgres.url\", the network, and that the server runs";
            vec![Finding::error(crate::chain(error), hint)]
        }
        SourceError::SlotInUse { message, .. } => vec![Finding::error(message.clone(), "stop the other reader")],
    }
}

/// What a publication brings.
fn describe(publication: &PublicationFacts, tables: &[(&TableFacts, TableMore)]) -> String {
    let what = if publication.updates_or_deletes { "inserts and more" } else { "inserts" };
    let included = tables.iter().filter(|(table, _)| publication.membership(table).is_some()).count();
    let of = format!("publishes {what} of {included} of {} configured tables", tables.len());
    if publication.all_tables { format!("{of}, and of all other tables") } else { of }
}
