//! MySQL without GTIDs: the position is a place in the server's own files.

use crate::kills;
use crate::mysql_xa;
use crate::support::case::without_repeats;
use crate::support::mysql::{Kind, MysqlCase, PrivateMysql};
use crate::support::tool::Tool;
use crate::support::{Outboxd, eventually, size};

fn server(mode: &str) -> PrivateMysql {
    let consistency = if mode == "OFF" { "OFF" } else { "ON" };
    let options = [format!("--gtid-mode={mode}"), format!("--enforce-gtid-consistency={consistency}")];
    PrivateMysql::start(Kind::Mysql, &options.each_ref().map(String::as_str))
}

fn goes_on_after_kills_and_restarts(mode: &str) {
    let server = server(mode);
    let case = MysqlCase::on(&server);
    let relay = case.start();
    case.insert("A", "k", "1");
    case.session().run("FLUSH BINARY LOGS");
    case.insert("A", "k", "2");
    case.values_until("A", "2", 10);
    let position = eventually("a position", 10, || case.stored_position());
    // a file that is begun says which GTIDs are before it
    assert!(position.starts_with("@bin.0") || mode == "ON_PERMISSIVE", "{position}");
    relay.kill9();
    case.insert("A", "k", "3");
    case.session().run("FLUSH BINARY LOGS");
    case.insert("A", "k", "4");
    let relay = case.start();
    case.values_until("A", "4", 20);
    server.stop();
    server.start_again();
    case.insert("A", "k", "5");
    case.values_until("A", "5", 30);
    server.kill();
    server.start_again();
    case.insert("A", "k", "6");
    assert_eq!(without_repeats(case.values_until("A", "6", 30)), ["1", "2", "3", "4", "5", "6"]);
    let said = Tool::new(&case.config()).ends(&["check"], 0);
    assert!(said.finds(&format!("gtid_mode is {mode}")), "{said:?}");
    assert_eq!(relay.terminate(), Some(0));
}

#[test]
fn mysql_place_with_gtid_mode_off() {
    goes_on_after_kills_and_restarts("OFF");
}

#[test]
fn mysql_place_with_gtid_mode_off_permissive() {
    goes_on_after_kills_and_restarts("OFF_PERMISSIVE");
}

/// Here transactions have GTIDs, but need not.
#[test]
fn mysql_place_with_gtid_mode_on_permissive() {
    goes_on_after_kills_and_restarts("ON_PERMISSIVE");
}

#[test]
fn mysql_place_fr_46_killed_at_random_moments() {
    let server = server("OFF");
    kills::at_random_moments(&MysqlCase::on(&server), size(20_000, 300_000), size(4, 20));
}

#[test]
fn mysql_place_xa_survives_kill_9() {
    let server = server("OFF");
    mysql_xa::survives_kill_9(&MysqlCase::on(&server));
}

#[test]
fn mysql_place_xa_interleaved_survives_kill_9() {
    let server = server("OFF");
    mysql_xa::interleaved_survives_kill_9(&MysqlCase::on(&server));
}

/// A file that was purged before it was read is a gap; one that held nothing more is none.
#[test]
fn mysql_place_fr_30_purged_log_is_terminal_with_the_gap() {
    let server = server("OFF");
    let case = MysqlCase::on(&server);
    let relay = case.start();
    case.insert("A", "k", "1");
    case.values_until("A", "1", 10);
    let mut session = case.session();
    // nothing is written, and the position follows
    session.run("FLUSH BINARY LOGS");
    let last = session.value("SHOW BINARY LOG STATUS");
    eventually("the position is in the newest file", 10, || case.stored_position().filter(|text| text.contains(&last)));
    assert_eq!(relay.terminate(), Some(0));
    let relay = case.start();
    case.insert("A", "k", "2");
    assert_eq!(case.values_until("A", "2", 10), ["1", "2"]);
    assert_eq!(relay.terminate(), Some(0));
    case.insert("A", "k", "lost");
    let oldest = server.purge_log();
    let relay = Outboxd::start(&case.config());
    let ready = relay.wait_terminal(&["log_purged"], 20).json;
    assert!(ready["detail"].as_str().unwrap().contains(&format!("the oldest is {oldest}")), "{ready}");
    assert!(ready["gap"]["from"].as_str().unwrap().starts_with("@bin."), "{ready}");
}

#[test]
fn mysql_place_reset_log_is_terminal() {
    let server = server("OFF");
    let case = MysqlCase::on(&server);
    let relay = case.start();
    for number in 0..5 {
        case.insert("A", "k", &number.to_string());
    }
    case.values_until("A", "4", 10);
    assert_eq!(relay.terminate(), Some(0));
    case.session().run("RESET BINARY LOGS AND GTIDS");
    let relay = Outboxd::start(&case.config());
    relay.wait_terminal(&["server_behind"], 20);
    drop(relay);
    // what was written anew has reached beyond the place, where no event begins
    let mut session = case.session();
    session.run("SET SESSION sql_log_bin = 1");
    for number in 0..10 {
        case.insert("A", "k", &format!("anew {number} {}", "x".repeat(777)));
    }
    let relay = Outboxd::start(&case.config());
    relay.wait_terminal(&["log_not_understood", "server_behind"], 20);
}

/// A failover is refused: a place in one server's files means nothing to another.
#[test]
fn mysql_place_another_server_is_terminal() {
    let (first, second) = (server("OFF"), server("OFF"));
    let case = MysqlCase::on(&first);
    let relay = case.start();
    case.insert("A", "k", "1");
    case.values_until("A", "1", 10);
    assert_eq!(relay.terminate(), Some(0));
    let mut session = second.session();
    session.run(&format!("CREATE DATABASE {}", case.tag));
    session.run(&format!(
        "CREATE TABLE {}.outbox (id INT PRIMARY KEY, aggregatetype TEXT, aggregateid TEXT, payload TEXT)",
        case.tag
    ));
    let moved = case.config().set("source.mysql.url", second.url("cdc", &case.tag));
    let ready = Outboxd::start(&moved).wait_terminal(&["other_server"], 20).json;
    assert!(ready["detail"].as_str().unwrap().contains("without GTIDs"), "{ready}");
}

/// From the first file on that was begun with GTIDs the position is a set of them.
#[test]
fn mysql_place_becomes_gtids_when_they_are_switched_on() {
    let server = server("OFF");
    let case = MysqlCase::on(&server);
    let relay = case.start();
    case.insert("A", "k", "1");
    let mut session = case.session();
    session.run("SET GLOBAL enforce_gtid_consistency = ON");
    for (mode, payload) in [("OFF_PERMISSIVE", "2"), ("ON_PERMISSIVE", "3"), ("ON", "4")] {
        session.run(&format!("SET GLOBAL gtid_mode = {mode}"));
        session.run("SET gtid_next = 'AUTOMATIC'");
        case.insert("A", "k", payload);
    }
    case.values_until("A", "4", 20);
    let position = eventually("a position with GTIDs", 10, || {
        case.stored_position().filter(|position| !position.starts_with('@'))
    });
    assert!(position.contains(":1-"), "{position}");
    relay.kill9();
    case.insert("A", "k", "5");
    let relay = case.start();
    assert_eq!(without_repeats(case.values_until("A", "5", 20)), ["1", "2", "3", "4", "5"]);
    assert_eq!(relay.terminate(), Some(0));
    // and back: the place is stored beside the set. (With OFF the server does not send what has a GTID.)
    for (mode, payload) in [("ON_PERMISSIVE", "6"), ("OFF_PERMISSIVE", "7")] {
        session.run(&format!("SET GLOBAL gtid_mode = {mode}"));
        case.insert("A", "k", payload);
    }
    let relay = case.start();
    case.values_until("A", "7", 20);
    assert_eq!(relay.terminate(), Some(0));
    session.run("SET GLOBAL gtid_mode = OFF");
    case.insert("A", "k", "8");
    let _relay = case.start();
    let wanted = ["1", "2", "3", "4", "5", "6", "7", "8"];
    assert_eq!(without_repeats(case.values_until("A", "8", 20)), wanted);
}

#[test]
fn mysql_place_refuses_a_first_read() {
    let server = server("OFF");
    let case = MysqlCase::on(&server);
    let mut relay = Outboxd::start(&case.config().set("source.mysql.start", "table"));
    let ended = relay.end(20);
    assert_eq!(ended.code, Some(2));
    assert!(
        ended.stderr.contains("gtid_mode is OFF") && ended.stderr.contains("source.mysql.start"),
        "{}",
        ended.stderr
    );
}
