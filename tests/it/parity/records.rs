//! Records in a form that can be written to a file, read by a person, and compared.

use std::collections::BTreeMap;
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::cases::{Case, Difference, Step, folder};
use crate::support::{Kafka, Rec};

/// Bytes: text where they are UTF-8, else in hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Bytes {
    Text(String),
    Hex { hex: String },
}

impl Bytes {
    fn of(bytes: &[u8], prefix: &str) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::Text(text.replace(prefix, "{prefix}")),
            Err(_) => Self::Hex { hex: bytes.iter().map(|byte| format!("{byte:02x}")).collect() },
        }
    }
}

/// One record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Record {
    pub(super) topic: String,
    /// `None` for a record without key: it goes anywhere.
    pub(super) partition: Option<i32>,
    pub(super) key: Option<Bytes>,
    pub(super) value: Option<Bytes>,
    pub(super) headers: Vec<(String, Option<Bytes>)>,
    /// Its time in milliseconds, unless that is about now: the time of processing, or of the commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) time: Option<i64>,
}

const CONTEXT_RUN: &str = "__debezium.context.runId";
const DAY_MS: i64 = 86_400_000;

impl Record {
    fn of(rec: &Rec, prefix: &str) -> Self {
        let now = i64::try_from(UNIX_EPOCH.elapsed().unwrap().as_millis()).unwrap();
        let bytes = |bytes: &Option<Vec<u8>>| bytes.as_deref().map(|bytes| Bytes::of(bytes, prefix));
        let header = |(name, value): &(String, Option<Vec<u8>>)| {
            let value = bytes(value);
            // another one at each start
            let is_run = name == CONTEXT_RUN && matches!(&value, Some(Bytes::Text(text)) if is_uuid_7(text));
            (name.clone(), if is_run { Some(Bytes::Text("{uuid 7}".to_owned())) } else { value })
        };
        Self {
            topic: rec.topic.replace(prefix, "{prefix}"),
            partition: rec.key.as_ref().map(|_| rec.partition),
            key: bytes(&rec.key),
            value: bytes(&rec.value),
            headers: rec.headers.iter().map(header).collect(),
            time: Some(rec.timestamp).filter(|time| (time - now).abs() > DAY_MS),
        }
    }

    /// Puts in what differs.
    pub(super) fn change(&mut self, part: &str, value: &Value) {
        let read = |value: &Value| serde_json::from_value(value.clone()).unwrap_or_else(|_| panic!("{part}: {value}"));
        match part {
            "topic" => self.topic = value.as_str().unwrap().to_owned(),
            "key" => self.key = read(value),
            "value" => self.value = read(value),
            "time" => self.time = value.as_i64(),
            _ => {
                let name = part.strip_prefix("header ").unwrap_or_else(|| panic!("no part of a record: {part}"));
                let found = self.headers.iter_mut().find(|(header, _)| header == name);
                found.unwrap_or_else(|| panic!("no header {name}")).1 = read(value);
            }
        }
    }
}

fn is_uuid_7(text: &str) -> bool {
    text.len() == 36 && text.as_bytes()[14] == b'7' && text.split('-').map(str::len).eq([8, 4, 4, 4, 12])
}

/// The records of each row, by the row's name; those of no row by the empty name.
pub(super) type ByRow = BTreeMap<String, Vec<Record>>;

/// Sorts everything under a prefix by the rows.
pub(super) fn by_row(kafka: &Kafka, prefix: &str, id_header: &str, steps: &[Step]) -> ByRow {
    let mut rows: ByRow = steps.iter().map(|step| (step.name.clone(), Vec::new())).collect();
    for topic in kafka.topics(prefix) {
        for rec in kafka.read_all(&topic) {
            let id = rec.header(id_header).flatten().map(|id| String::from_utf8_lossy(id).trim_matches('"').to_owned());
            let step = steps.iter().find(|step| Some(&step.id) == id.as_ref());
            let name = step.map_or_else(String::new, |step| step.name.clone());
            rows.entry(name).or_default().push(Record::of(&rec, prefix));
        }
    }
    rows
}

/// What was recorded of PostgreSQL's connector.
pub(super) const FILE: &str = "debezium.json";

/// What was recorded of Debezium.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Recording {
    /// The version of its connector class, and of Kafka Connect.
    pub(super) versions: BTreeMap<String, String>,
    pub(super) cases: BTreeMap<String, ByRow>,
    /// The innermost cause with which its task stopped.
    pub(super) stops: BTreeMap<String, String>,
}

impl Recording {
    /// The one in a file of the folder.
    pub(super) fn load(file: &str) -> Self {
        let text = std::fs::read_to_string(folder().join(file)).unwrap();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{file}: {error}"))
    }

    /// Writes the file, a line for each record, so that changes can be read.
    pub(super) fn save(&self, file: &str) {
        let mut out = format!("{{\n \"versions\": {},\n \"cases\": {{", json(&self.versions));
        for (index, (case, rows)) in self.cases.iter().enumerate() {
            out.push_str(if index == 0 { "\n" } else { ",\n" });
            out.push_str(&format!("  {}: {{", json(case)));
            for (index, (row, records)) in rows.iter().enumerate() {
                let records: Vec<_> = records.iter().map(|record| format!("\n    {}", json(record))).collect();
                let comma = if index == 0 { "" } else { "," };
                out.push_str(&format!("{comma}\n   {}: [{}]", json(row), records.join(",")));
            }
            out.push_str("\n  }");
        }
        out.push_str("\n },\n \"stops\": {");
        let stops: Vec<_> =
            self.stops.iter().map(|(name, cause)| format!("\n  {}: {}", json(name), json(cause))).collect();
        out.push_str(&format!("{}\n }}\n}}\n", stops.join(",")));
        std::fs::write(folder().join(file), out).unwrap();
    }
}

/// One line of JSON.
fn json(value: &(impl Serialize + ?Sized)) -> String {
    serde_json::to_string(value).unwrap()
}

/// What we should have published, going by what Debezium has.
pub(super) fn expected(case: &Case, debezium: &ByRow) -> ByRow {
    let change = |(name, records): (&String, &Vec<Record>)| {
        let mut records = records.clone();
        if let Some(Difference { change, dropped, .. }) = case.ours.get(name) {
            if *dropped {
                records.clear();
            }
            for record in &mut records {
                for (part, value) in change {
                    record.change(part, value);
                }
            }
        }
        (name.clone(), records)
    };
    debezium.iter().map(change).collect()
}

/// What is not as expected, in words; empty if all is.
pub(super) fn compare(case: &str, expected: &ByRow, ours: &ByRow) -> Vec<String> {
    let mut findings = Vec::new();
    let names: std::collections::BTreeSet<_> = expected.keys().chain(ours.keys()).collect();
    for name in names {
        let none = Vec::new();
        let (wanted, found) = (expected.get(name).unwrap_or(&none), ours.get(name).unwrap_or(&none));
        if wanted.len() != found.len() {
            findings.push(format!("{case} / {name}: {} records instead of {}: {found:?}", found.len(), wanted.len()));
        }
        for (wanted, found) in wanted.iter().zip(found) {
            findings.extend(differences(wanted, found).into_iter().map(|words| format!("{case} / {name}: {words}")));
        }
    }
    findings
}

fn differences(wanted: &Record, found: &Record) -> Vec<String> {
    let mut words = Vec::new();
    let mut part = |name: &str, wanted: &dyn std::fmt::Debug, found: &dyn std::fmt::Debug| {
        let (wanted, found) = (format!("{wanted:?}"), format!("{found:?}"));
        if wanted != found {
            words.push(format!("{name}\n    expected {wanted}\n    found    {found}"));
        }
    };
    part("topic", &wanted.topic, &found.topic);
    part("partition", &wanted.partition, &found.partition);
    part("key", &wanted.key, &found.key);
    part("value", &wanted.value, &found.value);
    part("time", &wanted.time, &found.time);
    let names = |record: &Record| record.headers.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    part("names of headers", &names(wanted), &names(found));
    for ((name, wanted), (_, found)) in wanted.headers.iter().zip(&found.headers) {
        part(&format!("header {name}"), wanted, found);
    }
    words
}
