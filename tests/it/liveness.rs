//! Slot, connection and health: staying alive, telling the truth, holding nothing back.

use std::time::Duration;

use crate::support::case::without_repeats;
use crate::support::gate::Gate;
use crate::support::walsender::SlotHolder;
use crate::support::{
    Case, Kafka, Outboxd, PrivateKafka, PrivateServer, Version, base_table, eventually, holds, lsn, signal, size,
};

on_each_version!(
    fr_01_idle_outbox_holds_no_log_back,
    fr_02_slot_in_use,
    fr_03_slot_invalidated,
    fr_04_broker_slow,
    fr_05_stream_dead,
    fr_05_stream_idle,
    silent_while_attaching,
    rows_that_are_not_brought_yet,
    fr_06_publication_newer_than_slot,
    fr_07_no_primary_key,
    fr_47_standby,
    fr_47_standby_takes_over_what_was_published_meanwhile,
    position_is_stored_before_it_is_confirmed,
    adopts_what_stands_there,
    database_comes_later,
    host_not_found,
);

/// Proves that an idle outbox in a busy database holds no log back, without a heartbeat.
fn fr_01_idle_outbox_holds_no_log_back(version: Version) {
    const TWO_SEGMENTS: u64 = 2 * 16 * 1024 * 1024;
    let case = Case::new(version);
    case.db.run("CREATE TABLE other (t text)");
    let relay = case.start();
    for _ in 0..size(4, 6) {
        let rows = size(30_000, 200_000);
        case.db.run(&format!("INSERT INTO other SELECT repeat('x', 1000) FROM generate_series(1, {rows})"));
    }
    let end = case.db.log_end();
    eventually("the confirmed position follows", 30, || (case.confirmed() >= end).then_some(()));
    // the server moves restart_lsn with the next checkpoint's record of running transactions
    eventually("the slot lets the log go", 30, || {
        case.db.run("CHECKPOINT");
        let restart = case.slot()?.restart?;
        (restart + TWO_SEGMENTS > end).then_some(())
    });
    case.insert("A", "1", "still alive");
    case.consume("A", 1, 20);
    assert_eq!(relay.metric("outbox_source_reconnects_total").unwrap_or(0.0), 0.0);
}

/// Proves that a slot in somebody else's use is waited for, red, naming the process, and taken soon after it is free;
/// no other slot is made and the holder is left alone.
fn fr_02_slot_in_use(version: Version) {
    let case = Case::new(version);
    let name = case.object();
    case.db.run(&format!("CREATE PUBLICATION {name} FOR TABLE outbox WITH (publish = 'insert')"));
    case.db.run(&format!("SELECT pg_create_logical_replication_slot('{name}', 'pgoutput')"));
    let holder = SlotHolder::start(&case.db, &name, &name);
    let pid = case.slot().unwrap().active_pid.unwrap();
    case.insert("A", "1", "waits");

    let relay = Outboxd::start(&case.config());
    let health = relay.wait_reason("slot_in_use", 10);
    assert!(health.detail().contains(&pid.to_string()), "process {pid} is not named: {health:?}");
    holds("it waits and the holder lives", Duration::from_secs(size(4, 20)), || {
        relay.health().is_some_and(|health| health.status == 503) && case.slot().unwrap().active_pid == Some(pid)
    });
    drop(holder);
    relay.wait_health("streaming after the release", 5, |health| health.status == 200);
    case.consume("A", 1, 10);
    let slots = format!("SELECT count(*) FROM pg_replication_slots WHERE database = '{}'", case.tag);
    assert_eq!(case.db.text(&slots).as_deref(), Some("1"));
}

/// Proves that a slot whose log the server has thrown away is a terminal state with the gap; the slot is not made
/// again; `on-terminal = "exit"` ends with 3.
fn fr_03_slot_invalidated(version: Version) {
    let server =
        PrivateServer::start(version, "max_slot_wal_keep_size = 1MB\nmax_wal_size = 64MB\nmin_wal_size = 32MB");
    let case = Case::on(&server, &Kafka::shared());
    case.db.run(&base_table("outbox"));
    let relay = case.start();
    case.insert("A", "1", "first");
    case.consume("A", 1, 20);
    assert_eq!(relay.terminate(), Some(0));

    let before = case.db.log_end();
    for i in 0..4 {
        case.insert("A", "1", &format!("lost {i}"));
        case.db.run("SELECT pg_switch_wal()");
    }
    eventually("the slot is invalidated", 20, || {
        case.db.run("CHECKPOINT");
        (case.slot()?.wal_status.as_deref() == Some("lost")).then_some(())
    });
    let relay = Outboxd::start(&case.config());
    let health = relay.wait_terminal(&["slot_invalidated"], 20);
    let from = health.gap("from").expect("no begin of the gap");
    assert!(from <= before, "the gap begins too late: {health:?}");
    assert_eq!(case.slot().unwrap().wal_status.as_deref(), Some("lost"), "the slot is left as it is");
    relay.kill9();

    let ended = Outboxd::run_to_end(&case.config().set("on-terminal", "exit"));
    assert_eq!(ended.code, Some(3), "{}", ended.stderr);
    assert_eq!(case.kafka.read_all(&case.topic("A")).len(), 1);
}

/// Proves that a broker that does not answer costs neither the source's connection, nor memory, nor an event, and the
/// position stays before what is not acknowledged.
fn fr_04_broker_slow(version: Version) {
    let broker = PrivateKafka::start();
    let case = Case::on(&crate::support::Server::shared(version), &broker);
    case.db.run(&base_table("outbox"));
    case.db.run(&format!("ALTER DATABASE \"{}\" SET wal_sender_timeout = '5s'", case.tag));
    let limit = 4 << 20;
    let relay = Outboxd::start(&case.config().set("delivery.window-bytes", limit));
    relay.ready();
    case.insert_many("A", 0, 10, 10);
    case.consume("A", 10, 20);
    let walsender = case.slot().unwrap().active_pid.expect("not streaming");

    broker.freeze();
    let count = size(20_000, 100_000);
    case.insert_many("A", 10, 10, 10);
    let first = case.db.log_end();
    case.insert_many("A", 20, count, 100);
    holds("one connection, position and memory bounded", Duration::from_secs(size(20, 60)), || {
        let slot = case.slot().unwrap();
        let in_flight = relay.metric("outbox_in_flight_bytes").unwrap();
        slot.active_pid == Some(walsender)
            && slot.confirmed.unwrap() < first
            && in_flight <= 4_194_304.0 + 1_048_576.0
            && relay.memory() < 200 << 20
    });
    broker.thaw();
    case.consume_complete("A", 0, count + 20, 60);
    assert_eq!(case.slot().unwrap().active_pid, Some(walsender), "the connection was made again");
}

/// Proves that a stream that is dead but looks alive is noticed, red, and replaced; nothing is lost.
fn fr_05_stream_dead(version: Version) {
    let server = PrivateServer::start(version, "");
    let case = Case::on(&server, &Kafka::shared());
    case.db.run(&base_table("outbox"));
    let relay = Outboxd::start(&case.config().set("source.postgres.silence-timeout", "10s"));
    relay.ready();
    case.insert("A", "1", "before");
    case.consume("A", 1, 20);
    let walsender = case.slot().unwrap().active_pid.expect("not streaming");
    assert!(signal(walsender, "STOP"));
    case.insert("A", "1", "meanwhile");
    let health = relay.wait_health("red", 15, |health| health.status == 503);
    assert!(
        ["source_silent", "slot_in_use", "source_unreachable"].contains(&health.reason()),
        "not said what is wrong: {health:?}"
    );
    assert!(signal(walsender, "CONT"));
    relay.wait_health("streaming again", 30, |health| health.status == 200 && health.phase() == "streaming");
    case.insert("A", "1", "after");
    let values = without_repeats(case.values_until("A", "after", 20));
    assert_eq!(values, ["before", "meanwhile", "after"]);
}

/// Proves that a stream in which nothing happens is not taken for a dead one.
fn fr_05_stream_idle(version: Version) {
    let server = PrivateServer::start(version, "");
    let case = Case::on(&server, &Kafka::shared());
    case.db.run(&base_table("outbox"));
    let relay = Outboxd::start(&case.config().set("source.postgres.silence-timeout", "10s"));
    relay.ready();
    let walsender = case.slot().unwrap().active_pid.expect("not streaming");
    holds("one connection", Duration::from_secs(size(30, 600)), || {
        case.slot().unwrap().active_pid == Some(walsender) && relay.health().is_some_and(|health| health.status == 200)
    });
    assert_eq!(relay.metric("outbox_source_reconnects_total").unwrap_or(0.0), 0.0);
}

/// Proves that a server that lets us in and then does not answer is given up and tried again, red.
fn silent_while_attaching(version: Version) {
    let server = PrivateServer::start(version, "");
    let case = Case::on(&server, &Kafka::shared());
    case.db.run(&base_table("outbox"));
    let blocker = case.db.session();
    // whoever reads the catalogue waits for this
    blocker.run("BEGIN; LOCK TABLE pg_publication IN ACCESS EXCLUSIVE MODE");
    let config =
        case.config().set("source.postgres.silence-timeout", "2s").set("source.postgres.connect-timeout", "1s");
    let relay = Outboxd::start(&config);
    relay.wait_reason("source_silent", 15);
    blocker.run("ROLLBACK");
    relay.ready();
    case.insert("A", "1", "at last");
    case.consume("A", 1, 20);
}

/// Proves that rows which the server has not brought yet are pending: it may have to look through much of what others wrote.
fn rows_that_are_not_brought_yet(version: Version) {
    let case = Case::new(version);
    case.db.run("CREATE TABLE other (t text)");
    assert_eq!(case.start().terminate(), Some(0));
    let rows = size(150_000, 1_000_000);
    case.db.run(&format!("INSERT INTO other SELECT repeat('x', 1000) FROM generate_series(1, {rows})"));
    case.insert("A", "1", "behind all that");
    let relay = Outboxd::start(&case.config());
    let mut looks = 0;
    loop {
        let Some((_, metrics)) = relay.get("/metrics") else { continue };
        let value = |name: &str| {
            let line = metrics.lines().find(|line| line.starts_with(&format!("{name}{{")));
            line.and_then(|line| line.split_whitespace().last()?.parse::<f64>().ok())
                .unwrap_or_else(|| panic!("{name}"))
        };
        if value("outbox_events_total") > 0.0 {
            break;
        }
        if value("outbox_source_connected") > 0.0 {
            assert!(value("outbox_pending_seconds") > 0.0, "nothing is said to be pending at look {looks}");
            looks += 1;
        }
    }
    assert!(looks > 0, "the server was too quick to show anything");
    eventually("nothing is pending", 20, || (relay.metric("outbox_pending_seconds")? == 0.0).then_some(()));
}

/// Proves that a slot older than the publication is a state of its own: terminal, the slot is kept and the row before
/// the publication is not passed by.
fn fr_06_publication_newer_than_slot(version: Version) {
    let case = Case::new(version);
    let name = case.object();
    case.db.run(&format!("SELECT pg_create_logical_replication_slot('{name}', 'pgoutput')"));
    let confirmed = case.confirmed();
    case.insert("A", "1", "before the publication");
    case.db.run(&format!("CREATE PUBLICATION {name} FOR TABLE outbox"));
    let relay = Outboxd::start(&case.config());
    let health = relay.wait_terminal(&["publication_newer_than_slot"], 30);
    assert!(health.detail().contains(&name), "the publication is not named: {health:?}");
    assert_eq!(case.confirmed(), confirmed, "the position moved over the row");
}

/// Proves that the publication that the relay makes does not break deletes on a table without primary key.
fn fr_07_no_primary_key(version: Version) {
    let case = Case::bare(version);
    case.db.run("CREATE TABLE outbox (id text, aggregatetype text, aggregateid text, payload text)");
    let _relay = case.start();
    case.db.run(&format!("INSERT INTO outbox VALUES ('e1', '{}', '1', 'first')", case.kind("A")));
    case.db.run("UPDATE outbox SET payload = 'changed'; DELETE FROM outbox;");
    case.db.run(&format!("INSERT INTO outbox VALUES ('e2', '{}', '1', 'last')", case.kind("A")));
    assert_eq!(case.values_until("A", "last", 20), ["first", "last"]);
    let made = case.db.rows(&format!(
        "SELECT pubinsert, pubupdate, pubdelete, pubtruncate, pubviaroot FROM pg_publication WHERE pubname = '{}'",
        case.object()
    ));
    let made: Vec<_> = made[0].iter().map(|cell| cell.as_deref().unwrap()).collect();
    assert_eq!(made, ["t", "f", "f", "f", "t"]);
}

/// Proves that a second instance of the same name stands by, ready, and takes over when the first is killed.
fn fr_47_standby(version: Version) {
    let case = Case::new(version);
    let first = case.start();
    case.insert("A", "1", "by the first");
    case.consume("A", 1, 20);
    let second = Outboxd::start(&case.config());
    let health = second.wait_health("standby", 10, |health| health.reason() == "standby");
    assert_eq!((health.status, health.phase()), (200, "standby"));
    assert_eq!(first.health().map(|health| health.status), Some(200), "the first one goes on");
    first.kill9();
    second.wait_health("taken over", 10, |health| health.phase() == "streaming");
    case.insert("A", "1", "by the second");
    let values = without_repeats(case.values_until("A", "by the second", 20));
    assert_eq!(values, ["by the first", "by the second"]);
}

/// Proves that an instance that takes over goes on, although its predecessor has published what was committed behind the
/// end of the log that it was told before the slot was free.
fn fr_47_standby_takes_over_what_was_published_meanwhile(version: Version) {
    let case = Case::new(version);
    let first = case.start();
    case.insert("A", "1", "one");
    case.consume("A", 1, 20);
    // it knows the end of the log, and has not asked for the slot
    let gate = Gate::start(case.db.server.port, "START_REPLICATION");
    let url = format!("postgres://postgres@127.0.0.1:{}/{}?sslmode=disable", gate.port, case.tag);
    let second = Outboxd::start(&case.config().set("source.postgres.url", url));
    eventually("the second instance is on its way", 20, || gate.holds().then_some(()));
    case.insert("A", "1", "two");
    let end = case.db.log_end();
    eventually("the position is stored", 20, || case.stored_position().filter(|stored| *stored >= end));
    assert_eq!(first.terminate(), Some(0));
    gate.open();
    second.wait_health("taken over", 20, |health| health.phase() == "streaming" || health.phase() == "terminal");
    case.insert("A", "1", "three");
    assert_eq!(without_repeats(case.values_until("A", "three", 20)), ["one", "two", "three"]);
}

/// Proves the order of the two marks: the stored position is never behind what the slot has confirmed, and both follow
/// the events.
fn position_is_stored_before_it_is_confirmed(version: Version) {
    let case = Case::new(version);
    let _relay = case.start();
    let at_first = case.confirmed();
    for i in 0..20 {
        case.insert("A", "1", &i.to_string());
        let end = case.db.log_end();
        eventually("the slot follows", 20, || {
            // read in this order: the stored position may only grow in between
            let confirmed = case.confirmed();
            let Some(stored) = case.stored_position() else {
                assert_eq!(confirmed, at_first, "confirmed without having stored any position");
                return None;
            };
            assert!(stored >= confirmed, "confirmed {confirmed:X} without having stored it ({stored:X})");
            // other tests write to the same log, so the end of ours is passed sooner or later
            (confirmed + 4096 >= end || stored >= end).then_some(())
        });
    }
    let policy = case.kafka.topic_option(&case.positions_topic(), "cleanup.policy");
    assert_eq!(policy.as_deref(), Some("compact"));
}

/// Proves that a slot and a publication that stand there are adopted: what was committed since the slot was made is
/// published, older rows are not.
fn adopts_what_stands_there(version: Version) {
    let case = Case::new(version);
    case.insert("A", "1", "before the slot");
    let name = case.object();
    case.db.run(&format!("CREATE PUBLICATION {name} FOR TABLE outbox"));
    case.db.run(&format!("SELECT pg_create_logical_replication_slot('{name}', 'pgoutput')"));
    case.insert("A", "1", "after the slot");
    let _relay = case.start();
    case.insert("A", "1", "last");
    assert_eq!(case.values_until("A", "last", 20), ["after the slot", "last"]);
}

/// Proves that a database that cannot be reached at the start is tried again, red, until it can.
fn database_comes_later(version: Version) {
    let server = PrivateServer::start(version, "");
    let case = Case::on(&server, &Kafka::shared());
    case.db.run(&base_table("outbox"));
    assert!(server.stop(Duration::from_secs(60)).is_some());
    let mut relay = Outboxd::start(&case.config());
    let health = relay.wait_reason("source_unreachable", 10);
    assert!(health.detail().contains(&server.port.to_string()), "the address is not named: {health:?}");
    assert!(relay.is_running());
    server.start_again();
    relay.ready();
    let session = case.db.session();
    session.run(&case.insert_sql("A", "1", "at last"));
    case.consume("A", 1, 20);
    let confirmed = session
        .text(&format!("SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = '{}'", case.object()));
    assert!(lsn(&confirmed.unwrap()) > 0);
}

/// Proves that a host name that nobody knows is tried again, red and by name: the name may come.
fn host_not_found(version: Version) {
    let case = Case::new(version);
    let url = "postgres://postgres@no-such-host.invalid:5432/x";
    let mut relay = Outboxd::start(&case.config().set("source.postgres.url", url));
    let health = relay.wait_reason("source_unreachable", 20);
    assert!(health.detail().contains("no-such-host.invalid"), "the host is not named: {health:?}");
    assert!(relay.is_running());
}
