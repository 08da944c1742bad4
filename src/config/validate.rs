//! What a configuration must fulfil beyond its form. Everything is looked at; nothing ends the search.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use super::error::Findings;
use super::names::{MAX_IDENTIFIER_BYTES, TableName, check_identifier};
use super::validate_record::record;
use super::{
    Config, Guarantee, IdFormat, KafkaConfig, MysqlValues, OnRowError, OutboxConfig, PostgresConfig, SourceConfig,
    TablePattern,
};

/// Looks at one option by name and value: what is wrong with it, if anything.
pub type OptionCheck = fn(&str, &str) -> Option<String>;

/// What the sink itself knows about its free tables of options.
#[derive(Clone, Copy, Debug)]
pub struct SinkChecks {
    /// Looks at each entry of `[sink.kafka.options]`.
    pub option: OptionCheck,
    /// Looks at each entry of `[sink.kafka.topic-config]`.
    pub topic_config: OptionCheck,
}

impl Default for SinkChecks {
    /// Everything is fine.
    fn default() -> Self {
        Self { option: |_, _| None, topic_config: |_, _| None }
    }
}

/// Longest name of a topic (Kafka, `Topic.java`).
const MAX_TOPIC_BYTES: usize = 249;

const KIB: u64 = 1 << 10;
const GIB: u64 = 1 << 30;

pub(super) fn validate(config: &Config, checks: &SinkChecks, findings: &mut Findings) {
    name(&config.name, findings);
    source(config, findings);
    outbox(config, findings);
    record(config, findings);
    sink(config, checks, findings);
    delivery(config, findings);
    let listen = &config.http.listen;
    if !listen.is_empty() && listen.parse::<SocketAddr>().is_err() {
        let hint =
            "write an IP address and a port, such as \"127.0.0.1:9464\" or \"0.0.0.0:9464\"; \"\" for no listener";
        findings.add("http.listen", format!("\"{listen}\" is no address"), hint);
    }
    if let Err(problem) = crate::logging::check_filter(&config.log.level) {
        let hint = "write off, error, warn, info, debug or trace, or a list such as \"info,outboxd::sink=debug\"";
        findings.add("log.level", problem, hint);
    }
}

fn name(name: &str, findings: &mut Findings) {
    let hint = "choose a short name for this instance, such as \"shop\"";
    if name.trim().is_empty() {
        findings.add("name", "is empty", hint);
    } else if name.len() > MAX_IDENTIFIER_BYTES {
        findings.add("name", format!("is longer than {MAX_IDENTIFIER_BYTES} bytes"), hint);
    } else if name.chars().any(char::is_control) {
        findings.add("name", "has a control character in it", hint);
    }
}

fn source(config: &Config, findings: &mut Findings) {
    let SourceConfig { postgres, mysql, mariadb } = &config.source;
    let count = [postgres.is_some(), mysql.is_some(), mariadb.is_some()].into_iter().filter(|there| *there).count();
    if count == 0 {
        let hint = "give --source-url (OUTBOXD_SOURCE_URL), or [source.postgres], [source.mysql] or [source.mariadb] with a \
                    url in the file";
        findings.add("source", "there is none", hint);
    } else if count > 1 {
        findings.add("source", "there is more than one", "leave one of the tables [source.…], and one --source-url");
    }
    if let Some(postgres) = postgres {
        source_url("postgres", postgres.url.expose(), findings);
        object_names(config, postgres, findings);
        let times = (postgres.silence_timeout, postgres.connect_timeout);
        let (file, command) = (postgres.password_file.as_deref(), postgres.password_command.as_slice());
        connection("postgres", times, file, command, findings);
        password("postgres", postgres.password.is_some(), file, command, findings);
        if config.outbox.columns.id_format != IdFormat::Column {
            let hint = "leave it out: PostgreSQL has a type for UUIDs";
            findings.add("outbox.columns.id-format", "is for MySQL and MariaDB", hint);
        }
        if config.record.mysql_values != MysqlValues::Server {
            findings.add("record.mysql-values", "is for MySQL and MariaDB", "leave it out");
        }
    }
    for (kind, mysql) in [("mysql", mysql), ("mariadb", mariadb)] {
        let Some(mysql) = mysql else { continue };
        source_url(kind, mysql.url.expose(), findings);
        let times = (mysql.silence_timeout, mysql.connect_timeout);
        let (file, command) = (mysql.password_file.as_deref(), mysql.password_command.as_slice());
        connection(kind, times, file, command, findings);
        password(kind, mysql.password.is_some(), file, command, findings);
        if mysql.server_id == Some(0) {
            let hint = "choose a number that no other replica of the server has, or leave it out";
            findings.add(&format!("source.{kind}.server-id"), "is 0", hint);
        }
        if let Some(pattern) = config.outbox.tables.iter().find(|table| table.contains('*')) {
            let hint = "name each table";
            findings.add("outbox.tables", format!("pattern \"{pattern}\" is for PostgreSQL in this version"), hint);
        }
    }
}

/// A password comes from one place.
fn password(kind: &str, is_given: bool, file: Option<&Path>, command: &[String], findings: &mut Findings) {
    if is_given && (!command.is_empty() || file.is_some()) {
        let other = if command.is_empty() { "password-file" } else { "password-command" };
        findings.add(&format!("source.{kind}.password"), format!("is there beside {other}"), "leave one of them out");
    }
}

/// What all kinds of sources have.
fn connection(
    kind: &str,
    (silence, connect): (Duration, Duration),
    file: Option<&Path>,
    command: &[String],
    findings: &mut Findings,
) {
    let seconds = Duration::from_secs;
    let option = |key: &str| format!("source.{kind}.{key}");
    duration(&option("silence-timeout"), silence, &(seconds(2)..=seconds(3600)), findings);
    duration(&option("connect-timeout"), connect, &(seconds(1)..=seconds(300)), findings);
    if let Some(path) = file {
        password_file(&option("password-file"), path, findings);
    }
    if command.first().is_some_and(|program| program.trim().is_empty()) {
        let hint = "write the program and each argument as a text of its own: [\"print-token\", \"--db\"]";
        findings.add(&option("password-command"), "names no program", hint);
    }
    if !command.is_empty() && file.is_some() {
        findings.add(&option("password-command"), "is there beside password-file", "leave one of them out");
    }
}

/// The URL may hold a password, so nothing behind its scheme is shown.
fn source_url(kind: &str, url: &str, findings: &mut Findings) {
    let option = &format!("source.{kind}.url");
    let (schemes, form): (&[&str], _) = match kind {
        "postgres" => (&["postgres", "postgresql"], "write postgres://user@host:5432/database"),
        "mysql" => (&["mysql"], "write mysql://user@host:3306/database"),
        _ => (&["mariadb", "mysql"], "write mariadb://user@host:3306/database"),
    };
    if url.trim().is_empty() {
        findings.add(option, "is missing", format!("{form}, or give --source-url (OUTBOXD_SOURCE_URL)"));
        return;
    }
    let Some((scheme, _)) = url.split_once("://") else {
        findings.add(option, "has no scheme", form);
        return;
    };
    if schemes.contains(&scheme) {
        return;
    }
    let hint = match scheme {
        "mysql" | "mariadb" | "postgres" if kind != scheme => format!("{form}, or name the table [source.{scheme}]"),
        _ => form.to_owned(),
    };
    findings.add(option, format!("\"{}\" is no scheme for [source.{kind}]", scheme.escape_debug()), hint);
}

fn object_names(config: &Config, postgres: &PostgresConfig, findings: &mut Findings) {
    let slot = postgres.slot(&config.name);
    let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if slot.is_empty() || slot.len() > MAX_IDENTIFIER_BYTES || !slot.chars().all(legal) {
        let given = if postgres.slot.is_some() { "" } else { ", which follows from the instance's name," };
        let problem = format!("\"{slot}\"{given} is no name of a replication slot");
        findings.add("source.postgres.slot", problem, "use a-z, 0-9 and _, at most 63 characters");
    }
    // Where it follows from the name, the slot's finding says it all.
    if let Some(publication) = &postgres.publication
        && let Err(problem) = check_identifier(publication)
    {
        let problem = if publication.is_empty() { "is empty".to_owned() } else { problem };
        findings.add("source.postgres.publication", problem, "give the publication's name as pg_publication shows it");
    }
}

fn outbox(config: &Config, findings: &mut Findings) {
    const TABLES: &str = "outbox.tables";
    let tables = &config.outbox.tables;
    if tables.is_empty() {
        findings.add(TABLES, "is empty", "name at least one table, such as \"public.outbox\"");
    }
    let mut seen: Vec<TableName> = Vec::new();
    for text in tables {
        if TablePattern::is_one(text) {
            if let Err(error) = TablePattern::parse(text) {
                findings.add(TABLES, error.to_string(), "write a pattern such as \"tenant_*.outbox\"");
            }
            continue;
        }
        match TableName::parse(text) {
            Ok(table) if seen.contains(&table) => {
                findings.add(TABLES, format!("\"{text}\" is there twice"), "leave one of them out");
            }
            Ok(table) => seen.push(table),
            Err(error) => {
                let hint = "write schema.table, with a part that has a dot or a double quote in it in double quotes";
                findings.add(TABLES, error.to_string(), hint);
            }
        }
    }
    first_read(&config.outbox, findings);
    let columns = &config.outbox.columns;
    let named = [
        ("id", Some(&columns.id)),
        ("key", Some(&columns.key)),
        ("route-by", Some(&columns.route_by)),
        ("payload", Some(&columns.payload)),
        ("timestamp", columns.timestamp.as_ref()),
        ("tracing-context", columns.tracing_context.as_ref()),
    ];
    for (key, column) in named {
        let option = format!("outbox.columns.{key}");
        match column.map(|column| check_identifier(column)) {
            Some(Err(_)) if column.is_some_and(String::is_empty) => {
                findings.add(&option, "is empty", "give the column's name, or leave the option out for its default");
            }
            Some(Err(problem)) => findings.add(&option, problem, "give the column's name as the table has it"),
            Some(Ok(())) | None => {}
        }
    }
}

/// Whether the condition is right SQL, and the columns are there, only the server can tell.
fn first_read(outbox: &OutboxConfig, findings: &mut Findings) {
    if let Some(condition) = &outbox.start_where {
        let hint = "write an SQL condition such as \"status = 'pending'\", or leave the option out for all rows";
        if condition.trim().is_empty() {
            findings.add("outbox.start-where", "is empty", hint);
        } else if condition.contains('\0') {
            findings.add("outbox.start-where", "has a zero byte in it", hint);
        }
    }
    for column in &outbox.start_order_by {
        if let Err(problem) = check_identifier(column) {
            let hint = "give the columns' names as the table has them, such as [\"created_at\", \"id\"]";
            findings.add("outbox.start-order-by", format!("\"{}\" {problem}", column.escape_debug()), hint);
        }
    }
}

/// What is wrong with the name of a topic, if anything.
pub(super) fn topic_name_problem(name: &str) -> Option<String> {
    match name {
        "" => Some("is empty".to_owned()),
        "." | ".." => Some(format!("\"{name}\" is no name that Kafka allows")),
        _ => topic_part_problem(name),
    }
}

pub(super) fn topic_part_problem(part: &str) -> Option<String> {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if let Some(c) = part.chars().find(|c| !legal(*c)) {
        return Some(format!("'{}' is not allowed in a topic's name", c.escape_debug()));
    }
    (part.len() > MAX_TOPIC_BYTES).then(|| format!("is longer than {MAX_TOPIC_BYTES} characters"))
}

fn sink(config: &Config, checks: &SinkChecks, findings: &mut Findings) {
    match (&config.sink.kafka, &config.sink.stdout) {
        (None, None) => {
            let hint = "give --bootstrap-servers (OUTBOXD_BOOTSTRAP_SERVERS) or --stdout, or [sink.kafka] in the file";
            findings.add("sink", "there is none", hint);
        }
        (Some(_), Some(_)) => {
            findings.add("sink", "there are two", "leave out [sink.kafka] or [sink.stdout]");
        }
        _ => {}
    }
    if let Some(kafka) = &config.sink.kafka {
        kafka_sink(kafka, checks, findings);
    }
    if let Some(stdout) = &config.sink.stdout
        && stdout.positions_file.as_os_str().is_empty()
    {
        findings.add("sink.stdout.positions-file", "is empty", "give the path of a file that may be written");
    }
}

fn kafka_sink(kafka: &KafkaConfig, checks: &SinkChecks, findings: &mut Findings) {
    bootstrap_servers(&kafka.bootstrap_servers, findings);
    if let Some(problem) = topic_name_problem(&kafka.positions_topic) {
        findings.add("sink.kafka.positions-topic", problem, "use letters, digits, dot, _ and -");
    }
    number("sink.kafka.topic-partitions", kafka.topic_partitions, &(1..=100_000), findings);
    number("sink.kafka.topic-replication-factor", kafka.topic_replication_factor, &(1..=1000), findings);
    sasl(kafka, findings);
    if let Some(path) = &kafka.sasl_password_file {
        password_file("sink.kafka.sasl-password-file", path, findings);
    }
    super::oauth::validate(kafka, findings);
    let tables = [
        ("sink.kafka.options", &kafka.options, checks.option),
        ("sink.kafka.topic-config", &kafka.topic_config, checks.topic_config),
    ];
    for (table, entries, check) in tables {
        for (key, value) in entries {
            if let Some(problem) = check(key, value) {
                findings.add(&format!("{table}.{key}"), problem, format!("leave it out of [{table}] or change it"));
            }
        }
    }
}

/// User and password come together; the password comes from one place.
fn sasl(kafka: &KafkaConfig, findings: &mut Findings) {
    let username = "sink.kafka.sasl-username";
    match (&kafka.sasl_username, &kafka.sasl_password, &kafka.sasl_password_file) {
        (Some(_), None, None) => {
            findings.add(
                "sink.kafka.sasl-password-file",
                "is missing beside sasl-username",
                "name the password's file",
            );
        }
        (None, _, Some(_)) => {
            findings.add(username, "is missing beside sasl-password-file", "give the SASL user's name");
        }
        (None, Some(_), None) => findings.add(username, "is missing beside sasl-password", "give the SASL user's name"),
        (Some(_), Some(_), Some(_)) => {
            findings.add("sink.kafka.sasl-password", "is there beside sasl-password-file", "leave one of them out");
        }
        _ => {}
    }
}

fn bootstrap_servers(servers: &str, findings: &mut Findings) {
    const OPTION: &str = "sink.kafka.bootstrap-servers";
    let form = "write host:port, several separated by commas";
    if servers.trim().is_empty() {
        findings.add(OPTION, "is missing", format!("{form}, or give --bootstrap-servers (OUTBOXD_BOOTSTRAP_SERVERS)"));
        return;
    }
    for server in servers.split(',').map(str::trim) {
        if server.contains("://") {
            let hint = "write host:port alone, and \"security.protocol\" in [sink.kafka.options]";
            findings.add(OPTION, format!("\"{server}\" has a scheme"), hint);
        } else if !is_host_and_port(server) {
            findings.add(OPTION, format!("\"{server}\" is not host:port"), form);
        }
    }
}

/// Whether `text` is a host name, an IPv4 address or an IPv6 address in brackets, with a port.
fn is_host_and_port(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let in_brackets = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let host_is_fine = match in_brackets {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !host.is_empty() && !host.contains([':', '[', ']', '/', '@', ' ']),
    };
    host_is_fine && port.parse::<u16>().is_ok_and(|port| port > 0)
}

fn delivery(config: &Config, findings: &mut Findings) {
    let delivery = &config.delivery;
    if delivery.guarantee == Guarantee::ExactlyOnce {
        let hint = "use \"at-least-once\"; consumers tell repeats by the header id";
        findings.add("delivery.guarantee", "\"exactly-once\" is not available in this version", hint);
    }
    let policy = match delivery.on_row_error {
        OnRowError::Stop => None,
        OnRowError::DeadLetter => Some("dead-letter"),
        OnRowError::Skip => Some("skip"),
    };
    if let Some(policy) = policy {
        let problem = format!("\"{policy}\" is not available in this version");
        findings.add("delivery.on-row-error", problem, "use \"stop\"");
    }
    if !(64 * KIB..=4 * GIB).contains(&delivery.window_bytes) {
        let problem = format!("{} is out of range", delivery.window_bytes);
        findings.add("delivery.window-bytes", problem, "choose from 65536 (64 KiB) to 4294967296 (4 GiB)");
    }
    let range = Duration::from_millis(10)..=Duration::from_secs(60);
    duration("delivery.position-interval", delivery.position_interval, &range, findings);
    let range = Duration::ZERO..=Duration::from_secs(3600);
    duration("delivery.shutdown-timeout", delivery.shutdown_timeout, &range, findings);
}

fn duration(option: &str, value: Duration, range: &RangeInclusive<Duration>, findings: &mut Findings) {
    if !range.contains(&value) {
        let show = humantime_serde::re::humantime::format_duration;
        let hint = format!("choose from {} to {}", show(*range.start()), show(*range.end()));
        findings.add(option, format!("{} is out of range", show(value)), hint);
    }
}

fn number(option: &str, value: Option<u32>, range: &RangeInclusive<u32>, findings: &mut Findings) {
    if let Some(value) = value
        && !range.contains(&value)
    {
        let hint = format!("choose from {} to {}", range.start(), range.end());
        findings.add(option, format!("{value} is out of range"), hint);
    }
}

fn password_file(option: &str, path: &Path, findings: &mut Findings) {
    secret_file(option, path, "password", findings);
}

/// Reads a secret's file for a try: it is read again at each connect, when nobody is watching any more.
pub(super) fn secret_file(option: &str, path: &Path, what: &str, findings: &mut Findings) {
    let shown = path.display();
    match std::fs::read(path) {
        Ok(content) if content.iter().all(|byte| matches!(byte, b'\n' | b'\r')) => {
            findings.add(option, format!("file \"{shown}\" is empty"), format!("put the {what} into it"));
        }
        Ok(content) if std::str::from_utf8(&content).is_err() => {
            findings.add(
                option,
                format!("file \"{shown}\" is not UTF-8 text"),
                format!("put the {what} alone into it"),
            );
        }
        Ok(_) => {}
        Err(error) => {
            let hint = "give the path of a file that this user may read";
            findings.add(option, format!("cannot read file \"{shown}\": {error}"), hint);
        }
    }
}
