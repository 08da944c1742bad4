//! Another timeline, an older state of the server: going on where nothing was lost, stopping where something was.

use std::time::Duration;

use crate::support::case::without_repeats;
use crate::support::{Case, Kafka, PrivateServer, Version, base_table};

on_each_version!(
    goes_on_after_a_crash,
    goes_on_after_a_promotion,
    promotion_that_lost_events,
    server_set_back,
    a_standby_without_the_slot_is_waited_for,
);

fn case_on(server: &PrivateServer) -> Case {
    let case = Case::on(server, &Kafka::shared());
    case.db.run(&base_table("outbox"));
    case
}

/// Proves that crashes of the server lose nothing, although a slot may come back at an older position.
fn goes_on_after_a_crash(version: Version) {
    let server = PrivateServer::start(version, "");
    let mut case = case_on(&server);
    let relay = case.start();
    for round in 0..3 {
        case.insert_many("A", round * 1_000, 1_000, 10);
        server.crash();
        server.start_again();
        case.db.reconnect();
    }
    relay.wait_health("streaming again", 30, |health| health.status == 200);
    case.insert_many("A", 3_000, 1, 1);
    case.consume_complete("A", 0, 3_001, 30);
}

/// Proves that a promotion that lost nothing is gone on with by itself, without loss and without a person.
fn goes_on_after_a_promotion(version: Version) {
    let server = PrivateServer::start(version, "");
    let mut case = case_on(&server);
    let relay = case.start();
    case.insert("A", "1", "timeline 1");
    case.consume("A", 1, 20);
    assert!(server.stop(Duration::from_secs(60)).is_some());
    server.start_promoted();
    case.db.reconnect();
    case.insert("A", "1", "timeline 2");
    relay.wait_health("streaming again", 20, |health| health.status == 200);
    let values = without_repeats(case.values_until("A", "timeline 2", 20));
    assert_eq!(values, ["timeline 1", "timeline 2"]);
    assert_eq!(relay.terminate(), Some(0));
    // and a later start knows the new timeline
    let _relay = case.start();
    case.insert("A", "1", "last");
    case.values_until("A", "last", 20);
}

/// Proves that a new timeline that forked before what was published is a terminal state: the new primary does not have
/// events that consumers have seen.
fn promotion_that_lost_events(version: Version) {
    let server = PrivateServer::start(version, "");
    let mut case = case_on(&server);
    let relay = case.start();
    case.insert("A", "1", "on both");
    case.consume("A", 1, 20);
    assert!(server.stop(Duration::from_secs(60)).is_some());
    server.copy_data("data", "standby");
    server.start_again();
    case.db.reconnect();
    relay.ready();
    case.insert("A", "1", "on the old primary only");
    case.values_until("A", "on the old primary only", 20);
    relay.wait_health("streaming", 10, |health| health.status == 200);
    let position = case.confirmed();
    assert!(server.stop(Duration::from_secs(60)).is_some());
    server.copy_data("standby", "data");
    server.start_promoted();
    let health = relay.wait_terminal(&["timeline_diverged"], 30);
    let named = health.gap("from").into_iter().chain(health.gap("to")).collect::<Vec<_>>();
    assert!(named.iter().any(|side| *side <= position), "{health:?}");
}

/// Proves that a server that was set back to an older state, on the same timeline, is not gone on with.
fn server_set_back(version: Version) {
    let server = PrivateServer::start(version, "");
    let mut case = case_on(&server);
    let relay = case.start();
    case.insert("A", "1", "on both");
    case.consume("A", 1, 20);
    assert!(server.stop(Duration::from_secs(60)).is_some());
    server.copy_data("data", "backup");
    server.start_again();
    case.db.reconnect();
    relay.ready();
    case.insert_many("A", 0, 20_000, 1_000);
    case.kafka.consume_until(&case.topic("A"), 60, |records| records.last().is_some_and(|last| last.text() == "19999"));
    assert_eq!(relay.terminate(), Some(0));
    assert!(server.stop(Duration::from_secs(60)).is_some());
    server.copy_data("backup", "data");
    server.start_again();
    let relay = crate::support::Outboxd::start(&case.config());
    relay.wait_terminal(&["server_behind"], 30);
}

/// Proves that an address that leads to a standby for a moment, which has no slot, is waited for, red: its primary still
/// has it. A standby that is asked for is another matter.
fn a_standby_without_the_slot_is_waited_for(version: Version) {
    let server = PrivateServer::start(version, "");
    let mut case = case_on(&server);
    let relay = case.start();
    case.insert("A", "1", "before");
    case.consume("A", 1, 20);
    assert!(server.stop(Duration::from_secs(60)).is_some());
    server.copy_data("data", "primary");
    std::fs::remove_dir_all(server.dir.join("data/pg_replslot").join(case.object())).unwrap();
    server.start_as_standby();
    let health = relay.wait_health("waiting", 30, |health| {
        health.phase() == "terminal" || health.detail().contains("is a standby without slot")
    });
    assert_eq!((health.status, health.reason()), (503, "source_unreachable"), "{health:?}");
    let asked = format!("{}?target_session_attrs=standby", case.db.url());
    let by_name = crate::support::Outboxd::start(&case.config().set("source.postgres.url", asked));
    by_name.wait_terminal(&["slot_missing"], 30);
    drop(by_name);
    assert!(server.stop(Duration::from_secs(60)).is_some());
    server.copy_data("primary", "data");
    server.start_again();
    case.db.reconnect();
    relay.ready();
    case.insert("A", "1", "after");
    assert_eq!(without_repeats(case.values_until("A", "after", 20)), ["before", "after"]);
}
