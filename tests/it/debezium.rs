//! The configuration of a Debezium connector, taken as it is: the same slot and publication, the same records.

use serde_json::{Value, json};

use crate::support::secure::PLAIN_PASSWORD;
use crate::support::tool::type_in;
use crate::support::{Case, Kafka, Outboxd, Rec, SecureKafka, Server, Version, base_table, free_port};

on_each_version!(takes_over_slot_and_publication, shapes_the_records_as_the_connector_says);

/// A connector as users have them; brokers and converters stand in the worker's file.
fn connector(case: &Case) -> Value {
    json!({"name": case.tag, "config": {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "tasks.max": "1",
        "database.hostname": "127.0.0.1",
        "database.port": case.db.server.port.to_string(),
        "database.user": "postgres",
        "database.password": "${file:secrets.properties:password}",
        "database.dbname": case.db.name,
        "topic.prefix": "shop",
        "plugin.name": "pgoutput",
        "slot.name": slot(case),
        "publication.name": "dbz_publication",
        "table.include.list": "public\\.outbox",
        "tombstones.on.delete": "false",
        "transforms": "outbox",
        "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",
        "transforms.outbox.table.fields.additional.placement": "type:header:eventType",
    }})
}

/// With these properties too, or in place of others.
fn with(mut connector: Value, properties: Value) -> Value {
    let config = connector["config"].as_object_mut().unwrap();
    config.extend(properties.as_object().unwrap().clone());
    connector
}

fn slot(case: &Case) -> String {
    format!("dbz_{}", case.tag)
}

fn worker(kafka: &Kafka) -> String {
    format!(
        "# as of Connect\nbootstrap.servers={}\ngroup.id=connect\n\
         key.converter=org.apache.kafka.connect.storage.StringConverter\n\
         value.converter=org.apache.kafka.connect.storage.StringConverter\n",
        kafka.bootstrap
    )
}

/// Starts the relay with the connector.
#[track_caller]
fn start(case: &Case, connector: &Value, worker: &str) -> Outboxd {
    let port = free_port();
    let listen = format!("127.0.0.1:{port}");
    let secrets = "password=p\\=w \\u00e9\n";
    let json = serde_json::to_string_pretty(connector).unwrap();
    let files = [("connector.json", json.as_str()), ("worker.properties", worker), ("secrets.properties", secrets)];
    let flags = ["--worker-config", "worker.properties", "--http-listen", &listen, "--log-level", "debug"];
    Outboxd::start_files(&files, &flags, port)
}

fn header_names(record: &Rec) -> Vec<&str> {
    record.headers.iter().map(|(name, _)| name.as_str()).collect()
}

/// Proves that the relay goes on where the connector's slot stands, through a publication of all tables and all
/// operations, and gives its records the headers that Debezium gives.
fn takes_over_slot_and_publication(version: Version) {
    let case = Case::new(version);
    case.db.run("CREATE TABLE other (a int); CREATE PUBLICATION dbz_publication FOR ALL TABLES");
    case.insert("A", "1", "before the slot");
    case.db.run(&format!("SELECT pg_create_logical_replication_slot('{}', 'pgoutput')", slot(&case)));
    case.insert("A", "1", "while nobody reads");
    case.db.run("INSERT INTO other VALUES (1); UPDATE outbox SET type = 'x' WHERE payload = 'before the slot'");
    let relay = start(&case, &connector(&case), &worker(&case.kafka));
    relay.ready();
    case.db.run(&format!("{} DELETE FROM outbox;", case.insert_sql("A", "2", "deleted at once")));
    let records = case.consume("A", 2, 20);
    assert_eq!(records.iter().map(Rec::text).collect::<Vec<_>>(), ["while nobody reads", "deleted at once"]);
    assert_eq!(records[0].key_text(), "1");
    let context = "__debezium.context.";
    let names = ["connectorLogicalName", "taskId", "connectorName", "runId"].map(|name| format!("{context}{name}"));
    let expected: Vec<&str> = names.iter().map(String::as_str).chain(["id", "eventType"]).collect();
    assert_eq!(header_names(&records[0]), expected);
    assert_eq!(records[0].header_text(&names[0]), "shop");
    assert_eq!(records[0].header("eventType"), Some(None), "NULL is a header without value");
    assert_eq!(relay.terminate(), Some(0));
    // what was published is not published again
    let relay = start(&case, &connector(&case), &worker(&case.kafka));
    relay.ready();
    case.insert("A", "3", "after a restart");
    assert_eq!(case.values_until("A", "after a restart", 20).len(), 3);
}

/// Proves that router and converters of the connector shape the record: columns, topic, key, envelope, document.
fn shapes_the_records_as_the_connector_says(version: Version) {
    let case = Case::bare(version);
    case.db.run(
        "CREATE TABLE outbox (event_id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregate_type text, aggregate_id bigint, \
         kind text, body jsonb, created_at timestamp DEFAULT '2026-01-02 03:04:05.678')",
    );
    let connector = with(
        connector(&case),
        json!({
            "key.converter": "org.apache.kafka.connect.converters.LongConverter",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter.schemas.enable": "false",
            "extended.headers.enabled": "false",
            "transforms.outbox.table.field.event.id": "event_id",
            "transforms.outbox.table.field.event.key": "aggregate_id",
            "transforms.outbox.table.field.event.payload": "body",
            "transforms.outbox.table.field.event.timestamp": "created_at",
            "transforms.outbox.route.by.field": "aggregate_type",
            "transforms.outbox.route.topic.regex": "(?<tag>[^.]+)\\.(.*)",
            "transforms.outbox.route.topic.replacement": "$2.${tag}",
            "transforms.outbox.table.fields.additional.placement": "kind:envelope:eventType",
            "transforms.outbox.table.expand.json.payload": "true",
        }),
    );
    let relay = start(&case, &connector, &worker(&case.kafka));
    relay.ready();
    case.db.run(&format!(
        "INSERT INTO outbox (aggregate_type, aggregate_id, kind, body) VALUES ('{}', 7, 'Placed', '{{\"b\": 1, \"a\": [true]}}')",
        case.kind("orders")
    ));
    let records = case.kafka.consume(&format!("orders.{}", case.tag), 1, 20);
    assert_eq!(records[0].key, Some(7i64.to_be_bytes().to_vec()));
    assert_eq!(records[0].text(), "{\"payload\":{\"a\":[true],\"b\":1},\"eventType\":\"Placed\"}");
    assert_eq!(records[0].timestamp, 1_767_323_045_678);
    assert_eq!(header_names(&records[0]), ["id"]);
}

/// Proves that TLS and login in Java's forms reach the broker: a password in a JAAS entry, and a PEM store with key and
/// certificate.
#[test]
fn logs_in_with_the_producers_settings() {
    let kafka = SecureKafka::shared();
    let client = kafka.authority.issue(crate::support::secure::CERTIFIED, "DNS:client");
    let store = tempfile::NamedTempFile::new().unwrap();
    let parts = [&client.key, &client.certificate].map(|file| std::fs::read_to_string(file).unwrap());
    std::fs::write(store.path(), parts.concat()).unwrap();
    let trust = json!({
        "producer.override.ssl.truststore.type": "PEM",
        "producer.override.ssl.truststore.location": kafka.authority.certificate().to_str().unwrap(),
    });
    let sasl = json!({
        "producer.override.bootstrap.servers": format!("SASL_SSL://{}", kafka.sasl),
        "producer.override.security.protocol": "SASL_SSL",
        "producer.override.sasl.mechanism": "PLAIN",
        "producer.override.sasl.jaas.config": format!(
            "org.apache.kafka.common.security.plain.PlainLoginModule required username=\"plain\" password=\"{PLAIN_PASSWORD}\";"
        ),
    });
    let mutual = json!({
        "producer.override.bootstrap.servers": kafka.mutual,
        "producer.override.security.protocol": "SSL",
        "producer.override.ssl.keystore.type": "PEM",
        "producer.override.ssl.keystore.location": store.path().to_str().unwrap(),
    });
    for login in [sasl, mutual] {
        let case = Case::on(&Server::shared(Version::V18), kafka);
        case.db.run(&base_table("outbox"));
        let connector = with(with(connector(&case), trust.clone()), login);
        let relay = start(&case, &connector, &worker(&case.kafka));
        relay.ready();
        case.insert("A", "1", "arrived");
        assert_eq!(case.consume("A", 1, 20)[0].text(), "arrived");
        assert!(!relay.stderr().contains(PLAIN_PASSWORD), "the password is in the log");
        assert_eq!(relay.terminate(), Some(0));
    }
}

/// Proves that a dry run shows every property and the configuration without its secrets, with exit code 0, and exit code
/// 2 with all that is wrong; and that a configuration in TOML is shown too.
#[test]
fn a_dry_run_shows_what_would_be() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let good = json!({
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "database.hostname": "db", "database.user": "u", "database.password": "hunter2", "database.dbname": "d",
        "topic.prefix": "shop", "plugin.name": "pgoutput", "table.include.list": "public.outbox",
        "heartbeat.interval.ms": "1000",
        "transforms": "outbox", "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",
    });
    let good = file("good.json", &good.to_string());
    let flags = ["--bootstrap-servers", "k:9092", "--key-format", "string", "--value-format", "json"];
    let run = |file: &str, flags: &[&str]| {
        let said = type_in(&[&["run", "--dry-run", "--config", file], flags].concat());
        assert!(!format!("{said:?}").contains("hunter2"), "{said:?}");
        said
    };
    let said = run(&good, &flags);
    assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""));
    for line in [
        "-> source.postgres.password",
        "WARNING no effect: an idle outbox",
        "slot = \"debezium\"",
        "password = \"(hidden)\"",
        "value-format = \"json\"",
    ] {
        assert!(said.stdout.contains(line), "{line} is missing:\n{}", said.stdout);
    }
    let said = run(&good, &[]);
    assert_eq!(said.code, Some(2));
    assert!(said.stdout.contains("the configuration cannot be used"), "{}", said.stdout);
    for name in ["key.converter", "value.converter", "producer.override.bootstrap.servers"] {
        assert!(said.finds(&format!("{name}: is missing")), "{name}: {}", said.stderr);
    }
    let toml = "[source.postgres]\nurl = \"postgres://u:hunter2@h/d\"\n[sink.kafka]\nbootstrap-servers = \"k:1\"\n\
                [sink.kafka.options]\n\"ssl.key.password\" = \"hunter2\"\n";
    let said = run(&file("o.toml", toml), &[]);
    assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""));
    assert!(said.stdout.contains("url = \"postgres://u:*******@h/d\""), "{}", said.stdout);
    let said = type_in(&[&["config", "convert", &good], &flags[..]].concat());
    assert_eq!(said.code, Some(0));
    assert!(said.stdout.contains("password = \"${env:OUTBOXD_DATABASE_PASSWORD}\""), "{}", said.stdout);
    let converted = file("converted.toml", &said.stdout);
    let said = type_in(&["config", "check", "--config", &converted]);
    assert!(said.finds("environment variable \"OUTBOXD_DATABASE_PASSWORD\" is not set"), "{}", said.stderr);
}
