//! Where rows come from: the URL, the password, the tables.

use std::net::Ipv6Addr;

use super::input::{Input, Property};
use super::tables;
use super::translate::{Fate, Objection, Translation, unknown_word};

/// The option that most properties of a connection go into.
pub(super) const URL: &str = "source.postgres.url";
const PASSWORD: &str = "source.postgres.password";
/// Debezium's default slot and publication (`PostgresConnectorConfig`).
const DEFAULT_SLOT: &str = "debezium";
const DEFAULT_PUBLICATION: &str = "dbz_publication";

pub(super) fn translate(translation: &mut Translation<'_>) {
    let connector = translation.connector;
    names(translation, connector);
    plugin(translation, connector);
    url(translation, connector);
    if let Some(property) = connector.get("database.password").filter(|property| !property.value.is_empty())
        && !translation.given.source_url
    {
        let text = translation.secret(PASSWORD, "OUTBOXD_DATABASE_PASSWORD", property);
        translation.set(PASSWORD, text, property);
    }
    skipped_operations(translation, connector);
    tables::translate(translation);
}

/// Names that have other defaults in Debezium.
fn names(translation: &mut Translation<'_>, connector: &Input) {
    let document = &mut translation.document;
    if !document.has("source.postgres.slot") {
        document.set("source.postgres.slot", DEFAULT_SLOT);
    }
    if !document.has("source.postgres.publication") {
        document.set("source.postgres.publication", DEFAULT_PUBLICATION);
    }
    if let Some(property) = connector.get("database.server.name") {
        if document.has("record.legacy-prefix") {
            translation.mark(property, Fate::Ignored("topic.prefix is there".to_owned()));
        } else {
            translation.set("record.legacy-prefix", property.raw.as_str(), property);
            let fate =
                Fate::Differs("record.legacy-prefix".to_owned(), "this is the former name of topic.prefix".to_owned());
            translation.mark(property, fate);
        }
    }
    let prefix = connector.get("topic.prefix").or_else(|| connector.get("database.server.name"));
    if let Some(prefix) = prefix.filter(|prefix| !prefix.raw.is_empty() && !translation.document.has("name")) {
        translation.set("name", prefix.raw.as_str(), prefix);
    }
}

/// Without a name the plug-in is one that cannot be read.
fn plugin(translation: &mut Translation<'_>, connector: &Input) {
    if connector.value("plugin.name").is_none() {
        let hint = "if the slot is one of pgoutput, add \"plugin.name\": \"pgoutput\"; else add also a new slot.name: with \
                    snapshot.mode \"initial\" the rows that stand in the table are published first, so that none is left out";
        let problem =
            "is missing, which means decoderbufs: a slot belongs to its plug-in, and only that of pgoutput can be read";
        translation.lack("plugin.name", problem, hint, "plugin.name");
    }
}

fn url(translation: &mut Translation<'_>, connector: &Input) {
    const PARTS: &[&str] = &[
        "database.hostname",
        "database.port",
        "database.user",
        "database.dbname",
        "database.sslmode",
        "database.sslrootcert",
        "database.sslcert",
        "database.sslkey",
    ];
    if translation.given.source_url {
        for property in PARTS.iter().chain(&["database.password"]).filter_map(|name| connector.get(name)) {
            translation.mark(property, Fate::Ignored("--source-url wins over it".to_owned()));
        }
        return;
    }
    let part = |name: &str| connector.get(name).filter(|property| !property.value.is_empty());
    let (Some(host), Some(user), Some(database)) =
        (part("database.hostname"), part("database.user"), part("database.dbname"))
    else {
        return;
    };
    if PARTS.iter().filter_map(|name| connector.get(name)).any(|property| property.broken.is_some()) {
        return translation.left_out.push(URL.to_owned());
    }
    let port = match part("database.port") {
        None => "5432".to_owned(),
        Some(port) if port.value.parse::<u16>().is_ok_and(|number| number > 0) => port.raw.clone(),
        Some(port) => {
            let problem = format!("\"{}\" is no port", port.value.escape_debug());
            return translation.refuse(port, URL, Objection::never(problem, "write a number from 1 to 65535"));
        }
    };
    let mut parameters = Vec::new();
    if let Some(mode) = part("database.sslmode") {
        parameters.extend(ssl_mode(translation, mode).map(|word| format!("sslmode={word}")));
    }
    for (name, parameter) in
        [("database.sslrootcert", "sslrootcert"), ("database.sslcert", "sslcert"), ("database.sslkey", "sslkey")]
    {
        parameters.extend(part(name).map(|path| format!("{parameter}={}", encoded(path))));
    }
    let query = if parameters.is_empty() { String::new() } else { format!("?{}", parameters.join("&")) };
    let url = format!("postgres://{}@{}:{port}/{}{query}", encoded(user), hosts(host), encoded(database));
    translation.document.set(URL, url);
    for property in PARTS.iter().filter_map(|name| connector.get(name)) {
        translation.come_from(URL, property);
    }
}

fn ssl_mode(translation: &mut Translation<'_>, mode: &Property) -> Option<String> {
    let word = mode.value.to_ascii_lowercase();
    match word.as_str() {
        "disable" | "prefer" | "require" => Some(word),
        "verify-ca" | "verify-full" => {
            if translation.connector.value("database.sslrootcert").is_none() {
                let difference = "the server is verified with the system's authorities; Java's driver takes \
                                  ~/.postgresql/root.crt where no database.sslrootcert is named";
                translation.mark(mode, Fate::Differs(URL.to_owned(), difference.to_owned()));
            }
            Some(word)
        }
        "allow" => {
            let difference = "TLS is taken if the server has it, as with \"prefer\"";
            translation.mark(mode, Fate::Differs(URL.to_owned(), difference.to_owned()));
            Some("prefer".to_owned())
        }
        _ => {
            let words = &["disable", "allow", "prefer", "require", "verify-ca", "verify-full"];
            translation.refuse(mode, URL, unknown_word(mode, words));
            None
        }
    }
}

/// Several hosts may stand there, each with its port but the last.
fn hosts(host: &Property) -> String {
    let bracketed = |text: &str| {
        if text.parse::<Ipv6Addr>().is_ok() { format!("[{text}]") } else { text.to_owned() }
    };
    if is_plain(&host.value) { host.raw.clone() } else { bracketed(&host.value) }
}

/// Whether the text stands for itself in a URL.
fn is_plain(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte))
}

/// The text for a URL. Placeholders stay where their values need no escapes.
fn encoded(property: &Property) -> String {
    if is_plain(&property.value) {
        return property.raw.clone();
    }
    let mut text = String::new();
    for byte in property.value.bytes() {
        match char::from(byte) {
            c if c.is_ascii_alphanumeric() || "-._~/".contains(c) => text.push(c),
            _ => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

/// Deletes and truncates never become events; inserts always do.
fn skipped_operations(translation: &mut Translation<'_>, connector: &Input) {
    let Some(property) = connector.get("skipped.operations").filter(|property| property.broken.is_none()) else {
        return;
    };
    let operations: Vec<&str> = property.value.split(',').map(str::trim).filter(|word| !word.is_empty()).collect();
    if operations.contains(&"c") {
        let objection = Objection::never("would skip inserts, and each insert is an event", "leave \"c\" out of it");
        return translation.refuse(property, "source.postgres", objection);
    }
    let unknown = operations.iter().any(|word| !matches!(*word, "r" | "u" | "d" | "t" | "none"));
    let fate = if unknown {
        translation.object(unknown_word(property, &["none", "t", "u", "d"]))
    } else if operations.contains(&"t") || operations.is_empty() {
        Fate::Ignored("updates, deletes and truncates are no events in any case".to_owned())
    } else {
        Fate::Warned("a truncate is counted and goes no further; Debezium stops at it".to_owned())
    };
    translation.mark(property, fate);
}
