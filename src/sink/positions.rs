//! The position record: what the relay knows about the source it has published from.
//!
//! It is written before the position is confirmed to the source, so at a start it is at or behind the source's own
//! idea of the position, never ahead of what was published. What differs between the two tells a gap.

use serde::{Deserialize, Serialize};

use crate::position::Position;

/// Version of the record's format.
pub const FORMAT: u32 = 1;

/// Identity of an outbox table: it changes when the table is dropped and made again.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableIdentity {
    /// `schema.table`, unquoted.
    pub name: String,
    /// OID of the table (`pg_class.oid`).
    pub oid: u32,
    /// OID of its membership in the publication (`pg_publication_rel.oid`), which changes when it is taken out and put
    /// in again; `None` where the table is a member by its schema or by FOR ALL TABLES.
    pub membership_oid: Option<u32>,
}

/// What the position refers to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum SourceIdentity {
    /// A logical replication slot.
    Postgres {
        /// `IDENTIFY_SYSTEM`'s system identifier.
        system_id: String,
        /// The server's timeline.
        timeline: u32,
        /// Database name.
        database: String,
        /// Slot name.
        slot: String,
        /// Publication name.
        publication: String,
        /// OID of the publication.
        publication_oid: u32,
        /// The outbox tables, sorted by name.
        tables: Vec<TableIdentity>,
    },
}

/// One instance's position, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PositionRecord {
    /// [`FORMAT`].
    pub version: u32,
    /// The instance's name: the record's key.
    pub instance: String,
    /// Grows with every start of the instance.
    pub generation: u64,
    /// What the position refers to.
    pub source: SourceIdentity,
    /// Everything before it is published.
    pub position: Position,
}
