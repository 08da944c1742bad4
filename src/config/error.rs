//! Why a configuration is refused: every finding, not the first only.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

/// One thing that is wrong with the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// File and line, where the finding has one.
    pub place: Option<String>,
    /// The option's full name, such as `delivery.window-bytes`, where the finding is about one.
    pub option: Option<String>,
    /// What is wrong.
    pub problem: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for prefix in [&self.place, &self.option].into_iter().flatten() {
            write!(f, "{prefix}: ")?;
        }
        f.write_str(&self.problem)
    }
}

/// The findings of all steps, in the order in which they were made.
#[derive(Debug, Default)]
pub(super) struct Findings(pub(super) Vec<Finding>);

impl Findings {
    /// Adds a finding about an option's value.
    pub(super) fn add(&mut self, option: &str, problem: impl Into<String>, hint: impl Into<String>) {
        self.0.push(Finding {
            place: None,
            option: Some(option.to_owned()),
            problem: problem.into(),
            hint: Some(hint.into()),
        });
    }
}

/// The configuration cannot be used. The process ends with exit code 2.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration file \"{}\"", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// What it says cannot be used.
    #[error("the configuration has {}", count(findings.len()))]
    Invalid {
        /// All that is wrong with it.
        findings: Vec<Finding>,
    },
    /// The address of the HTTP listener cannot be used.
    #[error("cannot listen on {address} (option \"http.listen\")")]
    Listen {
        /// The configured address.
        address: SocketAddr,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

fn count(findings: usize) -> String {
    if findings == 1 { "1 problem".to_owned() } else { format!("{findings} problems") }
}

impl ConfigError {
    /// What is wrong and what to do about it, as pairs: one per finding.
    #[must_use]
    pub fn lines(&self) -> Vec<(String, Option<String>)> {
        match self {
            Self::Read { source, .. } => {
                let hint = match source.kind() {
                    std::io::ErrorKind::InvalidData => "the file has to be UTF-8 text",
                    std::io::ErrorKind::NotFound => "check the path given by --config or OUTBOXD_CONFIG",
                    _ => "check the file's owner and mode",
                };
                vec![(format!("{self}: {source}"), Some(hint.to_owned()))]
            }
            Self::Invalid { findings } => {
                findings.iter().map(|finding| (finding.to_string(), finding.hint.clone())).collect()
            }
            Self::Listen { source, .. } => {
                let hint = match source.kind() {
                    std::io::ErrorKind::AddrInUse => {
                        "another process uses this port: stop it, or choose another with --http-listen"
                    }
                    std::io::ErrorKind::PermissionDenied => "choose a port above 1023 with --http-listen",
                    _ => "choose an address of this machine with --http-listen; an empty one switches the listener off",
                };
                vec![(format!("{self}: {source}"), Some(hint.to_owned()))]
            }
        }
    }
}
