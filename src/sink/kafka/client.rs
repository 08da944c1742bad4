//! Settings of the librdkafka clients: what is ours, what the user may override, and what is ours whatever he says.

use rdkafka::config::{ClientConfig, RDKafkaLogLevel};

use crate::config::KafkaConfig;
use crate::config::secret::Secret;
use crate::sink::SinkError;
use crate::state::Reason;

/// librdkafka's default `batch.size`: just below the brokers' default `max.message.bytes`, 1048588.
const DEFAULT_BATCH_BYTES: u64 = 1_000_000;

/// Defaults of all clients; an option of the user's overrides them.
const CONNECTION: &[(&str, &str)] = &[
    ("socket.keepalive.enable", "true"),
    ("socket.nagle.disable", "true"),
    // A broker that is away is asked again after half a second at first, and at least every 5 s: delivery resumes soon
    // after it answers, and a wrong password is not tried so often that the account is locked.
    ("reconnect.backoff.ms", "500"),
    ("reconnect.backoff.max.ms", "5000"),
    // A connection that stays open and silent is given up.
    ("socket.timeout.ms", "30000"),
    ("socket.connection.setup.timeout.ms", "10000"),
];

/// Defaults of the producer; an option of the user's overrides them.
const PRODUCER: &[(&str, &str)] = &[
    // Changes come in gulps already: what came together is enqueued within microseconds of each other.
    ("linger.ms", "1"),
    ("batch.num.messages", "10000"),
    ("statistics.interval.ms", "2000"),
];

/// What every promise stands on. Options that contradict are refused with the configuration, see
/// [`super::options::forbidden_option`].
const PROMISES: &[(&str, &str)] = &[
    ("enable.idempotence", "true"),
    ("enable.gapless.guarantee", "true"),
    ("acks", "all"),
    ("message.timeout.ms", "0"),
    ("allow.auto.create.topics", "false"),
    // The relay's window bounds the memory. A second bound here could refuse, for ever, a record larger than it.
    ("queue.buffering.max.messages", "0"),
    ("queue.buffering.max.kbytes", "2147483647"),
];

/// How the producer sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// In batches.
    Batches {
        /// `batch.size`.
        bytes: u64,
    },
    /// One record per batch and one batch on its way, so that a refusal names its record.
    Isolating,
}

/// The SASL password, read anew from its file so that a rotated one is found.
///
/// # Errors
/// [`SinkError::Restart`]: a file that is being replaced is there the next time.
pub(super) async fn read_password(config: &KafkaConfig) -> Result<Option<Secret>, SinkError> {
    let Some(path) = &config.sasl_password_file else { return Ok(config.sasl_password.clone()) };
    let text = tokio::fs::read_to_string(path).await.map_err(|error| SinkError::Restart {
        reason: Reason::Configuration,
        message: format!("could not read the SASL password file \"{}\": {error}", path.display()),
        at_once: false,
    })?;
    Ok(Some(Secret::new(text.trim_end_matches(['\n', '\r']))))
}

/// Settings that all clients share.
pub(super) fn connection(config: &KafkaConfig, name: &str, password: Option<&Secret>) -> ClientConfig {
    let mut client = ClientConfig::new();
    for (option, value) in CONNECTION {
        client.set(*option, *value);
    }
    client.set("client.id", name);
    for (option, value) in &config.options {
        client.set(canonical(option), value);
    }
    client.set("bootstrap.servers", &config.bootstrap_servers);
    client.set("allow.auto.create.topics", "false");
    if let Some(user) = &config.sasl_username {
        client.set("sasl.username", user);
    }
    if let Some(password) = password {
        client.set("sasl.password", password.expose());
    }
    // The reason why a broker hangs up is told with this level, and only in the log.
    let debug = config.options.contains_key("debug");
    client.set_log_level(if debug { RDKafkaLogLevel::Debug } else { RDKafkaLogLevel::Info });
    client
}

/// Settings of the producer.
pub(super) fn producer(connection: &ClientConfig, mode: Mode) -> ClientConfig {
    let mut client = connection.clone();
    let mut default = |option: &str, value: &str| {
        if client.get(option).is_none() {
            client.set(option, value);
        }
    };
    for (option, value) in PRODUCER {
        default(option, value);
    }
    // The largest that librdkafka allows: the topic's limit decides, not the client's.
    default("message.max.bytes", "1000000000");
    // Java's partition, also for a key of no bytes.
    default("partitioner", "murmur2_random");
    for (option, value) in PROMISES {
        client.set(*option, *value);
    }
    match mode {
        Mode::Batches { bytes } => {
            client.set("batch.size", bytes.to_string());
        }
        Mode::Isolating => {
            client.set("batch.num.messages", "1").set("max.in.flight", "1").set("linger.ms", "0");
        }
    }
    client
}

/// The one name of an option that has two: librdkafka applies settings in no order, so the later of two would win by
/// chance.
fn canonical(option: &str) -> &str {
    match option {
        "queue.buffering.max.ms" => "linger.ms",
        "max.in.flight.requests.per.connection" => "max.in.flight",
        "request.required.acks" => "acks",
        "delivery.timeout.ms" => "message.timeout.ms",
        "metadata.broker.list" => "bootstrap.servers",
        "compression.type" => "compression.codec",
        "sasl.mechanism" => "sasl.mechanisms",
        "retries" => "message.send.max.retries",
        other => other,
    }
}

/// Settings of the client that asks. Nobody reads its log queue, which would grow for as long as no broker can be
/// reached; the producer says the same.
pub(super) fn admin(connection: &ClientConfig) -> ClientConfig {
    let mut client = connection.clone();
    client.set_log_level(RDKafkaLogLevel::Emerg);
    client
}

/// Settings of the consumer that reads the positions topic once, without joining a group.
pub(super) fn consumer(connection: &ClientConfig, name: &str) -> ClientConfig {
    let mut client = connection.clone();
    for (option, value) in [
        ("enable.auto.commit", "false"),
        ("enable.partition.eof", "true"),
        ("isolation.level", "read_committed"),
        // The tail of a short topic begins at its beginning.
        ("auto.offset.reset", "earliest"),
        ("fetch.wait.max.ms", "100"),
    ] {
        client.set(option, value);
    }
    // librdkafka does not assign partitions without a group id; nothing is ever committed under it.
    client.set("group.id", format!("outboxd-positions-{name}"));
    client
}

/// The `batch.size` that the options ask for.
pub(super) fn configured_batch_bytes(config: &KafkaConfig) -> u64 {
    config.options.get("batch.size").and_then(|value| value.trim().parse().ok()).unwrap_or(DEFAULT_BATCH_BYTES)
}

/// Whether the producer compresses, so that only the broker can tell whether a record fits.
pub(super) fn compresses(config: &KafkaConfig) -> bool {
    let codecs = ["compression.codec", "compression.type"];
    codecs.iter().any(|name| config.options.get(*name).is_some_and(|codec| codec.trim() != "none"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(options: &[(&str, &str)]) -> KafkaConfig {
        let options = options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        KafkaConfig { bootstrap_servers: "kafka:9092".to_owned(), options, ..KafkaConfig::default() }
    }

    #[test]
    fn the_users_options_override_defaults_but_no_promise() {
        let config = config(&[("linger.ms", "50"), ("acks", "1"), ("client.id", "mine")]);
        let built = producer(&connection(&config, "shop", None), Mode::Batches { bytes: 10_000 });
        assert_eq!(built.get("linger.ms"), Some("50"));
        assert_eq!(built.get("acks"), Some("all"));
        assert_eq!(built.get("client.id"), Some("mine"));
        assert_eq!(built.get("batch.size"), Some("10000"));
        assert!(built.create_native_config().is_ok());
    }

    #[test]
    fn librdkafka_takes_every_setting_of_every_mode() {
        let config = config(&[("max.in.flight.requests.per.connection", "5"), ("queue.buffering.max.ms", "7")]);
        let connection = connection(&config, "shop", Some(&Secret::new("x")));
        let isolating = producer(&connection, Mode::Isolating).create_native_config().unwrap();
        assert_eq!(isolating.get("max.in.flight").unwrap(), "1");
        assert_eq!(isolating.get("linger.ms").unwrap(), "0");
        assert_eq!(isolating.get("queue.buffering.max.messages").unwrap(), "0");
        assert!(consumer(&connection, "shop").create_native_config().is_ok());
    }

    #[test]
    fn every_mechanism_is_built_in() {
        for mechanism in ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] {
            let mut config = config(&[("security.protocol", "sasl_ssl"), ("sasl.mechanism", mechanism)]);
            config.sasl_username = Some("outboxd".to_owned());
            config.bootstrap_servers = "127.0.0.1:9".to_owned();
            let built = producer(&connection(&config, "shop", Some(&Secret::new("x"))), Mode::Isolating);
            let created: rdkafka::error::KafkaResult<rdkafka::producer::BaseProducer> = built.create();
            assert!(created.is_ok(), "{mechanism}: {:?}", created.err());
        }
    }

    #[test]
    fn knows_compression() {
        assert!(!compresses(&config(&[])));
        assert!(!compresses(&config(&[("compression.type", "none")])));
        assert!(compresses(&config(&[("compression.codec", "zstd")])));
    }
}
