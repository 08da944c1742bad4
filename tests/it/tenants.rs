//! One outbox for each tenant, in a schema of its own, selected by a pattern.

use std::time::Duration;

use crate::support::{Case, Config, Outboxd, Version, eventually, holds};

on_each_version!(
    fr_49_pattern_selects_two_hundred,
    fr_49_new_tables_are_picked_up,
    fr_49_new_table_that_is_not_published_is_red,
    fr_49_table_taken_out_is_terminal,
    fr_49_first_start_refuses_what_is_not_published,
    a_table_that_has_gone_is_no_trouble,
    an_outbox_that_is_renamed_before_its_rows_are_read_loses_none,
    tables_that_joined_while_the_relay_was_away_are_told,
);

/// A case without tables, and the pattern's configuration.
fn case(version: Version, pattern: &str) -> (Case, Config) {
    let case = Case::bare(version);
    let config = case.config().set("outbox.tables", vec![pattern]);
    (case, config)
}

/// The statements that make a tenant.
fn tenant(schema: &str) -> String {
    format!(
        "CREATE SCHEMA {schema}; CREATE TABLE {schema}.outbox (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), \
         aggregatetype text NOT NULL, aggregateid text, type text, payload text);"
    )
}

/// The statement that writes an event of a tenant.
fn event(case: &Case, schema: &str, payload: &str) -> String {
    case.insert_sql("A", schema, payload).replace("INTO outbox", &format!("INTO {schema}.outbox"))
}

/// Waits for a number of records; their values, sorted.
#[track_caller]
fn values(case: &Case, count: usize) -> Vec<String> {
    let mut values: Vec<_> = case.consume("A", count, 30).iter().map(crate::support::Rec::text).collect();
    values.sort();
    values
}

/// Proves that a pattern selects 200 outboxes and nothing else, for the first read and for the stream, also after a
/// restart.
fn fr_49_pattern_selects_two_hundred(version: Version) {
    let (case, config) = case(version, "tenant_*.outbox");
    let make = tenant("tenant_%1$s").replace('\'', "''");
    case.db.run(&format!("DO $do$ BEGIN FOR i IN 1..200 LOOP EXECUTE format('{make}', i); END LOOP; END $do$"));
    case.db.run(&tenant("tenants"));
    case.db.run("CREATE TABLE tenant_1.other (id int); CREATE UNLOGGED TABLE tenant_1.outbox_2 (id int)");
    for schema in ["tenant_7", "tenant_200", "tenants"] {
        case.db.run(&event(&case, schema, &format!("stands in {schema}")));
    }
    let relay = Outboxd::start(&config);
    relay.ready();
    let into_each = event(&case, "tenant_%1$s", "%1$s").replace('\'', "''");
    let all = format!("DO $do$ BEGIN FOR i IN 1..200 LOOP EXECUTE format('{into_each}', i); END LOOP; END $do$");
    case.db.run(&format!("{} {all}", event(&case, "tenants", "not ours")));
    let mut expected: Vec<String> = (1..=200).map(|number: u32| number.to_string()).collect();
    expected.extend(["stands in tenant_7".to_owned(), "stands in tenant_200".to_owned()]);
    expected.sort();
    assert_eq!(values(&case, 202), expected);
    assert_eq!(relay.terminate(), Some(0));
    let relay = Outboxd::start(&config);
    relay.ready();
    case.db.run(&event(&case, "tenant_3", "zz after the restart"));
    expected.push("zz after the restart".to_owned());
    assert_eq!(values(&case, 203), expected);
}

/// Proves that the first row of a table that did not exist when the relay started is published, in the same session,
/// where the publication takes the table in from its first moment on; and that a table that goes is no trouble.
fn fr_49_new_tables_are_picked_up(version: Version) {
    for is_for_all in [true, false] {
        let (case, config) = case(version, "t*.outbox");
        case.db.run(&tenant("t1"));
        let publication = format!("\"{}\"", case.object());
        let of = if is_for_all { "ALL TABLES" } else { "TABLE t1.outbox" };
        case.db.run(&format!("CREATE PUBLICATION {publication} FOR {of} WITH (publish = 'insert')"));
        let relay = Outboxd::start(&config);
        relay.ready();
        let join = format!("ALTER PUBLICATION {publication} ADD TABLE t2.outbox;");
        let join = if is_for_all { "" } else { &join };
        case.db.run(&format!("BEGIN; {}{join}{}COMMIT", tenant("t2"), event(&case, "t2", "first")));
        case.db.run(&event(&case, "t1", "beside"));
        assert_eq!(values(&case, 2), ["beside", "first"]);
        eventually("the log tells of it", 20, || {
            relay.stderr().contains("fits a new table; its rows are published").then_some(())
        });
        case.db.run("DROP SCHEMA t1 CASCADE");
        case.db.run(&event(&case, "t2", "second"));
        assert_eq!(values(&case, 3), ["beside", "first", "second"]);
        holds("it goes on", Duration::from_secs(5), || relay.health().is_some_and(|health| health.status == 200));
        assert_eq!(relay.stderr().matches("streaming begins").count(), 1, "the session did not last");
        assert!(!relay.stderr().contains("joined the publication after"), "nothing was missed");
        assert_eq!(relay.terminate(), Some(0));
        let relay = Outboxd::start(&config);
        relay.ready();
        // the same name again, another table
        let again = format!("ALTER PUBLICATION {publication} ADD TABLE t1.outbox;");
        let again = if is_for_all { "" } else { &again };
        case.db.run(&format!("BEGIN; {}{again}{}COMMIT", tenant("t1"), event(&case, "t1", "third")));
        assert_eq!(values(&case, 4), ["beside", "first", "second", "third"]);
    }
}

/// Proves that a table that a pattern fits and that is not published turns the relay red by its name, with the statement
/// that mends it, while all others are published, also over a restart; and that the log tells what was missed.
fn fr_49_new_table_that_is_not_published_is_red(version: Version) {
    let (case, config) = case(version, "t*.outbox");
    case.db.run(&tenant("t1"));
    let relay = Outboxd::start(&config);
    relay.ready();
    case.db.run(&tenant("t2"));
    case.db.run(&event(&case, "t2", "missed"));
    let health = relay.wait_reason("table_not_published", 20);
    assert!(health.detail().contains("t2.outbox") && health.phase() == "blocked", "{health:?}");
    case.db.run(&event(&case, "t1", "one"));
    assert_eq!(values(&case, 1), ["one"]);
    assert_eq!(relay.terminate(), Some(0));
    let relay = Outboxd::start(&config);
    let health = relay.wait_reason("table_not_published", 20);
    case.db.run(&event(&case, "t1", "two"));
    assert_eq!(values(&case, 2), ["one", "two"]);
    case.db.run(health.json["hint"].as_str().unwrap());
    relay.ready();
    case.db.run(&event(&case, "t2", "three"));
    assert_eq!(values(&case, 3), ["one", "three", "two"]);
    assert!(relay.stderr().contains("those inserted before are not"), "what was missed is not told");
}

/// Proves that a table that was published and is taken out of the publication is a terminal state, while the relay runs
/// and while it does not.
fn fr_49_table_taken_out_is_terminal(version: Version) {
    for is_running in [true, false] {
        let (case, config) = case(version, "t*.outbox");
        case.db.run(&format!("{}{}", tenant("t1"), tenant("t2")));
        let relay = Outboxd::start(&config);
        relay.ready();
        case.db.run(&event(&case, "t1", "one"));
        assert_eq!(values(&case, 1), ["one"]);
        let take_out = format!("ALTER PUBLICATION \"{}\" DROP TABLE t2.outbox", case.object());
        let relay = if is_running {
            case.db.run(&take_out);
            relay
        } else {
            assert_eq!(relay.terminate(), Some(0));
            case.db.run(&take_out);
            Outboxd::start(&config)
        };
        let health = relay.wait_terminal(&["table_not_published"], 20);
        assert!(health.detail().contains("t2.outbox"), "{health:?}");
    }
}

/// Proves that the first start refuses a table that is not published, all with one statement each, and a pattern that
/// fits nothing.
fn fr_49_first_start_refuses_what_is_not_published(version: Version) {
    let (case, config) = case(version, "t*.outbox");
    let ended = Outboxd::run_to_end(&config);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(ended.stderr.contains("no table fits \"t*.outbox\""), "{}", ended.stderr);
    case.db.run(&format!("{}{}{}", tenant("t1"), tenant("t2"), tenant("t3")));
    case.db.run(&format!("CREATE PUBLICATION \"{}\" FOR TABLE t1.outbox WITH (publish = 'insert')", case.object()));
    let ended = Outboxd::run_to_end(&config);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    for table in ["t2", "t3"] {
        let statement = format!("ADD TABLE \"{table}\".\"outbox\"");
        assert!(ended.stderr.contains(&statement), "{statement} is missing:\n{}", ended.stderr);
    }
    let tool = crate::support::tool::Tool::new(&config);
    assert!(tool.ends(&["check"], 2).finds("does not include table \"t3.outbox\""));
    let said = tool.ends(&["setup"], 0);
    assert!(said.stdout.contains("made:   publication") && said.stdout.contains("t3.outbox"), "{}", said.stdout);
    tool.ends(&["check"], 0);
    assert!(tool.ends(&["setup", "--print"], 2).finds("cannot be printed"));
}

/// Proves that in a publication FOR ALL TABLES a table that is no outbox may be made, written and dropped before its rows
/// are read, and that an outbox may be so without losing its rows.
fn a_table_that_has_gone_is_no_trouble(version: Version) {
    let (case, config) = case(version, "t*.outbox");
    case.db.run(&tenant("t1"));
    case.db.run(&format!(
        "CREATE PUBLICATION \"{}\" FOR ALL TABLES WITH (publish = 'insert', publish_via_partition_root = true)",
        case.object()
    ));
    let relay = Outboxd::start(&config);
    relay.ready();
    assert_eq!(relay.terminate(), Some(0));
    case.db.run("CREATE TABLE passing (id int); INSERT INTO passing VALUES (1); DROP TABLE passing");
    case.db.run(&tenant("t2"));
    case.db.run(&event(&case, "t2", "of a tenant that has gone"));
    case.db.run("DROP SCHEMA t2 CASCADE");
    case.db.run(&event(&case, "t1", "behind"));
    let relay = Outboxd::start(&config);
    relay.ready();
    assert_eq!(values(&case, 2), ["behind", "of a tenant that has gone"]);
}

/// Proves that rows are published that were written while a pattern fitted their table, whatever it is called by the time
/// they are read, and that the log names a table that is an outbox no more.
fn an_outbox_that_is_renamed_before_its_rows_are_read_loses_none(version: Version) {
    for is_for_all in [true, false] {
        let (case, config) = case(version, "tenant_*.outbox");
        case.db.run(&format!("{}{}{}", tenant("tenant_1"), tenant("tenant_8"), tenant("tenant_9")));
        if is_for_all {
            case.db.run(&format!("CREATE PUBLICATION \"{}\" FOR ALL TABLES WITH (publish = 'insert')", case.object()));
        }
        let relay = Outboxd::start(&config);
        relay.ready();
        assert_eq!(relay.terminate(), Some(0));
        case.db.run(&event(&case, "tenant_9", "of a schema"));
        case.db.run(&event(&case, "tenant_8", "of a table"));
        case.db.run("ALTER SCHEMA tenant_9 RENAME TO archived_9; ALTER TABLE tenant_8.outbox RENAME TO old");
        // before 16 the server does not announce a table again whose schema has another name
        case.db.run(&event(&case, "tenant_8", "not ours").replace("tenant_8.outbox", "tenant_8.old"));
        case.db.run(&event(&case, "tenant_1", "behind"));
        let relay = Outboxd::start(&config);
        relay.ready();
        assert_eq!(values(&case, 3), ["behind", "of a schema", "of a table"]);
        // while the relay runs it makes no difference that it knew the table as an outbox
        case.db.run("ALTER TABLE tenant_1.outbox RENAME TO old");
        case.db.run(&event(&case, "tenant_1", "no longer ours").replace("tenant_1.outbox", "tenant_1.old"));
        let join = format!("ALTER PUBLICATION \"{}\" ADD TABLE tenant_5.outbox;", case.object());
        let join = if is_for_all { "" } else { &join };
        case.db.run(&format!("BEGIN; {}{join}{}COMMIT", tenant("tenant_5"), event(&case, "tenant_5", "ours")));
        assert_eq!(values(&case, 4), ["behind", "of a schema", "of a table", "ours"]);
        // which tables there were is known of those that are members by themselves
        if !is_for_all {
            for words in ["table=tenant_9.outbox name_now=archived_9.outbox", "name_now=tenant_8.old"] {
                eventually("the log tells of it", 20, || relay.stderr().replace('"', "").contains(words).then_some(()));
            }
        }
    }
}

/// Proves that the log tells of tables that joined the publication late while the relay was away, and tells them from
/// those that were published from their first row on.
fn tables_that_joined_while_the_relay_was_away_are_told(version: Version) {
    for (of, join) in [("TABLE t1.outbox", "TABLE %.outbox"), ("TABLES IN SCHEMA t1", "TABLES IN SCHEMA %")] {
        let (case, config) = case(version, "t*.outbox");
        case.db.run(&tenant("t1"));
        case.db.run(&format!("CREATE PUBLICATION \"{}\" FOR {of} WITH (publish = 'insert')", case.object()));
        let relay = Outboxd::start(&config);
        relay.ready();
        assert_eq!(relay.terminate(), Some(0));
        let join = |schema: &str| format!("ALTER PUBLICATION \"{}\" ADD {};", case.object(), join.replace('%', schema));
        case.db.run(&format!("BEGIN; {}{}{}COMMIT", tenant("t2"), join("t2"), event(&case, "t2", "whole")));
        case.db.run(&tenant("t3"));
        case.db.run(&event(&case, "t3", "missed"));
        case.db.run(&join("t3"));
        case.db.run(&event(&case, "t3", "late"));
        let relay = Outboxd::start(&config);
        relay.ready();
        assert_eq!(values(&case, 2), ["late", "whole"]);
        let line_of = |table: &str| {
            let table = format!("table={table}");
            let said = relay.stderr().replace('"', "");
            said.lines().find(|line| line.contains(&table) && line.contains("fits a new table")).map(str::to_owned)
        };
        let late = eventually("the log tells of t3", 20, || line_of("t3.outbox"));
        assert!(late.contains("those inserted before are not"), "{late}");
        let whole = eventually("the log tells of t2", 20, || line_of("t2.outbox"));
        assert!(whole.contains("its rows are published") && !whole.contains("before"), "{whole}");
        assert_eq!(line_of("t1.outbox"), None, "a table that was there before is told as new");
    }
}
