//! The headers that Debezium itself puts before all others (`extended.headers.enabled`).

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::config::{Config, HeaderFormat};

use super::json;

/// Names and values in their order; empty unless they are asked for.
#[must_use]
pub(super) fn headers(config: &Config, run_id: &str) -> Vec<(String, Vec<u8>)> {
    if !config.record.context_headers {
        return Vec::new();
    }
    let prefix = config.record.legacy_prefix.as_deref().unwrap_or_default();
    [("connectorLogicalName", prefix), ("taskId", "0"), ("connectorName", connector_name(config)), ("runId", run_id)]
        .into_iter()
        .map(|(name, value)| {
            let mut bytes = Vec::new();
            match config.record.header_format {
                HeaderFormat::Simple => bytes.extend_from_slice(value.as_bytes()),
                HeaderFormat::Json => json::text(&mut bytes, value),
            }
            (format!("__debezium.context.{name}"), bytes)
        })
        .collect()
}

/// What Debezium's connector for the source calls itself.
fn connector_name(config: &Config) -> &'static str {
    match &config.source {
        source if source.mysql.is_some() => "mysql",
        source if source.mariadb.is_some() => "mariadb",
        _ => "postgresql",
    }
}

/// A UUID of version 7 (RFC 9562), new for each start.
#[must_use]
pub(super) fn new_run_id() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let milliseconds = since.as_millis() & 0xffff_ffff_ffff;
    // the keys of these hashers are the operating system's random numbers
    let random = || u128::from(RandomState::new().build_hasher().finish());
    let bits = milliseconds << 80 | 7 << 76 | (random() & 0xfff) << 64 | 2 << 62 | (random() & 0x3fff_ffff_ffff_ffff);
    let hex = format!("{bits:032x}");
    let part = |from, to| hex.get(from..to).unwrap_or_default();
    [part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32)].join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_ids_are_of_version_7_and_new() {
        let (first, second) = (new_run_id(), new_run_id());
        assert_ne!(first, second);
        for id in [first, second] {
            let parts: Vec<usize> = id.split('-').map(str::len).collect();
            assert_eq!(parts, [8, 4, 4, 4, 12], "{id}");
            assert_eq!(&id[14..15], "7", "{id}");
            assert!(matches!(&id[19..20], "8" | "9" | "a" | "b"), "{id}");
            let milliseconds = u128::from_str_radix(&format!("{}{}", &id[..8], &id[9..13]), 16).unwrap();
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
            assert!(now - milliseconds < 60_000, "{id}");
        }
    }

    #[test]
    fn headers_have_the_configured_format() {
        let mut config = Config::default();
        assert!(headers(&config, "r").is_empty());
        config.record.context_headers = true;
        config.record.legacy_prefix = Some("p".to_owned());
        let show = |config: &Config| -> Vec<String> {
            let show = |(name, value): (String, Vec<u8>)| format!("{name}={}", String::from_utf8(value).unwrap());
            headers(config, "r").into_iter().map(show).collect()
        };
        assert_eq!(
            show(&config),
            [
                "__debezium.context.connectorLogicalName=p",
                "__debezium.context.taskId=0",
                "__debezium.context.connectorName=postgresql",
                "__debezium.context.runId=r",
            ]
        );
        config.record.header_format = HeaderFormat::Json;
        assert_eq!(show(&config)[1], "__debezium.context.taskId=\"0\"");
    }
}
