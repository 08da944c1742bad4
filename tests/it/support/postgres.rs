//! PostgreSQL servers, databases and sessions.

use std::ops::Deref;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

use super::{free_port, must_run, private_dir, quote, script, variable};

fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap())
}

/// Runs a future to its end on the runtime that all tests share.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    runtime().block_on(future)
}

/// A position of the log as a number.
#[track_caller]
pub(crate) fn lsn(text: &str) -> u64 {
    let (high, low) = text.split_once('/').unwrap_or_else(|| panic!("not an LSN: {text:?}"));
    u64::from_str_radix(high, 16).unwrap() << 32 | u64::from_str_radix(low, 16).unwrap()
}

/// Major version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    V15,
    V18,
}

impl Version {
    fn number(self) -> u32 {
        match self {
            Self::V15 => 15,
            Self::V18 => 18,
        }
    }
}

/// One connection. Statements are plain text, results are text.
pub(crate) struct Session {
    client: Client,
}

impl Session {
    pub(crate) fn try_connect(url: &str) -> Result<Self, tokio_postgres::Error> {
        block_on(async {
            let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
            tokio::spawn(connection);
            Ok(Self { client })
        })
    }

    #[track_caller]
    pub(crate) fn connect(url: &str) -> Self {
        Self::try_connect(url).unwrap_or_else(|error| panic!("{url}: {error:?}"))
    }

    pub(crate) fn try_run(&self, sql: &str) -> Result<(), tokio_postgres::Error> {
        block_on(self.client.batch_execute(sql))
    }

    /// Runs statements.
    #[track_caller]
    pub(crate) fn run(&self, sql: &str) {
        self.try_run(sql).unwrap_or_else(|error| panic!("{sql}\n{error:?}"));
    }

    /// The result of a query.
    #[track_caller]
    pub(crate) fn rows(&self, sql: &str) -> Vec<Vec<Option<String>>> {
        self.try_rows(sql).unwrap_or_else(|error| panic!("{sql}\n{error:?}"))
    }

    fn try_rows(&self, sql: &str) -> Result<Vec<Vec<Option<String>>>, tokio_postgres::Error> {
        let messages = block_on(self.client.simple_query(sql))?;
        let rows = messages.iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some((0..row.len()).map(|i| row.get(i).map(str::to_owned)).collect()),
            _ => None,
        });
        Ok(rows.collect())
    }

    /// The first column of the first row.
    #[track_caller]
    pub(crate) fn text(&self, sql: &str) -> Option<String> {
        self.rows(sql).into_iter().next().and_then(|row| row.into_iter().next().flatten())
    }

    /// Where the server's log ends.
    #[track_caller]
    pub(crate) fn log_end(&self) -> u64 {
        lsn(&self.text("SELECT pg_current_wal_insert_lsn()").unwrap())
    }
}

/// A server that runs already.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    pub(crate) version: Version,
    pub(crate) port: u16,
    /// Its folder, with `tls/` and `server.log`.
    pub(crate) dir: PathBuf,
}

impl Server {
    /// The one that all tests share.
    pub(crate) fn shared(version: Version) -> Self {
        let url = variable(&format!("OUTBOX_TEST_POSTGRES_{}", version.number()));
        let port = url.rsplit(':').next().and_then(|rest| rest.split('/').next()).and_then(|port| port.parse().ok());
        let port = port.unwrap_or_else(|| panic!("no port in {url}"));
        let dir = PathBuf::from(variable(&format!("OUTBOX_TEST_POSTGRES_DIR_{}", version.number())));
        Self { version, port, dir }
    }

    pub(crate) fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    #[track_caller]
    pub(crate) fn session(&self, database: &str) -> Session {
        Session::connect(&self.url(database))
    }

    pub(crate) fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(self.dir.join("server.log")).unwrap_or_default()).into_owned()
    }
}

/// A server of one test, which may stop it, kill it, and exchange its data.
pub(crate) struct PrivateServer {
    server: Server,
}

impl PrivateServer {
    /// Makes and starts one, with these lines more in its configuration.
    #[track_caller]
    pub(crate) fn start(version: Version, configuration: &str) -> Self {
        let dir = private_dir("postgres");
        let private = Self { server: Server { version, port: free_port(), dir } };
        must_run(private.script("start").arg(private.port.to_string()).env("PG_CONF", configuration));
        private
    }

    fn script(&self, command: &str) -> Command {
        let mut script = script("postgres.sh");
        script.arg(command).arg(&self.dir);
        script.env("PGBIN", variable(&format!("OUTBOX_TEST_PGBIN_{}", self.version.number())));
        script
    }

    /// Starts it again.
    #[track_caller]
    pub(crate) fn start_again(&self) {
        must_run(self.script("start").arg(self.port.to_string()));
    }

    /// Fast shutdown; how long it took, or `None` if it did not end in time. It goes on ending then.
    pub(crate) fn stop(&self, limit: Duration) -> Option<Duration> {
        let begin = Instant::now();
        let status = self.script("stop").env("PG_STOP_TIMEOUT", limit.as_secs().max(1).to_string()).status().unwrap();
        status.success().then(|| begin.elapsed())
    }

    /// Ends it as a crash does.
    #[track_caller]
    pub(crate) fn crash(&self) {
        must_run(&mut self.script("kill"));
    }

    /// Copies the data of the stopped server to the folder `name` beside it.
    #[track_caller]
    pub(crate) fn copy_data(&self, from: &str, to: &str) {
        let to = self.dir.join(to);
        must_run(Command::new("rm").arg("-rf").arg(&to));
        must_run(Command::new("cp").arg("-a").arg(self.dir.join(from)).arg(&to));
    }

    /// Starts the stopped server as a standby of nobody: it stays in recovery.
    #[track_caller]
    pub(crate) fn start_as_standby(&self) {
        let data = self.dir.join("data");
        std::fs::write(data.join("standby.signal"), "").unwrap();
        must_run(
            Command::new("chown").arg("--reference").arg(data.join("PG_VERSION")).arg(data.join("standby.signal")),
        );
        self.start_again();
    }

    /// The same, and promotes it: the data goes on in a new timeline.
    #[track_caller]
    pub(crate) fn start_promoted(&self) {
        self.start_as_standby();
        let session = self.session("postgres");
        assert_eq!(session.text("SELECT pg_promote()").as_deref(), Some("t"), "the server was not promoted");
    }

    /// Has the stopped server go on with the data of another stopped one.
    #[track_caller]
    pub(crate) fn take_data_of(&self, other: &Self) {
        must_run(Command::new("rm").arg("-rf").arg(self.dir.join("data")));
        must_run(Command::new("cp").arg("-a").arg(other.dir.join("data")).arg(self.dir.join("data")));
    }

    /// Puts lines in front of `pg_hba.conf`.
    #[track_caller]
    pub(crate) fn prepend_hba(&self, lines: &str) {
        let file = self.dir.join("data/pg_hba.conf");
        let before = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, format!("{lines}\n{before}")).unwrap();
        self.reload();
    }

    /// Has the server read its configuration and certificates again, and waits until new sessions have them.
    #[track_caller]
    pub(crate) fn reload(&self) {
        let loaded = || self.session("postgres").text("SELECT pg_conf_load_time()");
        let before = loaded();
        self.session("postgres").run("SELECT pg_reload_conf()");
        super::eventually("the configuration is read again", 10, || (loaded() != before).then_some(()));
    }
}

impl Deref for PrivateServer {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

impl Drop for PrivateServer {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<_> = log.lines().collect();
            let tail = lines.iter().skip(lines.len().saturating_sub(30)).copied().collect::<Vec<_>>();
            eprintln!("--- end of the log of PostgreSQL on port {}:\n{}", self.port, tail.join("\n"));
        }
        let _ = self.script("wipe").status();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// A replication slot as the server shows it.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    /// Process of the session that uses it.
    pub(crate) active_pid: Option<u32>,
    pub(crate) confirmed: Option<u64>,
    pub(crate) restart: Option<u64>,
    pub(crate) wal_status: Option<String>,
}

/// A database of one test; dropped with its slots.
pub(crate) struct Database {
    pub(crate) server: Server,
    pub(crate) name: String,
    session: Session,
}

impl Database {
    /// Makes one; `options` follow the name in CREATE DATABASE.
    #[track_caller]
    pub(crate) fn create(server: &Server, name: &str, options: &str) -> Self {
        server.session("postgres").run(&format!("CREATE DATABASE \"{name}\" {options}"));
        Self { server: server.clone(), name: name.to_owned(), session: server.session(name) }
    }

    pub(crate) fn url(&self) -> String {
        self.server.url(&self.name)
    }

    /// One more session.
    #[track_caller]
    pub(crate) fn session(&self) -> Session {
        self.server.session(&self.name)
    }

    /// A new session in place of one that a restart of the server has ended.
    pub(crate) fn reconnect(&mut self) {
        self.session = self.server.session(&self.name);
    }

    #[track_caller]
    pub(crate) fn slot(&self, name: &str) -> Option<Slot> {
        let sql = format!(
            "SELECT active_pid, confirmed_flush_lsn, restart_lsn, wal_status FROM pg_replication_slots \
             WHERE slot_name = '{name}'"
        );
        let row = self.rows(&sql).into_iter().next()?;
        Some(Slot {
            active_pid: row[0].as_deref().map(|pid| pid.parse().unwrap()),
            confirmed: row[1].as_deref().map(lsn),
            restart: row[2].as_deref().map(lsn),
            wal_status: row[3].clone(),
        })
    }
}

impl Deref for Database {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.session
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // a server that the test has stopped needs no tidying
        let Ok(session) = Session::try_connect(&self.server.url("postgres")) else { return };
        // a test may have asked for a synchronous standby that there is not
        let _ = session.try_run("SET synchronous_commit = local; SET statement_timeout = '60s'");
        let name = &self.name;
        // one that is left behind would hold up every new slot of the server
        let prepared = format!("SELECT gid FROM pg_prepared_xacts WHERE database = '{name}'");
        for row in session.try_rows(&prepared).unwrap_or_default() {
            let _ = self.session.try_run(&format!("ROLLBACK PREPARED {}", quote(row[0].as_deref().unwrap_or(""))));
        }
        let _ = session.try_run(&format!(
            "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots \
             WHERE database = '{name}' AND active_pid IS NOT NULL"
        ));
        let drop_slots = format!(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots \
             WHERE database = '{name}' AND NOT active"
        );
        let drop_database = format!("DROP DATABASE IF EXISTS \"{name}\" WITH (FORCE)");
        for _ in 0..40 {
            let _ = session.try_run(&drop_slots);
            if session.try_run(&drop_database).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        eprintln!("database {name} was left behind");
    }
}
