//! MySQL and MariaDB: inputs that users of other relays reported, as far as no test beside the matter holds them.

use crate::support::mysql::{Kind, MysqlCase, MysqlServer, PrivateMysql};
use crate::support::tool::Tool;
use crate::support::{Outboxd, Rec, quote};

on_each_binlog![
    fr_24_update_delete_truncate,
    fr_24_update_may_stop,
    fr_25_extra_columns_as_headers,
    fr_26_record_timestamp,
    fr_28_table_in_latin1,
    fr_33_each_server_is_asked_in_its_own_words,
    fr_35_unsigned_numbers,
    fr_37_statements_that_nobody_parses,
    fr_38_an_idle_connection_lives,
    fr_38_a_server_that_is_silent_is_noticed,
];

/// They are no events; an update is counted.
fn fr_24_update_delete_truncate(kind: Kind) {
    let case = MysqlCase::new(kind);
    let relay = case.start();
    case.insert("A", "1", "first");
    case.insert("A", "1", "second");
    let mut session = case.session();
    session.run("UPDATE outbox SET payload = 'changed' WHERE payload = 'first'");
    session.run("DELETE FROM outbox WHERE payload = 'second'");
    session.run("TRUNCATE TABLE outbox");
    case.insert("A", "1", "last");
    assert_eq!(case.values_until("A", "last", 20), ["first", "second", "last"]);
    assert_eq!(relay.metric("outbox_events_dropped_total{reason=\"update\"}"), Some(1.0));
    assert_eq!(relay.health().map(|health| health.status), Some(200));
}

/// `on-update = "stop"` stops at an update.
fn fr_24_update_may_stop(kind: Kind) {
    let case = MysqlCase::new(kind);
    let relay = Outboxd::start(&case.config().set("outbox.on-update", "stop"));
    relay.ready();
    case.insert("A", "1", "first");
    case.consume("A", 1, 20);
    case.session().run("UPDATE outbox SET payload = 'changed'");
    relay.wait_reason("row_error", 10);
    case.insert("A", "1", "behind it");
    relay.wait_reason("row_error", 10);
    assert_eq!(case.kafka.read_all(&case.topic("A")).len(), 1);
}

fn with_columns(kind: Kind, definitions: &str) -> MysqlCase {
    let case = MysqlCase::bare(&MysqlServer::shared(kind));
    case.session().run(&format!(
        "CREATE TABLE outbox (id VARCHAR(36) PRIMARY KEY, aggregatetype VARCHAR(255) NOT NULL, aggregateid VARCHAR(255), \
         payload TEXT, {definitions})"
    ));
    case
}

fn fr_25_extra_columns_as_headers(kind: Kind) {
    let case = with_columns(kind, "tenant TEXT NULL, n BIGINT, ok BIT(1), u CHAR(36), at TIMESTAMP(6) NULL");
    let headers = vec!["tenant", "n", "ok", "u", "at"];
    let relay = Outboxd::start(&case.config().set("record.headers", headers.clone()));
    relay.ready();
    let mut session = case.session();
    session.run("SET time_zone = '+02:00'");
    session.run(&format!(
        "INSERT INTO outbox VALUES ('e-1', {}, 'k', 'p', NULL, -1, 1, '00112233-4455-6677-8899-aabbccddeeff', \
         '2024-01-02 05:04:05.000006')",
        quote(&case.kind("A"))
    ));
    let record = case.consume("A", 1, 20).remove(0);
    assert_eq!(record.headers[0].0, "id");
    assert_eq!((record.header_text("id").as_str(), record.header("tenant")), ("e-1", Some(None)));
    let texts = ["n", "ok", "u", "at"].map(|name| record.header_text(name));
    assert_eq!(texts, ["-1", "true", "00112233-4455-6677-8899-aabbccddeeff", "2024-01-02T03:04:05.000006Z"]);
    drop(relay);
    let mut relay = Outboxd::start(&case.config().set("record.headers", vec!["absent"]));
    let ended = relay.end(20);
    assert!(ended.code == Some(2) && ended.stderr.contains("has no column \"absent\""), "{}", ended.stderr);
    let relay =
        Outboxd::start(&case.config().set("record.headers", vec!["absent"]).set("record.missing-columns", "ignore"));
    relay.ready();
}

/// DATETIME is taken as UTC, TIMESTAMP is a moment, BIGINT is milliseconds; without one it is the commit's time.
fn fr_26_record_timestamp(kind: Kind) {
    for (column, value) in [
        ("DATETIME(6)", "'2024-01-02 03:04:05.678901'"),
        ("DATETIME(3)", "'2024-01-02 03:04:05.678'"),
        ("TIMESTAMP(6) NULL", "'2024-01-02 04:04:05.678901'"),
        ("BIGINT", "1704164645678"),
    ] {
        let case = with_columns(kind, &format!("at {column}"));
        let relay = Outboxd::start(&case.config().set("outbox.columns.timestamp", "at"));
        relay.ready();
        let mut session = case.session();
        session.run("SET time_zone = '+01:00'");
        for (id, at) in [("1", value), ("2", "NULL")] {
            session.run(&format!("INSERT INTO outbox VALUES ('{id}', {}, 'k', 'p', {at})", quote(&case.kind("A"))));
        }
        let records = case.consume("A", 2, 20);
        let now: i64 = session.value("SELECT CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED)").parse().unwrap();
        assert_eq!(records[0].timestamp, 1_704_164_645_678, "{column}");
        assert!((now - 60_000..=now + 1_000).contains(&records[1].timestamp), "{column}: {}", records[1].timestamp);
        assert_eq!(relay.metric("outbox_timestamp_fallbacks_total"), Some(1.0), "{column}");
    }
}

fn fr_28_table_in_latin1(kind: Kind) {
    let case = MysqlCase::new(kind);
    case.session().run("ALTER TABLE outbox CONVERT TO CHARACTER SET latin1");
    let _relay = case.start();
    case.insert("A", "clé", "café 5€");
    let record: Rec = case.consume("A", 1, 20).remove(0);
    assert_eq!(record.value.as_deref(), Some("café 5€".as_bytes()));
    assert_eq!(record.key_text(), "clé");
}

/// `SHOW MASTER STATUS` is an error on one, `SHOW BINARY LOG STATUS` on the others.
fn fr_33_each_server_is_asked_in_its_own_words(kind: Kind) {
    let case = MysqlCase::new(kind);
    let tool = Tool::new(&case.config());
    let said = tool.ends(&["check"], 0);
    assert!(said.stdout.contains("binary log: ends at"), "{said:?}");
    let relay = case.start();
    case.insert("A", "k", "1");
    case.values_until("A", "1", 10);
    let said = tool.ends(&["status"], 0);
    assert!(said.stdout.contains("log: ends at") && said.stdout.contains("@bin.0"), "{said:?}");
    drop(relay);
}

fn fr_35_unsigned_numbers(kind: Kind) {
    let case = MysqlCase::bare(&MysqlServer::shared(kind));
    case.session().run(
        "CREATE TABLE outbox (id BIGINT UNSIGNED PRIMARY KEY, aggregatetype VARCHAR(255) NOT NULL, \
         aggregateid TINYINT UNSIGNED, payload INT UNSIGNED, m MEDIUMINT UNSIGNED, s SMALLINT UNSIGNED)",
    );
    let relay = Outboxd::start(&case.config().set("record.headers", vec!["m", "s"]));
    relay.ready();
    case.session().run(&format!(
        "INSERT INTO outbox VALUES (18446744073709551615, {}, 255, 4294967295, 16777215, 65535)",
        quote(&case.kind("A"))
    ));
    let record = case.consume("A", 1, 20).remove(0);
    let texts = [record.header_text("id"), record.key_text(), record.text()];
    assert_eq!(texts, ["18446744073709551615", "255", "4294967295"]);
    assert_eq!([record.header_text("m"), record.header_text("s")], ["16777215", "65535"]);
}

/// Definitions of others are passed over, whatever they look like.
fn fr_37_statements_that_nobody_parses(kind: Kind) {
    let case = MysqlCase::new(kind);
    let relay = case.start();
    let mut session = case.session();
    session.run("CREATE TABLE other (id INT PRIMARY KEY, c INT, KEY (c))");
    for sql in [
        "ALTER TABLE other CHANGE c c varchar(32) NOT NULL DEFAULT _utf8mb4'' COMMENT 'x -- /* outbox'",
        "CREATE PROCEDURE p() BEGIN DECLARE n INT DEFAULT 0; INSERT INTO outbox (aggregatetype) VALUES ('BEGIN'); COMMIT; END",
        "CREATE TRIGGER t AFTER INSERT ON other FOR EACH ROW SET @outbox = 1",
        "CREATE /*! OR REPLACE */ VIEW v AS SELECT `id` AS `in``sert` FROM other",
        "CREATE EVENT e ON SCHEDULE EVERY 1 YEAR DO DELETE FROM outbox",
        "ANALYZE TABLE other",
        "CREATE USER IF NOT EXISTS 'xa commit'@'nowhere' IDENTIFIED BY 'begin'",
        "DROP USER 'xa commit'@'nowhere'",
        "ALTER TABLE other PARTITION BY HASH (id) PARTITIONS 3",
        "RENAME TABLE other TO commit_",
        "DROP TABLE IF EXISTS commit_, missing",
        "FLUSH TABLES",
    ] {
        session.run(sql);
    }
    case.insert("A", "1", "last");
    assert_eq!(case.values_until("A", "last", 20), ["last"]);
    assert_eq!(relay.health().map(|health| health.status), Some(200));
}

/// A server that closes what is idle for seconds does not close the stream, nor the lock's connection.
fn fr_38_an_idle_connection_lives(kind: Kind) {
    let server = PrivateMysql::start(kind, &["--wait-timeout=3", "--interactive-timeout=3"]);
    let case = MysqlCase::on(&server);
    let relay = case.start();
    std::thread::sleep(std::time::Duration::from_secs(10));
    case.insert("A", "k", "last");
    case.values_until("A", "last", 10);
    assert_eq!(relay.stderr().matches("streaming begins").count(), 1, "{}", relay.stderr());
    assert_eq!(relay.metric("outbox_source_reconnects_total"), Some(0.0));
}

/// A connection over which nothing comes any more looks like one of a quiet server, but for the heartbeats.
fn fr_38_a_server_that_is_silent_is_noticed(kind: Kind) {
    let server = PrivateMysql::start(kind, &[]);
    let case = MysqlCase::on(&server);
    let option = format!("source.{}.silence-timeout", case.source());
    let relay = Outboxd::start(&case.config().set(&option, "5s"));
    relay.ready();
    case.insert("A", "k", "1");
    case.values_until("A", "1", 10);
    server.signal("STOP");
    let health = relay.wait_health("notices the silence", 20, |health| health.status == 503);
    server.signal("CONT");
    assert!(["source_silent", "source_unreachable", "connecting"].contains(&health.reason()), "{health:?}");
    relay.ready();
    case.insert("A", "k", "2");
    assert_eq!(crate::support::case::without_repeats(case.values_until("A", "2", 20)), ["1", "2"]);
}
