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
    statements_that_write_in_other_words_are_terminal,
    files_that_are_loaded_elsewhere_are_passed_over,
    row_images_that_hold_all_of_an_insert,
    rotation_and_restart_of_the_server,
    a_row_longer_than_a_packet,
    settings_are_refused_all_at_once,
    fr_38_a_broker_that_is_away_does_not_end_the_connection,
    a_log_without_checksums,
    fr_31_two_sources_in_one_set,
];

/// Packed and unpacked transactions side by side.
fn fr_29_compressed_transactions(kind: Kind) {
    let server = PrivateMysql::start(kind, &[]);
    let case = MysqlCase::on(&server);
    case.session().run("ALTER TABLE outbox MODIFY payload MEDIUMTEXT");
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
    server.purge_log();
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
        let columns = "id, aggregatetype, aggregateid, type, payload";
        format!("{verb} INTO outbox ({columns}) VALUES ('{id}', {kind_text}, 'k', '{verb}', '{id}') {rest}")
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

/// What stands before INSERT, and a table that is made of a query.
fn statements_that_write_in_other_words_are_terminal(kind: Kind) {
    let insert = "INSERT INTO outbox (id, aggregatetype) VALUES ('1', 'A')";
    let mut statements = vec![
        "DROP TABLE outbox".to_owned() + "; CREATE TABLE outbox AS SELECT '1' AS id, 'A' AS aggregatetype",
        format!("/* in a comment */ (SELECT 1); {insert}"),
    ];
    if !kind.is_mysql() {
        statements.push(format!("SET STATEMENT max_statement_time = 5 FOR {insert}"));
        statements.push(format!("ANALYZE FORMAT=JSON {insert}"));
    }
    for statement in statements {
        let case = MysqlCase::new(kind);
        let relay = case.start();
        let mut session = case.session();
        session.run("SET SESSION binlog_format = STATEMENT");
        session.run("CREATE TABLE archive AS SELECT * FROM outbox");
        session.run("DELETE FROM outbox WHERE id IN (SELECT id FROM archive)");
        session.run(&format!("GRANT SELECT, INSERT ON {}.outbox TO cdc@localhost", case.tag));
        case.insert("A", "k", "fine");
        case.values_until("A", "fine", 10);
        for sql in statement.split("; ") {
            session.run(sql);
        }
        let ready = relay.wait_terminal(&["statement_logged"], 20).json;
        assert!(ready["detail"].as_str().unwrap().contains(".outbox"), "{statement}: {ready}");
    }
}

/// A statement that loads a file has the file in the log, in pieces.
fn files_that_are_loaded_elsewhere_are_passed_over(kind: Kind) {
    let case = MysqlCase::new(kind);
    let relay = case.start();
    let file = case.server.dir.join(format!("{}.txt", case.tag));
    std::fs::write(&file, (0..40_000).map(|n| format!("{n}\tlong enough\n")).collect::<String>()).unwrap();
    let mut session = case.session();
    session.run("CREATE TABLE other (a INT PRIMARY KEY, b TEXT)");
    session.run("CREATE TABLE plain (a INT PRIMARY KEY, b TEXT) ENGINE = MyISAM");
    session.run("INSERT INTO plain VALUES (0, '')");
    session.run("SET SESSION binlog_format = STATEMENT");
    session.run(&format!("LOAD DATA INFILE '{}' INTO TABLE other", file.display()));
    // its first row is there already
    assert!(session.try_run(&format!("LOAD DATA INFILE '{}' INTO TABLE plain", file.display())).is_err());
    assert_eq!(session.value("SELECT COUNT(*) FROM other"), "40000");
    case.insert("A", "k", "last");
    assert_eq!(case.values_until("A", "last", 20), ["last"]);
    assert_eq!(relay.health().map(|health| health.status), Some(200));
    std::fs::remove_file(&file).unwrap();
}

/// MariaDB's FULL_NODUP leaves out what an update did not change.
fn row_images_that_hold_all_of_an_insert(kind: Kind) {
    if kind != Kind::Mariadb11 {
        return;
    }
    let server = PrivateMysql::start(kind, &["--binlog-row-image=FULL_NODUP"]);
    let case = MysqlCase::on(&server);
    let relay = case.start();
    let mut session = case.session();
    case.insert("A", "k", "1");
    session.run("UPDATE outbox SET type = 'changed'");
    session.run("REPLACE INTO outbox SELECT id, aggregatetype, aggregateid, 'again', payload FROM outbox");
    session.run(&format!("INSERT INTO outbox (aggregatetype, payload) VALUES ({}, '2')", quote(&case.kind("A"))));
    session.run("DELETE FROM outbox");
    case.insert("A", "k", "last");
    assert_eq!(case.values_until("A", "last", 20), ["1", "2", "last"]);
    assert_eq!(relay.metric("outbox_events_dropped_total{reason=\"update\"}"), Some(2.0));
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
        "INSERT INTO outbox (aggregatetype, aggregateid, payload) VALUES ({}, 'k', REPEAT('z', 17000000))",
        quote(&case.kind("A"))
    ));
    session.run(&case.insert_sql("A", "k", "last"));
    let records = case.consume("A", 2, 30);
    assert_eq!((records[0].text().len(), records[1].text().as_str()), (17_000_000, "last"));
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

/// The server writes into a socket that nobody reads for longer than it waits by default.
fn fr_38_a_broker_that_is_away_does_not_end_the_connection(kind: Kind) {
    let server = PrivateMysql::start(kind, &["--net-write-timeout=2", "--wait-timeout=3"]);
    let case = MysqlCase::on(&server);
    case.session().run("ALTER TABLE outbox MODIFY payload MEDIUMTEXT");
    let positions = format!("{}.positions", case.tag);
    case.kafka.create_topic(&positions, 1, &[("cleanup.policy", "compact")]);
    let config = case.config().set("sink.kafka.create-topics", false).set("delivery.window-bytes", 65_536);
    let relay = Outboxd::start(&config);
    relay.ready();
    let mut session = case.session();
    let row = format!("('{}', 'k', '{}')", case.kind("A"), "z".repeat(100_000));
    for _ in 0..10 {
        session.run(&format!(
            "INSERT INTO outbox (aggregatetype, aggregateid, payload) VALUES {}",
            vec![row.as_str(); 50].join(",")
        ));
    }
    relay.wait_reason("topic_missing", 20);
    std::thread::sleep(Duration::from_secs(8));
    case.kafka.create_topic(&case.topic("A"), 1, &[]);
    assert_eq!(case.consume("A", 500, 60).len(), 500);
    assert_eq!(relay.stderr().matches("streaming begins").count(), 1, "the connection lived");
    case.session().run(&case.insert_sql("A", "k", "last"));
    assert_eq!(case.values_until("A", "last", 20).len(), 501);
}

/// Checksums are the server's choice.
fn a_log_without_checksums(kind: Kind) {
    let server = PrivateMysql::start(kind, &["--binlog-checksum=NONE"]);
    let case = MysqlCase::on(&server);
    let relay = case.start();
    case.insert("A", "k", "1");
    case.session().run("SET GLOBAL binlog_checksum = CRC32");
    case.insert("A", "k", "2");
    assert_eq!(case.values_until("A", "2", 20), ["1", "2"]);
    relay.kill9();
    let _relay = case.start();
    case.session().run("SET GLOBAL binlog_checksum = NONE");
    case.insert("A", "k", "3");
    assert_eq!(crate::support::case::without_repeats(case.values_until("A", "3", 20)), ["1", "2", "3"]);
}

/// The position is the whole set, and nothing of either source is repeated or left out.
fn fr_31_two_sources_in_one_set(kind: Kind) {
    let server = PrivateMysql::start(kind, &[]);
    let case = MysqlCase::on(&server);
    let mut session = case.session();
    let mut other = 0;
    let mut from_elsewhere = |payload: &str| {
        other += 1;
        if kind.is_mysql() {
            session.run(&format!("SET gtid_next = '3e11fa47-71ca-11e1-9e33-c80aa9429562:{other}'"));
            session.run(&case.insert_sql("A", "k", payload));
            session.run("SET gtid_next = 'AUTOMATIC'");
        } else {
            session.run("SET gtid_domain_id = 7");
            session.run(&case.insert_sql("A", "k", payload));
            session.run("SET gtid_domain_id = 0");
        }
    };
    from_elsewhere("before");
    let relay = case.start();
    for number in 0..5 {
        case.insert("A", "k", &format!("a{number}"));
        from_elsewhere(&format!("b{number}"));
    }
    case.values_until("A", "b4", 20);
    let position = eventually("a position with both", 10, || {
        case.stored_position().filter(|position| position.contains(if kind.is_mysql() { ":1-6" } else { "7-1-6" }))
    });
    assert_eq!(relay.terminate(), Some(0), "{position}");
    from_elsewhere("b5");
    case.insert("A", "k", "a5");
    let _relay = case.start();
    let wanted = ["a0", "b0", "a1", "b1", "a2", "b2", "a3", "b3", "a4", "b4", "b5", "a5"];
    assert_eq!(case.values_until("A", "a5", 20), wanted);
}
