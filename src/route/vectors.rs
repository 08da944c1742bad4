//! Runs the vectors of `tests/data/cases.json`: a row, the options, and the record that Debezium makes of it, or ours where
//! we differ on purpose. Adding a case to the file adds a test.
//!
//! The options stand under Debezium's names; what is translated here is no more than the cases use.

use std::collections::BTreeMap;
use std::sync::Arc;

use ::bytes::Bytes;
use serde_json::Value as Json;

use super::{RouteError, Router};
use crate::change::{Batch, Cell, Column, ColumnType, Item, Relation};
use crate::config::{
    Config, Delegate, ExpandEmpty, ExpandJson, HeaderFormat, KeyFormat, MissingColumns, RecordTime, ValueFormat,
};
use crate::record::Record;

const CASES: &str = include_str!("../../tests/data/cases.json");

/// Cases about the words of a connector's configuration, or about events that are no rows: the router never sees them.
const NOT_THE_ROUTERS: &[(&str, &str)] = &[
    ("delete", "a delete is no row: the session drops it (fr_24)"),
    ("delete-fatal", "as delete"),
    ("tombstone-in", "the log has none"),
    ("update-default", "an update is no row: the session drops it (fr_24)"),
    ("update-option-case", "as update-default"),
    ("truncate", "a truncate is no row: the session drops it (fr_24)"),
    ("heartbeat", "there are none"),
    ("logical-message", "not read from the log"),
    ("op-invalid-unknown-value", "a word of a connector's configuration"),
    ("placement-one-part", "likewise"),
    ("placement-four-parts", "likewise"),
    ("placement-empty", "likewise"),
    ("placement-unknown", "likewise"),
    ("missing-bad-value", "likewise"),
    ("unknown-option", "likewise"),
    ("expand-adjusted-names", "likewise: field.name.adjustment.mode"),
    ("ts-connect-mode", "likewise: time.precision.mode"),
];

/// Where we differ from what a case expects, with what is expected of us.
fn different(id: &str) -> Option<Expected> {
    let record_at = |timestamp_ms| Some(Expected::Time(timestamp_ms));
    match id {
        // a bigint is taken as milliseconds
        "ts-bigint" => record_at(1_553_460_779_123),
        // a time that Kafka cannot hold gives way to the commit's
        "ts-before-1970" => record_at(1_764_563_400_123),
        // `expand-json` is refused beside `string`, where it has no effect on this payload
        "expand-top-array-string" => Some(Expected::Refused("record.expand-json: needs values in JSON")),
        _ => None,
    }
}

enum Expected {
    /// A record with this time; everything else is not looked at.
    Time(i64),
    /// The configuration is refused with these words.
    Refused(&'static str),
}

#[test]
fn vectors() {
    let file: Json = serde_json::from_str(CASES).unwrap();
    let cases = file["cases"].as_array().unwrap();
    let (mut run, mut failures) = (0, Vec::new());
    for case in cases {
        let id = case["id"].as_str().unwrap();
        if NOT_THE_ROUTERS.iter().any(|(known, _)| *known == id) {
            continue;
        }
        run += 1;
        if let Err(problem) = check(case) {
            failures.push(format!("{id}: {problem}"));
        }
    }
    assert!(failures.is_empty(), "{} of {run} cases:\n{}", failures.len(), failures.join("\n"));
    let unknown: Vec<_> =
        NOT_THE_ROUTERS.iter().filter(|(id, _)| !cases.iter().any(|case| case["id"] == *id)).collect();
    assert!(unknown.is_empty(), "not in the file: {unknown:?}");
    assert_eq!(run + NOT_THE_ROUTERS.len(), cases.len());
}

/// What came of a case.
#[derive(Debug)]
enum Outcome {
    Refused(String),
    Failed(String),
    Record(Box<Made>),
}

#[derive(Debug)]
struct Made {
    topic: String,
    partition: Option<i32>,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<(String, Option<Vec<u8>>)>,
    timestamp_ms: i64,
}

fn check(case: &Json) -> Result<(), String> {
    let outcome = outcome(case)?;
    let converters = &case["converters"];
    if converters["key"] == "json-schema" || converters["value"] == "json-schema" {
        let words = "\"json-schema\" is not available in this version";
        return match outcome {
            Outcome::Refused(findings) if findings.contains(words) => Ok(()),
            other => Err(format!("expected to be refused, got {other:?}")),
        };
    }
    match (different(case["id"].as_str().unwrap()), &outcome) {
        (Some(Expected::Time(time)), Outcome::Record(made)) if made.timestamp_ms == time => return Ok(()),
        (Some(Expected::Refused(words)), Outcome::Refused(findings)) if findings.contains(words) => return Ok(()),
        (Some(_), other) => return Err(format!("differs in another way: {other:?}")),
        (None, _) => {}
    }
    let expected = case.get("ours_expect").unwrap_or(&case["expect"]);
    match (expected["outcome"].as_str().unwrap(), &outcome) {
        ("record", Outcome::Record(made)) => compare(expected, case["unordered"] == true, made),
        ("error", Outcome::Refused(_)) => Ok(()),
        // what only the column's type tells is refused with its first row, by name
        ("error", Outcome::Failed(error)) if error.contains("table \"public.outbox\"") => Ok(()),
        ("error", Outcome::Record(made)) if expected["stage"] == "producer" => {
            crate::sink::kafka::illegal_name(&made.topic).map(|_| ()).ok_or(format!("the sink takes {made:?}"))
        }
        (wanted, other) => Err(format!("expected {wanted}, got {other:?}")),
    }
}

fn compare(expected: &Json, is_unordered: bool, made: &Made) -> Result<(), String> {
    let show = |bytes: &Option<Vec<u8>>| bytes.as_ref().map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    let same = |what: &str, wanted: &Option<Vec<u8>>, got: &Option<Vec<u8>>| {
        let is_same = wanted == got;
        is_same.then_some(()).ok_or_else(|| format!("{what}: expected {:?}, got {:?}", show(wanted), show(got)))
    };
    if expected["topic"] != made.topic.as_str() {
        return Err(format!("topic: expected {}, got {}", expected["topic"], made.topic));
    }
    if expected["partition"].as_i64() != made.partition.map(i64::from) {
        return Err(format!("partition: expected {}, got {:?}", expected["partition"], made.partition));
    }
    if let Some(time) = expected["timestamp_ms"].as_i64()
        && time != made.timestamp_ms
    {
        return Err(format!("time: expected {time}, got {}", made.timestamp_ms));
    }
    same("key", &bytes(&expected["key"]), &made.key)?;
    if is_unordered {
        let parsed = |bytes: &Option<Vec<u8>>| serde_json::from_slice::<Json>(bytes.as_deref().unwrap()).unwrap();
        let sorted = |json: &Json| format!("{:?}", sort(json));
        if sorted(&parsed(&bytes(&expected["value"]))) != sorted(&parsed(&made.value)) {
            return Err(format!("value: expected {}, got {:?}", expected["value"], show(&made.value)));
        }
    } else {
        same("value", &bytes(&expected["value"]), &made.value)?;
    }
    let wanted = expected["headers"].as_array().unwrap();
    if wanted.len() != made.headers.len() {
        return Err(format!("headers: expected {wanted:?}, got {:?}", made.headers));
    }
    for (wanted, (name, value)) in wanted.iter().zip(&made.headers) {
        if wanted[0] != name.as_str() {
            return Err(format!("header: expected {}, got {name}", wanted[0]));
        }
        same(name, &bytes(&wanted[1]), value)?;
    }
    Ok(())
}

/// A document whose order of fields does not count.
#[derive(Debug)]
#[expect(dead_code, reason = "read by Debug")]
enum Sorted {
    Leaf(Json),
    Array(Vec<Self>),
    Object(BTreeMap<String, Self>),
}

fn sort(json: &Json) -> Sorted {
    match json {
        Json::Array(elements) => Sorted::Array(elements.iter().map(sort).collect()),
        Json::Object(fields) => {
            Sorted::Object(fields.iter().map(|(name, value)| (name.clone(), sort(value))).collect())
        }
        leaf => Sorted::Leaf(leaf.clone()),
    }
}

/// `{utf8}`, `{hex}` or null.
fn bytes(json: &Json) -> Option<Vec<u8>> {
    if let Some(text) = json["utf8"].as_str() {
        return Some(text.as_bytes().to_vec());
    }
    let hex = json["hex"].as_str()?;
    Some((0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect())
}

/// Loads the configuration and routes the rows, as the program does.
fn outcome(case: &Json) -> Result<Outcome, String> {
    let config = config(case)?;
    let findings = crate::config::record_findings(&config);
    if !findings.is_empty() {
        let findings: Vec<String> = findings.iter().map(ToString::to_string).collect();
        return Ok(Outcome::Refused(findings.join("\n")));
    }
    let ts_ms = case["ts_ms"].as_i64().unwrap_or(1_764_563_400_123);
    let mut router = Router::with_run_id(&config, "00000000-0000-0000-0000-000000000000");
    for row in case["rows_before"].as_array().into_iter().flatten() {
        let batch = batch(row, 1);
        route(&mut router, &batch, ts_ms).map_err(|error| format!("a row before: {error}"))?;
    }
    let batch = batch(&case["row"], 2);
    Ok(match route(&mut router, &batch, ts_ms) {
        Ok(made) => Outcome::Record(Box::new(made)),
        Err(error) => Outcome::Failed(error.to_string()),
    })
}

fn route(router: &mut Router, batch: &Batch, ts_ms: i64) -> Result<Made, RouteError> {
    let [Item::Row(row)] = batch.items() else { panic!("one row") };
    let record: Record<'_> = router.route(batch.view(row), ts_ms * 1000)?;
    let owned = |bytes: Option<std::borrow::Cow<'_, [u8]>>| bytes.map(std::borrow::Cow::into_owned);
    Ok(Made {
        topic: record.topic.to_owned(),
        partition: record.partition,
        key: owned(record.key),
        value: owned(record.payload),
        headers: record.headers.into_iter().map(|header| (header.key.to_owned(), owned(header.value))).collect(),
        timestamp_ms: record.timestamp_ms,
    })
}

/// Our configuration for a case's.
fn config(case: &Json) -> Result<Config, String> {
    let mut config = Config::default();
    // what the cases call the processing time is the time that the test gives
    config.record.timestamp = RecordTime::Commit;
    config.record.context_headers = case["context_headers"] == true;
    config.record.legacy_prefix = config.record.context_headers.then(|| "p".to_owned());
    for (name, value) in case["options"].as_object().into_iter().flatten() {
        option(&mut config, name, value.as_str().unwrap())?;
    }
    let record = &mut config.record;
    (record.key_format, record.key_delegate) = match case["converters"]["key"].as_str().unwrap_or("string") {
        "string" => (KeyFormat::String, Delegate::None),
        "json" => (KeyFormat::Json, Delegate::None),
        "json-schema" => (KeyFormat::JsonSchema, Delegate::None),
        "bytes" => (KeyFormat::Bytes, Delegate::None),
        "int32" => (KeyFormat::Int32, Delegate::None),
        "int64" => (KeyFormat::Int64, Delegate::None),
        other => return Err(format!("key converter {other}")),
    };
    (record.value_format, record.value_delegate) = match case["converters"]["value"].as_str().unwrap_or("string") {
        "string" => (ValueFormat::String, Delegate::None),
        "json" => (ValueFormat::Json, Delegate::None),
        "json-schema" => (ValueFormat::JsonSchema, Delegate::None),
        "bytes" | "binary" => (ValueFormat::Bytes, Delegate::None),
        "binary+json" => (ValueFormat::Bytes, Delegate::Json),
        other => return Err(format!("value converter {other}")),
    };
    record.header_format = match case["converters"]["header"].as_str().unwrap_or("simple") {
        "simple" => HeaderFormat::Simple,
        "json" => HeaderFormat::Json,
        other => return Err(format!("header converter {other}")),
    };
    Ok(config)
}

fn option(config: &mut Config, name: &str, value: &str) -> Result<(), String> {
    let (columns, record) = (&mut config.outbox.columns, &mut config.record);
    let keep = |keep: &str| if value == keep { ExpandEmpty::Keep } else { ExpandEmpty::Ignore };
    let missing = |ignore: bool| if ignore { MissingColumns::Ignore } else { MissingColumns::Error };
    match name {
        "table.field.event.id" => columns.id = value.to_owned(),
        "table.field.event.key" => columns.key = value.to_owned(),
        "table.field.event.payload" => columns.payload = value.to_owned(),
        "table.field.event.timestamp" => columns.timestamp = Some(value.to_owned()),
        // without effect on bytes that have no schema
        "table.field.event.type" | "table.field.event.schema.version" => {}
        "route.by.field" => columns.route_by = value.to_owned(),
        "route.topic.regex" => record.topic_regex = value.to_owned(),
        "route.topic.replacement" => record.topic = value.to_owned(),
        "route.tombstone.on.empty.payload" => record.tombstone_on_empty = value == "true",
        "table.expand.json.payload" => record.expand_json = ExpandJson::Debezium,
        "table.json.payload.null.behavior" => record.expand_json_null = keep("optional_bytes"),
        "table.json.payload.empty.array.behavior" => record.expand_json_empty_array = keep("optional_string"),
        "table.field.additional.missing" => record.missing_columns = missing(value == "ignore"),
        "table.fields.additional.error.on.missing" => record.missing_columns = missing(value == "false"),
        "table.fields.additional.placement" => {
            for entry in value.split(',') {
                let parts: Vec<&str> = entry.split(':').map(str::trim).collect();
                let alias = parts.get(2).filter(|alias| !alias.is_empty()).unwrap_or(&parts[0]);
                let ours = format!("{}:{alias}", parts[0]);
                match parts[1].to_lowercase().as_str() {
                    "header" => record.headers.push(ours),
                    "envelope" => record.envelope.push(ours),
                    "partition" => record.partition = Some(parts[0].to_owned()),
                    other => return Err(format!("placement {other}")),
                }
            }
        }
        other => return Err(format!("option {other}")),
    }
    Ok(())
}

/// A row as the log has it.
fn batch(row: &Json, serial: u64) -> Batch {
    let (mut body, mut cells, mut columns) = (Vec::new(), Vec::new(), Vec::new());
    for column in row.as_array().unwrap() {
        let name = column["name"].as_str().unwrap().to_owned();
        columns.push(Column { name, kind: kind(column["type"].as_str().unwrap()) });
        if column["value"].is_null() {
            cells.push(Cell::Null);
            continue;
        }
        let begin = body.len();
        body.extend_from_slice(server_text(column).as_bytes());
        cells.push(Cell::Text(begin..body.len()));
    }
    let (schema, table) = ("public".to_owned(), "outbox".to_owned());
    let mut batch = Batch::default();
    batch.push_row(Arc::new(Relation { serial, schema, table, columns }), Bytes::from(body), cells);
    batch
}

fn kind(name: &str) -> ColumnType {
    match name {
        "text" | "varchar" | "char" => ColumnType::Text,
        "json" | "jsonb" => ColumnType::Json,
        "uuid" => ColumnType::Uuid,
        "bool" => ColumnType::Bool,
        "int2" => ColumnType::Int16,
        "int4" => ColumnType::Int32,
        "int8" => ColumnType::Int64,
        "float8" => ColumnType::Float64,
        "numeric" => ColumnType::Numeric,
        "bytea" | "binary" => ColumnType::Bytes,
        "date" => ColumnType::Date,
        "timestamp3" => ColumnType::Timestamp(3),
        "timestamp6" => ColumnType::Timestamp(6),
        "timestamptz" => ColumnType::TimestampTz(6),
        "text[]" => ColumnType::Array(&ColumnType::Text),
        other => panic!("type {other}"),
    }
}

/// The text that the server sends for a value.
fn server_text(column: &Json) -> String {
    let value = &column["value"];
    let since_1970 = |nanoseconds: i64| {
        let time = jiff::Timestamp::from_nanosecond(nanoseconds.into()).unwrap().to_string();
        time.replace('T', " ").trim_end_matches('Z').to_owned()
    };
    match (column["type"].as_str().unwrap(), value) {
        ("bool", Json::Bool(value)) => if *value { "t" } else { "f" }.to_owned(),
        ("timestamp3", _) => since_1970(value.as_i64().unwrap() * 1_000_000),
        ("timestamp6", _) => since_1970(value.as_i64().unwrap() * 1_000),
        ("timestamptz", Json::String(text)) => text.replace('T', " ").replace('Z', "+00"),
        ("date", _) => since_1970(value.as_i64().unwrap() * 86_400_000_000_000)[..10].to_owned(),
        ("bytea" | "binary", _) => format!("\\x{}", value["hex"].as_str().unwrap()),
        ("text[]", Json::Array(elements)) => {
            let quoted: Vec<String> = elements.iter().map(ToString::to_string).collect();
            format!("{{{}}}", quoted.join(","))
        }
        (_, Json::String(text)) => text.clone(),
        (_, number) => number.to_string(),
    }
}
