//! The database in which the demo takes place: on a server of our own, or on one that was given.

use std::time::Duration;

use anyhow::Context;
use tokio_postgres::SimpleQueryMessage;

use super::screen::Screen;
use super::server::Server;
use crate::cli::DemoOptions;
use crate::commands::run::Refusal;
use crate::config::PostgresConfig;
use crate::config::secret::Secret;
use crate::source::postgres::settings::ConnectSettings;
use crate::source::postgres::sql::SqlSession;

/// What a person runs in a database before outboxd: table, role, publication.
const OUTBOX_SQL: &str = include_str!("../../sql/postgres/outbox.sql");

/// The shop's own table.
const SHOP_SQL: &str = "CREATE TABLE public.orders (id bigint PRIMARY KEY, customer text NOT NULL, article text NOT NULL, \
                        quantity int NOT NULL, status text NOT NULL)";

/// Longest wait for the relay's connection to be gone.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(5);

/// The database.
pub(super) struct Place {
    /// Name of the relay's instance.
    pub(super) instance: String,
    /// Slot of the instance.
    pub(super) slot: String,
    /// For the shop, as the owner of the database.
    pub(super) shop_url: String,
    /// For the relay, with as few rights as possible.
    pub(super) relay_url: Secret,
    ground: Ground,
}

enum Ground {
    Own {
        /// Ends when dropped.
        _server: Box<Server>,
    },
    Given {
        url: String,
        database: String,
    },
}

impl Place {
    /// Makes the database, with the shop's tables and all that the relay needs; in a given server nothing yet.
    ///
    /// # Errors
    /// [`Refusal`] inside where a person can help.
    pub(super) async fn prepare(options: &DemoOptions, screen: &Screen) -> anyhow::Result<Self> {
        match &options.postgres_url {
            Some(url) => Self::on_given(url.expose(), screen).await,
            None => Self::on_own(options, screen).await,
        }
    }

    async fn on_own(options: &DemoOptions, screen: &Screen) -> anyhow::Result<Self> {
        let server = Server::start(options.postgres_bin.as_deref(), screen).await?;
        let url = |user: &str, database: &str| {
            format!("postgres://{user}:{}@127.0.0.1:{}/{database}?sslmode=disable", server.password, server.port)
        };
        let admin = connect(&url("postgres", "postgres")).await?;
        admin.client.batch_execute("CREATE DATABASE shop").await.context("create the database")?;
        let shop_url = url("postgres", "shop");
        let shop = connect(&shop_url).await?;
        shop.client.batch_execute(OUTBOX_SQL).await.context("run outbox.sql")?;
        shop.client.batch_execute(SHOP_SQL).await.context("create the shop's table")?;
        let password = format!("ALTER ROLE outboxd PASSWORD '{}'", server.password);
        shop.client.batch_execute(&password).await.context("set the password of outboxd")?;
        Ok(Self {
            instance: "outbox".to_owned(),
            slot: "outboxd_outbox".to_owned(),
            shop_url,
            relay_url: Secret::new(url("outboxd", "shop")),
            ground: Ground::Own { _server: Box::new(server) },
        })
    }

    /// Everything in a database of its own, so that nothing of the server's is touched, with one user for all.
    async fn on_given(url: &str, screen: &Screen) -> anyhow::Result<Self> {
        let admin = connect(url).await?;
        let found = "SELECT current_setting('wal_level'), current_setting('server_version'), session_user";
        let row = admin.client.query_one(found, &[]).await.context("ask the server")?;
        let (wal_level, version, user): (&str, &str, &str) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        if wal_level != "logical" {
            let message = format!("the server has wal_level \"{wal_level}\", and its log has to be logical");
            let hint = "ALTER SYSTEM SET wal_level = 'logical' and restart it, or leave out --postgres-url".to_owned();
            return Err(Refusal { message, hint }.into());
        }
        let instance = format!("demo_{}", std::process::id());
        let database = format!("outboxd_{instance}");
        screen.fact("PostgreSQL", &format!("{version}, the given server, as user {user}"));
        screen.fact("", &format!("in a database of its own, {database}, which goes afterwards"));
        Self::tell_of_leftovers(&admin, screen).await?;
        let shop_url = with_database(url, &database);
        Ok(Self {
            slot: database.clone(),
            relay_url: Secret::new(shop_url.as_str()),
            shop_url,
            instance,
            ground: Ground::Given { url: url.to_owned(), database },
        })
    }

    /// A demo that was killed could not take its database away; whether another still runs its slot tells.
    async fn tell_of_leftovers(admin: &SqlSession, screen: &Screen) -> anyhow::Result<()> {
        let found = "SELECT datname FROM pg_database WHERE datname ~ '^outboxd_demo_[0-9]+$' AND NOT EXISTS \
                     (SELECT FROM pg_replication_slots WHERE slot_name = datname AND active)";
        for row in admin.client.query(found, &[]).await.context("look for what other demos have left")? {
            let name: &str = row.try_get(0)?;
            screen.fact("", &format!("a demo that was killed has left database {name} behind; to remove it:"));
            screen.line(&format!(
                "    SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = '{name}';"
            ));
            screen.line(&format!("    DROP DATABASE {name};"));
        }
        Ok(())
    }

    /// Makes what the demo needs in a given server; from here on there is something to [`leave`](Self::leave).
    ///
    /// # Errors
    /// The server's.
    pub(super) async fn furnish(&self) -> anyhow::Result<()> {
        let Ground::Given { url, database } = &self.ground else { return Ok(()) };
        let admin = connect(url).await?;
        admin.client.batch_execute(&format!("CREATE DATABASE {database}")).await.context("create a database")?;
        let table = "CREATE TABLE public.outbox (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), \
                     aggregatetype text NOT NULL, aggregateid text NOT NULL, type text NOT NULL, payload jsonb)";
        let publication = format!("CREATE PUBLICATION {} FOR TABLE public.outbox WITH (publish = 'insert')", self.slot);
        let shop = connect(&self.shop_url).await?;
        for sql in [table, SHOP_SQL, &publication] {
            shop.client.batch_execute(sql).await.context("prepare the database")?;
        }
        Ok(())
    }

    /// Leaves nothing behind. The relay and the shop have to be gone.
    pub(super) async fn leave(self) {
        let Ground::Given { url, database } = self.ground else { return };
        let Ok(admin) = connect(&url).await else { return };
        let drop_slot = format!(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = '{}'",
            self.slot
        );
        let begun = std::time::Instant::now();
        // the server takes a moment to notice that the relay has gone
        while admin.client.batch_execute(&drop_slot).await.is_err() && begun.elapsed() < LEAVE_TIMEOUT {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        if let Err(error) =
            admin.client.batch_execute(&format!("DROP DATABASE IF EXISTS {database} WITH (FORCE)")).await
        {
            tracing::warn!(database, error = %crate::chain(&error), "the database of the demo could not be dropped");
        }
    }
}

/// Opens an SQL session.
///
/// # Errors
/// [`Refusal`] inside, in the words of the source.
pub(super) async fn connect(url: &str) -> anyhow::Result<SqlSession> {
    let config = PostgresConfig { url: Secret::new(url), ..PostgresConfig::default() };
    let settings = ConnectSettings::new(&config, "shop").map_err(|error| {
        // it names the option of the configuration file
        let message = error.to_string().replace("option \"source.postgres.url\"", "the URL");
        Refusal { message, hint: "write postgres://user:password@host:5432/database".to_owned() }
    })?;
    SqlSession::connect(&settings).await.map_err(|error| {
        let hint = error.hint().unwrap_or_default().to_owned();
        Refusal { message: crate::chain(&error), hint }.into()
    })
}

/// The first column of the only row, as text.
///
/// # Errors
/// The server's, or there is no row.
pub(super) async fn text(session: &SqlSession, sql: &str) -> anyhow::Result<String> {
    let messages = session.client.simple_query(sql).await?;
    let row = messages.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    row.map(str::to_owned).context("the server gave no answer")
}

/// The URL with another database.
fn with_database(url: &str, database: &str) -> String {
    let (base, query) = url.split_once('?').unwrap_or((url, ""));
    let start = base.find("://").map_or(0, |at| at + 3);
    let authority = base.get(start..).and_then(|rest| rest.find('/')).map_or(base.len(), |at| start + at);
    let base = base.get(..authority).unwrap_or(base);
    let mark = if query.is_empty() { "" } else { "?" };
    format!("{base}/{database}{mark}{query}")
}

#[cfg(test)]
mod tests {
    use super::with_database;

    #[test]
    fn puts_another_database_into_a_url() {
        for (url, expected) in [
            ("postgres://u:p@h:5432/d?sslmode=require", "postgres://u:p@h:5432/x?sslmode=require"),
            ("postgres://u@h", "postgres://u@h/x"),
            ("postgres://u@h/", "postgres://u@h/x"),
            ("postgres://u@h?sslmode=disable", "postgres://u@h/x?sslmode=disable"),
        ] {
            assert_eq!(with_database(url, "x"), expected);
        }
    }
}
