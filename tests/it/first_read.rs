//! The first read under load: rows stand in the table when the relay begins and more are written all the time, and
//! whatever happens in between, all of them arrive.
//!
//! `OUTBOX_TEST_LONG=1` runs the full sizes.

use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::support::{
    Case, Config, Kafka, Outboxd, PrivateKafka, PrivateServer, Server, Session, Version, base_table, eventually, quote,
    size,
};

on_each_version!(
    rows_stand_and_more_are_written,
    killed_in_the_middle,
    broker_away_in_the_middle,
    stopped_in_the_middle,
    server_stopped_in_the_middle,
    holder_of_the_slot_ended_in_the_middle,
    standby_while_the_table_is_read,
    waits_for_open_transactions,
    memory_is_bounded,
);

const KIND: &str = "A";

/// A window so small and rows so reluctant that a read takes its time on any machine: 0.3 ms for each row, at the least.
fn slow(case: &Case) -> Config {
    reluctant(case, 0.3)
}

/// As [`slow`], with another number of milliseconds for each row.
fn reluctant(case: &Case, milliseconds: f64) -> Config {
    let pause = format!("pg_sleep({milliseconds} / 1000.0) IS NOT NULL");
    case.config().set("delivery.window-bytes", 65_536).set("outbox.start-where", pause)
}

/// The permanent slot, which appears when all is read.
fn has_slot(case: &Case) -> bool {
    case.slot().is_some()
}

/// The slot that lives as long as the read: the process that holds it.
fn reader_pid(case: &Case) -> Option<u32> {
    case.db.slot(&format!("{}_first_read", case.object()))?.active_pid
}

/// Rows that were read and acknowledged by now.
fn rows_read(relay: &Outboxd) -> u64 {
    relay.metric("outbox_snapshot_rows_total").map_or(0, |rows| rows as u64)
}

#[track_caller]
fn wait_rows(relay: &Outboxd, rows: u64) {
    eventually(&format!("{rows} rows of the first read"), size(60, 600), || (rows_read(relay) >= rows).then_some(()));
}

/// Inserts the payloads `first..first + count` as [`Case::insert_many`] does, in a thread, with pauses.
fn begin_to_write(case: &Case, first: u64, count: u64, per_transaction: u64, pause: Duration) -> JoinHandle<()> {
    let (url, kind, end) = (case.db.url(), quote(&case.kind(KIND)), first + count);
    std::thread::spawn(move || {
        let session = Session::connect(&url);
        let mut from = first;
        while from < end {
            let to = end.min(from + per_transaction);
            session.run(&format!(
                "INSERT INTO outbox (aggregatetype, aggregateid, payload) \
                 SELECT {kind}, 'k' || i % 10, i::text FROM generate_series({from}, {}) i",
                to - 1
            ));
            from = to;
            std::thread::sleep(pause);
        }
    })
}

/// How many records the topic holds.
fn records(case: &Case) -> u64 {
    u64::try_from(case.kafka.read_all(&case.topic(KIND)).len()).unwrap()
}

#[track_caller]
fn assert_only_the_slot(case: &Case) {
    let slots = format!(
        "SELECT string_agg(slot_name || temporary, ',') FROM pg_replication_slots WHERE database = '{}'",
        case.tag
    );
    assert_eq!(case.db.text(&slots), Some(format!("{}false", case.object())));
}

/// Proves that between the rows that stand in the table and those that are written meanwhile there is neither a gap nor a
/// repeat, and that health and metrics tell what goes on.
fn rows_stand_and_more_are_written(version: Version) {
    let (standing, written) = (size(50_000, 1_000_000), size(10_000, 200_000));
    let case = Case::new(version);
    case.insert_many(KIND, 0, standing, 10_000);
    // so that it writes for longer than the read takes
    let pause = Duration::from_millis(size(4, 100));
    let writer = begin_to_write(&case, standing, written, written / 1_000, pause);
    let count = || case.db.text("SELECT count(*) FROM outbox").unwrap().parse::<u64>().unwrap();
    eventually("the writer writes", 20, || (count() > standing).then_some(()));
    let relay = Outboxd::start(&case.config());
    let health = relay.wait_health("reading", 20, |health| health.phase() == "reading");
    assert_eq!((health.status, health.reason()), (200, "reading_table"), "{health:?}");
    assert_eq!(relay.metric("outbox_snapshot_running"), Some(1.0));
    relay.wait_health("streaming", size(60, 600), |health| health.phase() == "streaming");
    assert!(!writer.is_finished(), "the writer was done before the stream began: nothing was tried");
    let of_snapshot = rows_read(&relay);
    writer.join().unwrap();
    let repeats = case.consume_complete(KIND, 0, standing + written, size(60, 600));
    assert_eq!(relay.metric("outbox_snapshot_running"), Some(0.0));
    assert_eq!(relay.metric("outbox_source_reconnects_total"), Some(0.0));
    assert_eq!(relay.metric("outbox_events_total"), Some((standing + written) as f64));
    assert_only_the_slot(&case);
    assert_eq!(relay.terminate(), Some(0));
    println!("{of_snapshot} rows of the table, {} of the log", standing + written - of_snapshot);
    assert!((standing + 1..standing + written).contains(&of_snapshot), "{of_snapshot} rows of the table");
    assert_eq!((repeats, records(&case)), (0, standing + written), "records came twice");

    // and a later start reads nothing
    let relay = case.start();
    case.insert(KIND, "k0", &(standing + written).to_string());
    case.consume_complete(KIND, 0, standing + written + 1, 30);
    assert_eq!(rows_read(&relay), 0);
    assert_eq!(records(&case), standing + written + 1);
}

/// Proves that a relay that is killed in the middle begins the read again: repeats, no loss.
fn killed_in_the_middle(version: Version) {
    let (standing, written) = (size(30_000, 300_000), size(5_000, 50_000));
    let case = Case::new(version);
    case.insert_many(KIND, 0, standing, 10_000);
    let writer = begin_to_write(&case, standing, written, written / 1_000, Duration::from_millis(4));
    for kill in 1..=3 {
        let relay = Outboxd::start(&slow(&case));
        wait_rows(&relay, standing * kill / 6);
        relay.kill9();
        assert!(!has_slot(&case), "all was read before it was killed: nothing was tried");
    }
    let relay = Outboxd::start(&case.config());
    writer.join().unwrap();
    case.consume_complete(KIND, 0, standing + written, size(60, 300));
    relay.ready();
    assert_only_the_slot(&case);
    let all = records(&case);
    println!("three kills, {} rows, {} repeats", standing + written, all - standing - written);
    assert!(all > standing + written, "the kills repeated nothing: nothing was tried");
    assert_eq!(relay.terminate(), Some(0));
}

/// Proves that an outage of the brokers in the middle only makes the read wait: the same snapshot, no repeats.
fn broker_away_in_the_middle(version: Version) {
    let standing = size(30_000, 300_000);
    let broker = PrivateKafka::start();
    let case = Case::on(&Server::shared(version), &broker);
    case.db.run(&base_table("outbox"));
    // what would end a connection that is only waited on
    for setting in
        ["idle_in_transaction_session_timeout", "statement_timeout", "wal_sender_timeout", "idle_session_timeout"]
    {
        case.db.run(&format!("ALTER DATABASE \"{}\" SET {setting} = '3s'", case.tag));
    }
    case.insert_many(KIND, 0, standing, 10_000);
    let relay = Outboxd::start(&slow(&case));
    wait_rows(&relay, standing / 10);
    broker.freeze();
    relay.wait_reason("sink_unreachable", 30);
    std::thread::sleep(Duration::from_secs(size(6, 120)));
    case.db.session().run(&case.insert_sql(KIND, "k0", &standing.to_string()));
    let read = rows_read(&relay);
    assert!(relay.stderr().contains("rows_per_second"), "no line tells how far the read is");
    broker.thaw();
    assert!(read < standing, "all was read before the broker froze: nothing was tried");
    relay.wait_health("reading again", 60, |health| health.status == 200);
    let repeats = case.consume_complete(KIND, 0, standing + 1, 120);
    relay.ready();
    assert_eq!(rows_read(&relay), standing, "the read began again");
    assert_eq!(repeats, 0);
    assert_eq!(records(&case), standing + 1);
    assert_eq!(relay.terminate(), Some(0));
}

/// Proves that a stop in the middle is prompt, and that the next start begins the read again.
fn stopped_in_the_middle(version: Version) {
    let standing = size(30_000, 300_000);
    let case = Case::new(version);
    case.insert_many(KIND, 0, standing, 10_000);
    let relay = Outboxd::start(&slow(&case));
    wait_rows(&relay, standing / 10);
    let begin = Instant::now();
    assert_eq!(relay.terminate(), Some(0));
    assert!(begin.elapsed() < Duration::from_secs(10), "the stop took {:?}", begin.elapsed());
    assert!(!has_slot(&case), "all was read before it was stopped: nothing was tried");
    assert_eq!(case.stored_position(), None, "a position was stored");
    eventually("the temporary slot has gone", 5, || reader_pid(&case).is_none().then_some(()));
    let relay = Outboxd::start(&case.config());
    case.consume_complete(KIND, 0, standing, 60);
    relay.ready();
    assert_eq!(rows_read(&relay), standing);
    assert!(records(&case) > standing);
}

/// Proves that the server can be stopped in the middle, and that the read begins again when it is back.
fn server_stopped_in_the_middle(version: Version) {
    let standing = size(30_000, 300_000);
    let server = PrivateServer::start(version, "");
    let mut case = Case::on(&server, &Kafka::shared());
    case.db.run(&base_table("outbox"));
    case.insert_many(KIND, 0, standing, 10_000);
    let relay = Outboxd::start(&slow(&case));
    wait_rows(&relay, standing / 10);
    let took = server.stop(Duration::from_secs(20));
    assert!(took.is_some(), "the server did not stop");
    let red = relay.wait_health("red", 10, |health| health.status == 503);
    assert!(["server_stopping", "source_unreachable"].contains(&red.reason()), "{red:?}");
    server.start_again();
    case.db.reconnect();
    assert!(!has_slot(&case), "all was read before the stop: nothing was tried");
    case.insert(KIND, "k0", &standing.to_string());
    case.consume_complete(KIND, 0, standing + 1, 90);
    relay.wait_health("streaming", 60, |health| health.phase() == "streaming");
    assert_only_the_slot(&case);
    assert_eq!(relay.terminate(), Some(0));
}

/// Proves that the end of the connection that holds the slot, which is idle, is noticed: the log would have a gap.
fn holder_of_the_slot_ended_in_the_middle(version: Version) {
    let standing = size(30_000, 100_000);
    let broker = PrivateKafka::start();
    let case = Case::on(&Server::shared(version), &broker);
    case.db.run(&base_table("outbox"));
    case.insert_many(KIND, 0, standing, 10_000);
    let relay = Outboxd::start(&slow(&case));
    wait_rows(&relay, standing / 10);
    broker.freeze();
    let holder = reader_pid(&case).expect("the temporary slot is there");
    case.db.run(&format!("SELECT pg_terminate_backend({holder})"));
    case.insert(KIND, "k0", &standing.to_string());
    let red = relay.wait_health("the end is noticed", 20, |health| health.phase() == "connecting");
    assert_eq!((red.status, red.reason()), (503, "source_unreachable"), "{red:?}");
    broker.thaw();
    case.consume_complete(KIND, 0, standing + 1, 90);
    relay.wait_health("streaming", 60, |health| health.phase() == "streaming");
    assert_only_the_slot(&case);
    assert_eq!(relay.terminate(), Some(0));
}

/// Proves that of two instances one reads and the other stands by, takes over with a read of its own when the first is
/// killed, and does not pass over rows if it is told to begin with "now".
fn standby_while_the_table_is_read(version: Version) {
    let standing = size(30_000, 100_000);
    let case = Case::new(version);
    case.insert_many(KIND, 0, standing, 10_000);
    // all the others come while it reads: 150 s for the least
    let first = Outboxd::start(&reluctant(&case, 5.0));
    wait_rows(&first, 1);
    let second = Outboxd::start(&case.config());
    let hasty = Outboxd::start(&case.config().set("source.postgres.start", "now"));
    for relay in [&second, &hasty] {
        let health = relay.wait_health("standing by", 20, |health| health.reason() == "standby");
        assert_eq!((health.status, health.phase()), (200, "standby"), "{health:?}");
    }
    hasty.kill9();
    assert!(!has_slot(&case), "all was read before the others came: nothing was tried");
    first.kill9();
    second.wait_health("streaming", 60, |health| health.phase() == "streaming");
    case.consume_complete(KIND, 0, standing, 30);
    assert_eq!(rows_read(&second), standing);
    assert_eq!(second.terminate(), Some(0));
}

/// Proves that the read begins when the transactions that were open before it have ended, and says that it waits.
fn waits_for_open_transactions(version: Version) {
    let server = PrivateServer::start(version, "");
    let case = Case::on(&server, &Kafka::shared());
    case.db.run(&base_table("outbox"));
    case.insert(KIND, "k0", "0");
    let open = case.db.session();
    open.run(&format!("BEGIN; {}", case.insert_sql(KIND, "k1", "1")));
    let relay = Outboxd::start(&case.config());
    let health = relay.wait_reason("slot_creating", 20);
    assert!(health.detail().contains("waits for all transactions"), "{health:?}");
    open.run("COMMIT");
    relay.ready();
    case.insert(KIND, "k2", "2");
    assert_eq!(case.consume_complete(KIND, 0, 3, 20), 0);
    assert_eq!(relay.terminate(), Some(0));
    assert_eq!(records(&case), 3);
}

/// Proves that memory follows the window and not the table.
fn memory_is_bounded(version: Version) {
    const MIB: u64 = 1 << 20;
    let rows = size(400, 4_000);
    let broker = PrivateKafka::start();
    let case = Case::on(&Server::shared(version), &broker);
    case.db.run(&base_table("outbox"));
    case.db.run(&format!(
        "INSERT INTO outbox (aggregatetype, aggregateid, payload) \
         SELECT {}, 'k' || i % 10, i || repeat('x', 500000) FROM generate_series(1, {rows}) i",
        quote(&case.kind(KIND))
    ));
    let relay = Outboxd::start(&case.config().set("delivery.window-bytes", 1 << 20));
    wait_rows(&relay, 1);
    broker.freeze();
    std::thread::sleep(Duration::from_secs(3));
    broker.thaw();
    relay.wait_health("streaming", 120, |health| health.phase() == "streaming");
    let peak = relay.peak_memory();
    println!("{} MiB of rows, peak {} MiB", rows * 500_000 / MIB, peak / MIB);
    assert!(peak < 64 * MIB, "peak memory {} MiB", peak / MIB);
    assert_eq!(records(&case), rows);
}
