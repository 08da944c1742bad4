//! Holds the Dockerfile and the compose file against the program, the README, and each other. Tests only.

use std::collections::BTreeMap;
use std::path::Path;

use clap::CommandFactory;

use super::secret::Secret;
use super::{Config, Overrides};
use crate::cli::Cli;

const DOCKERFILE: &str = include_str!("../../Dockerfile");
const IGNORED: &str = include_str!("../../.dockerignore");
const COMPOSE: &str = include_str!("../../docker-compose.yml");
const PASSWORD: &str = include_str!("../../sql/postgres/try-password.sql");
const README: &str = include_str!("../../README.md");
const TOOLCHAIN: &str = include_str!("../../rust-toolchain.toml");

/// The lines of a service.
fn service(name: &str) -> Vec<&'static str> {
    let mut lines = COMPOSE.lines().skip_while(|line| *line != format!("  {name}:")).skip(1);
    let inside = |line: &&str| line.is_empty() || line.starts_with("    ");
    let found: Vec<_> = lines.by_ref().take_while(inside).map(str::trim).collect();
    assert!(!found.is_empty(), "no service {name}");
    found
}

/// The environment of a service, without quotes.
fn environment(name: &str) -> BTreeMap<&'static str, &'static str> {
    let lines = service(name);
    let pairs = lines.iter().filter_map(|line| line.split_once(": "));
    pairs
        .filter(|(key, _)| key.chars().all(|c| c.is_ascii_uppercase() || c == '_'))
        .map(|(key, value)| (key, value.trim_matches('"')))
        .collect()
}

/// The variables that the image and the compose file set for the relay.
fn variables() -> BTreeMap<&'static str, &'static str> {
    let mut all = environment("outboxd");
    let set = DOCKERFILE.lines().filter_map(|line| line.strip_prefix("ENV ")?.split_once('='));
    all.extend(set);
    all
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn the_variables_are_those_of_the_program() {
    let command = Cli::command();
    let run = command.find_subcommand("run").unwrap();
    let known: Vec<_> = run.get_arguments().filter_map(|argument| argument.get_env()?.to_str()).collect();
    for name in variables().keys() {
        assert!(known.contains(name), "{name} is not known: {known:?}");
    }
    let all = variables();
    let get = |name: &str| Some(all[name].to_owned());
    let overrides = Overrides {
        source_url: get("OUTBOXD_SOURCE_URL").map(Secret::new),
        bootstrap_servers: get("OUTBOXD_BOOTSTRAP_SERVERS"),
        tables: vec![all["OUTBOXD_TABLE"].to_owned()],
        http_listen: get("OUTBOXD_HTTP_LISTEN"),
        ..Overrides::default()
    };
    Config::load(None, &overrides).unwrap();
}

#[test]
fn the_port_is_the_same_everywhere() {
    let config = Config::default();
    let port = config.http.address().unwrap().port();
    assert_eq!(variables()["OUTBOXD_HTTP_LISTEN"], format!("0.0.0.0:{port}"));
    assert!(DOCKERFILE.contains(&format!("\nEXPOSE {port}\n")));
    assert!(DOCKERFILE.contains(&format!("\"http://127.0.0.1:{port}/readyz\"]")));
    assert!(service("outboxd").contains(&format!("- \"127.0.0.1:${{OUTBOXD_PORT:-{port}}}:{port}\"").as_str()));
    assert!(README.contains(&format!("<http://127.0.0.1:{port}/>")));
}

#[test]
fn the_files_are_there() {
    let copied =
        DOCKERFILE.lines().filter_map(|line| line.strip_prefix("COPY ")).filter(|line| !line.contains("--from"));
    let sources: Vec<&str> =
        copied.flat_map(|line| line.split_whitespace().rev().skip(1).collect::<Vec<_>>()).collect();
    assert_eq!(sources.len(), 3, "{sources:?}");
    for source in &sources {
        assert!(root().join(source).exists(), "{source} is not there");
        assert!(IGNORED.lines().any(|line| line == format!("!{source}")), ".dockerignore leaves {source} out");
    }
    let mounted: Vec<_> = COMPOSE.lines().filter_map(|line| line.trim().strip_prefix("- ./")).collect();
    assert_eq!(mounted.len(), 2);
    for line in mounted {
        let source = line.split(':').next().unwrap();
        assert!(root().join(source).exists(), "{source} is not there");
    }
    // a package that reads other files when it is built would not be built in the image
    assert!(!root().join("build.rs").exists());
}

/// The relay logs in as the role and with the password that the scripts make, into the database that the server makes,
/// and finds the broker at the address that the broker tells.
#[test]
fn the_services_fit_each_other() {
    let all = variables();
    assert_eq!(all["OUTBOXD_SOURCE_URL"], "postgres://outboxd:outboxd@postgres:5432/shop");
    assert!(PASSWORD.contains("ALTER ROLE outboxd PASSWORD 'outboxd';"));
    assert_eq!(environment("postgres")["POSTGRES_DB"], "shop");
    assert!(service("postgres").contains(&"command: [\"postgres\", \"-c\", \"wal_level=logical\"]"));
    let kafka = environment("kafka");
    let bootstrap = all["OUTBOXD_BOOTSTRAP_SERVERS"];
    assert!(kafka["KAFKA_ADVERTISED_LISTENERS"].starts_with(&format!("INSIDE://{bootstrap},")));
    let port = bootstrap.split_once(':').unwrap().1;
    assert!(kafka["KAFKA_LISTENERS"].starts_with(&format!("INSIDE://:{port},")));
}

#[test]
fn the_image_is_built_with_the_projects_rust() {
    let version = TOOLCHAIN.lines().find_map(|line| line.strip_prefix("channel = \"")).unwrap().trim_end_matches('"');
    assert!(DOCKERFILE.contains(&format!("FROM rust:{version}-bookworm AS build")), "{version}");
    assert!(DOCKERFILE.contains("--locked --no-default-features") && DOCKERFILE.contains("\nUSER 10001\n"));
}

/// The commands that the compose file begins with are the README's.
#[test]
fn the_readme_has_the_same_commands() {
    let commands: Vec<_> = COMPOSE.lines().filter_map(|line| line.strip_prefix("#     ")).collect();
    assert_eq!(commands.len(), 3);
    for command in commands {
        assert!(README.lines().any(|line| line.split("  #").next().unwrap().trim() == command), "{command}");
    }
}
