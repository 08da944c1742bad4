//! Asks a token endpoint: client credentials by HTTP Basic (RFC 6749, 2.3.1 and 4.4).

use std::path::Path;
use std::time::Duration;

use reqwest::redirect::Policy;
use reqwest::{Client, Response};
use serde::Deserialize;

use super::token::Token;
use crate::config::OauthConfig;
use crate::tls::{SslMode, TlsSettings, client_config};

/// Longest time for the whole question.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Longest answer that is read.
const ANSWER_LIMIT: usize = 256 << 10;

/// What an endpoint says when it gives no token (RFC 6749, 5.2).
#[derive(Deserialize)]
struct Refusal {
    error: String,
    #[serde(default)]
    error_description: Option<String>,
}

/// Asks for a token. Files are read anew.
///
/// # Errors
/// Why there is none, as a sentence.
pub(super) async fn ask(url: &str, config: &OauthConfig) -> Result<Token, String> {
    let secret = match &config.client_secret_file {
        Some(path) => read_secret(path).await?,
        None => String::new(),
    };
    let client = client(config).map_err(|why| format!("could not ask the token endpoint \"{url}\": {why}"))?;
    let mut form = vec![("grant_type", "client_credentials")];
    form.extend(config.scope.as_deref().map(|scope| ("scope", scope)));
    // encoded first, as the standard has it: a colon would end the id
    let id = encode(config.client_id.as_deref().unwrap_or_default());
    let question = client.post(url).basic_auth(id, Some(encode(&secret))).form(&form);
    let no_answer = |error: reqwest::Error| {
        // its own text has the URL in it again
        let error = error.without_url();
        format!("could not ask the token endpoint \"{url}\": {}", crate::chain(&error))
    };
    let mut answer = question.send().await.map_err(no_answer)?;
    let status = answer.status();
    let text = read(&mut answer).await.map_err(no_answer)?;
    if !status.is_success() {
        let why = serde_json::from_str::<Refusal>(&text).map(words).unwrap_or_default();
        return Err(format!("the token endpoint \"{url}\" answered {status}{why}"));
    }
    if !text.trim_start().starts_with('{') {
        return Err(format!("the token endpoint \"{url}\" answered with something that is no JSON"));
    }
    Token::parse(&text).map_err(|why| format!("the token endpoint \"{url}\" gave {why}"))
}

fn client(config: &OauthConfig) -> Result<Client, String> {
    let settings = TlsSettings { mode: SslMode::VerifyFull, roots: config.ca_file.clone(), identity: None };
    let tls = client_config(&settings).map_err(|error| crate::chain(&error))?;
    Client::builder()
        .tls_backend_preconfigured(std::sync::Arc::unwrap_or_clone(tls))
        // a secret goes where the configuration says, nowhere else
        .redirect(Policy::none())
        .timeout(TIMEOUT)
        .user_agent(concat!("outboxd/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(|error| crate::chain(&error))
}

async fn read_secret(path: &Path) -> Result<String, String> {
    let text = tokio::fs::read_to_string(path).await;
    let text = text.map_err(|error| format!("could not read the client's secret from \"{}\": {error}", path.display()));
    text.map(|text| text.trim_end_matches(['\r', '\n']).to_owned())
}

/// Reads the body as far as one may be expected to go.
async fn read(answer: &mut Response) -> Result<String, reqwest::Error> {
    let mut bytes = Vec::new();
    while let Some(chunk) = answer.chunk().await? {
        bytes.extend_from_slice(&chunk);
        if bytes.len() > ANSWER_LIMIT {
            break;
        }
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn words(refusal: Refusal) -> String {
    let plain = |text: &str| text.chars().filter(|c| !c.is_control()).take(300).collect::<String>();
    match refusal.error_description {
        Some(description) => format!(": {}: {}", plain(&refusal.error), plain(&description)),
        None => format!(": {}", plain(&refusal.error)),
    }
}

/// `application/x-www-form-urlencoded`.
fn encode(text: &str) -> String {
    use std::fmt::Write as _;
    text.bytes().fold(String::new(), |mut encoded, byte| {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'*' => encoded.push(char::from(byte)),
            b' ' => encoded.push('+'),
            _ => {
                let _ = write!(encoded, "%{byte:02X}");
            }
        }
        encoded
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_encoded_as_a_form() {
        assert_eq!(encode("a-B_9.*"), "a-B_9.*");
        assert_eq!(encode("p:ä ~"), "p%3A%C3%A4+%7E");
    }
}
