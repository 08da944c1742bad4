//! Whole connectors: what is printed about broken ones, what becomes of every property, and that the TOML that is written
//! says the same as the connector. The expected texts are files; `OUTBOXD_UPDATE_EXPECTED=1` writes them anew.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::super::load::load_connector;
use super::super::{Config, Overrides, SinkChecks, tree};
use super::list::{self, Action, Line};
use super::{Fate, Given, Reading, Row};
use crate::cli::error_text;
use proptest::prelude::*;

const BASE: &str = include_str!("../../../connectors/debezium/postgres-outbox.json");
const MYSQL: &str = include_str!("../../../connectors/debezium/mysql-outbox.json");

fn variable(name: &str) -> Option<String> {
    match name {
        "DB_PASSWORD" => Some("p@ss w/ord".to_owned()),
        "KAFKA_PASSWORD" | "KEYSTORE_PASSWORD" => Some("geheim".to_owned()),
        "HOST" => Some("db.internal".to_owned()),
        "USER_NAME" => Some("me@home".to_owned()),
        _ => None,
    }
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// The files in a folder whose names end so, sorted.
fn files(name: &str, ending: &str) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder(name)).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.to_str().unwrap().ends_with(ending));
    files.sort();
    files
}

fn expect(path: &Path, text: &str) {
    if std::env::var_os("OUTBOXD_UPDATE_EXPECTED").is_some() {
        std::fs::write(path, text).unwrap();
    }
    let expected = std::fs::read_to_string(path).unwrap_or_default();
    assert_eq!(text, expected, "{}", path.display());
}

/// A connector with these properties in place of its own; `null` takes one out.
fn changed(base: &str, changes: &[(&str, Option<&str>)]) -> String {
    let mut json: serde_json::Value = serde_json::from_str(base).unwrap();
    let config = json["config"].as_object_mut().unwrap();
    for (name, value) in changes {
        match value {
            Some(value) => config.insert((*name).to_owned(), (*value).into()),
            None => config.shift_remove(*name),
        };
    }
    json.to_string()
}

fn read(text: &str, given: Given) -> Reading {
    super::read((Path::new("connector.json"), text), None, given, &variable)
}

/// What became of a property, as a person sees it.
fn fate(reading: &Reading, property: &str) -> String {
    let row = reading.rows.iter().find(|row| row.property == property).unwrap();
    match &row.fate {
        Fate::Refused { problem, hint } => format!("REFUSED {problem}\n    hint: {hint}"),
        _ => super::table(std::slice::from_ref(row))
            .lines()
            .nth(1)
            .unwrap()
            .trim()
            .split_once("  ")
            .unwrap()
            .1
            .to_owned(),
    }
}

/// Exactly what is printed about broken connectors, with everything that is wrong at once.
#[test]
fn broken_connectors_are_refused_in_these_words() {
    let cases = files("tests/data/connector/broken", ".connector");
    assert!(cases.len() >= 30, "{}", cases.len());
    for case in cases {
        let text = std::fs::read_to_string(&case).unwrap();
        let (flags, text) = text.split_once('\n').unwrap();
        let words = ["outboxd", "config", "convert", "x"].into_iter().chain(flags.split_whitespace());
        let crate::cli::Command::Config { command: crate::cli::ConfigCommand::Convert(options) } =
            <crate::cli::Cli as clap::Parser>::try_parse_from(words).unwrap().command
        else {
            panic!("not convert")
        };
        let mut overrides = options.overrides();
        overrides.worker_config = overrides.worker_config.map(|file| case.with_file_name(file));
        let checks = SinkChecks { option: crate::sink::kafka::options::option_finding, ..SinkChecks::default() };
        let name = if text.starts_with('{') { "connector.json" } else { "connector.properties" };
        let loaded = load_connector(Path::new(name), text, &overrides, &checks, &variable);
        let warnings = loaded.connector.map(|reading| reading.warnings()).unwrap_or_default();
        let mut shown: String = warnings.iter().map(|warning| format!("warning: {warning}\n")).collect();
        let error = loaded.config.expect_err(&format!("{} is fine", case.display()));
        shown.push_str(&error_text(&error).replace(&format!("{}/", case.parent().unwrap().display()), ""));
        for secret in ["geheim", "hunter2", "p@ss"] {
            assert!(!shown.contains(secret), "{shown}");
        }
        expect(&case.with_extension("expected"), &shown);
    }
}

/// What becomes of every line of the list, for every word that it knows and for one that it does not.
#[test]
fn every_property_has_its_words() {
    let lists: [(&str, &str, &[Line]); 5] = [
        (BASE, "", list::CONNECT),
        (BASE, "", list::COMMON),
        (BASE, "", list::POSTGRES),
        (BASE, "transforms.outbox.", list::ROUTER),
        (MYSQL, "", list::BINLOG),
    ];
    let mut text = String::new();
    let mut show = |base: &str, property: &str, value: &str| {
        let secure = [
            ("producer.override.security.protocol", Some("SASL_SSL")),
            ("producer.override.sasl.mechanism", Some("PLAIN")),
            ("producer.override.sasl.jaas.config", Some("a.B required username=\"u\" password=\"geheim\";")),
        ];
        let needs_it = property.contains("override.sasl.") || property.contains("override.ssl.");
        let mut changes = if needs_it { secure.to_vec() } else { Vec::new() };
        changes.push((property, Some(value)));
        let connector = changed(base, &changes);
        let strict = fate(&read(&connector, Given::default()), property);
        let allowed = fate(&read(&connector, Given { allow_unsupported: true, ..Given::default() }), property);
        text.push_str(&format!("{property} = \"{value}\"\n    {strict}\n"));
        if strict != allowed {
            text.push_str(&format!("    allowed: {allowed}\n"));
        }
    };
    for (base, prefix, lines) in lists {
        for line in lines {
            let name = format!("{prefix}{}", line.name.replace('*', "x"));
            match line.action {
                Action::Choice(_, words) => {
                    words.iter().for_each(|(word, _)| show(base, &name, word));
                    show(base, &name, "other");
                }
                Action::Unless(words, _) => {
                    words.iter().for_each(|word| show(base, &name, word));
                    show(base, &name, "other");
                }
                Action::Flag(_) => ["true", "false", "other"].into_iter().for_each(|word| show(base, &name, word)),
                Action::Text(_) | Action::Always(_) => show(base, &name, "other"),
                // these have rules of their own, and tests of their own
                Action::Part(_) => {}
            }
        }
    }
    for (name, words) in super::kafka::names_and_words() {
        let name = format!("producer.override.{}", name.replace('*', "x"));
        words.iter().chain(&["other"]).for_each(|word| show(BASE, &name, word));
    }
    show(BASE, "unheard.of", "1");
    show(BASE, "transforms.outbox.unheard.of", "1");
    show(BASE, "producer.override.unheard.of", "1");
    expect(&folder("tests/data/connector/list.expected"), &text);
}

/// Every connector that comes with the program is read, and its TOML says the same as the connector itself.
#[test]
fn connectors_are_read_unchanged_and_converted_without_a_difference() {
    let mut cases = files("connectors/debezium", ".json");
    assert!(cases.len() >= 3);
    cases.extend(files("tests/data/connector/good", ".json"));
    cases.extend(files("tests/data/connector/good", ".properties"));
    for case in cases.iter().filter(|case| !case.to_str().unwrap().ends_with(".worker.properties")) {
        let text = std::fs::read_to_string(case).unwrap();
        let worker = case.with_extension("worker.properties");
        let flags = Overrides { worker_config: Some(worker).filter(|worker| worker.exists()), ..Overrides::default() };
        let checks = SinkChecks { option: crate::sink::kafka::options::option_finding, ..SinkChecks::default() };
        let name = Path::new(case.file_name().unwrap());
        let loaded = load_connector(name, &text, &flags, &checks, &variable);
        let reading = loaded.connector.unwrap();
        let config = loaded.config.unwrap_or_else(|error| panic!("{}: {}", case.display(), error_text(&error)));
        assert!(!reading.toml.contains("geheim") && !reading.toml.contains("p@ss"), "{}", reading.toml);
        // the variables that the comments name are set by then
        let with_ours = |name: &str| reading.secret(name).or_else(|| variable(name));
        let parsed = tree::parse(&reading.toml, "converted.toml", &with_ours);
        assert_eq!(parsed.findings, [], "{}", reading.toml);
        let direct = Config { warnings: Vec::new(), file_flags: Vec::new(), connector: None, ..config };
        assert_eq!(secrets(&direct), secrets(&parsed.config), "{}", case.display());
        assert_eq!(format!("{direct:?}"), format!("{:?}", parsed.config), "{}", case.display());
        let shown = format!("{}\n{}", super::table(&reading.rows), reading.toml);
        let shown = shown.replace(&format!("{}/", case.parent().unwrap().display()), "");
        expect(&folder("tests/data/connector/good").join(name).with_extension("expected"), &shown);
    }
}

/// The secrets of a configuration, which `Debug` does not show.
fn secrets(config: &Config) -> BTreeMap<&'static str, String> {
    let mut secrets = BTreeMap::new();
    if let Some(postgres) = &config.source.postgres {
        secrets.insert("url", postgres.url.expose().to_owned());
        secrets.insert("password", postgres.password.as_ref().map(|s| s.expose().to_owned()).unwrap_or_default());
    }
    for mysql in config.source.mysql.iter().chain(&config.source.mariadb) {
        secrets.insert("url", mysql.url.expose().to_owned());
        secrets.insert("password", mysql.password.as_ref().map(|s| s.expose().to_owned()).unwrap_or_default());
    }
    if let Some(kafka) = &config.sink.kafka {
        secrets.insert("sasl", kafka.sasl_password.as_ref().map(|s| s.expose().to_owned()).unwrap_or_default());
        secrets.insert("options", format!("{:?}", kafka.options));
    }
    secrets
}

/// Findings of the validation name the connector's property.
#[test]
fn what_the_options_refuse_names_the_property() {
    let text =
        changed(BASE, &[("slot.name", Some("My-Slot")), ("transforms.outbox.table.field.event.id", Some("x\u{0}"))]);
    let checks = SinkChecks::default();
    let loaded = load_connector(Path::new("c.json"), &text, &Overrides::default(), &checks, &variable);
    let lines: Vec<String> = loaded.config.unwrap_err().lines().into_iter().map(|(line, _)| line).collect();
    assert_eq!(
        lines,
        [
            "c.json: slot.name: \"My-Slot\" is no name of a replication slot",
            "c.json: transforms.outbox.table.field.event.id: has a zero byte in it",
        ]
    );
}

/// Flags stand over the connector: what they give is not missing.
#[test]
fn flags_win() {
    let text = changed(
        BASE,
        &[
            ("table.include.list", None),
            ("producer.override.bootstrap.servers", None),
            ("key.converter", None),
            ("value.converter", Some("io.confluent.connect.avro.AvroConverter")),
            ("database.hostname", None),
        ],
    );
    let flags = Overrides {
        tables: vec!["app.a,app.b".to_owned()],
        bootstrap_servers: Some("k:1".to_owned()),
        key_format: Some("int64".to_owned()),
        value_format: Some("json".to_owned()),
        source_url: Some(super::Secret::new("postgres://u@h/d")),
        ..Overrides::default()
    };
    let loaded = load_connector(Path::new("c.json"), &text, &flags, &SinkChecks::default(), &variable);
    let config = loaded.config.unwrap_or_else(|error| panic!("{}", error_text(&error)));
    assert_eq!(config.outbox.tables, ["app.a", "app.b"]);
    assert_eq!(config.record.key_format, crate::config::KeyFormat::Int64);
    assert_eq!(config.record.value_format, crate::config::ValueFormat::Json);
    assert_eq!(config.source.postgres.unwrap().url.expose(), "postgres://u@h/d");
    assert_eq!(config.sink.kafka.unwrap().bootstrap_servers, "k:1");
    assert_eq!(config.file_flags, ["--key-format", "int64", "--value-format", "json"]);
}

proptest! {
    /// A connector that was cut, or in which something was put anywhere, is read or refused; nothing panics or hangs, and
    /// what is refused says so.
    #[test]
    fn broken_files_are_refused(cut in 0..BASE.len(), end in 0..BASE.len(), noise in "[\\[\\]{}=\":,.\\\\$a-z0-9é\n]{0,6}") {
        let (head, tail) = (BASE.get(..cut).unwrap_or_default(), BASE.get(end..).unwrap_or_default());
        for text in [format!("{head}{noise}{tail}"), noise] {
            let loaded = load_connector(Path::new("c"), &text, &Overrides::default(), &SinkChecks::default(), &variable);
            if let Err(error) = loaded.config {
                prop_assert!(!error.lines().is_empty());
            }
        }
    }

    /// Any text as the value of any property is taken, without effect, or refused; what is taken is loaded.
    #[test]
    fn any_value_is_taken_or_refused(
        which in 0..300usize,
        value in prop_oneof!["[\\[\\](){}=\":,.\\\\$|*+?a-z0-9é\n ]{0,12}", "[a-z]:(header|envelope|partition):[a-z]", "\\$\\{env:[A-Z]\\}"],
    ) {
        let names = names();
        let name = &names[which % names.len()];
        let reading = read(&changed(BASE, &[(name, Some(&value))]), Given::default());
        prop_assert!(reading.rows.iter().any(|row| row.property == *name));
        let with_ours = |name: &str| reading.secret(name).or_else(|| variable(name));
        let parsed = tree::parse(&reading.toml, "c", &with_ours);
        if reading.findings.is_empty() {
            prop_assert_eq!(parsed.findings, Vec::new(), "{} = {:?}\n{}", name, value, reading.toml);
        }
    }
}

/// The names of all lines.
fn names() -> Vec<String> {
    let plain = [list::CONNECT, list::COMMON, list::POSTGRES].into_iter().flatten().map(|line| line.name.to_owned());
    let router = list::ROUTER.iter().map(|line| format!("transforms.outbox.{}", line.name));
    let producer = super::kafka::names().map(|name| format!("producer.override.{name}"));
    plain.chain(router).chain(producer).map(|name| name.replace('*', "x")).collect()
}

#[test]
fn the_table_lines_up() {
    let row = |property: &str, fate| Row { file: "f".to_owned(), property: property.to_owned(), fate };
    let rows = [
        row("a", Fate::Mapped("x.y".to_owned())),
        row("long.name", Fate::Warned("gone".to_owned())),
        row("b", Fate::Refused { problem: "no".to_owned(), hint: "h".to_owned() }),
    ];
    let expected =
        "properties of f\n  a          -> x.y\n  long.name  WARNING no effect: gone\n  b          REFUSED no\n";
    assert_eq!(super::table(&rows), expected);
}
