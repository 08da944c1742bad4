//! The sink for trying out: JSON lines.

use crate::support::{Case, Config, Outboxd, Version, eventually};

on_each_version!(json_lines);

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
