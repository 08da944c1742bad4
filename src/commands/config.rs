//! `outboxd config convert` and `outboxd run --dry-run`: what a configuration amounts to, without connecting to anything.

use crate::config::load::Loaded;
use crate::config::{ConfigError, Finding, debezium};

/// The TOML that a connector amounts to.
#[must_use]
pub fn convert(loaded: Loaded) -> (String, Option<ConfigError>) {
    match (loaded.config, loaded.connector) {
        (Err(error), _) => (String::new(), Some(error)),
        (Ok(_), Some(reading)) => (reading.toml, None),
        (Ok(_), None) => {
            let finding = Finding {
                place: None,
                option: None,
                problem: "the file is no Debezium connector, but TOML".to_owned(),
                hint: Some("it needs no conversion: outboxd run --config FILE".to_owned()),
            };
            (String::new(), Some(ConfigError::Invalid { findings: vec![finding] }))
        }
    }
}

/// What became of a connector's properties, and the configuration as it would be used, without its secrets.
#[must_use]
pub fn dry_run(loaded: Loaded) -> (String, Option<ConfigError>) {
    let mut text = String::new();
    if let Some(reading) = &loaded.connector {
        text.push_str(&debezium::table(&reading.rows));
        text.push('\n');
    }
    match &loaded.config {
        Err(_) => text.push_str("the configuration cannot be used\n"),
        Ok(config) => {
            let shown = toml::to_string(config).unwrap_or_else(|error| format!("# it cannot be shown: {error}\n"));
            text.push_str(&format!("# the configuration as it would be used; what is not set is left out\n{shown}"));
        }
    }
    (text, loaded.config.err())
}
