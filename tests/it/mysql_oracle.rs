//! MySQL and MariaDB: random rows of every column type arrive as the server itself prints them, by SELECT and by its own
//! tool for binary logs. `OUTBOX_TEST_LONG=1` compares 100,000 of them.

use std::collections::HashSet;

use crate::mysql_values::{bare, header_rows, with_columns};
use crate::support::mysql::{Kind, MysqlCase, PrivateMysql};
use crate::support::{Rec, quote, size};

on_each_binlog![values_are_those_that_select_shows, rows_are_those_that_the_servers_own_tool_shows];

/// Name, definition, what SELECT has to show, a random value.
type Column = (&'static str, &'static str, &'static str, &'static str);

const COLUMNS: &[Column] = &[
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
    ("b1", "BIT(1)", "CASE b1 WHEN 1 THEN 'true' WHEN 0 THEN 'false' END", "FLOOR(RAND() * 2)"),
    ("b9", "BIT(9)", "TO_BASE64(b9)", "FLOOR(RAND() * 512)"),
    ("vb", "VARBINARY(40)", "TO_BASE64(vb)", "UNHEX(SHA2(RAND(), 256))"),
    ("l1", "VARCHAR(40) CHARACTER SET latin1", "l1", "CONCAT('für 5€ ', FLOOR(RAND() * 1000))"),
    ("u2", "VARCHAR(40) CHARACTER SET ucs2", "u2", "CONCAT('für ', FLOOR(RAND() * 1000))"),
    ("mt", "MEDIUMTEXT", "mt", "REPEAT('é😀', FLOOR(RAND() * 300))"),
    ("ch", "CHAR(255)", "ch", "REPEAT('ü', FLOOR(RAND() * 200))"),
    ("u16", "SMALLINT UNSIGNED", "u16", "FLOOR(RAND() * 65536)"),
    ("dx", "DECIMAL(65,30)", "dx", "(RAND() - 0.5) * POW(10, FLOOR(RAND() * 34))"),
    ("t4", "TIME(4)", "t4", "SEC_TO_TIME((RAND() - 0.5) * 6000000)"),
    (
        "dt3",
        "DATETIME(3)",
        "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', dt3) DIV 1000",
        "'1970-01-01' + INTERVAL FLOOR(RAND() * 4000000000000) * 1000 MICROSECOND",
    ),
    ("ts0", "TIMESTAMP NULL", "CONCAT(REPLACE(ts0, ' ', 'T'), 'Z')", "FROM_UNIXTIME(1 + FLOOR(RAND() * 2000000000))"),
    (
        "ts6",
        "TIMESTAMP(6) NULL",
        "CONCAT(REPLACE(ts6, ' ', 'T'), 'Z')",
        "FROM_UNIXTIME(1 + FLOOR(RAND() * 2000000000000000) / 1000000)",
    ),
    ("b64", "BIT(64)", "TO_BASE64(b64)", "FLOOR(RAND() * 4294967296) * 4294967296 + FLOOR(RAND() * 4294967296)"),
    ("bi", "BINARY(7)", "TO_BASE64(bi)", "LEFT(UNHEX(SHA2(RAND(), 256)), FLOOR(RAND() * 8))"),
    ("tb", "TINYBLOB", "REPLACE(TO_BASE64(tb), '\\n', '')", "LEFT(UNHEX(SHA2(RAND(), 512)), FLOOR(RAND() * 65))"),
    ("lb", "LONGBLOB", "REPLACE(TO_BASE64(lb), '\\n', '')", "REPEAT(UNHEX(SHA2(RAND(), 512)), FLOOR(RAND() * 9))"),
    ("vl", "VARCHAR(2000)", "vl", "REPEAT('ж', FLOOR(RAND() * 400))"),
    ("tt", "TINYTEXT", "tt", "CONCAT('\\t\\n\\0', FLOOR(RAND() * 1000))"),
    ("as", "CHAR(9) CHARACTER SET ascii", "as", "HEX(FLOOR(RAND() * 100000000))"),
    ("u4", "VARCHAR(40) CHARACTER SET utf32", "u4", "CONCAT('é😀 ', FLOOR(RAND() * 1000))"),
    ("u6", "TEXT CHARACTER SET utf16", "u6", "REPEAT('é😀', FLOOR(RAND() * 20))"),
    ("u3", "VARCHAR(40) CHARACTER SET utf8mb3", "u3", "CONCAT('für 5€ ', FLOOR(RAND() * 1000))"),
    ("s64", "SET(SIXTY_FOUR)", "s64", "FLOOR(RAND() * 4294967296) * 4294967296 + FLOOR(RAND() * 4294967296)"),
    ("e300", "ENUM(THREE_HUNDRED)", "e300", "1 + FLOOR(RAND() * 300)"),
    ("js", "JSON", "js", JSON),
    ("db", "DOUBLE", "db", "(RAND() - 0.5) * POW(10, FLOOR(RAND() * 600) - 300)"),
    ("d1", "DOUBLE", "d1", "(RAND() - 0.5) * POW(10, FLOOR(RAND() * 40) - 20)"),
    // SELECT alone shows six digits of it
    ("fl", "FLOAT", "CAST(fl AS DOUBLE)", "(RAND() - 0.5) * POW(10, FLOOR(RAND() * 60) - 30)"),
];

/// Numbers of every form: what is published is the server's text of the whole document.
const JSON: &str = "JSON_OBJECT('d', (RAND() - 0.5) * POW(10, FLOOR(RAND() * 60) - 30), \
    'e', (RAND() - 0.5) * POW(10, FLOOR(RAND() * 600) - 300), 'i', FLOOR(RAND() * 4294967296) - 2147483648, \
    'n', CAST((RAND() - 0.5) * 100000 AS DECIMAL(20,7)), 't', HEX(RAND()), 'a', JSON_ARRAY(NULL, FLOOR(RAND() * 2)))";

/// Compares with SELECT over random rows.
fn values_are_those_that_select_shows(kind: Kind) {
    const AT_ONCE: u64 = 1_000;
    let rows = size(300, 100_000);
    let case = bare(kind);
    let words = |count: u32| (0..count).map(|n| format!("'w{n} é'")).collect::<Vec<_>>().join(",");
    let (sixty_four, three_hundred) = (words(64), words(300));
    let definitions: Vec<String> = COLUMNS
        .iter()
        .map(|(name, kind, ..)| {
            let kind = kind.replace("SIXTY_FOUR", &sixty_four).replace("THREE_HUNDRED", &three_hundred);
            format!("`{name}` {kind}")
        })
        .collect();
    let names: Vec<&str> = COLUMNS.iter().map(|(name, ..)| *name).collect();
    let quoted = format!("`{}`", names.join("`, `"));
    let relay = with_columns(&case, &definitions.join(", "), &names);
    let mut session = case.session();
    session.run("SET time_zone = '+00:00', sql_mode = ''");
    session.run("CREATE TABLE numbers (n INT PRIMARY KEY)");
    let numbers: Vec<String> = (0..AT_ONCE).map(|n| format!("({n})")).collect();
    session.run(&format!("INSERT INTO numbers VALUES {}", numbers.join(",")));
    let values = COLUMNS.iter().map(|(.., value)| format!("IF(RAND() < 0.1, NULL, {value})"));
    let insert = format!(
        "INSERT INTO outbox (aggregatetype, {quoted}) SELECT {}, {} FROM numbers WHERE n <",
        quote(&case.kind("A")),
        values.collect::<Vec<_>>().join(", ")
    );
    for first in (0..rows).step_by(usize::try_from(AT_ONCE).unwrap()) {
        session.run(&format!("{insert} {}", AT_ONCE.min(rows - first)));
    }
    let records = first_deliveries(&case, rows);
    let oracle: Vec<String> = COLUMNS
        .iter()
        .map(|(name, _, oracle, _)| if oracle == name { format!("`{name}`") } else { (*oracle).to_owned() })
        .collect();
    let mut compared = 0;
    for (chunk, records) in records.chunks(usize::try_from(AT_ONCE).unwrap()).enumerate() {
        let first = u64::try_from(chunk).unwrap() * AT_ONCE;
        let sql = format!("SELECT {} FROM outbox ORDER BY id LIMIT {first}, {AT_ONCE}", oracle.join(", "));
        let wanted = session.rows(&sql);
        assert_eq!(records.len(), wanted.len());
        for (row, (found, wanted)) in header_rows(records, &names).iter().zip(&wanted).enumerate() {
            for ((name, found), wanted) in names.iter().zip(found).zip(wanted) {
                let wanted = wanted.as_ref().map(|bytes| shown(name, std::str::from_utf8(bytes).unwrap()));
                assert_eq!(found, &wanted, "column {name} of row {}", first + u64::try_from(row).unwrap());
                compared += 1;
            }
        }
    }
    println!("{rows} rows, {compared} values, all equal; peak {} MiB", relay.peak_memory() >> 20);
    assert_eq!(compared, rows * u64::try_from(COLUMNS.len()).unwrap());
}

/// The records without repeats: a machine so busy that the relay loses its lock makes it begin again where it was.
fn first_deliveries(case: &MysqlCase, count: u64) -> Vec<Rec> {
    let mut seen = HashSet::new();
    let mut records = case.kafka.consume_until(&case.topic("A"), 60 + count / 500, |records| {
        seen.extend(records.last().map(|record| record.header_text("id")));
        seen.len() >= usize::try_from(count).unwrap()
    });
    seen.clear();
    records.retain(|record| seen.insert(record.header_text("id")));
    records
}

/// What SELECT shows, as it is published: numbers with a fraction are written as by Java, everything else as it is. The
/// server's own form for floating-point numbers shows in `js`.
fn shown(name: &str, text: &str) -> String {
    let java = |plain: bool, short: String, exponent: String| {
        if plain {
            return short;
        }
        let (digits, exponent) = exponent.split_once('E').unwrap_or((&exponent, "0"));
        format!("{digits}{}E{exponent}", if digits.contains('.') { "" } else { ".0" })
    };
    let is_plain = |magnitude: f64| magnitude == 0.0 || (1e-3..1e7).contains(&magnitude);
    match name {
        "db" | "d1" => {
            let value: f64 = text.parse().unwrap();
            java(is_plain(value.abs()), format!("{value:?}"), format!("{value:E}"))
        }
        "fl" => {
            // the cast is exact
            let value = text.parse::<f64>().unwrap() as f32;
            java(is_plain(f64::from(value.abs())), format!("{value:?}"), format!("{value:E}"))
        }
        "de" | "d0" | "d9" | "dx" => java_decimal(text),
        _ => text.to_owned(),
    }
}

/// `BigDecimal.toString`: with an exponent for numbers smaller than a millionth.
fn java_decimal(text: &str) -> String {
    let (sign, magnitude) = text.strip_prefix('-').map_or(("", text), |magnitude| ("-", magnitude));
    let (whole, fraction) = magnitude.split_once('.').unwrap_or((magnitude, ""));
    let all = format!("{whole}{fraction}");
    let digits = all.trim_start_matches('0');
    let digits = if digits.is_empty() { "0" } else { digits };
    let Some(exponent) = (fraction.len() + 1).checked_sub(digits.len()).filter(|exponent| *exponent > 6) else {
        return text.to_owned();
    };
    let (first, rest) = digits.split_at(1);
    format!("{sign}{first}{}{rest}E-{exponent}", if rest.is_empty() { "" } else { "." })
}

/// One row of the tool's output, by the numbers of the columns.
type Printed = Vec<String>;

/// Compares count, order and values with what `mysqlbinlog -vv` prints of the same log.
fn rows_are_those_that_the_servers_own_tool_shows(kind: Kind) {
    let rows = size(2_000, 100_000);
    let server = PrivateMysql::start(kind, &[]);
    let case = MysqlCase::bare(&server);
    let mut session = case.session();
    session.run(
        "CREATE TABLE outbox (id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, aggregatetype VARCHAR(255) NOT NULL, \
         aggregateid VARCHAR(20), payload VARCHAR(300), n INT, d DECIMAL(20,6), da DATE, t TIME, dt DATETIME)",
    );
    session.run("CREATE TABLE other LIKE outbox");
    session.run("CREATE TABLE numbers (n INT PRIMARY KEY)");
    session.run(&format!(
        "INSERT INTO numbers VALUES {}",
        (0..100).map(|n| format!("({n})")).collect::<Vec<_>>().join(",")
    ));
    let config = case
        .config()
        .set("record.headers", vec!["n", "d", "da", "t", "dt"])
        .set("record.time-format", "iso")
        .set("log.level", "info");
    let relay = crate::kills::start(&config);
    if kind.is_mysql() {
        session.run("SET SESSION binlog_transaction_compression = ON");
    } else {
        session.run("SET GLOBAL log_bin_compress = ON");
    }
    let insert = |table: &str| {
        format!(
            "INSERT INTO {table} (aggregatetype, aggregateid, payload, n, d, da, t, dt) SELECT {}, CONCAT('k', FLOOR(RAND() * 50)), \
             REPEAT(SHA2(RAND(), 224), FLOOR(RAND() * 6)), FLOOR(RAND() * 1000000), (RAND() - 0.5) * 1000000, \
             '2000-01-01' + INTERVAL FLOOR(RAND() * 9000) DAY, SEC_TO_TIME(FLOOR(RAND() * 80000)), \
             '2000-01-01' + INTERVAL FLOOR(RAND() * 700000000) SECOND FROM numbers",
            quote(&case.kind("A"))
        )
    };
    for turn in 0..rows / 100 {
        session.run("BEGIN");
        session.run(&insert("outbox"));
        if turn % 3 == 0 {
            session.run(&insert("other"));
            session.run("SAVEPOINT s");
            session.run(&insert("outbox"));
            session.run("ROLLBACK TO s");
        }
        session.run("COMMIT");
        if turn % 7 == 0 {
            session.run("BEGIN");
            session.run(&insert("outbox"));
            session.run("ROLLBACK");
            session.run("FLUSH BINARY LOGS");
            session.run("UPDATE outbox SET n = 0 WHERE n = 1");
        }
    }
    let records = first_deliveries(&case, rows);
    let table = format!("`{}`.`outbox`", case.tag);
    let printed = printed_inserts(&server.binlog(), &table);
    assert_eq!((records.len(), printed.len()), (usize::try_from(rows).unwrap(), usize::try_from(rows).unwrap()));
    for (row, (record, printed)) in records.iter().zip(&printed).enumerate() {
        let mut found = vec![record.header_text("id"), record.key_text(), record.text()];
        found.extend(["n", "d", "da", "t", "dt"].map(|name| record.header_text(name)));
        let printed: Vec<&str> =
            printed.iter().enumerate().filter(|(at, _)| *at != 1).map(|(_, text)| text.as_str()).collect();
        // the tool has its own signs between the parts of a date
        let (da, dt) = (printed[5].replace(':', "-"), printed[7].replace(' ', "T"));
        let wanted: Vec<&str> = [&printed[..5], &[da.as_str(), printed[6], dt.as_str()]].concat();
        assert_eq!(found, wanted, "row {row}");
    }
    println!("{rows} rows are those that the server's tool prints, in its order");
    assert_eq!(relay.terminate(), Some(0));
}

/// The rows that were inserted into a table, as the tool prints them: `###   @1=5 /* INT … */`.
fn printed_inserts(log: &str, table: &str) -> Vec<Printed> {
    let mut rows: Vec<Printed> = Vec::new();
    let mut is_ours = false;
    for line in log.lines() {
        let Some(line) = line.strip_prefix("### ") else { continue };
        if line.starts_with("INSERT INTO ") || line.starts_with("UPDATE ") || line.starts_with("DELETE ") {
            is_ours = line == format!("INSERT INTO {table}");
            if is_ours {
                rows.push(Printed::new());
            }
        } else if is_ours && line.starts_with("  @") {
            let (_, value) = line.split_once('=').unwrap();
            let (value, _) = value.split_once(" /* ").unwrap();
            let value = value.strip_prefix('\'').and_then(|value| value.strip_suffix('\'')).unwrap_or(value);
            // negative numbers have their unsigned form behind them
            let value = value.split_once(" (").map_or(value, |(value, _)| value);
            rows.last_mut().unwrap().push(value.to_owned());
        }
    }
    rows
}
