//! What the server's catalogue says about the outbox: role, tables, publication, slot. Reads only.
//!
//! Every identity that a position depends on is an OID, not a name: a table or publication that was dropped and made
//! again has another one.

use tokio_postgres::Client;

use super::settings::PostgresSettings;
use super::types::Bases;
use crate::change::Column;
use crate::config::TableName;
use crate::position::Lsn;

/// The server and our role on it.
#[derive(Clone, Debug)]
pub(super) struct ServerFacts {
    /// `server_version_num`: 150020, 180006, …
    pub version: i32,
    /// `wal_level`
    pub wal_level: String,
    /// Whether the role may open replication connections.
    pub may_replicate: bool,
    /// `synchronous_standby_names`
    pub standby_names: String,
    /// Where the log ends now.
    pub wal_end: Lsn,
    /// Whether it is a standby.
    pub in_recovery: bool,
}

/// An outbox table that exists.
#[derive(Clone, Debug)]
pub(super) struct TableFacts {
    /// Its configured name.
    pub name: TableName,
    /// `pg_class.oid`
    pub oid: u32,
    /// OID of its schema.
    pub schema_oid: u32,
    /// Whether it has a replica identity, so that deletes can be published.
    pub has_identity: bool,
    /// Whether its rows stand in partitions.
    pub is_partitioned: bool,
    /// The names of its columns.
    pub columns: Vec<String>,
    /// Its columns, with what their values mean.
    pub described: Vec<Column>,
    /// Whether it was found by a pattern.
    pub is_matched: bool,
    /// Whether its rows are in the log: it is neither UNLOGGED nor temporary.
    pub is_logged: bool,
    /// The tables that it is a partition of, from the next one to the one at the top.
    pub ancestors: Vec<Ancestor>,
}

/// A table that has another one as its partition.
#[derive(Clone, Debug)]
pub(super) struct Ancestor {
    /// Its name.
    pub name: TableName,
    /// `pg_class.oid`
    pub oid: u32,
    /// OID of its schema.
    pub schema_oid: u32,
}

/// The publication, as far as it concerns the relay.
#[derive(Clone, Debug)]
pub(super) struct PublicationFacts {
    /// `pg_publication.oid`
    pub oid: u32,
    /// The transaction that altered it last (`pg_publication.xmin`). ALTER PUBLICATION … SET, OWNER TO and RENAME TO are
    /// such; ADD and DROP are not, nor is anything that VACUUM does.
    pub xmin: Option<u32>,
    /// Whether inserts are published.
    pub inserts: bool,
    /// Whether updates or deletes are published.
    pub updates_or_deletes: bool,
    /// Whether it is FOR ALL TABLES.
    pub all_tables: bool,
    /// Whether the rows of partitions come under the name of their table.
    pub via_root: bool,
    /// Tables that are members by themselves.
    pub members: Vec<Member>,
    /// Schemas whose tables are members.
    pub schemas: Vec<SchemaMember>,
}

/// A schema in a publication.
#[derive(Clone, Copy, Debug)]
pub(super) struct SchemaMember {
    /// OID of the membership.
    pub oid: u32,
    /// OID of the schema.
    pub schema_oid: u32,
}

/// A table in a publication.
#[derive(Clone, Debug)]
pub(super) struct Member {
    /// OID of the membership.
    pub oid: u32,
    /// OID of the table.
    pub table_oid: u32,
    /// The row filter that narrows it.
    pub filter: Option<String>,
    /// The columns it is narrowed to.
    pub columns: Option<Vec<String>>,
}

/// A replication slot.
#[derive(Clone, Debug)]
pub(super) struct SlotFacts {
    /// Output plug-in; `None` for a physical slot.
    pub plugin: Option<String>,
    /// Database; `None` for a physical slot.
    pub database: Option<String>,
    /// Process that uses it.
    pub active_pid: Option<i32>,
    /// Everything before it was confirmed.
    pub confirmed: Option<Lsn>,
    /// `lost` when the server no longer has the log that the slot needs.
    pub wal_status: Option<String>,
    /// Why it was invalidated (17 and later; 16 knows `conflicting` only).
    pub invalidation: Option<String>,
    /// Log that it holds back, in bytes.
    pub retained_bytes: Option<i64>,
    /// Whether standbys keep it too; false before 17.
    pub(super) failover: bool,
    /// Whether it sends prepared transactions before they are committed.
    pub(super) two_phase: bool,
}

impl SlotFacts {
    /// Why nothing can be read from it any more; `None` if something can.
    pub(super) fn why_unusable(&self) -> Option<&str> {
        let is_lost = self.wal_status.as_deref() == Some("lost");
        self.invalidation.as_deref().or(is_lost.then_some("wal_removed"))
    }
}

type Result<T> = std::result::Result<T, tokio_postgres::Error>;

/// Reads version, level and role.
pub(super) async fn server(client: &Client) -> Result<ServerFacts> {
    let row = client
        .query_one(
            "SELECT current_setting('server_version_num')::int4, current_setting('wal_level'), \
             rolreplication OR rolsuper, current_setting('synchronous_standby_names'), \
             (CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END)::text, \
             pg_is_in_recovery() FROM pg_roles WHERE rolname = current_user",
            &[],
        )
        .await?;
    Ok(ServerFacts {
        version: row.try_get(0)?,
        wal_level: row.try_get(1)?,
        may_replicate: row.try_get(2)?,
        standby_names: row.try_get(3)?,
        wal_end: row.try_get::<_, String>(4)?.parse().unwrap_or_default(),
        in_recovery: row.try_get(5)?,
    })
}

/// What is read of a table.
const TABLE: &str = "SELECT c.oid, c.relnamespace, c.relreplident = 'f' OR c.relreplident = 'i' OR (c.relreplident = 'd' AND EXISTS \
                (SELECT 1 FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary)), \
             c.relkind = 'p', \
             ARRAY(SELECT a.attname::text FROM pg_attribute a \
                WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum), \
             ARRAY(SELECT a.atttypid FROM pg_attribute a \
                WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum), \
             ARRAY(SELECT a.atttypmod FROM pg_attribute a \
                WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum), \
             n.nspname::text, c.relname::text, c.relpersistence = 'p', c.relispartition \
             FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind IN ('r', 'p')";

impl TableFacts {
    async fn of(client: &Client, row: &tokio_postgres::Row, is_matched: bool) -> Result<Self> {
        let (columns, types, modifiers): (Vec<String>, Vec<u32>, Vec<i32>) =
            (row.try_get(4)?, row.try_get(5)?, row.try_get(6)?);
        let bases = Bases::ask(client, types.iter().copied()).await?;
        let kinds = types.iter().zip(modifiers).map(|(oid, modifier)| bases.kind(*oid, modifier));
        let described = columns.iter().cloned().zip(kinds).map(|(name, kind)| Column { name, kind }).collect();
        let oid = row.try_get(0)?;
        let ancestors = if row.try_get(10)? { ancestors(client, oid).await? } else { Vec::new() };
        Ok(Self {
            name: TableName { schema: row.try_get(7)?, table: row.try_get(8)? },
            oid,
            schema_oid: row.try_get(1)?,
            has_identity: row.try_get(2)?,
            is_partitioned: row.try_get(3)?,
            columns,
            described,
            is_matched,
            is_logged: row.try_get(9)?,
            ancestors,
        })
    }
}

/// Reads what a partition is a partition of.
async fn ancestors(client: &Client, oid: u32) -> Result<Vec<Ancestor>> {
    let sql = "SELECT c.oid, c.relnamespace, n.nspname::text, c.relname::text \
               FROM pg_partition_ancestors($1::oid) WITH ORDINALITY AS a (relid, step) \
               JOIN pg_class c ON c.oid = a.relid JOIN pg_namespace n ON n.oid = c.relnamespace \
               WHERE c.oid <> $1 ORDER BY a.step";
    let ancestor = |row: &tokio_postgres::Row| {
        let name = TableName { schema: row.try_get(2)?, table: row.try_get(3)? };
        Ok(Ancestor { name, oid: row.try_get(0)?, schema_oid: row.try_get(1)? })
    };
    client.query(sql, &[&oid]).await?.iter().map(ancestor).collect()
}

/// Reads one table; `None` if it does not exist.
pub(super) async fn table(client: &Client, name: &TableName) -> Result<Option<TableFacts>> {
    let sql = format!("{TABLE} AND n.nspname = $1::text::name AND c.relname = $2::text::name");
    let row = client.query_opt(&sql, &[&name.schema, &name.table]).await?;
    match row {
        Some(row) => TableFacts::of(client, &row, false).await.map(Some),
        None => Ok(None),
    }
}

/// Reads the tables that patterns fit and no name is configured of. Partitions belong to their table, and what is not
/// logged is never published.
pub(super) async fn matching(client: &Client, settings: &PostgresSettings) -> Result<Vec<TableFacts>> {
    if settings.patterns.is_empty() {
        return Ok(Vec::new());
    }
    let sql = format!(
        "{TABLE} AND c.relpersistence = 'p' AND NOT c.relispartition AND n.nspname !~ '^pg_' \
         AND n.nspname <> 'information_schema' ORDER BY n.nspname, c.relname"
    );
    let rows = client.query(&sql, &[]).await?;
    let mut tables = Vec::new();
    for row in rows {
        let name = TableName { schema: row.try_get(7)?, table: row.try_get(8)? };
        if settings.is_matched(&name) && !settings.tables.contains(&name) {
            tables.push(TableFacts::of(client, &row, true).await?);
        }
    }
    Ok(tables)
}

/// Whether a table was a member of the publication from the moment on when it was made: both were done in one
/// transaction, or its schema was a member before.
pub(super) async fn was_member_from_the_first(client: &Client, table_oid: u32, by: MemberBy) -> Result<bool> {
    let (sql, membership_oid) = match by {
        MemberBy::Table(oid) => (
            "SELECT (SELECT xmin::text FROM pg_class WHERE oid = $1) = \
             (SELECT xmin::text FROM pg_publication_rel WHERE oid = $2)",
            oid,
        ),
        MemberBy::Schema(oid) => (
            "SELECT age((SELECT xmin FROM pg_class WHERE oid = $1)) <= \
             age((SELECT xmin FROM pg_publication_namespace WHERE oid = $2))",
            oid,
        ),
        MemberBy::AllTables => return Ok(true),
    };
    let row = client.query_one(sql, &[&table_oid, &membership_oid]).await?;
    Ok(row.try_get::<_, Option<bool>>(0)?.unwrap_or(true))
}

/// Why a table is a member of a publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MemberBy {
    /// By itself; with the membership's OID.
    Table(u32),
    /// By its schema; with the membership's OID.
    Schema(u32),
    /// All tables are.
    AllTables,
}

/// Of these tables those that exist, with the names that they have now.
pub(super) async fn names_now(client: &Client, oids: &[u32]) -> Result<Vec<Root>> {
    let sql = "SELECT c.oid, n.nspname::text, c.relname::text FROM pg_class c \
               JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = ANY ($1)";
    let root = |row: &tokio_postgres::Row| {
        Ok(Root { oid: row.try_get(0)?, name: TableName { schema: row.try_get(1)?, table: row.try_get(2)? } })
    };
    client.query(sql, &[&oids]).await?.iter().map(root).collect()
}

/// Where the log ends now.
pub(super) async fn wal_end(client: &Client) -> Result<Lsn> {
    Ok(server(client).await?.wal_end)
}

/// A table by both of its names.
#[derive(Clone, Debug)]
pub(super) struct Root {
    /// `pg_class.oid`
    pub oid: u32,
    /// Its name now.
    pub name: TableName,
}

/// The table that a table is a partition of, at the top; itself if it is none, `None` if it does not exist.
pub(super) async fn partition_root(client: &Client, oid: u32) -> Result<Option<Root>> {
    let sql = "SELECT c.oid, n.nspname::text, c.relname::text FROM pg_class p \
               JOIN pg_class c ON c.oid = coalesce(pg_partition_root(p.oid)::oid, p.oid) \
               JOIN pg_namespace n ON n.oid = c.relnamespace WHERE p.oid = $1";
    let row = client.query_opt(sql, &[&oid]).await?;
    row.map(|row| {
        let name = TableName { schema: row.try_get(1)?, table: row.try_get(2)? };
        Ok(Root { oid: row.try_get(0)?, name })
    })
    .transpose()
}

/// Reads a publication; `None` if it does not exist.
pub(super) async fn publication(client: &Client, version: i32, name: &str) -> Result<Option<PublicationFacts>> {
    let row = client
        .query_opt(
            "SELECT oid, pubinsert, pubupdate OR pubdelete, puballtables, pubviaroot, xmin::text FROM pg_publication \
             WHERE pubname = $1::text::name",
            &[&name],
        )
        .await?;
    let Some(row) = row else { return Ok(None) };
    let oid: u32 = row.try_get(0)?;
    // filters, column lists and schemas came with 15
    let members = if version >= 150_000 {
        // that of a partitioned table counts only where its partitions' rows are published as its own
        "SELECT r.oid, r.prrelid, CASE WHEN c.relkind <> 'p' OR p.pubviaroot THEN pg_get_expr(r.prqual, r.prrelid) END, \
         CASE WHEN r.prattrs IS NOT NULL THEN ARRAY(SELECT a.attname::text FROM pg_attribute a \
             WHERE a.attrelid = r.prrelid AND a.attnum = ANY (r.prattrs)) END \
         FROM pg_publication_rel r JOIN pg_class c ON c.oid = r.prrelid JOIN pg_publication p ON p.oid = r.prpubid \
         WHERE r.prpubid = $1"
    } else {
        "SELECT oid, prrelid, NULL::text, NULL::text[] FROM pg_publication_rel WHERE prpubid = $1"
    };
    let members = client.query(members, &[&oid]).await?;
    let member = |row: &tokio_postgres::Row| {
        Ok(Member {
            oid: row.try_get(0)?,
            table_oid: row.try_get(1)?,
            filter: row.try_get(2)?,
            columns: row.try_get(3)?,
        })
    };
    let schemas = if version >= 150_000 {
        client.query("SELECT oid, pnnspid FROM pg_publication_namespace WHERE pnpubid = $1", &[&oid]).await?
    } else {
        Vec::new()
    };
    let schema = |row: &tokio_postgres::Row| Ok(SchemaMember { oid: row.try_get(0)?, schema_oid: row.try_get(1)? });
    Ok(Some(PublicationFacts {
        oid,
        xmin: row.try_get::<_, String>(5)?.parse().ok(),
        inserts: row.try_get(1)?,
        updates_or_deletes: row.try_get(2)?,
        all_tables: row.try_get(3)?,
        via_root: row.try_get(4)?,
        members: members.iter().map(member).collect::<Result<_>>()?,
        schemas: schemas.iter().map(schema).collect::<Result<_>>()?,
    }))
}

/// Reads a slot; `None` if it does not exist.
pub(super) async fn slot(client: &Client, version: i32, name: &str) -> Result<Option<SlotFacts>> {
    let invalidation = match version {
        170_000.. => "invalidation_reason",
        160_000.. => "CASE WHEN conflicting THEN 'conflict with recovery' END",
        _ => "NULL::text",
    };
    let failover = if version >= 170_000 { "failover" } else { "false" };
    let sql = format!(
        "SELECT plugin::text, database::text, active_pid, confirmed_flush_lsn::text, wal_status, {invalidation}, \
         (pg_wal_lsn_diff(CASE WHEN pg_is_in_recovery() THEN pg_last_wal_receive_lsn() \
            ELSE pg_current_wal_lsn() END, restart_lsn))::int8, {failover}, two_phase \
         FROM pg_replication_slots WHERE slot_name = $1::text::name"
    );
    let Some(row) = client.query_opt(&sql, &[&name]).await? else { return Ok(None) };
    let confirmed: Option<String> = row.try_get(3)?;
    Ok(Some(SlotFacts {
        plugin: row.try_get(0)?,
        database: row.try_get(1)?,
        active_pid: row.try_get(2)?,
        confirmed: confirmed.and_then(|text| text.parse().ok()),
        wal_status: row.try_get(4)?,
        invalidation: row.try_get(5)?,
        retained_bytes: row.try_get(6)?,
        failover: row.try_get(7)?,
        two_phase: row.try_get(8)?,
    }))
}

/// How many places for replication slots there are, and how many are taken by slots of other names.
pub(super) async fn slot_places(client: &Client, own: &str) -> Result<(i64, i64)> {
    let row = client
        .query_one(
            "SELECT current_setting('max_replication_slots')::int8, \
             (SELECT count(*) FROM pg_replication_slots WHERE slot_name <> $1::text::name)",
            &[&own],
        )
        .await?;
    Ok((row.try_get(0)?, row.try_get(1)?))
}

/// What our role may do with a table.
#[derive(Clone, Copy, Debug)]
pub(super) struct TableRights {
    /// Look into its schema.
    pub usage: bool,
    /// Read its columns.
    pub select: bool,
    /// Whether a policy hides rows of it.
    pub row_security: bool,
}

/// Reads what our role may do with a table.
pub(super) async fn table_rights(client: &Client, table: &TableFacts) -> Result<TableRights> {
    let row = client
        .query_one(
            "SELECT has_schema_privilege($1::oid, 'USAGE'), has_table_privilege($2::oid, 'SELECT'), \
             row_security_active($2::oid)",
            &[&table.schema_oid, &table.oid],
        )
        .await?;
    Ok(TableRights { usage: row.try_get(0)?, select: row.try_get(1)?, row_security: row.try_get(2)? })
}

/// Who a server process belongs to, as far as our role may see it: role, application name, since when.
pub(super) async fn session(
    client: &Client,
    pid: i32,
) -> Result<Option<(Option<String>, Option<String>, Option<String>)>> {
    let row = client
        .query_opt(
            "SELECT usename::text, application_name, to_char(backend_start, 'YYYY-MM-DD HH24:MI:SS TZ') \
             FROM pg_stat_activity WHERE pid = $1",
            &[&pid],
        )
        .await?;
    row.map(|row| Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?))).transpose()
}

/// `sync_state` of a walsender: `async` unless commits wait for it.
pub(super) async fn sync_state(client: &Client, pid: i32) -> Result<Option<String>> {
    let row = client.query_opt("SELECT sync_state FROM pg_stat_replication WHERE pid = $1", &[&pid]).await?;
    row.map(|row| row.try_get(0)).transpose().map(Option::flatten)
}

/// Whether `synchronous_standby_names` takes in a standby of this name (manual, "Replication", that parameter):
/// `ANY n (a, b)`, `FIRST n (a, b)`, `n (a, b)` or `a, b`; `*` is everyone; names are compared without case.
#[must_use]
pub(super) fn is_synchronous(standby_names: &str, application_name: &str) -> bool {
    let list = standby_names.split_once('(').map_or(standby_names, |(_, list)| list);
    let list = list.trim_end().trim_end_matches(')');
    list.split(',')
        .map(str::trim)
        .any(|name| name == "*" || name.trim_matches('"').replace("\"\"", "\"").eq_ignore_ascii_case(application_name))
}

#[cfg(test)]
mod tests {
    use super::is_synchronous;

    #[test]
    fn standby_names_are_matched_as_the_server_does() {
        for names in
            ["*", "a, *", "ANY 1 (*)", "FIRST 2 (s1, \"Outboxd_Shop\")", "2 (s1, outboxd_shop )", "outboxd_shop"]
        {
            assert!(is_synchronous(names, "outboxd_shop"), "{names}");
        }
        for names in ["", "s1", "ANY 1 (s1, s2)", "outboxd_shop2", "FIRST 1 (outboxd)"] {
            assert!(!is_synchronous(names, "outboxd_shop"), "{names}");
        }
    }
}
