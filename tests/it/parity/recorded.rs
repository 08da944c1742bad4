//! Our side alone, compared with the recording.

use std::time::Duration;

use serde_json::Value;

use super::cases::{Case, Cases, Outcome, Stop};
use super::connector::{connector_json, prepare};
use super::records::{ByRow, Record, Recording, by_row, compare, expected};
use super::{cases, records};
use crate::support::{Case as Ground, Kafka, Outboxd, Version, eventually};

on_each_version!(cases_1, cases_2, cases_3, cases_4, stops_1, stops_2);

fn cases_1(version: Version) {
    cases_of(version, 0);
}

fn cases_2(version: Version) {
    cases_of(version, 1);
}

fn cases_3(version: Version) {
    cases_of(version, 2);
}

fn cases_4(version: Version) {
    cases_of(version, 3);
}

fn stops_1(version: Version) {
    stops_of(version, 0);
}

fn stops_2(version: Version) {
    stops_of(version, 1);
}

/// Every fourth case.
fn cases_of(version: Version, share: usize) {
    let (cases, recording) = (Cases::load(cases::FILE), Recording::load(records::FILE));
    let mut findings = Vec::new();
    for case in cases.cases.iter().skip(share).step_by(4) {
        let recorded = recording.cases.get(&case.name);
        let recorded = recorded.unwrap_or_else(|| panic!("case \"{}\" was not recorded", case.name));
        let wanted = expected(case, recorded);
        findings.extend(compare(&case.name, &wanted, &ours(version, &cases, case, &wanted)));
    }
    assert!(findings.is_empty(), "{} differences:\n{}", findings.len(), findings.join("\n"));
}

fn ours(version: Version, cases: &Cases, case: &Case, wanted: &ByRow) -> ByRow {
    let ground = Ground::bare(version);
    let prefix = format!("{}.ours", ground.tag);
    prepare(&ground.db, cases.table(case), &[&ground.tag]);
    let relay = start(&ground, &prefix, &case.connector);
    let steps = cases.steps(case);
    for step in &steps {
        ground.db.run(&step.sql());
    }
    let count = wanted.values().map(Vec::len).sum();
    wait_for_records(&relay, &ground.kafka, &prefix, count);
    by_row(&ground.kafka, &prefix, &case.id_header, &steps)
}

/// Starts the relay with a connector's JSON.
pub(super) fn start(ground: &Ground, prefix: &str, own: &serde_json::Map<String, Value>) -> Outboxd {
    let json = connector_json(&ground.tag, &ground.db, prefix, own);
    let relay = Outboxd::start_connector(&json, &ground.kafka);
    relay.ready();
    relay
}

/// Waits until as many records are there as should be, and sees that no more come.
pub(super) fn wait_for_records(relay: &Outboxd, kafka: &Kafka, prefix: &str, count: usize) {
    let count = u64::try_from(count).unwrap();
    eventually(&format!("{count} records under {prefix}"), 20, || {
        // what keeps a row from coming is said at the end, with all other differences
        let red = relay.health().is_some_and(|health| health.status != 200);
        (red || kafka.count(prefix) >= count).then_some(())
    });
    std::thread::sleep(Duration::from_millis(300));
}

/// Every second row that stops Debezium.
fn stops_of(version: Version, share: usize) {
    let (cases, recording) = (Cases::load(cases::FILE), Recording::load(records::FILE));
    let findings: Vec<String> = cases
        .stops
        .iter()
        .skip(share)
        .step_by(2)
        .filter_map(|stop| {
            assert!(recording.stops.contains_key(&stop.name), "\"{}\" was not recorded", stop.name);
            outcome(version, &cases, stop).err().map(|words| format!("{}: {words}", stop.name))
        })
        .collect();
    assert!(findings.is_empty(), "{} differences:\n{}", findings.len(), findings.join("\n"));
}

/// What the relay made of a row.
#[derive(Debug)]
enum Seen {
    Refused(String),
    Stopped(String),
    Published(Vec<Record>),
}

fn seen(version: Version, cases: &Cases, stop: &Stop) -> Seen {
    let ground = Ground::bare(version);
    let prefix = format!("{}.ours", ground.tag);
    prepare(&ground.db, cases.table_of(stop), &[&ground.tag]);
    let step = cases.step_of(stop);
    ground.db.run(&step.sql());
    let json = connector_json(&ground.tag, &ground.db, &prefix, &stop.connector);
    let mut relay = Outboxd::start_connector(&json, &ground.kafka);
    eventually("something comes of the row", 30, || {
        if !relay.is_running() {
            return Some(Seen::Refused(relay.stderr()));
        }
        let health = relay.health()?;
        if health.status == 503 && !["connecting", ""].contains(&health.phase()) {
            return Some(Seen::Stopped(health.detail().to_owned()));
        }
        if ground.kafka.count(&prefix) == 0 {
            return None;
        }
        // what follows the row may stop it
        std::thread::sleep(Duration::from_secs(1));
        if relay.health()?.status == 503 {
            return None;
        }
        let rows = by_row(&ground.kafka, &prefix, "id", std::slice::from_ref(&step));
        Some(Seen::Published(rows.into_values().flatten().collect()))
    })
}

/// Holds what the relay makes of a row against what it should.
pub(super) fn outcome(version: Version, cases: &Cases, stop: &Stop) -> Result<(), String> {
    let seen = seen(version, cases, stop);
    let is_right = match (&stop.ours, &seen) {
        (Outcome { refused: Some(words), .. }, Seen::Refused(text))
        | (Outcome { stops: Some(words), .. }, Seen::Stopped(text)) => text.contains(words),
        (Outcome { record: Some(parts), .. }, Seen::Published(records)) => {
            let change = |record: &Record| {
                let mut changed = record.clone();
                parts.iter().for_each(|(part, value)| changed.change(part, value));
                changed
            };
            matches!(records.as_slice(), [record] if change(record) == *record)
        }
        _ => false,
    };
    is_right.then_some(()).ok_or_else(|| format!("expected {:?}, saw {seen:?}", stop.ours))
}
