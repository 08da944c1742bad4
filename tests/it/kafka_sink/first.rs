//! The first records of a producer on a partition. A broker takes any sequence from a producer that it does not know, so
//! one that refuses the first batch for a moment and takes the second must not make the first count as taken.

use rdkafka::mocking::MockCluster;
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};

use super::*;

/// librdkafka's own broker stands in for a real one here: it refuses on request, and answers late.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_first_batch_is_sent_before_what_follows() {
    let cluster = MockCluster::new(1).unwrap();
    let mut config = config();
    config.bootstrap_servers = cluster.bootstrap_servers();
    config.create_topics = false;
    let topic = unique("first");
    cluster.create_topic(&topic, 10, 1).unwrap();
    cluster.create_topic(&config.positions_topic, 1, 1).unwrap();
    // so that the topic is looked up; the others go to another partition
    let looked_up = Event::new(&topic, "354afe16-939a-4ea8-8e17-8bb0840b6886", "x");
    let mut relay = Relay::new(config.clone(), vec![looked_up]);
    relay.sink = relay.sink.without_topic_settings();
    relay.run(1, |_| false).await.unwrap();
    cluster.broker_round_trip_time(1, Duration::from_millis(500)).unwrap();
    cluster.request_errors(RDKafkaApiKey::Produce, &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION]);
    const EVENTS: usize = 8;
    for _ in 1..EVENTS {
        // each in a batch of its own, while the ones before are on their way
        relay.events.push(Event::new(&topic, "f562ac3b-2224-4e25-a0ab-56094e10c239", "x"));
        relay.step(&|_| false).await.unwrap();
    }
    cluster.broker_round_trip_time(1, Duration::ZERO).unwrap();
    relay.run(EVENTS, |_| false).await.unwrap();
    assert_complete_and_in_order(&read_topic_of(&config.bootstrap_servers, &topic, 10), EVENTS);
    assert_eq!(relay.restarts, [""; 0], "no session was given up for it");
}

/// A new topic of many partitions, on a real broker, which opens them one by one.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_topic_gets_its_first_records_too() {
    const PARTITIONS: i32 = 100;
    let mut config = config();
    config.topic_partitions = Some(PARTITIONS.unsigned_abs());
    let topic = unique("many");
    let events: Vec<Event> = (0..4_000).map(|event| Event::new(&topic, &format!("key {}", event % 400), "x")).collect();
    let mut relay = Relay::new(config.clone(), events.clone());
    relay.run(events.len(), |_| false).await.unwrap();
    assert_complete_and_in_order(&read_topic(&topic, PARTITIONS), events.len());
    assert_eq!(relay.restarts, [""; 0]);
    delete_topics(&[&topic, &config.positions_topic]).await;
}
