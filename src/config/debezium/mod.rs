//! Runs from the configuration of a Debezium connector, unchanged.
//!
//! ```text
//! connector.json ──input──▶ properties ──list, rules──▶ what became of each ──▶ table, findings, warnings
//! worker.properties ─────────────────────────▲    └───▶ document ──▶ TOML ──▶ loaded as any other
//! ```
//!
//! The result is a text in TOML, so that `run` and `config convert` go the same way. A password that stands in the
//! connector becomes the placeholder of a variable in that text, and never part of it.

mod binlog;
mod document;
mod formats;
pub(super) mod input;
mod kafka;
mod kind;
mod list;
mod report;
mod router;
mod security;
mod source;
mod tables;
#[cfg(test)]
mod tests;
mod translate;

use std::collections::BTreeMap;
use std::path::Path;

use super::error::Finding;
use super::secret::Secret;
use input::Input;
pub use report::table;
pub use translate::Fate;
use translate::Translation;

/// What flags say beside the connector; they win over it.
#[derive(Clone, Debug, Default)]
pub struct Given {
    /// `--source-url`
    pub source_url: bool,
    /// `--table`
    pub tables: Vec<String>,
    /// `--bootstrap-servers`
    pub bootstrap_servers: Option<String>,
    /// `--stdout`
    pub stdout: bool,
    /// `--key-format`
    pub key_format: Option<String>,
    /// `--value-format`
    pub value_format: Option<String>,
    /// `--allow-unsupported`
    pub allow_unsupported: bool,
}

/// A property and what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The file that it stands in.
    pub file: String,
    /// Its name as it is written there.
    pub property: String,
    /// What became of it.
    pub fate: Fate,
}

/// What a connector amounts to.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    /// What became of each property, in the order of the file; the worker's that count come last.
    pub rows: Vec<Row>,
    /// The same configuration as TOML, with comments where something is left out. Worth something only without findings.
    pub toml: String,
    /// What is refused.
    pub(super) findings: Vec<Finding>,
    /// Options that were left out because of a finding.
    pub(super) left_out: Vec<String>,
    /// The properties that an option comes from.
    origins: BTreeMap<String, Vec<String>>,
    /// The passwords that stand in the connector, by the variable that takes their place.
    secrets: BTreeMap<String, Secret>,
    file: String,
    /// Where Connect keeps the connector's offset.
    pub(super) connector: Connector,
}

/// What a connector is called, and where Kafka Connect keeps its offset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Connector {
    /// `name`
    pub name: String,
    /// `topic.prefix`
    pub prefix: String,
    /// The worker's `offset.storage.topic`, if its file is there.
    pub offsets_topic: Option<String>,
}

impl Reading {
    /// What has no effect or a different one, a line for each property.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let warning = |row: &Row| match &row.fate {
            Fate::Warned(words) => Some(format!("{}: has no effect: {words}", row.property)),
            Fate::Differs(_, words) => Some(format!("{}: {words}", row.property)),
            _ => None,
        };
        self.rows.iter().filter_map(warning).collect()
    }

    /// The value of a variable of ours.
    pub(super) fn secret(&self, variable: &str) -> Option<String> {
        self.secrets.get(variable).map(|secret| secret.expose().to_owned())
    }

    /// Lets a finding about an option name the properties that it comes from.
    pub(super) fn name(&self, mut finding: Finding) -> Finding {
        let option = finding.option.as_ref();
        if let Some(origins) = option.and_then(|option| self.origins.get(option)) {
            finding.place = Some(self.file.clone());
            finding.option = Some(origins.join(", "));
        }
        finding
    }
}

/// Reads a connector, and a worker's file if there is one.
pub(super) fn read(
    (path, text): (&Path, &str),
    worker: Option<(&Path, &str)>,
    given: Given,
    variable: &impl Fn(&str) -> Option<String>,
) -> Reading {
    let file = path.display().to_string();
    let mut findings = Vec::new();
    let mut keep = |read: Result<Input, Finding>| read.map_err(|finding| findings.push(finding)).ok();
    let connector = keep(input::connector(text, &file, variable));
    let worker = worker.map(|(path, text)| keep(input::worker(text, &path.display().to_string(), variable)));
    let (Some(connector), Some(worker)) = (connector, worker.map_or(Some(None), |worker| worker.map(Some))) else {
        return Reading { findings, file, ..Reading::default() };
    };
    let text = |name: &str| connector.value(name).unwrap_or_default().to_owned();
    let names = Connector {
        name: text("name"),
        prefix: connector.value("topic.prefix").map_or_else(|| text("database.server.name"), str::to_owned),
        offsets_topic: worker.as_ref().and_then(|worker| worker.value("offset.storage.topic")).map(str::to_owned),
    };
    let mut translation = Translation::new(&connector, worker.as_ref(), given);
    translation.run();
    let Translation { document, rows, missing, left_out, origins, secrets, .. } = translation;
    findings.extend(rows.iter().filter_map(refusal));
    findings.extend(missing);
    let toml = format!("{}{}", report::head(&file, &rows), document.text());
    Reading { rows, toml, findings, left_out, origins, secrets, file, connector: names }
}

fn refusal(row: &Row) -> Option<Finding> {
    let Fate::Refused { problem, hint } = &row.fate else { return None };
    Some(Finding {
        place: Some(row.file.clone()),
        option: Some(row.property.clone()),
        problem: problem.clone(),
        hint: Some(hint.clone()),
    })
}
