//! Where rows come from: the URL, the password, the tables.

use std::net::Ipv6Addr;

use super::input::{Input, Property};
use super::kind::Kind;
use super::translate::{Fate, Objection, Translation, unknown_word};
use super::{binlog, tables};

/// Debezium's default slot and publication (`PostgresConnectorConfig`).
const DEFAULT_SLOT: &str = "debezium";
const DEFAULT_PUBLICATION: &str = "dbz_publication";

pub(super) fn translate(translation: &mut Translation<'_>) {
    let connector = translation.connector;
    names(translation, connector);
    if translation.kind == Kind::Postgres {
        slot(translation);
        plugin(translation, connector);
    } else {
        binlog::translate(translation);
    }
    url(translation, connector);
    if let Some(property) = connector.get("database.password").filter(|property| !property.value.is_empty())
        && !translation.given.source_url
    {
        let option = translation.kind.option("password");
        let text = translation.secret(&option, "OUTBOXD_DATABASE_PASSWORD", property);
        translation.set(&option, text, property);
    }
    skipped_operations(translation, connector);
    tables::translate(translation);
}

/// Names that have other defaults in Debezium.
fn slot(translation: &mut Translation<'_>) {
    let document = &mut translation.document;
    if !document.has("source.postgres.slot") {
        document.set("source.postgres.slot", DEFAULT_SLOT);
    }
    if !document.has("source.postgres.publication") {
        document.set("source.postgres.publication", DEFAULT_PUBLICATION);
    }
}

/// The connector's logical name, and ours.
fn names(translation: &mut Translation<'_>, connector: &Input) {
    if let Some(property) = connector.get("database.server.name") {
        if translation.document.has("record.legacy-prefix") {
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

/// What the URL is made of.
const PARTS: &[&str] = &["database.hostname", "database.port", "database.user"];
const POSTGRES_PARTS: &[&str] =
    &["database.dbname", "database.sslmode", "database.sslrootcert", "database.sslcert", "database.sslkey"];
const BINLOG_PARTS: &[&str] = &[
    "database.ssl.mode",
    "database.ssl.truststore",
    "database.ssl.truststore.password",
    "database.ssl.keystore",
    "database.ssl.keystore.password",
];

fn url(translation: &mut Translation<'_>, connector: &Input) {
    let kind = translation.kind;
    let option = kind.option("url");
    let own = if kind == Kind::Postgres { POSTGRES_PARTS } else { BINLOG_PARTS };
    let parts = PARTS.iter().chain(own).filter_map(|name| connector.get(name));
    if translation.given.source_url {
        for property in parts.chain(connector.get("database.password")) {
            translation.mark(property, Fate::Ignored("--source-url wins over it".to_owned()));
        }
        return;
    }
    if parts.clone().any(|property| property.broken.is_some()) {
        return translation.left_out.push(option);
    }
    let part = |name: &str| connector.get(name).filter(|property| !property.value.is_empty());
    let parameters = if kind == Kind::Postgres { tls(translation) } else { binlog::tls(translation) };
    let (Some(host), Some(user)) = (part("database.hostname"), part("database.user")) else { return };
    let database = match (kind, part("database.dbname")) {
        (Kind::Postgres, None) => return,
        (Kind::Postgres, Some(database)) => encoded(database, PATH),
        // the tables are named with their databases
        (Kind::Mysql | Kind::Mariadb, _) => String::new(),
    };
    if kind != Kind::Postgres && host.value.contains(',') {
        let objection = Objection::never("names several hosts, and one is read from", "name one of them");
        return translation.refuse(host, &option, objection);
    }
    let usual = if kind == Kind::Postgres { "5432" } else { "3306" };
    let port = match part("database.port") {
        None => usual.to_owned(),
        Some(port) if port.value.parse::<u16>().is_ok_and(|number| number > 0) => port.raw.clone(),
        Some(port) => {
            let problem = format!("\"{}\" is no port", port.value.escape_debug());
            return translation.refuse(port, &option, Objection::never(problem, "write a number from 1 to 65535"));
        }
    };
    let query = if parameters.is_empty() { String::new() } else { format!("?{}", parameters.join("&")) };
    let (scheme, user) = (kind.source(), encoded(user, ""));
    translation.document.set(&option, format!("{scheme}://{user}@{}:{port}/{database}{query}", hosts(host)));
    for property in parts {
        translation.come_from(&option, property);
    }
}

/// The parameters of PostgreSQL's URL that say how TLS is made.
fn tls(translation: &mut Translation<'_>) -> Vec<String> {
    let connector = translation.connector;
    let part = |name: &str| connector.get(name).filter(|property| !property.value.is_empty());
    let mut parameters = Vec::new();
    if let Some(mode) = part("database.sslmode") {
        parameters.extend(ssl_mode(translation, mode).map(|word| format!("sslmode={word}")));
    }
    for (name, parameter) in
        [("database.sslrootcert", "sslrootcert"), ("database.sslcert", "sslcert"), ("database.sslkey", "sslkey")]
    {
        parameters.extend(part(name).map(|path| format!("{parameter}={}", encoded(path, PATH))));
    }
    parameters
}

fn ssl_mode(translation: &mut Translation<'_>, mode: &Property) -> Option<String> {
    let url = translation.kind.option("url");
    let word = mode.value.to_ascii_lowercase();
    match word.as_str() {
        "disable" | "prefer" | "require" => Some(word),
        "verify-ca" | "verify-full" => {
            if translation.connector.value("database.sslrootcert").is_none() {
                let difference = "the server is verified with the system's authorities; Java's driver takes \
                                  ~/.postgresql/root.crt where no database.sslrootcert is named";
                translation.mark(mode, Fate::Differs(url, difference.to_owned()));
            }
            Some(word)
        }
        "allow" => {
            let difference = "TLS is taken if the server has it, as with \"prefer\"";
            translation.mark(mode, Fate::Differs(url, difference.to_owned()));
            Some("prefer".to_owned())
        }
        _ => {
            let words = &["disable", "allow", "prefer", "require", "verify-ca", "verify-full"];
            translation.refuse(mode, &url, unknown_word(mode, words));
            None
        }
    }
}

/// Several hosts may stand there, each with its port but the last.
fn hosts(host: &Property) -> String {
    let bracketed = |text: &str| {
        if text.parse::<Ipv6Addr>().is_ok() { format!("[{text}]") } else { text.to_owned() }
    };
    if is_plain(&host.value, PATH) { host.raw.clone() } else { bracketed(&host.value) }
}

/// What a path may have beside the letters of a name.
const PATH: &str = "/";

/// Whether the text stands for itself in a URL, in a part that may have `allowed` too.
fn is_plain(text: &str, allowed: &str) -> bool {
    text.chars().all(|c| c.is_ascii_alphanumeric() || "-._~".contains(c) || allowed.contains(c))
}

/// The text for a URL. Placeholders stay where their values need no escapes.
fn encoded(property: &Property, allowed: &str) -> String {
    if is_plain(&property.value, allowed) {
        return property.raw.clone();
    }
    let mut text = String::new();
    for byte in property.value.bytes() {
        match char::from(byte) {
            c if c.is_ascii() && is_plain(c.encode_utf8(&mut [0; 4]), allowed) => text.push(c),
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
        return translation.refuse(property, "source", objection);
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
