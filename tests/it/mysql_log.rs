//! MySQL and MariaDB: what the binary log may hold, and states in which it cannot be read on.

use std::time::Duration;

use crate::support::mysql::{Kind, MysqlCase, PrivateMysql};
use crate::support::{Outboxd, eventually, quote};

on_each_binlog![
    fr_29_compressed_transactions,
    fr_30_purged_log_is_terminal_with_the_gap,
    a_reset_log_is_terminal,
    another_server_is_terminal,
    fr_34_partial_row_image_is_terminal,
    fr_39_replace_and_upsert_are_no_events,
    statement_format_on_the_outbox_is_terminal,
    xa_counts_when_it_is_committed,
    xa_survives_kill_9_between_prepare_and_commit,
    rotation_and_restart_of_the_server,
    a_row_longer_than_a_packet,
    settings_are_refused_all_at_once,
];

/// Packed and unpacked transactions side by side.
fn fr_29_compressed_transactions(kind: Kind) {
    let server = PrivateMysql::start(kind, &[]);
    let case = MysqlCase::on(&server);
    let relay = case.start();
    let mut packed = case.session();
    if kind.is_mysql() {
        packed.run("SET SESSION binlog_transaction_compression = ON");
    } else {
        packed.run("SET GLOBAL log_bin_compress = ON, log_bin_compress_min_len = 10");
        packed = case.session();
    }
    let long = "x".repeat(2000);
    for number in 0..20 {
        packed.run("BEGIN");
        packed.run(&case.insert_sql("A", "k", &format!("{number} {long}")));
        packed.run(&case.insert_sql("A", "k", &format!("{number}b")));
        packed.run("UPDATE outbox SET type = 'x' WHERE aggregateid = 'none'");
        packed.run("COMMIT");
    }
    // one transaction of 100 MB, which the log holds in far less
    packed.run("BEGIN");
    let row = format!("('{}', 'k', '{}')", case.kind("Big"), "y".repeat(100_000));
    let rows = vec![row; 50].join(",");
    for _ in 0..20 {
        packed.run(&format!("INSERT INTO outbox (aggregatetype, aggregateid, payload) VALUES {rows}"));
    }
    packed.run("COMMIT");
    let values: Vec<String> = case.consume("A", 40, 20).iter().map(|record| record.text()).collect();
    let wanted: Vec<String> = (0..20).flat_map(|n| [format!("{n} {long}"), format!("{n}b")]).collect();
    assert_eq!(values, wanted);
    assert_eq!(case.consume("Big", 1000, 60).len(), 1000);
    let peak = relay.peak_memory() >> 20;
    assert!(peak < 200, "{peak} MiB");
}

/// The server says 1236, or shows before that what it no longer has.
fn fr_30_purged_log_is_terminal_with_the_gap(kind: Kind) {
    let server = PrivateMysql::start(kind, &[]);
    let case = MysqlCase::on(&server);
    let relay = case.start();
    case.insert("A", "k", "published");
    case.values_until("A", "published", 10);
    let position = eventually("a position", 10, || case.stored_position());
    assert_eq!(relay.terminate(), Some(0));
    case.insert("A", "k", "lost");
    let mut session = case.session();
    session.run("FLUSH BINARY LOGS");
    session.run("FLUSH BINARY LOGS");
    let last = if kind.is_mysql() { "SHOW BINARY LOG STATUS" } else { "SHOW MASTER STATUS" };
    let last = session.value(last);
    session.run(&format!("PURGE BINARY LOGS TO '{last}'"));
    let relay = Outboxd::start(&case.config());
    let ready = relay.wait_terminal(&["log_purged"], 20).json;
    assert!(ready["gap"]["from"].as_str().unwrap().contains('@'), "{ready} {position}");
    // it stays so, and does not loop
    std::thread::sleep(Duration::from_secs(2));
    relay.wait_terminal(&["log_purged"], 1);
}

/// The same server without its log.
fn a_reset_log_is_terminal(kind: Kind) {
    let server = PrivateMysql::start(kind, &[]);
    let case = MysqlCase::on(&server);
    let relay = case.start();
    for number in 0..5 {
        case.insert("A", "k", &number.to_string());
    }
    case.values_until("A", "4", 10);
    assert_eq!(relay.terminate(), Some(0));
    case.session().run(if kind.is_mysql() { "RESET BINARY LOGS AND GTIDS" } else { "RESET MASTER" });
    let relay = Outboxd::start(&case.config());
    relay.wait_terminal(&["server_behind"], 20);
}

/// A position of one server means nothing to another.
fn another_server_is_terminal(kind: Kind) {
    let first = PrivateMysql::start(kind, &["--server-id=11"]);
    let second = PrivateMysql::start(kind, &["--server-id=12"]);
    let case = MysqlCase::on(&first);
    let relay = case.start();
    for number in 0..5 {
        case.insert("A", "k", &number.to_string());
    }
    case.values_until("A", "4", 10);
    assert_eq!(relay.terminate(), Some(0));
    let mut session = second.session();
    session.run(&format!("CREATE DATABASE {}", case.tag));
    session.run(&format!(
        "CREATE TABLE {}.outbox (id INT PRIMARY KEY, aggregatetype TEXT, aggregateid TEXT, payload TEXT)",
        case.tag
    ));
    let moved = case.config().set(&format!("source.{}.url", case.source()), second.url("cdc", &case.tag));
    let relay = Outboxd::start(&moved);
    relay.wait_terminal(&["other_server"], 20);
}

/// A column that the session left out is not NULL.
fn fr_34_partial_row_image_is_terminal(kind: Kind) {
    let case = MysqlCase::new(kind);
    let relay = case.start();
    let mut session = case.session();
    session.run("ALTER TABLE outbox ALTER aggregateid SET DEFAULT 'dflt'");
    session.run("SET SESSION binlog_row_image = MINIMAL");
    session.run(&format!("INSERT INTO outbox (aggregatetype, payload) VALUES ({}, 'x')", quote(&case.kind("A"))));
    let ready = relay.wait_terminal(&["row_error"], 20).json;
    assert!(ready["detail"].as_str().unwrap().contains("partial row image"), "{ready}");
}

/// REPLACE of a row and an upsert are updates.
fn fr_39_replace_and_upsert_are_no_events(kind: Kind) {
    let case = MysqlCase::new(kind);
    let relay = case.start();
    let mut session = case.session();
    let kind_text = quote(&case.kind("A"));
    let insert = |verb: &str, id: &str, rest: &str| {
        format!(
            "{verb} INTO outbox (id, aggregatetype, aggregateid, payload) VALUES ('{id}', {kind_text}, 'k', '{id}') {rest}"
        )
    };
    session.run(&insert("INSERT", "1", ""));
    session.run(&insert("REPLACE", "1", ""));
    session.run(&insert("INSERT", "1", "ON DUPLICATE KEY UPDATE payload = 'changed'"));
    session.run(&insert("INSERT IGNORE", "1", ""));
    session.run(&insert("INSERT IGNORE", "2", ""));
    session.run("TRUNCATE TABLE outbox");
    session.run(&insert("INSERT", "3", ""));
    assert_eq!(case.values_until("A", "3", 10), ["1", "2", "3"]);
    assert_eq!(relay.metric("outbox_events_dropped_total{reason=\"update\"}"), Some(2.0));
}

/// The log holds the statement, and not the row.
fn statement_format_on_the_outbox_is_terminal(kind: Kind) {
    let case = MysqlCase::new(kind);
    let relay = case.start();
    let mut session = case.session();
    session.run("CREATE TABLE other (a INT)");
    session.run("SET SESSION binlog_format = STATEMENT");
    session.run("INSERT INTO other VALUES (1)");
    session.run("DELETE FROM outbox");
    case.insert("A", "k", "fine");
    case.values_until("A", "fine", 10);
    session.run(
        &case
            .insert_sql("A", "k", "hidden")
            .replace("(aggregatetype", "(id, aggregatetype")
            .replace("VALUES (", "VALUES ('1', "),
    );
    let ready = relay.wait_terminal(&["statement_logged"], 20).json;
    assert!(ready["detail"].as_str().unwrap().contains(".outbox"), "{ready}");
}

/// Rows of an XA transaction come when it is committed, and never when it is rolled back.
fn xa_counts_when_it_is_committed(kind: Kind) {
    let case = MysqlCase::new(kind);
    let _relay = case.start();
    let xid = |name: &str| format!("'{}-{name}'", case.tag);
    let prepare = |name: &str| {
        let mut session = case.session();
        session.run(&format!("XA START {}", xid(name)));
        session.run(&case.insert_sql("A", "k", name));
        session.run(&format!("XA END {}", xid(name)));
        session.run(&format!("XA PREPARE {}", xid(name)));
    };
    prepare("first");
    prepare("undone");
    prepare("second");
    case.insert("A", "k", "between");
    case.values_until("A", "between", 10);
    let mut session = case.session();
    session.run(&format!("XA COMMIT {}", xid("second")));
    session.run(&format!("XA ROLLBACK {}", xid("undone")));
    session.run(&format!("XA COMMIT {}", xid("first")));
    session.run(&format!("XA START {}", xid("one")));
    session.run(&case.insert_sql("A", "k", "one phase"));
    session.run(&format!("XA END {}", xid("one")));
    session.run(&format!("XA COMMIT {} ONE PHASE", xid("one")));
    case.insert("A", "k", "last");
    let wanted = ["between", "second", "first", "one phase", "last"];
    assert_eq!(case.values_until("A", "last", 10), wanted);
}

/// The position does not pass what is prepared and not decided.
fn xa_survives_kill_9_between_prepare_and_commit(kind: Kind) {
    let case = MysqlCase::new(kind);
    let relay = case.start();
    let xid = format!("'{}'", case.tag);
    let mut session = case.session();
    session.run(&format!("XA START {xid}"));
    session.run(&case.insert_sql("A", "k", "prepared"));
    session.run(&format!("XA END {xid}"));
    session.run(&format!("XA PREPARE {xid}"));
    for number in 0..10 {
        case.insert("A", "k", &number.to_string());
    }
    case.values_until("A", "9", 10);
    std::thread::sleep(Duration::from_secs(1));
    relay.kill9();
    let _relay = case.start();
    case.insert("A", "k", "after");
    case.values_until("A", "after", 10);
    case.session().run(&format!("XA COMMIT {xid}"));
    case.insert("A", "k", "last");
    let values = crate::support::case::without_repeats(case.values_until("A", "last", 10));
    let mut wanted: Vec<String> = (0..10).map(|number| number.to_string()).collect();
    wanted.extend(["after", "prepared", "last"].map(str::to_owned));
    assert_eq!(values, wanted);
}

/// New files, a restart in good order, and a crash.
fn rotation_and_restart_of_the_server(kind: Kind) {
    let server = PrivateMysql::start(kind, &[]);
    let case = MysqlCase::on(&server);
    let relay = case.start();
    case.insert("A", "k", "1");
    case.session().run("FLUSH BINARY LOGS");
    case.insert("A", "k", "2");
    case.values_until("A", "2", 10);
    server.stop();
    server.start_again();
    case.insert("A", "k", "3");
    case.values_until("A", "3", 30);
    server.kill();
    server.start_again();
    case.insert("A", "k", "4");
    assert_eq!(crate::support::case::without_repeats(case.values_until("A", "4", 30)), ["1", "2", "3", "4"]);
    assert_eq!(relay.terminate(), Some(0));
}

/// 16 MiB and more come in several packets.
fn a_row_longer_than_a_packet(kind: Kind) {
    let case = MysqlCase::new(kind);
    let mut session = case.session();
    session.run("ALTER TABLE outbox MODIFY payload LONGTEXT");
    let topic = case.topic("A");
    case.kafka.create_topic(&topic, 1, &[("max.message.bytes", "60000000")]);
    let config = case
        .config()
        .set_in("sink.kafka.options", "message.max.bytes", "60000000")
        .set("delivery.window-bytes", 1 << 30);
    let relay = Outboxd::start(&config);
    relay.ready();
    session.run("CREATE TABLE other (payload LONGTEXT)");
    session.run("INSERT INTO other VALUES (REPEAT('o', 20000000))");
    session.run("DELETE FROM other");
    session.run(&format!(
        "INSERT INTO outbox (aggregatetype, aggregateid, payload) VALUES ({}, 'k', REPEAT('z', 800000))",
        quote(&case.kind("A"))
    ));
    session.run(&case.insert_sql("A", "k", "last"));
    let records = case.consume("A", 2, 30);
    assert_eq!((records[0].text().len(), records[1].text().as_str()), (800_000, "last"));
}

/// Every setting that would lose rows is named at the first start.
fn settings_are_refused_all_at_once(kind: Kind) {
    let options = ["--binlog-format=STATEMENT", "--binlog-row-image=MINIMAL", "--binlog-row-metadata=MINIMAL"];
    let server = PrivateMysql::start(kind, &options);
    let case = MysqlCase::bare(&server);
    let mut relay = Outboxd::start(&case.config());
    let ended = relay.end(20);
    assert_eq!(ended.code, Some(2));
    for words in [
        "binlog_format is STATEMENT",
        "binlog_row_image is MINIMAL",
        "binlog_row_metadata is MINIMAL",
        ".outbox\\\" does not exist",
    ] {
        assert!(
            ended.stderr.contains(words) || ended.stderr.contains(&words.replace('\\', "")),
            "{words}: {}",
            ended.stderr
        );
    }
}
