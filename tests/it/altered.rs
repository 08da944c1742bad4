//! A publication that was altered and altered back while nobody looked: whatever it hid is noticed, and what hides nothing
//! is not taken for it.

use crate::gaps::{When, assert_covers, lose_an_event, mishap};
use crate::support::tool::Tool;
use crate::support::{Case, Outboxd, Version, eventually};

on_each_version!(
    altered_and_altered_back_while_stopped,
    altered_and_altered_back_while_running,
    schema_taken_out_and_put_in_again,
    what_hides_nothing_goes_on,
    a_change_of_owner_is_left_without_a_gap,
);

fn alter_and_alter_back(case: &Case) -> u64 {
    let set = |what: &str| case.db.run(&format!("ALTER PUBLICATION \"{}\" SET (publish = '{what}')", case.object()));
    set("update");
    let lost = lose_an_event(case);
    set("insert");
    lost
}

/// Proves that an event that was committed while the publication did not publish inserts is in the gap, although nothing
/// of that is to be seen afterwards.
fn altered_and_altered_back_while_stopped(version: Version) {
    let mut lost = 0;
    let (_, health) =
        mishap(version, When::Stopped, &["table_not_published"], |case| lost = alter_and_alter_back(case));
    assert_covers(&health, lost);
    assert!(health[0].detail().contains("was altered"), "{health:?}");
}

/// Proves the same for a running relay, between two of its looks.
fn altered_and_altered_back_while_running(version: Version) {
    let mut lost = 0;
    let (_, health) =
        mishap(version, When::Running, &["table_not_published"], |case| lost = alter_and_alter_back(case));
    assert_covers(&health, lost);
}

/// Proves the same for a schema that was taken out and put in again, for a table that is named and for one that a pattern
/// fits; and that it makes no difference whether it is put in again.
fn schema_taken_out_and_put_in_again(version: Version) {
    for (tables, is_put_in_again) in [("public.outbox", true), ("publi*.outbox", true), ("publi*.outbox", false)] {
        let case = Case::new(version);
        let name = case.object();
        case.db.run(&format!("CREATE PUBLICATION \"{name}\" FOR TABLES IN SCHEMA public WITH (publish = 'insert')"));
        let config = case.config().set("outbox.tables", vec![tables]);
        let relay = Outboxd::start(&config);
        relay.ready();
        case.insert("A", "1", "published");
        case.consume("A", 1, 20);
        let end = case.db.log_end();
        eventually("the position is stored", 10, || case.stored_position().filter(|stored| *stored >= end));
        assert_eq!(relay.terminate(), Some(0));
        case.db.run(&format!("ALTER PUBLICATION \"{name}\" DROP TABLES IN SCHEMA public"));
        let lost = lose_an_event(&case);
        if is_put_in_again {
            case.db.run(&format!("ALTER PUBLICATION \"{name}\" ADD TABLES IN SCHEMA public"));
        }
        let relay = Outboxd::start(&config);
        let health = relay.wait_terminal(&["table_not_published"], 15);
        let (from, to) = (health.gap("from").unwrap(), health.gap("to").unwrap());
        assert!(from <= lost && lost < to, "{tables}: the lost event behind {lost:X} is not in the gap: {health:?}");
    }
}

/// Proves that nothing is made of what hides no row: other tables that come and go, comments, the server's housekeeping,
/// and what prepares a database, done once more.
fn what_hides_nothing_goes_on(version: Version) {
    let case = Case::new(version);
    let name = case.object();
    let config = case.config();
    let relay = Outboxd::start(&config);
    relay.ready();
    case.insert("A", "1", "one");
    case.consume("A", 1, 20);
    case.db.run(&format!(
        "CREATE TABLE other (id int); ALTER PUBLICATION \"{name}\" ADD TABLE other; \
         ALTER PUBLICATION \"{name}\" DROP TABLE other; COMMENT ON PUBLICATION \"{name}\" IS 'for the relay'"
    ));
    for statement in ["VACUUM FREEZE pg_publication", "VACUUM FULL pg_publication", "REINDEX TABLE pg_publication"] {
        case.db.run(statement);
    }
    for _ in 0..2 {
        Tool::new(&config).ends(&["setup", "--admin-url", &case.db.url()], 0);
    }
    assert_eq!(relay.terminate(), Some(0));
    let relay = Outboxd::start(&config);
    relay.ready();
    case.insert("A", "1", "two");
    assert_eq!(case.values_until("A", "two", 20), ["one", "two"]);

    let script = include_str!("../../sql/postgres/outbox.sql").replace("outboxd_outbox", &format!("{name}_2"));
    let script = script.replace("ROLE outboxd ", &format!("ROLE \"{name}_r\" "));
    let script = script
        .replace("TO outboxd;", &format!("TO \"{name}_r\";"))
        .replace("%I TO outboxd", &format!("%I TO {name}_r"));
    let script = script.replace("rolname = 'outboxd'", &format!("rolname = '{name}_r'"));
    let _role = crate::roles::Role::named(&case.db.server, &format!("{name}_r"));
    let altered_by = || case.db.text(&format!("SELECT xmin FROM pg_publication WHERE pubname = '{name}_2'"));
    case.db.run(&script);
    let first = altered_by();
    case.db.run(&script);
    assert!(first.is_some() && altered_by() == first, "sql/postgres/outbox.sql alters what is in order");
}

/// Proves that what may have been harmless can be left without giving up an event: the hint names the command.
fn a_change_of_owner_is_left_without_a_gap(version: Version) {
    let case = Case::new(version);
    let config = case.config();
    let relay = Outboxd::start(&config);
    relay.ready();
    case.insert("A", "1", "one");
    case.consume("A", 1, 20);
    assert_eq!(relay.terminate(), Some(0));
    let role = crate::roles::role(&case, "NOLOGIN");
    case.insert("A", "1", "two");
    case.db.run(&format!("ALTER PUBLICATION \"{}\" OWNER TO \"{}\"", case.object(), role.name));
    case.insert("A", "1", "three");
    let relay = Outboxd::start(&config);
    let health = relay.wait_terminal(&["table_not_published"], 15);
    let hint = health.json["hint"].as_str().unwrap();
    assert!(hint.contains("resume --from POSITION") && hint.contains("outboxd status"), "{hint}");
    relay.kill9();
    let slot = case.confirmed();
    let position = format!("{:X}/{:X}", slot >> 32, slot & 0xFFFF_FFFF);
    Tool::new(&config).ends(&["resume", "--yes", "--from", &position], 0);
    let relay = Outboxd::start(&config);
    relay.ready();
    assert_eq!(case.values_until("A", "three", 20), ["one", "two", "three"]);
    case.db.run(&format!("ALTER PUBLICATION \"{}\" OWNER TO postgres", case.object()));
}
