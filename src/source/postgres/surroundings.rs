//! What `check` wants to know of a server beyond what a start reads: room, rights, limits, column types. Reads only.

use std::time::Duration;

use tokio_postgres::{Client, Row};

use super::catalog::TableFacts;
use super::settings::PostgresSettings;

type Result<T> = std::result::Result<T, tokio_postgres::Error>;

/// Room and limits of the server.
#[derive(Clone, Debug)]
pub(super) struct Room {
    /// `max_replication_slots`, and how many there are.
    pub slots: (i64, i64),
    /// `max_wal_senders`, and how many run; those that only ask questions are not counted.
    pub walsenders: (i64, i64),
    /// Whether the server is a standby.
    pub in_recovery: bool,
    /// `max_slot_wal_keep_size` in MiB, -1 for no limit.
    pub keep_mib: i64,
    /// `idle_replication_slot_timeout` as shown, where it is on (18).
    pub idle_timeout: Option<String>,
    /// `synchronized_standby_slots` (17).
    pub synchronized: Option<String>,
    /// Names of physical slots, each with whether it is in use: the server's standbys.
    pub physical_slots: Vec<(String, bool)>,
    /// Transactions that a new slot would wait for, older than a minute; with the oldest one's age in seconds.
    pub old_transactions: (i64, i64),
}

/// Reads them.
pub(super) async fn room(client: &Client, version: i32) -> Result<Room> {
    let row = client
        .query_one(
            "SELECT current_setting('max_replication_slots')::int8, (SELECT count(*) FROM pg_replication_slots), \
             current_setting('max_wal_senders')::int8, \
             (SELECT count(*) FROM pg_stat_replication WHERE state IS DISTINCT FROM 'startup'), pg_is_in_recovery(), \
             (SELECT setting::int8 FROM pg_settings WHERE name = 'max_slot_wal_keep_size'), \
             (SELECT count(*) FROM pg_stat_activity WHERE backend_xid IS NOT NULL AND xact_start < now() - interval '1 min'), \
             (SELECT coalesce(max(extract(epoch FROM now() - xact_start)), 0)::int8 FROM pg_stat_activity \
                WHERE backend_xid IS NOT NULL)",
            &[],
        )
        .await?;
    let setting = |name: &'static str| async move {
        let row = client.query_one("SELECT current_setting($1::text, true)", &[&name]).await?;
        row.try_get::<_, Option<String>>(0)
    };
    let idle_timeout = if version >= 180_000 { setting("idle_replication_slot_timeout").await? } else { None };
    let synchronized = if version >= 170_000 { setting("synchronized_standby_slots").await? } else { None };
    let physical = client
        .query("SELECT slot_name::text, active FROM pg_replication_slots WHERE slot_type = 'physical' ORDER BY 1", &[])
        .await?;
    Ok(Room {
        slots: (row.try_get(0)?, row.try_get(1)?),
        walsenders: (row.try_get(2)?, row.try_get(3)?),
        in_recovery: row.try_get(4)?,
        keep_mib: row.try_get(5)?,
        idle_timeout: idle_timeout.filter(|value| value != "0"),
        synchronized: synchronized.filter(|value| !value.trim().is_empty()),
        physical_slots: physical.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect::<Result<_>>()?,
        old_transactions: (row.try_get(6)?, row.try_get(7)?),
    })
}

/// How many bytes of log are written in a second, measured; `None` on a standby.
pub(super) async fn wal_rate(client: &Client, during: Duration) -> Result<Option<u64>> {
    let sql = "SELECT CASE WHEN pg_is_in_recovery() THEN NULL ELSE pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::int8 END";
    let position = || async { client.query_one(sql, &[]).await?.try_get::<_, Option<i64>>(0) };
    let begun = tokio::time::Instant::now();
    let Some(before) = position().await? else { return Ok(None) };
    tokio::time::sleep(during).await;
    let Some(after) = position().await? else { return Ok(None) };
    let written = u64::try_from(after.saturating_sub(before)).unwrap_or_default();
    let milliseconds = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX).max(1);
    Ok(Some(written.saturating_mul(1000) / milliseconds))
}

/// What our role may do with the tables, and what else there is to a table.
#[derive(Clone, Debug)]
pub(super) struct TableMore {
    /// Whether our role may read it.
    pub may_read: bool,
    /// Whether our role is its owner, or a member of it.
    pub is_owner: bool,
    /// Whether row level security hides rows from our role.
    pub hides_rows: bool,
    /// Whether it is partitioned.
    pub is_partitioned: bool,
    /// The columns that are configured and exist.
    pub columns: Vec<ColumnMore>,
}

/// A column.
#[derive(Clone, Debug)]
pub(super) struct ColumnMore {
    /// Its name.
    pub name: String,
    /// Whether it is computed: such columns are not in the stream.
    pub is_generated: bool,
    /// Whether it may be NULL.
    pub is_nullable: bool,
}

/// Reads them.
pub(super) async fn table(client: &Client, table: &TableFacts, settings: &PostgresSettings) -> Result<TableMore> {
    let row = client
        .query_one(
            "SELECT has_schema_privilege(c.relnamespace, 'USAGE') AND (has_table_privilege(c.oid, 'SELECT') \
                OR has_any_column_privilege(c.oid, 'SELECT')), \
             pg_has_role(c.relowner, 'USAGE'), row_security_active(c.oid), c.relkind = 'p' \
             FROM pg_class c WHERE c.oid = $1",
            &[&table.oid],
        )
        .await?;
    let columns = client
        .query(
            "SELECT attname::text, attgenerated <> '', NOT attnotnull \
             FROM pg_attribute WHERE attrelid = $1 AND attnum > 0 AND NOT attisdropped AND attname::text = ANY ($2) \
             ORDER BY attnum",
            &[&table.oid, &settings.columns],
        )
        .await?;
    let column = |row: &Row| {
        Ok(ColumnMore { name: row.try_get(0)?, is_generated: row.try_get(1)?, is_nullable: row.try_get(2)? })
    };
    Ok(TableMore {
        may_read: row.try_get(0)?,
        is_owner: row.try_get(1)?,
        hides_rows: row.try_get(2)?,
        is_partitioned: row.try_get(3)?,
        columns: columns.iter().map(column).collect::<Result<_>>()?,
    })
}

/// Whether our role may make a publication in this database, as far as that does not depend on the tables.
pub(super) async fn may_create(client: &Client) -> Result<bool> {
    client.query_one("SELECT has_database_privilege(current_database(), 'CREATE')", &[]).await?.try_get(0)
}

/// What matters of a publication beyond what a start reads: whether rows of partitions come as the root's, and whether
/// computed columns come (18).
pub(super) async fn publication(client: &Client, version: i32, name: &str) -> Result<(bool, bool)> {
    let generated = if version >= 180_000 { "pubgencols = 's'" } else { "false" };
    let sql = format!("SELECT pubviaroot, {generated} FROM pg_publication WHERE pubname = $1::text::name");
    let row = client.query_opt(&sql, &[&name]).await?;
    row.map_or(Ok((true, false)), |row| Ok((row.try_get(0)?, row.try_get(1)?)))
}

/// Values of a column of the rows that stand in a table, each once, as text; at most `limit`, of the first 10,000 rows.
pub(super) async fn values(client: &Client, table: &TableFacts, column: &str, limit: i64) -> Result<Vec<String>> {
    let column = crate::config::names::quote_identifier(column);
    let sql = format!(
        "SELECT DISTINCT {column}::text FROM (SELECT {column} FROM {} LIMIT 10000) AS standing \
         WHERE {column} IS NOT NULL ORDER BY 1 LIMIT $1",
        table.name
    );
    client.query(&sql, &[&limit]).await?.iter().map(|row| row.try_get(0)).collect()
}
