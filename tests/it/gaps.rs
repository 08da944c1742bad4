//! No silent gap: whatever may have cost events is a named terminal state with the range in question, whether it
//! happens while the relay runs or while it is stopped, and a restart does not forget it.

use crate::support::outboxd::Health;
use crate::support::postgres::Database;
use crate::support::{Case, Outboxd, Server, Version, eventually};

on_each_version!(
    slot_dropped_while_stopped,
    slot_dropped_while_running,
    slot_remade_while_stopped,
    slot_remade_while_running,
    slot_moved_ahead_while_stopped,
    slot_moved_ahead_while_running,
    publication_dropped_while_stopped,
    publication_dropped_while_running,
    publication_dropped_with_an_event_behind,
    publication_remade_while_stopped,
    publication_remade_while_running,
    table_dropped_while_stopped,
    table_dropped_while_running,
    table_remade_while_stopped,
    table_remade_while_running,
    table_taken_out_while_stopped,
    table_taken_out_while_running,
    table_taken_out_with_an_event_behind,
    table_put_in_again_while_stopped,
    other_server,
    terminal_may_exit,
);

/// When the mishap happens.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    /// Between two runs of the relay.
    Stopped,
    /// While the relay streams.
    Running,
    /// While the relay does not get to run and its connection is cut, so that it sees the outcome only.
    Unseen,
}

/// Publishes one event, lets the mishap happen, and checks that the relay ends up in a terminal state for one of the
/// reasons, that it says from where events may be missing, and that a restart does not help.
#[track_caller]
pub(crate) fn mishap(
    version: Version,
    when: When,
    reasons: &[&str],
    happen: impl FnOnce(&Case),
) -> (Case, [Health; 2]) {
    let case = Case::new(version);
    let mut relay = case.start();
    case.insert("A", "1", "published");
    case.consume("A", 1, 20);
    // the position behind it is stored: before that, a mishap would only lead to a repeat
    let end = case.db.log_end();
    eventually("the position is stored", 10, || case.stored_position().filter(|stored| *stored >= end));
    match when {
        When::Stopped => {
            assert_eq!(relay.terminate(), Some(0));
            happen(&case);
            relay = Outboxd::start(&case.config());
        }
        When::Running => happen(&case),
        When::Unseen => {
            relay.freeze();
            cut_connection(&case);
            happen(&case);
            relay.thaw();
        }
    }
    let first = relay.wait_terminal(reasons, 15);
    relay.kill9();
    let relay = Outboxd::start(&case.config());
    let again = relay.wait_terminal(reasons, 15);
    for health in [&first, &again] {
        let from = health.gap("from").unwrap_or_else(|| panic!("no begin of the gap: {health:?}"));
        assert!(health.gap("to").is_none_or(|to| from <= to), "{health:?}");
    }
    assert_eq!(case.kafka.read_all(&case.topic("A")).len(), 1, "something was published from the terminal state");
    relay.kill9();
    (case, [first, again])
}

/// Ends the relay's replication connection and waits until the slot is free.
fn cut_connection(case: &Case) {
    eventually("the slot is free", 10, || {
        match case.slot()?.active_pid {
            Some(pid) => case.db.run(&format!("SELECT pg_terminate_backend({pid})")),
            None => return Some(()),
        }
        None
    });
}

fn drop_slot(case: &Case) {
    case.db.run(&format!("SELECT pg_drop_replication_slot('{}')", case.object()));
}

/// Inserts an event that nobody will publish; returns a position before it, behind which its commit lies.
pub(crate) fn lose_an_event(case: &Case) -> u64 {
    let before = case.db.log_end();
    case.insert("A", "1", "lost");
    before
}

fn remake_slot(case: &Case) -> u64 {
    drop_slot(case);
    let lost = lose_an_event(case);
    case.db.run(&format!("SELECT pg_create_logical_replication_slot('{}', 'pgoutput')", case.object()));
    lost
}

fn move_slot_ahead(case: &Case) -> u64 {
    let lost = lose_an_event(case);
    case.db.run(&format!("SELECT pg_replication_slot_advance('{}', pg_current_wal_lsn())", case.object()));
    lost
}

/// Panics unless the gap holds the lost event, at first and after a restart: its end may be open.
#[track_caller]
pub(crate) fn assert_covers(healths: &[Health; 2], lost: u64) {
    for (health, when) in healths.iter().zip(["at first", "after a restart"]) {
        let (from, to) = (health.gap("from").unwrap(), health.gap("to").unwrap_or(u64::MAX));
        assert!(from <= lost && lost < to, "the lost event behind {lost:X} is not in the gap {when}: {health:?}");
    }
}

/// Proves that a slot that has gone is not made again by itself.
fn slot_dropped_while_stopped(version: Version) {
    let (case, _) = mishap(version, When::Stopped, &["slot_missing"], drop_slot);
    assert!(case.slot().is_none(), "the slot was made again");
}

/// Proves the same for a running relay.
fn slot_dropped_while_running(version: Version) {
    let (case, _) = mishap(version, When::Unseen, &["slot_missing"], drop_slot);
    assert!(case.slot().is_none(), "the slot was made again");
}

/// Proves that a new slot of the old name is not taken for the old one.
fn slot_remade_while_stopped(version: Version) {
    let mut lost = 0;
    let (_, health) = mishap(version, When::Stopped, &["slot_moved_ahead"], |case| lost = remake_slot(case));
    assert_covers(&health, lost);
}

/// Proves the same for a running relay.
fn slot_remade_while_running(version: Version) {
    let mut lost = 0;
    let (_, health) = mishap(version, When::Unseen, &["slot_moved_ahead"], |case| lost = remake_slot(case));
    assert_covers(&health, lost);
}

/// Proves that a slot that somebody moved over an event is noticed.
fn slot_moved_ahead_while_stopped(version: Version) {
    let mut lost = 0;
    let (_, health) = mishap(version, When::Stopped, &["slot_moved_ahead"], |case| lost = move_slot_ahead(case));
    assert_covers(&health, lost);
}

/// Proves the same for a running relay.
fn slot_moved_ahead_while_running(version: Version) {
    let mut lost = 0;
    let (_, health) = mishap(version, When::Unseen, &["slot_moved_ahead"], |case| lost = move_slot_ahead(case));
    assert_covers(&health, lost);
}

fn drop_publication(case: &Case) {
    case.db.run(&format!("DROP PUBLICATION \"{}\"", case.object()));
}

fn remake_publication(case: &Case) {
    let name = case.object();
    case.db.run(&format!(
        "BEGIN; DROP PUBLICATION \"{name}\"; \
         CREATE PUBLICATION \"{name}\" FOR TABLE outbox WITH (publish = 'insert', publish_via_partition_root = true); \
         COMMIT"
    ));
}

/// Proves that a publication that has gone is a terminal state, not a new publication.
fn publication_dropped_while_stopped(version: Version) {
    let (case, _) = mishap(version, When::Stopped, &["publication_missing"], drop_publication);
    assert_eq!(case.db.text("SELECT count(*) FROM pg_publication").as_deref(), Some("0"));
}

/// Proves the same for a running relay, without any event that would make the server complain.
fn publication_dropped_while_running(version: Version) {
    mishap(version, When::Running, &["publication_missing"], drop_publication);
}

/// Proves that an event that was committed right behind the drop, which newer servers pass over with a warning only, is
/// in the gap, although the stream's position has passed it before the drop is noticed.
fn publication_dropped_with_an_event_behind(version: Version) {
    let mut lost = 0;
    // a server before 18 stops at the event by itself
    let reasons = ["publication_missing", "publication_newer_than_slot"];
    let (_, health) = mishap(version, When::Running, &reasons, |case| {
        drop_publication(case);
        lost = lose_an_event(case);
    });
    assert_covers(&health, lost);
}

/// Proves that a new publication of the old name is noticed: rows may have been passed over in between.
fn publication_remade_while_stopped(version: Version) {
    mishap(version, When::Stopped, &["publication_remade"], remake_publication);
}

/// Proves the same for a running relay.
fn publication_remade_while_running(version: Version) {
    mishap(version, When::Running, &["publication_remade"], remake_publication);
}

fn drop_table(case: &Case) {
    case.db.run("DROP TABLE outbox");
}

fn remake_table(case: &Case) {
    case.db.run(&format!(
        "BEGIN; DROP TABLE outbox; {} ALTER PUBLICATION \"{}\" ADD TABLE outbox; COMMIT",
        crate::support::base_table("outbox"),
        case.object()
    ));
}

/// Proves that an outbox that has gone is a terminal state.
fn table_dropped_while_stopped(version: Version) {
    mishap(version, When::Stopped, &["table_remade", "table_not_published"], drop_table);
}

/// Proves the same for a running relay.
fn table_dropped_while_running(version: Version) {
    mishap(version, When::Running, &["table_remade", "table_not_published"], drop_table);
}

/// Proves that a new table of the old name is noticed, although it is published.
fn table_remade_while_stopped(version: Version) {
    mishap(version, When::Stopped, &["table_remade"], remake_table);
}

/// Proves the same for a running relay.
fn table_remade_while_running(version: Version) {
    mishap(version, When::Running, &["table_remade"], remake_table);
}

fn take_table_out(case: &Case) {
    case.db.run(&format!("ALTER PUBLICATION \"{}\" DROP TABLE outbox", case.object()));
}

/// Proves that a table that was taken out of the publication is a terminal state, not silence.
fn table_taken_out_while_stopped(version: Version) {
    mishap(version, When::Stopped, &["table_not_published"], take_table_out);
}

/// Proves the same for a running relay.
fn table_taken_out_while_running(version: Version) {
    mishap(version, When::Running, &["table_not_published"], take_table_out);
}

/// Proves that an event that was committed right behind that is in the gap, although no server says a word about it.
fn table_taken_out_with_an_event_behind(version: Version) {
    let mut lost = 0;
    let (_, health) = mishap(version, When::Running, &["table_not_published"], |case| {
        take_table_out(case);
        lost = lose_an_event(case);
    });
    assert_covers(&health, lost);
}

/// Proves that a table that was out of the publication for a while is noticed: its rows of that time were passed over.
fn table_put_in_again_while_stopped(version: Version) {
    mishap(version, When::Stopped, &["table_not_published", "table_remade"], |case| {
        take_table_out(case);
        lose_an_event(case);
        case.db.run(&format!("ALTER PUBLICATION \"{}\" ADD TABLE outbox", case.object()));
    });
}

/// Proves that another server with the same objects is not gone on with, although its slot looks fine.
fn other_server(version: Version) {
    let case = Case::new(version);
    let relay = case.start();
    case.insert("A", "1", "published");
    case.consume("A", 1, 20);
    assert_eq!(relay.terminate(), Some(0));

    let other = if version == Version::V15 { Version::V18 } else { Version::V15 };
    let other = Database::create(&Server::shared(other), &case.tag, "");
    other.run(&crate::support::base_table("outbox"));
    let name = case.object();
    other.run(&format!("CREATE PUBLICATION \"{name}\" FOR TABLE outbox WITH (publish = 'insert')"));
    other.run(&format!("SELECT pg_create_logical_replication_slot('{name}', 'pgoutput')"));
    let relay = Outboxd::start(&case.config().set("source.postgres.url", other.url()));
    relay.wait_terminal(&["other_server"], 15);
    relay.kill9();
}

/// Proves that `on-terminal = "exit"` ends with code 3 and says why.
fn terminal_may_exit(version: Version) {
    let case = Case::new(version);
    let config = case.config().set("on-terminal", "exit");
    let mut relay = Outboxd::start(&config);
    relay.ready();
    case.insert("A", "1", "published");
    case.consume("A", 1, 20);
    drop_publication(&case);
    let ended = relay.end(20);
    assert_eq!(ended.code, Some(3), "{}", ended.stderr);
    let ended = Outboxd::run_to_end(&config);
    assert_eq!(ended.code, Some(3), "{}", ended.stderr);
    assert!(ended.stderr.contains(&case.object()), "the publication is not named: {}", ended.stderr);
}
