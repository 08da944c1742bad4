//! Tables of other shapes: other column names, a status column, further columns as headers, a time column.

use crate::support::{Case, Outboxd, Version, quote};

on_each_version!(
    remapped_columns_with_status,
    fr_17_columns_change_while_running,
    fr_17_needed_column_dropped,
    fr_25_extra_columns_as_headers,
    fr_25_missing_header_column,
    fr_26_record_timestamp
);

/// Proves that the table of the pattern's book works as it stands: snake-case names, a status that a former relay
/// updates, rows that are deleted.
fn remapped_columns_with_status(version: Version) {
    let case = Case::bare(version);
    case.db.run(
        "CREATE TABLE public.outbox_events (event_id bigserial PRIMARY KEY, aggregate_type text NOT NULL, \
         aggregate_id text NOT NULL, event_type text NOT NULL, body jsonb NOT NULL, \
         status text NOT NULL DEFAULT 'pending', created_at timestamptz NOT NULL DEFAULT now())",
    );
    let config = case
        .config()
        .set("outbox.tables", vec!["public.outbox_events"])
        .set("outbox.columns.id", "event_id")
        .set("outbox.columns.key", "aggregate_id")
        .set("outbox.columns.route-by", "aggregate_type")
        .set("outbox.columns.payload", "body")
        .set("record.topic", format!("{}.${{routedByValue}}.v1", case.tag))
        .set("record.headers", vec!["event_type:type"]);
    let relay = Outboxd::start(&config);
    relay.ready();
    let insert = |payload: &str| {
        case.db.run(&format!(
            "INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, body) \
             VALUES ('Order', 'o-1', 'OrderPaid', {})",
            quote(payload)
        ));
    };
    insert("{\"n\": 1}");
    case.db.run("UPDATE outbox_events SET status = 'sent'; DELETE FROM outbox_events WHERE status = 'sent'");
    insert("{\"n\": 2}");
    let topic = format!("{}.Order.v1", case.tag);
    let records = case.kafka.consume(&topic, 2, 20);
    assert_eq!(case.kafka.read_all(&topic).len(), 2);
    for (number, record) in (1..).zip(&records) {
        assert_eq!(record.key_text(), "o-1");
        assert_eq!(record.text(), format!("{{\"n\": {number}}}"));
        assert_eq!(record.header_text("id"), number.to_string());
        assert_eq!(record.header_text("type"), "OrderPaid");
        assert_eq!(record.headers.len(), 2);
    }
}

const WITH_EXTRAS: &str = "CREATE TABLE outbox (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregatetype text, \
     aggregateid text, payload text, tenant text, n bigint, ok boolean, u uuid);";

/// Proves that further columns become headers in the configured order behind `id`: NULL as a null header, numbers,
/// booleans and uuid as text.
fn fr_25_extra_columns_as_headers(version: Version) {
    let case = Case::bare(version);
    case.db.run(WITH_EXTRAS);
    let headers = vec!["tenant", "n:number", "ok", "u"];
    let relay = Outboxd::start(&case.config().set("record.headers", headers));
    relay.ready();
    let uuid = "6ecd8c99-4036-403d-bf84-cf8400f67836";
    case.db.run(&format!(
        "INSERT INTO outbox (aggregatetype, aggregateid, payload, tenant, n, ok, u) \
         VALUES ({}, '1', 'p', NULL, -1, true, '{uuid}')",
        quote(&case.kind("A"))
    ));
    let record = case.consume("A", 1, 20).remove(0);
    let names: Vec<_> = record.headers.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["id", "tenant", "number", "ok", "u"]);
    assert_eq!(record.header("tenant"), Some(None));
    assert_eq!(record.header_text("number"), "-1");
    assert_eq!(record.header_text("ok"), "true");
    assert_eq!(record.header_text("u"), uuid);
}

/// Proves that a header's column that is not in the table is refused at the start, by name, unless it may be missing.
fn fr_25_missing_header_column(version: Version) {
    let case = Case::new(version);
    let config = case.config().set("record.headers", vec!["tenant", "type"]);
    let ended = Outboxd::run_to_end(&config);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(ended.stderr.contains("tenant"), "{}", ended.stderr);

    let relay = Outboxd::start(&config.set("record.missing-columns", "ignore"));
    relay.ready();
    case.insert("A", "1", "p");
    let record = case.consume("A", 1, 20).remove(0);
    let names: Vec<_> = record.headers.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["id", "type"]);
}

/// Proves that a configured time column gives the record's time in milliseconds, rounded down, and that NULL falls
/// back to the commit's time.
fn fr_26_record_timestamp(version: Version) {
    let case = Case::bare(version);
    case.db.run(
        "CREATE TABLE outbox (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregatetype text, aggregateid text, \
         payload text, at timestamptz)",
    );
    let relay = Outboxd::start(&case.config().set("outbox.columns.timestamp", "at"));
    relay.ready();
    for at in ["'2024-01-02 03:04:05.678901+00'", "NULL"] {
        case.db.run(&format!(
            "INSERT INTO outbox (aggregatetype, aggregateid, payload, at) VALUES ({}, '1', 'p', {at})",
            quote(&case.kind("A"))
        ));
    }
    let now: i64 = case.db.text("SELECT (extract(epoch FROM now()) * 1000)::bigint").unwrap().parse().unwrap();
    let records = case.consume("A", 2, 20);
    assert_eq!(records[0].timestamp, 1_704_164_645_678);
    assert!((now - 10_000..=now).contains(&records[1].timestamp), "{} against {now}", records[1].timestamp);
}

/// Proves that columns that are dropped, added and retyped while the relay runs move no value to another place: each
/// event has the right column under the right name, in the same session.
fn fr_17_columns_change_while_running(version: Version) {
    let case = Case::bare(version);
    case.db.run(
        "CREATE TABLE outbox (id int PRIMARY KEY, junk text, aggregatetype text NOT NULL, aggregateid text, payload text)",
    );
    let config = case.config().set("record.headers", vec!["type"]).set("record.missing-columns", "ignore");
    let relay = Outboxd::start(&config);
    relay.ready();
    let kind = quote(&case.kind("A"));
    let insert = |columns: &str, values: &str, payload: &str| {
        case.db.run(&format!(
            "INSERT INTO outbox ({columns}, aggregatetype, aggregateid, payload) VALUES ({values}, {kind}, 'k', '{payload}')"
        ));
    };
    insert("id, junk", "1, 'junk'", "{\"n\": 1}");
    case.db.run("ALTER TABLE outbox DROP junk");
    insert("id", "2", "{\"n\": 2}");
    case.db.run("ALTER TABLE outbox ADD type text DEFAULT 'T'");
    insert("id", "3", "{\"n\": 3}");
    case.db.run("ALTER TABLE outbox ALTER payload TYPE jsonb USING payload::jsonb");
    insert("id", "4", "{\"n\":4}");
    // all of it in one transaction, which is decoded with the catalogue of each row's moment
    case.db.run(&format!(
        "BEGIN; ALTER TABLE outbox ADD junk text DEFAULT 'junk'; \
         INSERT INTO outbox (id, aggregatetype, aggregateid, payload) VALUES (5, {kind}, 'k', '{{\"n\": 5}}'); \
         ALTER TABLE outbox DROP junk; ALTER TABLE outbox ALTER payload TYPE text; \
         INSERT INTO outbox (id, aggregatetype, aggregateid, payload) VALUES (6, {kind}, 'k', '{{\"n\": 6}}'); COMMIT"
    ));
    let records = case.consume("A", 6, 20);
    for (number, record) in (1..).zip(&records) {
        assert_eq!((record.key_text().as_str(), record.text()), ("k", format!("{{\"n\": {number}}}")));
        assert_eq!(record.header_text("id"), number.to_string());
        let expected: &[&str] = if number < 3 { &["id"] } else { &["id", "type"] };
        assert_eq!(record.headers.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), expected);
        assert!(number < 3 || record.header_text("type") == "T", "{record:?}");
    }
    assert_eq!(case.kafka.read_all(&case.topic("A")).len(), 6, "a rewritten table is no event");
    assert_eq!(relay.stderr().matches("streaming begins").count(), 1, "the session did not last");
}

/// Proves that a column that is needed and is dropped stops the relay at the first row without it, by the column's name,
/// with everything before it published and nothing behind it confirmed.
fn fr_17_needed_column_dropped(version: Version) {
    let case = Case::new(version);
    let relay = case.start();
    case.insert("A", "1", "before");
    case.consume("A", 1, 20);
    let mark = case.db.log_end();
    let kind = quote(&case.kind("A"));
    case.db.run(&format!(
        "ALTER TABLE outbox DROP aggregateid; INSERT INTO outbox (aggregatetype, payload) VALUES ({kind}, 'x')"
    ));
    let behind = case.db.log_end();
    let health = relay.wait_reason("row_error", 20);
    assert!(health.detail().contains("aggregateid"), "the column is not named: {health:?}");
    assert!(
        case.confirmed() < behind,
        "confirmed {:X} although the row at {mark:X} was not published",
        case.confirmed()
    );
    assert_eq!(case.kafka.read_all(&case.topic("A")).len(), 1);
}
