//! MySQL and MariaDB: every value arrives as the server itself prints it.

use crate::support::mysql::{Kind, MysqlCase};
use crate::support::{Outboxd, Rec, quote};

on_each_binlog![
    json_is_the_servers_own_text,
    binary_keeps_its_zeros,
    fr_27_text_outside_ascii,
    fr_36_zero_and_partial_dates,
    columns_change_while_running,
    types_of_mariadb_are_text,
    a_type_of_mariadb_that_comes_later_is_text,
    text_behind_columns_without_text,
    text_that_is_none_has_its_row_named,
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
pub(crate) fn with_columns(case: &MysqlCase, definitions: &str, headers: &[&str]) -> Outboxd {
    case.session().run(&format!(
        "CREATE TABLE outbox (id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, aggregatetype VARCHAR(255) NOT NULL, \
         aggregateid VARCHAR(255) DEFAULT 'k', payload JSON, {definitions})"
    ));
    let relay = Outboxd::start(&case.config().set("record.headers", headers.to_vec()));
    relay.ready();
    relay
}

pub(crate) fn bare(kind: Kind) -> MysqlCase {
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
        session.run(
            "CREATE TABLE source AS SELECT CAST('ab' AS BINARY(4)) AS b, CAST(x'00ff' AS BINARY) AS vb, \
             CAST('2024-01-02 03:04:05.678901' AS DATETIME(6)) AS dt, CAST('-12:34:56.789' AS TIME(3)) AS ti",
        );
        session.run(
            "ALTER TABLE source ADD tb TINYBLOB, ADD bl BLOB, ADD mb MEDIUMBLOB, ADD lb LONGBLOB, ADD bt BIT(9), ADD b1 BIT(1), \
             ADD ts TIMESTAMP(2) NULL, ADD yr YEAR, ADD en ENUM('x'), ADD st SET('x','y'), ADD fl FLOAT, ADD de DECIMAL(9,4)",
        );
        session.run(
            "UPDATE source SET tb = 'ab', bl = REPEAT('ab', 100), mb = 'ab', lb = '', bt = b'100000001', b1 = 1, \
             ts = '2024-01-02 03:04:05.67', yr = 2024, en = 'x', st = 'x,y', fl = 1.1, de = -0.5",
        );
        session.run("SET @bytes = CAST('ab' AS BINARY)");
        values.push(
            "JSON_OBJECT('bin', CAST(x'00ff10' AS BINARY), 'bit', b'101', 'blob', CAST('{\"a\":1}' AS JSON))"
                .to_owned(),
        );
        values.push(
            "JSON_ARRAY(CAST('ab' AS BINARY), @bytes, x'6162', UNHEX('6162'), _binary'ab', CONVERT('ab' USING binary))"
                .to_owned(),
        );
        for column in ["b", "vb", "dt", "ti", "tb", "bl", "mb", "lb", "bt", "b1", "ts", "yr", "en", "st", "fl", "de"] {
            values.push(format!("(SELECT JSON_OBJECT('k', {column}) FROM source)"));
            values.push(format!("JSON_ARRAY((SELECT {column} FROM source))"));
        }
        values.push("(SELECT JSON_ARRAYAGG(vb) FROM source)".to_owned());
        values.push("(SELECT JSON_OBJECT('k', MAX(b), 'c', CONCAT(MAX(vb), 'x')) FROM source)".to_owned());
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
pub(crate) fn header_rows(records: &[Rec], headers: &[&str]) -> Vec<Vec<Option<String>>> {
    let text = |value: Option<&[u8]>| value.map(|bytes| String::from_utf8(bytes.to_vec()).unwrap());
    let row = |record: &Rec| headers.iter().map(|name| text(record.header(name).expect(name))).collect();
    records.iter().map(row).collect()
}

/// A BINARY(16) loses its zeros at the end in the log, and a UUID is text when that is asked for.
fn binary_keeps_its_zeros(kind: Kind) {
    let case = bare(kind);
    case.session().run(
        "CREATE TABLE outbox (id BINARY(16) PRIMARY KEY, aggregatetype VARCHAR(255) NOT NULL, aggregateid BINARY(4), \
         payload BLOB, other BINARY(3))",
    );
    let config = case
        .config()
        .set("outbox.columns.id-format", "uuid")
        .set("record.headers", vec!["other"])
        .set("record.key-format", "bytes")
        .set("record.value-format", "bytes");
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

/// The log has their bytes alone, as those of BINARY.
fn types_of_mariadb_are_text(kind: Kind) {
    if kind.is_mysql() {
        // it has no such types: a UUID in BINARY(16) stays bytes unless that is asked for
        let case = bare(kind);
        let _relay = with_columns(&case, "u BINARY(16)", &["u"]);
        case.session()
            .run(&format!("INSERT INTO outbox (aggregatetype, u) VALUES ({}, x'10')", quote(&case.kind("A"))));
        assert_eq!(case.consume("A", 1, 10)[0].header_text("u"), "EAAAAAAAAAAAAAAAAAAAAA==");
        return;
    }
    let case = bare(kind);
    let headers = ["u", "i6", "i4"];
    let _relay = with_columns(&case, "u UUID, i6 INET6, i4 INET4", &headers);
    let mut session = case.session();
    for (u, i6, i4) in [
        ("00112233-4455-1677-8899-aabbccddeeff", "::1", "1.2.3.4"),
        ("00112233-4455-4677-8899-aabbccddeeff", "::ffff:1.2.3.4", "0.0.0.0"),
        ("10000000-0000-0000-0000-000000000000", "::1.2.3.4", "255.0.0.0"),
        ("ffffffff-ffff-7fff-bfff-ffffffffff00", "2001:db8::", "10.20.30.0"),
        ("00000000-0000-0000-0000-000000000000", "::", "127.0.0.1"),
    ] {
        session.run(&format!(
            "INSERT INTO outbox (aggregatetype, u, i6, i4) VALUES ({}, '{u}', '{i6}', '{i4}')",
            quote(&case.kind("A"))
        ));
    }
    let records = case.consume("A", 5, 10);
    let wanted = session.rows("SELECT u, i6, i4 FROM outbox ORDER BY id");
    let wanted: Vec<Vec<Option<String>>> = wanted
        .into_iter()
        .map(|row| row.into_iter().map(|cell| cell.map(|text| String::from_utf8(text).unwrap())).collect())
        .collect();
    assert_eq!(header_rows(&records, &headers), wanted);
}

/// The catalogue is asked again where the table is changed, and only there.
fn a_type_of_mariadb_that_comes_later_is_text(kind: Kind) {
    if kind.is_mysql() {
        return;
    }
    let case = bare(kind);
    let relay = with_columns(&case, "u BINARY(16), i6 VARCHAR(50)", &["u", "i6"]);
    let mut session = case.session();
    let insert =
        |u: &str| format!("INSERT INTO outbox (aggregatetype, u, i6) VALUES ({}, {u}, '::1')", quote(&case.kind("A")));
    session.run(&insert("x'00112233445566778899aabbccddeeff'"));
    case.consume("A", 1, 10);
    let mut elsewhere = case.server.session();
    elsewhere.run(&format!("CREATE DATABASE {}_other", case.tag));
    elsewhere.run(&format!("USE {}_other", case.tag));
    elsewhere.run("CREATE TABLE outbox (a INT)");
    elsewhere.run("ALTER TABLE outbox ADD b INT");
    session.run("FLUSH TABLES");
    session.run(&insert("x'00112233445566778899aabbccddeeff'"));
    case.consume("A", 2, 10);
    assert_eq!(relay.metric("outbox_source_reconnects_total"), Some(0.0), "{}", relay.stderr());
    session.run("ALTER TABLE outbox MODIFY u UUID, MODIFY i6 INET6");
    session.run(&insert("'00112233-4455-6677-8899-aabbccddee00'"));
    let records = case.kafka.consume_until(&case.topic("A"), 20, |records| {
        records.last().is_some_and(|record| record.header_text("id") == "3")
    });
    let texts = header_rows(&records, &["u", "i6"]).pop().unwrap();
    assert_eq!(texts, [Some("00112233-4455-6677-8899-aabbccddee00".to_owned()), Some("::1".to_owned())]);
    relay.ready();
    assert_eq!(relay.metric("outbox_source_reconnects_total"), Some(1.0), "{}", relay.stderr());
    session.run(&format!("DROP DATABASE {}_other", case.tag));
}

/// MariaDB counts a geometry among the columns that have a collation, MySQL does not.
fn text_behind_columns_without_text(kind: Kind) {
    let vector = if kind == Kind::Mariadb10 { "BLOB" } else { "VECTOR(2)" };
    for (one, other) in [("latin1", "utf8mb4"), ("utf8mb4", "latin1")] {
        let case = bare(kind);
        let definitions = format!(
            "a VARCHAR(20) CHARACTER SET {one}, g POINT, b VARCHAR(20) CHARACTER SET {other}, v {vector}, \
             c TEXT CHARACTER SET {other}, d CHAR(20) CHARACTER SET {other}, g2 GEOMETRY, e ENUM('für 5€') CHARACTER SET {one}, \
             f VARBINARY(20), h TEXT CHARACTER SET {one}"
        );
        let headers = ["a", "b", "c", "d", "e", "h"];
        let _relay = with_columns(&case, &definitions, &headers);
        let text = "für 5€";
        case.session().run(&format!(
            "INSERT INTO outbox (aggregatetype, a, g, b, c, d, e, h) VALUES ({}, '{text}', POINT(1, 2), '{text}', '{text}', \
             '{text}', '{text}', '{text}')",
            quote(&case.kind("A"))
        ));
        let rows = header_rows(&case.consume("A", 1, 10), &headers);
        assert_eq!(rows, [vec![Some(text.to_owned()); headers.len()]]);
    }
}

/// The servers take half of a character where they cannot know better.
fn text_that_is_none_has_its_row_named(kind: Kind) {
    let case = bare(kind);
    let relay = with_columns(&case, "c VARCHAR(9) CHARACTER SET ucs2", &["c"]);
    let insert = |c: &str| {
        case.session().run(&format!("INSERT INTO outbox (aggregatetype, c) VALUES ({}, {c})", quote(&case.kind("A"))));
    };
    insert("'fine'");
    assert_eq!(case.consume("A", 1, 10)[0].header_text("c"), "fine");
    insert("x'D800'");
    let ready = relay.wait_terminal(&["row_error"], 20).json;
    let detail = ready["detail"].as_str().unwrap();
    assert!(detail.contains("column \"c\" of the row with id \"2\" of table"), "{ready}");
}
