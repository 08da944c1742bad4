//! A real Debezium and the relay on the same rows.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::cases::{Case, Cases, Stop};
use super::connector::{Connect, connector_json, prepare, slot_name};
use super::recorded::{outcome, start, wait_for_records};
use super::records::{ByRow, Recording, by_row, compare, expected};
use super::{cases, records};
use crate::support::{Case as Ground, Kafka, Version, eventually};

/// Connectors at the same time.
const WORKERS: usize = 3;

/// Puts every case through both and compares record by record; also with the recording, or makes a new one of it.
#[test]
#[ignore = "needs a real Debezium: tests/run --debezium"]
fn record_by_record() {
    let cases = Cases::load(cases::FILE);
    let is_recorded = std::env::var("OUTBOX_TEST_RECORD").is_ok_and(|value| value == "1");
    let recording = Mutex::new(Recording {
        versions: Connect::shared().versions("PostgresConnector").into(),
        ..Recording::default()
    });
    let findings = Mutex::new(Vec::new());
    each(&cases.cases, |case| {
        let (debezium, ours) = both(&cases, case, !is_recorded);
        if let Some(ours) = ours {
            findings.lock().unwrap().extend(compare(&case.name, &expected(case, &debezium), &ours));
        }
        recording.lock().unwrap().cases.insert(case.name.clone(), debezium);
    });
    each(&cases.stops, |stop| {
        let cause = stop_of_debezium(&cases, stop);
        recording.lock().unwrap().stops.insert(stop.name.clone(), cause);
        if !is_recorded {
            let ours = outcome(Version::V15, &cases, stop).err();
            findings.lock().unwrap().extend(ours.map(|words| format!("{}: {words}", stop.name)));
        }
    });
    let (recording, mut findings) = (recording.into_inner().unwrap(), findings.into_inner().unwrap());
    if is_recorded {
        recording.save(records::FILE);
        return;
    }
    let old = Recording::load(records::FILE);
    for (name, rows) in &recording.cases {
        let none = ByRow::default();
        findings.extend(compare(&format!("the recording of {name}"), old.cases.get(name).unwrap_or(&none), rows));
    }
    for case in &cases.cases {
        for (row, difference) in &case.ours {
            println!("differs on purpose: {} / {row}: {}", case.name, cases.differences[&difference.why]);
        }
    }
    assert!(findings.is_empty(), "{} differences:\n{}", findings.len(), findings.join("\n"));
    let rows: usize = recording.cases.values().map(|rows| rows.len()).sum();
    println!(
        "{} cases, {rows} rows, {} rows that stop Debezium: no other difference",
        cases.cases.len(),
        cases.stops.len()
    );
}

/// Runs a function on all items, a few at a time.
pub(super) fn each<T: Sync>(items: &[T], work: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                    work(item);
                }
            });
        }
    });
}

/// Debezium's records of a case, and ours if they are wanted.
fn both(cases: &Cases, case: &Case, with_ours: bool) -> (ByRow, Option<ByRow>) {
    let ground = Ground::bare(Version::V15);
    let (debezium, prefix) = (format!("{}_debezium", ground.tag), format!("{}.debezium", ground.tag));
    let our_prefix = format!("{}.ours", ground.tag);
    prepare(&ground.db, cases.table(case), &[&debezium, &ground.tag]);
    let connect = Connect::shared();
    connect.create(&connector_json(&debezium, &ground.db, &prefix, &case.connector));
    let relay = with_ours.then(|| start(&ground, &our_prefix, &case.connector));
    let steps = cases.steps(case);
    for step in &steps {
        ground.db.run(&step.sql());
    }
    wait_until_quiet(&ground.kafka, &prefix, || {
        let failure = connect.failure(&debezium);
        assert!(failure.is_none(), "case \"{}\" stops Debezium: {failure:?}", case.name);
    });
    let theirs = by_row(&ground.kafka, &prefix, &case.id_header, &steps);
    connect.delete(&debezium);
    let ours = relay.map(|relay| {
        let count = expected(case, &theirs).values().map(Vec::len).sum();
        wait_for_records(&relay, &ground.kafka, &our_prefix, count);
        by_row(&ground.kafka, &our_prefix, &case.id_header, &steps)
    });
    (theirs, ours)
}

/// Waits until records have come and no more have for some seconds.
pub(super) fn wait_until_quiet(kafka: &Kafka, prefix: &str, look: impl Fn()) {
    let (mut count, mut since) = (0, Instant::now());
    eventually(&format!("records under {prefix}"), 60, || {
        look();
        let now = kafka.count(prefix);
        if now != count {
            (count, since) = (now, Instant::now());
        }
        (count > 0 && since.elapsed() > Duration::from_secs(4)).then_some(())
    });
}

fn stop_of_debezium(cases: &Cases, stop: &Stop) -> String {
    let ground = Ground::bare(Version::V15);
    let (name, prefix) = (format!("{}_debezium", ground.tag), format!("{}.debezium", ground.tag));
    prepare(&ground.db, cases.table_of(stop), &[&name]);
    let connect = Connect::shared();
    connect.create(&connector_json(&name, &ground.db, &prefix, &stop.connector));
    eventually("Debezium streams", 60, || ground.db.slot(&slot_name(&name))?.active_pid);
    ground.db.run(&cases.step_of(stop).sql());
    let cause = eventually(&format!("\"{}\" stops Debezium", stop.name), 90, || connect.failure(&name));
    connect.delete(&name);
    cause
}
