//! MySQL and MariaDB: XA transactions, whose rows are in the log when they are prepared and count when they are committed.

use std::time::Duration;

use crate::support::Outboxd;
use crate::support::case::without_repeats;
use crate::support::mysql::{Kind, MysqlCase, PrivateMysql};

on_each_binlog![
    xa_counts_when_it_is_committed,
    xa_of_every_format,
    xa_survives_kill_9_between_prepare_and_commit,
    xa_interleaved_survives_kill_9,
    xa_prepared_outlives_the_server,
    xa_prepared_before_the_first_start_is_not_lost,
];

/// Statements of XA transactions on one case.
pub(crate) struct Xa<'a>(pub(crate) &'a MysqlCase);

impl Xa<'_> {
    fn xid(&self, name: &str) -> String {
        format!("'{}','{name}'", self.0.tag)
    }

    /// Prepares a transaction that inserts one row, and lets go of it.
    pub(crate) fn prepare(&self, name: &str) {
        let mut session = self.0.session();
        session.run(&format!("XA START {}", self.xid(name)));
        session.run(&self.0.insert_sql("A", "k", name));
        session.run(&format!("XA END {}", self.xid(name)));
        session.run(&format!("XA PREPARE {}", self.xid(name)));
    }

    /// Commits it, or rolls it back.
    pub(crate) fn decide(&self, verb: &str, name: &str) {
        let sql = format!("XA {verb} {}", self.xid(name));
        // MariaDB notices a moment later that the session has let go of it
        let mut session = self.0.session();
        crate::support::eventually(&sql, 10, || session.try_run(&sql).ok());
    }

    fn one_phase(&self, name: &str) {
        let mut session = self.0.session();
        session.run(&format!("XA START {}", self.xid(name)));
        session.run(&self.0.insert_sql("A", "k", name));
        session.run(&format!("XA END {}", self.xid(name)));
        session.run(&format!("XA COMMIT {} ONE PHASE", self.xid(name)));
    }
}

/// Rows of an XA transaction come when it is committed, and never when it is rolled back.
fn xa_counts_when_it_is_committed(kind: Kind) {
    let server = PrivateMysql::start(kind, &[]);
    let case = MysqlCase::on(&server);
    let _relay = case.start();
    let xa = Xa(&case);
    for name in ["first", "undone", "second"] {
        xa.prepare(name);
    }
    case.insert("A", "k", "between");
    case.values_until("A", "between", 10);
    xa.decide("COMMIT", "second");
    xa.decide("ROLLBACK", "undone");
    xa.decide("COMMIT", "first");
    xa.one_phase("one phase");
    case.insert("A", "k", "last");
    let wanted = ["between", "second", "first", "one phase", "last"];
    assert_eq!(case.values_until("A", "last", 10), wanted);
}

/// MySQL logs the format's number with all its bits where it decides, and with the lower 32 where it prepares.
fn xa_of_every_format(kind: Kind) {
    let server = PrivateMysql::start(kind, &[]);
    let case = MysqlCase::on(&server);
    let _relay = case.start();
    let formats: &[u64] =
        if kind.is_mysql() { &[0, 1 << 31, u32::MAX.into(), (1 << 32) + 5] } else { &[0, (1 << 31) - 1] };
    let mut wanted = Vec::new();
    for format in formats {
        let xid = |name: &str| format!("'{}','{name}',{format}", case.tag);
        for (name, verb) in [("kept", "COMMIT"), ("undone", "ROLLBACK")] {
            let payload = format!("{name} {format}");
            let mut session = case.session();
            session.run(&format!("XA START {}", xid(name)));
            session.run(&case.insert_sql("A", "k", &payload));
            session.run(&format!("XA END {}", xid(name)));
            session.run(&format!("XA PREPARE {}", xid(name)));
            session.run(&format!("XA {verb} {}", xid(name)));
            if verb == "COMMIT" {
                wanted.push(payload);
            }
        }
    }
    case.insert("A", "k", "last");
    wanted.push("last".to_owned());
    assert_eq!(case.values_until("A", "last", 10), wanted);
}

/// The position does not pass what is prepared and not decided.
fn xa_survives_kill_9_between_prepare_and_commit(kind: Kind) {
    let server = PrivateMysql::start(kind, &[]);
    survives_kill_9(&MysqlCase::on(&server));
}

pub(crate) fn survives_kill_9(case: &MysqlCase) {
    let relay = case.start();
    let xa = Xa(case);
    xa.prepare("prepared");
    xa.prepare("undone");
    for number in 0..10 {
        case.insert("A", "k", &number.to_string());
    }
    case.values_until("A", "9", 10);
    std::thread::sleep(Duration::from_secs(1));
    relay.kill9();
    let _relay = case.start();
    case.insert("A", "k", "after");
    case.values_until("A", "after", 10);
    xa.decide("ROLLBACK", "undone");
    xa.decide("COMMIT", "prepared");
    case.insert("A", "k", "last");
    let values = without_repeats(case.values_until("A", "last", 10));
    let mut wanted: Vec<String> = (0..10).map(|number| number.to_string()).collect();
    wanted.extend(["after", "prepared", "last"].map(str::to_owned));
    assert_eq!(values, wanted);
}

/// One that was decided while another was prepared is seen again without its rows, which were published.
fn xa_interleaved_survives_kill_9(kind: Kind) {
    let server = PrivateMysql::start(kind, &[]);
    interleaved_survives_kill_9(&MysqlCase::on(&server));
}

pub(crate) fn interleaved_survives_kill_9(case: &MysqlCase) {
    let relay = case.start();
    let xa = Xa(case);
    case.insert("A", "k", "first");
    xa.prepare("earlier");
    xa.prepare("undone");
    xa.prepare("later");
    xa.decide("COMMIT", "earlier");
    xa.decide("ROLLBACK", "undone");
    case.insert("A", "k", "between");
    case.values_until("A", "between", 10);
    std::thread::sleep(Duration::from_secs(1));
    relay.kill9();
    let _relay = case.start();
    xa.decide("COMMIT", "later");
    case.insert("A", "k", "last");
    let values = without_repeats(case.values_until("A", "last", 10));
    assert_eq!(values, ["first", "earlier", "between", "later", "last"]);
}

/// A prepared transaction stays so when the server restarts, in good order or not, and so it does here.
fn xa_prepared_outlives_the_server(kind: Kind) {
    let server = PrivateMysql::start(kind, &["--sync-binlog=1", "--innodb-flush-log-at-trx-commit=1"]);
    let case = MysqlCase::on(&server);
    let relay = case.start();
    let xa = Xa(&case);
    for name in ["one", "two", "undone"] {
        xa.prepare(name);
    }
    case.insert("A", "k", "first");
    case.values_until("A", "first", 10);
    server.stop();
    server.start_again();
    xa.decide("COMMIT", "two");
    case.values_until("A", "two", 30);
    server.kill();
    server.start_again();
    xa.decide("ROLLBACK", "undone");
    xa.decide("COMMIT", "one");
    case.insert("A", "k", "last");
    assert_eq!(without_repeats(case.values_until("A", "last", 30)), ["first", "two", "one", "last"]);
    assert_eq!(relay.terminate(), Some(0));
}

/// Its rows are in the log before reading begins: the relay waits, or, if it may not see it, stops when it is committed.
fn xa_prepared_before_the_first_start_is_not_lost(kind: Kind) {
    let server = PrivateMysql::start(kind, &[]);
    let case = MysqlCase::on(&server);
    let xa = Xa(&case);
    if kind.is_mysql() {
        for host in ["127.0.0.1", "localhost"] {
            server.session().run(&format!("REVOKE XA_RECOVER_ADMIN ON *.* FROM cdc@'{host}'"));
        }
        xa.prepare("hidden");
        let relay = case.start();
        xa.decide("COMMIT", "hidden");
        let ready = relay.wait_terminal(&["log_not_understood"], 20).json;
        assert!(ready["detail"].as_str().unwrap().contains("XA"), "{ready}");
        drop(relay);
        for host in ["127.0.0.1", "localhost"] {
            server.session().run(&format!("GRANT XA_RECOVER_ADMIN ON *.* TO cdc@'{host}'"));
        }
    }
    let case = MysqlCase::on(&server);
    let xa = Xa(&case);
    xa.prepare("early");
    let relay = Outboxd::start(&case.config());
    let health = relay.wait_health("waits", 20, |health| health.detail().contains("XA transactions are prepared"));
    assert_eq!(health.status, 503, "{health:?}");
    xa.decide("COMMIT", "early");
    relay.ready();
    case.insert("A", "k", "last");
    assert_eq!(case.values_until("A", "last", 20), ["last"], "with start = \"now\" it was before the beginning");
}
