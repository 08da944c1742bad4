//! The router as a whole, on the tables of its users.

use std::sync::Arc;

use bytes::Bytes;

use super::*;
use crate::change::Column;
use crate::change::{Batch, Cell, ColumnType, Item};
use crate::config::MissingColumns;

/// A batch with one row of the given columns, types and values.
fn batch(columns: &[(&str, ColumnType, Option<&str>)]) -> Batch {
    let (mut body, mut cells, mut described) = (Vec::new(), Vec::new(), Vec::new());
    for (name, kind, value) in columns {
        described.push(Column { name: (*name).to_owned(), kind: *kind });
        cells.push(value.map_or(Cell::Null, |value| {
            body.extend_from_slice(value.as_bytes());
            Cell::Text(body.len() - value.len()..body.len())
        }));
    }
    let (schema, table) = ("public".to_owned(), "outbox".to_owned());
    let relation = Arc::new(Relation { serial: 1, schema, table, columns: described });
    let mut batch = Batch::default();
    batch.push_row(relation, Bytes::from(body), cells);
    batch
}

const DEFAULT: [(&str, ColumnType, Option<&str>); 5] = [
    ("id", ColumnType::Uuid, Some("e1")),
    ("aggregatetype", ColumnType::Text, Some("Order")),
    ("aggregateid", ColumnType::Text, Some("A-17")),
    ("type", ColumnType::Text, Some("OrderPlaced")),
    ("payload", ColumnType::Json, Some("{\"n\": 1}")),
];

/// Routes the row of a batch and shows the result.
fn route(router: &mut Router, batch: &Batch) -> Result<String, RouteError> {
    let [Item::Row(row)] = batch.items() else { panic!("one row") };
    let show = |bytes: Option<&[u8]>| bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    let record = router.route(batch.view(row), 1_700_000_000_123_456)?;
    let headers: Vec<_> = record.headers.iter().map(|header| (header.key, show(header.value.as_deref()))).collect();
    let (key, payload) = (show(record.key.as_deref()), show(record.payload.as_deref()));
    Ok(format!("{} {key:?} {payload:?} {headers:?} {}", record.topic, record.timestamp_ms))
}

#[test]
fn the_default_table_becomes_the_default_record() {
    let record = route(&mut Router::new(&Config::default()), &batch(&DEFAULT)).unwrap();
    let expected = r#"outbox.event.Order Some("A-17") Some("{\"n\": 1}") [("id", Some("e1"))] 1700000000123"#;
    assert_eq!(record, expected);
}

#[test]
fn null_key_payload_and_header_stay_null() {
    let mut config = Config::default();
    config.record.headers = vec!["type:eventType".to_owned(), "type".to_owned()];
    let mut router = Router::new(&config);
    let mut columns = DEFAULT;
    columns[2].2 = None;
    columns[3].2 = None;
    columns[4].2 = None;
    let record = route(&mut router, &batch(&columns)).unwrap();
    let expected =
        r#"outbox.event.Order None None [("id", Some("e1")), ("eventType", None), ("type", None)] 1700000000123"#;
    assert_eq!(record, expected);
}

#[test]
fn a_row_without_topic_or_column_is_an_error_that_names_it() {
    let mut router = Router::new(&Config::default());
    let mut columns = DEFAULT;
    columns[1].2 = None;
    let error = route(&mut router, &batch(&columns)).unwrap_err().to_string();
    let expected =
        "column \"aggregatetype\" of table \"public.outbox\" is NULL, so the record has no topic (event id e1)";
    assert_eq!(error, expected);
    let mut router = Router::new(&Config::default());
    let error = route(&mut router, &batch(&DEFAULT[..4])).unwrap_err().to_string();
    assert_eq!(error, "table \"public.outbox\" has no column \"payload\"");
}

#[test]
fn a_header_column_that_is_missing_may_be_left_out() {
    let mut config = Config::default();
    config.record.headers = vec!["tenant".to_owned()];
    let error = route(&mut Router::new(&config), &batch(&DEFAULT)).unwrap_err().to_string();
    assert_eq!(error, "table \"public.outbox\" has no column \"tenant\"");
    config.record.missing_columns = MissingColumns::Ignore;
    assert!(route(&mut Router::new(&config), &batch(&DEFAULT)).is_ok());
}

/// One cell as JSON would have it, to see nulls.
fn changed(
    name: &'static str,
    kind: ColumnType,
    value: Option<&'static str>,
) -> Vec<(&'static str, ColumnType, Option<&'static str>)> {
    let mut columns = DEFAULT.to_vec();
    match columns.iter_mut().find(|column| column.0 == name) {
        Some(column) => *column = (name, kind, value),
        None => columns.push((name, kind, value)),
    }
    columns
}

fn problem(config: &Config, columns: &[(&str, ColumnType, Option<&str>)]) -> String {
    route(&mut Router::new(config), &batch(columns)).unwrap_err().to_string()
}

/// Each refusal names table, column and event, and says what would do.
#[test]
fn refusals_say_what_would_do() {
    let mut config = Config::default();
    config.record.partition = Some("p".to_owned());
    assert_eq!(
        problem(&config, &changed("p", ColumnType::Int64, Some("1"))),
        "column \"p\" of table \"public.outbox\" is of type bigint, which cannot be the partition: it has to be integer \
         (event id e1)"
    );
    assert_eq!(
        problem(&config, &changed("p", ColumnType::Int32, Some("-1"))),
        "column \"p\" of table \"public.outbox\" is -1, which is no partition (event id e1)"
    );
    let config = Config::default();
    assert_eq!(
        problem(&config, &changed("aggregatetype", ColumnType::Int32, Some("5"))),
        "column \"aggregatetype\" of table \"public.outbox\" is of type integer, which cannot choose the topic: it has to \
         be text (event id e1)"
    );
    assert_eq!(
        problem(&config, &changed("aggregateid", ColumnType::Bytes, Some("\\x00"))),
        "column \"aggregateid\" of table \"public.outbox\" is of type binary, which record.key-format = \"string\" does not \
         take: set record.key-format = \"bytes\", or record.binary-as (event id e1)"
    );
    let mut config = Config::default();
    config.outbox.columns.timestamp = Some("at".to_owned());
    assert_eq!(
        problem(&config, &changed("at", ColumnType::Date, Some("2024-01-01"))),
        "column \"at\" of table \"public.outbox\" is of type date, which cannot be the record's time: it has to be \
         timestamp, timestamp with time zone, or bigint with milliseconds (event id e1)"
    );
    let mut config = Config::default();
    config.outbox.columns.tracing_context = Some("ctx".to_owned());
    assert_eq!(
        problem(&config, &changed("ctx", ColumnType::Int64, Some("1"))),
        "column \"ctx\" of table \"public.outbox\" is of type bigint, which holds no tracing context: it has to be text \
         (event id e1)"
    );
    let mut config = Config::default();
    config.record.value_format = crate::config::ValueFormat::Json;
    config.record.envelope = vec!["n".to_owned()];
    assert_eq!(
        problem(&config, &changed("n", ColumnType::Numeric, Some("NaN"))),
        "column \"n\" of table \"public.outbox\" is NaN, which has no exact form here: set record.decimal-as to \"double\" \
         or \"string\" (event id e1)"
    );
}

/// What is wrong with a table's columns is known before its first row.
#[test]
fn a_tables_problem_is_known_at_the_start() {
    let relation = |columns: &[(&str, ColumnType, Option<&str>)]| {
        let batch = batch(columns);
        let [Item::Row(row)] = batch.items() else { panic!("one row") };
        Arc::clone(batch.view(row).relation)
    };
    let check = TableCheck::new(&Config::default());
    assert_eq!(check.problem(&relation(&DEFAULT)), None);
    // that a column is missing is said elsewhere
    assert_eq!(check.problem(&relation(&DEFAULT[..4])), None);
    let found = check.problem(&relation(&changed("aggregateid", ColumnType::Bytes, None))).unwrap();
    assert_eq!((found.column.as_str(), found.wanted), ("aggregateid", None));
    assert_eq!(
        found.problem,
        "is of type binary, which record.key-format = \"string\" does not take: set record.key-format = \"bytes\", or \
         record.binary-as"
    );
}

#[test]
fn times_are_floored_and_fall_back_when_kafka_cannot_hold_them() {
    let time = |kind, text: &'static str| record_time(kind, Value::Text(text.as_bytes()));
    assert_eq!(time(ColumnType::Timestamp(6), "2024-01-02 03:04:05.678901"), Some(1_704_164_645_678));
    assert_eq!(time(ColumnType::TimestampTz(6), "2024-01-02 03:04:05.678901+00"), Some(1_704_164_645_678));
    assert_eq!(time(ColumnType::Int64, "1704164645678"), Some(1_704_164_645_678));
    assert_eq!(time(ColumnType::Timestamp(6), "1969-12-31 23:59:59.999"), None);
    assert_eq!(time(ColumnType::Timestamp(6), "infinity"), None);
    assert_eq!(record_time(ColumnType::Int64, Value::Null), None);
}

#[test]
fn the_time_may_be_that_of_the_routing() {
    let mut config = Config::default();
    config.record.timestamp = RecordTime::Processing;
    let batch = batch(&DEFAULT);
    let [Item::Row(row)] = batch.items() else { panic!("one row") };
    let before = now_ms();
    let time = Router::new(&config).route(batch.view(row), 0).unwrap().timestamp_ms;
    assert!((before..=now_ms()).contains(&time));
}

/// Debezium's order: its own headers, the trace context, the id, further columns.
#[test]
fn headers_have_an_order() {
    let mut config = Config::default();
    config.record.context_headers = true;
    config.record.legacy_prefix = Some("p".to_owned());
    config.record.headers = vec!["type".to_owned()];
    config.outbox.columns.tracing_context = Some("ctx".to_owned());
    let columns = changed("ctx", ColumnType::Text, Some("traceparent=00-a-b-01\ntracestate=x\\=y"));
    let batch = batch(&columns);
    let [Item::Row(row)] = batch.items() else { panic!("one row") };
    let mut router = Router::with_run_id(&config, "run");
    let record = router.route(batch.view(row), 0).unwrap();
    let shown: Vec<String> = record
        .headers
        .iter()
        .map(|header| format!("{}={}", header.key, String::from_utf8_lossy(header.value.as_deref().unwrap())))
        .collect();
    assert_eq!(
        shown,
        [
            "__debezium.context.connectorLogicalName=p",
            "__debezium.context.taskId=0",
            "__debezium.context.connectorName=postgresql",
            "__debezium.context.runId=run",
            "traceparent=00-a-b-01",
            "tracestate=x=y",
            "id=e1",
            "type=OrderPlaced",
        ]
    );
    assert_eq!(record.id(), Some(b"e1".as_slice()));
    // no context, no headers; and a table without the column is fine
    for columns in [changed("ctx", ColumnType::Text, None), DEFAULT.to_vec()] {
        let shown = route(&mut Router::with_run_id(&config, "run"), &self::batch(&columns)).unwrap();
        assert!(!shown.contains("trace"), "{shown}");
    }
}
