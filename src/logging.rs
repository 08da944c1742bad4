//! Log output: lines to standard error, as text for people or as JSON for a collector.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::util::SubscriberInitExt;

use crate::config::{LogConfig, LogFormat};

/// Targets of librdkafka and of its binding, and the level from which they are heard: below it librdkafka tells each
/// connection that it opens or loses.
const LIBRDKAFKA: [&str; 2] = ["librdkafka", "rdkafka"];

/// The log cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The level is no filter.
    #[error("log.level: {0}")]
    Level(String),
    /// A log was started before.
    #[error("the log was started before")]
    Started(#[source] tracing_subscriber::util::TryInitError),
}

/// Starts the log of this process.
///
/// # Errors
/// [`LogError`] if the level is no filter, or if a log was started before.
pub fn init(config: &LogConfig) -> Result<(), LogError> {
    let filter = filter(&config.level).map_err(LogError::Level)?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    let started = match config.format {
        LogFormat::Text => builder.finish().try_init(),
        LogFormat::Json => builder.json().flatten_event(true).finish().try_init(),
    };
    started.map_err(LogError::Started)
}

/// What is wrong with the text of `log.level`.
///
/// # Errors
/// The problem, for a person.
pub fn check_filter(level: &str) -> Result<(), String> {
    filter(level).map(drop)
}

fn filter(level: &str) -> Result<EnvFilter, String> {
    let configured: Vec<&str> = level.split(',').map(str::trim).filter(|directive| !directive.is_empty()).collect();
    let mut general = None;
    for directive in &configured {
        let plain = !directive.contains(['=', ':', '[', ']', '}']);
        match directive.parse::<LevelFilter>() {
            Ok(parsed) if plain => general = Some(parsed),
            // The filter would take a misspelt level for the name of a module, and show everything of it.
            Err(_) if plain => return Err(format!("\"{directive}\" is no level")),
            _ => {}
        }
    }
    let mut directives = String::new();
    if general.is_none_or(|level| level > LevelFilter::WARN) {
        for target in LIBRDKAFKA {
            directives.push_str(&format!("{target}=warn,"));
        }
    }
    // What is configured comes last: of two directives for one target the later one holds.
    directives.push_str(&configured.join(","));
    EnvFilter::builder().parse(&directives).map_err(|error| format!("\"{level}\" is no filter: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_and_filters_are_told_from_misspelt_ones() {
        for level in ["info", "INFO", "off", "info,outboxd::sink=debug", "warn, rdkafka=debug", "outboxd[span]=trace"] {
            assert_eq!(check_filter(level), Ok(()), "{level}");
        }
        assert_eq!(check_filter("inf0"), Err("\"inf0\" is no level".to_owned()));
        assert_eq!(check_filter("info,verbose"), Err("\"verbose\" is no level".to_owned()));
        assert!(check_filter("outboxd=loud").is_err());
    }

    #[test]
    fn librdkafka_is_quiet_unless_asked() {
        let text = |level: &str| filter(level).unwrap().to_string();
        assert!(text("debug").contains("librdkafka=warn"));
        assert!(text("info,rdkafka=debug").contains("rdkafka=debug"));
        assert!(!text("info,rdkafka=debug").contains(",rdkafka=warn"));
        assert!(!text("error").contains("rdkafka"));
    }
}
