//! Which tables of the stream are outboxes.
//!
//! Rows refer to a table by OID. A partition's rows come under the partition's own name unless the publication says
//! `publish_via_partition_root`; they belong to the root, which is what the configuration names.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::catalog::Root;
use super::pgoutput::RelationMessage;
use super::types::Bases;
use crate::change::{Column, Relation};
use crate::config::{TableName, TablePattern};
use crate::sink::positions::TableIdentity;

/// What a table of the stream is to us.
#[derive(Clone, Debug)]
pub(super) enum Known {
    /// An outbox.
    Outbox(Arc<Relation>),
    /// A table that is not configured.
    Other(Arc<Relation>),
}

/// The tables that the stream has announced.
#[derive(Debug)]
pub(super) struct Relations {
    known: HashMap<u32, Known>,
    outboxes: HashMap<u32, TableName>,
    /// Patterns of further outboxes, which may be made at any time.
    patterns: Vec<TablePattern>,
    /// What a table is that has gone.
    gone: Gone,
}

/// What a table is that the catalogue no longer has, if it is none of the outboxes by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gone {
    /// A partition of an outbox: the publication holds nothing else.
    Partition,
    /// None of ours: outboxes have no partitions, or rows of those come under the outbox's own name.
    Other,
    /// That cannot be told.
    Unknown,
}

/// A number that no relation of this process has had: the router outlives the sessions, and remembers by it which cell is
/// what.
#[must_use]
pub(super) fn next_serial() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The table has gone, and whether it was an outbox cannot be told.
#[derive(Debug, thiserror::Error)]
#[error(
    "table \"{schema}.{table}\" (OID {oid}) was dropped before its rows were read, and the publication holds other tables \
     than outboxes: whether it was a partition of an outbox cannot be told"
)]
pub(super) struct GoneTable {
    schema: String,
    table: String,
    oid: u32,
}

impl Relations {
    /// Begins with the known tables and their OIDs, and the patterns of others.
    #[must_use]
    pub(super) fn new<'a>(
        tables: impl Iterator<Item = &'a TableName>,
        patterns: &[TablePattern],
        identities: &[TableIdentity],
        gone: Gone,
    ) -> Self {
        let oid = |name: &TableName| identities.iter().find(|table| table.name == name.plain()).map(|table| table.oid);
        let outboxes = tables.filter_map(|name| Some((oid(name)?, name.clone()))).collect();
        Self { known: HashMap::new(), outboxes, patterns: patterns.to_vec(), gone }
    }

    /// The table of this OID, if the stream has announced it.
    #[must_use]
    pub(super) fn get(&self, oid: u32) -> Option<&Known> {
        self.known.get(&oid)
    }

    /// What is known of an announced table without asking the catalogue: that it is one of the outboxes. One that a pattern
    /// fits is so by its name.
    pub(super) fn configured(&self, message: &RelationMessage) -> Option<Root> {
        let name = TableName { schema: message.schema.clone(), table: message.table.clone() };
        let known = self.outboxes.get(&message.oid)?;
        (*known == name || !self.matches(known)).then_some(Root { oid: message.oid, name })
    }

    fn matches(&self, name: &TableName) -> bool {
        self.patterns.iter().any(|pattern| pattern.matches(&name.schema, &name.table))
    }

    /// Takes in an announcement, which replaces an earlier one of the same OID. `root` is what the catalogue calls the
    /// table at the top of its partitions: itself where it is not a partition, `None` where the table has gone; `bases`
    /// what users' types are made of.
    ///
    /// # Errors
    /// [`GoneTable`]
    pub(super) fn announce(
        &mut self,
        message: &RelationMessage,
        root: Option<Root>,
        bases: &Bases,
    ) -> Result<(), GoneTable> {
        let outbox = match root {
            Some(root) => {
                // the log has the name of then, the catalogue that of now
                let is_itself = root.oid == message.oid;
                let of_then = TableName { schema: message.schema.clone(), table: message.table.clone() };
                let of_then = (is_itself && self.matches(&of_then)).then_some(of_then);
                let matched = self.matches(&root.name).then_some(root.name);
                let known = self.outboxes.get(&root.oid).filter(|name| !is_itself || !self.matches(name)).cloned();
                known.or(matched).or(of_then)
            }
            None => self.of_gone_table(message)?,
        };
        let name = outbox.clone().unwrap_or(TableName { schema: message.schema.clone(), table: message.table.clone() });
        let relation = Arc::new(Relation {
            serial: next_serial(),
            schema: name.schema,
            table: name.table,
            columns: message
                .columns
                .iter()
                .map(|column| Column {
                    name: column.name.clone(),
                    kind: bases.kind(column.type_oid, column.type_modifier),
                })
                .collect(),
        });
        let known = if outbox.is_some() { Known::Outbox(relation) } else { Known::Other(relation) };
        self.known.insert(message.oid, known);
        Ok(())
    }

    /// A table that the catalogue no longer has, but the log still does.
    fn of_gone_table(&self, message: &RelationMessage) -> Result<Option<TableName>, GoneTable> {
        let same_name = |name: &&TableName| name.schema == message.schema && name.table == message.table;
        if let Some(name) = self.outboxes.values().find(same_name) {
            return Ok(Some(name.clone()));
        }
        let name = TableName { schema: message.schema.clone(), table: message.table.clone() };
        if self.matches(&name) {
            return Ok(Some(name));
        }
        let RelationMessage { oid, schema, table, .. } = message.clone();
        match (self.gone, self.outboxes.values().next()) {
            (Gone::Other, _) => Ok(None),
            (Gone::Partition, Some(outbox)) => Ok(Some(outbox.clone())),
            (Gone::Partition, None) | (Gone::Unknown, _) => Err(GoneTable { schema, table, oid }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The router keeps what it knows of a table from session to session.
    #[test]
    fn tables_of_two_sessions_are_told_apart() {
        let message = |table: &str| RelationMessage {
            oid: 1,
            schema: "public".to_owned(),
            table: table.to_owned(),
            columns: Vec::new(),
        };
        let serial = |table: &str| {
            let mut relations = Relations::new([].iter(), &[], &[], Gone::Unknown);
            let name = TableName { schema: "public".to_owned(), table: table.to_owned() };
            relations.announce(&message(table), Some(Root { oid: 1, name }), &Bases::default()).unwrap();
            match relations.get(1) {
                Some(Known::Other(relation) | Known::Outbox(relation)) => relation.serial,
                None => panic!("not known"),
            }
        };
        assert_ne!(serial("a"), serial("b"));
    }
}
