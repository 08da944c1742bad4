//! MySQL and MariaDB: what happens to the table and to the log while it is read.

use std::os::unix::fs::FileExt;

use crate::support::case::without_repeats;
use crate::support::mysql::{Kind, MysqlCase, PrivateMysql};
use crate::support::{Outboxd, Rec, eventually, quote};

on_each_binlog![
    a_table_is_renamed_and_made_anew,
    a_damaged_log_is_terminal,
    files_change_under_load,
    an_image_without_blobs_is_whole_where_they_are_written,
];

/// The log says of each row which columns it has.
fn a_table_is_renamed_and_made_anew(kind: Kind) {
    let case = MysqlCase::new(kind);
    let relay = case.start();
    let mut session = case.session();
    case.insert("A", "k", "1");
    session.run("RENAME TABLE outbox TO old");
    // no outbox any more
    session.run(&case.insert_sql("A", "k", "not an event").replace(".outbox", ".old"));
    session.run(
        "CREATE TABLE outbox (payload TEXT, extra INT DEFAULT 5, aggregateid VARCHAR(9), id INT AUTO_INCREMENT PRIMARY KEY, \
         aggregatetype VARCHAR(200) NOT NULL)",
    );
    case.insert("A", "k", "2");
    session.run("DROP TABLE outbox");
    session.run(
        "CREATE TABLE outbox (id VARCHAR(36) PRIMARY KEY DEFAULT 'i', aggregatetype VARCHAR(255), aggregateid TEXT, payload BLOB)",
    );
    case.insert("A", "k", "3");
    // two tables change their names in one statement
    session.run("RENAME TABLE outbox TO older, old TO outbox");
    case.insert("A", "k", "4");
    session.run("ALTER TABLE outbox DROP COLUMN type, ADD COLUMN first INT FIRST, MODIFY payload MEDIUMTEXT");
    case.insert("A", "k", "5");
    let records = case.consume("A", 5, 20);
    assert_eq!(records.iter().map(Rec::text).collect::<Vec<_>>(), ["1", "2", "3", "4", "5"]);
    assert!(records.iter().all(|record| record.key_text() == "k"));
    assert_eq!(relay.terminate(), Some(0));
}

/// One byte of a row is changed on disk: the checksum does not fit, and nothing of it is published.
fn a_damaged_log_is_terminal(kind: Kind) {
    const MARK: &[u8] = b"this byte will be another one";
    let server = PrivateMysql::start(kind, &[]);
    let case = MysqlCase::on(&server);
    let relay = case.start();
    case.insert("A", "k", "fine");
    case.values_until("A", "fine", 10);
    eventually("a position", 10, || case.stored_position());
    assert_eq!(relay.terminate(), Some(0));
    case.insert("A", "k", std::str::from_utf8(MARK).unwrap());
    server.stop();
    let file = std::fs::read_dir(server.dir.join("binlog")).unwrap().flatten().find_map(|entry| {
        let bytes = std::fs::read(entry.path()).unwrap_or_default();
        // MariaDB has the statement in the log too, before the row
        let at = bytes.windows(MARK.len()).rposition(|window| window == MARK)?;
        Some((entry.path(), at))
    });
    let (path, at) = file.expect("the row is not in the log");
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(b"T", u64::try_from(at).unwrap()).unwrap();
    server.start_again();
    let relay = Outboxd::start(&case.config());
    let ready = relay.wait_terminal(&["log_not_understood"], 20).json;
    let detail = ready["detail"].as_str().unwrap();
    assert!(detail.contains("damaged") || detail.contains("checksum") || detail.contains("CRC"), "{ready}");
    assert_eq!(case.kafka.read_all(&case.topic("A")).len(), 1);
}

/// New files all the time, with transactions on both sides of each border.
fn files_change_under_load(kind: Kind) {
    let server = PrivateMysql::start(kind, &["--max-binlog-size=65536"]);
    let case = MysqlCase::on(&server);
    let relay = case.start();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut session = case.session();
            for _ in 0..20 {
                session.run("FLUSH BINARY LOGS");
                std::thread::sleep(std::time::Duration::from_millis(30));
            }
        });
        let mut session = case.session();
        for number in 0..200 {
            session.run("BEGIN");
            session.run(&case.insert_sql("A", "k", &format!("{number} {}", "x".repeat(2_000))));
            session.run(&case.insert_sql("A", "k", &format!("{number}b")));
            session.run("COMMIT");
        }
    });
    case.insert("A", "k", "last");
    let values = case.values_until("A", "last", 20);
    let wanted: Vec<String> =
        (0..200).flat_map(|n| [n.to_string(), format!("{n}b")]).chain(["last".to_owned()]).collect();
    let found: Vec<&str> = values.iter().map(|value| value.split(' ').next().unwrap()).collect();
    assert_eq!(found, wanted);
    let files: usize = case.session().rows("SHOW BINARY LOGS").len();
    assert!(files > 20, "{files} files");
    assert_eq!(relay.terminate(), Some(0));
}

/// `NOBLOB` leaves long columns out of an insert only where the statement does not name them.
fn an_image_without_blobs_is_whole_where_they_are_written(kind: Kind) {
    let case = MysqlCase::new(kind);
    let relay = case.start();
    let mut session = case.session();
    session.run("SET SESSION binlog_row_image = NOBLOB");
    session.run(&case.insert_sql("A", "k", "written"));
    assert_eq!(case.values_until("A", "written", 10), ["written"]);
    session.run(&format!("INSERT INTO outbox (aggregatetype, aggregateid) VALUES ({}, 'k')", quote(&case.kind("A"))));
    let ready = relay.wait_terminal(&["row_error"], 20).json;
    assert!(ready["detail"].as_str().unwrap().contains("\"payload\""), "{ready}");
}

/// A JSON document that is changed in a part of it is an update.
#[test]
fn mysql_partial_json_is_no_event() {
    let case = MysqlCase::new(Kind::Mysql);
    let mut session = case.session();
    session.run("ALTER TABLE outbox MODIFY payload JSON");
    let relay = case.start();
    session.run("SET SESSION binlog_row_value_options = PARTIAL_JSON");
    session.run(&case.insert_sql("A", "k", "{\"a\": 1, \"b\": [1, 2]}"));
    session.run("UPDATE outbox SET payload = JSON_SET(payload, '$.a', 2), payload = JSON_REMOVE(payload, '$.b[0]')");
    session.run(&case.insert_sql("A", "k", "\"last\""));
    assert_eq!(case.values_until("A", "\"last\"", 10), ["{\"a\": 1, \"b\": [1, 2]}", "\"last\""]);
    assert_eq!(relay.metric("outbox_events_dropped_total{reason=\"update\"}"), Some(1.0));
}

/// With semi-synchronous replication a transaction is in the log, and published, before it is committed.
#[test]
fn mysql_what_is_published_before_it_is_committed_is_no_reset() {
    let options = ["--plugin-load-add=semisync_source.so", "--rpl-semi-sync-source-timeout=6000"];
    let server = PrivateMysql::start(Kind::Mysql, &options);
    let case = MysqlCase::on(&server);
    let relay = case.start();
    case.insert("A", "k", "1");
    case.values_until("A", "1", 10);
    let mut session = case.session();
    session.run("SET GLOBAL rpl_semi_sync_source_enabled = ON, GLOBAL rpl_semi_sync_source_wait_no_replica = ON");
    let before = eventually("a position", 10, || case.stored_position());
    std::thread::scope(|scope| {
        // nobody acknowledges it, so it waits for six seconds
        let slow = scope.spawn(|| session.run(&case.insert_sql("A", "k", "2")));
        case.values_until("A", "2", 10);
        eventually("its position", 5, || case.stored_position().filter(|position| *position != before));
        relay.kill9();
        let relay = Outboxd::start(&case.config());
        assert!(!slow.is_finished(), "it was committed at once: nothing was tried");
        relay.ready();
        assert_eq!(relay.terminate(), Some(0));
    });
    let _relay = case.start();
    case.insert("A", "k", "3");
    assert_eq!(case.values_until("A", "3", 20), ["1", "2", "3"]);
}

/// A GTID may have a tag, and then the set has another form, on the wire too.
#[test]
fn mysql_fr_31_tagged_gtids() {
    let server = PrivateMysql::start(Kind::Mysql, &[]);
    let case = MysqlCase::on(&server);
    let relay = case.start();
    let mut session = case.session();
    for (tag, payload) in [(":my_tag", "1"), ("", "2"), (":other", "3"), (":my_tag", "4")] {
        session.run(&format!("SET gtid_next = 'AUTOMATIC{tag}'"));
        session.run(&case.insert_sql("A", "k", payload));
    }
    case.values_until("A", "4", 10);
    let position = eventually("a position with tags", 10, || {
        case.stored_position().filter(|position| position.contains(":my_tag:1-2") && position.contains(":other:1"))
    });
    relay.kill9();
    session.run(&case.insert_sql("A", "k", "5"));
    session.run("FLUSH BINARY LOGS");
    session.run("SET gtid_next = 'AUTOMATIC'");
    session.run(&case.insert_sql("A", "k", "6"));
    let relay = case.start();
    assert_eq!(case.values_until("A", "6", 20), ["1", "2", "3", "4", "5", "6"], "from {position}");
    server.stop();
    server.start_again();
    case.insert("A", "k", "7");
    assert_eq!(without_repeats(case.values_until("A", "7", 30)).len(), 7);
    assert_eq!(relay.terminate(), Some(0));
    // what is purged with a tag is a gap too
    session = case.session();
    session.run("SET gtid_next = 'AUTOMATIC:my_tag'");
    session.run(&case.insert_sql("A", "k", "lost"));
    session.run("SET gtid_next = 'AUTOMATIC'");
    server.purge_log();
    let ready = Outboxd::start(&case.config()).wait_terminal(&["log_purged"], 20).json;
    assert!(ready["detail"].as_str().unwrap().contains(":my_tag:"), "{ready}");
}
