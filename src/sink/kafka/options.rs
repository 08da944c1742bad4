//! librdkafka's options under `[sink.kafka.options]`: which of them may not be set, and what librdkafka says to them.
//!
//! Names and aliases are those of librdkafka's CONFIGURATION.md.

use std::collections::BTreeMap;

use rdkafka::config::ClientConfig;
use rdkafka::error::KafkaError;

/// Says why an option may not have this value; `None` if nothing speaks against it.
///
/// Refused is what would break a promise of the relay, and what has an option of its own.
#[must_use]
pub fn forbidden_option(name: &str, value: &str) -> Option<&'static str> {
    let value = value.trim();
    let refuse = |refused: bool, why: &'static str| refused.then_some(why);
    match name {
        "bootstrap.servers" | "metadata.broker.list" => Some("it has an option of its own, bootstrap-servers"),
        "sasl.password" => Some("a password does not belong here: name its file in sasl-password-file"),
        "enable.sasl.oauthbearer.unsecure.jwt" => {
            refuse(is_true(value), "a token that nobody signed proves nothing; see [sink.kafka.oauth]")
        }
        _ if name.starts_with("sasl.oauthbearer.") => Some("tokens have a table of their own, [sink.kafka.oauth]"),
        "enable.idempotence" => refuse(!is_true(value), "without idempotence a retry may change the order of a key"),
        "enable.gapless.guarantee" => {
            refuse(!is_true(value), "without it a refused record lets later records of its key go first")
        }
        "acks" | "request.required.acks" => {
            refuse(!matches!(value, "all" | "-1"), "an event is safe only when all in-sync replicas have it")
        }
        "message.timeout.ms" | "delivery.timeout.ms" => {
            refuse(value != "0", "a record that times out would be lost; it has to wait for as long as it takes")
        }
        "message.send.max.retries" | "retries" => {
            refuse(value != "2147483647", "a record has to be sent again for as long as it takes")
        }
        "max.in.flight" | "max.in.flight.requests.per.connection" => {
            let in_range = value.parse::<u32>().is_ok_and(|number| (1..=5).contains(&number));
            refuse(!in_range, "with more than 5 requests on the way the broker cannot keep the order")
        }
        "partitioner" => refuse(
            !matches!(value, "murmur2_random" | "murmur2"),
            "the records of a key would go to other partitions than those of Java producers, and of this relay before",
        ),
        "queuing.strategy" => refuse(value != "fifo", "the order of a key would break"),
        "allow.auto.create.topics" => refuse(
            is_true(value),
            "topics are made with create-topics, or not at all; never with the broker's defaults",
        ),
        "statistics.interval.ms" => {
            let in_range = value.parse::<u32>().is_ok_and(|number| (100..=10_000).contains(&number));
            refuse(!in_range, "the statistics tell whether a broker can be reached; 100 to 10000 is possible")
        }
        "queue.buffering.max.messages" | "queue.buffering.max.kbytes" => {
            Some("what is on the way is bounded by delivery.window-bytes")
        }
        "delivery.report.only.error" => refuse(is_true(value), "no record would ever be acknowledged"),
        "transactional.id" | "transaction.timeout.ms" => Some("transactions are not for an option to switch on"),
        "plugin.library.paths" | "interceptors" => Some("foreign code in the producer voids every guarantee"),
        "enabled_events" | "log.queue" | "opaque" | "default_topic_conf" | "msg_order_cmp" => {
            Some("it belongs to the program, not to its configuration")
        }
        _ if name.ends_with("_cb") => Some("it belongs to the program, not to its configuration"),
        _ if name.starts_with("test.mock.") => {
            Some("events would go to a broker inside this process and vanish with it")
        }
        _ => None,
    }
}

/// What librdkafka itself says against an option; `None` if it takes it. Connects to nothing.
#[must_use]
pub fn invalid_option(name: &str, value: &str) -> Option<String> {
    match ClientConfig::new().set(name, value).create_native_config() {
        Ok(_) => None,
        Err(KafkaError::ClientConfig(_, words, _, _)) => Some(words),
        Err(error) => Some(error.to_string()),
    }
}

/// All findings about the options, one line each.
#[must_use]
pub fn option_findings(options: &BTreeMap<String, String>) -> Vec<String> {
    let finding =
        |(name, value): (&String, &String)| option_finding(name, value).map(|why| format!("option \"{name}\": {why}"));
    options.iter().filter_map(finding).collect()
}

/// What is wrong with one option; `None` if it may be set.
#[must_use]
pub fn option_finding(name: &str, value: &str) -> Option<String> {
    forbidden_option(name, value).map(str::to_owned).or_else(|| invalid_option(name, value))
}

/// librdkafka's words for true; everything else is false or refused by [`invalid_option`].
fn is_true(value: &str) -> bool {
    ["true", "t", "1"].iter().any(|word| value.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_what_breaks_a_promise() {
        for (name, value) in [
            ("enable.idempotence", "false"),
            ("acks", "1"),
            ("request.required.acks", "0"),
            ("enable.gapless.guarantee", "false"),
            ("message.timeout.ms", "300000"),
            ("delivery.timeout.ms", "1"),
            ("partitioner", "consistent_random"),
            ("transactional.id", "x"),
            ("retries", "3"),
            ("allow.auto.create.topics", "true"),
            ("max.in.flight", "6"),
            ("max.in.flight", "many"),
            ("metadata.broker.list", "kafka:9092"),
            ("queue.buffering.max.messages", "10"),
            ("dr_msg_cb", ""),
            ("test.mock.num.brokers", "3"),
            ("sasl.password", "geheim"),
            ("queuing.strategy", "lifo"),
            ("sasl.oauthbearer.client.secret", "geheim"),
            ("enable.sasl.oauthbearer.unsecure.jwt", "true"),
        ] {
            assert!(forbidden_option(name, value).is_some(), "{name}={value}");
        }
    }

    #[test]
    fn leaves_the_rest_alone() {
        for (name, value) in [
            ("enable.idempotence", "true"),
            ("acks", "all"),
            ("acks", "-1"),
            ("message.timeout.ms", "0"),
            ("partitioner", "murmur2"),
            ("client.id", "shop"),
            ("linger.ms", "20"),
            ("max.in.flight", "1"),
            ("compression.type", "zstd"),
            ("security.protocol", "sasl_ssl"),
            ("sasl.mechanism", "SCRAM-SHA-512"),
        ] {
            assert_eq!(forbidden_option(name, value), None, "{name}");
            assert_eq!(invalid_option(name, value), None, "{name}");
        }
    }

    #[test]
    fn finds_all_in_librdkafkas_words() {
        let options = [("linger.ms", "soon"), ("no.such", "1"), ("acks", "1")];
        let options = options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let findings = option_findings(&options);
        assert_eq!(findings.len(), 3, "{findings:?}");
        assert!(findings.iter().any(|text| text.contains("No such configuration property")), "{findings:?}");
        assert!(findings.iter().any(|text| text.contains("linger.ms")), "{findings:?}");
    }
}
