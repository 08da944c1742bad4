//! The record's shape: formats, envelope, partition, expansion, headers, topics. What the router's own vectors cannot
//! prove is proved here: the server's types, and what the consumer gets.

use crate::support::{Case, Config, Outboxd, Rec, Version, quote};

on_each_version!(
    fr_20_expansion_that_cannot_expand,
    fr_20_raw_expansion,
    fr_21_binary_keys_and_delegates,
    fr_22_tombstones,
    fr_25_columns_of_every_type,
    fr_25_iso_times,
    fr_26_time_columns,
    fr_27_text_outside_ascii_as_json,
    fr_44_keys_in_other_formats,
    envelopes,
    partitions_from_a_column,
    debeziums_headers,
    topics_by_expression,
    users_own_types,
    unfit_tables_are_refused_at_the_start,
);

/// A table with further columns.
fn table(case: &Case, columns: &str) {
    case.db.run(&format!(
        "CREATE TABLE outbox (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregatetype text, aggregateid text, \
         type text, payload text{columns})"
    ));
}

/// Inserts a row of a kind with the given columns and SQL values.
#[track_caller]
fn insert(case: &Case, kind: &str, columns: &[(&str, &str)]) {
    let names: String = columns.iter().map(|(name, _)| format!(", {name}")).collect();
    let values: String = columns.iter().map(|(_, value)| format!(", {value}")).collect();
    let kind = quote(&case.kind(kind));
    case.db.run(&format!("INSERT INTO outbox (aggregatetype{names}) VALUES ({kind}{values})"));
}

fn start(config: &Config) -> Outboxd {
    let relay = Outboxd::start(config);
    relay.ready();
    relay
}

fn shown(bytes: Option<&[u8]>) -> String {
    bytes.map_or_else(|| "null".to_owned(), |bytes| String::from_utf8_lossy(bytes).into_owned())
}

/// Keys and values as text.
fn bodies(records: &[Rec]) -> Vec<(String, String)> {
    records.iter().map(|record| (shown(record.key.as_deref()), shown(record.value.as_deref()))).collect()
}

fn values(records: &[Rec]) -> Vec<String> {
    records.iter().map(|record| shown(record.value.as_deref())).collect()
}

fn headers(record: &Rec) -> Vec<(String, String)> {
    record.headers.iter().map(|(name, value)| (name.clone(), shown(value.as_deref()))).collect()
}

/// Inserts a payload of each document, and a last one.
fn insert_documents(case: &Case) {
    for payload in
        [r#"'{"a":null,"e":[],"m":[1,"x"]}'"#, "'\"text\"'", "'12'", "'not json'", "''", "NULL", r#"'{"a": 1.50}'"#, "'{no'"]
    {
        insert(case, "A", &[("aggregateid", "'k'"), ("payload", payload)]);
    }
}

/// Proves that payloads that cannot be expanded as Debezium does are published as they are, without a crash, and that
/// there is one warning for many of them.
fn fr_20_expansion_that_cannot_expand(version: Version) {
    let case = Case::bare(version);
    table(&case, "");
    let relay = start(&case.config().set("record.value-format", "json").set("record.expand-json", "debezium"));
    insert_documents(&case);
    assert_eq!(
        values(&case.consume("A", 8, 20)),
        [
            r#""{\"a\":null,\"e\":[],\"m\":[1,\"x\"]}""#,
            r#""\"text\"""#,
            "\"12\"",
            "\"not json\"",
            "\"\"",
            "null",
            r#"{"a":1.5}"#,
            "\"{no\"",
        ]
    );
    assert_eq!(relay.stderr().matches("cannot be expanded").count(), 1, "{}", relay.stderr());
}

/// Proves that in raw mode nothing of a document is lost but its white space, and that it is known in an envelope too.
fn fr_20_raw_expansion(version: Version) {
    let case = Case::bare(version);
    table(&case, "");
    let config = case.config().set("record.value-format", "json").set("record.expand-json", "raw");
    let relay = start(&config);
    insert_documents(&case);
    assert_eq!(
        values(&case.consume("A", 8, 20)),
        [
            r#"{"a":null,"e":[],"m":[1,"x"]}"#,
            r#""\"text\"""#,
            "\"12\"",
            "\"not json\"",
            "\"\"",
            "null",
            r#"{"a":1.50}"#,
            "\"{no\"",
        ]
    );
    assert_eq!(relay.terminate(), Some(0));
    let _relay = start(&config.set("record.envelope", vec!["type:eventType", "aggregateid"]));
    insert(&case, "B", &[("aggregateid", "'k'"), ("type", "'T'"), ("payload", "'[1.50, {\"n\": null}]'")]);
    assert_eq!(
        values(&case.consume("B", 1, 20)),
        [r#"{"payload":[1.50,{"n":null}],"eventType":"T","aggregateid":"k"}"#]
    );
}

/// Proves that binary keys are their bytes under `bytes`, and that the delegate says what becomes of a text.
fn fr_21_binary_keys_and_delegates(version: Version) {
    let case = Case::bare(version);
    table(&case, "");
    case.db.run("ALTER TABLE outbox ALTER aggregateid TYPE bytea USING aggregateid::bytea");
    let config = case.config().set("record.key-format", "bytes").set("record.value-format", "bytes");
    let relay = start(&config.clone().set("record.value-delegate", "json"));
    insert(&case, "A", &[("aggregateid", r"'\x00ff'"), ("payload", "'a\"b'")]);
    insert(&case, "A", &[("aggregateid", "NULL"), ("payload", "NULL")]);
    let mut records = case.consume("A", 2, 20);
    // a record without key may stand in another partition
    records.sort_by_key(|record| record.key.is_none());
    assert_eq!(records[0].key.as_deref(), Some(&[0, 0xff][..]));
    assert_eq!(values(&records), [r#""a\"b""#, "null"]);
    assert_eq!(records[1].key, None);
    assert_eq!(relay.terminate(), Some(0));

    let _relay = start(&config.set("record.value-delegate", "string").set("record.binary-as", "hex").set("record.key-delegate", "string"));
    insert(&case, "B", &[("aggregateid", r"'\x00ff'"), ("payload", "'a\"b'")]);
    assert_eq!(bodies(&case.consume("B", 1, 20)), [("00ff".to_owned(), "a\"b".to_owned())]);
}

/// Proves that NULL and blank payloads are tombstones if asked for, whatever the format, with key and headers, and that a
/// no-break space is none.
fn fr_22_tombstones(version: Version) {
    let case = Case::bare(version);
    table(&case, "");
    let config = case.config().set("record.tombstone-on-empty", true).set("record.headers", vec!["type"]);
    let payloads = ["NULL", "''", "E' \\t\\n'", "U&'\\00A0'", "'x'"];
    let relay = start(&config);
    for payload in payloads {
        insert(&case, "A", &[("aggregateid", "'k'"), ("type", "'T'"), ("payload", payload)]);
    }
    let records = case.consume("A", 5, 20);
    let is_null: Vec<bool> = records.iter().map(|record| record.value.is_none()).collect();
    assert_eq!(is_null, [true, true, true, false, false]);
    assert!(records.iter().all(|record| record.key_text() == "k" && record.header_text("type") == "T"));
    assert!(records.iter().all(|record| record.header_text("id").len() == 36));
    assert_eq!(relay.terminate(), Some(0));

    let _relay = start(&config.set("record.value-format", "json").set("record.envelope", vec!["type"]));
    for payload in ["NULL", "'x'"] {
        insert(&case, "B", &[("aggregateid", "'k'"), ("type", "'T'"), ("payload", payload)]);
    }
    assert_eq!(values(&case.consume("B", 2, 20)), ["null", r#"{"payload":"x","type":"T"}"#]);
    assert_eq!(case.consume("B", 2, 20)[0].value, None);
}

/// Columns of every type that Debezium tells apart: type, value, header text, JSON.
const TYPES: &[(&str, &str, &str, &str)] = &[
    ("text", "'a\"b'", "a\"b", r#""a\"b""#),
    ("smallint", "-3", "-3", "-3"),
    ("integer", "7", "7", "7"),
    ("bigint", "9007199254740993", "9007199254740993", "9007199254740993"),
    ("real", "0.1", "0.1", "0.1"),
    ("double precision", "1e10", "1.0E10", "1.0E10"),
    ("double precision", "'NaN'", "NaN", "\"NaN\""),
    ("numeric(10,2)", "12.5", "12.50", "\"BOI=\""),
    ("numeric(12,9)", "0.00000012", "1.20E-7", "\"eA==\""),
    ("numeric", "12.50", r#"{"scale":1,"value":"fQ=="}"#, r#"{"scale":1,"value":"fQ=="}"#),
    ("boolean", "true", "true", "true"),
    ("bit(1)", "B'1'", "true", "true"),
    ("bit(10)", "B'1000000001'", "AQI=", "\"AQI=\""),
    ("uuid", "'6ECD8C99-4036-403D-BF84-CF8400F67836'", UUID, concat!("\"", "6ecd8c99-4036-403d-bf84-cf8400f67836", "\"")),
    ("json", "'{\"k\":  1}'", "{\"k\":  1}", r#""{\"k\":  1}""#),
    ("jsonb", "'{\"k\":1}'", "{\"k\": 1}", r#""{\"k\": 1}""#),
    ("bytea", r"'\x00ff41'", "AP9B", "\"AP9B\""),
    ("date", "'2026-01-02'", "20455", "20455"),
    ("time", "'00:00:01.5'", "1500000", "1500000"),
    ("time(3)", "'00:00:01.5'", "1500", "1500"),
    ("timetz", "'02:00:00.5+01'", "01:00:00.5Z", "\"01:00:00.5Z\""),
    ("timestamp", "'2026-01-02 03:04:05.678901'", "1767323045678901", "1767323045678901"),
    ("timestamp(3)", "'2026-01-02 03:04:05.678'", "1767323045678", "1767323045678"),
    ("timestamptz", "'2026-01-02 03:04:05.678901+01'", "2026-01-02T02:04:05.678901Z", "\"2026-01-02T02:04:05.678901Z\""),
    ("timestamptz(3)", "'2026-01-02 03:04:05+00'", "2026-01-02T03:04:05.000Z", "\"2026-01-02T03:04:05.000Z\""),
    ("interval", "'1 day 00:00:01'", "86401000000", "86401000000"),
    ("text[]", "ARRAY['a','b c',NULL]", r#"["a","b c",null]"#, r#"["a","b c",null]"#),
    ("integer[]", "'{{1,2},{3,4}}'", "[[1,2],[3,4]]", "[[1,2],[3,4]]"),
    ("timestamptz[]", "ARRAY['2026-01-02 03:04:05+00'::timestamptz]", MOMENTS, MOMENTS),
    ("inet", "'10.0.0.1'", "10.0.0.1", "\"10.0.0.1\""),
];

const UUID: &str = "6ecd8c99-4036-403d-bf84-cf8400f67836";
const MOMENTS: &str = r#"["2026-01-02T03:04:05.000000Z"]"#;

/// A table with a column `c0`, `c1`, … of each type; the columns' names, and the values to insert.
fn table_of_types(case: &Case) -> (Vec<String>, Vec<(String, &'static str)>) {
    let columns: String = TYPES.iter().enumerate().map(|(i, (kind, ..))| format!(", c{i} {kind}")).collect();
    table(case, &columns);
    let names: Vec<String> = (0..TYPES.len()).map(|i| format!("c{i}")).collect();
    let values = names.iter().cloned().zip(TYPES.iter().map(|(_, value, ..)| *value)).collect();
    (names, values)
}

/// Proves that columns of every type come as Debezium sends them: as headers, in an envelope, as JSON headers; both from the
/// first read and from the stream.
fn fr_25_columns_of_every_type(version: Version) {
    let case = Case::bare(version);
    let (names, row) = table_of_types(&case);
    let row: Vec<(&str, &str)> = row.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    // stands in the table at the first start
    insert(&case, "A", &row);
    let config = case.config().set("record.headers", names.clone()).set("record.envelope", names.clone());
    let config = config.set("record.value-format", "json");
    let relay = start(&config);
    case.consume("A", 1, 20);
    insert(&case, "A", &row);
    let nulls: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "NULL")).collect();
    insert(&case, "A", &nulls);
    let records = case.consume("A", 3, 20);
    let fields: String = TYPES.iter().enumerate().map(|(i, (.., json))| format!(",\"c{i}\":{json}")).collect();
    for record in &records[..2] {
        for ((name, text), (kind, _, expected, _)) in headers(record).iter().skip(1).zip(TYPES) {
            assert_eq!(text, expected, "{name} {kind}");
        }
        assert_eq!(record.text(), format!("{{\"payload\":null{fields}}}"));
    }
    assert!(records[2].headers.iter().skip(1).all(|(_, value)| value.is_none()), "{:?}", records[2].headers);
    let fields: String = (0..TYPES.len()).map(|i| format!(",\"c{i}\":null")).collect();
    assert_eq!(records[2].text(), format!("{{\"payload\":null{fields}}}"));
    assert_eq!(relay.terminate(), Some(0));

    let _relay = start(&config.set("record.header-format", "json"));
    insert(&case, "B", &row);
    let record = case.consume("B", 1, 20).remove(0);
    for ((name, text), (kind, .., expected)) in headers(&record).iter().skip(1).zip(TYPES) {
        assert_eq!(text, expected, "{name} {kind}");
    }
}

/// Proves that times may be ISO texts, and numeric a number or a text.
fn fr_25_iso_times(version: Version) {
    let case = Case::bare(version);
    table(&case, ", d date, t time, ts timestamp, tz timestamptz, i interval, n numeric, b bytea");
    let columns = vec!["d", "t", "ts", "tz", "i", "n", "b"];
    let config = case
        .config()
        .set("record.headers", columns.clone())
        .set("record.envelope", columns)
        .set("record.value-format", "json")
        .set("record.time-format", "iso")
        .set("record.decimal-as", "string")
        .set("record.binary-as", "base64-url-safe");
    let relay = start(&config);
    let row = [
        ("d", "'2026-01-02'"),
        ("t", "'03:04:05.6'"),
        ("ts", "'2026-01-02 03:04:05.6'"),
        ("tz", "'2026-01-02 03:04:05.6+00'"),
        ("i", "'1 year 2 days 00:00:03.5'"),
        ("n", "12.50"),
        ("b", r"'\xfbff'"),
    ];
    insert(&case, "A", &row);
    let record = case.consume("A", 1, 20).remove(0);
    let texts: Vec<String> = headers(&record).into_iter().skip(1).map(|(_, text)| text).collect();
    let expected = [
        "2026-01-02",
        "03:04:05.6",
        "2026-01-02T03:04:05.6",
        "2026-01-02T03:04:05.600000Z",
        "P1Y0M2DT0H0M3.5S",
        "12.50",
        "-_8=",
    ];
    assert_eq!(texts, expected);
    let fields: String =
        row.iter().zip(expected).map(|((name, _), text)| format!(",\"{name}\":\"{text}\"")).collect();
    assert_eq!(record.text(), format!("{{\"payload\":null{fields}}}"));
    assert_eq!(relay.terminate(), Some(0));

    let _relay = start(&config.set("record.decimal-as", "double"));
    insert(&case, "B", &row);
    let record = case.consume("B", 1, 20).remove(0);
    assert_eq!(record.header_text("n"), "12.5");
    assert!(record.text().contains("\"n\":12.5,"), "{}", record.text());
}

/// Proves that the time column may be of any type that holds a time, that a time that Kafka cannot hold gives way and is
/// counted, and that the record's time may be that of the routing.
fn fr_26_time_columns(version: Version) {
    for (kind, value) in [
        ("timestamp(6)", "'2024-01-02 03:04:05.678901'"),
        ("timestamp(3)", "'2024-01-02 03:04:05.678'"),
        ("timestamptz", "'2024-01-02 04:04:05.678901+01'"),
        ("bigint", "1704164645678"),
    ] {
        let case = Case::bare(version);
        table(&case, &format!(", at {kind}"));
        let relay = start(&case.config().set("outbox.columns.timestamp", "at").set("record.timestamp", "processing"));
        let before = now(&case);
        for at in [value, "NULL"] {
            insert(&case, "A", &[("at", at)]);
        }
        let mut times: Vec<i64> = case.consume("A", 2, 20).iter().map(|record| record.timestamp).collect();
        times.sort_unstable();
        assert_eq!(times[0], 1_704_164_645_678, "{kind}");
        assert!((before - 1000..=now(&case) + 1000).contains(&times[1]), "{kind}: {} against {before}", times[1]);
        assert_eq!(relay.metric("outbox_timestamp_fallbacks_total"), Some(1.0), "{kind}");
    }
}

fn now(case: &Case) -> i64 {
    case.db.text("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint").unwrap().parse().unwrap()
}

/// Proves that text outside ASCII is written in JSON as Jackson does, in key, value and headers.
fn fr_27_text_outside_ascii_as_json(version: Version) {
    let case = Case::bare(version);
    table(&case, "");
    let config = case.config().set("record.key-format", "json").set("record.value-format", "json");
    let _relay = start(&config.set("record.header-format", "json").set("record.headers", vec!["type"]));
    let text = "'é😀\u{a0}'";
    insert(&case, "A", &[("aggregateid", text), ("type", text), ("payload", text)]);
    let record = case.consume("A", 1, 20).remove(0);
    let json = "\"é\\uD83D\\uDE00\u{a0}\"";
    assert_eq!((record.key_text().as_str(), record.text().as_str()), (json, json));
    assert_eq!(record.header_text("type"), json);
}

/// Proves that the partition is the one that the Java client chooses for the key's bytes, whatever format gives them.
fn fr_44_keys_in_other_formats(version: Version) {
    let file: serde_json::Value = serde_json::from_str(include_str!("../data/cases.json")).unwrap();
    let vectors = file["meta"]["partitioner"]["vectors"].as_array().unwrap();
    let case = Case::bare(version);
    table(&case, "");
    case.db.run("ALTER TABLE outbox ALTER aggregateid TYPE bytea USING aggregateid::bytea");
    for partitions in [3, 6, 12, 50] {
        case.kafka.create_topic(&case.topic(&partitions.to_string()), partitions, &[]);
    }
    let relay = start(&case.config().set("record.key-format", "bytes"));
    for vector in vectors {
        let key = format!("'\\x{}'", vector["key_hex"].as_str().unwrap());
        for partitions in [3, 6, 12, 50] {
            insert(&case, &partitions.to_string(), &[("aggregateid", &key), ("payload", &key.replace('\\', ""))]);
        }
    }
    for partitions in [3, 6, 12, 50] {
        let kind = partitions.to_string();
        for record in case.consume(&kind, vectors.len(), 20) {
            let hex = record.text().trim_start_matches('x').to_owned();
            let vector = vectors.iter().find(|vector| vector["key_hex"] == hex.as_str()).unwrap();
            let expected = vector["of"][&kind].as_i64().unwrap();
            assert_eq!(i64::from(record.partition), expected, "key {hex} of {partitions}");
        }
    }
    assert_eq!(relay.terminate(), Some(0));

    // the same aggregate has other bytes as JSON, and as an integer
    case.db.run("ALTER TABLE outbox ALTER aggregateid TYPE bigint USING 1232");
    for (format, key, hex) in [("string", "1232", "31323332"), ("int64", "1232", "00000000000004d0"), ("json", "1232", "31323332")] {
        let relay = start(&case.config().set("record.key-format", format));
        insert(&case, format, &[("aggregateid", key)]);
        let record = case.consume(format, 1, 20).remove(0);
        let bytes: String = record.key.unwrap().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(bytes, hex, "{format}");
        assert_eq!(relay.terminate(), Some(0));
    }
}

/// Proves the form of envelopes, with a column that is missing.
fn envelopes(version: Version) {
    let case = Case::bare(version);
    table(&case, ", seq bigint");
    let config = case
        .config()
        .set("record.value-format", "json")
        .set("record.envelope", vec!["type:eventType", "seq", "nope"])
        .set("record.missing-columns", "ignore");
    let relay = start(&config);
    insert(&case, "A", &[("type", "'T'"), ("seq", "7"), ("payload", "'{\"n\": 1}'")]);
    insert(&case, "A", &[("payload", "NULL")]);
    let mut values = values(&case.consume("A", 2, 20));
    values.sort();
    assert_eq!(
        values,
        [r#"{"payload":"{\"n\": 1}","eventType":"T","seq":7}"#, r#"{"payload":null,"eventType":null,"seq":null}"#]
    );
    assert_eq!(relay.terminate(), Some(0));
    let ended = Outboxd::run_to_end(&config.set("record.missing-columns", "error"));
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(ended.stderr.contains("nope"), "{}", ended.stderr);
}

/// Proves that a column chooses the partition, that NULL leaves it to the key, that a partition that is not there is waited
/// for, red and by name, and that a negative one stops the relay before the row.
fn partitions_from_a_column(version: Version) {
    let case = Case::bare(version);
    table(&case, ", p integer");
    case.kafka.create_topic(&case.topic("A"), 8, &[]);
    let relay = start(&case.config().set("record.partition", "p"));
    for p in ["5", "0", "7", "NULL"] {
        insert(&case, "A", &[("aggregateid", "'order-0007'"), ("p", p), ("payload", &quote(p))]);
    }
    let records = case.consume("A", 4, 20);
    let partition_of = |value: &str| records.iter().find(|record| record.text() == value).map(|record| record.partition);
    let partitions: Vec<_> = ["5", "0", "7"].map(partition_of).to_vec();
    assert_eq!(partitions, [Some(5), Some(0), Some(7)]);
    // the same key of 12 partitions goes to 8: the hash is 0 modulo 4
    assert_eq!(partition_of("NULL").map(|partition| partition % 4), Some(0));

    insert(&case, "A", &[("p", "-1")]);
    let id = case.db.text("SELECT id FROM outbox WHERE p = -1").unwrap();
    let health = relay.wait_reason("row_error", 20);
    assert!(health.detail().contains(&id) && health.detail().contains("is -1, which is no partition"), "{health:?}");
}

/// Proves Debezium's own headers and the trace context, in their order; the id of the run is new with each start.
fn debeziums_headers(version: Version) {
    let case = Case::bare(version);
    table(&case, ", ctx text");
    let config = case
        .config()
        .set("record.context-headers", true)
        .set("record.legacy-prefix", "shop")
        .set("record.headers", vec!["type"])
        .set("outbox.columns.tracing-context", "ctx");
    let mut runs = Vec::new();
    for round in ["A", "B"] {
        let relay = start(&config);
        let context = "E'#Fri\\ntraceparent=00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\\ntracestate=a\\\\=b\\n'";
        insert(&case, round, &[("type", "'T'"), ("ctx", context)]);
        let record = case.consume(round, 1, 20).remove(0);
        let headers = headers(&record);
        let run = headers[3].1.clone();
        let id = record.header_text("id");
        let expected = [
            ("__debezium.context.connectorLogicalName", "shop"),
            ("__debezium.context.taskId", "0"),
            ("__debezium.context.connectorName", "postgresql"),
            ("__debezium.context.runId", &run),
            ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
            ("tracestate", "a=b"),
            ("id", &id),
            ("type", "T"),
        ];
        assert_eq!(headers, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert_eq!((run.len(), &run[14..15]), (36, "7"));
        runs.push(run);
        assert_eq!(relay.terminate(), Some(0));
    }
    assert_ne!(runs[0], runs[1]);
}

/// Proves that topics follow a regular expression in Java's syntax, and that a value that it does not match is the topic.
fn topics_by_expression(version: Version) {
    let case = Case::bare(version);
    table(&case, "");
    let config = case
        .config()
        .set("record.topic-regex", r"(?<tag>[a-z0-9_]+)\.(?!Secret)(\w)(\w+)")
        .set("record.topic", "${tag}.by-$2-${tag}x");
    let _relay = start(&config);
    for kind in ["Order", "Secret"] {
        insert(&case, kind, &[("aggregateid", "'k'"), ("payload", &quote(kind))]);
    }
    let matched = case.kafka.consume(&format!("{0}.by-O-{0}x", case.tag), 1, 20);
    assert_eq!(values(&matched), ["Order"]);
    let other = case.kafka.consume(&case.kind("Secret"), 1, 20);
    assert_eq!(values(&other), ["Secret"]);
}

/// Proves that domains are what they stand for, enums are text, and arrays of both are lists; from the first read and from
/// the stream.
fn users_own_types(version: Version) {
    let case = Case::bare(version);
    case.db.run(
        "CREATE TYPE mood AS ENUM ('sad', 'so so'); CREATE DOMAIN amount AS numeric(10,2); CREATE DOMAIN blob AS bytea; \
         CREATE DOMAIN small AS integer; CREATE DOMAIN smaller AS small CHECK (value < 10); CREATE DOMAIN tags AS text[]",
    );
    table(&case, ", m mood, a amount, s smaller, t tags, ms mood[], am amount[]");
    case.db.run("ALTER TABLE outbox ALTER payload TYPE blob USING payload::bytea");
    let row = [
        ("payload", r"'\x00ff'"),
        ("m", "'so so'"),
        ("a", "12.5"),
        ("s", "7"),
        ("t", "'{a,\"b c\"}'"),
        ("ms", "'{sad,\"so so\"}'"),
        ("am", "'{1.5,2}'"),
    ];
    insert(&case, "A", &row);
    let columns = vec!["m", "a", "s", "t", "ms", "am"];
    let _relay = start(&case.config().set("record.headers", columns).set("record.partition", "s"));
    case.kafka.create_topic(&case.topic("B"), 8, &[]);
    insert(&case, "B", &row);
    for (kind, partition) in [("B", 7)] {
        let record = case.consume(kind, 1, 20).remove(0);
        assert_eq!(record.partition, partition);
        assert_eq!(record.value.as_deref(), Some(&[0, 0xff][..]));
        let texts: Vec<String> = headers(&record).into_iter().skip(1).map(|(_, text)| text).collect();
        assert_eq!(texts, ["so so", "12.50", "7", r#"["a","b c"]"#, r#"["sad","so so"]"#, "[1.50,2.00]"]);
    }
}

/// Proves that a column of a type that will not do is refused at the start, by name, with what would do.
fn unfit_tables_are_refused_at_the_start(version: Version) {
    let case = Case::bare(version);
    table(&case, ", p bigint, b bytea");
    for (option, value, words) in [
        ("record.partition", "p", "column \"p\" of table \"public.outbox\" is of type bigint, which cannot be the partition: it has to be integer"),
        ("outbox.columns.key", "b", "column \"b\" of table \"public.outbox\" is of type binary, which record.key-format = \"string\" does not take: set record.key-format = \"bytes\""),
        ("outbox.columns.route-by", "p", "column \"p\" of table \"public.outbox\" is of type bigint, which cannot choose the topic"),
        ("outbox.columns.timestamp", "b", "column \"b\" of table \"public.outbox\" is of type binary, which cannot be the record's time"),
    ] {
        let ended = Outboxd::run_to_end(&case.config().set(option, value));
        assert_eq!(ended.code, Some(2), "{}", ended.stderr);
        assert!(ended.stderr.contains(words), "{}", ended.stderr);
    }
    for (option, value, words) in [
        ("record.value-format", "json-schema", "record.value-format: \"json-schema\" is not available in this version"),
        ("record.key-format", "avro", "record.key-format: \"avro\" is not available in this version"),
        ("record.topic-regex", "(", "record.topic-regex: is no regular expression"),
        ("record.topic", "$3", "record.topic: \"$3\" is no group of record.topic-regex, which has 1"),
    ] {
        let ended = Outboxd::run_to_end(&case.config().set(option, value));
        assert_eq!(ended.code, Some(2), "{}", ended.stderr);
        assert!(ended.stderr.contains(words), "{}", ended.stderr);
    }
}
