//! Outbox tables that other projects make, served by the files in `connectors/presets/`.

use std::path::PathBuf;

use crate::support::{Case, Config, Outboxd, Rec, Version, quote};

on_each_version!(
    status_column,
    quarkus,
    spring_modulith,
    eventuate_tram,
    masstransit,
    symfony_messenger,
    every_file_has_its_test,
);

const NAMES: [&str; 6] =
    ["status-column", "quarkus", "spring-modulith", "eventuate-tram", "masstransit", "symfony-messenger"];

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("connectors/presets")
}

/// The file as it is, with the addresses of this case.
fn preset(case: &Case, name: &str) -> Config {
    let text = std::fs::read_to_string(folder().join(format!("{name}.toml"))).unwrap();
    case.config_over(Config::parse(&text))
}

/// Starts a relay with a preset.
fn start(case: &Case, name: &str) -> Outboxd {
    assert!(NAMES.contains(&name));
    let relay = Outboxd::start(&preset(case, name));
    relay.ready();
    relay
}

/// The records of a topic, each as key, value, id.
fn parts(records: &[Rec]) -> Vec<(String, String, String)> {
    records.iter().map(|rec| (rec.key_text(), rec.text(), rec.header_text("id"))).collect()
}

fn every_file_has_its_test(_: Version) {
    let mut found: Vec<String> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    found.sort();
    let mut names = NAMES;
    names.sort_unstable();
    assert_eq!(found, names);
}

/// The first start takes the pending rows only, in the order of their time; later rows come whatever their status.
fn status_column(version: Version) {
    let case = Case::bare(version);
    case.db.run(
        "CREATE TABLE outbox (id uuid PRIMARY KEY, aggregate_type varchar(100) NOT NULL, \
         aggregate_id varchar(100) NOT NULL, message_type varchar(200) NOT NULL, payload json NOT NULL, \
         status varchar(10) NOT NULL DEFAULT 'pending', attempts int NOT NULL DEFAULT 0, \
         available_at timestamp(0) NOT NULL DEFAULT now(), occurred_at timestamp(0) NOT NULL, sent_at timestamp(0), \
         last_error text); CREATE INDEX idx_outbox_status_time ON outbox (status, occurred_at)",
    );
    let kind = quote(&case.kind("A"));
    let insert = |number: u32, status: &str, occurred: &str| {
        format!(
            "INSERT INTO outbox (id, aggregate_type, aggregate_id, message_type, payload, status, occurred_at) VALUES \
             ('00000000-0000-0000-0000-{number:012}', {kind}, 'order-1', 'OrderPlaced', '{{\"n\":  {number}}}', \
             '{status}', '{occurred}');"
        )
    };
    case.db.run(&insert(2, "pending", "2026-01-02 03:04:06"));
    case.db.run(&insert(3, "sent", "2026-01-02 03:04:05"));
    case.db.run(&insert(1, "pending", "2026-01-02 03:04:05"));
    let relay = start(&case, "status-column");
    case.db.run(&insert(4, "sent", "2026-01-02 03:04:07"));
    case.db.run("UPDATE outbox SET status = 'sent'");
    case.db.run(&insert(5, "pending", "2026-01-02 03:04:08"));
    let records = case.consume("A", 4, 20);
    let id = |number: u32| format!("00000000-0000-0000-0000-{number:012}");
    let wanted = |number| ("order-1".to_owned(), format!("{{\"n\":  {number}}}"), id(number));
    assert_eq!(parts(&records), [1, 2, 4, 5].map(wanted));
    assert_eq!(records[0].header_text("eventType"), "OrderPlaced");
    assert_eq!(records[0].timestamp, 1_767_323_045_000);
    assert_eq!(relay.terminate(), Some(0));
}

/// A row that is deleted where it is inserted, with a trace.
fn quarkus(version: Version) {
    let case = Case::bare(version);
    case.db.run(
        "CREATE TABLE OutboxEvent (id uuid NOT NULL PRIMARY KEY, aggregatetype varchar(255) NOT NULL, \
         aggregateid varchar(255) NOT NULL, type varchar(255) NOT NULL, timestamp timestamp(6) with time zone NOT NULL, \
         payload varchar(8000), tracingspancontext varchar(256))",
    );
    let relay = start(&case, "quarkus");
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    case.db.run(&format!(
        "BEGIN; INSERT INTO OutboxEvent VALUES ('00000000-0000-0000-0000-000000000001', {}, '17', 'OrderCreated', \
         '2026-01-02 03:04:05.678901+00', '{{\"id\": 17}}', E'#Fri Jan 02 03:04:05 UTC 2026\\ntraceparent={trace}\\n'); \
         DELETE FROM OutboxEvent; COMMIT",
        quote(&case.kind("Order")),
    ));
    let records = case.consume("Order", 1, 20);
    let id = "00000000-0000-0000-0000-000000000001";
    assert_eq!(parts(&records), [("17".to_owned(), "{\"id\": 17}".to_owned(), id.to_owned())]);
    let names: Vec<_> = records[0].headers.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["traceparent", "id", "eventType"]);
    assert_eq!(records[0].header_text("traceparent"), trace);
    assert_eq!(records[0].timestamp, 1_767_323_045_678);
    assert_eq!(relay.terminate(), Some(0));
}

/// Incomplete publications at the first start, then new ones; nested classes; completion is no event.
fn spring_modulith(version: Version) {
    let case = Case::bare(version);
    case.db.run(
        "CREATE TABLE event_publication (id uuid NOT NULL PRIMARY KEY, listener_id text NOT NULL, \
         event_type text NOT NULL, serialized_event text NOT NULL, publication_date timestamp with time zone NOT NULL, \
         completion_date timestamp with time zone, status text, completion_attempts int, \
         last_resubmission_date timestamp with time zone)",
    );
    let insert = |number: u32, class: &str, completed: &str| {
        format!(
            "INSERT INTO event_publication VALUES ('00000000-0000-0000-0000-{number:012}', \
             'com.acme.Listener.on(com.acme.Placed)', {}, '{{\"n\":{number}}}', '2026-01-02 03:04:05.678901+00', {completed})",
            quote(&format!("com.acme.{class}_{}", case.tag)),
        )
    };
    case.db.run(&insert(1, "Orders$Placed", "now()"));
    case.db.run(&insert(2, "Orders$Placed", "NULL"));
    let relay = start(&case, "spring-modulith");
    case.db.run("UPDATE event_publication SET completion_date = now()");
    case.db.run(&insert(3, "Orders$Placed", "NULL"));
    let records = case.kafka.consume(&format!("outbox.event.Placed_{}", case.tag), 2, 20);
    let id = |number: u32| format!("00000000-0000-0000-0000-{number:012}");
    let mut found = parts(&records);
    found.sort();
    assert_eq!(found, [2, 3].map(|number| (id(number), format!("{{\"n\":{number}}}"), id(number))));
    assert_eq!(records[0].header_text("listener"), "com.acme.Listener.on(com.acme.Placed)");
    assert_eq!(relay.terminate(), Some(0));
}

/// With the column and the trigger that the file's comment gives.
fn eventuate_tram(version: Version) {
    let case = Case::bare(version);
    case.db.run(
        "CREATE SCHEMA eventuate; CREATE TABLE eventuate.message (id varchar(1000) PRIMARY KEY, destination text NOT NULL, \
         headers text NOT NULL, payload text NOT NULL, published smallint DEFAULT 0, message_partition smallint, \
         creation_time bigint)",
    );
    let text = std::fs::read_to_string(folder().join("eventuate-tram.toml")).unwrap();
    let sql: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("#   ")).skip(1).collect();
    assert!(sql[0].starts_with("ALTER TABLE"), "{sql:?}");
    case.db.run(&sql.join("\n"));
    let insert = |number: u32, published: u32| {
        format!(
            "INSERT INTO eventuate.message VALUES ('m-{number}', {}, '{{\"PARTITION_ID\":\"17\",\"ID\":\"m-{number}\"}}', \
             '{{\"n\":{number}}}', {published}, NULL, 1767323045678)",
            quote(&format!("{}.orders", case.tag)),
        )
    };
    case.db.run(&insert(1, 1));
    case.db.run(&insert(2, 0));
    let relay = start(&case, "eventuate-tram");
    case.db.run(&insert(3, 0));
    let records = case.kafka.consume(&format!("{}.orders", case.tag), 2, 20);
    let wanted = |number| ("17".to_owned(), format!("{{\"n\":{number}}}"), format!("m-{number}"));
    assert_eq!(parts(&records), [2, 3].map(wanted));
    assert_eq!(records[0].header_text("headers"), "{\"PARTITION_ID\":\"17\",\"ID\":\"m-2\"}");
    assert_eq!(records[0].timestamp, 1_767_323_045_678);
    assert_eq!(relay.terminate(), Some(0));
}

/// Quoted names in capitals; the topic from a type among several.
fn masstransit(version: Version) {
    let case = Case::bare(version);
    case.db.run(
        "CREATE TABLE \"OutboxMessage\" (\"SequenceNumber\" bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, \
         \"EnqueueTime\" timestamptz, \"SentTime\" timestamptz NOT NULL, \"Headers\" text, \"Properties\" text, \
         \"InboxMessageId\" uuid, \"InboxConsumerId\" uuid, \"OutboxId\" uuid, \"MessageId\" uuid NOT NULL, \
         \"ContentType\" varchar(256) NOT NULL, \"MessageType\" text NOT NULL, \"Body\" text NOT NULL, \
         \"ConversationId\" uuid, \"CorrelationId\" uuid, \"InitiatorId\" uuid, \"RequestId\" uuid, \
         \"SourceAddress\" varchar(256), \"DestinationAddress\" varchar(256), \"ResponseAddress\" varchar(256), \
         \"FaultAddress\" varchar(256), \"ExpirationTime\" timestamptz)",
    );
    let relay = start(&case, "masstransit");
    let conversation = "11111111-0000-0000-0000-000000000000";
    for (number, more) in [(1, ""), (2, ";urn:message:Acme:IOrder")] {
        case.db.run(&format!(
            "INSERT INTO \"OutboxMessage\" (\"SentTime\", \"MessageId\", \"ContentType\", \"MessageType\", \"Body\", \
             \"ConversationId\") VALUES ('2026-01-02 03:04:05.678901+00', '00000000-0000-0000-0000-{number:012}', \
             'application/vnd.masstransit+json', {}, '{{\"n\":{number}}}', '{conversation}')",
            quote(&format!("urn:message:{}:OrderPlaced{more}", case.tag)),
        ));
    }
    let records = case.kafka.consume(&format!("outbox.event.{}.OrderPlaced", case.tag), 2, 20);
    let id = |number: u32| format!("00000000-0000-0000-0000-{number:012}");
    let wanted = |number| (conversation.to_owned(), format!("{{\"n\":{number}}}"), id(number));
    assert_eq!(parts(&records), [1, 2].map(wanted));
    assert_eq!(records[0].header("CorrelationId"), Some(None));
    assert_eq!(records[0].timestamp, 1_767_323_045_678);
    assert_eq!(relay.terminate(), Some(0));
}

/// Numbers as keys and ids; the queue's name as topic.
fn symfony_messenger(version: Version) {
    let case = Case::bare(version);
    case.db.run(
        "CREATE TABLE messenger_messages (id bigserial PRIMARY KEY, body text NOT NULL, headers text NOT NULL, \
         queue_name varchar(190) NOT NULL, created_at timestamp(0) NOT NULL, available_at timestamp(0) NOT NULL, \
         delivered_at timestamp(0))",
    );
    let insert = |body: &str, delivered: &str| {
        case.db.run(&format!(
            "INSERT INTO messenger_messages (body, headers, queue_name, created_at, available_at, delivered_at) VALUES \
             ('{body}', '{{\"type\":\"Placed\"}}', {}, '2026-01-02 03:04:05', now(), {delivered})",
            quote(&case.kind("async")),
        ));
    };
    insert("taken", "now()");
    insert("waiting", "NULL");
    let relay = start(&case, "symfony-messenger");
    insert("new", "NULL");
    let records = case.consume("async", 2, 20);
    let mut found = parts(&records);
    found.sort();
    let text = |parts: [&str; 3]| (parts[0].to_owned(), parts[1].to_owned(), parts[2].to_owned());
    assert_eq!(found, [text(["2", "waiting", "2"]), text(["3", "new", "3"])]);
    assert_eq!(records[0].header_text("headers"), "{\"type\":\"Placed\"}");
    assert_eq!(records[0].timestamp, 1_767_323_045_000);
    assert_eq!(relay.terminate(), Some(0));
}
