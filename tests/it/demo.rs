//! `outboxd demo`, as a person runs it.

use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::support::{Server, Version, eventually, private_dir, signal, variable};

/// A running demo, with a folder of its own for everything temporary.
struct Demo {
    child: Child,
    temporary: PathBuf,
    output: TempDir,
}

impl Demo {
    fn start(arguments: &[&str]) -> Self {
        let temporary = private_dir("demo");
        std::fs::set_permissions(&temporary, PermissionsExt::from_mode(0o755)).unwrap();
        let output = tempfile::tempdir().unwrap();
        let file = |name: &str| File::create(output.path().join(name)).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_outboxd"));
        command.arg("demo").args(arguments).env("TMPDIR", &temporary).stdin(Stdio::null());
        command.stdout(file("stdout")).stderr(file("stderr"));
        let child = command.spawn().unwrap();
        Self { child, temporary, output }
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.output.path().join(name)).unwrap()
    }

    /// Waits for the end; returns exit code, standard output and standard error.
    #[track_caller]
    fn end(mut self) -> (Option<i32>, String, String) {
        let status = eventually("the demo ends", 60, || self.child.try_wait().unwrap());
        let (stdout, stderr) = (self.read("stdout"), self.read("stderr"));
        let left: Vec<_> = std::fs::read_dir(&self.temporary).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(left.is_empty(), "left behind: {left:?}");
        assert_eq!(processes_of(&self.temporary), [] as [String; 0], "still running");
        (status.code(), stdout, stderr)
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            // asked first, so that it ends its server
            signal(self.child.id(), "TERM");
            let _ = self.child.wait();
        }
    }
}

/// Command lines that name the folder.
fn processes_of(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    let texts = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    texts.filter(|text| text.contains(folder.to_str().unwrap())).collect()
}

#[track_caller]
fn assert_proven(code: Option<i32>, stdout: &str, stderr: &str) {
    let shown = format!("{stdout}\n--- stderr:\n{stderr}");
    assert_eq!(code, Some(0), "{shown}");
    let (table, result) = stdout.split_once("\nResult\n").unwrap_or_else(|| panic!("no result: {shown}"));
    assert_eq!(result.lines().filter(|line| line.starts_with("  yes  ")).count(), 5, "{shown}");
    assert!(result.contains("proven: every committed event arrived") && !result.contains("NO "), "{shown}");
    for words in ["COMMIT", "ROLLBACK", "arrived", "outbox.event.Order", "outbox.event.Customer", "Żurek"] {
        assert!(table.contains(words), "{words} is missing: {shown}");
    }
    assert!(!stdout.contains('\x1b'), "colour although nobody looks: {shown}");
    assert_eq!(stderr, "", "{shown}");
}

/// Proves that the demo on a server of its own ends by itself, with the proof, and leaves nothing behind.
#[test]
fn proves_it_on_a_server_of_its_own() {
    let programs = variable("OUTBOX_TEST_PGBIN_15");
    let (code, stdout, stderr) = Demo::start(&["--seconds", "2", "--postgres-bin", &programs]).end();
    assert_proven(code, &stdout, &stderr);
    assert!(stdout.contains("PostgreSQL  15."), "{stdout}");
}

/// Proves that a given server keeps neither database nor slot.
#[test]
fn leaves_a_given_server_as_it_was() {
    let server = Server::shared(Version::V18);
    let demo = Demo::start(&["--seconds", "2", "--postgres-url", &server.url("postgres")]);
    let name = format!("outboxd_demo_{}", demo.child.id());
    let (code, stdout, stderr) = demo.end();
    assert_proven(code, &stdout, &stderr);
    assert!(stdout.contains(&name), "{stdout}");
    let session = server.session("postgres");
    for (table, column) in [("pg_database", "datname"), ("pg_replication_slots", "slot_name")] {
        let count = session.text(&format!("SELECT count(*) FROM {table} WHERE {column} = '{name}'"));
        assert_eq!(count.as_deref(), Some("0"), "{table}");
    }
}

/// Proves that with --keep it stays until it is asked to end, keeps its verdict then, and leaves nothing behind.
#[test]
fn stays_until_it_is_asked_to_end() {
    let programs = variable("OUTBOX_TEST_PGBIN_15");
    let demo = Demo::start(&["--seconds", "1", "--keep", "--postgres-bin", &programs]);
    eventually("it tells how to connect", 60, || demo.read("stdout").contains("  kcat -b 127.0.0.1:").then_some(()));
    assert!(!processes_of(&demo.temporary).is_empty(), "the server runs");
    signal(demo.child.id(), "INT");
    let (code, stdout, stderr) = demo.end();
    assert_eq!((code, stderr.as_str()), (Some(0), ""), "{stdout}");
}

/// Proves that an interrupted demo proves nothing and leaves nothing behind.
#[test]
fn an_interrupted_demo_proves_nothing() {
    let programs = variable("OUTBOX_TEST_PGBIN_15");
    let demo = Demo::start(&["--seconds", "60", "--postgres-bin", &programs]);
    eventually("it sells", 60, || demo.read("stdout").contains("COMMIT").then_some(()));
    signal(demo.child.id(), "INT");
    let (code, stdout, _) = demo.end();
    assert_eq!(code, Some(1), "{stdout}");
    assert!(stdout.contains("interrupted before anything was proven"), "{stdout}");
}

/// Proves that the server of a demo that is killed ends, and its folder goes.
#[test]
fn a_killed_demo_leaves_nothing_behind() {
    let programs = variable("OUTBOX_TEST_PGBIN_15");
    let mut demo = Demo::start(&["--seconds", "60", "--postgres-bin", &programs]);
    eventually("it sells", 60, || demo.read("stdout").contains("COMMIT").then_some(()));
    assert!(!processes_of(&demo.temporary).is_empty(), "the server runs");
    demo.child.kill().unwrap();
    demo.child.wait().unwrap();
    eventually("the server has ended", 20, || processes_of(&demo.temporary).is_empty().then_some(()));
    eventually("the folder is gone", 10, || std::fs::read_dir(&demo.temporary).unwrap().next().is_none().then_some(()));
}

/// Proves that what a demo that was killed leaves in a given server is told by the next one, with what removes it.
#[test]
fn leftovers_in_a_given_server_are_told() {
    let server = Server::shared(Version::V15);
    let url = server.url("postgres");
    let mut demo = Demo::start(&["--seconds", "60", "--postgres-url", &url]);
    eventually("it sells", 60, || demo.read("stdout").contains("COMMIT").then_some(()));
    demo.child.kill().unwrap();
    demo.child.wait().unwrap();
    let name = format!("outboxd_demo_{}", demo.child.id());
    let session = server.session("postgres");
    let is_active = format!("SELECT count(*) FROM pg_replication_slots WHERE slot_name = '{name}' AND active");
    eventually("the server has noticed", 20, || (session.text(&is_active).as_deref() == Some("0")).then_some(()));
    let (_, stdout, _) = Demo::start(&["--seconds", "1", "--postgres-url", &url]).end();
    let (_, told) = stdout.split_once(&format!("database {name} behind")).unwrap_or_else(|| panic!("{stdout}"));
    let statements: Vec<_> = told.lines().skip(1).take(2).collect();
    for statement in statements {
        session.run(statement);
    }
    assert_eq!(
        session.text(&format!("SELECT count(*) FROM pg_database WHERE datname = '{name}'")).as_deref(),
        Some("0")
    );
}

/// Proves that a server that cannot be used is refused in words for a person.
#[test]
fn says_what_it_needs() {
    let (code, _, stderr) = Demo::start(&["--postgres-bin", "/nowhere"]).end();
    assert_eq!(code, Some(1), "{stderr}");
    let expected = "error: \"/nowhere\" cannot be used: it has no initdb\n\
                    hint: give --postgres-bin the folder of initdb, pg_ctl and postgres\n";
    assert_eq!(stderr, expected);
}
