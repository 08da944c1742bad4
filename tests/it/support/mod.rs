//! What every test needs: servers, a database of its own, the program under test, waiting.

pub(crate) mod case;
pub(crate) mod certificates;
pub(crate) mod config;
pub(crate) mod gate;
pub(crate) mod issuer;
pub(crate) mod kafka;
pub(crate) mod ledger;
pub(crate) mod load;
pub(crate) mod mysql;
pub(crate) mod outboxd;
pub(crate) mod postgres;
pub(crate) mod secure;
pub(crate) mod tool;
pub(crate) mod walsender;

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

pub(crate) use case::{Case, base_table};
pub(crate) use config::Config;
pub(crate) use kafka::{Kafka, PrivateKafka, Rec};
pub(crate) use outboxd::Outboxd;
pub(crate) use postgres::{PrivateServer, Server, Session, Version, lsn};
pub(crate) use secure::SecureKafka;

/// Makes each function a test on PostgreSQL 15 and one on 18.
macro_rules! on_each_version {
    ($($name:ident),* $(,)?) => {
        mod pg15 {
            $(#[test] fn $name() { super::$name($crate::support::Version::V15); })*
        }
        mod pg18 {
            $(#[test] fn $name() { super::$name($crate::support::Version::V18); })*
        }
    };
}

/// Makes each function a test on MySQL 9.7, on MariaDB 10.11 and on MariaDB 11.8.
macro_rules! on_each_binlog {
    ($($name:ident),* $(,)?) => {
        mod mysql97 {
            $(#[test] fn $name() { super::$name($crate::support::mysql::Kind::Mysql); })*
        }
        mod mariadb10 {
            $(#[test] fn $name() { super::$name($crate::support::mysql::Kind::Mariadb10); })*
        }
        mod mariadb11 {
            $(#[test] fn $name() { super::$name($crate::support::mysql::Kind::Mariadb11); })*
        }
    };
}

/// A variable that `tests/run` sets.
pub(crate) fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: start the tests with tests/run"))
}

/// Whether the long forms of the tests are wanted.
pub(crate) fn long() -> bool {
    std::env::var("OUTBOX_TEST_LONG").is_ok_and(|value| value == "1")
}

/// `short`, or `long` in a run of the long forms.
pub(crate) fn size(short: u64, long_form: u64) -> u64 {
    if long() { long_form } else { short }
}

/// A time limit of the given seconds, with room for a busy machine.
pub(crate) fn within(seconds: u64) -> Duration {
    static SLACK: OnceLock<f64> = OnceLock::new();
    let slack = SLACK.get_or_init(|| std::env::var("OUTBOX_TEST_SLACK").ok().map_or(3.0, |text| text.parse().unwrap()));
    Duration::from_secs(seconds).mul_f64(*slack)
}

/// Waits until `probe` finds what it looks for; panics after the time limit.
#[track_caller]
pub(crate) fn eventually<T>(what: &str, seconds: u64, mut probe: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    let limit = within(seconds);
    loop {
        if let Some(found) = probe() {
            return found;
        }
        assert!(begin.elapsed() < limit, "not within {limit:?}: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Watches for the whole time that a condition holds.
#[track_caller]
pub(crate) fn holds(what: &str, duration: Duration, mut condition: impl FnMut() -> bool) {
    let begin = Instant::now();
    while begin.elapsed() < duration {
        assert!(condition(), "no longer true after {:?}: {what}", begin.elapsed());
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// A port, and the one behind it, on which nothing listens; below the range that outgoing connections take theirs from.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    const FIRST: u16 = 25_000;
    const COUNT: u16 = 7_000;
    let start = u16::try_from(std::process::id() % 3_500).unwrap() * 2;
    loop {
        let port = FIRST + (start + NEXT.fetch_add(2, Ordering::Relaxed)) % COUNT;
        if [port, port + 1].iter().all(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()) {
            return port;
        }
    }
}

/// A new folder for a private server, which `tests/run` removes.
pub(crate) fn private_dir(what: &str) -> PathBuf {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let dir = PathBuf::from(variable("OUTBOX_TEST_DIR")).join(format!("{what}-{}-{number}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

/// A script of `tests/services`.
pub(crate) fn script(name: &str) -> Command {
    Command::new(PathBuf::from(variable("OUTBOX_TEST_SERVICES")).join(name))
}

/// Runs a command and panics with its output if it fails.
#[track_caller]
pub(crate) fn must_run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?} failed:\n{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Sends a signal, by its name without SIG, to a process. Whether there was one.
pub(crate) fn signal(pid: u32, name: &str) -> bool {
    let command = format!("kill -{name} {pid} 2> /dev/null");
    Command::new("sh").arg("-c").arg(command).status().is_ok_and(|status| status.success())
}

/// A name made of the present test's, short and unlike any other: for a database, an instance, a topic.
pub(crate) fn unique_tag() -> String {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let thread = std::thread::current();
    let path = thread.name().unwrap_or("test");
    let name: String = path.rsplit("::").next().unwrap().chars().take(24).collect();
    let versions = [("pg15", "_15"), ("mysql97", "_my"), ("mariadb10", "_m10"), ("mariadb11", "_m11")];
    let version = versions.iter().find(|(module, _)| path.contains(module)).map_or("_18", |(_, suffix)| suffix);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{name}{version}_{:x}_{number}", std::process::id())
}

/// Text as an SQL literal.
pub(crate) fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}
