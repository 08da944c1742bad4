//! What becomes of the rows: one record for each committed insert, in commit order, byte for byte.

use crate::support::{Case, Kafka, Outboxd, Rec, Server, Version, base_table, eventually, quote};

on_each_version!(
    fr_11_partitioned,
    fr_11_partitioned_foreign_publication,
    fr_12_capital_letters_and_quotes,
    fr_13_insert_and_delete,
    fr_14_savepoints,
    fr_15_prepared_transactions,
    fr_16_commit_order,
    fr_18_large_payload,
    fr_19_json_is_passed,
    fr_21_binary_payload,
    fr_22_null_and_empty_payload,
    fr_23_null_key,
    fr_24_update_delete_truncate,
    fr_24_update_may_stop,
    fr_27_text_outside_ascii,
    fr_28_latin1_database,
    a_record_is_the_row,
    several_tables,
);

fn values(records: &[Rec]) -> Vec<String> {
    records.iter().map(Rec::text).collect()
}

/// A publication of everything that happens to the outbox, as somebody else may have made it.
fn publish_all(case: &Case) {
    case.db.run(&format!("CREATE PUBLICATION {} FOR TABLE outbox", case.object()));
}

const PARTITIONED: &str = "CREATE TABLE outbox (id uuid DEFAULT gen_random_uuid(), aggregatetype text NOT NULL, \
     aggregateid text, payload text, created_at date NOT NULL) PARTITION BY RANGE (created_at); \
     CREATE TABLE outbox_2024 PARTITION OF outbox FOR VALUES FROM ('2024-01-01') TO ('2025-01-01');";

fn insert_dated(case: &Case, key: &str, payload: &str, date: &str) {
    case.db.run(&format!(
        "INSERT INTO outbox (aggregatetype, aggregateid, payload, created_at) VALUES ({}, '{key}', '{payload}', '{date}')",
        quote(&case.kind("A"))
    ));
}

fn partitioned(case: &Case) {
    let _relay = case.start();
    insert_dated(case, "1", "old partition", "2024-06-01");
    case.consume("A", 1, 20);
    case.db.run("CREATE TABLE outbox_2025 PARTITION OF outbox FOR VALUES FROM ('2025-01-01') TO ('2026-01-01')");
    insert_dated(case, "1", "new partition", "2025-06-01");
    insert_dated(case, "1", "last", "2024-06-02");
    assert_eq!(case.values_until("A", "last", 20), ["old partition", "new partition", "last"]);
    assert_eq!(case.consume("A", 1, 10)[0].key_text(), "1");
}

/// Proves that a partitioned outbox, configured by its root, is published whatever the partition, also one that is
/// made while the relay runs.
fn fr_11_partitioned(version: Version) {
    let case = Case::bare(version);
    case.db.run(PARTITIONED);
    partitioned(&case);
}

/// Proves the same with a publication that was made without publish_via_partition_root, where the server sends rows
/// under the partitions' names.
fn fr_11_partitioned_foreign_publication(version: Version) {
    let case = Case::bare(version);
    case.db.run(PARTITIONED);
    case.db.run(&format!("CREATE PUBLICATION {} FOR TABLE outbox WITH (publish = 'insert')", case.object()));
    partitioned(&case);
}

/// Proves that every identifier is quoted: capitals, a dash, a dot, double quotes, in schema, table and publication.
fn fr_12_capital_letters_and_quotes(version: Version) {
    let case = Case::bare(version);
    case.db.run("CREATE SCHEMA app; CREATE SCHEMA \"we\"\"ird.sch-ema\"");
    case.db.run(&base_table("app.\"OutBox\""));
    case.db.run(&base_table("\"we\"\"ird.sch-ema\".\"out.box-\"\"x\""));
    let tables = vec!["app.OutBox", "\"we\"\"ird.sch-ema\".\"out.box-\"\"x\""];
    for publication in ["PubA", "pub-\"b\".c"] {
        let config = case.config().set("outbox.tables", tables.clone()).set("source.postgres.publication", publication);
        let relay = Outboxd::start(&config.set("name", format!("{}_{}", case.tag, publication.len())));
        relay.ready();
        for table in ["app.\"OutBox\"", "\"we\"\"ird.sch-ema\".\"out.box-\"\"x\""] {
            case.db.run(&format!(
                "INSERT INTO {table} (aggregatetype, aggregateid, payload) VALUES ({}, '1', {})",
                quote(&case.kind(&publication.len().to_string())),
                quote(table)
            ));
        }
        let records = case.consume(&publication.len().to_string(), 2, 20);
        assert_eq!(values(&records), ["app.\"OutBox\"", "\"we\"\"ird.sch-ema\".\"out.box-\"\"x\""]);
        assert_eq!(relay.terminate(), Some(0));
        case.db.run("TRUNCATE app.\"OutBox\", \"we\"\"ird.sch-ema\".\"out.box-\"\"x\"");
    }
}

/// Proves that the usual idiom, insert and delete in one transaction, gives exactly one record.
fn fr_13_insert_and_delete(version: Version) {
    let case = Case::new(version);
    publish_all(&case);
    let _relay = case.start();
    case.db.run(&format!("BEGIN; {} DELETE FROM outbox; COMMIT;", case.insert_sql("A", "1", "kept")));
    case.insert("A", "1", "last");
    assert_eq!(case.values_until("A", "last", 20), ["kept", "last"]);
}

/// Proves that what a savepoint or a whole transaction rolled back is not published, and the rest is, in order.
fn fr_14_savepoints(version: Version) {
    let case = Case::new(version);
    let _relay = case.start();
    case.db.run(&format!(
        "BEGIN; {} SAVEPOINT s; {} ROLLBACK TO s; {} COMMIT; BEGIN; {} ROLLBACK;",
        case.insert_sql("A", "1", "before"),
        case.insert_sql("A", "1", "gone"),
        case.insert_sql("A", "1", "after"),
        case.insert_sql("A", "1", "rolled back"),
    ));
    case.insert("A", "1", "last");
    assert_eq!(case.values_until("A", "last", 20), ["before", "after", "last"]);
}

/// Proves that a prepared transaction is published after COMMIT PREPARED and never before, and not at all after
/// ROLLBACK PREPARED.
fn fr_15_prepared_transactions(version: Version) {
    let case = Case::new(version);
    let _relay = case.start();
    let (first, second) = (format!("{}_1", case.tag), format!("{}_2", case.tag));
    case.db.run(&format!("BEGIN; {} PREPARE TRANSACTION '{first}'", case.insert_sql("A", "1", "prepared")));
    case.db.run(&format!("BEGIN; {} PREPARE TRANSACTION '{second}'", case.insert_sql("A", "1", "rolled back")));
    case.insert("A", "1", "between");
    assert_eq!(case.values_until("A", "between", 20), ["between"]);
    case.db.run(&format!("COMMIT PREPARED '{first}'"));
    case.db.run(&format!("ROLLBACK PREPARED '{second}'"));
    case.insert("A", "1", "last");
    assert_eq!(case.values_until("A", "last", 20), ["between", "prepared", "last"]);
    let two_phase = format!("SELECT two_phase FROM pg_replication_slots WHERE slot_name = '{}'", case.object());
    assert_eq!(case.db.text(&two_phase).as_deref(), Some("f"));
}

/// Proves that records come in the order of commits, not of ids: what a poller would skip is there.
fn fr_16_commit_order(version: Version) {
    let case = Case::bare(version);
    case.db.run(
        "CREATE TABLE outbox (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, aggregatetype text, \
         aggregateid text, payload text)",
    );
    let _relay = case.start();
    let slow = case.db.session();
    slow.run(&format!("BEGIN; {}", case.insert_sql("A", "1", "slow")));
    case.insert("A", "1", "fast");
    assert_eq!(case.values_until("A", "fast", 20), ["fast"]);
    slow.run("COMMIT");
    let values = case.values_until("A", "slow", 20);
    assert_eq!(values, ["fast", "slow"]);
    let ids: Vec<_> = case.consume("A", 2, 10).iter().map(|record| record.header_text("id")).collect();
    assert_eq!(ids, ["2", "1"]);
}

/// Proves that a payload that the server stores out of line arrives whole, and that an update, which would bring a
/// placeholder in its place, is no event.
fn fr_18_large_payload(version: Version) {
    let case = Case::new(version);
    case.db.run("ALTER TABLE outbox ALTER payload SET STORAGE EXTERNAL");
    publish_all(&case);
    let _relay = case.start();
    let payloads: Vec<String> = [9_000_usize, 900_000]
        .iter()
        .map(|size| (0_u32..).flat_map(|i| format!("{i:x}.").into_bytes()).take(*size).map(char::from).collect())
        .collect();
    for payload in &payloads {
        case.insert("A", "1", payload);
    }
    case.db.run("UPDATE outbox SET type = 'x'");
    case.insert("A", "1", "last");
    let values = case.values_until("A", "last", 30);
    assert_eq!(values.iter().map(String::len).collect::<Vec<_>>(), [9_000, 900_000, 4]);
    assert!(values[..2] == payloads, "the bytes differ");
}

/// Proves that JSON is not re-made on the way: jsonb as the server prints it, json as it was written.
fn fr_19_json_is_passed(version: Version) {
    let case = Case::bare(version);
    for (table, kind) in [("with_jsonb", "jsonb"), ("with_json", "json")] {
        case.db.run(&base_table(table));
        case.db.run(&format!("ALTER TABLE {table} ALTER payload TYPE {kind} USING payload::{kind}"));
    }
    let relay = Outboxd::start(&case.config().set("outbox.tables", vec!["public.with_jsonb", "public.with_json"]));
    relay.ready();
    for table in ["with_jsonb", "with_json"] {
        for document in
            [r#"{"b":1.10, "a":2, "a":3}"#, r#"{"n":12345678901234567890}"#, r#"{ "e" : [ ], "u":"\u00e9" }"#]
        {
            case.db.run(&format!(
                "INSERT INTO {table} (aggregatetype, aggregateid, payload) VALUES ({}, '1', {})",
                quote(&case.kind(table)),
                quote(document)
            ));
        }
        let expected: Vec<_> = case.db.rows(&format!("SELECT payload::text FROM {table} ORDER BY ctid"));
        let expected: Vec<_> = expected.into_iter().map(|row| row[0].clone().unwrap()).collect();
        assert_eq!(values(&case.consume(table, 3, 20)), expected);
    }
    assert_eq!(case.consume("with_jsonb", 1, 10)[0].text(), r#"{"a": 3, "b": 1.10}"#);
    assert_eq!(case.consume("with_json", 1, 10)[0].text(), r#"{"b":1.10, "a":2, "a":3}"#);
}

/// Proves that a binary payload arrives as its bytes, and one of no bytes is not null.
fn fr_21_binary_payload(version: Version) {
    let case = Case::bare(version);
    case.db.run(
        "CREATE TABLE outbox (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregatetype text, aggregateid text, \
         payload bytea)",
    );
    let _relay = case.start();
    case.insert("A", "1", r"\x00ff0a7b");
    case.insert("A", "1", r"\x");
    let records = case.consume("A", 2, 20);
    assert_eq!(records[0].value.as_deref(), Some(&[0x00, 0xff, 0x0a, 0x7b][..]));
    assert_eq!(records[1].value.as_deref(), Some(&[][..]));
}

/// Proves that a NULL payload is a null value, an empty one an empty value, blanks are blanks; key and id stay.
fn fr_22_null_and_empty_payload(version: Version) {
    let case = Case::new(version);
    let _relay = case.start();
    let kind = quote(&case.kind("A"));
    case.db.run(&format!("INSERT INTO outbox (aggregatetype, aggregateid, payload) VALUES ({kind}, '1', NULL)"));
    case.insert("A", "1", "");
    case.insert("A", "1", "   ");
    let records = case.consume("A", 3, 20);
    let values: Vec<_> = records.iter().map(|record| record.value.as_deref()).collect();
    assert_eq!(values, [None, Some(&b""[..]), Some(&b"   "[..])]);
    assert!(records.iter().all(|record| record.key_text() == "1" && record.header_text("id").len() == 36));
}

/// Proves that a row without key is published without key, and counted.
fn fr_23_null_key(version: Version) {
    let case = Case::new(version);
    let relay = case.start();
    let kind = quote(&case.kind("A"));
    case.db.run(&format!("INSERT INTO outbox (aggregatetype, aggregateid, payload) VALUES ({kind}, NULL, 'no key')"));
    case.insert("A", "", "empty key");
    let records = case.consume("A", 2, 20);
    let keys: Vec<_> = records.iter().map(|record| (record.text(), record.key.clone())).collect();
    assert!(keys.contains(&("no key".to_owned(), None)), "{keys:?}");
    assert!(keys.contains(&("empty key".to_owned(), Some(Vec::new()))), "{keys:?}");
    eventually("the row without key is counted", 5, || {
        (relay.metric("outbox_null_keys_total") == Some(1.0)).then_some(())
    });
}

/// Proves that update, delete and truncate of the outbox are no events, even if the publication brings them, and that
/// an update is counted.
fn fr_24_update_delete_truncate(version: Version) {
    let case = Case::new(version);
    publish_all(&case);
    let relay = case.start();
    case.insert("A", "1", "first");
    case.insert("A", "1", "second");
    case.db.run("UPDATE outbox SET payload = 'changed' WHERE payload = 'first'");
    case.db.run("DELETE FROM outbox WHERE payload = 'second'");
    case.db.run("TRUNCATE outbox");
    case.insert("A", "1", "last");
    assert_eq!(case.values_until("A", "last", 20), ["first", "second", "last"]);
    let updates = relay.metric("outbox_events_dropped_total{reason=\"update\"}");
    assert_eq!(updates, Some(1.0));
    assert_eq!(relay.health().map(|health| health.status), Some(200));
}

/// Proves that `on-update = "stop"` stops at an update.
fn fr_24_update_may_stop(version: Version) {
    let case = Case::new(version);
    publish_all(&case);
    let relay = Outboxd::start(&case.config().set("outbox.on-update", "stop"));
    relay.ready();
    case.insert("A", "1", "first");
    case.consume("A", 1, 20);
    case.db.run("UPDATE outbox SET payload = 'changed'");
    relay.wait_reason("row_error", 10);
    case.insert("A", "1", "behind it");
    relay.wait_reason("row_error", 10);
    assert_eq!(case.kafka.read_all(&case.topic("A")).len(), 1);
}

/// Proves that text outside ASCII is the same bytes in key, value and header.
fn fr_27_text_outside_ascii(version: Version) {
    let case = Case::new(version);
    let relay = Outboxd::start(&case.config().set("record.headers", vec!["type"]));
    relay.ready();
    let text = "é😀\u{a0}";
    case.db.run(&format!(
        "INSERT INTO outbox (aggregatetype, aggregateid, type, payload) VALUES ({}, '{text}', '{text}', '{text}')",
        quote(&case.kind("A"))
    ));
    let record = case.consume("A", 1, 20).remove(0);
    let bytes: &[u8] = &[0xc3, 0xa9, 0xf0, 0x9f, 0x98, 0x80, 0xc2, 0xa0];
    assert_eq!(record.key.as_deref(), Some(bytes));
    assert_eq!(record.value.as_deref(), Some(bytes));
    assert_eq!(record.header("type"), Some(Some(bytes)));
}

/// Proves that a database in another encoding is published as UTF-8.
fn fr_28_latin1_database(version: Version) {
    let options = "ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0";
    let case = Case::with_options(&Server::shared(version), &Kafka::shared(), options);
    case.db.run(&base_table("outbox"));
    let _relay = case.start();
    case.insert("A", "clé", "café");
    let record = case.consume("A", 1, 20).remove(0);
    assert_eq!(record.value.as_deref(), Some(&[0x63, 0x61, 0x66, 0xc3, 0xa9][..]));
    assert_eq!(record.key_text(), "clé");
}

/// Proves the default form of a record: topic by aggregate type, key, header `id` first and nothing else, value, and
/// the commit's time.
fn a_record_is_the_row(version: Version) {
    let case = Case::new(version);
    let _relay = case.start();
    case.insert("Order", "order-1", "{\"total\": 12}");
    let row = case.db.rows("SELECT id, (extract(epoch FROM now()) * 1000)::bigint FROM outbox").remove(0);
    let record = case.consume("Order", 1, 20).remove(0);
    assert_eq!(record.topic, case.topic("Order"));
    assert_eq!(record.key_text(), "order-1");
    assert_eq!(record.text(), "{\"total\": 12}");
    assert_eq!(record.headers, [("id".to_owned(), Some(row[0].clone().unwrap().into_bytes()))]);
    let now: i64 = row[1].as_deref().unwrap().parse().unwrap();
    assert!((now - 10_000..=now).contains(&record.timestamp), "{} against {now}", record.timestamp);
}

/// Proves that several outboxes of one database go through one slot, in commit order over all of them.
fn several_tables(version: Version) {
    let case = Case::bare(version);
    case.db.run("CREATE SCHEMA billing");
    case.db.run(&base_table("outbox"));
    case.db.run(&base_table("billing.outbox"));
    let relay = Outboxd::start(&case.config().set("outbox.tables", vec!["public.outbox", "billing.outbox"]));
    relay.ready();
    for i in 0..10 {
        let table = if i % 2 == 0 { "public.outbox" } else { "billing.outbox" };
        let kind = quote(&case.kind("A"));
        case.db.run(&format!("INSERT INTO {table} (aggregatetype, aggregateid, payload) VALUES ({kind}, '1', '{i}')"));
    }
    let expected: Vec<_> = (0..10).map(|i| i.to_string()).collect();
    assert_eq!(values(&case.consume("A", 10, 20)), expected);
    let slots = format!("SELECT count(*) FROM pg_replication_slots WHERE database = '{}'", case.tag);
    assert_eq!(case.db.text(&slots).as_deref(), Some("1"));
}
