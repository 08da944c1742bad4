//! Commands of the program that a person waits for.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use super::{Config, variable};

/// A configuration file, and commands that are given it.
pub(crate) struct Tool {
    dir: TempDir,
}

/// What a command said.
#[derive(Clone, Debug)]
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Tool {
    pub(crate) fn new(config: &Config) -> Self {
        let tool = Self { dir: tempfile::tempdir().unwrap() };
        std::fs::write(tool.file(), config.text()).unwrap();
        tool
    }

    /// The configuration file.
    pub(crate) fn file(&self) -> PathBuf {
        self.dir.path().join("outboxd.toml")
    }

    /// Runs `outboxd WORDS… --config FILE`.
    #[track_caller]
    pub(crate) fn run(&self, words: &[&str]) -> Said {
        let file = self.file();
        let mut all = words.to_vec();
        all.extend(["--config", file.to_str().unwrap()]);
        type_in(&all)
    }

    /// Runs a command that must end with this code; returns its standard output.
    #[track_caller]
    pub(crate) fn ends(&self, words: &[&str], code: i32) -> Said {
        let said = self.run(words);
        assert_eq!(said.code, Some(code), "{words:?}:\n{}{}", said.stdout, said.stderr);
        assert!(!said.stderr.contains("panicked"), "{}", said.stderr);
        said
    }
}

/// Runs `outboxd` with these words, as a shell would.
#[track_caller]
pub(crate) fn type_in(words: &[&str]) -> Said {
    let mut command = Command::new(env!("CARGO_BIN_EXE_outboxd"));
    command.args(words).stdin(Stdio::null());
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("OUTBOX") || name == "RUST_LOG" {
            command.env_remove(name);
        }
    }
    let output = command.output().unwrap();
    Said {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

impl Said {
    /// The hint of the finding with these words in it.
    #[track_caller]
    pub(crate) fn hint(&self, kind: &str, words: &str) -> String {
        let mut lines = self.stderr.lines();
        lines.find(|line| line.starts_with(kind) && line.contains(words)).unwrap_or_else(|| {
            panic!("no {kind} with {words:?}:\n{}{}", self.stdout, self.stderr);
        });
        let hint = lines.next().and_then(|line| line.strip_prefix("hint: "));
        hint.unwrap_or_else(|| panic!("no hint behind {words:?}:\n{}", self.stderr)).to_owned()
    }

    /// Whether there is a finding with these words.
    pub(crate) fn finds(&self, words: &str) -> bool {
        self.stderr.lines().any(|line| line.contains(words))
    }
}

/// Statements of a line as psql sends them: one by one, without what follows `--`.
pub(crate) fn statements(line: &str) -> Vec<String> {
    let sql = line.split(" -- ").next().unwrap();
    sql.split(';').map(str::trim).filter(|sql| !sql.is_empty()).map(str::to_owned).collect()
}

/// Runs a command line of Kafka's tools as their scripts do.
#[track_caller]
pub(crate) fn kafka_tool(line: &str) {
    let mut words = line.split_whitespace();
    let class = match words.next().unwrap() {
        "kafka-topics" => "org.apache.kafka.tools.TopicCommand",
        "kafka-configs" => "org.apache.kafka.tools.ConfigCommand",
        other => panic!("unknown tool {other}: {line}"),
    };
    let jars = format!("{}/*", variable("OUTBOX_TEST_KAFKA_JARS"));
    super::must_run(Command::new("java").args(["-Xmx128m", "-cp", &jars, class]).args(words));
}
