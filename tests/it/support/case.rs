//! The ground of one test: a database, an instance name, topics that no other test uses.

use super::kafka::{Kafka, Rec};
use super::postgres::{Database, Server, Slot, Version};
use super::{Config, Outboxd, quote, unique_tag};

/// The outbox table of most tests.
pub(crate) fn base_table(name: &str) -> String {
    format!(
        "CREATE TABLE {name} (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregatetype text NOT NULL, \
         aggregateid text, type text, payload text);"
    )
}

/// The ground of one test.
pub(crate) struct Case {
    /// The instance's name; part of every topic's name.
    pub(crate) tag: String,
    pub(crate) db: Database,
    pub(crate) kafka: Kafka,
}

impl Case {
    /// On the shared servers, with the table `public.outbox`.
    #[track_caller]
    pub(crate) fn new(version: Version) -> Self {
        let case = Self::bare(version);
        case.db.run(&base_table("outbox"));
        case
    }

    /// On the shared servers, without any table.
    #[track_caller]
    pub(crate) fn bare(version: Version) -> Self {
        Self::on(&Server::shared(version), &Kafka::shared())
    }

    /// On other servers, without any table.
    #[track_caller]
    pub(crate) fn on(server: &Server, kafka: &Kafka) -> Self {
        Self::with_options(server, kafka, "")
    }

    /// The same with options of CREATE DATABASE.
    #[track_caller]
    pub(crate) fn with_options(server: &Server, kafka: &Kafka, options: &str) -> Self {
        let tag = unique_tag();
        let db = Database::create(server, &tag, options);
        Self { tag, db, kafka: kafka.clone() }
    }

    /// A configuration that works here.
    pub(crate) fn config(&self) -> Config {
        self.config_over(Config::default())
    }

    /// A configuration with the name and the addresses of this case.
    pub(crate) fn config_over(&self, config: Config) -> Config {
        config
            .set("name", self.tag.as_str())
            .set("source.postgres.url", self.db.url())
            .set("sink.kafka.bootstrap-servers", self.kafka.bootstrap.as_str())
            .set("sink.kafka.positions-topic", self.positions_topic())
            .set("log.level", "debug,tokio_postgres=info,rustls=info")
    }

    /// Starts the relay and waits until it streams.
    #[track_caller]
    pub(crate) fn start(&self) -> Outboxd {
        let relay = Outboxd::start(&self.config());
        relay.ready();
        relay
    }

    pub(crate) fn positions_topic(&self) -> String {
        format!("{}.positions", self.tag)
    }

    /// Name of slot and publication, unless configured otherwise.
    pub(crate) fn object(&self) -> String {
        format!("outboxd_{}", self.tag)
    }

    #[track_caller]
    pub(crate) fn slot(&self) -> Option<Slot> {
        self.db.slot(&self.object())
    }

    /// The position that the slot has confirmed.
    #[track_caller]
    pub(crate) fn confirmed(&self) -> u64 {
        self.slot().expect("no slot").confirmed.expect("no confirmed position")
    }

    /// The value of the route column for a kind of event.
    pub(crate) fn kind(&self, kind: &str) -> String {
        format!("{}.{kind}", self.tag)
    }

    /// The topic of a kind of event.
    pub(crate) fn topic(&self, kind: &str) -> String {
        format!("outbox.event.{}", self.kind(kind))
    }

    /// The statement that inserts one row.
    pub(crate) fn insert_sql(&self, kind: &str, key: &str, payload: &str) -> String {
        format!(
            "INSERT INTO outbox (aggregatetype, aggregateid, payload) VALUES ({}, {}, {});",
            quote(&self.kind(kind)),
            quote(key),
            quote(payload)
        )
    }

    /// Inserts one row in a transaction of its own.
    #[track_caller]
    pub(crate) fn insert(&self, kind: &str, key: &str, payload: &str) {
        self.db.run(&self.insert_sql(kind, key, payload));
    }

    /// Inserts `count` rows with the payloads `first`, `first + 1`, … over ten keys, `per_transaction` in each
    /// transaction.
    #[track_caller]
    pub(crate) fn insert_many(&self, kind: &str, first: u64, count: u64, per_transaction: u64) {
        let kind = quote(&self.kind(kind));
        let end = first + count;
        let mut from = first;
        while from < end {
            let to = end.min(from + per_transaction);
            self.db.run(&format!(
                "INSERT INTO outbox (aggregatetype, aggregateid, payload) \
                 SELECT {kind}, 'k' || i % 10, i::text FROM generate_series({from}, {}) i",
                to - 1
            ));
            from = to;
        }
    }

    /// Waits for `count` records of a kind.
    #[track_caller]
    pub(crate) fn consume(&self, kind: &str, count: usize, seconds: u64) -> Vec<Rec> {
        self.kafka.consume(&self.topic(kind), count, seconds)
    }

    /// Waits until the payloads `first..first + count` of [`Case::insert_many`] have all arrived; panics unless each
    /// key's are in order once repeats are dropped. Returns how many were repeats.
    #[track_caller]
    pub(crate) fn consume_complete(&self, kind: &str, first: u64, count: u64, seconds: u64) -> usize {
        let mut seen = std::collections::HashSet::new();
        let wanted = usize::try_from(count).unwrap();
        let records = self.kafka.consume_until(&self.topic(kind), seconds, |records| {
            if let Some(newest) = records.last() {
                seen.insert(newest.text());
            }
            seen.len() >= wanted
        });
        assert_complete(&records, first, count)
    }

    /// The values, as text, of all records of a kind, once one of them is `last`. Since records of a key come in
    /// order, this shows what has *not* been published too.
    #[track_caller]
    pub(crate) fn values_until(&self, kind: &str, last: &str, seconds: u64) -> Vec<String> {
        let topic = self.topic(kind);
        super::eventually(&format!("record {last:?} in {topic}"), seconds, || {
            let values: Vec<_> = self.kafka.read_all(&topic).iter().map(Rec::text).collect();
            values.iter().any(|value| value == last).then_some(values)
        })
    }

    /// The position that the relay has stored.
    #[track_caller]
    pub(crate) fn stored_position(&self) -> Option<u64> {
        self.kafka.position(&self.positions_topic(), &self.tag)
    }
}

#[track_caller]
fn assert_complete(records: &[Rec], first: u64, count: u64) -> usize {
    let mut seen = std::collections::HashSet::new();
    let mut newest = std::collections::HashMap::new();
    let mut repeats = 0;
    for record in records {
        let number: u64 = record.text().parse().unwrap();
        if !seen.insert(number) {
            repeats += 1;
            continue;
        }
        let key = record.key.clone().unwrap();
        let before = newest.insert(key, number);
        assert!(before < Some(number), "{number} came after {before:?} of the same key");
    }
    let missing: Vec<_> = (first..first + count).filter(|number| !seen.contains(number)).take(10).collect();
    assert!(missing.is_empty(), "missing among {count}: {missing:?} …");
    repeats
}

/// The values in the order of their first arrival: what a consumer sees that drops repeats.
pub(crate) fn without_repeats(values: Vec<String>) -> Vec<String> {
    let mut firsts = Vec::new();
    for value in values {
        if !firsts.contains(&value) {
            firsts.push(value);
        }
    }
    firsts
}
