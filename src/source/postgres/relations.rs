//! Which tables of the stream are outboxes.
//!
//! Rows refer to a table by OID. A partition's rows come under the partition's own name unless the publication says
//! `publish_via_partition_root`; they belong to the root, which is what the configuration names.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::pgoutput::RelationMessage;
use super::types::Bases;
use crate::change::{Column, Relation};
use crate::config::TableName;
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
    /// Whether every table of the publication is an outbox.
    all_are_outboxes: bool,
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
    /// Begins with the configured tables and their OIDs.
    #[must_use]
    pub(super) fn new(tables: &[TableName], identities: &[TableIdentity], all_are_outboxes: bool) -> Self {
        let oid = |name: &TableName| identities.iter().find(|table| table.name == name.plain()).map(|table| table.oid);
        let outboxes = tables.iter().filter_map(|name| Some((oid(name)?, name.clone()))).collect();
        Self { known: HashMap::new(), outboxes, all_are_outboxes }
    }

    /// The table of this OID, if the stream has announced it.
    #[must_use]
    pub(super) fn get(&self, oid: u32) -> Option<&Known> {
        self.known.get(&oid)
    }

    /// Whether the OID is that of a configured table: no question to the catalogue is needed.
    #[must_use]
    pub(super) fn is_configured(&self, oid: u32) -> bool {
        self.outboxes.contains_key(&oid)
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
        root: Option<u32>,
        bases: &Bases,
    ) -> Result<(), GoneTable> {
        let outbox = match root {
            Some(root) => self.outboxes.get(&root).cloned(),
            None => Some(self.of_gone_table(message)?),
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
    fn of_gone_table(&self, message: &RelationMessage) -> Result<TableName, GoneTable> {
        let same_name = |name: &&TableName| name.schema == message.schema && name.table == message.table;
        if let Some(name) = self.outboxes.values().find(same_name) {
            return Ok(name.clone());
        }
        let RelationMessage { oid, schema, table, .. } = message.clone();
        let any = self.outboxes.values().next().filter(|_| self.all_are_outboxes);
        any.cloned().ok_or(GoneTable { schema, table, oid })
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
        let serial = |table| {
            let mut relations = Relations::new(&[], &[], false);
            relations.announce(&message(table), Some(1), &Bases::default()).unwrap();
            match relations.get(1) {
                Some(Known::Other(relation) | Known::Outbox(relation)) => relation.serial,
                None => panic!("not known"),
            }
        };
        assert_ne!(serial("a"), serial("b"));
    }
}
