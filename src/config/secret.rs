//! Values that must not be shown.

use std::collections::BTreeMap;
use std::fmt;

use secrecy::{ExposeSecret, SecretString};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::config::KafkaConfig;

/// A text that neither `Debug` nor a log shows.
#[derive(Clone, Default)]
pub struct Secret(SecretString);

impl Secret {
    /// Wraps a text.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(SecretString::from(text.into()))
    }

    /// The text itself, for the one place that needs it.
    #[must_use]
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::new)
    }
}

/// In place of a secret.
const HIDDEN: &str = "(hidden)";

/// Shows that there is one.
impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(HIDDEN)
    }
}

/// Shows a URL without its password.
pub(super) fn url<S: Serializer>(url: &Secret, serializer: S) -> Result<S::Ok, S::Error> {
    let (base, query) = url.expose().split_once('?').unwrap_or((url.expose(), ""));
    let parameters = query.split('&').filter(|pair| !pair.is_empty());
    let shown: Vec<&str> =
        parameters.map(|pair| if pair.starts_with("password=") { "password=*" } else { pair }).collect();
    let query = if shown.is_empty() { String::new() } else { format!("?{}", shown.join("&")) };
    serializer.serialize_str(&(redact_urls(base) + &query))
}

/// Shows the options without passwords and keys.
pub(super) fn options<S: Serializer>(options: &BTreeMap<String, String>, serializer: S) -> Result<S::Ok, S::Error> {
    let is_secret = |name: &str| {
        ["password", "secret", "jaas", "key.pem", "oauthbearer.config"].iter().any(|word| name.contains(word))
    };
    let shown = |(name, value): (&String, &String)| {
        (name.clone(), if is_secret(name) { HIDDEN.to_owned() } else { value.clone() })
    };
    serializer.collect_map(options.iter().map(shown))
}

impl fmt::Debug for KafkaConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaConfig")
            .field("bootstrap_servers", &self.bootstrap_servers)
            .field("positions_topic", &self.positions_topic)
            .field("create_topics", &self.create_topics)
            .field("topic_partitions", &self.topic_partitions)
            .field("topic_replication_factor", &self.topic_replication_factor)
            .field("topic_config", &self.topic_config)
            .field("sasl_username", &self.sasl_username)
            .field("sasl_password", &self.sasl_password)
            .field("sasl_password_file", &self.sasl_password_file)
            .field("options", &self.options.keys())
            .finish()
    }
}

/// Replaces passwords in an excerpt of a configuration file by asterisks: those in URLs, and the whole value of a key
/// that is called a password.
pub(super) fn redact(excerpt: &str) -> String {
    let lines: Vec<String> = excerpt.split('\n').map(redact_line).collect();
    lines.join("\n")
}

fn redact_line(line: &str) -> String {
    if let Some((key, value)) = line.split_once('=') {
        let name = key.to_ascii_lowercase();
        if (name.contains("password") && !name.contains("file"))
            || name.contains("secret")
            || value.contains("password=")
        {
            return format!("{key}={}", mask(value));
        }
    }
    redact_urls(line)
}

/// Replaces the passwords of URLs in a line.
fn redact_urls(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once("://") {
        out.push_str(before);
        out.push_str("://");
        let authority = after.split(['"', '\'', ' ']).next().unwrap_or_default();
        // The last @ ends the user's part: a password may have one in it, and a slash that should have been escaped.
        let Some((login, _)) = authority.rsplit_once('@') else {
            rest = after;
            continue;
        };
        match login.split_once(':') {
            Some((user, password)) => out.push_str(&format!("{user}:{}", mask(password))),
            None => out.push_str(login),
        }
        rest = after.get(login.len()..).unwrap_or_default();
    }
    out + rest
}

/// As many asterisks as characters, so that a caret below still points to the right place.
fn mask(text: &str) -> String {
    text.chars().map(|c| if c.is_whitespace() { c } else { '*' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excerpts_keep_their_width_and_lose_their_passwords() {
        let cases = [
            ("url = \"postgres://u:p@ss@h/d\"", "url = \"postgres://u:****@h/d\""),
            ("url = \"postgres://u:a/b@h/d\"", "url = \"postgres://u:***@h/d\""),
            ("url = \"postgres://u@h/d\"", "url = \"postgres://u@h/d\""),
            ("url = \"postgres://h/d?a=b@c\"", "url = \"postgres://h/d?a=b@c\""),
            ("\"sasl.password\" = \"x y\"", "\"sasl.password\" = ** **"),
            ("password-file = \"/run/x\"", "password-file = \"/run/x\""),
            ("plain", "plain"),
        ];
        for (line, expected) in cases {
            assert_eq!(redact(line), expected);
        }
    }

    /// What `run --dry-run` prints.
    #[test]
    fn a_configuration_is_shown_without_its_secrets() {
        let mut config = crate::config::Config::default();
        config.source.postgres = Some(crate::config::PostgresConfig {
            url: Secret::new("postgres://u:hunter2secret@h/d?sslmode=require&password=hunter2"),
            password: Some(Secret::new("hunter2")),
            ..Default::default()
        });
        let mut kafka = KafkaConfig { sasl_password: Some(Secret::new("hunter2")), ..KafkaConfig::default() };
        for name in ["ssl.key.password", "ssl.key.pem", "sasl.oauthbearer.client.secret", "sasl.oauthbearer.config"] {
            kafka.options.insert(name.to_owned(), "hunter2".to_owned());
        }
        kafka.options.insert("linger.ms".to_owned(), "5".to_owned());
        config.sink.kafka = Some(kafka);
        let text = toml::to_string(&config).unwrap();
        assert!(!text.contains("hunter2"), "{text}");
        assert!(text.contains("url = \"postgres://u:*************@h/d?sslmode=require&password=*\""), "{text}");
        assert!(text.contains("\"linger.ms\" = \"5\"") && text.contains("sasl-password = \"(hidden)\""), "{text}");
    }

    #[test]
    fn debug_shows_neither_a_secret_nor_the_value_of_an_option() {
        let mut config = KafkaConfig::default();
        config.options.insert("ssl.key.password".to_owned(), "hunter2".to_owned());
        let text = format!("{:?} {config:?}", Secret::new("hunter2"));
        assert!(!text.contains("hunter2") && text.contains("ssl.key.password"), "{text}");
    }
}
