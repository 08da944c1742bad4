//! Kills, crashes and outages under load: afterwards every committed row has arrived, and once repeats are dropped by
//! header `id`, each key's records are in commit order.
//!
//! Every test prints what it counted; `tests/run --test it -- --nocapture crash` shows it. `OUTBOX_TEST_LONG=1` runs
//! the full sizes, `OUTBOX_TEST_SEED` repeats the moments of an earlier run.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::process::Command;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{Headers, Message};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use crate::support::{
    Case, Config, Kafka, Outboxd, PrivateKafka, PrivateServer, Server, Session, Version, base_table, eventually, quote,
    signal, size, within,
};

on_each_version!(
    fr_46_killed_at_random_moments,
    killed_between_acknowledgement_and_position_record,
    crashed_between_position_record_and_confirmation,
    killed_inside_a_large_transaction,
);

const KIND: &str = "order";
const MIB: u64 = 1 << 20;

/// Distance between the numbers of two writers.
const SPAN: u64 = 1_000_000_000;

/// Rows to write. Each key belongs to one writer, and a writer has one connection, so that the commit order of a key
/// is the order of its numbers.
#[derive(Clone, Copy)]
struct Load {
    writers: u64,
    /// Rows of each writer.
    rows: u64,
    /// Keys of each writer.
    keys: u64,
    per_transaction: u64,
    /// Length of each payload, about.
    bytes: u64,
    /// Pause after each transaction.
    pause: Duration,
    /// Whether the server may go away: a transaction whose outcome is not known is tried again.
    stubborn: bool,
}

impl Load {
    /// At full speed: 1,000 keys, 100 rows a transaction.
    fn full_speed(rows: u64) -> Self {
        let (writers, keys) = (4, 250);
        Self {
            writers,
            rows: rows / writers,
            keys,
            per_transaction: 100,
            bytes: 300,
            pause: Duration::ZERO,
            stubborn: false,
        }
    }

    fn total(&self) -> u64 {
        self.writers * self.rows
    }

    /// Every number that is written.
    fn numbers(self) -> impl Iterator<Item = u64> {
        (0..self.writers).flat_map(move |writer| (0..self.rows).map(move |row| writer * SPAN + row))
    }

    /// The rows `first..end` of a writer in one statement. The payload begins with the row's number, and so does the
    /// id; a key's numbers grow.
    fn insert_sql(&self, case: &Case, writer: u64, first: u64, end: u64) -> String {
        let (kind, keys, bytes) = (quote(&case.kind(KIND)), self.keys, self.bytes);
        let (first, last) = (writer * SPAN + first, writer * SPAN + end - 1);
        let again = if self.stubborn { "ON CONFLICT (id) DO NOTHING" } else { "" };
        format!(
            "INSERT INTO outbox (id, aggregatetype, aggregateid, payload) \
             SELECT ('00000000-0000-4000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, {kind}, \
             'k{writer}-' || n % {keys}, n || ' ' || repeat('x', {bytes} - 8) \
             FROM generate_series({first}::bigint, {last}::bigint) n {again}"
        )
    }

    /// Begins to write, each writer in a thread.
    fn begin(self, case: &Case) -> Vec<JoinHandle<()>> {
        let writer = |writer| {
            let transactions: Vec<_> = (0..self.rows)
                .step_by(usize::try_from(self.per_transaction).unwrap())
                .map(|first| self.insert_sql(case, writer, first, self.rows.min(first + self.per_transaction)))
                .collect();
            let url = case.db.url();
            std::thread::spawn(move || self.write(&url, &transactions))
        };
        (0..self.writers).map(writer).collect()
    }

    fn write(&self, url: &str, transactions: &[String]) {
        let mut session = None;
        for sql in transactions {
            let begin = Instant::now();
            loop {
                let failure = match session.take().map_or_else(|| Session::try_connect(url), Ok) {
                    Ok(open) => match open.try_run(sql) {
                        Ok(()) => {
                            session = Some(open);
                            break;
                        }
                        Err(error) => error,
                    },
                    Err(error) => error,
                };
                assert!(self.stubborn && begin.elapsed() < within(60), "a row could not be written: {failure:?}");
                std::thread::sleep(Duration::from_millis(100));
            }
            std::thread::sleep(self.pause);
        }
    }
}

fn finish(writers: Vec<JoinHandle<()>>) {
    for writer in writers {
        writer.join().expect("a writer failed");
    }
}

/// Reads a topic while it grows and keeps account: what came, what came again, and that first deliveries of a key are
/// in order.
struct Ledger {
    consumer: BaseConsumer,
    topic: String,
    /// Offset behind the last record, for each partition.
    next: Vec<i64>,
    seen: HashSet<u64>,
    newest: HashMap<Vec<u8>, u64>,
    records: u64,
    repeats: u64,
    /// Records by the tenth of a second in which the broker took them.
    pace: HashMap<u128, u64>,
}

impl Ledger {
    const PARTITIONS: i32 = 4;

    /// Makes the topic of [`KIND`] and reads it from the beginning.
    #[track_caller]
    fn open(case: &Case) -> Self {
        let topic = case.topic(KIND);
        let kafka: &Kafka = &case.kafka;
        kafka.create_topic(&topic, Self::PARTITIONS, &[("message.timestamp.type", "LogAppendTime")]);
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &kafka.bootstrap).set("group.id", "ledger").set("log_level", "0");
        config.set("enable.auto.commit", "false").set("fetch.wait.max.ms", "20").set("reconnect.backoff.max.ms", "500");
        let consumer: BaseConsumer = config.create().unwrap();
        let mut list = TopicPartitionList::new();
        for partition in 0..Self::PARTITIONS {
            list.add_partition_offset(&topic, partition, Offset::Beginning).unwrap();
        }
        consumer.assign(&list).unwrap();
        let next = vec![0; usize::try_from(Self::PARTITIONS).unwrap()];
        let (seen, newest, pace) = (HashSet::new(), HashMap::new(), HashMap::new());
        Self { consumer, topic, next, seen, newest, records: 0, repeats: 0, pace }
    }

    fn arrived(&self) -> u64 {
        u64::try_from(self.seen.len()).unwrap()
    }

    /// Reads what is there, at most a few hundred records.
    #[track_caller]
    fn read(&mut self) {
        let mut patience = Duration::from_millis(20);
        for _ in 0..500 {
            match self.consumer.poll(patience) {
                Some(Ok(message)) => {
                    let taken = u128::try_from(message.timestamp().to_millis().expect("no time")).unwrap();
                    let place = (message.partition(), message.offset(), taken);
                    let key = message.key().expect("no key").to_vec();
                    let number = number(message.payload().expect("no value"));
                    let headers = message.headers().expect("no headers");
                    let id = headers.iter().find(|header| header.key == "id").and_then(|header| header.value);
                    let wanted = format!("00000000-0000-4000-8000-{number:012x}");
                    assert_eq!(id.map(String::from_utf8_lossy).as_deref(), Some(wanted.as_str()), "id of row {number}");
                    self.enter(place, &key, number);
                }
                // what passes by itself: a broker that is away
                Some(Err(_)) => {}
                None => return,
            }
            patience = Duration::ZERO;
        }
    }

    #[track_caller]
    fn enter(&mut self, (partition, offset, taken): (i32, i64, u128), key: &[u8], number: u64) {
        self.next[usize::try_from(partition).unwrap()] = offset + 1;
        self.records += 1;
        *self.pace.entry(taken / 100).or_default() += 1;
        if !self.seen.insert(number) {
            self.repeats += 1;
            return;
        }
        if let Some(before) = self.newest.insert(key.to_vec(), number) {
            let key = String::from_utf8_lossy(key);
            assert!(before < number, "key {key}: the first delivery of {number} came after that of {before}");
        }
    }

    /// Reads until `count` different rows have come.
    #[track_caller]
    fn read_until(&mut self, count: u64, seconds: u64) {
        let (begin, limit) = (Instant::now(), within(seconds));
        while self.arrived() < count {
            assert!(begin.elapsed() < limit, "{} of {count} rows arrived within {limit:?}", self.arrived());
            self.read();
        }
    }

    /// Reads to the topic's present end.
    #[track_caller]
    fn read_to_end(&mut self) {
        let timeout = Duration::from_secs(10);
        let ends: Vec<i64> = (0..Self::PARTITIONS)
            .map(|partition| {
                let ask = || self.consumer.fetch_watermarks(&self.topic, partition, timeout).ok();
                eventually("the end of the topic", 30, ask).1
            })
            .collect();
        let begin = Instant::now();
        while self.next.iter().zip(&ends).any(|(next, end)| next < end) {
            assert!(begin.elapsed() < within(60), "{} could not be read to its end", self.topic);
            self.read();
        }
    }

    /// Reads until all `numbers` have come, then on to the end, and checks that nothing else came. Gives up when
    /// nothing came for the given time.
    #[track_caller]
    fn complete(&mut self, numbers: impl Iterator<Item = u64>, seconds: u64) {
        let numbers: HashSet<u64> = numbers.collect();
        let (mut last, limit) = ((self.records, Instant::now()), within(seconds));
        while self.arrived() < u64::try_from(numbers.len()).unwrap() && last.1.elapsed() < limit {
            self.read();
            if self.records > last.0 {
                last = (self.records, Instant::now());
            }
        }
        self.read_to_end();
        let mut missing: Vec<_> = numbers.difference(&self.seen).collect();
        missing.sort();
        let first = &missing[..missing.len().min(10)];
        assert!(
            missing.is_empty(),
            "{} of {} rows missing, {limit:?} after the last record: {first:?} …",
            missing.len(),
            numbers.len()
        );
        assert_eq!(self.arrived(), u64::try_from(numbers.len()).unwrap(), "rows came that were never committed");
    }

    /// Records that the broker took at a time or later.
    fn taken_since(&self, time: SystemTime) -> u64 {
        let first = time.duration_since(UNIX_EPOCH).unwrap().as_millis() / 100;
        self.pace.iter().filter(|(tenth, _)| **tenth >= first).map(|(_, count)| count).sum()
    }
}

/// The number that a payload begins with.
#[track_caller]
fn number(payload: &[u8]) -> u64 {
    let text = std::str::from_utf8(payload).unwrap();
    text.split(' ').next().and_then(|digits| digits.parse().ok()).unwrap_or_else(|| panic!("not a payload: {text:?}"))
}

/// Random numbers that can be had again.
struct Dice(u64);

impl Dice {
    fn new() -> Self {
        let now = || u64::from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().subsec_nanos());
        Self(std::env::var("OUTBOX_TEST_SEED").ok().map_or_else(now, |seed| seed.parse().unwrap()) | 1)
    }

    /// A number below `end`.
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end.max(1)
    }
}

fn config(case: &Case) -> Config {
    case.config().set("log.level", "info")
}

fn start(config: &Config) -> Outboxd {
    let relay = Outboxd::start(config);
    relay.ready();
    relay
}

// Proves: kill -9 at any moment loses nothing and breaks no key's order, and a kill repeats no more than what was in
// flight: the window, and what was acknowledged since the last position record, a second ago at most.
fn fr_46_killed_at_random_moments(version: Version) {
    let (rows, kills) = (size(60_000, 300_000), size(6, 20));
    let mut dice = Dice::new();
    let seed = dice.0;
    let case = Case::new(version);
    let mut ledger = Ledger::open(&case);
    let window = MIB;
    let config = config(&case).set("delivery.window-bytes", i64::try_from(window).unwrap());
    let mut relay = start(&config);
    let load = Load::full_speed(rows);
    let writers = load.begin(&case);
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

// Proves: records that were acknowledged while their position was not yet stored come again, all of them; after a stop
// in good order none does.
fn killed_between_acknowledgement_and_position_record(version: Version) {
    let rows = 2_000;
    let case = Case::new(version);
    let mut ledger = Ledger::open(&case);
    let config = config(&case).set("delivery.position-interval", "60s");
    let relay = start(&config);
    let stored = Some(eventually("a position record from the start on", 5, || case.stored_position()));
    let load = Load { writers: 1, rows, ..Load::full_speed(rows) };
    finish(load.begin(&case));
    ledger.read_until(rows, 30);
    assert_eq!(case.stored_position(), stored, "the position moved before its time");
    relay.kill9();

    let relay = start(&config);
    eventually("all come again", 30, || {
        ledger.read();
        (ledger.repeats >= rows).then_some(())
    });
    assert_eq!(relay.terminate(), Some(0));
    assert!(case.stored_position() > stored, "the position did not move at the stop");

    let relay = start(&config);
    case.db.run(&load.insert_sql(&case, 0, rows, rows + 1));
    ledger.complete(0..=rows, 30);
    let (records, repeats) = (ledger.records, ledger.repeats);
    println!("{rows} rows, killed before their position was stored: {records} records, {repeats} repeats");
    assert_eq!(repeats, rows, "each row once more after the kill, none after the stop");
    relay.kill9();
}

// Proves: when the position is stored but the server never took the confirmation, and its slot comes back even older
// after a crash, the relay goes on without a false alarm and loses nothing.
fn crashed_between_position_record_and_confirmation(version: Version) {
    let server = PrivateServer::start(version, "");
    let mut case = Case::on(&server, &Kafka::shared());
    case.db.run(&base_table("outbox"));
    let mut ledger = Ledger::open(&case);
    let config = config(&case).set("delivery.position-interval", "3s");
    let relay = start(&config);
    let load = Load { writers: 1, rows: 10_000, ..Load::full_speed(0) };
    let mut rows = 0;
    let (stored, confirmed) = (0..10)
        .find_map(|_| {
            case.db.run(&load.insert_sql(&case, 0, rows, rows + 100));
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
    case.db.run(&load.insert_sql(&case, 0, rows, rows + 1));
    ledger.complete(0..=rows, 30);
    println!(
        "{rows} rows, stored {} bytes ahead of the confirmed position, {} ahead of it after the crash: {} repeats",
        stored - confirmed,
        stored - came_back,
        ledger.repeats
    );
    assert_eq!(relay.terminate(), Some(0));
}

// Proves: a transaction counts as a whole. Killed in the midst of it, the relay begins it again from its first row.
fn killed_inside_a_large_transaction(version: Version) {
    let rows = size(50_000, 200_000);
    let case = Case::new(version);
    let mut ledger = Ledger::open(&case);
    // a small window, so that it takes its time
    let config = config(&case).set("delivery.window-bytes", 65_536);
    let relay = start(&config);
    let load = Load { writers: 1, rows, per_transaction: rows, ..Load::full_speed(rows) };
    let writers = load.begin(&case);
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

// Proves: when the database server is killed under load, the relay comes back by itself and publishes all that was
// committed.
#[test]
fn the_server_is_killed_under_load() {
    let (rows, crashes) = (size(40_000, 200_000), size(2, 6));
    let server = PrivateServer::start(Version::V18, "");
    let mut case = Case::on(&server, &Kafka::shared());
    case.db.run(&base_table("outbox"));
    let mut ledger = Ledger::open(&case);
    let relay = start(&config(&case));
    let load = Load { stubborn: true, ..Load::full_speed(rows) };
    let writers = load.begin(&case);
    for crash in 1..=crashes {
        ledger.read_until(rows * crash / (crashes + 2), 120);
        kill9_server(&server);
        server.start_again();
    }
    finish(writers);
    case.db.reconnect();
    let committed = case.db.rows("SELECT split_part(payload, ' ', 1) FROM outbox");
    let committed: Vec<u64> = committed.iter().map(|row| row[0].as_deref().unwrap().parse().unwrap()).collect();
    assert_eq!(u64::try_from(committed.len()).unwrap(), load.total(), "the writers wrote all");
    ledger.complete(committed.into_iter(), 20);
    println!("{crashes} crashes of the server, {rows} rows, {} repeats", ledger.repeats);
    assert_eq!(relay.terminate(), Some(0));
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
    let mut ledger = Ledger::open(&case);
    let relay = start(&config(&case));
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
    let mut ledger = Ledger::open(&case);
    let relay = start(&config(&case).set("delivery.window-bytes", i64::try_from(window).unwrap()));
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
