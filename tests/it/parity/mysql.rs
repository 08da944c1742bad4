//! The connectors of MySQL and MariaDB: the cases of `tests/data/parity/mysql-cases.json`, recorded in `mysql-debezium.json`
//! and `mariadb-debezium.json`.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Map, Value, json};

use super::beside_debezium::{each, wait_until_quiet};
use super::cases::{Case, Cases, Step};
use super::connector::{Connect, whole};
use super::recorded::wait_for_records;
use super::records::{ByRow, Recording, by_row, compare, expected};
use crate::support::mysql::{Kind, MysqlCase, MysqlServer};
use crate::support::{Kafka, Outboxd, PrivateKafka, eventually};

/// The cases.
pub(super) const FILE: &str = "mysql-cases.json";

/// What was recorded of the connector for a kind of server.
fn recording_of(kind: Kind) -> &'static str {
    match kind {
        Kind::Mysql => "mysql-debezium.json",
        Kind::Mariadb10 | Kind::Mariadb11 => "mariadb-debezium.json",
    }
}

/// The topic of rows that show that the log is read.
const WARM: &str = "warm";

/// The whole JSON of a connector. Its user has the rights that Debezium asks for, which are more than ours.
pub(super) fn connector_json(name: &str, ground: &MysqlCase, prefix: &str, own: &Map<String, Value>) -> Value {
    // each reader has a number of its own, far from those that outboxd makes
    static SERVER_ID: AtomicU32 = AtomicU32::new(1);
    let number = std::process::id() % 100_000 * 1000 + SERVER_ID.fetch_add(1, Ordering::Relaxed);
    let class = match ground.server.kind {
        Kind::Mysql => "mysql.MySqlConnector",
        Kind::Mariadb10 | Kind::Mariadb11 => "mariadb.MariaDbConnector",
    };
    let source = json!({
        "connector.class": format!("io.debezium.connector.{class}"),
        "database.port": ground.server.port.to_string(),
        "database.user": "tester",
        "database.password": "pw",
        "database.server.id": number.to_string(),
        "database.include.list": ground.tag,
        "table.include.list": format!("{}\\.outbox", ground.tag),
        "include.schema.changes": "false",
        "schema.history.internal.kafka.bootstrap.servers": ground.kafka.bootstrap,
        "schema.history.internal.kafka.topic": format!("history.{name}"),
    });
    whole(name, prefix, source, own)
}

/// A session that takes every value as it is.
pub(super) fn run(ground: &MysqlCase, statements: &[String]) {
    let mut session = ground.session();
    session.run("SET SESSION sql_mode = '', time_zone = '+00:00'");
    statements.iter().for_each(|sql| session.run(sql));
}

fn start(ground: &MysqlCase, prefix: &str, own: &Map<String, Value>) -> Outboxd {
    let relay = Outboxd::start_connector(&connector_json(&ground.tag, ground, prefix, own), &ground.kafka);
    relay.ready();
    relay
}

on_each_binlog!(cases_1, cases_2, cases_3);

fn cases_1(kind: Kind) {
    cases_of(kind, 0);
}

fn cases_2(kind: Kind) {
    cases_of(kind, 1);
}

fn cases_3(kind: Kind) {
    cases_of(kind, 2);
}

/// Every third case, compared with the recording.
fn cases_of(kind: Kind, share: usize) {
    let (cases, recording) = (Cases::load(FILE), Recording::load(recording_of(kind)));
    let mut findings = Vec::new();
    for case in cases.cases.iter().skip(share).step_by(3) {
        let recorded = recording.cases.get(&case.name);
        let wanted = expected(case, recorded.unwrap_or_else(|| panic!("case \"{}\" was not recorded", case.name)));
        let ground = MysqlCase::bare(&MysqlServer::shared(kind));
        run(&ground, &[cases.table(case).to_owned()]);
        let relay = start(&ground, &format!("{}.ours", ground.tag), &case.connector);
        let steps = cases.steps(case);
        insert(&ground, &steps);
        findings.extend(compare(&case.name, &wanted, &ours(&ground, &relay, case, &steps, &wanted)));
    }
    assert!(findings.is_empty(), "{} differences:\n{}", findings.len(), findings.join("\n"));
}

fn insert(ground: &MysqlCase, steps: &[Step]) {
    steps.iter().for_each(|step| run(ground, &step.statements));
}

fn ours(ground: &MysqlCase, relay: &Outboxd, case: &Case, steps: &[Step], wanted: &ByRow) -> ByRow {
    let prefix = format!("{}.ours", ground.tag);
    let count = wanted.values().map(Vec::len).sum();
    wait_for_records(relay, &ground.kafka, &prefix, count);
    records(&ground.kafka, &prefix, case, steps)
}

/// The records of the rows, without those that showed that the log is read.
fn records(kafka: &Kafka, prefix: &str, case: &Case, steps: &[Step]) -> ByRow {
    let mut rows = by_row(kafka, prefix, &case.id_header, steps);
    if let Some(others) = rows.get_mut("") {
        others.retain(|record| !record.topic.ends_with(WARM));
        if others.is_empty() {
            rows.remove("");
        }
    }
    rows
}

/// Puts every case through a real Debezium and the relay and compares record by record; also with the recording, or makes
/// a new one of it.
#[test]
#[ignore = "needs a real Debezium: tests/run --debezium"]
fn record_by_record() {
    beside_debezium(Kind::Mysql, &Connect::shared(), &Kafka::shared(), "MySqlConnector");
}

/// The same beside the connector of MariaDB, which is an older Debezium.
#[test]
#[ignore = "needs a real Debezium: tests/run --debezium"]
fn record_by_record_on_mariadb() {
    let kafka = PrivateKafka::start();
    let connect = Connect::start_for_mariadb(&kafka, "");
    beside_debezium(Kind::Mariadb11, &connect, &kafka, "MariaDbConnector");
}

fn beside_debezium(kind: Kind, connect: &Connect, kafka: &Kafka, class: &str) {
    let cases = Cases::load(FILE);
    let is_recorded = std::env::var("OUTBOX_TEST_RECORD").is_ok_and(|value| value == "1");
    let recording = Mutex::new(Recording { versions: connect.versions(class).into(), ..Recording::default() });
    let findings = Mutex::new(Vec::new());
    each(&cases.cases, |case| {
        let mut ground = MysqlCase::bare(&MysqlServer::shared(kind));
        ground.kafka = kafka.clone();
        let (debezium, ours) = both(&cases, case, &ground, connect);
        findings.lock().unwrap().extend(compare(&case.name, &expected(case, &debezium), &ours));
        recording.lock().unwrap().cases.insert(case.name.clone(), debezium);
    });
    let (recording, mut findings) = (recording.into_inner().unwrap(), findings.into_inner().unwrap());
    if is_recorded {
        recording.save(recording_of(kind));
    } else {
        let old = Recording::load(recording_of(kind));
        for (name, rows) in &recording.cases {
            let none = ByRow::default();
            findings.extend(compare(&format!("the recording of {name}"), old.cases.get(name).unwrap_or(&none), rows));
        }
    }
    assert!(findings.is_empty(), "{} differences:\n{}", findings.len(), findings.join("\n"));
    let rows: usize = recording.cases.values().map(|rows| rows.len()).sum();
    println!("{} cases, {rows} rows: no other difference", cases.cases.len());
}

/// Debezium's records of a case, and ours.
fn both(cases: &Cases, case: &Case, ground: &MysqlCase, connect: &Connect) -> (ByRow, ByRow) {
    let (debezium, prefix) = (format!("{}_debezium", ground.tag), format!("{}.debezium", ground.tag));
    run(ground, &[cases.table(case).to_owned()]);
    connect.create(&connector_json(&debezium, ground, &prefix, &case.connector));
    let relay = start(ground, &format!("{}.ours", ground.tag), &case.connector);
    // it reads from some moment on, which only its first record shows
    let warm = warming_row(case);
    eventually("Debezium reads the log", 90, || {
        let failure = connect.failure(&debezium);
        assert!(failure.is_none(), "case \"{}\" stops Debezium: {failure:?}", case.name);
        run(ground, std::slice::from_ref(&warm));
        std::thread::sleep(std::time::Duration::from_millis(500));
        (ground.kafka.count(&prefix) > 0).then_some(())
    });
    let steps = cases.steps(case);
    insert(ground, &steps);
    wait_until_quiet(&ground.kafka, &prefix, || {
        let failure = connect.failure(&debezium);
        assert!(failure.is_none(), "case \"{}\" stops Debezium: {failure:?}", case.name);
    });
    let theirs = records(&ground.kafka, &prefix, case, &steps);
    connect.delete(&debezium);
    let ours = ours(ground, &relay, case, &steps, &expected(case, &theirs));
    (theirs, ours)
}

/// A row that every case can route.
fn warming_row(case: &Case) -> String {
    let (id, key) = match case.table() {
        "binary" => ("CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS UNSIGNED)", "0"),
        "binary id" => ("UNHEX(REPLACE(UUID(), '-', ''))", "'0'"),
        _ => ("UUID()", "'0'"),
    };
    format!(
        "INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) VALUES ({id}, '{WARM}', {key}, 'shop-{WARM}', '{{}}')"
    )
}
