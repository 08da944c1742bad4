//! MySQL and MariaDB: every value arrives as the server itself prints it.

use crate::support::mysql::{Kind, MysqlCase};
use crate::support::{Outboxd, Rec, quote};

on_each_binlog![
    json_is_the_servers_own_text,
    values_are_those_that_select_shows,
    binary_keeps_its_zeros,
    fr_27_text_outside_ascii,
    fr_36_zero_and_partial_dates,
    columns_change_while_running,
];

/// Numbers that look random and are the same in each run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    /// A JSON document.
    fn document(&mut self, depth: u64) -> String {
        let texts = ["", "a", "é😀", "\\u0001\\n\\t", "\\\"q\\\\", "longer than a few bytes, and then some", "ключ"];
        match self.roll(if depth > 3 { 8 } else { 11 }) {
            0 => "null".to_owned(),
            1 => (self.roll(2) == 0).to_string(),
            2 => (self.roll(300) as i64 - 150).to_string(),
            3 => (self.roll(1 << 31) as i64 * if self.roll(2) == 0 { -1 } else { 77_777 }).to_string(),
            4 => ((u64::MAX - self.roll(1 << 30)) >> self.roll(40)).to_string(),
            5 => format!("{}.{}", self.roll(100_000), self.roll(1000)),
            6 => format!("{}.{}e{}", self.roll(9) + 1, self.roll(100_000), self.roll(60) as i64 - 30),
            7 => format!("\"{}{}\"", texts[self.roll(7) as usize], "x".repeat(self.roll(200) as usize)),
            8 => {
                let entries: Vec<_> = (0..self.roll(5)).map(|_| self.document(depth + 1)).collect();
                format!("[{}]", entries.join(","))
            }
            _ => {
                let entries: Vec<_> = (0..self.roll(6))
                    .map(|n| format!("\"{}{n}\" :  {}", texts[self.roll(7) as usize], self.document(depth + 1)))
                    .collect();
                format!("{{{}}}", entries.join(" ,"))
            }
        }
    }
}

/// A relay on a table with these columns beside the five of every outbox; they become headers.
fn with_columns(case: &MysqlCase, definitions: &str, headers: &[&str]) -> Outboxd {
    case.session().run(&format!(
        "CREATE TABLE outbox (id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, aggregatetype VARCHAR(255) NOT NULL, \
         aggregateid VARCHAR(255) DEFAULT 'k', payload JSON, {definitions})"
    ));
    let relay = Outboxd::start(&case.config().set("record.headers", headers.to_vec()));
    relay.ready();
    relay
}

fn bare(kind: Kind) -> MysqlCase {
    MysqlCase::bare(&crate::support::mysql::MysqlServer::shared(kind))
}

/// MySQL stores a binary form, MariaDB the text as it was written: both are printed as SELECT prints them.
fn json_is_the_servers_own_text(kind: Kind) {
    let case = bare(kind);
    let _relay = with_columns(&case, "x INT", &[]);
    let mut session = case.session();
    let mut dice = Dice(42);
    let kind_text = quote(&case.kind("A"));
    let mut count = 0;
    let mut values: Vec<String> = (0..300).map(|_| quote(&dice.document(0)).replace('\\', "\\\\")).collect();
    // more keys and bytes than the small form holds
    let keys: Vec<String> = (0..900).map(|n| format!("\"key {n}\": [{n}, \"{}\"]", "y".repeat(90))).collect();
    values.push(quote(&format!("{{{}}}", keys.join(","))));
    values.push(
        "JSON_OBJECT('dec', CAST(123.450 AS DECIMAL(10,3)), 'neg', CAST(-0.05 AS DECIMAL(4,2)), \
         'date', CAST('2024-02-29' AS DATE), 'dt', CAST('2024-02-29 01:02:03.000004' AS DATETIME(6)), \
         'time', CAST('-12:34:56.78' AS TIME(2)), 'max', 18446744073709551615, 'min', -9223372036854775808, \
         'big', 1e100, 'small', -1.5e-300, 'one', 1e0)"
            .to_owned(),
    );
    if kind.is_mysql() {
        values.push(
            "JSON_OBJECT('bin', CAST(x'00ff10' AS BINARY), 'bit', b'101', 'blob', CAST('{\"a\":1}' AS JSON))"
                .to_owned(),
        );
    }
    for value in &values {
        session.run(&format!("INSERT INTO outbox (aggregatetype, payload) VALUES ({kind_text}, {value})"));
        count += 1;
    }
    session.run(&format!("INSERT INTO outbox (aggregatetype, payload) VALUES ({kind_text}, NULL)"));
    let wanted = session.rows("SELECT payload FROM outbox ORDER BY id");
    let records = case.consume("A", count + 1, 30);
    for (index, (record, wanted)) in records.iter().zip(&wanted).enumerate() {
        let text = |bytes: &Option<Vec<u8>>| bytes.as_ref().map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        assert_eq!(text(&record.value), text(&wanted[0]), "document {index}: {:?}", values.get(index));
    }
}

/// Header texts of all records, in the order of the columns; `None` for null.
fn header_rows(records: &[Rec], headers: &[&str]) -> Vec<Vec<Option<String>>> {
    let text = |value: Option<&[u8]>| value.map(|bytes| String::from_utf8(bytes.to_vec()).unwrap());
    let row = |record: &Rec| headers.iter().map(|name| text(record.header(name).expect(name))).collect();
    records.iter().map(row).collect()
}

/// Compares with SELECT over random rows.
fn values_are_those_that_select_shows(kind: Kind) {
    let columns: &[(&str, &str, &str, &str)] = &[
        ("i8", "TINYINT", "i8", "FLOOR(RAND() * 256) - 128"),
        ("u8", "TINYINT UNSIGNED", "u8", "FLOOR(RAND() * 256)"),
        ("i16", "SMALLINT", "i16", "FLOOR(RAND() * 65536) - 32768"),
        ("i24", "MEDIUMINT", "i24", "FLOOR(RAND() * 16777216) - 8388608"),
        ("u24", "MEDIUMINT UNSIGNED", "u24", "FLOOR(RAND() * 16777216)"),
        ("i32", "INT", "i32", "FLOOR(RAND() * 4294967296) - 2147483648"),
        ("u32", "INT UNSIGNED", "u32", "FLOOR(RAND() * 4294967296)"),
        ("i64", "BIGINT", "i64", "FLOOR(RAND() * 4294967296) * 2147483648 - 4611686018427387904"),
        ("u64", "BIGINT UNSIGNED", "u64", "18446744073709551615 - FLOOR(RAND() * 1000000)"),
        ("de", "DECIMAL(30,10)", "de", "(RAND() - 0.5) * POW(10, FLOOR(RAND() * 20))"),
        ("d0", "DECIMAL(9,0)", "d0", "(RAND() - 0.5) * 1000000000"),
        ("d9", "DECIMAL(18,18)", "d9", "RAND() - 0.5"),
        ("db", "DOUBLE", "db", "(RAND() - 0.5) * POW(10, FLOOR(RAND() * 60) - 30)"),
        ("en", "ENUM('new','paid','gone é')", "en", "1 + FLOOR(RAND() * 3)"),
        ("st", "SET('a','b','c','d')", "st", "FLOOR(RAND() * 16)"),
        ("yr", "YEAR", "yr", "1901 + FLOOR(RAND() * 255)"),
        ("t0", "TIME", "t0", "SEC_TO_TIME(FLOOR((RAND() - 0.5) * 6000000))"),
        ("t2", "TIME(2)", "t2", "SEC_TO_TIME((RAND() - 0.5) * 6000000)"),
        ("t6", "TIME(6)", "t6", "SEC_TO_TIME((RAND() - 0.5) * 6000000)"),
        (
            "dt0",
            "DATETIME",
            "TIMESTAMPDIFF(SECOND, '1970-01-01', dt0) * 1000",
            "'1000-01-01' + INTERVAL FLOOR(RAND() * 250000000000) SECOND",
        ),
        (
            "dt6",
            "DATETIME(6)",
            "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', dt6)",
            "'1970-01-01' + INTERVAL FLOOR(RAND() * 4000000000000000) MICROSECOND",
        ),
        (
            "ts3",
            "TIMESTAMP(3) NULL",
            "CONCAT(REPLACE(ts3, ' ', 'T'), 'Z')",
            "FROM_UNIXTIME(1 + FLOOR(RAND() * 2000000000000) / 1000)",
        ),
        ("da", "DATE", "DATEDIFF(da, '1970-01-01')", "'1000-01-01' + INTERVAL FLOOR(RAND() * 3000000) DAY"),
        ("b1", "BIT(1)", "IF(b1, 'true', 'false')", "FLOOR(RAND() * 2)"),
        ("b9", "BIT(9)", "TO_BASE64(b9)", "FLOOR(RAND() * 512)"),
        ("vb", "VARBINARY(40)", "TO_BASE64(vb)", "UNHEX(MD5(RAND()))"),
        ("l1", "VARCHAR(40) CHARACTER SET latin1", "l1", "CONCAT('für 5€ ', FLOOR(RAND() * 1000))"),
        ("u2", "VARCHAR(40) CHARACTER SET ucs2", "u2", "CONCAT('für ', FLOOR(RAND() * 1000))"),
        ("mt", "MEDIUMTEXT", "mt", "REPEAT('é😀', FLOOR(RAND() * 300))"),
        ("ch", "CHAR(255)", "ch", "REPEAT('ü', FLOOR(RAND() * 200))"),
    ];
    let case = bare(kind);
    let definitions: Vec<String> = columns.iter().map(|(name, kind, ..)| format!("{name} {kind}")).collect();
    let names: Vec<&str> = columns.iter().map(|(name, ..)| *name).collect();
    let _relay = with_columns(&case, &definitions.join(", "), &names);
    let mut session = case.session();
    session.run("SET time_zone = '+00:00', sql_mode = ''");
    let values: Vec<&str> = columns.iter().map(|(.., value)| *value).collect();
    for _ in 0..100 {
        session.run(&format!(
            "INSERT INTO outbox (aggregatetype, {}) SELECT {}, {}",
            names.join(", "),
            quote(&case.kind("A")),
            values.iter().map(|value| format!("IF(RAND() < 0.1, NULL, {value})")).collect::<Vec<_>>().join(", ")
        ));
    }
    let records = case.consume("A", 100, 30);
    let oracle: Vec<&str> = columns.iter().map(|(_, _, oracle, _)| *oracle).collect();
    let wanted = session.rows(&format!("SELECT {} FROM outbox ORDER BY id", oracle.join(", ")));
    let found = header_rows(&records, &names);
    for (row, (found, wanted)) in found.iter().zip(&wanted).enumerate() {
        for ((name, found), wanted) in names.iter().zip(found).zip(wanted) {
            let wanted = wanted.as_ref().map(|bytes| String::from_utf8(bytes.clone()).unwrap());
            assert_eq!(found, &wanted, "column {name} of row {row}");
        }
    }
    assert_eq!((found.len(), wanted.len()), (100, 100));
}

/// A BINARY(16) loses its zeros at the end in the log, and a UUID is text when that is asked for.
fn binary_keeps_its_zeros(kind: Kind) {
    let case = bare(kind);
    case.session().run(
        "CREATE TABLE outbox (id BINARY(16) PRIMARY KEY, aggregatetype VARCHAR(255) NOT NULL, aggregateid BINARY(4), \
         payload BLOB, other BINARY(3))",
    );
    let config = case.config().set("outbox.columns.id-format", "uuid").set("record.headers", vec!["other"]);
    let relay = Outboxd::start(&config);
    relay.ready();
    let kind_text = quote(&case.kind("A"));
    case.session().run(&format!(
        "INSERT INTO outbox VALUES (x'10000000000000000000000000000000', {kind_text}, x'01', x'0100', x'02'), \
         (x'ffeeddccbbaa99887766554433221100', {kind_text}, x'00000000', x'', NULL)"
    ));
    let records = case.consume("A", 2, 10);
    assert_eq!(records[0].header_text("id"), "10000000-0000-0000-0000-000000000000");
    assert_eq!(records[1].header_text("id"), "ffeeddcc-bbaa-9988-7766-554433221100");
    assert_eq!(records[0].key.as_deref(), Some([1, 0, 0, 0].as_slice()));
    assert_eq!(records[0].value.as_deref(), Some([1, 0].as_slice()));
    assert_eq!(records[0].header_text("other"), "AgAA");
    assert_eq!(
        (records[1].key.as_deref(), records[1].value.as_deref()),
        (Some([0; 4].as_slice()), Some([].as_slice()))
    );
    assert_eq!(records[1].header("other"), Some(None));
}

/// The same bytes in key, value and header.
fn fr_27_text_outside_ascii(kind: Kind) {
    let case = MysqlCase::new(kind);
    let relay = Outboxd::start(&case.config().set("record.headers", vec!["type"]));
    relay.ready();
    let text = "é😀\u{a0}";
    case.session().run(&format!(
        "INSERT INTO outbox (aggregatetype, aggregateid, type, payload) VALUES ('{}', '{text}', '{text}', '{text}')",
        case.kind("A")
    ));
    let records = case.consume("A", 1, 10);
    assert_eq!(records[0].key.as_deref(), Some(b"\xc3\xa9\xf0\x9f\x98\x80\xc2\xa0".as_slice()));
    assert_eq!((records[0].text().as_str(), records[0].header_text("type").as_str()), (text, text));
}

/// They are texts, and as the record's time they are none.
fn fr_36_zero_and_partial_dates(kind: Kind) {
    let case = bare(kind);
    case.session().run(
        "CREATE TABLE outbox (id BIGINT PRIMARY KEY, aggregatetype VARCHAR(255) NOT NULL, aggregateid INT, payload TEXT, \
         at DATETIME(6), d DATE, y YEAR)",
    );
    let config = case.config().set("record.headers", vec!["at", "d", "y"]).set("outbox.columns.timestamp", "at");
    let relay = Outboxd::start(&config);
    relay.ready();
    let mut session = case.session();
    session.run("SET sql_mode = ''");
    let kind_text = quote(&case.kind("A"));
    session.run(&format!(
        "INSERT INTO outbox VALUES (1, {kind_text}, -1, '', '0000-00-00 00:00:00', '2023-00-15', 0), \
         (2, {kind_text}, 7, 'x', '2024-01-02 03:04:05.678901', '0000-00-00', 2024)"
    ));
    let records = case.consume("A", 2, 10);
    let texts = |record: &Rec| ["at", "d", "y"].map(|name| record.header_text(name));
    assert_eq!(texts(&records[0]), ["0000-00-00 00:00:00.000000", "2023-00-15", "0000"]);
    assert_eq!(texts(&records[1]), ["1704164645678901", "0000-00-00", "2024"]);
    assert!(records[0].timestamp > 1_700_000_000_000 && records[0].timestamp != records[1].timestamp);
    assert_eq!(records[1].timestamp, 1_704_164_645_678);
    assert_eq!((records[0].key_text().as_str(), records[0].text().as_str()), ("-1", ""));
    assert_eq!(relay.metric("outbox_timestamp_fallbacks_total"), Some(1.0));
}

/// The log describes the table anew after each change.
fn columns_change_while_running(kind: Kind) {
    let case = bare(kind);
    case.session().run(
        "CREATE TABLE outbox (junk INT, id INT AUTO_INCREMENT PRIMARY KEY, aggregatetype VARCHAR(255) NOT NULL, \
         aggregateid VARCHAR(20), payload TEXT)",
    );
    let config = case.config().set("record.headers", vec!["type"]).set("record.missing-columns", "ignore");
    let relay = Outboxd::start(&config);
    relay.ready();
    let mut session = case.session();
    let insert =
        format!("INSERT INTO outbox (aggregatetype, aggregateid, payload) VALUES ({}, 'k', '", quote(&case.kind("A")));
    session.run(&format!("{insert}1')"));
    session.run("ALTER TABLE outbox DROP COLUMN junk");
    session.run(&format!("{insert}2')"));
    session.run("ALTER TABLE outbox ADD COLUMN type VARCHAR(20) DEFAULT 'T' AFTER id");
    session.run(&format!("{insert}3')"));
    session.run("ALTER TABLE outbox MODIFY payload JSON, RENAME COLUMN aggregateid TO AggregateId");
    session.run(
        "INSERT INTO outbox (aggregatetype, aggregateid, payload) SELECT aggregatetype, 'k', '4' FROM outbox LIMIT 1",
    );
    let records = case.consume("A", 4, 10);
    assert_eq!(records.iter().map(Rec::text).collect::<Vec<_>>(), ["1", "2", "3", "4"]);
    assert_eq!(records[1].header("type"), None);
    assert_eq!(records[2].header_text("type"), "T");
    assert!(records.iter().all(|record| record.key_text() == "k"));
}
