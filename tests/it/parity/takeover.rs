//! One relay takes over from the other while rows are written: with the same JSON, slot and publication.

use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::connector::{Connect, connector_json, prepare, slot_name};
use crate::support::{Case, Kafka, Outboxd, PrivateKafka, Server, Session, Version, base_table, eventually, quote};

const KIND: &str = "A";
const ROWS: u64 = 6_000;

/// Debezium is stopped in good order, the relay goes on, is stopped, and Debezium goes on. Debezium has to forget its
/// offset for that: it refuses a slot that is ahead of it.
#[test]
#[ignore = "needs a real Debezium: tests/run --debezium"]
fn there_and_back() {
    let ground = Ground::new();
    let writer = ground.write(0, ROWS);
    ground.connect.create(&ground.json);
    ground.wait_records(ROWS / 6);
    ground.connect.stop(&ground.case.tag);
    ground.relay_goes_on(ROWS / 2);
    ground.wait_until_free();
    ground.connect.forget_and_resume(&ground.case.tag);
    writer.join().unwrap();
    ground.all_arrived("stopped in good order, there and back");
}

/// The worker of Kafka Connect is killed; the relay goes on.
#[test]
#[ignore = "needs a real Debezium: tests/run --debezium"]
fn after_a_kill() {
    let ground = Ground::new();
    let writer = ground.write(0, ROWS);
    ground.connect.create(&ground.json);
    ground.wait_records(ROWS / 6);
    ground.connect.kill9();
    let relay = ground.start_relay();
    writer.join().unwrap();
    ground.all_arrived("killed");
    assert_eq!(relay.terminate(), Some(0));
}

struct Ground {
    case: Case,
    kafka: PrivateKafka,
    connect: Connect,
    json: Value,
}

impl Ground {
    fn new() -> Self {
        let kafka = PrivateKafka::start();
        let case = Case::on(&Server::shared(Version::V15), &kafka);
        prepare(&case.db, &base_table("outbox"), &[&case.tag]);
        let connect = Connect::start(&kafka, "");
        let own = Map::from_iter([
            ("transforms.outbox.route.topic.replacement".to_owned(), json!("outbox.event.${routedByValue}")),
            ("poll.interval.ms".to_owned(), json!("100")),
        ]);
        let json = connector_json(&case.tag, &case.db, "shop", &own);
        Self { case, kafka, connect, json }
    }

    /// Writes rows in a thread, some at a time.
    fn write(&self, first: u64, count: u64) -> JoinHandle<()> {
        let (url, kind) = (self.case.db.url(), quote(&self.case.kind(KIND)));
        std::thread::spawn(move || {
            let session = Session::connect(&url);
            for from in (first..first + count).step_by(5) {
                session.run(&format!(
                    "INSERT INTO outbox (aggregatetype, aggregateid, payload) \
                     SELECT {kind}, 'k' || i % 10, i::text FROM generate_series({from}, {}) i",
                    from + 4
                ));
                std::thread::sleep(Duration::from_millis(15));
            }
        })
    }

    fn wait_records(&self, count: u64) {
        let topic = self.case.topic(KIND);
        eventually(&format!("{count} records"), 60, || (self.kafka.count(&topic) >= count).then_some(()));
    }

    fn wait_until_free(&self) {
        eventually("the slot is free", 30, || {
            self.case.db.slot(&slot_name(&self.case.tag))?.active_pid.is_none().then_some(())
        });
    }

    fn start_relay(&self) -> Outboxd {
        let kafka: &Kafka = &self.kafka;
        Outboxd::start_connector(&self.json, kafka)
    }

    /// The relay publishes until there are so many records, and is stopped.
    fn relay_goes_on(&self, count: u64) {
        let relay = self.start_relay();
        relay.ready();
        self.wait_records(count);
        assert_eq!(relay.terminate(), Some(0));
    }

    /// Every id is there, each key's in the order of their commits once repeats are dropped.
    fn all_arrived(&self, how: &str) {
        let repeats = self.case.consume_complete(KIND, 0, ROWS, 90);
        println!("Debezium {how}: {ROWS} rows, {repeats} repeats, nothing missing, in order");
    }
}
