//! Outboxes whose rows can never come are told at the start, not streamed in good health.

use crate::roles::role;
use crate::support::tool::{Tool, statements};
use crate::support::{Case, Config, Kafka, Outboxd, PrivateServer, Version, base_table};

on_each_version!(
    an_unlogged_outbox_is_refused,
    an_outbox_that_is_made_unlogged_is_a_gap,
    a_partition_by_name_is_refused_where_its_rows_come_as_anothers,
    a_partition_by_name_is_read_where_its_rows_come_as_its_own,
    a_slot_with_two_phase_is_refused_and_mended,
    the_right_to_replicate_is_known_by_using_it,
    setup_takes_the_membership_of_amazon_for_the_right,
);

fn publish_all(case: &Case, via_root: bool) {
    case.db.run(&format!(
        "CREATE PUBLICATION \"{}\" FOR ALL TABLES WITH (publish = 'insert', publish_via_partition_root = {via_root})",
        case.object()
    ));
}

/// A start that is refused, and the same words from `check`.
#[track_caller]
fn refused(config: &Config, words: &[&str]) {
    let ended = Outboxd::run_to_end(config);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    let said = Tool::new(config).ends(&["check"], 2);
    for word in words {
        assert!(ended.stderr.contains(word) && said.finds(word), "{word:?}:\n{}\n{}", ended.stderr, said.stderr);
    }
}

/// Proves that a table whose rows are not in the log is refused, where the publication does not refuse it itself.
fn an_unlogged_outbox_is_refused(version: Version) {
    let case = Case::bare(version);
    case.db.run(&base_table("outbox").replace("CREATE TABLE", "CREATE UNLOGGED TABLE"));
    publish_all(&case, true);
    refused(&case.config(), &["table \"public.outbox\" is UNLOGGED", "SET LOGGED"]);
}

/// Proves that a table that is made so after something was published is a gap, while the relay runs and while it does
/// not, and that making it as it was does not hide that.
fn an_outbox_that_is_made_unlogged_is_a_gap(version: Version) {
    for is_running in [true, false] {
        let case = Case::new(version);
        publish_all(&case, true);
        let mut relay = case.start();
        case.insert("A", "1", "published");
        case.consume("A", 1, 20);
        if !is_running {
            assert_eq!(relay.terminate(), Some(0));
            case.db.run("ALTER TABLE outbox SET UNLOGGED");
            relay = Outboxd::start(&case.config());
        } else {
            case.db.run("ALTER TABLE outbox SET UNLOGGED");
        }
        let health = relay.wait_terminal(&["table_not_published"], 20);
        assert!(health.detail().contains("public.outbox") && health.gap("from").is_some(), "{health:?}");
    }
}

/// A partitioned table `whole`, its partition `outbox`, and of that a partition `part`.
fn make_partitions(case: &Case) {
    let columns =
        "id uuid NOT NULL DEFAULT gen_random_uuid(), aggregatetype text, aggregateid text, type text, payload text";
    case.db.run(&format!(
        "CREATE TABLE whole ({columns}) PARTITION BY HASH (id); \
         CREATE TABLE outbox PARTITION OF whole FOR VALUES WITH (MODULUS 1, REMAINDER 0) PARTITION BY HASH (id); \
         CREATE TABLE part PARTITION OF outbox FOR VALUES WITH (MODULUS 1, REMAINDER 0)"
    ));
}

/// Proves that a partition that is configured by its name is refused, with the table whose rows they are, where that is
/// what the publication brings.
fn a_partition_by_name_is_refused_where_its_rows_come_as_anothers(version: Version) {
    for (table, via_root) in [("public.part", true), ("public.outbox", true), ("public.outbox", false)] {
        let case = Case::bare(version);
        make_partitions(&case);
        publish_all(&case, via_root);
        let said = format!("table \"{table}\" is a partition of \"public.whole\"");
        refused(&case.config().set("outbox.tables", vec![table]), &[&said]);
    }
}

/// Proves that a partition is an outbox as any other where its rows come under its own name.
fn a_partition_by_name_is_read_where_its_rows_come_as_its_own(version: Version) {
    for (table, member) in [("public.part", None), ("public.outbox", Some("outbox")), ("public.part", Some("part"))] {
        let case = Case::bare(version);
        make_partitions(&case);
        match member {
            None => publish_all(&case, false),
            Some(member) => case.db.run(&format!(
                "CREATE PUBLICATION \"{}\" FOR TABLE {member} WITH (publish = 'insert', publish_via_partition_root = true)",
                case.object()
            )),
        }
        let relay = Outboxd::start(&case.config().set("outbox.tables", vec![table]));
        relay.ready();
        case.insert("A", "1", "one");
        assert_eq!(case.values_until("A", "one", 20), ["one"], "{table} in {member:?}");
    }
}

/// Proves that a slot that sends prepared transactions in another form is refused, and that what the hint says mends it,
/// without losing what was committed behind the slot.
fn a_slot_with_two_phase_is_refused_and_mended(version: Version) {
    let case = Case::new(version);
    let name = case.object();
    case.db.run(&format!("CREATE PUBLICATION \"{name}\" FOR TABLE outbox WITH (publish = 'insert')"));
    case.db.run(&format!("SELECT pg_create_logical_replication_slot('{name}', 'pgoutput', false, true)"));
    case.insert("A", "1", "one");
    case.db.run(&format!("BEGIN; {} PREPARE TRANSACTION '{}'", case.insert_sql("A", "1", "two"), case.tag));
    refused(&case.config(), &["was made with two_phase"]);
    let hint = Tool::new(&case.config()).ends(&["check"], 2).hint("error: ", "two_phase");
    for statement in statements(&hint) {
        case.db.run(&statement);
    }
    let relay = case.start();
    case.db.run(&format!("COMMIT PREPARED '{}'", case.tag));
    case.insert("A", "1", "three");
    assert_eq!(case.values_until("A", "three", 20), ["one", "two", "three"]);
    assert_eq!(relay.terminate(), Some(0));
}

/// Proves that a role that the server lets replicate works, whatever the catalogue says of it: on Amazon RDS the right comes
/// with the membership in a role, and `rolreplication` is false.
fn the_right_to_replicate_is_known_by_using_it(version: Version) {
    let case = Case::new(version);
    let role = role(&case, "LOGIN REPLICATION");
    case.db.run(&format!(
        "CREATE SCHEMA rds; CREATE VIEW rds.pg_roles AS SELECT oid, rolname, rolsuper, false AS rolreplication \
         FROM pg_catalog.pg_roles; GRANT USAGE ON SCHEMA rds TO PUBLIC; GRANT SELECT ON rds.pg_roles TO PUBLIC; \
         GRANT SELECT ON outbox TO PUBLIC; \
         CREATE PUBLICATION \"{}\" FOR TABLE outbox WITH (publish = 'insert', publish_via_partition_root = true); \
         ALTER ROLE \"{}\" SET search_path = rds, pg_catalog, public",
        case.object(),
        role.name
    ));
    let url = format!("postgres://{}@127.0.0.1:{}/{}", role.name, case.db.server.port, case.tag);
    let config = case.config().set("source.postgres.url", url);
    Tool::new(&config).ends(&["check"], 0);
    let relay = Outboxd::start(&config);
    relay.ready();
    case.insert("A", "1", "one");
    assert_eq!(case.values_until("A", "one", 20), ["one"]);
    drop(relay);
    // who may not is told both ways to the right
    case.db.run(&format!("ALTER ROLE \"{}\" NOREPLICATION", role.name));
    refused(&config, &["may not open replication connections", "GRANT rds_replication TO"]);
}

/// Proves that `setup` leaves a role alone that is a member of Amazon's.
fn setup_takes_the_membership_of_amazon_for_the_right(version: Version) {
    let server = PrivateServer::start(version, "");
    let case = Case::on(&server, &Kafka::shared());
    case.db.run(&base_table("outbox"));
    let role = role(&case, "LOGIN");
    case.db.run(&format!("CREATE ROLE rds_replication NOLOGIN; GRANT rds_replication TO \"{}\"", role.name));
    let url = format!("postgres://{}@127.0.0.1:{}/{}", role.name, case.db.server.port, case.tag);
    let tool = Tool::new(&case.config().set("source.postgres.url", url));
    let said = tool.ends(&["setup", "--admin-url", &case.db.url()], 0);
    let line = format!("there:  role \"{}\" may log in and replicate", role.name);
    assert!(said.stdout.contains(&line), "{}", said.stdout);
}
