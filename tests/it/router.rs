//! The record's shape: formats, envelope, partition, expansion, headers, topics. What the router's own vectors cannot
//! prove is proved here: the server's types, and what the consumer gets.

use crate::support::{Case, Config, Outboxd, Rec, Version, quote};

on_each_version!(
    fr_20_expansion_that_cannot_expand,
    fr_20_raw_expansion,
    fr_21_binary_keys_and_delegates,
    fr_22_tombstones,
    fr_26_time_columns,
    fr_27_text_outside_ascii_as_json,
    fr_44_keys_in_other_formats,
    envelopes,
    partitions_from_a_column,
    debeziums_headers,
    topics_by_expression,
    unfit_tables_are_refused_at_the_start,
);

/// A table with further columns.
pub(crate) fn table(case: &Case, columns: &str) {
    case.db.run(&format!(
        "CREATE TABLE outbox (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregatetype text, aggregateid text, \
         type text, payload text{columns})"
    ));
}

/// Inserts a row of a kind with the given columns and SQL values.
#[track_caller]
pub(crate) fn insert(case: &Case, kind: &str, columns: &[(&str, &str)]) {
    let names: String = columns.iter().map(|(name, _)| format!(", {name}")).collect();
    let values: String = columns.iter().map(|(_, value)| format!(", {value}")).collect();
    let kind = quote(&case.kind(kind));
    case.db.run(&format!("INSERT INTO outbox (aggregatetype{names}) VALUES ({kind}{values})"));
}

pub(crate) fn start(config: &Config) -> Outboxd {
    let relay = Outboxd::start(config);
    relay.ready();
    relay
}

pub(crate) fn shown(bytes: Option<&[u8]>) -> String {
    bytes.map_or_else(|| "null".to_owned(), |bytes| String::from_utf8_lossy(bytes).into_owned())
}

/// Keys and values as text.
fn bodies(records: &[Rec]) -> Vec<(String, String)> {
    records.iter().map(|record| (shown(record.key.as_deref()), shown(record.value.as_deref()))).collect()
}

pub(crate) fn values(records: &[Rec]) -> Vec<String> {
    records.iter().map(|record| shown(record.value.as_deref())).collect()
}

pub(crate) fn headers(record: &Rec) -> Vec<(String, String)> {
    record.headers.iter().map(|(name, value)| (name.clone(), shown(value.as_deref()))).collect()
}

/// Inserts a payload of each document, and a last one.
fn insert_documents(case: &Case) {
    for payload in [
        r#"'{"a":null,"e":[],"m":[1,"x"]}'"#,
        "'\"text\"'",
        "'12'",
        "'not json'",
        "''",
        "NULL",
        r#"'{"a": 1.50}'"#,
        "'{no'",
    ] {
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

    let _relay = start(
        &config
            .set("record.value-delegate", "string")
            .set("record.binary-as", "hex")
            .set("record.key-delegate", "string"),
    );
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
    for (format, key, hex) in
        [("string", "1232", "31323332"), ("int64", "1232", "00000000000004d0"), ("json", "1232", "31323332")]
    {
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
    let partition_of =
        |value: &str| records.iter().find(|record| record.text() == value).map(|record| record.partition);
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
        let context =
            "E'#Fri\\ntraceparent=00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\\ntracestate=a\\\\=b\\n'";
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

/// Proves that a column of a type that will not do is refused at the start, by name, with what would do.
fn unfit_tables_are_refused_at_the_start(version: Version) {
    let case = Case::bare(version);
    table(&case, ", p bigint, b bytea");
    for (option, value, words) in [
        (
            "record.partition",
            "p",
            "column \"p\" of table \"public.outbox\" is of type bigint, which cannot be the partition: it has to be integer",
        ),
        (
            "outbox.columns.key",
            "b",
            "column \"b\" of table \"public.outbox\" is of type binary, which record.key-format = \"string\" does not take: set record.key-format = \"bytes\"",
        ),
        (
            "outbox.columns.route-by",
            "p",
            "column \"p\" of table \"public.outbox\" is of type bigint, which cannot choose the topic",
        ),
        (
            "outbox.columns.timestamp",
            "b",
            "column \"b\" of table \"public.outbox\" is of type binary, which cannot be the record's time",
        ),
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
