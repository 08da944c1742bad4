//! The relay takes over from the connector of MySQL or MariaDB while rows are written, with the connector's own JSON and offset.

use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::connector::Connect;
use super::mysql::{connector_json, run};
use crate::support::mysql::{Kind, MysqlCase, MysqlServer};
use crate::support::tool::type_in;
use crate::support::{Kafka, Outboxd, PrivateKafka, eventually, quote};

const KIND: &str = "A";
const ROWS: usize = 6_000;
/// Rows of one transaction.
const STEP: usize = 5;
/// Often enough that there is an offset, and that the last one is from the middle.
const FLUSHES: &str = "offset.flush.interval.ms=700";

#[test]
#[ignore = "needs a real Debezium: tests/run --debezium"]
fn after_a_kill() {
    let kafka = PrivateKafka::start();
    takes_over(Kind::Mysql, &kafka, &Connect::start(&kafka, FLUSHES));
}

#[test]
#[ignore = "needs a real Debezium: tests/run --debezium"]
fn after_a_kill_on_mariadb() {
    let kafka = PrivateKafka::start();
    takes_over(Kind::Mariadb11, &kafka, &Connect::start_for_mariadb(&kafka, FLUSHES));
}

/// The worker of Kafka Connect is killed while rows are written; `outboxd takeover` finds the connector's offset in the
/// topic, and the relay goes on from it: nothing is missing, and in each key all comes in the order of the commits once
/// repeats are dropped. Rows are deleted as soon as they are written, so that reading the table would not bring them.
fn takes_over(kind: Kind, kafka: &Kafka, connect: &Connect) {
    let mut case = MysqlCase::new(kind);
    case.kafka = kafka.clone();
    let own = Map::from_iter([
        ("transforms.outbox.route.topic.replacement".to_owned(), json!("outbox.event.${routedByValue}")),
        ("poll.interval.ms".to_owned(), json!("100")),
    ]);
    let json = connector_json(&case.tag, &case, "shop", &own);
    connect.create(&json);
    let topic = case.topic(KIND);
    let mut warm = 0;
    eventually("Debezium reads the log", 90, || {
        run(&case, &[case.insert_sql(KIND, "warm", "warm")]);
        warm += 1;
        std::thread::sleep(Duration::from_millis(500));
        (case.kafka.count(&topic) > 0).then_some(())
    });
    let writer = write(&case);
    eventually("a sixth of the records", 60, || {
        (case.kafka.count(&topic) >= u64::try_from(ROWS / 6).unwrap()).then_some(())
    });
    connect.kill9();
    std::thread::sleep(Duration::from_secs(1));
    let shown = takeover(&json, &case.kafka);
    println!("{shown}");
    assert!(shown.contains("published whole up to ") && shown.contains("wrote position "), "{shown}");
    let relay = Outboxd::start_connector(&json, &case.kafka);
    writer.join().unwrap();
    let repeats = all_arrived(&case);
    println!("Debezium killed: {ROWS} rows, {repeats} repeats, nothing missing, in order");
    assert_eq!(relay.terminate(), Some(0));
}

/// Runs `outboxd takeover` with the connector's JSON and the worker's topic; gives what it shows.
fn takeover(connector: &Value, kafka: &Kafka) -> String {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("connector.json");
    std::fs::write(&file, connector.to_string()).unwrap();
    let file = file.to_str().unwrap();
    let from =
        ["--bootstrap-servers", &kafka.bootstrap, "--offsets-topic", "connect-offsets", "--http-listen", "", "--yes"];
    let words: Vec<&str> = ["takeover", "--config", file].into_iter().chain(from).collect();
    let said = type_in(&words);
    assert_eq!(said.code, Some(0), "{}{}", said.stdout, said.stderr);
    said.stdout
}

/// Writes rows in a thread, some in each transaction, and deletes them at once.
fn write(case: &MysqlCase) -> JoinHandle<()> {
    let (server, tag, kind): (MysqlServer, String, String) = (case.server.clone(), case.tag.clone(), case.kind(KIND));
    std::thread::spawn(move || {
        let mut session = server.session();
        session.run(&format!("USE {tag}"));
        for from in (0..ROWS).step_by(STEP) {
            let row = |n: usize| format!("({}, 'k{}', '{n}')", quote(&kind), n % 10);
            let rows: Vec<String> = (from..from + STEP).map(row).collect();
            session.run("BEGIN");
            // two statements: a transaction of several events
            let (first, rest) = rows.split_at(2);
            for rows in [first, rest] {
                session.run(&format!(
                    "INSERT INTO outbox (aggregatetype, aggregateid, payload) VALUES {}",
                    rows.join(", ")
                ));
            }
            session.run("DELETE FROM outbox");
            session.run("COMMIT");
            std::thread::sleep(Duration::from_millis(12));
        }
    })
}

/// Every row is there, each key's in the order of their commits once repeats are dropped; gives the number of repeats.
fn all_arrived(case: &MysqlCase) -> usize {
    let topic = case.topic(KIND);
    let numbers = |case: &MysqlCase| -> Vec<(String, usize)> {
        let records = case.kafka.read_all(&topic);
        records.iter().filter_map(|record| Some((record.key_text(), record.text().parse().ok()?))).collect()
    };
    let found = eventually("every row is there", 120, || {
        let found = numbers(case);
        let mut seen = vec![false; ROWS];
        found.iter().for_each(|(_, number)| seen[*number] = true);
        seen.iter().all(|seen| *seen).then_some(found)
    });
    let mut seen = std::collections::BTreeSet::new();
    let mut last: std::collections::BTreeMap<&str, usize> = std::collections::BTreeMap::new();
    let mut repeats = 0;
    for (key, number) in &found {
        if !seen.insert(*number) {
            repeats += 1;
            continue;
        }
        let before = last.insert(key, *number);
        assert!(before.is_none_or(|before| before < *number), "{key}: {number} comes after {before:?}");
    }
    repeats
}
