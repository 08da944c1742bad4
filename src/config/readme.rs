//! Holds the README and the files that come with the program against the code. Tests only.

use std::path::Path;

use clap::{CommandFactory, Parser};
use prometheus_client::encoding::text;

use super::error::Findings;
use super::options::OPTIONS;
use super::validate::validate;
use super::{Config, Overrides, SinkChecks, tree};
use crate::cli::{Cli, Command, RunOptions};
use crate::metrics::{Metrics, register_status};
use crate::state::{Reason, StatusBoard};

const README: &str = include_str!("../../README.md");
const CONNECTORS: [(&str, &str, &str); 3] = [
    ("postgres", "public.outbox", include_str!("../../connectors/postgres.toml")),
    ("mysql", "shop.outbox", include_str!("../../connectors/mysql.toml")),
    ("mariadb", "shop.outbox", include_str!("../../connectors/mariadb.toml")),
];
const SQL: &str = include_str!("../../sql/postgres/outbox.sql");

/// The rows of the table between `<!-- section -->` and `<!-- end -->`, without its head.
fn rows(section: &str) -> Vec<Vec<&'static str>> {
    let (_, rest) = README.split_once(&format!("<!-- {section} -->")).unwrap();
    let (table, _) = rest.split_once("<!-- end -->").unwrap();
    let lines = table.lines().filter(|line| line.starts_with('|')).skip(2);
    lines.map(|line| line.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

fn bare(cell: &str) -> &str {
    cell.trim_matches('`')
}

/// Each option is there, in the list's order, with its type and default.
#[test]
fn the_options_are_those_of_the_program() {
    let rows = rows("options");
    let written: Vec<&str> = rows.iter().map(|row| bare(row[0])).collect();
    let listed: Vec<&str> = OPTIONS.iter().map(|option| option.key).collect();
    assert_eq!(written, listed);
    for (row, option) in rows.iter().zip(OPTIONS) {
        assert_eq!(row[1], option.kind, "{}", option.key);
        if let Some(default) = option.default {
            assert_eq!(row[2], format!("`{default}`"), "{}", option.key);
        }
        assert!(row.len() == 4 && !row[3].is_empty(), "{}", option.key);
    }
}

#[test]
fn the_flags_are_those_of_the_program() {
    let command = Cli::command();
    let run = command.find_subcommand("run").unwrap();
    let defined: Vec<(String, String)> = run
        .get_arguments()
        .filter_map(|argument| Some((format!("--{}", argument.get_long()?), argument.get_env()?.to_str()?.to_owned())))
        .collect();
    let written: Vec<(String, String)> =
        rows("flags").iter().map(|row| (bare(row[0]).to_owned(), bare(row[1]).to_owned())).collect();
    assert_eq!(written, defined);
}

#[test]
fn the_metrics_are_those_of_the_program() {
    let (_, mut registry) = Metrics::new("x", &[("version", "0")]);
    register_status(&mut registry, StatusBoard::default());
    let mut exposition = String::new();
    text::encode(&mut exposition, &registry).unwrap();
    let mut exposed: Vec<(String, &str)> = exposition
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '))
        .map(|(name, kind)| match kind {
            "counter" => (format!("{name}_total"), kind),
            "info" => (format!("{name}_info"), kind),
            _ => (name.to_owned(), kind),
        })
        .collect();
    let mut written: Vec<(String, &str)> =
        rows("metrics").iter().map(|row| (bare(row[0]).to_owned(), row[1])).collect();
    exposed.sort_unstable();
    written.sort_unstable();
    assert_eq!(written, exposed);
}

#[test]
fn the_reasons_are_those_of_the_program() {
    let rows = rows("reasons");
    let written: Vec<&str> = rows.iter().map(|row| bare(row[0])).collect();
    let known: Vec<&str> = Reason::ALL.iter().map(|reason| reason.code()).collect();
    assert_eq!(written, known);
    assert!(rows.iter().all(|row| row.len() == 3 && row.iter().all(|cell| !cell.is_empty())));
}

/// Every `outboxd …` line in a code block is understood by the command line.
#[test]
fn the_commands_are_understood() {
    let lines: Vec<&str> = README.lines().filter(|line| line.starts_with("outboxd ")).collect();
    assert!(!lines.is_empty());
    for line in lines {
        let cli = Cli::try_parse_from(line.split_whitespace()).unwrap_or_else(|error| panic!("{line}: {error}"));
        // a file is the reader's own
        if let Command::Run(RunOptions { options, .. }) = cli.command
            && options.config.is_none()
        {
            let overrides = Overrides {
                source_url: Some(super::secret::Secret::new("postgres://outboxd:PASSWORD@localhost:5432/shop")),
                ..options.overrides()
            };
            Config::load(None, &overrides).unwrap();
        }
    }
}

#[test]
fn the_connectors_load() {
    for (kind, table, _) in CONNECTORS {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("connectors/{kind}.toml"));
        let config = Config::load(Some(&path), &Overrides::default()).unwrap();
        assert_eq!(config.outbox.tables, [table]);
    }
}

/// So are the others, where their variables are set.
#[test]
fn every_connector_is_valid() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("connectors");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files: Vec<_> = files.filter(|path| path.extension().is_some_and(|extension| extension == "toml")).collect();
    assert!(files.len() >= 3);
    let checks = SinkChecks { option: crate::sink::kafka::options::option_finding, ..SinkChecks::default() };
    for file in files {
        let parsed = tree::parse(&std::fs::read_to_string(&file).unwrap(), "f", &|name| Some(name.to_owned()));
        let mut findings = Findings(parsed.findings);
        validate(&parsed.config, &checks, &mut findings);
        assert_eq!(findings.0, [], "{}", file.display());
    }
}

/// The options that are commented out are right as well, and with them every option is there that goes with the source.
#[test]
fn the_connectors_have_every_option() {
    let is_option = |line: &&str| line.starts_with('#') && !line.starts_with("# ") && *line != "#";
    for (kind, _, connector) in CONNECTORS {
        let uncommented: Vec<&str> =
            connector.lines().map(|line| if is_option(&line) { &line[1..] } else { line }).collect();
        let text = uncommented.join("\n");
        let parsed = tree::parse(&text, kind, &|name| Some(name.to_owned()));
        assert_eq!(parsed.findings, []);
        let table: toml::Table = toml::from_str(&text).unwrap();
        let is_others = |key: &str| {
            (key.starts_with("source.") && !key.starts_with(&format!("source.{kind}.")))
                || (kind == "postgres" && ["outbox.columns.id-format", "record.mysql-values"].contains(&key))
        };
        for option in OPTIONS.iter().filter(|option| !is_others(option.key)) {
            let mut value = Some(toml::Value::Table(table.clone()));
            for key in option.key.split('.') {
                value = value.and_then(|value| value.get(key).cloned());
            }
            assert!(value.is_some(), "{} is missing for {kind}", option.key);
        }
    }
}

/// The names in the SQL are the defaults of the program.
#[test]
fn the_sql_makes_what_the_defaults_expect() {
    let config = Config::default();
    let postgres = super::PostgresConfig::default();
    assert!(
        SQL.contains(&format!("CREATE PUBLICATION {} FOR TABLE public.outbox", postgres.publication(&config.name)))
    );
    for column in config.required_columns() {
        assert!(SQL.contains(&format!("\n    {column} ")), "{column}");
    }
}
