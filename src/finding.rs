//! What a look at a server finds: one problem or surprise, and what mends it.

use std::fmt;

/// How grave a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The relay cannot work, or must not.
    Error,
    /// The relay works, and something may surprise later.
    Warning,
}

/// One thing that a person should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How grave it is.
    pub severity: Severity,
    /// What is wrong, one line.
    pub message: String,
    /// The statement or command that mends it, or what to do, one line. Empty: nothing has to be done.
    pub hint: String,
}

impl Finding {
    /// Something that keeps the relay from working.
    #[must_use]
    pub fn error(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { severity: Severity::Error, message: message.into(), hint: hint.into() }
    }

    /// Something that may surprise later.
    #[must_use]
    pub fn warning(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, message: message.into(), hint: hint.into() }
    }

    /// Findings of texts that have a line for each problem and a line for each remedy.
    pub fn errors(message: &str, hint: &str) -> Vec<Self> {
        let mut hints = hint.lines();
        message.lines().map(|line| Self::error(line, hints.next().unwrap_or_default())).collect()
    }

    /// Whether it keeps the relay from working.
    #[must_use]
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}

/// Two lines: what, and what to do about it.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        writeln!(f, "{word}: {}", self.message)?;
        if self.hint.is_empty() { Ok(()) } else { writeln!(f, "hint: {}", self.hint) }
    }
}

/// What a look at a server brought: what is there, line by line, and what is wrong with it.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// What is there.
    pub facts: Vec<String>,
    /// What is wrong with it.
    pub findings: Vec<Finding>,
}

impl Report {
    /// Notes what is there.
    pub fn fact(&mut self, line: impl Into<String>) {
        self.facts.push(line.into());
    }

    /// Adds a finding.
    pub fn add(&mut self, finding: Finding) {
        // two ways to the same finding are one
        if !self.findings.iter().any(|known| known.message == finding.message) {
            self.findings.push(finding);
        }
    }

    /// Adds something that keeps the relay from working.
    pub fn error(&mut self, message: impl Into<String>, hint: impl Into<String>) {
        self.add(Finding::error(message, hint));
    }

    /// Adds something that may surprise later.
    pub fn warning(&mut self, message: impl Into<String>, hint: impl Into<String>) {
        self.add(Finding::warning(message, hint));
    }

    /// Takes over everything of another one.
    pub fn extend(&mut self, other: Self) {
        self.facts.extend(other.facts);
        other.findings.into_iter().for_each(|finding| self.add(finding));
    }
}

/// A number of bytes for a person: `512 B`, `1.5 MiB`.
#[must_use]
pub fn bytes(count: u64) -> String {
    if count < 1024 {
        return format!("{count} B");
    }
    let mut unit = "KiB";
    let mut tenths = u128::from(count) * 10 / 1024;
    for next in ["MiB", "GiB", "TiB"] {
        if tenths < 10_240 {
            break;
        }
        unit = next;
        tenths /= 1024;
    }
    if tenths < 1000 { format!("{}.{} {unit}", tenths / 10, tenths % 10) } else { format!("{} {unit}", tenths / 10) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_readable() {
        for (count, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            (200 << 10, "200 KiB"),
            (16 << 20, "16.0 MiB"),
            (3 << 40, "3.0 TiB"),
            (5000 << 40, "5000 TiB"),
        ] {
            assert_eq!(bytes(count), text);
        }
    }

    #[test]
    fn a_finding_is_said_once() {
        let mut report = Report::default();
        report.error("a", "b");
        report.error("a", "c");
        report.warning("d", "");
        let text: String = report.findings.iter().map(ToString::to_string).collect();
        assert_eq!(text, "error: a\nhint: b\nwarning: d\n");
    }
}
