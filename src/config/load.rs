//! Loads a configuration: file, then flags and environment, then validation.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::{Error as WordError, StrDeserializer};

use super::debezium::{self, Given, Reading};
use super::error::{ConfigError, Finding, Findings};
use super::secret::Secret;
use super::tree::{self, Parsed};
use super::validate::{SinkChecks, validate};
use super::{Config, LogFormat, names};

/// What flags and `OUTBOXD_…` environment variables say. They win over the file.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// `name`
    pub name: Option<String>,
    /// `source.postgres.url`
    pub source_url: Option<Secret>,
    /// `sink.kafka.bootstrap-servers`
    pub bootstrap_servers: Option<String>,
    /// `outbox.tables`; an entry may be several with commas between. None: what the file says.
    pub tables: Vec<String>,
    /// `http.listen`
    pub http_listen: Option<String>,
    /// `log.format`
    pub log_format: Option<LogFormat>,
    /// `log.level`
    pub log_level: Option<String>,
    /// The sink is standard output, in place of what the file says.
    pub stdout: bool,
    /// The Kafka Connect worker's file, beside a connector's.
    pub worker_config: Option<PathBuf>,
    /// `record.key-format`
    pub key_format: Option<String>,
    /// `record.value-format`
    pub value_format: Option<String>,
    /// What of a connector cannot be, and may be left out, has no effect instead of being refused.
    pub allow_unsupported: bool,
}

/// What loading brought.
#[derive(Debug)]
pub struct Loaded {
    /// The configuration, or all that is wrong with it.
    pub config: Result<Config, ConfigError>,
    /// What became of the properties, where the file is a Debezium connector's.
    pub connector: Option<Reading>,
}

impl Config {
    /// Loads the file at `path`, if there is one, puts `flags` over it, and validates the result.
    ///
    /// # Errors
    /// [`ConfigError`] with every finding.
    pub fn load(path: Option<&Path>, flags: &Overrides) -> Result<Self, ConfigError> {
        Self::load_with(path, flags, &SinkChecks::default())
    }

    /// As [`Config::load`], with the sink's own view of its options.
    ///
    /// # Errors
    /// [`ConfigError`] with every finding.
    pub fn load_with(path: Option<&Path>, flags: &Overrides, checks: &SinkChecks) -> Result<Self, ConfigError> {
        Self::load_all(path, flags, checks).config
    }

    /// As [`Config::load_with`], and says what became of a connector's properties.
    #[must_use]
    pub fn load_all(path: Option<&Path>, flags: &Overrides, checks: &SinkChecks) -> Loaded {
        let variable = |name: &str| std::env::var(name).ok();
        let Some(path) = path else {
            return Loaded { config: finish(Parsed::default(), flags, checks), connector: None };
        };
        let text = match read(path) {
            Ok(text) => text,
            Err(error) => return Loaded { config: Err(error), connector: None },
        };
        let loaded = if debezium::input::is_connector(path, &text) {
            load_connector(path, &text, flags, checks, &variable)
        } else {
            let parsed = tree::parse(&text, &path.display().to_string(), &variable);
            Loaded { config: finish(parsed, flags, checks), connector: None }
        };
        Loaded { config: loaded.config.map(|config| Self { file: Some(path.to_owned()), ..config }), ..loaded }
    }
}

fn read(path: &Path) -> Result<String, ConfigError> {
    std::fs::read_to_string(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })
}

/// Loads a Debezium connector by way of the TOML that it amounts to.
pub(super) fn load_connector(
    path: &Path,
    text: &str,
    flags: &Overrides,
    checks: &SinkChecks,
    variable: &impl Fn(&str) -> Option<String>,
) -> Loaded {
    let worker = match flags.worker_config.as_deref().map(|path| read(path).map(|text| (path, text))).transpose() {
        Ok(worker) => worker,
        Err(error) => return Loaded { config: Err(error), connector: None },
    };
    let worker = worker.as_ref().map(|(path, text)| (*path, text.as_str()));
    let reading = debezium::read((path, text), worker, flags.given(), variable);
    let with_secrets = |name: &str| reading.secret(name).or_else(|| variable(name));
    let mut parsed = tree::parse(&reading.toml, &path.display().to_string(), &with_secrets);
    // beside a finding about the connector itself, one about the TOML would be its consequence
    if !reading.findings.is_empty() {
        parsed.findings.clone_from(&reading.findings);
    }
    parsed.left_out.extend(reading.left_out.iter().cloned());
    // a text that is no connector at all has no properties that could be missing
    parsed.syntax_error |= reading.rows.is_empty() && !reading.findings.is_empty();
    let config = match finish(parsed, flags, checks) {
        Ok(config) => Ok(Config {
            warnings: reading.warnings(),
            file_flags: flags.file_flags(),
            connector: Some(reading.connector.clone()),
            ..config
        }),
        Err(ConfigError::Invalid { findings }) => {
            let findings = findings.into_iter().map(|finding| reading.name(finding)).collect();
            Err(ConfigError::Invalid { findings })
        }
        Err(error) => Err(error),
    };
    Loaded { config, connector: Some(reading) }
}

fn finish(parsed: Parsed, flags: &Overrides, checks: &SinkChecks) -> Result<Config, ConfigError> {
    let Parsed { mut config, mut findings, left_out, syntax_error } = parsed;
    if syntax_error {
        return Err(ConfigError::Invalid { findings });
    }
    let mut later = Findings::default();
    flags.apply(&mut config, &mut later);
    validate(&config, checks, &mut later);
    // What was left out is reported already; that it is missing would be said for the second time.
    findings.extend(later.0.into_iter().filter(|finding| !concerns(finding, &left_out)));
    if findings.is_empty() { Ok(config) } else { Err(ConfigError::Invalid { findings }) }
}

/// The value that a word of the command line stands for: there it was chosen from those that there are.
fn from_word<'a, T: Deserialize<'a>>(word: &'a str) -> Option<T> {
    let word: StrDeserializer<'a, WordError> = word.into_deserializer();
    T::deserialize(word).ok()
}

fn concerns(finding: &Finding, left_out: &[String]) -> bool {
    let Some(option) = &finding.option else { return false };
    let within = |outer: &str, inner: &str| {
        inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    left_out.iter().any(|name| within(name, option) || within(option, name))
}

impl Overrides {
    /// What has to be known when a connector is read.
    fn given(&self) -> Given {
        let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        Given {
            source_url: self.source_url.as_ref().is_some_and(|url| !url.expose().is_empty()),
            tables: self.tables.iter().flat_map(|entry| names::split_list(entry)).collect(),
            bootstrap_servers: given(&self.bootstrap_servers),
            stdout: self.stdout,
            key_format: given(&self.key_format),
            value_format: given(&self.value_format),
            allow_unsupported: self.allow_unsupported,
        }
    }

    /// The flags without which a connector's file cannot be loaded again.
    fn file_flags(&self) -> Vec<String> {
        let mut flags = Vec::new();
        let mut add = |flag: &str, value: Option<String>| {
            flags.extend(value.map(|value| [flag.to_owned(), value]).into_iter().flatten());
        };
        add("--worker-config", self.worker_config.as_ref().map(|path| path.display().to_string()));
        add("--key-format", self.key_format.clone());
        add("--value-format", self.value_format.clone());
        flags.extend(self.allow_unsupported.then(|| "--allow-unsupported".to_owned()));
        flags
    }

    fn apply(&self, config: &mut Config, findings: &mut Findings) {
        // An empty variable is how compose files and charts say "not set".
        let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        if let Some(name) = given(&self.name) {
            config.name = name;
        }
        if let Some(url) = self.source_url.as_ref().filter(|url| !url.expose().is_empty()) {
            let source = &mut config.source;
            match url.expose().split_once("://") {
                // a file that says MariaDB may have a URL that says mysql
                Some(("mysql", _)) if source.mariadb.is_some() => {
                    source.mariadb.get_or_insert_default().url = url.clone()
                }
                Some(("mysql", _)) => source.mysql.get_or_insert_default().url = url.clone(),
                Some(("mariadb", _)) => source.mariadb.get_or_insert_default().url = url.clone(),
                _ => source.postgres.get_or_insert_default().url = url.clone(),
            }
        }
        if self.stdout {
            config.sink.kafka = None;
            config.sink.stdout.get_or_insert_default();
        }
        if let Some(servers) = given(&self.bootstrap_servers) {
            if self.stdout {
                let hint =
                    "leave out one of --stdout and --bootstrap-servers (OUTBOXD_STDOUT, OUTBOXD_BOOTSTRAP_SERVERS)";
                findings.add("sink", "both standard output and Kafka are asked for by flags or environment", hint);
            } else {
                config.sink.kafka.get_or_insert_default().bootstrap_servers = servers;
            }
        }
        let tables: Vec<String> = self.tables.iter().flat_map(|entry| names::split_list(entry)).collect();
        if !tables.is_empty() {
            config.outbox.tables = tables;
        }
        if let Some(format) = given(&self.key_format).and_then(|word| from_word(&word)) {
            config.record.key_format = format;
        }
        if let Some(format) = given(&self.value_format).and_then(|word| from_word(&word)) {
            config.record.value_format = format;
        }
        if let Some(listen) = &self.http_listen {
            config.http.listen.clone_from(listen);
        }
        if let Some(format) = self.log_format {
            config.log.format = format;
        }
        if let Some(level) = given(&self.log_level) {
            config.log.level = level;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const MINIMAL: &str =
        "[source.postgres]\nurl = \"postgres://u@h/d\"\n[sink.kafka]\nbootstrap-servers = \"k:9092\"\n";

    fn variable(name: &str) -> Option<String> {
        (name == "DB_PASSWORD").then(|| "p\"w".to_owned())
    }

    fn load(text: &str, flags: &Overrides) -> Result<Config, ConfigError> {
        finish(tree::parse(text, "o.toml", &variable), flags, &SinkChecks::default())
    }

    /// The findings about `text` as `error` and `hint` lines.
    fn refused(text: &str) -> Vec<String> {
        let lines = load(text, &Overrides::default()).unwrap_err().lines();
        lines.into_iter().flat_map(|(error, hint)| [Some(error), hint]).flatten().collect()
    }

    /// As [`refused`], for an addition to a configuration that is fine without it.
    fn refused_with(addition: &str) -> Vec<String> {
        refused(&format!("{addition}\n{MINIMAL}"))
    }

    #[test]
    fn the_minimal_file_is_enough() {
        let config = load(MINIMAL, &Overrides::default()).unwrap();
        let postgres = config.source.postgres.unwrap();
        assert_eq!(postgres.slot(&config.name), "outboxd_outbox");
        assert_eq!(postgres.publication("My-Shop"), "outboxd_my_shop");
        assert_eq!(config.delivery.position_interval, Duration::from_millis(100));
    }

    #[test]
    fn a_first_run_needs_no_file() {
        let flags = Overrides {
            source_url: Some(Secret::new("postgresql://u@h/d")),
            bootstrap_servers: Some("a:1, [::1]:2".to_owned()),
            tables: vec!["app.\"Out,Box\",app.b".to_owned(), "app.c".to_owned()],
            http_listen: Some(String::new()),
            log_level: Some("debug".to_owned()),
            log_format: Some(LogFormat::Json),
            name: Some("shop".to_owned()),
            ..Overrides::default()
        };
        let config = Config::load(None, &flags).unwrap();
        assert_eq!(config.outbox.tables, ["app.\"Out,Box\"", "app.b", "app.c"]);
        assert_eq!(
            (config.http.listen.as_str(), config.log.level.as_str(), config.name.as_str()),
            ("", "debug", "shop")
        );
    }

    #[test]
    fn the_urls_scheme_chooses_the_source() {
        let kafka = "[sink.kafka]\nbootstrap-servers = \"k:9092\"\n";
        let chosen = |text: &str, url: &str| {
            let flags = Overrides { source_url: Some(Secret::new(url)), ..Overrides::default() };
            let source = load(&format!("{text}{kafka}"), &flags).unwrap().source;
            (source.postgres.is_some(), source.mysql.is_some(), source.mariadb.is_some())
        };
        assert_eq!(chosen("", "postgres://u@h/d"), (true, false, false));
        assert_eq!(chosen("", "mysql://u@h/d"), (false, true, false));
        assert_eq!(chosen("", "mariadb://u@h/d"), (false, false, true));
        assert_eq!(chosen("[source.mariadb]\nstart = \"now\"\n", "mysql://u@h/d"), (false, false, true));
        let both =
            "[source.mysql]\nurl = \"mysql://u@h/d\"\n[source.postgres]\nurl = \"mysql://u@h/d\"\n[sink.stdout]\n";
        assert_eq!(
            refused(both),
            [
                "source: there is more than one",
                "leave one of the tables [source.…], and one --source-url",
                "source.postgres.url: \"mysql\" is no scheme for [source.postgres]",
                "write postgres://user@host:5432/database, or name the table [source.mysql]",
            ]
        );
        assert_eq!(
            refused(&format!("{MINIMAL}[outbox.columns]\nid-format = \"uuid\"\n"))[0],
            "outbox.columns.id-format: is for MySQL and MariaDB"
        );
    }

    #[test]
    fn flags_win_over_the_file_and_empty_ones_do_not() {
        let flags = Overrides { name: Some(String::new()), stdout: true, ..Overrides::default() };
        let config = load(&format!("name = \"file\"\n{MINIMAL}"), &flags).unwrap();
        assert_eq!(config.name, "file");
        assert!(config.sink.kafka.is_none() && config.sink.stdout.is_some());
    }

    #[test]
    fn nothing_at_all_names_source_and_sink() {
        let error = Config::load(None, &Overrides::default()).unwrap_err();
        let lines: Vec<String> = error.lines().into_iter().map(|(line, _)| line).collect();
        assert_eq!(lines, ["source: there is none", "sink: there is none"]);
    }

    #[test]
    fn unknown_keys_are_all_named_with_their_lines_and_the_nearest_name() {
        let text = "nam = \"x\"\nwindow-bytes = 1\n[delivery]\nwidow_bytes = 1\nshutdown-timout = \"1s\"\n[sinks.kafka]\na = 1\n\
                    [record]\nfrobnicate = 1\n";
        let lines = refused(&format!("{text}{MINIMAL}"));
        assert_eq!(
            lines,
            [
                "o.toml:1: unknown option \"nam\"",
                "did you mean \"name\"?",
                "o.toml:2: unknown option \"window-bytes\"",
                "did you mean \"window-bytes\" in [delivery]?",
                "o.toml:4: unknown option \"delivery.widow_bytes\"",
                "did you mean \"window-bytes\"?",
                "o.toml:5: unknown option \"delivery.shutdown-timout\"",
                "did you mean \"shutdown-timeout\"?",
                "o.toml:6: unknown option \"sinks\"",
                "did you mean \"sink\"?",
                "o.toml:9: unknown option \"record.frobnicate\"",
                "[record] knows: topic, topic-regex, headers, envelope, partition, missing-columns, key-format, \
                 key-delegate, value-format, value-delegate, header-format, tombstone-on-empty, expand-json, \
                 expand-json-null, expand-json-empty-array, context-headers, legacy-prefix, binary-as, decimal-as, \
                 time-format, mysql-values, timestamp",
            ]
        );
    }

    #[test]
    fn wrong_types_are_all_shown_with_a_caret_and_validation_goes_on() {
        let lines = refused(
            "[source.postgres]\nurl = 5\nsilence-timeout = \"soon\"\n[sink.kafka]\nbootstrap-servers = \"k\"\n\
             [log]\nformat = \"xml\"\n",
        );
        assert_eq!(
            lines,
            [
                "o.toml: TOML parse error at line 2, column 7\n  |\n2 | url = 5\n  |       ^\ninvalid type: integer `5`, \
                 expected a string",
                "o.toml: TOML parse error at line 3, column 19\n  |\n3 | silence-timeout = \"soon\"\n  |                   \
                 ^^^^^^\ninvalid value: string \"soon\", expected a duration",
                "o.toml: TOML parse error at line 7, column 10\n  |\n7 | format = \"xml\"\n  |          ^^^^^\nunknown \
                 variant `xml`, expected `text` or `json`",
                "sink.kafka.bootstrap-servers: \"k\" is not host:port",
                "write host:port, several separated by commas",
            ]
        );
    }

    #[test]
    fn syntax_errors_hide_passwords() {
        let lines = refused("[source.postgres]\nurl = \"postgres://u:hunter2@h/d\nslot = \"x\n");
        assert!(lines.len() >= 2, "{lines:?}");
        assert!(lines.iter().all(|line| line.contains("o.toml: TOML parse error at line ")), "{lines:?}");
        assert!(!lines.concat().contains("hunter2"), "{lines:?}");
    }

    #[test]
    fn tables_of_another_programs_options_want_quoted_names_and_texts() {
        let lines = refused(&format!(
            "{MINIMAL}[sink.kafka.options]\nlinger.ms = \"5\"\n\"batch.size\" = 10\n\"a.b\" = \"fine\"\n\
             [sink.kafka.topic-config]\nsegment = true\n"
        ));
        assert_eq!(
            lines,
            [
                "o.toml:6: sink.kafka.options.linger: the dots in \"linger.ms\" make a table of it",
                "put the whole name in double quotes: \"linger.ms\" = \"…\"",
                "o.toml:7: sink.kafka.options.batch.size: is of type integer, not a text",
                "put the value in double quotes: \"batch.size\" = \"10\"",
                "o.toml:10: sink.kafka.topic-config.segment: is of type boolean, not a text",
                "put the value in double quotes: \"segment\" = \"true\"",
            ]
        );
    }

    #[test]
    fn environment_variables_are_put_into_texts() {
        let text = MINIMAL.replace("u@h", "u:${env:DB_PASSWORD}@h");
        let config = load(&text, &Overrides::default()).unwrap();
        let postgres = config.source.postgres.as_ref().unwrap();
        assert_eq!(postgres.url.expose(), "postgres://u:p\"w@h/d");
        assert!(!format!("{config:?}").contains("p\\\"w"));
        assert_eq!(
            refused_with("name = \"${env:NOPE}\"\n[outbox]\ntables = [\"a.b\", \"${env:NEITHER}.x\"]"),
            [
                "o.toml:1: name: environment variable \"NOPE\" is not set",
                "set NOPE",
                "o.toml:3: outbox.tables: environment variable \"NEITHER\" is not set",
                "set NEITHER",
            ]
        );
    }

    #[test]
    fn what_is_not_there_yet_is_refused_by_name() {
        assert_eq!(
            refused(&format!("{MINIMAL}[delivery]\nguarantee = \"exactly-once\"\non-row-error = \"dead-letter\"\n")),
            [
                "delivery.guarantee: \"exactly-once\" is not available in this version",
                "use \"at-least-once\"; consumers tell repeats by the header id",
                "delivery.on-row-error: \"dead-letter\" is not available in this version",
                "use \"stop\"",
            ]
        );
        assert!(refused_with("[delivery]\non-row-error = \"skip\"")[0].contains("\"skip\" is not available"));
    }

    #[test]
    fn every_value_out_of_range_is_found_at_once() {
        let lines = refused(
            "name = \" \"\n[source.postgres]\nurl = \"mysql://root:hunter2@h/d\"\nslot = \"My-Slot\"\npublication = \"\"\n\
             silence-timeout = \"1s\"\nconnect-timeout = \"6m\"\npassword-file = \"/nonexistent/password\"\n\
             [outbox]\ntables = [\"outbox\", \"a.b\", \"a.\\\"b\\\"\"]\n[outbox.columns]\nid = \"\"\n\
             [record]\ntopic = \"x.${name}\"\nheaders = [\"a:\"]\n\
             [sink.kafka]\nbootstrap-servers = \"PLAINTEXT://k:9092,k:0\"\npositions-topic = \"a b\"\ntopic-partitions = 0\n\
             topic-replication-factor = 1001\nsasl-username = \"u\"\n[sink.stdout]\n\
             [delivery]\nwindow-bytes = 1\nposition-interval = \"1ms\"\nshutdown-timeout = \"2h\"\n\
             [http]\nlisten = \"localhost:1\"\n[log]\nlevel = \"inf0\"\n",
        );
        let errors: Vec<&String> = lines.iter().step_by(2).collect();
        assert_eq!(
            errors,
            [
                "name: is empty",
                "source.postgres.url: \"mysql\" is no scheme for [source.postgres]",
                "source.postgres.slot: \"My-Slot\" is no name of a replication slot",
                "source.postgres.publication: is empty",
                "source.postgres.silence-timeout: 1s is out of range",
                "source.postgres.connect-timeout: 6m is out of range",
                "source.postgres.password-file: cannot read file \"/nonexistent/password\": No such file or directory \
                 (os error 2)",
                "outbox.tables: \"outbox\" has no schema: expected schema.table",
                "outbox.tables: \"a.\"b\"\" is there twice",
                "outbox.columns.id: is empty",
                "record.topic: \"${name}\" is no group of record.topic-regex: ${routedByValue}",
                "record.headers: \"a:\" has no name after the colon",
                "sink: there are two",
                "sink.kafka.bootstrap-servers: \"PLAINTEXT://k:9092\" has a scheme",
                "sink.kafka.bootstrap-servers: \"k:0\" is not host:port",
                "sink.kafka.positions-topic: ' ' is not allowed in a topic's name",
                "sink.kafka.topic-partitions: 0 is out of range",
                "sink.kafka.topic-replication-factor: 1001 is out of range",
                "sink.kafka.sasl-password-file: is missing beside sasl-username",
                "delivery.window-bytes: 1 is out of range",
                "delivery.position-interval: 1ms is out of range",
                "delivery.shutdown-timeout: 2h is out of range",
                "http.listen: \"localhost:1\" is no address",
                "log.level: \"inf0\" is no level",
            ]
        );
    }

    #[test]
    fn small_mistakes_have_their_own_words() {
        let first = |addition: &str| refused_with(addition).swap_remove(0);
        assert_eq!(first("[outbox]\ntables = []"), "outbox.tables: is empty");
        assert_eq!(first("[record]\ntopic = \"\""), "record.topic: is empty");
        assert_eq!(first("[record]\ntopic = \"a b\""), "record.topic: ' ' is not allowed in a topic's name");
        assert_eq!(first("[record]\ntopic = \"..\""), "record.topic: \"..\" is no name that Kafka allows");
        assert_eq!(first("log = \"info\""), "o.toml:1: \"log\" is a table, not a value");
        let long = format!("name = \"{}\"", "x".repeat(63));
        assert!(first(&long).starts_with("source.postgres.slot: \"outboxd_xxx"), "{}", first(&long));
        assert_eq!(refused("[source.postgres]\n[sink.stdout]\n")[0], "source.postgres.url: is missing");
        assert_eq!(refused("[source.postgres]\nurl=\"h/d\"\n[sink.stdout]\n")[0], "source.postgres.url: has no scheme");
        assert!(load(&format!("[record]\ntopic = \"fixed\"\n{MINIMAL}"), &Overrides::default()).is_ok());
        assert!(load(&format!("[record]\ntopic = \"${{routedByValue}}\"\n{MINIMAL}"), &Overrides::default()).is_ok());
    }

    #[test]
    fn both_sinks_by_flags_are_one_finding() {
        let flags = Overrides { stdout: true, bootstrap_servers: Some("k:9092".to_owned()), ..Overrides::default() };
        let error = load(MINIMAL, &flags).unwrap_err();
        assert_eq!(error.to_string(), "the configuration has 1 problem");
    }

    #[test]
    fn the_sinks_own_checks_are_asked() {
        let parsed = tree::parse(
            &format!("{MINIMAL}[sink.kafka.options]\nacks = \"1\"\n[sink.kafka.topic-config]\nx = \"y\""),
            "o.toml",
            &variable,
        );
        let checks = SinkChecks {
            option: |key, value| (key == "acks").then(|| format!("{value} loses records")),
            topic_config: |key, _| (key == "x").then(|| "is no configuration of a topic".to_owned()),
        };
        let lines = finish(parsed, &Overrides::default(), &checks).unwrap_err().lines();
        assert_eq!(lines[0].0, "sink.kafka.options.acks: 1 loses records");
        assert_eq!(lines[1].0, "sink.kafka.topic-config.x: is no configuration of a topic");
    }

    #[test]
    fn password_files_are_tried() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("password");
        let text = MINIMAL.replace("url", &format!("password-file = {:?}\nurl", path.display().to_string()));
        std::fs::write(&path, "secret\n").unwrap();
        assert!(load(&text, &Overrides::default()).is_ok());
        std::fs::write(&path, "\n").unwrap();
        assert!(refused(&text)[0].ends_with("is empty"));
        std::fs::write(&path, [0xff, 0xfe]).unwrap();
        assert!(refused(&text)[0].ends_with("is not UTF-8 text"));
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let error = Config::load(Some(Path::new("/nonexistent/o.toml")), &Overrides::default()).unwrap_err();
        let (line, hint) = error.lines().swap_remove(0);
        assert!(line.starts_with("cannot read the configuration file \"/nonexistent/o.toml\": No such file"), "{line}");
        assert_eq!(hint.unwrap(), "check the path given by --config or OUTBOXD_CONFIG");
    }
}
