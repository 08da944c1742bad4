//! The queries of the first read: one for each table, tried with EXPLAIN before anything is made.
//!
//! A query brings exactly the rows that the publication would have brought: a row filter of the publication counts, and so
//! does `ONLY`, since rows of tables that inherit are published under those tables' own names. A policy of row-level
//! security that would hide rows is an error and never a filter.

use super::catalog::{self, TableFacts};
use super::error::{ServerError, from_driver};
use super::inspect::{Facts, Finding, Membership};
use super::settings::PostgresSettings;
use super::sql::SqlSession;
use crate::config::TableName;
use crate::config::names::quote_identifier;
use crate::source::SourceError;
use crate::state::Reason;

/// How the rows of one table are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TableQuery {
    /// The table.
    pub name: TableName,
    /// `pg_class.oid`
    pub oid: u32,
    /// The columns in the order of a row's values.
    pub columns: Vec<String>,
    /// The statement.
    pub sql: String,
    /// About how many rows it brings, as the planner thinks.
    pub estimate: u64,
}

impl TableQuery {
    /// The query for a table; columns that it does not have are left out.
    #[must_use]
    fn new(settings: &PostgresSettings, table: &TableFacts, membership: Option<Membership<'_>>) -> Self {
        let is_published = |column: &String| {
            let listed = membership.and_then(|membership| membership.columns);
            table.columns.contains(column) && listed.is_none_or(|listed| listed.contains(column))
        };
        let wanted = settings.columns.iter().chain(&settings.optional_columns);
        let columns: Vec<String> = wanted.filter(|column| is_published(column)).cloned().collect();
        let only = if table.is_partitioned { "" } else { "ONLY " };
        let mut sql = format!("SELECT {} FROM {only}{}", list(&columns), table.name);
        let filter = membership.and_then(|membership| membership.filter);
        // on a line of its own, so that a comment at its end ends there
        let conditions: Vec<String> =
            settings.start_where.as_deref().into_iter().chain(filter).map(|text| format!("({text}\n)")).collect();
        if !conditions.is_empty() {
            sql.push_str(&format!(" WHERE {}", conditions.join(" AND ")));
        }
        if !settings.start_order_by.is_empty() {
            sql.push_str(&format!(" ORDER BY {}", list(&settings.start_order_by)));
        }
        Self { name: table.name.clone(), oid: table.oid, columns, sql, estimate: 0 }
    }
}

fn list(columns: &[String]) -> String {
    columns.iter().map(|column| quote_identifier(column)).collect::<Vec<_>>().join(", ")
}

/// The queries for the tables that exist, in the order of the configuration.
#[must_use]
pub(super) fn queries(settings: &PostgresSettings, facts: &Facts) -> Vec<TableQuery> {
    let membership = |table| facts.publication.as_ref().and_then(|publication| publication.membership(table));
    let tables = facts.tables.iter().filter_map(|(_, table)| table.as_ref());
    tables.map(|table| TableQuery::new(settings, table, membership(table))).collect()
}

/// Has the server plan each query, which needs the same rights as running it; puts in the estimates. Gives what is wrong.
///
/// # Errors
/// What keeps the server from being asked.
pub(super) async fn probe(
    session: &SqlSession,
    settings: &PostgresSettings,
    facts: &Facts,
    queries: &mut [TableQuery],
) -> Result<Vec<Finding>, SourceError> {
    let failed = |error| from_driver("plan the first read", &settings.connect, error);
    let mut findings = Vec::new();
    let tables = facts.tables.iter().filter_map(|(_, table)| table.as_ref());
    for (query, table) in queries.iter_mut().zip(tables) {
        // the driver's way of asking refuses a second statement behind the first
        let error = match session.client.query(&format!("EXPLAIN {}", query.sql), &[]).await {
            Ok(lines) => {
                let plan = lines.first().and_then(|line| line.try_get::<_, String>(0).ok()).unwrap_or_default();
                query.estimate = planned_rows(&plan);
                continue;
            }
            Err(error) => error,
        };
        match error.as_db_error().map(ServerError::from) {
            Some(db) if db.sqlstate == "42501" => {
                let rights = catalog::table_rights(&session.client, table).await.map_err(failed)?;
                findings.push(forbidden(settings, &query.name, rights, &db));
            }
            // syntax, names and types: the condition's or the order's
            Some(db) if db.sqlstate.starts_with("42") || db.sqlstate.starts_with("22") => findings.push(Finding {
                reason: Reason::Configuration,
                message: format!("the rows of table \"{}\" cannot be read as configured: {db}", query.name.plain()),
                hint: "correct option \"outbox.start-where\" or \"outbox.start-order-by\"".to_owned(),
            }),
            _ => return Err(failed(error)),
        }
    }
    Ok(findings)
}

/// What the role lacks, with the statements that grant it.
fn forbidden(
    settings: &PostgresSettings,
    name: &TableName,
    rights: catalog::TableRights,
    words: &ServerError,
) -> Finding {
    let (user, plain) = (&settings.connect.user, name.plain());
    let role = quote_identifier(user);
    let mut statements = Vec::new();
    if !rights.usage {
        statements.push(format!("GRANT USAGE ON SCHEMA {} TO {role};", quote_identifier(&name.schema)));
    }
    if !rights.select {
        statements.push(format!("GRANT SELECT ON {name} TO {role};"));
    }
    if rights.row_security {
        statements.push(format!("ALTER ROLE {role} BYPASSRLS;"));
    }
    let what = if rights.row_security { "may not read all rows of" } else { "may not read" };
    let run = match statements.is_empty() {
        true => "give it the right to what option \"outbox.start-where\" uses".to_owned(),
        false => format!("have an administrator run: {}", statements.join(" ")),
    };
    Finding {
        reason: Reason::Configuration,
        message: format!(
            "user \"{user}\" {what} table \"{plain}\", whose rows are published first at the first start: {words}"
        ),
        hint: format!("{run} or set source.postgres.start = \"now\" to leave the rows in the table alone"),
    }
}

/// The row count in the first line of a plan: `Seq Scan on outbox  (cost=0.00..1.05 rows=5 width=100)`.
fn planned_rows(plan: &str) -> u64 {
    let digits = plan.split_once(" rows=").map_or("", |(_, rest)| rest.split(' ').next().unwrap_or_default());
    digits.parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::secret::Secret;
    use crate::config::{Config, PostgresConfig};
    use crate::source::postgres::catalog::MemberBy;

    fn settings() -> PostgresSettings {
        let mut config = Config::default();
        config.record.headers = vec!["type".to_owned()];
        config.record.missing_columns = crate::config::MissingColumns::Ignore;
        let postgres = PostgresConfig { url: Secret::new("postgres://u@h/d"), ..PostgresConfig::default() };
        PostgresSettings::new(&config, &postgres).unwrap()
    }

    fn table() -> TableFacts {
        let columns = ["id", "a", "aggregatetype", "aggregateid", "payload", "type"].map(str::to_owned).to_vec();
        TableFacts {
            name: TableName::parse("public.\"out\"\"box\"").unwrap(),
            oid: 1,
            schema_oid: 2,
            has_identity: true,
            is_partitioned: false,
            columns,
            described: Vec::new(),
            is_matched: false,
            is_logged: true,
            ancestors: Vec::new(),
        }
    }

    #[test]
    fn only_needed_columns_are_read_and_everything_is_quoted() {
        let query = TableQuery::new(&settings(), &table(), None);
        let columns = r#""aggregateid", "aggregatetype", "id", "payload", "type""#;
        assert_eq!(query.sql, format!(r#"SELECT {columns} FROM ONLY "public"."out""box""#));
        let mut partitioned = table();
        partitioned.is_partitioned = true;
        assert!(TableQuery::new(&settings(), &partitioned, None).sql.ends_with(r#" FROM "public"."out""box""#));
    }

    #[test]
    fn condition_filter_and_order_are_put_together() {
        let mut settings = settings();
        settings.start_where = Some("a = 1 OR b -- c".to_owned());
        settings.start_order_by = vec!["At".to_owned(), "id".to_owned()];
        let listed = vec!["id".to_owned(), "payload".to_owned()];
        let membership = Membership { by: MemberBy::Table(1), filter: Some("(x > 0)"), columns: Some(&listed) };
        let sql = TableQuery::new(&settings, &table(), Some(membership)).sql;
        assert_eq!(
            sql,
            "SELECT \"id\", \"payload\" FROM ONLY \"public\".\"out\"\"box\" WHERE (a = 1 OR b -- c\n) AND ((x > 0)\n) \
             ORDER BY \"At\", \"id\""
        );
    }

    #[test]
    fn the_estimate_is_read_from_the_plan() {
        assert_eq!(planned_rows("Seq Scan on outbox  (cost=0.00..1.05 rows=1234 width=100)"), 1234);
        assert_eq!(planned_rows("Result"), 0);
    }

    #[test]
    fn what_is_lacking_is_granted() {
        let rights = catalog::TableRights { usage: false, select: false, row_security: false };
        let finding = forbidden(&settings(), &table().name, rights, &ServerError::default());
        assert!(
            finding
                .hint
                .contains(r#"GRANT USAGE ON SCHEMA "public" TO "u"; GRANT SELECT ON "public"."out""box" TO "u";"#)
        );
        let rights = catalog::TableRights { usage: true, select: true, row_security: true };
        assert!(forbidden(&settings(), &table().name, rights, &ServerError::default()).hint.contains("BYPASSRLS"));
    }
}
