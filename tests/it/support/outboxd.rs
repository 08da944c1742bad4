//! The program under test.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use super::{Config, Kafka, eventually, free_port, signal, within};

/// An answer of `/readyz`.
#[derive(Clone, Debug)]
pub(crate) struct Health {
    /// HTTP status.
    pub(crate) status: u16,
    /// The body.
    pub(crate) json: Value,
}

impl Health {
    pub(crate) fn reason(&self) -> &str {
        self.json["reason"].as_str().unwrap_or("")
    }

    pub(crate) fn phase(&self) -> &str {
        self.json["phase"].as_str().unwrap_or("")
    }

    pub(crate) fn detail(&self) -> &str {
        self.json["detail"].as_str().unwrap_or("")
    }

    /// One side of the gap, `from` or `to`.
    pub(crate) fn gap(&self, side: &str) -> Option<u64> {
        self.json["gap"][side].as_str().map(super::lsn)
    }
}

/// How a relay ended that was refused.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stderr: String,
}

/// A running relay; killed when dropped. Its log is shown if the test fails.
pub(crate) struct Outboxd {
    child: Child,
    port: u16,
    dir: TempDir,
    status: Option<ExitStatus>,
}

impl Outboxd {
    /// Starts `outboxd run` with a configuration and a free port for HTTP.
    #[track_caller]
    pub(crate) fn start(config: &Config) -> Self {
        let port = free_port();
        Self::start_text(&config.clone().set("http.listen", format!("127.0.0.1:{port}")).text(), port)
    }

    /// Starts `outboxd run` with the text of a configuration file.
    #[track_caller]
    pub(crate) fn start_text(text: &str, port: u16) -> Self {
        Self::start_files(&[("outboxd.toml", text)], &[], port)
    }

    /// Starts `outboxd run` with the JSON of a Debezium connector.
    #[track_caller]
    pub(crate) fn start_connector(connector: &Value, kafka: &Kafka) -> Self {
        let port = free_port();
        let http = format!("127.0.0.1:{port}");
        let arguments = ["--bootstrap-servers", &kafka.bootstrap, "--http-listen", &http, "--log-level", "info"];
        Self::start_files(&[("connector.json", &connector.to_string())], &arguments, port)
    }

    /// Starts `outboxd run` with the first of these files as its configuration and the others beside it, and with these
    /// flags.
    #[track_caller]
    pub(crate) fn start_files(files: &[(&str, &str)], flags: &[&str], port: u16) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let stdout = File::create(dir.path().join("stdout")).unwrap();
        Self::start_in(dir, files, flags, port, stdout.into())
    }

    /// Starts `outboxd run` with its standard output in a pipe.
    #[track_caller]
    pub(crate) fn start_piped(config: &Config) -> (Self, ChildStdout) {
        let port = free_port();
        let text = config.clone().set("http.listen", format!("127.0.0.1:{port}")).text();
        let dir = tempfile::tempdir().unwrap();
        let mut relay = Self::start_in(dir, &[("outboxd.toml", &text)], &[], port, Stdio::piped());
        let stdout = relay.child.stdout.take().unwrap();
        (relay, stdout)
    }

    #[track_caller]
    fn start_in(dir: TempDir, files: &[(&str, &str)], flags: &[&str], port: u16, stdout: Stdio) -> Self {
        for (name, text) in files {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        let mut command = Command::new(env!("CARGO_BIN_EXE_outboxd"));
        // the whole path: tests type the commands that the relay names
        command
            .arg("run")
            .arg("--config")
            .arg(dir.path().join(files[0].0))
            .args(flags)
            .current_dir(dir.path())
            .stdin(Stdio::null());
        command.stdout(stdout);
        command.stderr(File::create(dir.path().join("stderr")).unwrap());
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("OUTBOX") || name == "RUST_LOG" {
                command.env_remove(name);
            }
        }
        let child = command.spawn().unwrap();
        Self { child, port, dir, status: None }
    }

    /// Starts one that is expected to end by itself, and waits for that.
    #[track_caller]
    pub(crate) fn run_to_end(config: &Config) -> Ended {
        let mut relay = Self::start(config);
        relay.end(20)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    fn output(&self, name: &str) -> String {
        String::from_utf8_lossy(&std::fs::read(self.dir.path().join(name)).unwrap_or_default()).into_owned()
    }

    pub(crate) fn stderr(&self) -> String {
        self.output("stderr")
    }

    pub(crate) fn stdout(&self) -> String {
        self.output("stdout")
    }

    /// Status and body of a GET, if there is an answer.
    pub(crate) fn get(&self, path: &str) -> Option<(u16, String)> {
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], self.port));
        let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(2)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
        // HTTP/1.0: the body is not chunked and ends with the connection
        write!(stream, "GET {path} HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        let status = head.split_whitespace().nth(1)?.parse().ok()?;
        Some((status, body.to_owned()))
    }

    /// The answer of `/readyz`, if there is one.
    pub(crate) fn health(&self) -> Option<Health> {
        let (status, body) = self.get("/readyz")?;
        Some(Health { status, json: serde_json::from_str(&body).ok()? })
    }

    /// Waits for an answer of `/readyz` that `wanted` likes.
    #[track_caller]
    pub(crate) fn wait_health(&self, what: &str, seconds: u64, wanted: impl Fn(&Health) -> bool) -> Health {
        let begin = Instant::now();
        let limit = within(seconds);
        let mut last = None;
        loop {
            if let Some(health) = self.health() {
                if wanted(&health) {
                    return health;
                }
                last = Some(health);
            }
            assert!(!self.has_ended(), "the relay has ended; waited for: {what}; last answer of /readyz: {last:?}");
            assert!(begin.elapsed() < limit, "not within {limit:?}: {what}; last answer of /readyz: {last:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits until it streams.
    #[track_caller]
    pub(crate) fn ready(&self) {
        self.wait_health("ready", 20, |health| health.status == 200 && health.phase() == "streaming");
    }

    /// Waits until it gives this reason and is red.
    #[track_caller]
    pub(crate) fn wait_reason(&self, reason: &str, seconds: u64) -> Health {
        let health = self.wait_health(reason, seconds, |health| health.reason() == reason);
        assert_eq!(health.status, 503, "not red with reason {reason}: {health:?}");
        health
    }

    /// Waits until it is in a terminal state, and checks that it is for one of the reasons: process alive, `/healthz`
    /// fine, `/readyz` red with words for a person.
    #[track_caller]
    pub(crate) fn wait_terminal(&self, reasons: &[&str], seconds: u64) -> Health {
        let health = self.wait_health("a terminal state", seconds, |health| health.phase() == "terminal");
        assert!(reasons.contains(&health.reason()), "expected one of {reasons:?}: {health:?}");
        assert_eq!(health.status, 503, "{health:?}");
        assert!(!health.detail().is_empty() && health.json["hint"].is_string(), "no words for a person: {health:?}");
        assert_eq!(self.get("/healthz").map(|(status, _)| status), Some(200), "the process is alive");
        health
    }

    /// A series of `/metrics`: `metric("outbox_events_total")`. Without labels in the name, the sum of all series.
    pub(crate) fn metric(&self, name: &str) -> Option<f64> {
        let (_, body) = self.get("/metrics")?;
        let values = body.lines().filter_map(|line| {
            let (series, value) = line.rsplit_once(' ')?;
            let bare = series.split_once('{').map_or(series, |(bare, _)| bare);
            let label = name.split_once('{').map(|(_, label)| label.trim_end_matches('}'));
            let wanted = bare == name.split('{').next()? && label.is_none_or(|label| series.contains(label));
            wanted.then(|| value.parse().ok()).flatten()
        });
        values.fold(None, |sum: Option<f64>, value: f64| Some(sum.unwrap_or(0.0) + value))
    }

    /// Resident memory in bytes.
    pub(crate) fn memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap_or_default();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
        line.split_whitespace().nth(1).map_or(0, |kib| kib.parse::<u64>().unwrap() * 1024)
    }

    /// Most resident memory that it has had, in bytes.
    pub(crate) fn peak_memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
    }

    /// Whether it is a zombie, which waits for us to ask for its exit code.
    fn has_ended(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap_or_default();
        stat.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with('Z'))
    }

    pub(crate) fn is_running(&mut self) -> bool {
        if self.status.is_none() {
            self.status = self.child.try_wait().unwrap();
        }
        self.status.is_none()
    }

    /// Waits until it has ended.
    #[track_caller]
    pub(crate) fn end(&mut self, seconds: u64) -> Ended {
        eventually("the relay ends by itself", seconds, || (!self.is_running()).then_some(()));
        Ended { code: self.status.unwrap().code(), stderr: self.stderr() }
    }

    /// SIGTERM; returns the exit code.
    #[track_caller]
    pub(crate) fn terminate(mut self) -> Option<i32> {
        assert!(self.is_running(), "the relay has ended by itself");
        signal(self.pid(), "TERM");
        self.end(40).code
    }

    /// SIGKILL.
    pub(crate) fn kill9(mut self) {
        let _ = self.child.kill();
        self.status = self.child.wait().ok();
    }

    /// SIGSTOP: it does nothing until [`thaw`](Self::thaw).
    pub(crate) fn freeze(&self) {
        assert!(signal(self.pid(), "STOP"));
    }

    /// SIGCONT.
    pub(crate) fn thaw(&self) {
        assert!(signal(self.pid(), "CONT"));
    }
}

impl Drop for Outboxd {
    fn drop(&mut self) {
        if std::thread::panicking() && self.is_running() {
            for path in ["/readyz", "/metrics"] {
                let body = self.get(path).map(|(_, body)| body).unwrap_or_default();
                let lines = body.lines().filter(|line| !line.starts_with('#') && !line.contains("_bucket{"));
                eprintln!("--- {path} of outboxd:\n{}", lines.collect::<Vec<_>>().join("\n"));
            }
        }
        if self.is_running() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        if std::thread::panicking() {
            let log = self.stderr();
            let lines: Vec<_> = log.lines().collect();
            let tail = lines.iter().skip(lines.len().saturating_sub(60)).copied().collect::<Vec<_>>();
            eprintln!("--- end of the log of outboxd, process {}:\n{}", self.pid(), tail.join("\n"));
        }
    }
}
