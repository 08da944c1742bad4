//! The server's types: what columns of each become in headers and in JSON.

use crate::router::{headers, insert, start, table};
use crate::support::{Case, Version};

on_each_version!(fr_25_columns_of_every_type, fr_25_iso_times, users_own_types);

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
    (
        "uuid",
        "'6ECD8C99-4036-403D-BF84-CF8400F67836'",
        UUID,
        concat!("\"", "6ecd8c99-4036-403d-bf84-cf8400f67836", "\""),
    ),
    ("json", "'{\"k\":  1}'", "{\"k\":  1}", r#""{\"k\":  1}""#),
    ("jsonb", "'{\"k\":1}'", "{\"k\": 1}", r#""{\"k\": 1}""#),
    ("bytea", r"'\x00ff41'", "AP9B", "\"AP9B\""),
    ("date", "'2026-01-02'", "20455", "20455"),
    ("time", "'00:00:01.5'", "1500000", "1500000"),
    ("time(3)", "'00:00:01.5'", "1500", "1500"),
    ("timetz", "'02:00:00.5+01'", "01:00:00.5Z", "\"01:00:00.5Z\""),
    ("timestamp", "'2026-01-02 03:04:05.678901'", "1767323045678901", "1767323045678901"),
    ("timestamp(3)", "'2026-01-02 03:04:05.678'", "1767323045678", "1767323045678"),
    (
        "timestamptz",
        "'2026-01-02 03:04:05.678901+01'",
        "2026-01-02T02:04:05.678901Z",
        "\"2026-01-02T02:04:05.678901Z\"",
    ),
    ("timestamptz(3)", "'2026-01-02 03:04:05+00'", "2026-01-02T03:04:05.000Z", "\"2026-01-02T03:04:05.000Z\""),
    ("interval", "'1 day 00:00:01'", "86401000000", "86401000000"),
    ("text[]", "ARRAY['a','b c',NULL]", r#"["a","b c",null]"#, r#"["a","b c",null]"#),
    ("integer[]", "'{{1,2},{3,4}}'", "[[1,2],[3,4]]", "[[1,2],[3,4]]"),
    ("timestamptz[]", "ARRAY['2026-01-02 03:04:05+00'::timestamptz]", MOMENTS, MOMENTS),
    ("date", "'2026-01-02 BC'", "-1459143", "-1459143"),
    ("timestamp", "'-infinity'", "-9223372036832400000", "-9223372036832400000"),
    ("timestamptz", "'infinity'", "infinity", "\"infinity\""),
    ("timestamptz", "'12345-01-02 03:04:05+00'", "+12345-01-02T03:04:05.000000Z", "\"+12345-01-02T03:04:05.000000Z\""),
    ("money", "'-1234.5'", "-1234.50", "\"/h3G\""),
    ("varbit", "B'101'", "BQ==", "\"BQ==\""),
    ("numeric(10,2)[]", "'{1.5,2}'", "[1.50,2.00]", "[\"AJY=\",\"AMg=\"]"),
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
    let fields: String = row.iter().zip(expected).map(|((name, _), text)| format!(",\"{name}\":\"{text}\"")).collect();
    assert_eq!(record.text(), format!("{{\"payload\":null{fields}}}"));
    assert_eq!(relay.terminate(), Some(0));

    let _relay = start(&config.set("record.decimal-as", "double"));
    insert(&case, "B", &row);
    let record = case.consume("B", 1, 20).remove(0);
    assert_eq!(record.header_text("n"), "12.5");
    assert!(record.text().contains("\"n\":12.5,"), "{}", record.text());
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
    for kind in ["A", "B"] {
        case.kafka.create_topic(&case.topic(kind), 8, &[]);
    }
    let _relay = start(&case.config().set("record.headers", columns).set("record.partition", "s"));
    insert(&case, "B", &row);
    for kind in ["A", "B"] {
        let record = case.consume(kind, 1, 20).remove(0);
        assert_eq!(record.partition, 7);
        assert_eq!(record.value.as_deref(), Some(&[0, 0xff][..]));
        let texts: Vec<String> = headers(&record).into_iter().skip(1).map(|(_, text)| text).collect();
        assert_eq!(texts, ["so so", "12.50", "7", r#"["a","b c"]"#, r#"["sad","so so"]"#, "[1.50,2.00]"]);
    }
}
