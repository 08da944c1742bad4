//! MySQL and MariaDB servers, databases and sessions.

use std::ops::Deref;
use std::path::PathBuf;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, OptsBuilder, Row, Value};

use super::load::{Ground, KIND, Link, Load, SPAN};
use super::postgres::block_on;
use super::{Config, Kafka, Outboxd, Rec, free_port, must_run, private_dir, quote, script, unique_tag, variable};

/// Kind and version of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Mysql,
    Mariadb10,
    Mariadb11,
}

impl Kind {
    fn script_name(self) -> &'static str {
        match self {
            Self::Mysql => "mysql",
            Self::Mariadb10 => "mariadb-10.11",
            Self::Mariadb11 => "mariadb-11.8",
        }
    }

    fn variable(self) -> &'static str {
        match self {
            Self::Mysql => "OUTBOX_TEST_MYSQL",
            Self::Mariadb10 => "OUTBOX_TEST_MARIADB_10",
            Self::Mariadb11 => "OUTBOX_TEST_MARIADB_11",
        }
    }

    pub(crate) fn is_mysql(self) -> bool {
        self == Self::Mysql
    }

    /// The name of the source's table in the configuration.
    pub(crate) fn source(self) -> &'static str {
        if self.is_mysql() { "mysql" } else { "mariadb" }
    }
}

/// A server: its port, and its folder.
#[derive(Clone, Debug)]
pub(crate) struct MysqlServer {
    pub(crate) kind: Kind,
    pub(crate) port: u16,
    pub(crate) dir: PathBuf,
}

impl MysqlServer {
    /// The one that all tests share.
    pub(crate) fn shared(kind: Kind) -> Self {
        let port = variable(kind.variable()).parse().unwrap();
        Self { kind, port, dir: PathBuf::from(variable(&format!("{}_DIR", kind.variable()))) }
    }

    pub(crate) fn try_session(&self) -> Result<MysqlSession, mysql_async::Error> {
        let options = OptsBuilder::default()
            .ip_or_hostname("127.0.0.1")
            .tcp_port(self.port)
            .user(Some("tester"))
            .pass(Some("pw"))
            .prefer_socket(false);
        block_on(Conn::new(options)).map(|connection| MysqlSession { connection })
    }

    #[track_caller]
    pub(crate) fn session(&self) -> MysqlSession {
        super::eventually("a session", 20, || self.try_session().ok())
    }

    /// Begins a new file of the binary log and purges all others; gives the new one's name.
    #[track_caller]
    pub(crate) fn purge_log(&self) -> String {
        let mut session = self.session();
        session.run("FLUSH BINARY LOGS");
        let last = if self.kind.is_mysql() { "SHOW BINARY LOG STATUS" } else { "SHOW MASTER STATUS" };
        let last = session.value(last);
        if self.kind == Kind::Mariadb11 {
            session.run("SET GLOBAL slave_connections_needed_for_purge = 0");
        }
        // a file stays as long as the server has not noticed that its reader has gone
        super::eventually("the files are purged", 20, || {
            session.run(&format!("PURGE BINARY LOGS TO '{last}'"));
            (session.rows("SHOW BINARY LOGS").len() == 1).then_some(())
        });
        last
    }

    /// The URL of a user.
    pub(crate) fn url(&self, user: &str, database: &str) -> String {
        format!("{}://{user}:pw@127.0.0.1:{}/{database}", self.kind.source(), self.port)
    }
}

/// A server of one test, which may stop it and kill it.
pub(crate) struct PrivateMysql {
    server: MysqlServer,
    options: Vec<String>,
}

impl PrivateMysql {
    #[track_caller]
    pub(crate) fn start(kind: Kind, options: &[&str]) -> Self {
        let server = MysqlServer { kind, port: free_port(), dir: private_dir(kind.script_name()) };
        let private = Self { server, options: options.iter().map(|option| (*option).to_owned()).collect() };
        private.start_again();
        private
    }

    #[track_caller]
    pub(crate) fn start_again(&self) {
        let mut command = script("mysql.sh");
        command.arg("start").arg(self.kind.script_name()).arg(&self.dir).arg(self.port.to_string());
        must_run(command.args(&self.options));
    }

    #[track_caller]
    pub(crate) fn stop(&self) {
        must_run(script("mysql.sh").arg("stop").arg(&self.dir));
    }

    /// Its whole binary log, as its own tool prints it.
    #[track_caller]
    pub(crate) fn binlog(&self) -> String {
        must_run(script("mysql.sh").arg("binlog").arg(self.kind.script_name()).arg(&self.dir))
    }

    /// Sends a signal to the server's process.
    #[track_caller]
    pub(crate) fn signal(&self, name: &str) {
        let pid = std::fs::read_to_string(self.dir.join("pid")).unwrap();
        assert!(super::signal(pid.trim().parse().unwrap(), name), "the server does not run");
    }

    #[track_caller]
    pub(crate) fn kill(&self) {
        must_run(script("mysql.sh").arg("kill").arg(&self.dir));
    }
}

impl Deref for PrivateMysql {
    type Target = MysqlServer;

    fn deref(&self) -> &MysqlServer {
        &self.server
    }
}

impl Drop for PrivateMysql {
    fn drop(&mut self) {
        let _ = script("mysql.sh").arg("wipe").arg(&self.dir).output();
    }
}

/// One connection.
pub(crate) struct MysqlSession {
    connection: Conn,
}

impl MysqlSession {
    pub(crate) fn try_run(&mut self, sql: &str) -> Result<(), mysql_async::Error> {
        block_on(self.connection.query_drop(sql))
    }

    /// Runs one statement.
    #[track_caller]
    pub(crate) fn run(&mut self, sql: &str) {
        self.try_run(sql).unwrap_or_else(|error| panic!("{error}\n{sql}"));
    }

    /// The rows of a statement; NULL is `None`.
    #[track_caller]
    pub(crate) fn rows(&mut self, sql: &str) -> Vec<Vec<Option<Vec<u8>>>> {
        let rows: Vec<Row> = block_on(self.connection.query(sql)).unwrap_or_else(|error| panic!("{error}\n{sql}"));
        let cell = |value: Value| match value {
            Value::NULL => None,
            Value::Bytes(bytes) => Some(bytes),
            other => panic!("{other:?} in a text result"),
        };
        rows.into_iter().map(|row| row.unwrap().into_iter().map(cell).collect()).collect()
    }

    /// The first cell as text.
    #[track_caller]
    pub(crate) fn value(&mut self, sql: &str) -> String {
        let cell = self.rows(sql).into_iter().next().and_then(|row| row.into_iter().next().flatten());
        String::from_utf8(cell.unwrap_or_default()).unwrap()
    }
}

/// The ground of one test: a database, an instance name, topics that no other test uses.
pub(crate) struct MysqlCase {
    pub(crate) tag: String,
    pub(crate) server: MysqlServer,
    pub(crate) kafka: Kafka,
}

impl MysqlCase {
    /// On the shared servers, with the table `outbox`.
    #[track_caller]
    pub(crate) fn new(kind: Kind) -> Self {
        Self::on(&MysqlServer::shared(kind))
    }

    /// On another server, with the table `outbox`.
    #[track_caller]
    pub(crate) fn on(server: &MysqlServer) -> Self {
        let case = Self::bare(server);
        case.session().run(
            "CREATE TABLE outbox (id CHAR(36) PRIMARY KEY DEFAULT (UUID()), aggregatetype VARCHAR(255) NOT NULL, \
             aggregateid VARCHAR(255), type VARCHAR(255), payload TEXT)",
        );
        case
    }

    /// Without any table.
    #[track_caller]
    pub(crate) fn bare(server: &MysqlServer) -> Self {
        let tag = unique_tag();
        let case = Self { tag, server: server.clone(), kafka: Kafka::shared() };
        case.server.session().run(&format!("CREATE DATABASE {} CHARACTER SET utf8mb4", case.tag));
        case
    }

    /// A session in the test's database.
    #[track_caller]
    pub(crate) fn session(&self) -> MysqlSession {
        let mut session = self.server.session();
        session.run(&format!("USE {}", self.tag));
        session
    }

    /// A configuration that works here, and leaves alone what stands in the table.
    pub(crate) fn config(&self) -> Config {
        Config::default()
            .set("name", self.tag.as_str())
            .set(&format!("source.{}.url", self.source()), self.server.url("cdc", &self.tag))
            .set(&format!("source.{}.start", self.source()), "now")
            .set("sink.kafka.bootstrap-servers", self.kafka.bootstrap.as_str())
            .set("sink.kafka.positions-topic", format!("{}.positions", self.tag))
            .set("log.level", "debug,rustls=info")
    }

    pub(crate) fn source(&self) -> &'static str {
        self.server.kind.source()
    }

    /// Starts the relay and waits until it streams.
    #[track_caller]
    pub(crate) fn start(&self) -> Outboxd {
        let relay = Outboxd::start(&self.config());
        relay.ready();
        relay
    }

    pub(crate) fn kind(&self, kind: &str) -> String {
        format!("{}.{kind}", self.tag)
    }

    pub(crate) fn topic(&self, kind: &str) -> String {
        format!("outbox.event.{}", self.kind(kind))
    }

    /// The statement that inserts one row.
    pub(crate) fn insert_sql(&self, kind: &str, key: &str, payload: &str) -> String {
        format!(
            "INSERT INTO {}.outbox (aggregatetype, aggregateid, payload) VALUES ({}, {}, {})",
            self.tag,
            quote(&self.kind(kind)),
            quote(key),
            quote(payload)
        )
    }

    #[track_caller]
    pub(crate) fn insert(&self, kind: &str, key: &str, payload: &str) {
        self.session().run(&self.insert_sql(kind, key, payload));
    }

    #[track_caller]
    pub(crate) fn consume(&self, kind: &str, count: usize, seconds: u64) -> Vec<Rec> {
        self.kafka.consume(&self.topic(kind), count, seconds)
    }

    /// The values of all records of a kind, once one of them is `last`: shows what was not published too.
    #[track_caller]
    pub(crate) fn values_until(&self, kind: &str, last: &str, seconds: u64) -> Vec<String> {
        let topic = self.topic(kind);
        super::eventually(&format!("record {last:?} in {topic}"), seconds, || {
            let values: Vec<_> = self.kafka.read_all(&topic).iter().map(Rec::text).collect();
            values.iter().any(|value| value == last).then_some(values)
        })
    }

    /// The statement that inserts the rows `first..end` of a writer.
    pub(crate) fn rows_sql(&self, load: &Load, writer: u64, first: u64, end: u64) -> String {
        let verb = if load.stubborn { "INSERT IGNORE" } else { "INSERT" };
        let row = |row: u64| {
            let number = writer * SPAN + row;
            format!(
                "('00000000-0000-4000-8000-{number:012x}', {}, 'k{writer}-{}', CONCAT('{number} ', REPEAT('x', {})))",
                quote(&self.kind(KIND)),
                number % load.keys,
                load.bytes - 8
            )
        };
        let values: Vec<String> = (first..end).map(row).collect();
        format!("{verb} INTO outbox (id, aggregatetype, aggregateid, payload) VALUES {}", values.join(","))
    }

    /// The position that the relay has stored, as it is written.
    #[track_caller]
    pub(crate) fn stored_position(&self) -> Option<String> {
        let records = self.kafka.read_all(&format!("{}.positions", self.tag));
        let newest = records.iter().rev().find(|record| record.key.as_deref() == Some(self.tag.as_bytes()))?;
        let json: serde_json::Value = serde_json::from_slice(newest.value.as_deref()?).unwrap();
        Some(json["position"].as_str().unwrap().to_owned())
    }
}

impl Ground for MysqlCase {
    fn kafka(&self) -> &Kafka {
        &self.kafka
    }

    fn topic_of_load(&self) -> String {
        self.topic(KIND)
    }

    fn quiet_config(&self) -> Config {
        self.config().set("log.level", "info")
    }

    fn connector(&self) -> impl Fn() -> Result<Link, String> + Clone + Send + 'static {
        let (server, database) = (self.server.clone(), self.tag.clone());
        move || {
            let text = |error: mysql_async::Error| error.to_string();
            let mut session = server.try_session().map_err(text)?;
            session.try_run(&format!("USE {database}")).map_err(text)?;
            Ok(Box::new(move |sql: &str| session.try_run(sql).map_err(text)))
        }
    }

    /// In two statements; some have a part that is rolled back, and another transaction beside them that is.
    fn transaction_sql(&self, load: &Load, writer: u64, first: u64, end: u64) -> String {
        let middle = first.midpoint(end);
        let rows = |first, end| self.rows_sql(load, writer, first, end) + "; ";
        let undone = SPAN / 2 + first;
        let undone = rows(undone, undone + 3);
        let (part, beside) = match first / load.per_transaction % 5 {
            1 => (format!("SAVEPOINT s; {undone}ROLLBACK TO s; "), String::new()),
            3 => (String::new(), format!("BEGIN; {undone}ROLLBACK; ")),
            _ => (String::new(), String::new()),
        };
        let (head, tail) = (if middle > first { rows(first, middle) } else { String::new() }, rows(middle, end));
        format!("{beside}BEGIN; {head}{part}{tail}COMMIT")
    }

    fn position_text(&self) -> Option<String> {
        self.stored_position()
    }
}
