//! What a kill must not lose, on whichever database: the bodies of the tests in `crash` and `mysql_crash`.
//!
//! Every test prints what it counted; `tests/run --test it -- --nocapture crash` shows it. `OUTBOX_TEST_LONG=1` runs
//! the full sizes, `OUTBOX_TEST_SEED` repeats the moments of an earlier run.

use std::time::{Duration, SystemTime};

use crate::support::ledger::{Dice, Ledger};
use crate::support::load::{Ground, KIND, Load, finish};
use crate::support::{Config, Outboxd, eventually};

pub(crate) const MIB: u64 = 1 << 20;

/// The account of a ground's topic.
#[track_caller]
pub(crate) fn ledger(ground: &impl Ground) -> Ledger {
    let topic = ground.topic_of_load();
    assert!(topic.ends_with(KIND), "{topic}");
    Ledger::open(ground.kafka(), topic)
}

#[track_caller]
pub(crate) fn start(config: &Config) -> Outboxd {
    let relay = Outboxd::start(config);
    relay.ready();
    relay
}

/// Proves: kill -9 at any moment loses nothing and breaks no key's order, and a kill repeats no more than what was in
/// flight: the window, and what was acknowledged since the last position record, a second ago at most.
pub(crate) fn at_random_moments(ground: &impl Ground, rows: u64, kills: u64) {
    let mut dice = Dice::new();
    let seed = dice.0;
    let mut ledger = ledger(ground);
    let window = MIB;
    let config = ground.quiet_config().set("delivery.window-bytes", i64::try_from(window).unwrap());
    let mut relay = start(&config);
    let load = Load::full_speed(rows);
    let writers = load.begin(ground);
    let mut bound = 0;
    for kill in 0..kills {
        if kill % 2 == 0 {
            // in the midst of the stream
            let left = rows.saturating_sub(ledger.arrived()) / (kills - kill);
            ledger.read_until(ledger.arrived() + dice.below(left), 60);
        } else {
            // perhaps while it starts
            std::thread::sleep(Duration::from_millis(dice.below(1500)));
        }
        let lately = SystemTime::now() - Duration::from_secs(1);
        relay.kill9();
        ledger.read_to_end();
        bound += window / load.bytes + ledger.taken_since(lately);
        relay = Outboxd::start(&config);
    }
    finish(writers);
    ledger.complete(load.numbers(), 20);
    let (records, repeats) = (ledger.records, ledger.repeats);
    println!("seed {seed}: {kills} kills, {rows} rows, {records} records, {repeats} repeats (at most {bound})");
    assert!(repeats <= bound, "{repeats} repeats after {kills} kills");
    assert_eq!(relay.terminate(), Some(0));
}

/// Proves: records that were acknowledged while their position was not yet stored come again, all of them; after a stop
/// in good order none does.
pub(crate) fn between_acknowledgement_and_position_record(ground: &impl Ground) {
    let rows = 2_000;
    let mut ledger = ledger(ground);
    let config = ground.quiet_config().set("delivery.position-interval", "60s");
    let relay = start(&config);
    let stored = Some(eventually("a position record from the start on", 5, || ground.position_text()));
    let load = Load { writers: 1, rows, ..Load::full_speed(rows) };
    finish(load.begin(ground));
    ledger.read_until(rows, 30);
    assert_eq!(ground.position_text(), stored, "the position moved before its time");
    relay.kill9();

    let relay = start(&config);
    eventually("all come again", 30, || {
        ledger.read();
        (ledger.repeats >= rows).then_some(())
    });
    assert_eq!(relay.terminate(), Some(0));
    assert!(ground.position_text() != stored, "the position did not move at the stop");

    let relay = start(&config);
    let mut link = ground.connector()().unwrap();
    link(&ground.transaction_sql(&load, 0, rows, rows + 1)).unwrap();
    ledger.complete(0..=rows, 30);
    let (records, repeats) = (ledger.records, ledger.repeats);
    println!("{rows} rows, killed before their position was stored: {records} records, {repeats} repeats");
    assert_eq!(repeats, rows, "each row once more after the kill, none after the stop");
    relay.kill9();
}

/// Proves: a transaction counts as a whole. Killed in the midst of it, the relay begins it again from its first row.
pub(crate) fn inside_a_large_transaction(ground: &impl Ground, rows: u64) {
    let mut ledger = ledger(ground);
    // a small window, so that it takes its time
    let config = ground.quiet_config().set("delivery.window-bytes", 65_536);
    let relay = start(&config);
    let load = Load { writers: 1, rows, per_transaction: rows, ..Load::full_speed(rows) };
    let writers = load.begin(ground);
    ledger.read_until(rows / 5, 60);
    relay.kill9();
    finish(writers);
    // the broker may still take what stands in its socket
    std::thread::sleep(Duration::from_secs(1));
    ledger.read_to_end();
    let before = ledger.records;
    assert!(before < rows, "it was done before it was killed: nothing was tried");

    let relay = start(&config);
    eventually("the whole transaction again", 120, || {
        ledger.read();
        (ledger.records >= before + rows).then_some(())
    });
    ledger.complete(load.numbers(), 1);
    println!("one transaction of {rows} rows, killed after {before}: {} records", ledger.records);
    assert_eq!(ledger.records, before + rows, "from its first row to its last, once");
    assert_eq!(relay.terminate(), Some(0));
}

/// Proves: when the database server is killed under load, the relay comes back by itself and publishes all that was
/// committed, which is asked for afterwards.
pub(crate) fn of_the_server(
    ground: &impl Ground,
    (rows, crashes): (u64, u64),
    crash: impl Fn(),
    committed: impl FnOnce() -> Vec<u64>,
) {
    let mut ledger = ledger(ground);
    let relay = start(&ground.quiet_config());
    let load = Load { stubborn: true, ..Load::full_speed(rows) };
    let writers = load.begin(ground);
    for number in 1..=crashes {
        ledger.read_until(rows * number / (crashes + 2), 120);
        crash();
    }
    finish(writers);
    let committed = committed();
    assert_eq!(u64::try_from(committed.len()).unwrap(), load.total(), "the writers wrote all");
    ledger.complete(committed.into_iter(), 20);
    println!("{crashes} crashes of the server, {rows} rows, {} repeats", ledger.repeats);
    assert_eq!(relay.terminate(), Some(0));
}
