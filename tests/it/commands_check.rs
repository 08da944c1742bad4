//! `outboxd check`: every finding is provoked for real, its remedy is typed as it is printed, and then it is gone.

use crate::roles::role;
use crate::support::outboxd::Outboxd;
use crate::support::tool::{Said, Tool, kafka_tool, statements};
use crate::support::walsender::SlotHolder;
use crate::support::{Case, Config, PrivateServer, Session, Version, base_table, eventually, free_port};

on_each_version!(
    a_first_start_is_clean,
    findings_come_all_at_once,
    tables_and_columns,
    publications,
    slots,
    rights,
    server_settings,
    standbys,
    no_room,
    topics,
    nothing_answers,
    what_a_start_would_say,
);

/// Runs what a hint says, as somebody who may.
#[track_caller]
fn type_sql(session: &Session, hint: &str) {
    for statement in statements(hint) {
        session.run(&statement);
    }
}

/// Checks that there is a finding, types its remedy, and checks that it is gone.
#[track_caller]
fn mend(case: &Case, tool: &Tool, kind: &str, words: &str) {
    let said = tool.run(&["check"]);
    let hint = said.hint(kind, words);
    assert_eq!(said.code == Some(2), said.stderr.contains("error: "), "{said:?}");
    type_sql(&case.db.session(), &hint);
    let said = tool.run(&["check"]);
    assert!(!said.finds(words), "still there after {hint:?}:\n{}", said.stderr);
}

#[track_caller]
fn clean(tool: &Tool) -> Said {
    let said = tool.ends(&["check"], 0);
    assert!(!said.stderr.contains("error: "), "{}", said.stderr);
    said
}

fn as_role(case: &Case, name: &str) -> Config {
    let url = format!("postgres://{name}@127.0.0.1:{}/{}", case.db.server.port, case.tag);
    case.config().set("source.postgres.url", url)
}

/// Proves that a first start that will work has no error, that nothing is made, and that a running relay is fine too.
fn a_first_start_is_clean(version: Version) {
    let case = Case::new(version);
    let tool = Tool::new(&case.config());
    let said = clean(&tool);
    for words in ["does not exist; the relay makes it", &case.object(), "0 rows stand", "1 broker"] {
        assert!(said.stdout.contains(words), "{words:?}:\n{}", said.stdout);
    }
    assert!(case.slot().is_none(), "a slot was made");
    assert_eq!(case.db.text("SELECT count(*) FROM pg_publication").as_deref(), Some("0"));
    assert_eq!(case.kafka.partitions(&case.positions_topic()), None, "a topic was made");

    let relay = case.start();
    case.insert("A", "1", "one");
    case.consume("A", 1, 20);
    let said = clean(&tool);
    for words in ["in use by process", "start: goes on at", "positions topic", &case.topic("A")] {
        assert!(said.stdout.contains(words), "{words:?}:\n{}", said.stdout);
    }
    drop(relay);
}

/// Proves that both sides' findings come at once, and that the exit code is 2.
fn findings_come_all_at_once(version: Version) {
    let case = Case::bare(version);
    case.db.run("CREATE TABLE outbox (id uuid PRIMARY KEY, aggregatetype text, payload jsonb)");
    case.db.run(&format!("SELECT pg_create_logical_replication_slot('{}', 'test_decoding')", case.object()));
    let config = case
        .config()
        .set("outbox.tables", vec!["public.outbox", "public.second"])
        .set("sink.kafka.create-topics", false);
    let said = Tool::new(&config).ends(&["check"], 2);
    for words in ["public.second", "aggregateid", "test_decoding", "create-topics is off"] {
        assert!(said.finds(words), "{words:?}:\n{}", said.stderr);
    }
}

/// Proves what is said about tables and their columns.
fn tables_and_columns(version: Version) {
    let case = Case::bare(version);
    case.db.run(
        "CREATE UNLOGGED TABLE outbox (id uuid PRIMARY KEY, aggregatetype text, aggregateid text, at text, \
         payload text GENERATED ALWAYS AS (aggregateid || '!') STORED)",
    );
    let tool = Tool::new(&case.config().set("outbox.columns.timestamp", "at"));
    mend(&case, &tool, "error: ", "UNLOGGED");
    mend(&case, &tool, "error: ", "is computed");
    mend(&case, &tool, "error: ", "cannot be the record's time");
    mend(&case, &tool, "warning: ", "may be NULL");
    clean(&tool);
}

/// Proves what is said about publications that somebody else has made.
fn publications(version: Version) {
    let case = Case::bare(version);
    case.db.run(
        "CREATE TABLE outbox (id uuid, aggregatetype text NOT NULL, aggregateid text, payload text); \
         CREATE TABLE other (id int PRIMARY KEY)",
    );
    let name = case.object();
    case.db.run(&format!("CREATE PUBLICATION \"{name}\" FOR TABLE other WITH (publish = 'delete')"));
    let tool = Tool::new(&case.config());
    mend(&case, &tool, "error: ", "does not include table");
    // what others get of it stays: the table gets an identity
    mend(&case, &tool, "warning: ", "no replica identity");
    mend(&case, &tool, "error: ", "does not publish inserts");
    case.db.run(&format!("ALTER PUBLICATION \"{name}\" SET TABLE outbox (id, aggregatetype)"));
    mend(&case, &tool, "error: ", "leaves out columns");
    case.db.run(&format!("ALTER PUBLICATION \"{name}\" SET TABLE outbox WHERE (aggregateid <> 'x')"));
    mend(&case, &tool, "warning: ", "row filter");
    // one that is for the outbox only is narrowed to inserts
    case.db.run(&format!(
        "ALTER TABLE outbox REPLICA IDENTITY DEFAULT; \
         ALTER PUBLICATION \"{name}\" SET (publish = 'insert, delete')"
    ));
    mend(&case, &tool, "warning: ", "no replica identity");
    case.db.run(&format!(
        "DROP TABLE outbox; CREATE TABLE outbox (id uuid, aggregatetype text NOT NULL, aggregateid text, payload text) \
         PARTITION BY HASH (id); ALTER PUBLICATION \"{name}\" ADD TABLE outbox"
    ));
    mend(&case, &tool, "warning: ", "publish_via_partition_root");
    clean(&tool);
}

/// Proves what is said about a slot that stands there.
fn slots(version: Version) {
    let case = Case::new(version);
    let name = case.object();
    let tool = Tool::new(&case.config());
    case.db.run(&format!("SELECT pg_create_logical_replication_slot('{name}', 'pgoutput', false, true)"));
    mend(&case, &tool, "error: ", "does not exist and slot");
    clean(&tool);

    case.db.run(&format!("CREATE PUBLICATION \"{name}\" FOR TABLE outbox WITH (publish = 'insert')"));
    case.db.run(&format!("SELECT pg_create_logical_replication_slot('{name}', 'pgoutput', false, true)"));
    mend(&case, &tool, "error: ", "two_phase");
    clean(&tool);
    let holder = SlotHolder::start(&case.db, &name, &name);
    mend(&case, &tool, "error: ", "no instance of this relay");
    drop(holder);
    assert!(clean(&tool).stdout.contains("adopts the slot at"));
}

/// Proves what is said about a role that may do less than is needed.
fn rights(version: Version) {
    let case = Case::new(version);
    let role = role(&case, "LOGIN");
    let tool = Tool::new(&as_role(&case, &role.name));
    mend(&case, &tool, "error: ", "may not open replication connections");
    mend(&case, &tool, "error: ", "may not read table");
    mend(&case, &tool, "error: ", "may not make it");
    clean(&tool);
    case.db.run("ALTER TABLE outbox ENABLE ROW LEVEL SECURITY");
    mend(&case, &tool, "error: ", "row level security");
    case.insert("A", "1", "old");
    assert!(clean(&tool).stdout.contains("they are published first"));
    let now = Tool::new(&as_role(&case, &role.name).set("source.postgres.start", "now"));
    assert!(clean(&now).stdout.contains("leaves them alone"));
}

/// Types a remedy and restarts the server if it says so.
#[track_caller]
fn mend_server(case: &mut Case, server: &PrivateServer, tool: &Tool, kind: &str, words: &str) {
    let hint = tool.run(&["check"]).hint(kind, words);
    type_sql(&case.db.session(), &hint);
    if hint.contains("restart the server") {
        server.stop(std::time::Duration::from_secs(20)).unwrap();
        server.start_again();
        case.db.reconnect();
    }
    let said = tool.run(&["check"]);
    assert!(!said.finds(words), "still there after {hint:?}:\n{}", said.stderr);
}

/// Proves what is said about the server's own settings.
fn server_settings(version: Version) {
    let mut conf = "wal_level = replica\nsynchronous_standby_names = '*'\nsynchronous_commit = local\n".to_owned();
    if version == Version::V18 {
        conf.push_str("idle_replication_slot_timeout = 10min\n");
    }
    let server = PrivateServer::start(version, &conf);
    let mut case = Case::on(&server, &crate::support::Kafka::shared());
    case.db.run(&base_table("outbox"));
    let tool = Tool::new(&case.config());
    mend_server(&mut case, &server, &tool, "error: ", "wal_level");
    mend_server(&mut case, &server, &tool, "error: ", "synchronous_standby_names");
    if version == Version::V18 {
        mend_server(&mut case, &server, &tool, "warning: ", "idle_replication_slot_timeout");
    }
    case.db.run("CREATE TABLE filler AS SELECT repeat('x', 500) FROM generate_series(1, 10000)");
    mend_server(&mut case, &server, &tool, "warning: ", "max_slot_wal_keep_size");
    let said = clean(&tool);
    assert!(said.stdout.contains("max_slot_wal_keep_size: 50.0 GiB"), "{}", said.stdout);
    assert_eq!(said.stderr, "", "nothing is left");
    assert!(said.stdout.contains("nothing found that is wrong"), "{}", said.stdout);
}

/// Proves what is said where a standby may take over.
fn standbys(version: Version) {
    let server = PrivateServer::start(version, "max_slot_wal_keep_size = 1GB\n");
    let mut case = Case::on(&server, &crate::support::Kafka::shared());
    case.db.run(&base_table("outbox"));
    let tool = Tool::new(&case.config());
    case.db.run("SELECT pg_create_physical_replication_slot('standby_1')");
    if version == Version::V15 {
        let hint = clean(&tool).hint("warning: ", "after a failover it is missing");
        assert!(hint.contains("outboxd resume --from now --config"), "{hint}");
        return;
    }
    let off = Tool::new(&case.config().set("source.postgres.failover-slot", false));
    assert!(clean(&off).hint("warning: ", "do not keep slot").contains("failover-slot = true"));
    mend_server(&mut case, &server, &tool, "warning: ", "may get ahead of them");
    // nobody uses the standby's slot
    mend_server(&mut case, &server, &tool, "error: ", "no standby uses that slot");
}

/// Proves that a lack of places for slots and walsenders is found before a start fails of it.
fn no_room(version: Version) {
    let server =
        PrivateServer::start(version, "max_replication_slots = 1\nmax_wal_senders = 2\nmax_slot_wal_keep_size = 1GB\n");
    let mut case = Case::on(&server, &crate::support::Kafka::shared());
    case.db.run(&base_table("outbox"));
    case.db.run("CREATE PUBLICATION foreign_pub FOR TABLE outbox");
    case.db.run("SELECT pg_create_logical_replication_slot('foreign_slot', 'pgoutput')");
    let tool = Tool::new(&case.config());
    mend_server(&mut case, &server, &tool, "error: ", "max_replication_slots");
    case.db.run("ALTER SYSTEM SET max_wal_senders = 1");
    server.stop(std::time::Duration::from_secs(20)).unwrap();
    server.start_again();
    case.db.reconnect();
    let holder = SlotHolder::start(&case.db, "foreign_slot", "foreign_pub");
    let hint = tool.ends(&["check"], 2).hint("error: ", "max_wal_senders");
    type_sql(&case.db.session(), &hint);
    drop(holder);
    server.stop(std::time::Duration::from_secs(20)).unwrap();
    server.start_again();
    case.db.reconnect();
    let _holder = SlotHolder::start(&case.db, "foreign_slot", "foreign_pub");
    clean(&tool);
}

/// Proves what is said about topics, and that Kafka's own tools mend it as printed.
fn topics(version: Version) {
    let case = Case::new(version);
    let tool = Tool::new(&case.config().set("sink.kafka.create-topics", false).set("source.postgres.start", "now"));
    case.insert("A", "1", "waits");
    let said = tool.ends(&["check"], 2);
    kafka_tool(&said.hint("error: ", "positions topic"));
    kafka_tool(&said.hint("error: ", &format!("topic \"{}\" does not exist", case.topic("A"))));
    eventually("topics are known", 10, || case.kafka.partitions(&case.topic("A")));
    clean(&tool);

    case.kafka.set_topic_option(&case.positions_topic(), "cleanup.policy", "delete");
    kafka_tool(&tool.ends(&["check"], 2).hint("error: ", "cleanup.policy"));
    eventually("compacted", 10, || {
        let policy = case.kafka.topic_option(&case.positions_topic(), "cleanup.policy")?;
        (policy == "compact").then_some(())
    });
    clean(&tool);

    let replicas =
        Tool::new(&case.config().set("source.postgres.start", "now").set("sink.kafka.topic-replication-factor", 3));
    let hint = replicas.ends(&["check"], 2).hint("error: ", "could not be made");
    assert!(hint.contains("topic-replication-factor"), "{hint}");
    let wrong =
        case.config().set("source.postgres.start", "now").set_in("sink.kafka.topic-config", "retention.ms", "soon");
    assert!(Tool::new(&wrong).ends(&["check"], 2).hint("error: ", "could not be made").contains("topic-config"));
}

/// Proves that each side is looked at although the other one is away.
fn nothing_answers(version: Version) {
    let case = Case::new(version);
    let nowhere = format!("127.0.0.1:{}", free_port());
    let said = Tool::new(&case.config().set("sink.kafka.bootstrap-servers", nowhere.as_str())).ends(&["check"], 2);
    assert!(said.hint("error: ", &nowhere).contains("bootstrap-servers"), "{}", said.stderr);
    assert!(said.stdout.contains(&format!("database \"{}\"", case.tag)), "{}", said.stdout);
    let url = format!("postgres://postgres@{nowhere}/x");
    let said = Tool::new(&case.config().set("source.postgres.url", url)).ends(&["check"], 2);
    assert!(said.hint("error: ", &nowhere).contains("source.postgres.url"), "{}", said.stderr);
    assert!(said.stdout.contains("1 broker"), "{}", said.stdout);
}

/// Proves that a terminal state is foretold, with its reason and the command that leaves it.
fn what_a_start_would_say(version: Version) {
    let case = Case::new(version);
    let tool = Tool::new(&case.config());
    let relay = case.start();
    case.insert("A", "1", "one");
    case.consume("A", 1, 20);
    eventually("a position is stored", 10, || case.stored_position());
    assert_eq!(relay.terminate(), Some(0));
    case.db.run(&format!("SELECT pg_drop_replication_slot('{}')", case.object()));
    let hint = tool.ends(&["check"], 2).hint("error: ", "slot_missing");
    assert!(hint.contains(&format!("outboxd resume --from now --config {}", tool.file().display())), "{hint}");
    let mut relay = Outboxd::start(&case.config().set("on-terminal", "exit"));
    assert_eq!(relay.end(20).code, Some(3));
}
