//! MySQL and MariaDB: what a transaction undid, although the log may show it; and what becomes of XA transactions that reading
//! cannot know.

use crate::mysql_xa::Xa;
use crate::support::case::without_repeats;
use crate::support::mysql::{Kind, MysqlCase, PrivateMysql};
use crate::support::tool::Tool;
use crate::support::{Outboxd, size};

on_each_binlog![
    what_was_rolled_back_is_no_event,
    large_transactions_come_whole,
    xa_that_are_prepared_keep_resume_from_now_away,
    a_standby_takes_over_under_load,
];

const WITHOUT_GTIDS: [&str; 2] = ["--gtid-mode=OFF", "--enforce-gtid-consistency=OFF"];

/// Temporary tables, and tables without transactions, bring what was undone into MariaDB's log.
fn what_was_rolled_back_is_no_event(kind: Kind) {
    // with GTIDs MySQL refuses such transactions
    let own = kind.is_mysql().then(|| PrivateMysql::start(kind, &WITHOUT_GTIDS));
    let case = own.as_ref().map_or_else(|| MysqlCase::new(kind), |server| MysqlCase::on(server));
    let relay = case.start();
    let mut session = case.session();
    session.run("CREATE TABLE plain (a INT) ENGINE = MyISAM");
    session.run("CREATE TEMPORARY TABLE passing (a INT)");
    case.insert("A", "k", "1");
    session.run("BEGIN");
    session.run(&case.insert_sql("A", "k", "undone with a temporary table"));
    session.run("DROP TEMPORARY TABLE passing");
    session.run("ROLLBACK");
    case.insert("A", "k", "2");
    session.run("BEGIN");
    session.run(&case.insert_sql("A", "k", "3"));
    session.run("SAVEPOINT here");
    session.run(&case.insert_sql("A", "k", "undone behind a savepoint"));
    session.run("INSERT INTO plain VALUES (1)");
    session.run("ROLLBACK TO here");
    session.run(&case.insert_sql("A", "k", "4"));
    session.run("COMMIT");
    session.run("BEGIN");
    session.run(&case.insert_sql("A", "k", "undone with a table without transactions"));
    session.run("INSERT INTO plain VALUES (2)");
    session.run("ROLLBACK");
    case.insert("A", "k", "last");
    assert_eq!(case.values_until("A", "last", 20), ["1", "2", "3", "4", "last"]);
    assert_eq!(relay.terminate(), Some(0));
}

/// One that is too large to be held comes in parts.
fn large_transactions_come_whole(kind: Kind) {
    let case = MysqlCase::new(kind);
    let relay = case.start();
    let mut session = case.session();
    let filler = "x".repeat(60_000);
    let mut wanted = Vec::new();
    for transaction in 0..3 {
        session.run("BEGIN");
        for row in 0..50 {
            wanted.push(format!("{transaction}-{row}"));
            session.run(&case.insert_sql("A", "k", &format!("{transaction}-{row} {filler}")));
        }
        session.run("COMMIT");
    }
    case.insert("A", "k", "last");
    wanted.push("last".to_owned());
    let values = case.values_until("A", "last", 30);
    let names: Vec<&str> = values.iter().map(|value| value.split(' ').next().unwrap()).collect();
    assert_eq!(names, wanted);
    assert_eq!(relay.terminate(), Some(0));
}

/// Their rows would be before the place where reading goes on, and whether they count behind it.
fn xa_that_are_prepared_keep_resume_from_now_away(kind: Kind) {
    let server = PrivateMysql::start(kind, &[]);
    let case = MysqlCase::on(&server);
    let xa = Xa(&case);
    let relay = case.start();
    case.insert("A", "k", "1");
    case.values_until("A", "1", 10);
    assert_eq!(relay.terminate(), Some(0));
    xa.prepare("prepared");
    let tool = Tool::new(&case.config());
    let said = tool.ends(&["resume", "--from", "now", "--yes"], 1);
    assert!(said.finds("XA transactions are prepared"), "{said:?}");
    xa.decide("ROLLBACK", "prepared");
    tool.ends(&["resume", "--from", "now", "--yes"], 0);
    let relay = case.start();
    case.insert("A", "k", "last");
    assert_eq!(without_repeats(case.values_until("A", "last", 20)), ["1", "last"]);
    assert_eq!(relay.terminate(), Some(0));
}

/// The one that waits has asked the server before the lock was its own; meanwhile the other went on.
fn a_standby_takes_over_under_load(kind: Kind) {
    let case = &MysqlCase::new(kind);
    let stop = &std::sync::atomic::AtomicBool::new(false);
    let mut active = case.start();
    let written = std::thread::scope(|scope| {
        let writer = scope.spawn(move || {
            let mut session = case.session();
            let mut count = 0;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                session.run(&case.insert_sql("A", "k", &count.to_string()));
                count += 1;
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
            count
        });
        for _ in 0..size(4, 20) {
            let standby = Outboxd::start(&case.config());
            standby.wait_health("standby", 20, |health| health.reason() == "standby");
            assert_eq!(active.terminate(), Some(0));
            standby.wait_health("takes over", 30, |health| {
                assert_ne!(health.phase(), "terminal", "{health:?}");
                health.phase() == "streaming"
            });
            active = standby;
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        let written: usize = writer.join().unwrap();
        case.insert("A", "k", "last");
        case.values_until("A", "last", 30);
        written
    });
    let mut wanted: Vec<String> = (0..written).map(|number| number.to_string()).collect();
    wanted.push("last".to_owned());
    assert_eq!(without_repeats(case.values_until("A", "last", 30)), wanted);
}

/// Without GTIDs a decision that is read again cannot be told from one whose rows were never read.
#[test]
fn without_gtids_prepared_transactions_must_be_seen() {
    let server = PrivateMysql::start(Kind::Mysql, &WITHOUT_GTIDS);
    let case = MysqlCase::on(&server);
    let hosts = ["127.0.0.1", "localhost"];
    hosts.iter().for_each(|host| server.session().run(&format!("REVOKE XA_RECOVER_ADMIN ON *.* FROM cdc@'{host}'")));
    let ended = Outboxd::run_to_end(&case.config());
    assert!(ended.code == Some(2) && ended.stderr.contains("may not see which XA"), "{}", ended.stderr);
    assert!(ended.stderr.contains("GRANT REPLICATION SLAVE, REPLICATION CLIENT, XA_RECOVER_ADMIN"), "{}", ended.stderr);
    let said = Tool::new(&case.config()).ends(&["check"], 2);
    assert!(said.finds("may not see which XA"), "{said:?}");
    hosts.iter().for_each(|host| server.session().run(&format!("GRANT XA_RECOVER_ADMIN ON *.* TO cdc@'{host}'")));
    let relay = case.start();
    case.insert("A", "k", "last");
    assert_eq!(case.values_until("A", "last", 20), ["last"]);
    assert_eq!(relay.terminate(), Some(0));
}
