//! Which rows the first read brings, in which order, with which bytes, and what it is refused for.

use crate::roles::role;
use crate::support::{Case, Kafka, Outboxd, PrivateServer, Rec, Version, base_table, eventually, quote};

on_each_version!(
    now_leaves_the_rows_alone,
    a_condition_and_an_order,
    a_wrong_condition_is_refused,
    a_condition_that_fails_on_a_row,
    the_right_to_read_is_needed,
    hidden_rows_are_refused,
    two_tables_and_one_with_partitions,
    the_publications_filter_counts,
    a_row_that_cannot_be_routed,
    two_slots_are_needed,
    values_are_those_of_the_stream,
);

/// Proves that `start = "now"` publishes only what is committed from now on.
fn now_leaves_the_rows_alone(version: Version) {
    let case = Case::new(version);
    case.insert("A", "1", "old");
    let relay = Outboxd::start(&case.config().set("source.postgres.start", "now"));
    relay.ready();
    case.insert("A", "1", "new");
    assert_eq!(case.values_until("A", "new", 20), ["new"]);
    assert_eq!(relay.metric("outbox_snapshot_rows_total"), Some(0.0));
}

const WITH_STATUS: &str = "CREATE TABLE outbox (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregatetype text, \
     aggregateid text, payload text, status text, \"N\" int, at timestamptz DEFAULT now())";

fn insert_with_status(case: &Case, payload: &str, status: &str, number: u32) {
    case.db.run(&format!(
        "INSERT INTO outbox (aggregatetype, aggregateid, payload, status, \"N\") VALUES ({}, 'k', {}, {}, {number})",
        quote(&case.kind("A")),
        quote(payload),
        quote(status)
    ));
}

/// Proves that a condition narrows the rows that stand there and nothing else, and that a column orders them.
fn a_condition_and_an_order(version: Version) {
    let case = Case::bare(version);
    case.db.run(WITH_STATUS);
    for number in 1..=5_u32 {
        insert_with_status(&case, &format!("pending {number}"), "pending", 6 - number);
        insert_with_status(&case, &format!("sent {number}"), "sent", 6 - number);
    }
    let config = case
        .config()
        .set("outbox.start-where", "status = 'pending' OR status IS NULL -- and a comment")
        .set("outbox.start-order-by", vec!["N", "id"]);
    let relay = Outboxd::start(&config);
    relay.ready();
    insert_with_status(&case, "later", "sent", 0);
    let values = case.values_until("A", "later", 20);
    assert_eq!(values, ["pending 5", "pending 4", "pending 3", "pending 2", "pending 1", "later"]);
}

#[track_caller]
fn refused(config: &crate::support::Config, named: &[&str]) {
    let ended = Outboxd::run_to_end(config);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    for name in named {
        assert!(ended.stderr.contains(name), "{name:?} is not named:\n{}", ended.stderr);
    }
}

#[track_caller]
fn assert_nothing_made(case: &Case) {
    let sql = format!(
        "SELECT (SELECT count(*) FROM pg_replication_slots WHERE database = '{}') + \
         (SELECT count(*) FROM pg_publication)",
        case.tag
    );
    assert_eq!(case.db.text(&sql).as_deref(), Some("0"), "something was left behind");
}

/// Proves that a condition or an order that the server does not understand is refused before anything is made.
fn a_wrong_condition_is_refused(version: Version) {
    let case = Case::new(version);
    case.db.run("CREATE TABLE precious (i int)");
    case.insert("A", "1", "x");
    for condition in
        ["status = 'pending'", "payload =", "true); DROP TABLE precious; --", "aggregateid + 1", "'x'::int = 1"]
    {
        refused(&case.config().set("outbox.start-where", condition), &["public.outbox", "outbox.start-where"]);
    }
    refused(&case.config().set("outbox.start-order-by", vec!["created_at"]), &["created_at", "outbox.start-order-by"]);
    assert_nothing_made(&case);
    assert_eq!(case.db.text("SELECT count(*) FROM precious").as_deref(), Some("0"));
}

/// Proves that a condition that fails on a row is told as such, and leaves no slot behind.
fn a_condition_that_fails_on_a_row(version: Version) {
    let case = Case::new(version);
    case.insert("A", "1", "not a number");
    let relay = Outboxd::start(&case.config().set("outbox.start-where", "payload::int > 0"));
    let health = relay.wait_reason("configuration", 20);
    assert!(health.detail().contains("not a number"), "{health:?}");
    assert!(health.json["hint"].as_str().unwrap().contains("outbox.start-where"), "{health:?}");
    assert!(case.slot().is_none());
    // mended on the other side
    case.db.run("UPDATE outbox SET payload = '1'");
    relay.wait_health("streaming", 60, |health| health.phase() == "streaming");
    assert_eq!(case.consume("A", 1, 20)[0].text(), "1");
}

/// Proves that a role without the right to read the table is refused with the statement that grants it, together with
/// everything else that it lacks, and that it works with what it was told.
fn the_right_to_read_is_needed(version: Version) {
    let case = Case::bare(version);
    case.db.run("CREATE SCHEMA app");
    case.db.run(&base_table("app.outbox"));
    let role = role(&case, "LOGIN REPLICATION");
    case.db.run(&format!(
        "INSERT INTO app.outbox (aggregatetype, aggregateid, payload) VALUES ({}, '1', 'old')",
        quote(&case.kind("A"))
    ));
    let url = format!("postgres://{}@127.0.0.1:{}/{}", role.name, case.db.server.port, case.tag);
    let config = case.config().set("source.postgres.url", url).set("outbox.tables", vec!["app.outbox"]);
    let usage = format!("GRANT USAGE ON SCHEMA \"app\" TO \"{}\";", role.name);
    let select = format!("GRANT SELECT ON \"app\".\"outbox\" TO \"{}\";", role.name);
    refused(&config, &[&usage, &select, "CREATE PUBLICATION", "start = \"now\""]);
    assert_nothing_made(&case);
    case.db.run(&usage);
    refused(&config, &[&select]);
    // the columns that are read are enough
    case.db.run(&format!(
        "GRANT SELECT (id, aggregatetype, aggregateid, payload) ON app.outbox TO \"{}\"; \
         CREATE PUBLICATION \"{}\" FOR TABLE app.outbox WITH (publish = 'insert')",
        role.name,
        case.object()
    ));
    let relay = Outboxd::start(&config);
    relay.ready();
    assert_eq!(case.consume("A", 1, 20)[0].text(), "old");
    assert_eq!(relay.terminate(), Some(0));
}

/// Proves that rows that a policy hides from the role are not passed over: it is refused.
fn hidden_rows_are_refused(version: Version) {
    let case = Case::new(version);
    let role = role(&case, "LOGIN REPLICATION");
    case.insert("A", "1", "old");
    case.db.run(&format!(
        "ALTER TABLE outbox ENABLE ROW LEVEL SECURITY; CREATE POLICY few ON outbox USING (payload = 'few'); \
         GRANT SELECT ON outbox TO \"{}\"; CREATE PUBLICATION \"{}\" FOR TABLE outbox WITH (publish = 'insert')",
        role.name,
        case.object()
    ));
    let url = format!("postgres://{}@127.0.0.1:{}/{}", role.name, case.db.server.port, case.tag);
    let config = case.config().set("source.postgres.url", url);
    let mend = format!("ALTER ROLE \"{}\" BYPASSRLS;", role.name);
    refused(&config, &[&mend]);
    case.db.run(&mend);
    let relay = Outboxd::start(&config);
    relay.ready();
    assert_eq!(case.consume("A", 1, 20)[0].text(), "old");
    assert_eq!(relay.terminate(), Some(0));
}

/// Proves that several tables are read, with names that need quotes, partitions under the name of their table, and not
/// the rows of tables that inherit, which the stream does not bring either.
fn two_tables_and_one_with_partitions(version: Version) {
    let case = Case::bare(version);
    let columns = "id uuid DEFAULT gen_random_uuid(), aggregatetype text, aggregateid text, payload text";
    case.db.run(&format!(
        "CREATE SCHEMA \"Ap\"\"p\"; \
         CREATE TABLE \"Ap\"\"p\".\"my.Outbox\" ({columns}); \
         CREATE TABLE heir () INHERITS (\"Ap\"\"p\".\"my.Outbox\"); \
         CREATE TABLE parts ({columns}, n int) PARTITION BY RANGE (n); \
         CREATE TABLE low PARTITION OF parts FOR VALUES FROM (0) TO (10); \
         CREATE TABLE high PARTITION OF parts FOR VALUES FROM (10) TO (20)"
    ));
    let insert = |prefix: &str| {
        let kind = quote(&case.kind("A"));
        case.db.run(&format!(
            "INSERT INTO \"Ap\"\"p\".\"my.Outbox\" (aggregatetype, aggregateid, payload) VALUES ({kind}, 'k', '{prefix} plain'); \
             INSERT INTO heir (aggregatetype, aggregateid, payload) VALUES ({kind}, 'k', '{prefix} heir'); \
             INSERT INTO parts (aggregatetype, aggregateid, payload, n) \
             VALUES ({kind}, 'k', '{prefix} high', 11), ({kind}, 'k', '{prefix} low', 1)"
        ));
    };
    insert("old");
    let config = case.config().set("outbox.tables", vec!["\"Ap\"\"p\".\"my.Outbox\"", "public.parts"]);
    let relay = Outboxd::start(&config.set("outbox.start-order-by", vec!["payload"]));
    relay.ready();
    insert("new");
    let values = case.values_until("A", "new low", 20);
    assert_eq!(values, ["old plain", "old high", "old low", "new plain", "new high", "new low"]);
}

/// Proves that rows outside the publication's row filter are no events, whether they are read from the table or the log.
fn the_publications_filter_counts(version: Version) {
    let case = Case::bare(version);
    case.db.run(WITH_STATUS);
    case.db.run("ALTER TABLE outbox REPLICA IDENTITY FULL");
    case.db.run(&format!(
        "CREATE PUBLICATION \"{}\" FOR TABLE outbox WHERE (\"N\" > 0) WITH (publish = 'insert')",
        case.object()
    ));
    insert_with_status(&case, "old inside", "", 1);
    insert_with_status(&case, "old outside", "", 0);
    let relay = case.start();
    insert_with_status(&case, "new outside", "", 0);
    insert_with_status(&case, "new inside", "", 1);
    assert_eq!(case.values_until("A", "new inside", 20), ["old inside", "new inside"]);
    drop(relay);
}

/// Proves that a row without routing value stops the relay by name, with nothing promised, and that a condition leaves
/// it out.
fn a_row_that_cannot_be_routed(version: Version) {
    let case = Case::bare(version);
    case.db.run(WITH_STATUS);
    insert_with_status(&case, "before", "", 1);
    case.db.run("INSERT INTO outbox (payload) VALUES ('poison')");
    let config = case.config();
    let relay = Outboxd::start(&config);
    let health = relay.wait_terminal(&["row_error"], 20);
    assert!(health.detail().contains("aggregatetype"), "{health:?}");
    assert!(health.json["hint"].as_str().unwrap().contains("outbox.start-where"), "{health:?}");
    assert!(case.slot().is_none());
    assert_eq!(relay.terminate(), Some(0));
    let relay = Outboxd::start(&config.set("outbox.start-where", "aggregatetype IS NOT NULL"));
    relay.ready();
    insert_with_status(&case, "after", "", 1);
    let values = crate::support::case::without_repeats(case.values_until("A", "after", 20));
    assert_eq!(values, ["before", "after"]);
}

/// Proves that a server without two free slots is named as the reason before anything is made.
fn two_slots_are_needed(version: Version) {
    let server = PrivateServer::start(version, "max_replication_slots = 2");
    let case = Case::on(&server, &Kafka::shared());
    case.db.run(&base_table("outbox"));
    case.insert("A", "1", "old");
    case.db.run("SELECT pg_create_physical_replication_slot('other')");
    refused(&case.config(), &["1 of 2 replication slots are in use", "max_replication_slots"]);
    case.db.run("SELECT pg_create_physical_replication_slot('another')");
    refused(&case.config().set("source.postgres.start", "now"), &["replication slots", "max_replication_slots"]);
    case.db.run("SELECT pg_drop_replication_slot('another'), pg_drop_replication_slot('other')");
    let relay = case.start();
    assert_eq!(case.consume("A", 1, 20)[0].text(), "old");
    assert_eq!(relay.terminate(), Some(0));
}

/// Types and values whose text depends on settings of the session, or on how the column is described.
const VALUES: &[(&str, &str)] = &[
    ("bool", "true"),
    ("yes", "true"),
    ("\"char\"", "'c'"),
    ("char(8)", "'ab'"),
    ("varchar(8)", "'ab '"),
    ("text", "E'tab\\t, quote \\', back\\\\slash, ä€😀'"),
    ("name", "'n'"),
    ("int2", "-1"),
    ("int4", "2147483647"),
    ("int8", "-9223372036854775808"),
    ("oid", "4294967295"),
    ("float4", "0.1"),
    ("float8", "1.0 / 3.0"),
    ("float8", "'-Infinity'"),
    ("numeric", "12345678901234567890.123456789000"),
    ("numeric(8,2)", "1.5"),
    ("money", "1234.5"),
    ("bytea", "'\\xdeadbeef00ff'"),
    ("date", "'2024-02-29'"),
    ("date", "'0044-03-15 BC'"),
    ("time", "'23:59:59.123456'"),
    ("timetz", "'23:59:59+05:30'"),
    ("timestamp", "'2024-02-29 23:59:59.123456'"),
    ("timestamp(3)", "'2024-02-29 23:59:59.123456'"),
    ("timestamp(0)", "'1969-12-31 23:59:58'"),
    ("timestamptz", "'2024-02-29 23:59:59.123456+09'"),
    ("timestamptz(2)", "'2024-02-29 23:59:59.126+09'"),
    ("timestamptz", "'infinity'"),
    ("interval", "'1 year -2 months 3 days 04:05:06.7'"),
    ("uuid", "'6ECD8C99-4036-403D-BF84-CF8400F67836'"),
    ("json", "'{\"b\":  1, \"a\": [1.10]}'"),
    ("jsonb", "'{\"b\":  1, \"a\": [1.10]}'"),
    ("xml", "'<a b=\"c\"/>'"),
    ("inet", "'192.168.0.1/24'"),
    ("cidr", "'2001:db8::/32'"),
    ("macaddr", "'08:00:2b:01:02:03'"),
    ("bit(5)", "B'10101'"),
    ("int4range", "'[1,5]'"),
    ("tsvector", "'a fat cat'"),
    ("point", "'(0.1,2)'"),
    ("text[]", "ARRAY['a', NULL, 'b \"c\"']"),
    ("timestamptz[]", "ARRAY['2024-02-29 23:59:59+09'::timestamptz]"),
    ("bytea[]", "ARRAY['\\x00ff'::bytea]"),
    ("mood", "'so so'"),
    ("pair", "ROW('2024-02-29'::date, 'x y')"),
    ("stamp", "'2024-02-29 23:59:59.123456'"),
    ("blob", "'\\xdeadbeef'"),
    ("text", "NULL"),
    ("bytea", "NULL"),
    ("timestamptz", "NULL"),
];

/// Proves that a row has the same key, value and headers whether it is read from the table or from the log, whatever the
/// database's own settings are and whatever the type.
fn values_are_those_of_the_stream(version: Version) {
    let case = Case::bare(version);
    for setting in [
        "datestyle = 'German, DMY'",
        "timezone = 'Asia/Kolkata'",
        "intervalstyle = 'iso_8601'",
        "bytea_output = 'escape'",
        "extra_float_digits = -3",
        "client_encoding = 'LATIN1'",
        "standard_conforming_strings = off",
    ] {
        case.db.run(&format!("ALTER DATABASE \"{}\" SET {setting}", case.tag));
    }
    case.db.run(
        "CREATE TYPE mood AS ENUM ('so so', 'fine'); CREATE TYPE pair AS (d date, t text); \
         CREATE DOMAIN yes AS bool; CREATE DOMAIN stamp AS timestamp(3); CREATE DOMAIN blob AS bytea",
    );
    let columns: Vec<String> = VALUES.iter().enumerate().map(|(i, (kind, _))| format!("c{i} {kind}")).collect();
    let names: Vec<String> = (0..VALUES.len()).map(|i| format!("c{i}")).collect();
    let values: Vec<&str> = VALUES.iter().map(|(_, value)| *value).collect();
    let (columns, list, values) = (columns.join(", "), names.join(", "), values.join(", "));
    case.db.run(&format!(
        "CREATE TABLE outbox (gone int, id uuid, aggregatetype text, aggregateid timestamptz, payload bytea, {columns}); \
         ALTER TABLE outbox DROP COLUMN gone"
    ));
    let insert = || {
        case.db.run(&format!(
            "INSERT INTO outbox (id, aggregatetype, aggregateid, payload, {list}) VALUES \
             ('6ecd8c99-4036-403d-bf84-cf8400f67836', {}, '2024-02-29 23:59:59.5+09', '\\x00ff80', {values})",
            quote(&case.kind("A"))
        ));
    };
    insert();
    let mut headers = names;
    headers.push("absent".to_owned());
    let config = case.config().set("record.headers", headers).set("record.missing-columns", "ignore");
    let relay = Outboxd::start(&config);
    relay.ready();
    assert_eq!(relay.metric("outbox_snapshot_rows_total"), Some(1.0));
    insert();
    let records = case.consume("A", 2, 20);
    let [from_table, from_log] = &records[..] else { panic!("{} records", records.len()) };
    let text = |value: Option<&[u8]>| value.map(|value| String::from_utf8_lossy(value).into_owned());
    for (i, (kind, value)) in VALUES.iter().enumerate() {
        let of = |record: &Rec| record.header(&format!("c{i}")).map(text);
        assert_eq!(of(from_table), of(from_log), "{kind} {value}");
    }
    assert_eq!((&from_table.key, &from_table.value), (&from_log.key, &from_log.value));
    assert_eq!(from_table.headers, from_log.headers);
    assert_eq!(from_table.headers.len(), VALUES.len() + 1);
    // and the time is that of the reading, not of the row
    let now: i64 = case.db.text("SELECT (extract(epoch FROM now()) * 1000)::bigint").unwrap().parse().unwrap();
    eventually("times", 1, || (now - 60_000..=now).contains(&from_table.timestamp).then_some(()));
}
