//! Judges what the catalogue says: can the relay work with it, and is it still what it was?

use tokio_postgres::Client;

use super::catalog::{self, Ancestor, MemberBy, PublicationFacts, ServerFacts, TableFacts};
use super::error::replication_right;
use super::guard::Difference;
use super::settings::PostgresSettings;
use crate::change::Relation;
use crate::config::names::quote_identifier;
use crate::config::{TableName, TablePattern};
use crate::route::ColumnProblem;
use crate::sink::positions::{SchemaIdentity, SourceIdentity, TableIdentity};
use crate::source::SourceError;
use crate::state::Reason;

/// Oldest version that is supported, as `server_version_num`.
pub(super) const OLDEST_VERSION: i32 = 140_000;

/// The catalogue's facts at one moment.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    /// The server and our role.
    pub server: ServerFacts,
    /// The configured tables with what exists of them.
    pub tables: Vec<(TableName, Option<TableFacts>)>,
    /// The publication, if it exists.
    pub publication: Option<PublicationFacts>,
}

/// Reads them.
///
/// # Errors
/// The driver's.
pub(super) async fn read(client: &Client, settings: &PostgresSettings) -> Result<Facts, tokio_postgres::Error> {
    let server = catalog::server(client).await?;
    let publication = catalog::publication(client, server.version, &settings.names.publication).await?;
    let mut tables = Vec::with_capacity(settings.tables.len());
    for name in &settings.tables {
        tables.push((name.clone(), catalog::table(client, name).await?));
    }
    let matching = catalog::matching(client, settings).await?;
    tables.extend(matching.into_iter().map(|table| (table.name.clone(), Some(table))));
    Ok(Facts { server, tables, publication })
}

/// Something that keeps the relay from working, and what mends it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    /// The stable code.
    pub reason: Reason,
    /// What is wrong, one line.
    pub message: String,
    /// What to do, one line.
    pub hint: String,
}

impl Facts {
    /// Everything that keeps the relay from working. A missing publication is not in it: it can be made.
    #[must_use]
    pub(super) fn findings(&self, settings: &PostgresSettings) -> Vec<Finding> {
        let mut findings = Vec::new();
        let user = &settings.connect.user;
        let mut add = |reason, message: String, hint: String| findings.push(Finding { reason, message, hint });
        let ServerFacts { version, wal_level, may_replicate, standby_names, .. } = &self.server;
        if *version < OLDEST_VERSION {
            let message =
                format!("the server is PostgreSQL {}, and 14 is the oldest that is supported", version / 10_000);
            add(Reason::Configuration, message, "upgrade the server".to_owned());
        }
        if wal_level != "logical" {
            let message = format!("wal_level is \"{wal_level}\" and must be \"logical\"");
            let hint = "ALTER SYSTEM SET wal_level = 'logical'; -- then restart the server".to_owned();
            add(Reason::Configuration, message, hint);
        }
        if !may_replicate {
            let message = format!("user \"{user}\" may not open replication connections");
            add(Reason::Configuration, message, replication_right(user));
        }
        if catalog::is_synchronous(standby_names, &settings.connect.application_name) {
            let finding = synchronous(standby_names, &settings.connect.application_name);
            add(finding.reason, finding.message, finding.hint);
        }
        for (name, table) in &self.tables {
            let Some(table) = table else {
                let message = format!("table \"{}\" does not exist", name.plain());
                add(Reason::Configuration, message, "create it, or correct option \"outbox.tables\"".to_owned());
                continue;
            };
            for column in settings.columns.iter().filter(|column| !table.columns.contains(column)) {
                let message = format!(
                    "table \"{}\" has no column \"{column}\" (it has {})",
                    name.plain(),
                    table.columns.join(", ")
                );
                let hint = "name the column that holds it in [outbox.columns] or [record]".to_owned();
                add(Reason::Configuration, message, hint);
            }
            if let Some((message, hint)) = unfit(name, table, settings) {
                add(Reason::Configuration, message, hint);
            }
            if let Some(Finding { reason, message, hint }) = unlogged(table) {
                add(reason, message, hint);
            }
        }
        if self.tables.is_empty() && self.publication.is_none() {
            let patterns: Vec<String> = settings.patterns.iter().map(TablePattern::plain).collect();
            let message = format!("no table fits \"{}\", and there is no publication", patterns.join("\" or \""));
            add(Reason::Configuration, message, "create one, or correct option \"outbox.tables\"".to_owned());
        }
        if let Some(publication) = &self.publication {
            findings.extend(self.publication_findings(publication, settings, false));
        }
        findings
    }

    /// What the publication lacks of the tables that patterns fit. At the first start that is refused; later such a table
    /// may appear at any time, and the others go on.
    #[must_use]
    pub(super) fn uncovered(&self, settings: &PostgresSettings) -> Vec<Finding> {
        let publication = self.publication.as_ref();
        publication.map(|publication| self.publication_findings(publication, settings, true)).unwrap_or_default()
    }

    /// What the publication lacks, of the tables that patterns fit or of the others.
    fn publication_findings(
        &self,
        publication: &PublicationFacts,
        settings: &PostgresSettings,
        is_matched: bool,
    ) -> Vec<Finding> {
        let name = &settings.names.publication;
        let quoted = quote_identifier(name);
        let mut findings = Vec::new();
        let mut add = |message: String, hint: String| {
            findings.push(Finding { reason: Reason::TableNotPublished, message, hint });
        };
        if !is_matched && let Some(Finding { message, hint, .. }) = publication.lacks_inserts(settings) {
            add(message, hint);
        }
        let tables = self.tables.iter().filter_map(|(_, table)| table.as_ref());
        for table in tables.filter(|table| table.is_matched == is_matched) {
            if let Some(Finding { message, hint, .. }) = publication.elsewhere(table, settings) {
                add(message, hint);
                continue;
            }
            let Some(membership) = publication.membership(table) else {
                let message = format!("publication \"{name}\" does not include table \"{}\"", table.name.plain());
                add(message, format!("ALTER PUBLICATION {quoted} ADD TABLE {};", table.name));
                continue;
            };
            let listed = membership.columns.unwrap_or(&table.columns);
            let hidden: Vec<&str> = settings
                .columns
                .iter()
                .filter(|column| table.columns.contains(column) && !listed.contains(column))
                .map(String::as_str)
                .collect();
            if !hidden.is_empty() {
                let message = format!(
                    "publication \"{name}\" leaves out columns of table \"{}\": {}",
                    table.name.plain(),
                    hidden.join(", ")
                );
                add(message, put_in_again(&quoted, &table.name));
            }
        }
        findings
    }

    /// What works but may surprise.
    #[must_use]
    pub(super) fn warnings(&self, settings: &PostgresSettings) -> Vec<Finding> {
        let name = &settings.names.publication;
        let quoted = quote_identifier(name);
        let Some(publication) = &self.publication else { return Vec::new() };
        let mut warnings = Vec::new();
        let mut add = |message: String, hint: String| {
            warnings.push(Finding { reason: Reason::Configuration, message, hint });
        };
        for table in self.tables.iter().filter_map(|(_, table)| table.as_ref()) {
            let plain = table.name.plain();
            if publication.updates_or_deletes && !table.has_identity {
                let message = format!(
                    "publication \"{name}\" publishes updates or deletes and table \"{plain}\" has no replica identity: \
                     the application's UPDATE and DELETE fail"
                );
                // others may live on what a publication of more tables brings
                let hint = if publication.reaches_beyond(&self.table_identities()) {
                    format!("ALTER TABLE {} REPLICA IDENTITY FULL;", table.name)
                } else {
                    alteration(settings, "publish = 'insert'")
                };
                add(message, hint);
            }
            if publication.membership(table).is_some_and(|membership| membership.filter.is_some()) {
                let message = format!(
                    "publication \"{name}\" has a row filter on table \"{plain}\": rows outside it are not events"
                );
                add(message, put_in_again(&quoted, &table.name));
            }
        }
        warnings
    }

    /// A table that was published but no longer is: one that a pattern fits, or one of a schema that was a member. And what
    /// else keeps the rows of a table back that were published before.
    #[must_use]
    pub(super) fn taken_out(&self, settings: &PostgresSettings, before: &SourceIdentity) -> Option<Difference> {
        let SourceIdentity::Postgres { tables, schemas, publication, .. } = before else { return None };
        let present = self.publication.as_ref()?;
        let existing = || self.tables.iter().filter_map(|(_, table)| table.as_ref());
        let was_published = |table: &&TableFacts| {
            let by_itself = table.is_matched && tables.iter().any(|old| old.oid == table.oid);
            by_itself || schemas.iter().any(|old| old.oid == table.schema_oid)
        };
        if let Some(table) = existing().filter(was_published).find(|table| present.membership(table).is_none()) {
            let message = format!(
                "table \"{}\" was taken out of publication \"{publication}\": rows written meanwhile are not published",
                table.name.plain()
            );
            return Some(Difference::new(Reason::TableNotPublished, message));
        }
        let was_used = |table: &&TableFacts| tables.iter().any(|old| old.name == table.name.plain());
        let withheld = |table| unlogged(table).or_else(|| present.elsewhere(table, settings));
        let finding = present.lacks_inserts(settings).or_else(|| existing().filter(was_used).find_map(withheld))?;
        Some(Difference::new(finding.reason, format!("{}: rows written meanwhile are not published", finding.message)))
    }

    /// The schemas by which outboxes are published.
    #[must_use]
    pub(super) fn schema_identities(&self) -> Vec<SchemaIdentity> {
        let Some(publication) = &self.publication else { return Vec::new() };
        let identity = |table: &TableFacts| match publication.membership(table)?.by {
            MemberBy::Schema(membership_oid) => {
                Some(SchemaIdentity { name: table.name.schema.clone(), oid: table.schema_oid, membership_oid })
            }
            MemberBy::Table(_) | MemberBy::AllTables => None,
        };
        let mut schemas: Vec<_> =
            self.tables.iter().filter_map(|(_, table)| table.as_ref().and_then(identity)).collect();
        schemas.sort();
        schemas.dedup();
        schemas
    }

    /// The identities that a position depends on; tables that do not exist are left out. So are those that a pattern fits
    /// and that are published because of where they are: they may come and go.
    #[must_use]
    pub(super) fn table_identities(&self) -> Vec<TableIdentity> {
        let Some(publication) = &self.publication else { return Vec::new() };
        let identity = |table: &TableFacts| {
            let membership_oid = publication.membership(table).and_then(|membership| membership.oid());
            let is_part = !table.is_matched || membership_oid.is_some();
            is_part.then(|| TableIdentity { name: table.name.plain(), oid: table.oid, membership_oid })
        };
        let mut tables: Vec<_> =
            self.tables.iter().filter_map(|(_, table)| table.as_ref().and_then(identity)).collect();
        tables.sort();
        tables
    }
}

/// The statement that sets an option of a publication that works already.
pub(super) fn alteration(settings: &PostgresSettings, option: &str) -> String {
    let names = &settings.names;
    format!(
        "ALTER PUBLICATION {} SET ({option}); -- a relay that has published before stops for it, since it cannot know what was \
         altered: then go on by {}",
        quote_identifier(&names.publication),
        names.resume_command("POSITION")
    )
}

/// The statements that make a table a member without a filter or a list of columns; other members stay.
fn put_in_again(publication: &str, table: &TableName) -> String {
    format!(
        "BEGIN; ALTER PUBLICATION {publication} DROP TABLE {table}; ALTER PUBLICATION {publication} ADD TABLE {table}; COMMIT;"
    )
}

/// How a table is a member of a publication.
#[derive(Clone, Copy, Debug)]
pub(super) struct Membership<'a> {
    /// Why it is one.
    pub by: MemberBy,
    /// The row filter that narrows it.
    pub filter: Option<&'a str>,
    /// The columns it is narrowed to.
    pub columns: Option<&'a Vec<String>>,
}

impl Membership<'_> {
    /// OID of the table's own membership; `None` where it comes from its schema or FOR ALL TABLES.
    #[must_use]
    pub(super) fn oid(&self) -> Option<u32> {
        match self.by {
            MemberBy::Table(oid) => Some(oid),
            MemberBy::Schema(_) | MemberBy::AllTables => None,
        }
    }
}

impl PublicationFacts {
    /// How the table is a member; `None` if it is not.
    #[must_use]
    pub(super) fn membership(&self, table: &TableFacts) -> Option<Membership<'_>> {
        if let Some(member) = self.members.iter().find(|member| member.table_oid == table.oid) {
            let (filter, columns) = (member.filter.as_deref(), member.columns.as_ref());
            return Some(Membership { by: MemberBy::Table(member.oid), filter, columns });
        }
        let schema = self.schemas.iter().find(|schema| schema.schema_oid == table.schema_oid);
        let by_schema = schema.map(|schema| MemberBy::Schema(schema.oid));
        let by = if self.all_tables { Some(MemberBy::AllTables) } else { by_schema };
        by.map(|by| Membership { by, filter: None, columns: None })
    }

    /// It brings no rows at all.
    fn lacks_inserts(&self, settings: &PostgresSettings) -> Option<Finding> {
        let name = &settings.names.publication;
        (!self.inserts).then(|| Finding {
            reason: Reason::TableNotPublished,
            message: format!("publication \"{name}\" does not publish inserts"),
            hint: format!("ALTER PUBLICATION {} SET (publish = 'insert');", quote_identifier(name)),
        })
    }

    /// The rows of a partition that is configured come as those of another table, which is not configured.
    fn elsewhere(&self, table: &TableFacts, settings: &PostgresSettings) -> Option<Finding> {
        let name = &settings.names.publication;
        let is_member = |ancestor: &&Ancestor| {
            self.all_tables
                || self.schemas.iter().any(|schema| schema.schema_oid == ancestor.schema_oid)
                || self.members.iter().any(|member| member.table_oid == ancestor.oid)
        };
        let (root, how) = if self.via_root {
            (table.ancestors.iter().rev().find(is_member)?, "publish_via_partition_root is on")
        } else if table.is_partitioned {
            // they come as those of its partitions, which belong to the table at the top
            (table.ancestors.last()?, "it has partitions itself, and publish_via_partition_root is off")
        } else {
            return None;
        };
        if settings.tables.contains(&root.name) {
            return None;
        }
        let (plain, root) = (table.name.plain(), root.name.plain());
        Some(Finding {
            reason: Reason::TableNotPublished,
            message: format!(
                "table \"{plain}\" is a partition of \"{root}\", and publication \"{name}\" brings its rows as those of \
                 \"{root}\" ({how})"
            ),
            hint: format!("name \"{root}\" in place of \"{plain}\" in option \"outbox.tables\""),
        })
    }

    /// Whether it can bring rows of tables that are not in `tables`.
    #[must_use]
    pub(super) fn reaches_beyond(&self, tables: &[TableIdentity]) -> bool {
        self.all_tables
            || !self.schemas.is_empty()
            || self.members.iter().any(|member| !tables.iter().any(|table| table.oid == member.table_oid))
    }
}

/// A table whose rows are not in the log.
fn unlogged(table: &TableFacts) -> Option<Finding> {
    let plain = table.name.plain();
    (!table.is_logged).then(|| Finding {
        reason: Reason::TableNotPublished,
        message: format!("table \"{plain}\" is UNLOGGED or temporary: its rows are not in the log"),
        hint: format!("ALTER TABLE {} SET LOGGED;", table.name),
    })
}

/// A column whose type keeps the table's rows from becoming records, and what to do.
fn unfit(name: &TableName, table: &TableFacts, settings: &PostgresSettings) -> Option<(String, String)> {
    let relation = Relation {
        serial: 0,
        schema: name.schema.clone(),
        table: name.table.clone(),
        columns: table.described.clone(),
    };
    let ColumnProblem { column, problem, wanted } = settings.types.problem(&relation)?;
    let message = format!("column \"{column}\" of table \"{}\" {problem}", name.plain());
    let quoted = quote_identifier(&column);
    let hint = wanted.map(|wanted| {
        format!(
            "ALTER TABLE {name} ALTER COLUMN {quoted} TYPE {wanted} USING {quoted}::text::{wanted}; -- or name another \
             column in [outbox.columns] or [record]"
        )
    });
    Some((message, hint.unwrap_or_else(|| "change the option, or name another column".to_owned())))
}

/// The server would let commits wait for the relay, and so for Kafka.
#[must_use]
pub(super) fn synchronous(standby_names: &str, application_name: &str) -> Finding {
    Finding {
        reason: Reason::SynchronousStandby,
        message: format!(
            "synchronous_standby_names = '{standby_names}' makes this relay (application_name \"{application_name}\") a \
             synchronous standby: the application's commits would wait for Kafka"
        ),
        hint: "ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (standby_1)'; SELECT pg_reload_conf(); -- with the \
               names of the real standbys"
            .to_owned(),
    }
}

/// All findings as one error; `None` if there are none.
#[must_use]
pub(super) fn refusal(findings: &[Finding]) -> Option<SourceError> {
    let first = findings.first()?;
    let lines = |part: fn(&Finding) -> &str| findings.iter().map(part).collect::<Vec<_>>().join("\n");
    Some(SourceError::Configuration {
        reason: first.reason,
        message: lines(|finding| &finding.message),
        hint: lines(|finding| &finding.hint),
    })
}
