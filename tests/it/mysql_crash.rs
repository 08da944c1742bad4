//! MySQL and MariaDB: kills of the relay and of the server under load. How to see figures: `kills`.

use crate::kills::{self, MIB};
use crate::support::load::{Ground, Load};
use crate::support::mysql::{Kind, MysqlCase, PrivateMysql};
use crate::support::size;

on_each_binlog![
    fr_46_killed_at_random_moments,
    killed_between_acknowledgement_and_position_record,
    killed_inside_a_large_transaction,
    the_server_is_killed_under_load,
    fr_50_one_huge_transaction,
];

fn fr_46_killed_at_random_moments(kind: Kind) {
    kills::at_random_moments(&MysqlCase::new(kind), size(20_000, 300_000), size(4, 20));
}

fn killed_between_acknowledgement_and_position_record(kind: Kind) {
    kills::between_acknowledgement_and_position_record(&MysqlCase::new(kind));
}

fn killed_inside_a_large_transaction(kind: Kind) {
    kills::inside_a_large_transaction(&MysqlCase::new(kind), size(20_000, 200_000));
}

/// With the settings under which the server promises to keep what it has committed.
fn the_server_is_killed_under_load(kind: Kind) {
    let server = PrivateMysql::start(kind, &["--sync-binlog=1", "--innodb-flush-log-at-trx-commit=1"]);
    let case = MysqlCase::on(&server);
    let crash = || {
        server.kill();
        server.start_again();
    };
    kills::of_the_server(&case, (size(20_000, 300_000), size(2, 6)), crash, || {
        let rows = case.session().rows("SELECT SUBSTRING_INDEX(payload, ' ', 1) FROM outbox");
        let number = |cell: &Option<Vec<u8>>| std::str::from_utf8(cell.as_ref().unwrap()).unwrap().parse().unwrap();
        rows.iter().map(|row| number(&row[0])).collect()
    });
}

/// Memory does not grow with a transaction.
fn fr_50_one_huge_transaction(kind: Kind) {
    let rows = size(100_000, 1_000_000);
    let case = MysqlCase::new(kind);
    let mut ledger = kills::ledger(&case);
    let relay = kills::start(&case.quiet_config());
    let mut link = case.connector()().unwrap();
    link("BEGIN").unwrap();
    // statements of a size that the client can send
    let load = Load { writers: 1, rows, per_transaction: 1_000, bytes: 1_000, ..Load::full_speed(rows) };
    for first in (0..rows).step_by(1_000) {
        link(&case.rows_sql(&load, 0, first, first + 1_000)).unwrap();
    }
    link("COMMIT").unwrap();
    ledger.complete(load.numbers(), 30);
    let peak = relay.peak_memory();
    println!("one transaction of {rows} rows of 1 kB: {} repeats, peak {} MiB", ledger.repeats, peak / MIB);
    assert_eq!(ledger.repeats, 0);
    assert!(peak < 128 * MIB, "peak memory {} MiB", peak / MIB);
    assert_eq!(relay.terminate(), Some(0));
}
