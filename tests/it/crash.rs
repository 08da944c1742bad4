//! Kills, crashes and outages of PostgreSQL and its relay under load: afterwards every committed row has arrived, and
//! once repeats are dropped by header `id`, each key's records are in commit order. How to see figures: `kills`.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::kills::{self, MIB, start};
use crate::support::load::{Ground, Load, finish};
use crate::support::{Case, Kafka, PrivateKafka, PrivateServer, Server, Version, base_table, eventually, signal, size};

on_each_version!(
    fr_46_killed_at_random_moments,
    killed_between_acknowledgement_and_position_record,
    crashed_between_position_record_and_confirmation,
    killed_inside_a_large_transaction,
);

fn fr_46_killed_at_random_moments(version: Version) {
    kills::at_random_moments(&Case::new(version), size(60_000, 300_000), size(6, 20));
}

fn killed_between_acknowledgement_and_position_record(version: Version) {
    kills::between_acknowledgement_and_position_record(&Case::new(version));
}

fn killed_inside_a_large_transaction(version: Version) {
    kills::inside_a_large_transaction(&Case::new(version), size(50_000, 200_000));
}

// Proves: when the position is stored but the server never took the confirmation, and its slot comes back even older
// after a crash, the relay goes on without a false alarm and loses nothing.
fn crashed_between_position_record_and_confirmation(version: Version) {
    let server = PrivateServer::start(version, "");
    let mut case = Case::on(&server, &Kafka::shared());
    case.db.run(&base_table("outbox"));
    let mut ledger = kills::ledger(&case);
    let config = case.quiet_config().set("delivery.position-interval", "3s");
    let relay = start(&config);
    let load = Load { writers: 1, rows: 10_000, ..Load::full_speed(0) };
    let mut rows = 0;
    let (stored, confirmed) = (0..10)
        .find_map(|_| {
            case.db.run(&case.transaction_sql(&load, 0, rows, rows + 100));
            rows += 100;
            ledger.read_until(rows, 30);
            let walsender = case.slot().unwrap().active_pid.expect("nobody reads from the slot");
            assert!(signal(walsender, "STOP"));
            if case.confirmed() < case.db.log_end() {
                return Some(eventually("a stored position that is not confirmed", 30, || {
                    let (stored, confirmed) = (case.stored_position()?, case.confirmed());
                    (stored > confirmed).then_some((stored, confirmed))
                }));
            }
            // the rows were confirmed between their arrival and the signal: once more
            assert!(signal(walsender, "CONT"));
            None
        })
        .expect("the confirmation always came first");
    relay.kill9();
    kill9_server(&server);
    server.start_again();
    case.db.reconnect();
    let came_back = case.confirmed();
    assert!(came_back < stored, "the slot is as new as the position record: nothing was tried");

    let relay = start(&config);
    case.db.run(&case.transaction_sql(&load, 0, rows, rows + 1));
    ledger.complete(0..=rows, 30);
    println!(
        "{rows} rows, stored {} bytes ahead of the confirmed position, {} ahead of it after the crash: {} repeats",
        stored - confirmed,
        stored - came_back,
        ledger.repeats
    );
    assert_eq!(relay.terminate(), Some(0));
}

#[test]
fn the_server_is_killed_under_load() {
    let server = PrivateServer::start(Version::V18, "");
    let case = Case::on(&server, &Kafka::shared());
    case.db.run(&base_table("outbox"));
    let crash = || {
        kill9_server(&server);
        server.start_again();
    };
    kills::of_the_server(&case, (size(40_000, 200_000), size(2, 6)), crash, || {
        let committed = case.db.session().rows("SELECT split_part(payload, ' ', 1) FROM outbox");
        committed.iter().map(|row| row[0].as_deref().unwrap().parse().unwrap()).collect()
    });
}

/// Kills every process of a private server.
#[track_caller]
fn kill9_server(server: &Server) {
    let data = server.dir.join("data").canonicalize().unwrap();
    let processes = || -> Vec<String> {
        let all = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
        let here = |process: &Path| std::fs::read_link(process.join("cwd")).is_ok_and(|cwd| cwd == data);
        let name = |process: &Path| Some(process.file_name()?.to_str()?.to_owned());
        all.filter(|process| here(process)).filter_map(|process| name(&process)).collect()
    };
    let found = processes();
    assert!(!found.is_empty(), "the server does not run");
    // some end by themselves meanwhile
    let _ = Command::new("kill").arg("-9").args(&found).output();
    // one that was just being made ends with its parent; a dead parent that nobody has fetched yet looks alive to pg_ctl
    let gone = |process: &String| !Path::new("/proc").join(process).exists();
    eventually("the server has gone", 30, || (found.iter().all(gone) && processes().is_empty()).then_some(()));
}

// Proves: memory does not grow with a transaction, and the server keeps being answered inside of one although the
// broker takes nothing for longer than the server waits for an answer.
#[test]
fn fr_50_one_huge_transaction() {
    let rows = size(100_000, 1_000_000);
    let broker = PrivateKafka::start();
    let case = Case::on(&Server::shared(Version::V15), &broker);
    case.db.run(&base_table("outbox"));
    let mut ledger = kills::ledger(&case);
    let relay = start(&case.quiet_config());
    let session_of_relay = case.slot().unwrap().active_pid;
    let load = Load { writers: 1, rows, per_transaction: rows, bytes: 1_000, ..Load::full_speed(rows) };
    let writers = load.begin(&case);
    ledger.read_until(rows / 10, 300);
    broker.freeze();
    std::thread::sleep(Duration::from_secs(12));
    let frozen_at = ledger.arrived();
    broker.thaw();
    finish(writers);
    ledger.complete(load.numbers(), 30);
    let peak = relay.peak_memory();
    println!("one transaction of {rows} rows of 1 kB: {} repeats, peak {} MiB", ledger.repeats, peak / MIB);
    assert!(frozen_at < rows, "it was done before the broker froze: nothing was tried");
    assert_eq!(case.slot().unwrap().active_pid, session_of_relay, "the server gave the connection up");
    assert_eq!(relay.metric("outbox_source_reconnects_total"), Some(0.0));
    assert!(peak < 128 * MIB, "peak memory {} MiB", peak / MIB);
    assert_eq!(relay.terminate(), Some(0));
}

// Proves: while the broker is away memory is bounded and the position stands; afterwards everything arrives.
#[test]
fn the_broker_is_away_under_load() {
    let outage = Duration::from_secs(size(20, 600));
    let rows = (outage.as_secs() + 20) * 1_000;
    let window = MIB;
    let broker = PrivateKafka::start();
    let case = Case::on(&Server::shared(Version::V18), &broker);
    case.db.run(&base_table("outbox"));
    let mut ledger = kills::ledger(&case);
    let relay = start(&case.quiet_config().set("delivery.window-bytes", i64::try_from(window).unwrap()));
    // 1,000 rows a second, or what the machine can
    let pause = Duration::from_millis(10);
    let load = Load { writers: 2, rows: rows / 2, keys: 500, per_transaction: 5, pause, ..Load::full_speed(rows) };
    let writers = load.begin(&case);
    ledger.read_until(5_000, 60);
    broker.stop();
    let stopped = Instant::now();
    // what was acknowledged before may still be confirmed
    std::thread::sleep(Duration::from_secs(3));
    let (confirmed, at_first) = (case.confirmed(), relay.memory());
    let mut most = at_first;
    while stopped.elapsed() < outage {
        most = most.max(relay.memory());
        assert_eq!(case.confirmed(), confirmed, "the position moved while the broker was away");
        std::thread::sleep(Duration::from_millis(200));
    }
    broker.start_again();
    finish(writers);
    ledger.complete(load.numbers(), 20);
    println!(
        "broker away for {outage:?}: {rows} rows, {} repeats, memory {} MiB, at most {} MiB",
        ledger.repeats,
        at_first / MIB,
        most / MIB
    );
    assert!(most < at_first + window + 16 * MIB, "memory grew from {} to {} MiB", at_first / MIB, most / MIB);
    assert_eq!(relay.terminate(), Some(0));
}
