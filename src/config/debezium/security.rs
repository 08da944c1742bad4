//! TLS and SASL of the producer: from Java's forms to librdkafka's.

use super::kafka::{OPTIONS, Setting, Settings};
use super::translate::{Fate, Objection, Translation};

const USERNAME: &str = "sink.kafka.sasl-username";
const PASSWORD: &str = "sink.kafka.sasl-password";

pub(super) fn translate(translation: &mut Translation<'_>, settings: &Settings<'_>) {
    if let Some(setting) = settings.get("security.protocol") {
        translation.set_entry(OPTIONS, "security.protocol", &setting.property.raw, setting.property);
        map(translation, setting, "security.protocol");
    }
    let protocol = settings.value("security.protocol").unwrap_or("PLAINTEXT").to_ascii_uppercase();
    let (has_tls, has_sasl) = (protocol.ends_with("SSL"), protocol.starts_with("SASL"));
    if has_tls {
        truststore(translation, settings);
        keystore(translation, settings);
        endpoint(translation, settings);
    }
    if has_sasl {
        sasl(translation, settings);
    }
    for (needed, prefix) in [(has_tls, "ssl."), (has_sasl, "sasl.")] {
        if !needed {
            without_effect(translation, settings, prefix, &protocol);
        }
    }
}

fn map(translation: &mut Translation<'_>, setting: Setting<'_>, option: &str) {
    translation.note(setting.file, setting.property, Fate::Mapped(format!("{OPTIONS}.{option}")));
}

/// Settings of what the protocol does not have.
fn without_effect(translation: &mut Translation<'_>, settings: &Settings<'_>, prefix: &str, protocol: &str) {
    for setting in settings.below(prefix).filter(|setting| setting.property.broken.is_none()) {
        let fate = Fate::Ignored(format!("security.protocol is {protocol}"));
        translation.note(setting.file, setting.property, fate);
    }
}

/// Hands a text on under librdkafka's name.
fn hand_on(translation: &mut Translation<'_>, settings: &Settings<'_>, name: &str, option: &str) {
    if let Some(setting) = settings.get(name) {
        translation.set_entry(OPTIONS, option, &setting.property.raw, setting.property);
        map(translation, setting, option);
    }
}

/// Hands a secret on under librdkafka's name.
fn hide(translation: &mut Translation<'_>, settings: &Settings<'_>, name: &str, option: &str, variable: &str) {
    if let Some(setting) = settings.get(name) {
        let text = translation.secret(&format!("{OPTIONS}.{option}"), variable, setting.property);
        translation.set_entry(OPTIONS, option, &text, setting.property);
        map(translation, setting, option);
    }
}

fn truststore(translation: &mut Translation<'_>, settings: &Settings<'_>) {
    const LOCATION: &str = "ssl.truststore.location";
    if settings.get("ssl.truststore.certificates").is_some() {
        return hand_on(translation, settings, "ssl.truststore.certificates", "ssl.ca.pem");
    }
    let Some(location) = settings.get(LOCATION) else { return };
    let kind = settings.value("ssl.truststore.type").unwrap_or("JKS").to_ascii_uppercase();
    let path = &location.property.raw;
    match kind.as_str() {
        "PEM" => hand_on(translation, settings, LOCATION, "ssl.ca.location"),
        "PKCS12" => {
            let hint = format!(
                "make a PEM file of it: openssl pkcs12 -in {path} -nokeys -out ca.pem; name that as {LOCATION}, with ssl.truststore.type PEM"
            );
            translation.refuse_setting(location, Objection::never("authorities in PKCS#12 cannot be read", hint));
        }
        _ => {
            let hint = format!(
                "make a PEM file of it: keytool -exportcert -rfc -alias ALIAS -keystore {path} -file ca.pem; name that as \
                 {LOCATION}, with ssl.truststore.type PEM"
            );
            translation.refuse_setting(location, Objection::never("a Java key store (JKS) cannot be read", hint));
        }
    }
    if let Some(password) = settings.get("ssl.truststore.password").filter(|_| kind == "PEM") {
        translation.note(
            password.file,
            password.property,
            Fate::Ignored("a PEM file of authorities has none".to_owned()),
        );
    }
}

fn keystore(translation: &mut Translation<'_>, settings: &Settings<'_>) {
    const LOCATION: &str = "ssl.keystore.location";
    if settings.get("ssl.keystore.key").is_some() {
        hide(translation, settings, "ssl.keystore.key", "ssl.key.pem", "OUTBOXD_SSL_KEY");
        hand_on(translation, settings, "ssl.keystore.certificate.chain", "ssl.certificate.pem");
        return hide(translation, settings, "ssl.key.password", "ssl.key.password", "OUTBOXD_SSL_KEY_PASSWORD");
    }
    let Some(location) = settings.get(LOCATION) else { return };
    match settings.value("ssl.keystore.type").unwrap_or("JKS").to_ascii_uppercase().as_str() {
        // one file holds both
        "PEM" => {
            hand_on(translation, settings, LOCATION, "ssl.certificate.location");
            hand_on(translation, settings, LOCATION, "ssl.key.location");
            hide(translation, settings, "ssl.key.password", "ssl.key.password", "OUTBOXD_SSL_KEY_PASSWORD");
        }
        "PKCS12" => {
            hand_on(translation, settings, LOCATION, "ssl.keystore.location");
            hide(
                translation,
                settings,
                "ssl.keystore.password",
                "ssl.keystore.password",
                "OUTBOXD_SSL_KEYSTORE_PASSWORD",
            );
            if let Some(password) = settings.get("ssl.key.password") {
                let fate = Fate::Ignored("ssl.keystore.password opens the whole store".to_owned());
                translation.note(password.file, password.property, fate);
            }
        }
        _ => {
            let path = &location.property.raw;
            let hint = format!(
                "convert it: keytool -importkeystore -srckeystore {path} -destkeystore client.p12 -deststoretype PKCS12; name \
                 that as {LOCATION}, with ssl.keystore.type PKCS12"
            );
            translation.refuse_setting(location, Objection::never("a Java key store (JKS) cannot be read", hint));
        }
    }
}

/// An empty value switches the check of the host's name off.
fn endpoint(translation: &mut Translation<'_>, settings: &Settings<'_>) {
    const NAME: &str = "ssl.endpoint.identification.algorithm";
    let Some(setting) = settings.any(NAME).filter(|setting| setting.property.broken.is_none()) else { return };
    let word = if setting.property.value.is_empty() { "none" } else { "https" };
    translation.set_entry(OPTIONS, NAME, word, setting.property);
    map(translation, setting, NAME);
}

fn sasl(translation: &mut Translation<'_>, settings: &Settings<'_>) {
    let mechanism = settings.value("sasl.mechanism").unwrap_or("GSSAPI").to_ascii_uppercase();
    if let Some(setting) = settings.get("sasl.mechanism").or_else(|| settings.get("security.protocol")) {
        match mechanism.as_str() {
            "PLAIN" | "SCRAM-SHA-256" | "SCRAM-SHA-512" => {
                translation.set_entry(OPTIONS, "sasl.mechanisms", &mechanism, setting.property);
                if setting.name == "sasl.mechanism" {
                    map(translation, setting, "sasl.mechanisms");
                }
            }
            _ => {
                let problem = format!("the SASL mechanism {mechanism} is not taken from a connector");
                let hint = "use PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512, or run outboxd config convert and see the options of sink.kafka";
                return translation.refuse_setting(setting, Objection::never(problem, hint));
            }
        }
    }
    let Some(jaas) = settings.get("sasl.jaas.config") else {
        let Some(setting) = settings.get("security.protocol") else { return };
        let hint = "add sasl.jaas.config with user and password beside it";
        return translation
            .refuse_setting(setting, Objection::never("asks for a login, and sasl.jaas.config is missing", hint));
    };
    if jaas.property.broken.is_some() {
        return;
    }
    let property = jaas.property;
    let (Some(user), Some(password)) =
        (jaas_value(&property.value, "username"), jaas_value(&property.value, "password"))
    else {
        let hint =
            "write org.apache.kafka.common.security.scram.ScramLoginModule required username=\"…\" password=\"…\";";
        return translation.refuse_setting(jaas, Objection::never("names no user and password", hint));
    };
    // placeholders inside stay, where the value is nothing else
    let raw = |key: &str| jaas_value(&property.raw, key).filter(|raw| is_one_placeholder(raw));
    let user = raw("username").unwrap_or(user);
    let text =
        raw("password").unwrap_or_else(|| translation.hide(PASSWORD, "OUTBOXD_SASL_PASSWORD", property, &password));
    translation.set(USERNAME, user, property);
    translation.set(PASSWORD, text, property);
    translation.note(jaas.file, property, Fate::Mapped(format!("{USERNAME}, {PASSWORD}")));
}

fn is_one_placeholder(text: &str) -> bool {
    use super::super::placeholder::{Part, parts};
    matches!(parts(text).as_deref(), Ok([Part::Placeholder(_)]))
}

/// The value of a key in an entry of a JAAS configuration: `Module required key="value" key=value;`
fn jaas_value(entry: &str, key: &str) -> Option<String> {
    let mut rest = entry;
    loop {
        let (before, after) = rest.split_once('=')?;
        let name = before.rsplit(|c: char| c.is_whitespace() || c == ';').next().unwrap_or_default();
        // a key may stand apart from its equals sign
        let name = if name.is_empty() { before.split_whitespace().next_back().unwrap_or_default() } else { name };
        let after = after.trim_start();
        let (value, tail) = jaas_token(after)?;
        if name == key {
            return Some(value);
        }
        rest = tail;
    }
}

/// A value in quotes, in which a backslash keeps the next character, or up to a blank or semicolon.
fn jaas_token(text: &str) -> Option<(String, &str)> {
    let quote = text.chars().next().filter(|c| matches!(c, '"' | '\''));
    let Some(quote) = quote else {
        let end = text.find(|c: char| c.is_whitespace() || c == ';').unwrap_or(text.len());
        return Some((text.get(..end)?.to_owned(), text.get(end..)?));
    };
    let mut value = String::new();
    let mut characters = text.char_indices().skip(1);
    while let Some((at, c)) = characters.next() {
        match c {
            '\\' => value.push(characters.next()?.1),
            c if c == quote => return Some((value, text.get(at + 1..)?)),
            c => value.push(c),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_and_passwords_are_found() {
        let module = "org.apache.kafka.common.security.scram.ScramLoginModule required";
        for (entry, expected) in [
            (format!("{module} username=\"u\" password=\"p w\";"), Some("p w")),
            (format!("{module} password='p\"w' username=\"u\";"), Some("p\"w")),
            (format!("{module}\n username=u\n password=p;"), Some("p")),
            (format!("{module} username = \"u=x\" password = \"a\\\"b\\\\\" ;"), Some("a\"b\\")),
            (format!("{module} username=\"password=no\" password=\"${{file:/x:y}}\";"), Some("${file:/x:y}")),
            (format!("{module} username=\"u\" password=\"p"), None),
            (format!("{module} username=\"u\";"), None),
            (String::new(), None),
        ] {
            assert_eq!(jaas_value(&entry, "password").as_deref(), expected, "{entry}");
        }
    }
}
