//! The README's commands, run as they are written, and the environment of the compose file.
//!
//! Only what belongs to the reader's own machine is put in their place: addresses, a password.

use std::fs::File;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::support::mysql::{Kind, PrivateMysql};
use crate::support::{PrivateKafka, PrivateServer, Version, base_table, eventually, free_port, signal, variable};

const README: &str = include_str!("../../README.md");
const COMPOSE: &str = include_str!("../../docker-compose.yml");

/// What takes a machine of its own, or is run by other tests: the demo, the tests themselves, Docker.
const ELSEWHERE: [&str; 5] = ["cargo ", "tests/run", "export PATH=", "docker compose ", "bench/run"];

/// The password that the reader chooses.
const CHOSEN: &str = "chosen-1";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The code blocks of a language.
fn blocks(language: &str) -> Vec<String> {
    let fence = format!("\n```{language}\n");
    let parts = README.split(fence.as_str()).skip(1);
    parts.map(|part| part.split("\n```").next().unwrap().to_owned()).collect()
}

/// All lines of shell, without comments.
fn shell_lines() -> Vec<String> {
    let text = blocks("sh").join("\n");
    text.lines().map(|line| line.split("  #").next().unwrap().trim().to_owned()).collect()
}

/// The one line that begins so.
#[track_caller]
fn line(beginning: &str) -> String {
    let lines: Vec<_> = shell_lines().into_iter().filter(|line| line.starts_with(beginning)).collect();
    assert_eq!(lines.len(), 1, "{beginning}: {lines:?}");
    lines.into_iter().next().unwrap()
}

/// A reader: a folder that looks like the project's, servers, and a shell.
struct Reader {
    server: PrivateServer,
    kafka: PrivateKafka,
    dir: TempDir,
    http: u16,
    variables: Vec<(String, String)>,
}

/// A command that runs until it is ended.
struct Running {
    child: Child,
    dir: PathBuf,
}

impl Reader {
    /// A reader with a database, on servers on which nobody else has made anything.
    #[track_caller]
    fn new() -> Self {
        let server = PrivateServer::start(Version::V18, "");
        // a password that is wrong should be noticed
        server.prepend_hba("host all outboxd 127.0.0.1/32 scram-sha-256");
        server.session("postgres").run("CREATE DATABASE shop");
        let dir = tempfile::tempdir().unwrap();
        symlink(root().join("sql"), dir.path().join("sql")).unwrap();
        let bin = Path::new(env!("CARGO_BIN_EXE_outboxd")).parent().unwrap().display().to_string();
        let http = free_port();
        let variables = vec![
            ("PATH".to_owned(), format!("{bin}:{}", std::env::var("PATH").unwrap())),
            ("OUTBOXD_HTTP_LISTEN".to_owned(), format!("127.0.0.1:{http}")),
        ];
        Self { server, kafka: PrivateKafka::start(), dir, http, variables }
    }

    /// Puts the reader's own addresses and password in.
    fn own(&self, text: &str) -> String {
        let port = self.server.port;
        text.replace("@localhost/", &format!("@127.0.0.1:{port}/"))
            .replace("localhost:5432", &format!("127.0.0.1:{port}"))
            .replace("localhost:9092", &self.kafka.bootstrap)
            .replace("PASSWORD", CHOSEN)
    }

    /// Types `export NAME='value'`.
    fn export(&mut self, line: &str) {
        let (name, value) = line.strip_prefix("export ").unwrap().split_once('=').unwrap();
        let value = self.own(value.trim_matches('\''));
        self.variables.push((name.to_owned(), value));
    }

    /// A shell without a terminal, which gets no variable that the reader has not set.
    fn shell(&self, line: &str) -> Command {
        let mut command = Command::new("setsid");
        command.args(["--wait", "bash", "-c", &self.own(line)]).current_dir(self.dir.path());
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("OUTBOX") || name == "RUST_LOG" {
                command.env_remove(name);
            }
        }
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Types a line, and these answers to what it asks; returns what it prints.
    #[track_caller]
    fn types(&self, line: &str, answers: &str) -> String {
        let input = self.dir.path().join("answers");
        std::fs::write(&input, answers).unwrap();
        let output = self.shell(line).stdin(File::open(input).unwrap()).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{line}: {}\n{stdout}{stderr}", output.status);
        stdout
    }

    /// Types a line that does not end by itself, and waits until it is ready.
    #[track_caller]
    fn starts(&self, line: &str) -> Running {
        let file = |name: &str| File::create(self.dir.path().join(name)).unwrap();
        // the shell makes way for the program, so that a signal reaches it
        let mut command = self.shell(&format!("exec {line}"));
        command.stdin(Stdio::null()).stdout(file("stdout")).stderr(file("stderr"));
        let running = Running { child: command.spawn().unwrap(), dir: self.dir.path().to_owned() };
        let ready = format!("curl --fail --silent http://127.0.0.1:{}/readyz", self.http);
        eventually(&format!("{line} is ready"), 30, || self.is_ready(&ready).then_some(()));
        running
    }

    fn is_ready(&self, command: &str) -> bool {
        self.shell(command).output().is_ok_and(|output| {
            output.status.success() && String::from_utf8_lossy(&output.stdout).contains("\"streaming\"")
        })
    }

    /// Runs SQL as an application does.
    #[track_caller]
    fn inserts(&self, sql: &str) {
        self.server.session("shop").run(sql);
    }

    /// What the README's consumer prints, once there is something.
    #[track_caller]
    fn consumes(&self) -> String {
        let line = line("kcat ");
        eventually("kcat prints a record", 30, || {
            let output = self.shell(&line).output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            (output.status.success() && !text.is_empty()).then_some(text)
        })
    }
}

impl Running {
    fn stdout(&self) -> String {
        std::fs::read_to_string(self.dir.join("stdout")).unwrap()
    }

    /// Ctrl-C.
    #[track_caller]
    fn ends(mut self) {
        // setsid waits for the program, which is its only child
        let children = format!("/proc/{0}/task/{0}/children", self.child.id());
        let pid = std::fs::read_to_string(children).unwrap_or_default().trim().parse().unwrap_or(self.child.id());
        assert!(signal(pid, "INT"));
        let status = eventually("it ends", 40, || self.child.try_wait().unwrap());
        assert!(status.success(), "{status}: {}", std::fs::read_to_string(self.dir.join("stderr")).unwrap());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- log:\n{}", std::fs::read_to_string(self.dir.join("stderr")).unwrap_or_default());
            let children = format!("/proc/{0}/task/{0}/children", self.child.id());
            if let Ok(pid) = std::fs::read_to_string(children).unwrap_or_default().trim().parse() {
                signal(pid, "KILL");
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Proves that every line of shell in the README is run by a test of this file, or is known to be run elsewhere.
#[test]
fn every_command_is_run() {
    let here = include_str!("readme.rs");
    for line in shell_lines() {
        let is_run = here.lines().any(|code| {
            let begins = code.split("line(\"").nth(1).and_then(|rest| rest.split("\")").next());
            begins.is_some_and(|begins| line.starts_with(begins))
        });
        let is_run = is_run || here.contains(&format!("\"{}\"", line.trim_end_matches(" --dry-run")));
        let is_elsewhere = ELSEWHERE.iter().any(|beginning| line.starts_with(beginning));
        assert!(is_run || is_elsewhere, "nothing runs: {line}");
    }
}

/// Proves that somebody with servers of his own gets from nothing to a record in Kafka by the quick start as written,
/// and to one on the terminal.
#[test]
fn quick_start() {
    let mut reader = Reader::new();
    let prepare = line("psql -v ON_ERROR_STOP=1");
    reader.types(&prepare, "");
    reader.types(&prepare, "");
    reader.types(&line("psql -c '"), &format!("{CHOSEN}\n{CHOSEN}\n"));
    reader.export(&line("export OUTBOXD_SOURCE_URL="));
    let relay = reader.starts(&line("outboxd run --bootstrap-servers"));
    let insert = &blocks("sql")[0];
    reader.inserts(insert);
    let record = reader.consumes();
    assert!(record.starts_with("key 42, headers id=") && record.ends_with(": {\"total\": 12.5}\n"), "{record:?}");
    relay.ends();

    let (_, rest) = README.split_once("No Kafka at hand? `").unwrap();
    let printing = rest.split('`').next().unwrap();
    let relay = reader.starts(printing);
    reader.inserts(insert);
    eventually("the record is printed", 20, || relay.stdout().contains("12.5").then_some(()));
    relay.ends();
}

/// Proves that somebody with a MySQL server gets by the commands as written to a record in Kafka.
#[test]
fn quick_start_on_mysql() {
    let mut reader = Reader::new();
    let mysql = PrivateMysql::start(Kind::Mysql, &["--sync-binlog=1"]);
    mysql.session().run("CREATE DATABASE shop");
    let bin = reader.dir.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    let services = variable("OUTBOX_TEST_SERVICES");
    let client = format!("#!/bin/sh\nexec {services}/mysql.sh sql mysql {} \"$@\"\n", mysql.dir.display());
    std::fs::write(bin.join("mysql"), client).unwrap();
    std::fs::set_permissions(bin.join("mysql"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let (_, path) = reader.variables.iter_mut().find(|(name, _)| name == "PATH").unwrap();
    *path = format!("{}:{path}", bin.display());
    let own = |line: String| line.replace("localhost:3306", &format!("127.0.0.1:{}", mysql.port));
    let prepare = line("sed 's/CHANGE ME/");
    reader.types(&prepare, "");
    reader.types(&prepare, "");
    let said = reader.types(&own(line("outboxd check --source-url mysql:")), "");
    assert!(said.contains("nothing found that is wrong"), "{said}");
    let relay = reader.starts(&own(line("outboxd run --source-url mysql:")));
    mysql.session().run(&format!("USE shop; {}", blocks("sql")[0]));
    let record = reader.consumes();
    assert!(record.starts_with("key 42, headers id=") && record.ends_with(": {\"total\": 12.5}\n"), "{record:?}");
    relay.ends();
}

/// Proves that somebody with a connector of Debezium's and its worker's file gets by the commands as written to a relay that
/// goes on at the connector's slot.
#[test]
fn coming_from_debezium() {
    let reader = Reader::new();
    reader.server.prepend_hba("host all outboxd 127.0.0.1/32 trust");
    reader.inserts(&base_table("outbox"));
    reader.inserts("CREATE ROLE outboxd LOGIN REPLICATION; CREATE PUBLICATION dbz_publication FOR TABLE outbox");
    reader.inserts("SELECT pg_create_logical_replication_slot('debezium', 'pgoutput')");
    let connector = std::fs::read_to_string(root().join("connectors/debezium/postgres-outbox.json")).unwrap();
    let connector = connector
        .replace("\"5432\"", &format!("\"{}\"", reader.server.port))
        .replace("\"localhost\"", "\"127.0.0.1\"")
        .replace("${env:DB_PASSWORD}", CHOSEN);
    std::fs::write(reader.dir.path().join("connector.json"), reader.own(&connector)).unwrap();
    let worker = format!("bootstrap.servers={}\ngroup.id=connect\n", reader.kafka.bootstrap);
    std::fs::write(reader.dir.path().join("connect-distributed.properties"), worker).unwrap();
    reader.inserts(&blocks("sql")[0]);
    let run = "outboxd run --config connector.json --worker-config connect-distributed.properties";
    let lines = shell_lines();
    assert_eq!(lines.iter().filter(|line| line.starts_with(run)).count(), 2, "{lines:?}");
    let shown = reader.types(&format!("{run} --dry-run"), "");
    assert!(shown.contains("heartbeat.interval.ms") && !shown.contains(CHOSEN), "{shown}");
    reader.types(&line("outboxd check --config connector.json"), "");
    let said = reader.types(&line("outboxd takeover --config connector.json"), "");
    assert!(said.contains("goes on at the slot"), "{said}");
    let relay = reader.starts(run);
    assert!(reader.consumes().contains("eventType=OrderPlaced"));
    relay.ends();
}

/// Proves that the commands bring a database with nothing but the table to a relay that runs, with the configuration
/// file that comes with the program; and that after the loss of the slot the command of the hint goes on.
#[test]
fn commands() {
    let reader = Reader::new();
    reader.inserts(&base_table("outbox").replace("payload text", "payload jsonb"));
    let connector = std::fs::read_to_string(root().join("connectors/postgres.toml")).unwrap();
    // the role that setup makes has no password
    reader.server.prepend_hba("host all outboxd 127.0.0.1/32 trust");
    std::fs::write(reader.dir.path().join("outboxd.toml"), reader.own(&connector)).unwrap();
    reader.types(&line("outboxd setup --config"), "");
    reader.types(&line("outboxd check --config outboxd.toml"), "");
    let run = line("outboxd run --config outboxd.toml");
    let relay = reader.starts(&run);
    reader.inserts(&blocks("sql")[0]);
    assert!(reader.consumes().contains("eventType=OrderPlaced"));
    let status = reader.types("outboxd status --config outboxd.toml", "");
    assert!(status.contains("streaming"), "{status}");
    relay.ends();
    reader.inserts("SELECT pg_drop_replication_slot('outboxd_outbox')");
    // it asks, and only a terminal can answer
    let resume = format!("script -qec '{}' /dev/null", line("outboxd resume --from now"));
    let said = reader.types(&resume, "yes\n");
    assert!(said.contains("made slot"), "{said}");
    reader.starts(&run).ends();
    let given_up = reader.types("script -qec 'outboxd drop-slot --config outboxd.toml' /dev/null", "yes\n");
    assert!(given_up.contains("outboxd_outbox"), "{given_up}");
    let left = reader.server.session("shop").text("SELECT count(*) FROM pg_replication_slots");
    assert_eq!(left.as_deref(), Some("0"));
}

/// Proves that what the compose file mounts into the server and sets for the relay goes together.
#[test]
fn compose_environment() {
    let mut reader = Reader::new();
    let mounted: Vec<_> = COMPOSE.lines().filter_map(|line| line.trim().strip_prefix("- ./")).collect();
    for file in mounted.iter().map(|line| line.split(':').next().unwrap()) {
        reader.types(&format!("psql -v ON_ERROR_STOP=1 --no-psqlrc -f {file} postgres://postgres@localhost/shop"), "");
    }
    let outside = |value: &str| value.replace("@postgres:", "@localhost:").replace("kafka:19092", "localhost:9092");
    let set = COMPOSE
        .lines()
        .filter_map(|line| line.trim().split_once(": "))
        .filter(|(name, _)| name.starts_with("OUTBOXD_"));
    for (name, value) in set {
        reader.export(&format!("export {name}='{}'", outside(value)));
    }
    assert_eq!(reader.variables.len(), 2 + 3);
    let relay = reader.starts("outboxd run");
    reader.inserts(&blocks("sql")[0]);
    assert!(reader.consumes().contains("{\"total\": 12.5}"));
    relay.ends();
}
