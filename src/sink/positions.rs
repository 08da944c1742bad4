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

/// Identity of a schema whose tables are published because they are in it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SchemaIdentity {
    /// Its name.
    pub name: String,
    /// OID of the schema (`pg_namespace.oid`).
    pub oid: u32,
    /// OID of its membership in the publication (`pg_publication_namespace.oid`), which changes when it is taken out and
    /// put in again.
    pub membership_oid: u32,
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
        /// The transaction that altered it last (`pg_publication.xmin`); `None` if that is not known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        publication_xmin: Option<u32>,
        /// The outbox tables, sorted by name.
        tables: Vec<TableIdentity>,
        /// The schemas whose outbox tables are members by their schema, sorted by name, as far as known.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        schemas: Vec<SchemaIdentity>,
    },
    /// The binary log of a MySQL server.
    Mysql {
        /// `server_uuid`.
        server: String,
    },
    /// The binary log of a MariaDB server.
    Mariadb {
        /// `server_id`.
        server: u32,
    },
}

impl SourceIdentity {
    /// PostgreSQL's system identifier; `None` for another kind of server.
    #[must_use]
    pub fn system_id(&self) -> Option<&String> {
        match self {
            Self::Postgres { system_id, .. } => Some(system_id),
            Self::Mysql { .. } | Self::Mariadb { .. } => None,
        }
    }

    /// The outbox tables of a PostgreSQL server; none of another kind of server, which reads them from its log.
    #[must_use]
    pub fn tables(&self) -> &[TableIdentity] {
        match self {
            Self::Postgres { tables, .. } => tables,
            Self::Mysql { .. } | Self::Mariadb { .. } => &[],
        }
    }

    /// The schemas by which outbox tables of a PostgreSQL server are published, as far as known.
    #[must_use]
    pub fn schemas(&self) -> &[SchemaIdentity] {
        match self {
            Self::Postgres { schemas, .. } => schemas,
            Self::Mysql { .. } | Self::Mariadb { .. } => &[],
        }
    }

    /// The server for a person.
    #[must_use]
    pub fn server(&self) -> String {
        match self {
            Self::Postgres { system_id, .. } => format!("PostgreSQL with system identifier {system_id}"),
            Self::Mysql { server } => format!("MySQL with server_uuid {server}"),
            Self::Mariadb { server } => format!("MariaDB with server_id {server}"),
        }
    }
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
    /// Everything before it is published, as far as the source brought it.
    pub position: Position,
    /// Where the source was last found to bring everything: a mishap that is noticed after this may hide events from here
    /// on. Never ahead of `position`.
    pub verified: Position,
}

impl PositionRecord {
    /// Reads a stored record of `instance`.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub fn parse(text: &[u8], instance: &str) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Version {
            version: u32,
        }
        // The version first: a record of another one may well have other fields.
        let Version { version } = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        if version != FORMAT {
            return Err(format!("it has version {version}, this program knows version {FORMAT}"));
        }
        let record: Self = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        if record.instance != instance {
            return Err(format!("it is of instance \"{}\"", record.instance));
        }
        Ok(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::position::Lsn;

    #[test]
    fn reads_its_own_records_only() {
        let source = SourceIdentity::Postgres {
            system_id: "7".to_owned(),
            timeline: 1,
            database: "shop".to_owned(),
            slot: "s".to_owned(),
            publication: "p".to_owned(),
            publication_oid: 1,
            publication_xmin: None,
            tables: Vec::new(),
            schemas: Vec::new(),
        };
        let position = Position::Postgres(Lsn(9));
        let record = PositionRecord {
            version: FORMAT,
            instance: "shop".to_owned(),
            generation: 1,
            source,
            position: position.clone(),
            verified: position,
        };
        let text = serde_json::to_string(&record).unwrap();
        assert_eq!(PositionRecord::parse(text.as_bytes(), "shop"), Ok(record.clone()));
        assert!(!text.contains("xmin") && !text.contains("schemas"), "what is not known is not written: {text}");
        let mut full = record;
        if let SourceIdentity::Postgres { publication_xmin, schemas, .. } = &mut full.source {
            *publication_xmin = Some(7);
            schemas.push(SchemaIdentity { name: "s".to_owned(), oid: 2, membership_oid: 3 });
        }
        let full_text = serde_json::to_string(&full).unwrap();
        assert_eq!(PositionRecord::parse(full_text.as_bytes(), "shop"), Ok(full));
        for (text, why) in [
            (text.replace("\"version\":1", "\"version\":2,\"new\":0"), "version 2"),
            (text.replace("\"instance\":\"shop\"", "\"instance\":\"other\""), "instance \"other\""),
            (text.replace("0/9", "nine"), "nine"),
            ("1".to_owned(), "invalid type"),
        ] {
            let error = PositionRecord::parse(text.as_bytes(), "shop").unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
