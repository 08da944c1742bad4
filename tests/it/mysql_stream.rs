//! MySQL and MariaDB: rows become records, in order, exactly once while nothing breaks.

use crate::support::mysql::{Kind, MysqlCase};
use crate::support::{Outboxd, eventually};

on_each_binlog![
    one_row_is_one_record,
    fr_13_insert_and_delete_in_one_transaction,
    fr_14_savepoints_and_rollbacks,
    fr_16_commit_order_not_id_order,
    goes_on_where_it_was_after_kill_9,
    a_statement_that_spans_many_events,
    tables_of_others_are_passed_over,
];

/// The whole way: key, value, headers, topic.
fn one_row_is_one_record(kind: Kind) {
    let case = MysqlCase::new(kind);
    let relay = Outboxd::start(&case.config().set("record.headers", vec!["type:eventType"]));
    relay.ready();
    case.session().run(&format!(
        "INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) VALUES ('e-1', '{}', 'A-17', 'Placed', '{{\"n\": 1}}')",
        case.kind("Order")
    ));
    let records = case.consume("Order", 1, 10);
    let record = &records[0];
    assert_eq!((record.key_text().as_str(), record.text().as_str()), ("A-17", "{\"n\": 1}"));
    assert_eq!((record.header_text("id").as_str(), record.header_text("eventType").as_str()), ("e-1", "Placed"));
    assert_eq!(relay.terminate(), Some(0));
}

/// What was inserted counts, also when it is deleted in the same transaction.
fn fr_13_insert_and_delete_in_one_transaction(kind: Kind) {
    let case = MysqlCase::new(kind);
    let _relay = case.start();
    let mut session = case.session();
    session.run("BEGIN");
    session.run(&case.insert_sql("A", "1", "kept"));
    session.run("DELETE FROM outbox");
    session.run("COMMIT");
    case.insert("A", "1", "last");
    assert_eq!(case.values_until("A", "last", 10), ["kept", "last"]);
}

/// What was rolled back is not published.
fn fr_14_savepoints_and_rollbacks(kind: Kind) {
    let case = MysqlCase::new(kind);
    let _relay = case.start();
    let mut session = case.session();
    session.run("BEGIN");
    session.run(&case.insert_sql("A", "1", "before"));
    session.run("SAVEPOINT s");
    session.run(&case.insert_sql("A", "1", "gone"));
    session.run("ROLLBACK TO s");
    session.run(&case.insert_sql("A", "1", "after"));
    session.run("COMMIT");
    session.run("BEGIN");
    session.run(&case.insert_sql("A", "1", "gone too"));
    session.run("ROLLBACK");
    case.insert("A", "1", "last");
    assert_eq!(case.values_until("A", "last", 10), ["before", "after", "last"]);
}

/// The order is that of the commits.
fn fr_16_commit_order_not_id_order(kind: Kind) {
    let case = MysqlCase::new(kind);
    let _relay = case.start();
    let mut slow = case.session();
    slow.run("BEGIN");
    slow.run(&case.insert_sql("A", "1", "slow"));
    case.insert("A", "1", "fast");
    slow.run("COMMIT");
    assert_eq!(case.values_until("A", "slow", 10), ["fast", "slow"]);
}

/// Nothing is lost by SIGKILL, and what was stored as done is not repeated.
fn goes_on_where_it_was_after_kill_9(kind: Kind) {
    let case = MysqlCase::new(kind);
    let relay = case.start();
    for number in 0..20 {
        case.insert("A", "1", &format!("a{number}"));
    }
    case.values_until("A", "a19", 10);
    let position = eventually("a position behind the rows", 10, || {
        let stored = case.stored_position()?;
        std::thread::sleep(std::time::Duration::from_millis(500));
        (case.stored_position()? == stored).then_some(stored)
    });
    assert!(position.contains("@bin.0"), "{position}");
    relay.kill9();
    for number in 0..20 {
        case.insert("A", "1", &format!("b{number}"));
    }
    let _relay = case.start();
    case.insert("A", "1", "last");
    let values = case.values_until("A", "last", 20);
    let wanted: Vec<String> =
        (0..20).map(|n| format!("a{n}")).chain((0..20).map(|n| format!("b{n}"))).chain(["last".to_owned()]).collect();
    assert_eq!(values, wanted);
}

/// A statement of many rows fills many events of about 8 KiB.
fn a_statement_that_spans_many_events(kind: Kind) {
    let case = MysqlCase::new(kind);
    let _relay = case.start();
    let rows: Vec<String> =
        (0..3000).map(|n| format!("('{}', 'k', '{n}-{}')", case.kind("A"), "x".repeat(300))).collect();
    case.session().run(&format!("INSERT INTO outbox (aggregatetype, aggregateid, payload) VALUES {}", rows.join(",")));
    let records = case.consume("A", 3000, 30);
    let numbers: Vec<usize> =
        records.iter().map(|record| record.text().split('-').next().unwrap().parse().unwrap()).collect();
    assert_eq!(numbers, (0..3000).collect::<Vec<_>>());
}

/// Rows of tables beside the outbox move the position, and nothing else.
fn tables_of_others_are_passed_over(kind: Kind) {
    let case = MysqlCase::new(kind);
    let mut session = case.session();
    session.run("CREATE TABLE other (id INT AUTO_INCREMENT PRIMARY KEY, g GEOMETRY, a VARCHAR(10))");
    let _relay = case.start();
    let before = eventually("the first position", 10, || case.stored_position());
    for _ in 0..10 {
        session.run("INSERT INTO other (g, a) VALUES (ST_GeomFromText('POINT(1 1)'), 'x')");
    }
    eventually("the position moves", 10, || (case.stored_position()? != before).then_some(()));
    session.run("ALTER TABLE other CHANGE a c varchar(32) NOT NULL DEFAULT _utf8mb4'' COMMENT 'x'");
    session.run("CREATE PROCEDURE p() BEGIN SELECT 1; END");
    session.run("ANALYZE TABLE other");
    case.insert("A", "1", "last");
    assert_eq!(case.values_until("A", "last", 10), ["last"]);
}
