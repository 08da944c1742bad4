//! The broker's side: partitions, topics, sizes, outages.

use std::time::Duration;

use crate::support::case::without_repeats;
use crate::support::{Case, Kafka, Outboxd, PrivateKafka, Server, Version, base_table, holds, size};

on_each_version!(
    fr_40_record_too_large_stops,
    fr_41_topic_missing_waits,
    fr_41_topic_is_made,
    fr_43_broker_away,
    fr_44_partitions_are_javas,
    broker_comes_later,
    topic_cannot_be_made,
    broker_restarts_under_load,
    positions_topic_must_be_compacted,
);

/// Proves that a record that its topic does not take stops the stream before it: red, named with id and limit; nothing
/// is lost, and with a larger limit it goes on in order.
fn fr_40_record_too_large_stops(version: Version) {
    let case = Case::new(version);
    let topic = case.topic("A");
    case.kafka.create_topic(&topic, 1, &[("max.message.bytes", "100000")]);
    let relay = case.start();
    case.insert("A", "k0", "small");
    case.consume("A", 1, 20);
    let before = case.db.log_end();
    let large = "x".repeat(200_000);
    case.insert("A", "a", &large);
    let behind_large = case.db.log_end();
    case.insert("A", "a", "a2");
    case.insert("A", "b", "b1");
    let id = case.db.text("SELECT id FROM outbox WHERE length(payload) = 200000").unwrap();

    let health = relay.wait_reason("record_too_large", 20);
    assert!(health.detail().contains(&id), "the event's id {id} is not named: {health:?}");
    assert!(health.detail().contains("100000"), "the limit is not named: {health:?}");
    holds("position and topic stand still", Duration::from_secs(5), || {
        let confirmed = case.confirmed();
        confirmed < behind_large && relay.health().is_some_and(|health| health.status == 503)
    });
    assert!(case.stored_position().unwrap() < behind_large && before < behind_large);
    let ended = relay.terminate();
    assert_eq!(ended, Some(0), "a blocked relay stops in good order");
    let relay = Outboxd::start(&case.config());
    relay.wait_reason("record_too_large", 20);
    relay.kill9();

    case.kafka.set_topic_option(&topic, "max.message.bytes", "1000000");
    let _relay = case.start();
    let firsts = without_repeats(case.values_until("A", "b1", 20));
    assert!(firsts == ["small".to_owned(), large, "a2".to_owned(), "b1".to_owned()], "{} records", firsts.len());
}

/// Proves that a topic that is missing and may not be made is waited for, red and by name, and that the relay goes on
/// without a restart once it is there.
fn fr_41_topic_missing_waits(version: Version) {
    let case = Case::new(version);
    case.kafka.create_topic(&case.positions_topic(), 1, &[("cleanup.policy", "compact")]);
    case.kafka.create_topic(&case.topic("A"), 1, &[]);
    let relay = Outboxd::start(&case.config().set("sink.kafka.create-topics", false));
    relay.ready();
    case.insert("A", "1", "a1");
    case.insert("B", "1", "b1");
    case.insert("A", "1", "a2");
    let behind_b = case.db.log_end();
    let health = relay.wait_reason("topic_missing", 10);
    assert!(health.detail().contains(&case.topic("B")), "the topic is not named: {health:?}");
    assert_eq!(case.consume("A", 1, 20)[0].text(), "a1");
    holds("nothing behind it is confirmed", Duration::from_secs(3), || case.confirmed() < behind_b);
    case.kafka.create_topic(&case.topic("B"), 1, &[]);
    relay.wait_health("streaming again", 20, |health| health.status == 200);
    assert_eq!(case.consume("B", 1, 20)[0].text(), "b1");
    assert_eq!(case.values_until("A", "a2", 20), ["a1", "a2"]);
}

/// Proves that topics are made as configured.
fn fr_41_topic_is_made(version: Version) {
    let case = Case::new(version);
    let config = case
        .config()
        .set("sink.kafka.topic-partitions", 3)
        .set("sink.kafka.topic-replication-factor", 1)
        .set_in("sink.kafka.topic-config", "retention.ms", "3600000");
    let relay = Outboxd::start(&config);
    relay.ready();
    case.insert("A", "1", "a1");
    case.consume("A", 1, 20);
    assert_eq!(case.kafka.partitions(&case.topic("A")), Some(3));
    assert_eq!(case.kafka.topic_option(&case.topic("A"), "retention.ms").as_deref(), Some("3600000"));
    // and the topic of positions is not made by the same rule
    assert_eq!(case.kafka.topic_option(&case.positions_topic(), "cleanup.policy").as_deref(), Some("compact"));
    assert_eq!(case.kafka.partitions(&case.positions_topic()), Some(1));
}

/// Proves that a long outage of the broker costs nothing: red meanwhile, position and memory stand, delivery goes on by
/// itself, every event arrives, in order per key.
fn fr_43_broker_away(version: Version) {
    let seconds = std::env::var("OUTBOX_TEST_OUTAGE_SECONDS").ok().and_then(|text| text.parse().ok());
    let seconds = seconds.unwrap_or_else(|| size(60, 600));
    let broker = PrivateKafka::start();
    let case = Case::on(&Server::shared(version), &broker);
    case.db.run(&base_table("outbox"));
    let relay = case.start();
    case.insert_many("A", 0, 100, 10);
    case.consume("A", 100, 20);
    broker.stop();
    case.insert_many("A", 100, 10, 10);
    let first = case.db.log_end();
    case.insert_many("A", 110, 49_990, 100);
    let health = relay.wait_health("red", 30, |health| health.status == 503);
    assert_eq!(health.reason(), "sink_unreachable", "{health:?}");
    holds("position and memory stand", Duration::from_secs(seconds), || {
        case.confirmed() < first && relay.memory() < 200 << 20 && relay.health().is_some()
    });
    assert_eq!(relay.health().map(|health| health.status), Some(503));
    broker.start_again();
    relay.wait_health("streaming again", 30, |health| health.status == 200);
    case.consume_complete("A", 0, 50_100, 60);
    assert_eq!(relay.terminate(), Some(0));
}

/// Proves that the partition of a key is the one that the Java client chooses.
fn fr_44_partitions_are_javas(version: Version) {
    let case = Case::new(version);
    let expected = [
        ("fd7af248-ce5c-46a5-93d7-1c0c9005b99d", 32, 26),
        ("354afe16-939a-4ea8-8e17-8bb0840b6886", 10, 4),
        ("f562ac3b-2224-4e25-a0ab-56094e10c239", 10, 5),
        ("1", 12, 3),
        ("42", 12, 4),
        ("order-0007", 12, 8),
        ("é", 12, 3),
        ("a", 3, 1),
    ];
    for partitions in [32, 10, 12, 3] {
        case.kafka.create_topic(&case.topic(&partitions.to_string()), partitions, &[]);
    }
    let _relay = case.start();
    for (key, partitions, _) in expected {
        case.insert(&partitions.to_string(), key, "p");
    }
    for (key, partitions, partition) in expected {
        let kind = partitions.to_string();
        let count = expected.iter().filter(|row| row.1 == partitions).count();
        let records = case.consume(&kind, count, 20);
        let record = records.iter().find(|record| record.key_text() == key).unwrap();
        assert_eq!(record.partition, partition, "key {key:?} of {partitions}");
    }
}

/// Proves that a broker that cannot be reached at the start is tried again, red, until it can.
fn broker_comes_later(version: Version) {
    let broker = PrivateKafka::prepare();
    let case = Case::on(&Server::shared(version), &broker);
    case.db.run(&base_table("outbox"));
    let mut relay = Outboxd::start(&case.config());
    let health = relay.wait_reason("sink_unreachable", 20);
    assert!(health.detail().contains(&broker.bootstrap), "the address is not named: {health:?}");
    assert!(relay.is_running());
    broker.start_again();
    relay.ready();
    case.insert("A", "1", "at last");
    case.consume("A", 1, 20);
}

/// Proves that a topic that the cluster will not make is waited for, red and by name.
fn topic_cannot_be_made(version: Version) {
    let case = Case::new(version);
    case.kafka.create_topic(&case.positions_topic(), 1, &[("cleanup.policy", "compact")]);
    let relay = Outboxd::start(&case.config().set("sink.kafka.topic-replication-factor", 3));
    relay.ready();
    case.insert("A", "1", "a1");
    let health = relay.wait_health("red", 20, |health| health.status == 503);
    assert_eq!(health.reason(), "topic_missing", "{health:?}");
    assert!(health.detail().contains(&case.topic("A")), "the topic is not named: {health:?}");
    case.kafka.create_topic(&case.topic("A"), 1, &[]);
    relay.wait_health("streaming again", 20, |health| health.status == 200);
    case.consume("A", 1, 20);
}

/// Proves that a restart of the broker in the middle of a stream loses nothing and keeps the order of each key.
fn broker_restarts_under_load(version: Version) {
    let broker = PrivateKafka::start();
    let case = Case::on(&Server::shared(version), &broker);
    case.db.run(&base_table("outbox"));
    let relay = case.start();
    for round in 0..3 {
        case.insert_many("A", round * 5_000, 5_000, 50);
        broker.stop();
        broker.start_again();
    }
    relay.wait_health("streaming again", 30, |health| health.status == 200);
    case.consume_complete("A", 0, 15_000, 60);
}

/// Proves that positions are not kept in a topic that forgets them.
fn positions_topic_must_be_compacted(version: Version) {
    let case = Case::on(&Server::shared(version), &Kafka::shared());
    case.db.run(&base_table("outbox"));
    case.kafka.create_topic(&case.positions_topic(), 1, &[("cleanup.policy", "delete")]);
    let ended = Outboxd::run_to_end(&case.config());
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(ended.stderr.contains(&case.positions_topic()), "{}", ended.stderr);
    assert!(ended.stderr.contains("cleanup.policy"), "{}", ended.stderr);
}
