//! The bodies of the commands: one file each.

pub mod binlog_offset;
pub mod check;
pub mod config;
pub mod connect_offset;
pub mod drop_slot;
mod mysql;
pub mod resume;
pub mod run;
pub mod setup;
mod state;
pub mod status;
pub mod takeover;
mod takeover_binlog;

use std::io::{IsTerminal, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use anyhow::Context;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::config::{Config, SourceConfig};
use crate::sink::SinkError;
use crate::source::SourceError;
use crate::source::mysql::settings::{Flavour, MysqlSettings};
use crate::source::postgres::settings::PostgresSettings;
use crate::source::postgres::survey::Survey;
use run::Refusal;

/// Longest wait for the relay's listener.
const READY_TIMEOUT: Duration = Duration::from_secs(3);

/// Longest answer that is read of it.
const MAX_ANSWER_BYTES: u64 = 1 << 20;

/// How a command ended that did what it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Done, or all is well.
    Done,
    /// The instance neither publishes nor stands by, or a person did not agree.
    NotReady,
    /// There are findings that keep the relay from working.
    Findings,
    /// The source needs a person's decision.
    Terminal,
}

impl Verdict {
    /// The process's exit code.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::NotReady => 1,
            Self::Findings => 2,
            Self::Terminal => 3,
        }
    }
}

/// Something stands in the way that may be otherwise the next time. Exit code 1.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Obstacle {
    /// What.
    pub message: String,
    /// What to do about it.
    pub hint: String,
}

fn obstacle(message: impl Into<String>, hint: impl Into<String>) -> anyhow::Error {
    Obstacle { message: message.into(), hint: hint.into() }.into()
}

fn refusal(message: impl Into<String>, hint: impl Into<String>) -> anyhow::Error {
    Refusal { message: message.into(), hint: hint.into() }.into()
}

/// What the configuration says about the source.
enum ConfiguredSource {
    Postgres(Box<PostgresSettings>),
    Mysql(Box<MysqlSettings>),
}

impl ConfiguredSource {
    /// The name of its table in the configuration.
    fn name(&self) -> &'static str {
        match self {
            Self::Postgres(_) => "postgres",
            Self::Mysql(settings) => settings.flavour().option(),
        }
    }
}

fn configured_source(config: &Config) -> anyhow::Result<ConfiguredSource> {
    let SourceConfig { postgres, mysql, mariadb } = &config.source;
    let wrong = |error: &dyn std::error::Error| refusal(error.to_string(), "correct the URL");
    if let Some(postgres) = postgres {
        let settings = PostgresSettings::new(config, postgres).map_err(|error| wrong(&error))?;
        return Ok(ConfiguredSource::Postgres(Box::new(settings)));
    }
    for (source, flavour) in [(mysql, Flavour::Mysql), (mariadb, Flavour::Mariadb)] {
        if let Some(source) = source {
            let settings = MysqlSettings::new(config, source, flavour).map_err(|error| wrong(&error))?;
            return Ok(ConfiguredSource::Mysql(Box::new(settings)));
        }
    }
    Err(refusal("no source is configured", "see the options in the README"))
}

/// What the configuration says about PostgreSQL, for a command that knows no other source yet.
fn postgres_settings(config: &Config, command: &str) -> anyhow::Result<PostgresSettings> {
    match configured_source(config)? {
        ConfiguredSource::Postgres(settings) => Ok(*settings),
        source @ ConfiguredSource::Mysql(_) => {
            let message =
                format!("command \"{command}\" is not available for [source.{}] in this version", source.name());
            Err(refusal(message, "the relay itself (outboxd run) is; see the README"))
        }
    }
}

/// An error of the source as a command ends with it.
fn source_error(error: SourceError) -> anyhow::Error {
    match error {
        SourceError::Configuration { message, hint, .. } => refusal(message, hint),
        SourceError::SlotInUse { message, .. } => obstacle(message, "stop whatever uses the slot"),
        other => obstacle(crate::chain(&other), other.hint().unwrap_or_default()),
    }
}

/// An error of the sink as a command ends with it.
fn sink_error(error: SinkError) -> anyhow::Error {
    match error {
        SinkError::Configuration { message, hint } => refusal(message, hint),
        SinkError::Refused { message, hint, .. } => obstacle(message, hint),
        SinkError::Closed { message } => obstacle(message, "keep the reader of the pipe running"),
        SinkError::Restart { message, .. } => obstacle(message, "check that the brokers run and can be reached"),
    }
}

/// The answer of the relay's own `/readyz` where the configuration has its listener; `None` if nothing answers there, or
/// another instance.
async fn ask_relay(config: &Config) -> Option<Value> {
    let mut address = config.http.address()?;
    if address.ip().is_unspecified() {
        let loopback = match address {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        };
        address.set_ip(loopback);
    }
    let answer = tokio::time::timeout(READY_TIMEOUT, get_readyz(address)).await.ok()?.ok()?;
    let (_, body) = answer.split_once("\r\n\r\n")?;
    let json: Value = serde_json::from_str(body).ok()?;
    (json.get("name").and_then(Value::as_str) == Some(config.name.as_str())).then_some(json)
}

/// HTTP/1.0: the body is not chunked and ends with the connection.
async fn get_readyz(address: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(format!("GET /readyz HTTP/1.0\r\nHost: {address}\r\n\r\n").as_bytes()).await?;
    let mut answer = String::new();
    stream.take(MAX_ANSWER_BYTES).read_to_string(&mut answer).await?;
    Ok(answer)
}

/// A text in the relay's answer.
fn text<'a>(json: &'a Value, key: &str) -> &'a str {
    json.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// Refuses while an instance may use or make the slot. A relay in a terminal state does neither; whether there is one is
/// returned.
async fn refuse_while_active(config: &Config, survey: &Survey) -> anyhow::Result<bool> {
    if let Some(holder) = survey.holder() {
        let hint = if holder.is_peer { "stop the relay first, and its standbys" } else { "stop it first" };
        return Err(obstacle(holder.words.clone(), hint));
    }
    let Some(relay) = ask_relay(config).await else { return Ok(false) };
    if text(&relay, "phase") == "terminal" {
        return Ok(true);
    }
    let message = format!(
        "an instance of this name runs: http://{}/readyz says {} ({})",
        config.http.listen,
        text(&relay, "phase"),
        text(&relay, "reason")
    );
    Err(obstacle(message, "stop the relay first, and its standbys"))
}

/// Asks a person whether to go on; `yes` is the answer already given.
async fn agreed(question: &str, yes: bool) -> anyhow::Result<bool> {
    if yes {
        return Ok(true);
    }
    if !std::io::stdin().is_terminal() {
        return Err(refusal(
            "nobody can be asked: standard input is no terminal",
            "add --yes to go on without being asked",
        ));
    }
    print!("{question} Type yes to go on: ");
    std::io::stdout().flush().context("write to standard output")?;
    let answer = tokio::task::spawn_blocking(|| {
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).map(|_| line)
    });
    let answer = answer.await.context("read the answer")?.context("read the answer")?;
    let is_yes = answer.trim().eq_ignore_ascii_case("yes");
    if !is_yes {
        println!("nothing was done");
    }
    Ok(is_yes)
}
