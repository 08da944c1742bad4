//! `[sink.kafka.oauth]`: login at the brokers by a token.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::KafkaConfig;
use super::error::Findings;
use super::validate::secret_file;

/// Where the token of SASL OAUTHBEARER comes from: an endpoint or a command.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct OauthConfig {
    /// URL that gives a token for client id and secret (OAuth 2.0, client credentials).
    pub token_endpoint: Option<String>,
    /// Client id at the endpoint.
    pub client_id: Option<String>,
    /// File whose content, without trailing line feeds, is the client's secret. Read for each token.
    pub client_secret_file: Option<PathBuf>,
    /// Scope that is asked for.
    pub scope: Option<String>,
    /// PEM file of the authorities by which the endpoint's certificate is verified; unset: the system's.
    pub ca_file: Option<PathBuf>,
    /// Program and arguments that print a token; run for each token.
    pub token_command: Vec<String>,
    /// SASL extensions that are sent beside the token.
    pub extensions: BTreeMap<String, String>,
}

impl OauthConfig {
    /// Whether the login is by a token.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.token_endpoint.is_some() || !self.token_command.is_empty()
    }
}

/// The value of an option of librdkafka's, by any of its names.
fn option<'a>(kafka: &'a KafkaConfig, names: &[&str]) -> Option<&'a str> {
    names.iter().find_map(|name| kafka.options.get(*name)).map(|value| value.trim())
}

/// What is wrong with the login by token.
pub(super) fn validate(kafka: &KafkaConfig, findings: &mut Findings) {
    const ENDPOINT: &str = "sink.kafka.oauth.token-endpoint";
    const COMMAND: &str = "sink.kafka.oauth.token-command";
    let oauth = &kafka.oauth;
    if let Some(url) = &oauth.token_endpoint {
        if let Err(problem) = check_endpoint(url) {
            findings.add(ENDPOINT, problem, "write https://host/path, as the provider's documentation has it");
        }
        if !oauth.token_command.is_empty() {
            findings.add(COMMAND, "is there beside token-endpoint", "leave one of them out");
        }
    }
    if oauth.token_command.first().is_some_and(|program| program.trim().is_empty()) {
        let hint = "write the program and each argument as a text of its own: [\"print-token\", \"--kafka\"]";
        findings.add(COMMAND, "names no program", hint);
    }
    belongings(kafka, findings);
    if let Some(path) = &oauth.client_secret_file {
        secret_file("sink.kafka.oauth.client-secret-file", path, "secret", findings);
    }
    for (name, value) in &oauth.extensions {
        if let Some(problem) = extension_problem(name, value) {
            let option = format!("sink.kafka.oauth.extensions.{name}");
            findings.add(&option, problem, "write extensions as the brokers' documentation has them");
        }
    }
    mechanism(kafka, findings);
}

/// What an endpoint needs, and what is of no use without one.
fn belongings(kafka: &KafkaConfig, findings: &mut Findings) {
    let oauth = &kafka.oauth;
    let has_endpoint = oauth.token_endpoint.is_some();
    let parts = [
        ("client-id", oauth.client_id.is_some(), true, "give the client's id at the endpoint"),
        ("client-secret-file", oauth.client_secret_file.is_some(), true, "name the file of the client's secret"),
        ("scope", oauth.scope.is_some(), false, ""),
        ("ca-file", oauth.ca_file.is_some(), false, ""),
    ];
    for (name, is_there, is_needed, hint) in parts {
        let option = format!("sink.kafka.oauth.{name}");
        if has_endpoint && is_needed && !is_there {
            findings.add(&option, "is missing beside token-endpoint", hint);
        } else if !has_endpoint && is_there {
            findings.add(&option, "has no effect without token-endpoint", "give token-endpoint too, or leave it out");
        }
    }
    if !oauth.extensions.is_empty() && !oauth.is_set() {
        let hint = "give token-endpoint or token-command too, or leave it out";
        findings.add("sink.kafka.oauth.extensions", "has no effect without a token", hint);
    }
}

/// Mechanism and protocol are options of librdkafka's; here they have to agree with the kind of login.
fn mechanism(kafka: &KafkaConfig, findings: &mut Findings) {
    let mechanism = option(kafka, &["sasl.mechanisms", "sasl.mechanism"]);
    let is_token = mechanism.is_some_and(|name| name.eq_ignore_ascii_case("OAUTHBEARER"));
    if !kafka.oauth.is_set() {
        if is_token {
            let hint = "give token-endpoint, client-id and client-secret-file, or token-command, in [sink.kafka.oauth]";
            findings.add("sink.kafka.oauth", "is missing beside the mechanism OAUTHBEARER", hint);
        }
        return;
    }
    if let Some(name) = mechanism
        && !is_token
    {
        let problem = format!("\"{name}\" does not go with a login by token");
        findings.add("sink.kafka.options.sasl.mechanisms", problem, "leave it out, or leave out [sink.kafka.oauth]");
    }
    if kafka.sasl_username.is_some() {
        let hint = "leave out sasl-username and sasl-password-file, or [sink.kafka.oauth]";
        findings.add("sink.kafka.sasl-username", "does not go with a login by token", hint);
    }
    let protocol = option(kafka, &["security.protocol"]).unwrap_or("plaintext");
    if !protocol.to_ascii_lowercase().starts_with("sasl") {
        let problem = format!("is \"{protocol}\", which has no login");
        findings.add("sink.kafka.options.security.protocol", problem, "write \"security.protocol\" = \"SASL_SSL\"");
    }
}

fn check_endpoint(text: &str) -> Result<(), String> {
    let url = reqwest::Url::parse(text).map_err(|error| format!("is no URL: {error}"))?;
    if !matches!(url.scheme(), "https" | "http") {
        return Err(format!("has the scheme \"{}\"", url.scheme()));
    }
    if url.username() != "" || url.password().is_some() {
        return Err("has a user or a password in it, which belong to client-id and client-secret-file".to_owned());
    }
    Ok(())
}

/// What RFC 7628 does not allow.
fn extension_problem(name: &str, value: &str) -> Option<&'static str> {
    if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphabetic()) {
        return Some("the name of an extension has letters only");
    }
    if name == "auth" {
        return Some("\"auth\" is the token itself");
    }
    let legal = |c: char| c.is_ascii_graphic() || matches!(c, ' ' | '\t' | '\r' | '\n');
    (value.is_empty() || !value.chars().all(legal)).then_some("the value has to be ASCII text")
}
