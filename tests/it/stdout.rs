//! The sink for trying out: JSON lines.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};

use crate::support::{Case, Config, Outboxd, Version, eventually};

on_each_version!(json_lines, a_reader_that_does_not_read, a_reader_that_has_gone);

fn config(case: &Case, positions: &std::path::Path) -> Config {
    case.config().without("sink.kafka").set("sink.stdout.positions-file", positions.to_str().unwrap())
}

/// Proves that each record is one JSON object on a line of standard output, that nothing else is written there, and
/// that a second run goes on where the first one stopped.
fn json_lines(version: Version) {
    let case = Case::new(version);
    let dir = tempfile::tempdir().unwrap();
    let positions = dir.path().join("position.json");
    for run in 0..2 {
        let relay = Outboxd::start(&config(&case, &positions));
        relay.ready();
        case.insert("A", "1", &format!("first of run {run}"));
        case.insert("A", "2", &format!("second of run {run}, \"quoted\""));
        let lines = eventually("two lines", 20, || {
            let lines: Vec<_> = relay.stdout().lines().map(str::to_owned).collect();
            (lines.len() >= 2).then_some(lines)
        });
        assert_eq!(lines.len(), 2, "{lines:?}");
        for (line, word) in lines.iter().zip(["first", "second"]) {
            let json: serde_json::Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"));
            assert!(json.is_object(), "{line}");
            assert_eq!(json["topic"].as_str(), Some(case.topic("A").as_str()), "{line}");
            assert!(json.to_string().contains(&format!("{word} of run {run}")), "{line}");
        }
        assert_eq!(relay.terminate(), Some(0));
        let stored: serde_json::Value = serde_json::from_slice(&std::fs::read(&positions).unwrap()).unwrap();
        assert!(stored["position"].is_string(), "{stored}");
    }
}

/// Proves that a reader that takes nothing stops the publishing and nothing else: health answers and turns red, the server
/// is answered, a signal ends the process. What was not written comes with the next start.
fn a_reader_that_does_not_read(version: Version) {
    const ROWS: u64 = 10_000;
    let case = Case::new(version);
    let dir = tempfile::tempdir().unwrap();
    let config = config(&case, &dir.path().join("position.json")).set("delivery.shutdown-timeout", "1s");
    let (relay, mut unread) = Outboxd::start_piped(&config);
    relay.ready();
    let walsender = case.slot().unwrap().active_pid;
    case.insert_many("A", 0, ROWS, 100);
    let health = relay.wait_health("red", 12, |health| health.status == 503);
    assert_eq!(health.reason(), "sink_unreachable", "{health:?}");
    assert_eq!(relay.get("/healthz").map(|(status, _)| status), Some(200));
    assert_eq!(case.slot().unwrap().active_pid, walsender, "the connection was made again");
    assert_eq!(relay.terminate(), Some(0));
    let mut first = String::new();
    unread.read_to_string(&mut first).unwrap();
    assert!((first.lines().count() as u64) < ROWS, "a pipe holds less");

    let relay = Outboxd::start(&config);
    let last = format!("\"payload\":\"{}\"", ROWS - 1);
    eventually("the rest follows", 20, || relay.stdout().contains(&last).then_some(()));
    let seen = format!("{first}\n{}", relay.stdout());
    // the last line of the first start may be cut off
    let lines = seen.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let rows: BTreeSet<u64> = lines.map(|line| line["payload"].as_str().unwrap().parse().unwrap()).collect();
    assert_eq!(rows.len() as u64, ROWS, "some are missing");
}

/// Proves that the relay ends by itself, without a word of complaint, when nobody reads any more, also if no row follows.
fn a_reader_that_has_gone(version: Version) {
    let case = Case::new(version);
    let dir = tempfile::tempdir().unwrap();
    let config = config(&case, &dir.path().join("position.json"));
    let (mut relay, pipe) = Outboxd::start_piped(&config);
    relay.ready();
    case.insert("A", "1", "the only one");
    let mut line = String::new();
    let mut reader = BufReader::new(pipe);
    reader.read_line(&mut line).unwrap();
    assert!(line.contains("the only one"), "{line}");
    drop(reader);
    let ended = relay.end(10);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(!ended.stderr.contains("WARN") && !ended.stderr.contains("ERROR"), "{}", ended.stderr);
}
