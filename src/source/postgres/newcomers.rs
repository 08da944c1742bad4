//! Tables that appear while the stream runs or while the relay was away, and that a pattern of `outbox.tables` fits; and
//! those that it no longer fits.
//!
//! Whether their rows come is the publication's affair: one FOR TABLES IN SCHEMA or FOR ALL TABLES takes them in at once.
//! Of one FOR TABLE they are no members until somebody adds them, and what is inserted before that is never in the stream.

use std::collections::BTreeSet;

use tokio_postgres::Client;
use tracing::{info, warn};

use super::catalog::{self, MemberBy, TableFacts};
use super::inspect::{Facts, Finding};
use super::settings::PostgresSettings;
use crate::config::TableName;
use crate::sink::positions::{SourceIdentity, TableIdentity};

/// What is known of such tables.
#[derive(Debug, Default)]
pub(super) struct Newcomers {
    /// Those that were there when the session began, or were told of.
    known: BTreeSet<TableName>,
    /// Those that were told of as not published.
    unpublished: BTreeSet<TableName>,
    /// What was published from when the position was stored, until the first look is done.
    before: Option<SourceIdentity>,
    /// The tables that were members by themselves at any time, until it is told that they are outboxes no more.
    members: Vec<TableIdentity>,
}

impl Newcomers {
    /// Begins with the tables that were there when the server was reached. `before` is what was published from earlier.
    #[must_use]
    pub(super) fn new(settings: &PostgresSettings, now: &SourceIdentity, before: Option<&SourceIdentity>) -> Self {
        let earlier = before.map(SourceIdentity::tables).unwrap_or_default();
        let mut members = now.tables().to_vec();
        members.extend(earlier.iter().filter(|table| !now.tables().iter().any(|now| now.oid == table.oid)).cloned());
        Self {
            known: settings.found.iter().cloned().collect(),
            unpublished: BTreeSet::new(),
            before: before.cloned(),
            members,
        }
    }

    /// Tells of what is new, and of what has got another name; returns what a person has to do about tables that are not published.
    ///
    /// # Errors
    /// The driver's.
    pub(super) async fn look(
        &mut self,
        client: &Client,
        facts: &Facts,
        settings: &PostgresSettings,
    ) -> Result<Option<Finding>, tokio_postgres::Error> {
        let Some(publication) = &facts.publication else { return Ok(None) };
        let matched = facts.tables.iter().filter_map(|(_, table)| table.as_ref()).filter(|table| table.is_matched);
        let (covered, uncovered): (Vec<&TableFacts>, Vec<&TableFacts>) =
            matched.partition(|table| publication.membership(table).is_some());
        for table in &covered {
            let by = publication.membership(table).map_or(MemberBy::AllTables, |membership| membership.by);
            let was_unpublished = self.unpublished.remove(&table.name);
            let is_news = !self.known.contains(&table.name) || !self.was_there_before(table, by);
            if !is_news && !was_unpublished {
                continue;
            }
            // publication and tables are not read at one moment: what was made in between, a member from the first, was not
            // unpublished
            let may_be_whole = !was_unpublished || matches!(by, MemberBy::Table(_));
            let is_whole = may_be_whole && catalog::was_member_from_the_first(client, table.oid, by).await?;
            self.known.insert(table.name.clone());
            let name = table.name.plain();
            if is_whole {
                info!(table = name, "a pattern of outbox.tables fits a new table; its rows are published");
            } else {
                warn!(
                    table = name,
                    "a pattern of outbox.tables fits a new table, which joined the publication after it was made: its rows \
                     are published from there on, and those inserted before are not"
                );
            }
        }
        self.before = None;
        self.tell_of_renamed(client, facts).await?;
        self.unpublished.retain(|name| uncovered.iter().any(|table| table.name == *name));
        let findings = facts.uncovered(settings);
        let is_news = uncovered.iter().filter(|table| self.unpublished.insert(table.name.clone())).count() > 0;
        let Some(first) = findings.first() else { return Ok(None) };
        let lines = |part: fn(&Finding) -> &str| findings.iter().map(part).collect::<Vec<_>>();
        let finding = Finding {
            reason: first.reason,
            message: format!("{}; all other tables are published", lines(|finding| &finding.message).join("; ")),
            hint: lines(|finding| &finding.hint).join(" "),
        };
        if is_news {
            warn!(hint = finding.hint, "{}", finding.message);
        }
        Ok(Some(finding))
    }

    /// Whether the table was published when the position was stored, as far as that is known: what joined while the relay
    /// was away is news too.
    fn was_there_before(&self, table: &TableFacts, by: MemberBy) -> bool {
        let Some(before @ SourceIdentity::Postgres { publication_xmin, .. }) = &self.before else { return true };
        match by {
            MemberBy::Table(_) => before.tables().iter().any(|old| old.oid == table.oid),
            // an older record does not tell its schemas
            MemberBy::Schema(_) => {
                publication_xmin.is_none() || before.schemas().iter().any(|old| old.oid == table.schema_oid)
            }
            MemberBy::AllTables => true,
        }
    }

    /// Tells of tables that are there, but no longer among the outboxes: their rows of now are not published.
    async fn tell_of_renamed(&mut self, client: &Client, facts: &Facts) -> Result<(), tokio_postgres::Error> {
        let is_outbox =
            |oid: u32| facts.tables.iter().any(|(_, table)| table.as_ref().is_some_and(|table| table.oid == oid));
        let lost: Vec<u32> = self.members.iter().map(|table| table.oid).filter(|oid| !is_outbox(*oid)).collect();
        if lost.is_empty() {
            return Ok(());
        }
        for now in catalog::names_now(client, &lost).await? {
            let Some(old) = self.members.iter().find(|table| table.oid == now.oid) else { continue };
            warn!(
                table = old.name,
                name_now = now.name.plain(),
                "an outbox is none any more: no pattern of outbox.tables fits what it is now; rows that were written before are \
                 published, later ones are not"
            );
        }
        self.members.retain(|table| is_outbox(table.oid));
        Ok(())
    }
}
