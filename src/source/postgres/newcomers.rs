//! Tables that appear while the stream runs, and that a pattern of `outbox.tables` fits.
//!
//! Whether their rows come is the publication's affair: one FOR TABLES IN SCHEMA or FOR ALL TABLES takes them in at once.
//! Of one FOR TABLE they are no members until somebody adds them, and what is inserted before that is never in the stream.

use std::collections::BTreeSet;

use tokio_postgres::Client;
use tracing::{info, warn};

use super::catalog::{self, TableFacts};
use super::inspect::{Facts, Finding};
use super::settings::PostgresSettings;
use crate::config::TableName;

/// What is known of such tables.
#[derive(Debug, Default)]
pub(super) struct Newcomers {
    /// Those that were there when the session began, or were told of.
    known: BTreeSet<TableName>,
    /// Those that were told of as not published.
    unpublished: BTreeSet<TableName>,
}

impl Newcomers {
    /// Begins with the tables that were there when the server was reached.
    #[must_use]
    pub(super) fn new(settings: &PostgresSettings) -> Self {
        Self { known: settings.found.iter().cloned().collect(), unpublished: BTreeSet::new() }
    }

    /// Tells of what is new; returns what a person has to do about tables that are not published.
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
            let was_unpublished = self.unpublished.remove(&table.name);
            if !self.known.insert(table.name.clone()) && !was_unpublished {
                continue;
            }
            let membership = publication.membership(table).and_then(|membership| membership.oid);
            let is_whole = match membership {
                _ if was_unpublished => false,
                Some(oid) => catalog::was_member_from_the_first(client, table.oid, oid).await?,
                None => true,
            };
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
}
