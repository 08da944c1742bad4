//! What an instance needs in the database: the role's rights and the publication. Made over a connection of somebody who
//! may, or written as SQL for him. The slot is the relay's: it has to be younger than the publication.

use super::address::reach_any;
use super::attach::{publication_statement, read_facts};
use super::error::{ServerError, from_driver, quote_literal};
use super::settings::{ConnectSettings, PostgresSettings};
use super::sql::SqlSession;
use crate::config::names::quote_identifier;
use crate::source::SourceError;
use crate::source::setup::Outcome;
use crate::state::Reason;

/// One thing that is needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// What it is, for a person: `role "outboxd" may log in and replicate`.
    pub what: String,
    /// Whether it is there already: an SQL expression that says so.
    pub is_done: String,
    /// The statement that makes it.
    pub statement: String,
}

/// Everything that is needed, in order. A table that does not exist is a finding of the caller's.
#[must_use]
pub fn steps(settings: &PostgresSettings) -> Vec<Step> {
    let role = &settings.connect.user;
    let (role_text, role_name) = (quote_literal(role), quote_identifier(role));
    let mut steps = vec![
        Step {
            what: format!("role \"{role}\" exists"),
            is_done: format!("EXISTS (SELECT FROM pg_roles WHERE rolname = {role_text})"),
            statement: format!("CREATE ROLE {role_name} LOGIN REPLICATION;"),
        },
        Step {
            what: format!("role \"{role}\" may log in and replicate"),
            // on Amazon RDS and Aurora nobody may give REPLICATION: members of a role have it
            is_done: format!(
                "EXISTS (SELECT FROM pg_roles r WHERE rolname = {role_text} AND rolcanlogin AND (rolsuper OR rolreplication \
                 OR EXISTS (SELECT FROM pg_roles g WHERE g.rolname = 'rds_replication' AND pg_has_role(r.oid, g.oid, 'MEMBER'))))"
            ),
            statement: format!("ALTER ROLE {role_name} LOGIN REPLICATION;"),
        },
        Step {
            what: format!("role \"{role}\" may connect to database \"{}\"", settings.connect.database),
            is_done: format!("has_database_privilege({role_text}, current_database(), 'CONNECT')"),
            statement: format!(
                "GRANT CONNECT ON DATABASE {} TO {role_name};",
                quote_identifier(&settings.connect.database)
            ),
        },
    ];
    let mut schemas: Vec<&str> = settings.all_tables().map(|table| table.schema.as_str()).collect();
    schemas.sort_unstable();
    schemas.dedup();
    for schema in schemas {
        steps.push(Step {
            what: format!("role \"{role}\" may use schema \"{schema}\""),
            is_done: format!("has_schema_privilege({role_text}, {}, 'USAGE')", quote_literal(schema)),
            statement: format!("GRANT USAGE ON SCHEMA {} TO {role_name};", quote_identifier(schema)),
        });
    }
    for table in settings.all_tables() {
        steps.push(Step {
            what: format!("role \"{role}\" may read table \"{}\"", table.plain()),
            is_done: format!("has_table_privilege({role_text}, {}, 'SELECT')", quote_literal(&table.to_string())),
            statement: format!("GRANT SELECT ON {table} TO {role_name};"),
        });
    }
    steps.extend(publication_steps(settings));
    steps
}

/// The publication, its tables, and that it publishes inserts. One that exists gets what it lacks.
fn publication_steps(settings: &PostgresSettings) -> Vec<Step> {
    let name = &settings.names.publication;
    let (text, quoted) = (quote_literal(name), quote_identifier(name));
    let mut steps = vec![Step {
        what: format!("publication \"{name}\" exists"),
        is_done: format!("EXISTS (SELECT FROM pg_publication WHERE pubname = {text})"),
        statement: publication_statement(settings),
    }];
    for table in settings.all_tables() {
        steps.push(Step {
            what: format!("publication \"{name}\" includes table \"{}\"", table.plain()),
            is_done: format!(
                "EXISTS (SELECT FROM pg_publication_tables WHERE pubname = {text} AND schemaname = {} AND tablename = {}) OR \
                 EXISTS (SELECT FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid WHERE p.pubname = {text} \
                 AND r.prrelid = {}::regclass)",
                quote_literal(&table.schema),
                quote_literal(&table.table),
                quote_literal(&table.to_string())
            ),
            statement: format!("ALTER PUBLICATION {quoted} ADD TABLE {table};"),
        });
    }
    steps.push(Step {
        what: format!("publication \"{name}\" publishes inserts"),
        is_done: format!("EXISTS (SELECT FROM pg_publication WHERE pubname = {text} AND pubinsert)"),
        statement: format!("ALTER PUBLICATION {quoted} SET (publish = 'insert');"),
    });
    steps
}

/// The steps as a script for psql that may be run twice.
#[must_use]
pub fn script(settings: &PostgresSettings) -> String {
    let steps = steps(settings);
    let body: Vec<String> = steps
        .iter()
        .map(|step| {
            format!(
                "    -- {}\n    IF NOT ({}) THEN\n        {}\n    END IF;\n",
                step.what, step.is_done, step.statement
            )
        })
        .collect();
    let body = body.concat();
    let mut tag = "$outboxd$".to_owned();
    while body.contains(&tag) {
        tag.insert(tag.len() - 1, 'x');
    }
    format!(
        "-- What instance \"{}\" of outboxd needs in database \"{}\". May be run twice. As a superuser, or as the owner of the\n\
         -- table who may make roles:\n\
         --\n\
         --     psql -v ON_ERROR_STOP=1 -f FILE 'dbname={}'\n\
         --\n\
         -- A role that is new has no password: \\password {}\n\
         -- The slot is not made here: it has to be younger than the publication, and the relay makes it.\n\n\
         DO {tag}\nBEGIN\n{body}END\n{tag};\n",
        settings.names.instance.escape_debug(),
        settings.connect.database.escape_debug(),
        settings.connect.database.escape_debug(),
        settings.connect.user.escape_debug(),
    )
}

/// A connection that makes what is needed.
pub struct Setup {
    /// With the tables that patterns fit.
    pub settings: PostgresSettings,
    session: SqlSession,
}

impl Setup {
    /// Connects as `who`, which may be an administrator, and sees that the tables exist.
    ///
    /// # Errors
    /// The server cannot be reached or refuses the login; a table is missing or lacks columns.
    pub async fn connect(settings: &PostgresSettings, who: &ConnectSettings) -> Result<Self, SourceError> {
        let (who, session) = reach_any(who).await?;
        let facts = read_facts(&session, settings).await?;
        let mut settings = settings.clone();
        let found = facts.tables.iter().filter_map(|(_, table)| table.as_ref()).filter(|table| table.is_matched);
        settings.found = found.map(|table| table.name.clone()).collect();
        if settings.all_tables().next().is_none() {
            let message = format!("no table in database \"{}\" fits the patterns", who.database);
            let hint = "create one, or correct option \"outbox.tables\"".to_owned();
            return Err(SourceError::Configuration { reason: Reason::Configuration, message, hint });
        }
        let missing: Vec<String> = facts
            .tables
            .iter()
            .filter(|(_, table)| table.is_none())
            .map(|(name, _)| format!("table \"{}\" does not exist in database \"{}\"", name.plain(), who.database))
            .collect();
        if missing.is_empty() {
            return Ok(Self { settings, session });
        }
        let hints = vec!["create it, or correct option \"outbox.tables\""; missing.len()];
        Err(SourceError::Configuration {
            reason: Reason::Configuration,
            message: missing.join("\n"),
            hint: hints.join("\n"),
        })
    }

    /// Makes what a step is about, unless it is there.
    ///
    /// # Errors
    /// What the server says, other than that a right is lacking.
    pub async fn run(&self, step: &Step) -> Result<Outcome, SourceError> {
        let failed = |error| from_driver("set up the database", &self.settings.connect, error);
        let sql = format!("SELECT {}", step.is_done);
        match self.session.client.query_one(&sql, &[]).await.and_then(|row| row.try_get::<_, bool>(0)) {
            Ok(true) => return Ok(Outcome::WasThere),
            Ok(false) => {}
            // has_…_privilege of a role that could not be made
            Err(error) if error.as_db_error().is_some_and(|error| error.code().code() == "42704") => {}
            Err(error) => return Err(failed(error)),
        }
        match self.session.client.batch_execute(&step.statement).await {
            Ok(()) => Ok(Outcome::Made),
            Err(error) => match error.as_db_error().map(ServerError::from) {
                // the second one: what an earlier step was not allowed to make is missing
                Some(denied) if denied.sqlstate == "42501" || denied.sqlstate == "42704" => {
                    Ok(Outcome::Denied(denied.message))
                }
                _ => Err(failed(error)),
            },
        }
    }
}
