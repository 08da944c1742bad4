//! What the MySQL and MariaDB connectors have of their own: TLS, the replica's number, filters of GTIDs.

use super::input::Property;
use super::kind::Kind;
use super::translate::{Fate, Objection, Translation, truth, unknown_word};

/// Debezium's words for TLS with ours; MySQL's and MariaDB's.
const MYSQL_MODES: &[(&str, &str)] = &[
    ("disabled", "disable"),
    ("preferred", "prefer"),
    ("required", "require"),
    ("verify_ca", "verify-ca"),
    ("verify_identity", "verify-full"),
];
const MARIADB_MODES: &[(&str, &str)] =
    &[("disable", "disable"), ("trust", "require"), ("verify-ca", "verify-ca"), ("verify-full", "verify-full")];

pub(super) fn translate(translation: &mut Translation<'_>) {
    server_id(translation);
    connect_timeout(translation);
    history(translation);
    gtid_filter(translation);
    translation.document.set("record.mysql-values", "debezium");
}

/// A property with a value that could be resolved.
fn given<'a>(translation: &Translation<'a>, name: &str) -> Option<&'a Property> {
    let connector = translation.connector;
    connector.get(name).filter(|property| property.broken.is_none() && !property.value.is_empty())
}

fn server_id(translation: &mut Translation<'_>) {
    let Some(property) = given(translation, "database.server.id") else { return };
    let option = translation.kind.option("server-id");
    match property.value.parse::<u32>() {
        Ok(number) if number > 0 => translation.set(&option, i64::from(number), property),
        _ => {
            let problem = format!("\"{}\" is no number of a replica", property.value.escape_debug());
            translation.refuse(property, &option, Objection::never(problem, "write a number from 1 to 4294967295"));
        }
    }
}

fn connect_timeout(translation: &mut Translation<'_>) {
    let Some(property) = given(translation, "connect.timeout.ms") else { return };
    let option = translation.kind.option("connect-timeout");
    match property.value.parse::<u64>() {
        Ok(milliseconds) => translation.set(&option, format!("{milliseconds}ms"), property),
        Err(_) => {
            let problem = format!("\"{}\" is no number", property.value.escape_debug());
            translation.refuse(property, &option, Objection::never(problem, "write milliseconds"));
        }
    }
}

/// One warning, however many properties there are.
fn history(translation: &mut Translation<'_>) {
    let connector = translation.connector;
    let is_one = |property: &&Property| {
        let is_history =
            ["schema.history.internal", "database.history"].iter().any(|name| property.name.starts_with(name));
        is_history && property.broken.is_none()
    };
    let mut first: Option<&Property> = None;
    for property in connector.properties.iter().filter(is_one) {
        let fate = match first {
            None => Fate::Warned(
                "no history of schemas is needed: the log names its columns (binlog_row_metadata = FULL)".to_owned(),
            ),
            Some(first) => Fate::Ignored(format!("see {}", first.written)),
        };
        first = first.or(Some(property));
        translation.mark(property, fate);
    }
}

/// Rows of some servers only.
fn gtid_filter(translation: &mut Translation<'_>) {
    const FILTER: &str = "gtid.source.filter.dml.events";
    let filter = given(translation, FILTER);
    let is_on = match filter.map(|property| (property, truth(&property.value))) {
        None => true,
        Some((_, Some(is_on))) => is_on,
        Some((property, None)) => {
            return translation.refuse(property, "source", unknown_word(property, &["true", "false"]));
        }
    };
    let lists: Vec<&Property> = ["gtid.source.includes", "gtid.source.excludes"]
        .into_iter()
        .filter_map(|name| given(translation, name))
        .collect();
    if let Some(filter) = filter {
        let fate = match lists.first() {
            Some(list) => Fate::Ignored(format!("see {}", list.written)),
            None => Fate::Ignored("the rows of every server are published".to_owned()),
        };
        translation.mark(filter, fate);
    }
    for list in lists {
        if is_on {
            let objection = Objection::unless_allowed(
                "would publish the rows of some servers only, which is not available",
                format!("leave it out, or set {FILTER} to \"false\""),
                "the rows of every server are published",
            );
            translation.refuse(list, "source", objection);
        } else {
            translation.mark(list, Fate::Warned("all of the position's GTIDs count".to_owned()));
        }
    }
}

/// The parameters of the URL that say how TLS is made.
pub(super) fn tls(translation: &mut Translation<'_>) -> Vec<String> {
    let kind = translation.kind;
    let (modes, usual) = match kind {
        Kind::Mariadb => (MARIADB_MODES, "disable"),
        _ => (MYSQL_MODES, "prefer"),
    };
    let property = given(translation, "database.ssl.mode");
    let mode = match property {
        None => usual,
        Some(property) => match modes.iter().find(|(word, _)| word.eq_ignore_ascii_case(&property.value)) {
            Some((_, mode)) => mode,
            None => {
                let words: Vec<&str> = modes.iter().map(|(word, _)| *word).collect();
                translation.refuse(property, &kind.option("url"), unknown_word(property, &words));
                return Vec::new();
            }
        },
    };
    if let Some(property) = property.filter(|_| mode.starts_with("verify"))
        && given(translation, "database.ssl.truststore").is_none()
    {
        let difference = "the server is verified with the system's authorities; Java's driver takes Java's own";
        translation.mark(property, Fate::Differs(kind.option("url"), difference.to_owned()));
    }
    stores(translation, mode);
    vec![format!("sslmode={mode}")]
}

/// Java's stores: authorities where the server is verified, and the client's own certificate.
fn stores(translation: &mut Translation<'_>, mode: &str) {
    let with_url = |parameters: &str| {
        format!(
            "then give --source-url {}://USER:PASSWORD@HOST:PORT/?sslmode={mode}{parameters} (OUTBOXD_SOURCE_URL)",
            translation.kind.source()
        )
    };
    let trust = (
        "database.ssl.truststore",
        "authorities in a Java key store or in PKCS#12 cannot be read",
        "make a PEM file of it: keytool -exportcert -rfc -alias ALIAS -keystore {path} -file ca.pem;",
        with_url("&sslrootcert=ca.pem"),
        mode.starts_with("verify"),
        "with this database.ssl.mode the server is not verified",
    );
    let own = (
        "database.ssl.keystore",
        "a certificate in a Java key store or in PKCS#12 cannot be read",
        "make PEM files of it: keytool -importkeystore -srckeystore {path} -destkeystore client.p12 -deststoretype PKCS12; \
         openssl pkcs12 -in client.p12 -nokeys -out client.pem; openssl pkcs12 -in client.p12 -nodes -nocerts -out client.key;",
        with_url("&sslcert=client.pem&sslkey=client.key"),
        mode != "disable",
        "with this database.ssl.mode there is no TLS",
    );
    for (name, problem, command, then, is_needed, why_not) in [trust, own] {
        let Some(store) = given(translation, name) else { continue };
        if let Some(password) = given(translation, &format!("{name}.password")) {
            translation.mark(password, Fate::Ignored(format!("see {name}")));
        }
        if is_needed {
            let hint = format!("{} {then}", command.replace("{path}", &store.raw));
            translation.refuse(store, &translation.kind.option("url"), Objection::never(problem, hint));
        } else {
            translation.mark(store, Fate::Ignored(why_not.to_owned()));
        }
    }
}
