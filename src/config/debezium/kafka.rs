//! The producer's settings: `producer.override.…` of the connector, over `producer.…` and `bootstrap.servers` of the worker.

use super::input::Property;
use super::list::Verdict::{self, Ignored, Never, Refused, Warned};
use super::security;
use super::translate::{Fate, Objection, Translation};

/// The table of librdkafka's options.
pub(super) const OPTIONS: &str = "sink.kafka.options";

/// What becomes of a setting of Java's producer.
#[derive(Clone, Copy, Debug)]
enum Action {
    /// librdkafka's option of this name takes the text as it is.
    As(&'static str),
    /// These words change nothing; with any other it is as the verdict says.
    Unless(&'static [&'static str], Verdict),
    /// The same whatever the value is.
    Always(Verdict),
    /// It has rules of its own.
    Part(&'static str),
}

use Action::{Always, As, Part, Unless};

const SERVERS: &str = "sink.kafka.bootstrap-servers";
const TRIED_FOR_EVER: Verdict = Ignored("a record is sent again for as long as it takes");
const KERBEROS: Verdict = Never("Kerberos is not available", "use SASL PLAIN or SCRAM, or client certificates");
const BY_TOKEN: Verdict = Never(
    "login by a token is not taken from a connector",
    "run outboxd config convert, and see the options of sink.kafka",
);
const PARTITIONS: Verdict = Never(
    "records would go to other partitions than Java's usual ones, and here the usual ones are taken",
    "leave it out, if consumers can do with another partition of a key",
);

/// Every setting of Java's producer (`ProducerConfig` and what it takes from `CommonClientConfigs`, `SaslConfigs`,
/// `SslConfigs` of Kafka 4); a name that ends with `*` stands for all that begin so.
const PRODUCER: &[(&str, Action)] = &[
    ("bootstrap.servers", Part(SERVERS)),
    ("acks", Unless(&["all", "-1"], Warned("an event is safe when all in-sync replicas have it: always \"all\""))),
    ("batch.size", As("batch.size")),
    ("linger.ms", As("linger.ms")),
    ("compression.type", As("compression.type")),
    ("compression.*", Always(Ignored("the codec's usual level is taken"))),
    ("client.id", As("client.id")),
    ("client.dns.lookup", As("client.dns.lookup")),
    ("client.rack", Always(Ignored("it is for consumers"))),
    ("metadata.max.age.ms", As("metadata.max.age.ms")),
    ("metadata.*", Always(Ignored("metadata are asked for when they are needed"))),
    ("connections.max.idle.ms", As("connections.max.idle.ms")),
    ("send.buffer.bytes", Unless(&["-1"], Warned("the system's buffers are taken"))),
    ("receive.buffer.bytes", Unless(&["-1"], Warned("the system's buffers are taken"))),
    ("socket.connection.setup.timeout.*", Always(TRIED_FOR_EVER)),
    ("reconnect.backoff.*", Always(TRIED_FOR_EVER)),
    ("retry.backoff.*", Always(TRIED_FOR_EVER)),
    ("retries", Always(TRIED_FOR_EVER)),
    ("request.timeout.ms", Always(TRIED_FOR_EVER)),
    ("delivery.timeout.ms", Always(TRIED_FOR_EVER)),
    ("max.block.ms", Always(TRIED_FOR_EVER)),
    ("buffer.memory", Always(Ignored("memory is bounded by delivery.window-bytes"))),
    ("max.request.size", Always(Ignored("the topic's max.message.bytes is the limit"))),
    ("max.in.flight.requests.per.connection", Always(Ignored("the order of a key is kept in any case"))),
    ("enable.idempotence", Unless(&["true"], Warned("it stays on: the order of a key is kept"))),
    ("enable.metrics.push", Always(Ignored("see /metrics"))),
    ("metric*", Always(Ignored("see /metrics"))),
    ("auto.include.jmx.reporter", Always(Ignored("see /metrics"))),
    ("key.serializer", Always(Ignored("the converters make the bytes"))),
    ("value.serializer", Always(Ignored("the converters make the bytes"))),
    (
        "interceptor.classes",
        Unless(&[""], Never("foreign code would change records", "leave it out, if consumers can do without")),
    ),
    ("partitioner.class", Unless(&["", "org.apache.kafka.clients.producer.internals.DefaultPartitioner"], PARTITIONS)),
    ("partitioner.ignore.keys", Unless(&["false"], PARTITIONS)),
    ("partitioner.*", Always(Ignored("it is about records without a key"))),
    (
        "transactional.id",
        Unless(
            &[""],
            Refused(
                "exactly once is not available in this version",
                "leave it out",
                "each record arrives at least once",
            ),
        ),
    ),
    ("transaction.*", Always(Ignored("at least once; the header id tells repeats"))),
    ("security.providers", Unless(&[""], Warned("Java's security providers are not here"))),
    ("security.protocol", Part(OPTIONS)),
    ("sasl.mechanism", Part(OPTIONS)),
    ("sasl.jaas.config", Part("sink.kafka.sasl-username")),
    ("sasl.kerberos.*", Always(KERBEROS)),
    ("sasl.oauthbearer.*", Always(BY_TOKEN)),
    ("sasl.login.callback.handler.class", Unless(&[""], BY_TOKEN)),
    ("sasl.client.callback.handler.class", Unless(&[""], BY_TOKEN)),
    ("sasl.login.class", Unless(&[""], BY_TOKEN)),
    ("sasl.*", Always(Ignored("it is about logins by a token"))),
    ("ssl.endpoint.identification.algorithm", Part(OPTIONS)),
    ("ssl.truststore.*", Part(OPTIONS)),
    ("ssl.keystore.*", Part(OPTIONS)),
    ("ssl.key.password", Part(OPTIONS)),
    ("ssl.cipher.suites", Unless(&[""], Warned("OpenSSL's usual ciphers are taken"))),
    ("ssl.*", Always(Warned("it is about Java's TLS"))),
];

/// A setting of the producer, with the file that it stands in.
#[derive(Clone, Copy)]
pub(super) struct Setting<'a> {
    /// Its name for Java's producer.
    pub name: &'a str,
    pub property: &'a Property,
    pub file: &'a str,
}

/// The settings that count.
pub(super) struct Settings<'a>(Vec<Setting<'a>>);

impl<'a> Settings<'a> {
    pub(super) fn get(&self, name: &str) -> Option<Setting<'a>> {
        self.0.iter().copied().find(|setting| setting.name == name && !setting.property.raw.is_empty())
    }

    /// As [`Settings::get`], also where it is empty.
    pub(super) fn any(&self, name: &str) -> Option<Setting<'a>> {
        self.0.iter().copied().find(|setting| setting.name == name)
    }

    /// Those whose names begin so.
    pub(super) fn below(&self, prefix: &str) -> impl Iterator<Item = Setting<'a>> {
        self.0.iter().copied().filter(move |setting| setting.name.starts_with(prefix))
    }

    /// The value of one; nothing where it cannot be resolved.
    pub(super) fn value(&self, name: &str) -> Option<&'a str> {
        self.get(name)
            .filter(|setting| setting.property.broken.is_none())
            .map(|setting| setting.property.value.as_str())
    }
}

impl Translation<'_> {
    /// Refuses because of a setting of the producer.
    pub(super) fn refuse_setting(&mut self, setting: Setting<'_>, objection: Objection) {
        let fate = self.object(objection);
        if matches!(fate, Fate::Refused { .. }) {
            self.left_out.push(OPTIONS.to_owned());
        }
        self.note(setting.file, setting.property, fate);
    }
}

pub(super) fn translate(translation: &mut Translation<'_>) {
    let settings = settings(translation);
    for setting in &settings.0 {
        let fate = of_list(translation, *setting);
        translation.note(setting.file, setting.property, fate);
    }
    servers(translation, &settings);
    security::translate(translation, &settings);
    topics(translation);
}

/// The connector's settings stand over the worker's.
fn settings<'a>(translation: &mut Translation<'a>) -> Settings<'a> {
    let mut settings: Vec<Setting<'a>> = Vec::new();
    let connector = translation.connector;
    for property in &connector.properties {
        if let Some(name) = property.name.strip_prefix("producer.override.") {
            settings.push(Setting { name, property, file: &connector.file });
        }
    }
    if let Some(worker) = translation.worker {
        for property in &worker.properties {
            let name = property.name.strip_prefix("producer.");
            // of the worker's own client only this one is the producer's too
            let Some(name) = name.or_else(|| (property.name == "bootstrap.servers").then_some("bootstrap.servers"))
            else {
                continue;
            };
            if let Some(known) = settings.iter().find(|setting| setting.name == name) {
                let fate = Fate::Ignored(format!("{} wins over it", known.property.written));
                translation.note(&worker.file, property, fate);
            } else {
                settings.push(Setting { name, property, file: &worker.file });
            }
        }
    }
    Settings(settings)
}

fn of_list(translation: &mut Translation<'_>, setting: Setting<'_>) -> Fate {
    let property = setting.property;
    if let Some((problem, hint)) = &property.broken {
        translation.left_out.push(OPTIONS.to_owned());
        return Fate::Refused { problem: problem.clone(), hint: hint.clone() };
    }
    let fits = |name: &str| match name.strip_suffix('*') {
        Some(prefix) => setting.name.starts_with(prefix),
        None => name == setting.name,
    };
    let Some((_, action)) = PRODUCER.iter().find(|(name, _)| fits(name)) else {
        return Fate::Warned("it is not known here".to_owned());
    };
    let verdict = match action {
        As(_) if property.value.is_empty() => return Fate::Ignored("it is empty".to_owned()),
        As(option) => {
            translation.set_entry(OPTIONS, option, &property.raw, property);
            return Fate::Mapped(format!("{OPTIONS}.{option}"));
        }
        Part(option) => return Fate::Mapped((*option).to_owned()),
        Unless(words, _) if words.iter().any(|word| word.eq_ignore_ascii_case(&property.value)) => {
            return Fate::Ignored("it is so in any case".to_owned());
        }
        Unless(_, verdict) | Always(verdict) => *verdict,
    };
    match verdict {
        Verdict::Warned(instead) => Fate::Warned(instead.to_owned()),
        Verdict::Refused(problem, hint, instead) => {
            translation.object(Objection::unless_allowed(problem, hint, instead))
        }
        Verdict::Never(problem, hint) => translation.object(Objection::never(problem, hint)),
        Verdict::Ignored(why) => Fate::Ignored(why.to_owned()),
        // no line has one of these
        Verdict::Is(word) | Verdict::IsBut(word, _) | Verdict::Into(word) => Fate::Ignored(word.to_owned()),
    }
}

fn servers(translation: &mut Translation<'_>, settings: &Settings<'_>) {
    let flag = translation.given.bootstrap_servers.clone();
    let is_given = flag.is_some() || translation.given.stdout;
    if let Some(servers) = flag {
        translation.document.set(SERVERS, servers);
    }
    match settings.get("bootstrap.servers") {
        Some(setting) if is_given => {
            let why = "a flag wins over it: --bootstrap-servers, or --stdout";
            translation.note(setting.file, setting.property, Fate::Ignored(why.to_owned()));
        }
        Some(setting) => {
            let bare: Vec<&str> = setting.property.raw.split(',').map(|server| without_scheme(server.trim())).collect();
            translation.set(SERVERS, bare.join(","), setting.property);
            let fate = Fate::Mapped(SERVERS.to_owned());
            translation.note(setting.file, setting.property, fate);
        }
        None if is_given => {}
        None => {
            let problem = if translation.worker.is_some() {
                "is missing here and in the worker's file"
            } else {
                "is missing: it usually stands in the Connect worker's file"
            };
            let hint = "give --worker-config FILE, or --bootstrap-servers";
            translation.missing.push(super::super::Finding {
                place: Some(translation.connector.file.clone()),
                option: Some(if translation.connector.is_server {
                    "debezium.sink.kafka.producer.bootstrap.servers".to_owned()
                } else {
                    "producer.override.bootstrap.servers".to_owned()
                }),
                problem: problem.to_owned(),
                hint: Some(hint.to_owned()),
            });
            translation.left_out.push("sink".to_owned());
        }
    }
}

/// Java takes `SSL://host:port` too, and looks at host and port alone.
fn without_scheme(server: &str) -> &str {
    server.split_once("://").map_or(server, |(_, rest)| rest)
}

/// `topic.creation.default.…`
fn topics(translation: &mut Translation<'_>) {
    const PREFIX: &str = "topic.creation.default.";
    let connector = translation.connector;
    for property in &connector.properties {
        let Some(name) = property.name.strip_prefix(PREFIX).filter(|_| property.broken.is_none()) else { continue };
        let option = match name {
            "partitions" => "sink.kafka.topic-partitions",
            "replication.factor" => "sink.kafka.topic-replication-factor",
            _ => {
                translation.set_entry("sink.kafka.topic-config", name, &property.raw, property);
                translation.mark(property, Fate::Mapped(format!("sink.kafka.topic-config.{name}")));
                continue;
            }
        };
        match property.value.parse::<i64>() {
            Ok(-1) => translation.mark(property, Fate::Ignored("the broker's default, as here".to_owned())),
            Ok(number) => translation.set(option, number, property),
            Err(_) => {
                let problem = format!("\"{}\" is no number", property.value.escape_debug());
                translation.refuse(
                    property,
                    option,
                    Objection::never(problem, "write a number, or -1 for the broker's default"),
                );
            }
        }
    }
}

/// The names of the list with their words, but for those with rules of their own.
#[cfg(test)]
pub(super) fn names_and_words() -> impl Iterator<Item = (&'static str, &'static [&'static str])> {
    PRODUCER.iter().filter_map(|(name, action)| match action {
        Unless(words, _) => Some((*name, *words)),
        As(_) | Always(_) => Some((*name, &[][..])),
        Part(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sink::kafka::options::forbidden_option;

    /// librdkafka knows every option that is handed on, and the sink allows it.
    #[test]
    fn what_is_handed_on_is_allowed() {
        for (_, action) in PRODUCER {
            if let As(option) = action {
                assert_eq!(forbidden_option(option, "1"), None, "{option}");
                assert!(rdkafka::ClientConfig::new().create_native_config().unwrap().get(option).is_ok(), "{option}");
            }
        }
    }
}
