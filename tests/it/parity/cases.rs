//! What is put through both: tables, rows, connectors.

use std::collections::BTreeMap;
use std::path::PathBuf;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::support::quote;

/// The cases of PostgreSQL.
pub(super) const FILE: &str = "cases.json";

/// A file of cases.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Cases {
    /// Where the relay differs on purpose: a key and the words of the README's table.
    pub(super) differences: BTreeMap<String, String>,
    tables: BTreeMap<String, Table>,
    rows: BTreeMap<String, Vec<Row>>,
    pub(super) cases: Vec<Case>,
    pub(super) stops: Vec<Stop>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    sql: String,
    id: IdKind,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum IdKind {
    Uuid,
    Number,
    /// Sixteen bytes, which the header has as base64, or as digits.
    Binary,
}

/// A row, by its columns or by statements of its own.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Row {
    pub(super) name: String,
    /// SQL expressions.
    #[serde(default)]
    columns: BTreeMap<String, String>,
    /// Statements in a transaction; `{id}` stands for the row's id.
    #[serde(default)]
    sql: Vec<String>,
}

/// A connector and the rows that it publishes.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Case {
    pub(super) name: String,
    table: String,
    rows: Vec<String>,
    /// Rows that are left out: they would stop Debezium.
    #[serde(default)]
    leave: Vec<String>,
    /// Properties beside the common ones; `{prefix}` stands for the beginning of every topic's name.
    pub(super) connector: Map<String, Value>,
    /// The header that tells the row.
    #[serde(default = "id_header")]
    pub(super) id_header: String,
    /// Where the relay differs, by row.
    #[serde(default)]
    pub(super) ours: BTreeMap<String, Difference>,
}

impl Case {
    /// The name of its table.
    pub(super) fn table(&self) -> &str {
        &self.table
    }
}

fn id_header() -> String {
    "id".to_owned()
}

/// How our records of a row differ from Debezium's.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Difference {
    /// A key of [`Cases::differences`].
    pub(super) why: String,
    /// Other values: of `topic`, `key`, `value`, or `header NAME`; as in the recorded file.
    #[serde(default)]
    pub(super) change: BTreeMap<String, Value>,
    /// There is no record.
    #[serde(default)]
    pub(super) dropped: bool,
}

/// One row that stops Debezium.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Stop {
    pub(super) name: String,
    table: String,
    pub(super) connector: Map<String, Value>,
    columns: BTreeMap<String, String>,
    /// A statement in a transaction after it.
    #[serde(default)]
    then: Option<String>,
    pub(super) ours: Outcome,
}

/// What the relay makes of a row that stops Debezium.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Outcome {
    /// It is refused before anything is read: words that are then said.
    #[serde(default)]
    pub(super) refused: Option<String>,
    /// It stops at the row: words that are then said.
    #[serde(default)]
    pub(super) stops: Option<String>,
    /// It publishes the row: parts of the record, as in [`Difference::change`].
    #[serde(default)]
    pub(super) record: Option<BTreeMap<String, Value>>,
    /// A key of [`Cases::differences`], if it publishes the row.
    #[serde(default)]
    pub(super) why: Option<String>,
}

/// A row ready to be inserted.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) name: String,
    /// As the header shows it.
    pub(super) id: String,
    /// Those of its transactions.
    pub(super) statements: Vec<String>,
}

impl Step {
    /// All statements in one text.
    pub(super) fn sql(&self) -> String {
        self.statements.join("; ")
    }
}

pub(super) fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/parity")
}

impl Cases {
    /// Those of a file in the folder.
    pub(super) fn load(file: &str) -> Self {
        let text = std::fs::read_to_string(folder().join(file)).unwrap();
        let cases: Self = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{file}: {error}"));
        let reasons = cases.cases.iter().flat_map(|case| case.ours.values()).map(|difference| &difference.why);
        for why in reasons.chain(cases.stops.iter().filter_map(|stop| stop.ours.why.as_ref())) {
            assert!(cases.differences.contains_key(why), "{file}: no difference \"{why}\" is listed");
        }
        cases
    }

    /// The statements that make a case's table.
    pub(super) fn table(&self, case: &Case) -> &str {
        &self.tables[&case.table].sql
    }

    /// The statements that make the table of a row that stops Debezium.
    pub(super) fn table_of(&self, stop: &Stop) -> &str {
        &self.tables[&stop.table].sql
    }

    /// The rows of a case in their order.
    pub(super) fn steps(&self, case: &Case) -> Vec<Step> {
        let rows: Vec<&Row> = case.rows.iter().flat_map(|set| &self.rows[set]).collect();
        for name in case.leave.iter().chain(case.ours.keys()) {
            assert!(rows.iter().any(|row| row.name == *name), "case \"{}\" has no row \"{name}\"", case.name);
        }
        let rows = rows.into_iter().filter(|row| !case.leave.contains(&row.name));
        rows.enumerate().map(|(index, row)| self.step(&case.table, row, index + 1)).collect()
    }

    /// The row that stops Debezium, and what follows it.
    pub(super) fn step_of(&self, stop: &Stop) -> Step {
        let row = Row { name: stop.name.clone(), columns: stop.columns.clone(), sql: Vec::new() };
        let mut step = self.step(&stop.table, &row, 1);
        if let Some(then) = &stop.then {
            step.statements.extend(["BEGIN".to_owned(), then.clone(), "COMMIT".to_owned()]);
        }
        step
    }

    fn step(&self, table: &str, row: &Row, number: usize) -> Step {
        let (id, literal) = match self.tables[table].id {
            IdKind::Uuid => {
                let id = format!("00000000-0000-0000-0000-{number:012}");
                (id.clone(), quote(&id))
            }
            IdKind::Number => (number.to_string(), number.to_string()),
            IdKind::Binary => {
                let id = u128::try_from(number).unwrap();
                (STANDARD.encode(id.to_be_bytes()), format!("x'{id:032x}'"))
            }
        };
        let mut statements = vec!["BEGIN".to_owned()];
        if row.sql.is_empty() {
            let number = matches!(self.tables[table].id, IdKind::Number);
            let mut columns = BTreeMap::from([
                ("id", literal.as_str()),
                ("aggregatetype", "'order'"),
                ("aggregateid", if number { "42" } else { "'agg-1'" }),
                ("type", "'OrderPlaced'"),
            ]);
            columns.extend(row.columns.iter().map(|(name, value)| (name.as_str(), value.as_str())));
            let (names, values): (Vec<_>, Vec<_>) = columns.into_iter().unzip();
            statements.push(format!("INSERT INTO outbox ({}) VALUES ({})", names.join(", "), values.join(", ")));
        } else {
            statements.extend(row.sql.iter().map(|sql| sql.replace("{id}", &literal)));
        }
        statements.push("COMMIT".to_owned());
        Step { name: row.name.clone(), id, statements }
    }
}

/// The README's list of differences is this one.
#[test]
fn the_readme_names_every_difference() {
    let readme = std::fs::read_to_string(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap();
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let readme = words(&readme);
    for file in [FILE, super::mysql::FILE] {
        let cases = Cases::load(file);
        lists_every_difference(&readme, &cases);
    }
}

fn lists_every_difference(readme: &str, cases: &Cases) {
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    for (key, text) in &cases.differences {
        assert!(readme.contains(&format!("- {}", words(text))), "the README lacks \"{key}\": {text}");
        let is_used = cases.cases.iter().flat_map(|case| case.ours.values()).any(|difference| difference.why == *key);
        let is_used = is_used || cases.stops.iter().any(|stop| stop.ours.why.as_ref() == Some(key));
        assert!(is_used, "no case shows \"{key}\"");
    }
}
