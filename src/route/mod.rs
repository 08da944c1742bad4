//! Routing: one row in, one record out. A plain function of the row and the configuration, and of the clock where the
//! configuration asks for it.
//!
//! ```text
//!                    plan: which cell is what, found once a table
//!                      │
//! row ──▶ topic        │   regex and replacement, remembered for each routing value
//!     ──▶ key, value ──┤   cell ─▶ typed value, as Kafka Connect has it ─▶ text, JSON or bytes
//!     ──▶ headers ─────┤        (a JSON payload is expanded, fields are put around it)
//!     ──▶ partition, time
//! ```

mod array;
mod body;
mod context;
mod error;
mod expand;
mod json;
mod number;
mod pattern;
mod plan;
mod properties;
mod replacement;
#[cfg(test)]
mod tests;
mod text;
mod time;
mod topic;
mod typed;
#[cfg(test)]
mod vectors;

use std::borrow::Cow;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tracing::warn;

pub use self::error::RouteError;
pub use self::plan::ColumnProblem;
pub use self::topic::{RuleProblem, fixed_parts};

use self::body::{Body, Bytes};
use self::plan::{Plan, Recipe, Slot, Unfit};
use self::topic::Topics;
use self::typed::{Typed, ValueError};
use crate::change::{ColumnType, Relation, RowView, Value};
use crate::config::{Config, HeaderFormat, RecordTime};
use crate::record::{Header, Record};

/// Turns rows into records.
#[derive(Debug)]
pub struct Router {
    recipe: Recipe,
    topics: Topics,
    /// One per table that sends rows; a changed table gets a new serial and replaces nothing: few ever exist.
    plans: Vec<Plan>,
    /// Headers that stand before all others in every record.
    context: Vec<(String, Vec<u8>)>,
    time_fell_back: bool,
    warned: Option<Instant>,
}

/// More plans than this are those of tables that have changed meanwhile.
const MAX_PLANS: usize = 256;

/// Shortest time between two warnings about payloads.
const WARNING_PAUSE: Duration = Duration::from_secs(60);

/// What W3C's trace context is made of; these are header names too.
const TRACE_CONTEXT: [&str; 2] = ["traceparent", "tracestate"];

impl Router {
    /// Takes what it needs of a validated configuration.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Self::with_run_id(config, &context::new_run_id())
    }

    /// The same with a known id of the run.
    #[must_use]
    fn with_run_id(config: &Config, run_id: &str) -> Self {
        Self {
            recipe: Recipe::new(config),
            topics: Topics::new(&config.record),
            plans: Vec::new(),
            context: context::headers(config, run_id),
            time_fell_back: false,
            warned: None,
        }
    }

    /// Makes the record of a row that was committed at `commit_ts_us` (microseconds since 1970).
    ///
    /// # Errors
    /// [`RouteError`] if the row can never become a record.
    pub fn route<'a>(&'a mut self, row: RowView<'a>, commit_ts_us: i64) -> Result<Record<'a>, RouteError> {
        let index = self.plan(row)?;
        let route_by = self.plans.get(index).map_or(0, |plan| plan.route_by);
        let topic_value = match row.value(route_by) {
            Some(Value::Text(text) | Value::Binary(text)) => text,
            Some(Value::Null) | None => return Err(no_topic(&self.recipe, row)),
        };
        let learned = self.topics.learn(topic_value);
        learned.map_err(|problem| bad_value(&self.recipe, row, route_by, &problem))?;
        let Some(plan) = self.plans.get(index) else { return Err(no_topic(&self.recipe, row)) };
        let recipe = &self.recipe;
        let default_ms = match recipe.time {
            RecordTime::Commit => commit_ts_us.div_euclid(1000).max(0),
            RecordTime::Processing => now_ms(),
        };
        let time = plan.timestamp.map(|slot| row.value(slot.index).and_then(|value| record_time(slot.kind, value)));
        let key = recipe.key.bytes(fitting(recipe, row, plan.key, plan.key_problem.as_deref())?);
        let key = key.map_err(|error| bad_value(recipe, row, plan.key.index, &error.to_string()))?;
        let payload = value(recipe, plan, row)?;
        if payload.is_no_document && self.warned.is_none_or(|last| last.elapsed() >= WARNING_PAUSE) {
            self.warned = Some(Instant::now());
            let (table, id) = (table_name(row), id_text(recipe, row));
            warn!(
                table,
                id, "a payload cannot be expanded as JSON and stays a text; more of them are not told for a minute"
            );
        }
        let headers = headers(&self.context, recipe, plan, row)?;
        self.time_fell_back = matches!(time, Some(None));
        Ok(Record {
            topic: self.topics.get(topic_value),
            partition: partition(recipe, plan, row)?,
            key,
            payload: payload.bytes,
            headers,
            timestamp_ms: time.flatten().unwrap_or(default_ms),
        })
    }

    /// Whether the last record got another time because its time column was empty or out of range.
    #[must_use]
    pub fn time_fell_back(&self) -> bool {
        self.time_fell_back
    }

    /// Index of the plan for a row's table, made when its first row comes.
    fn plan(&mut self, row: RowView<'_>) -> Result<usize, RouteError> {
        if let Some(index) = self.plans.iter().position(|plan| plan.serial == row.relation.serial) {
            return Ok(index);
        }
        let plan = Plan::new(&self.recipe, row.relation).map_err(|unfit| match unfit {
            Unfit::Missing(column) => RouteError::MissingColumn { table: table_name(row), column },
            Unfit::Column(ColumnProblem { column, problem, .. }) => {
                RouteError::Value { table: table_name(row), column, id: id_text(&self.recipe, row), problem }
            }
        })?;
        if self.plans.len() >= MAX_PLANS {
            self.plans.clear();
        }
        self.plans.push(plan);
        Ok(self.plans.len() - 1)
    }
}

/// Looks at tables before their first row comes.
#[derive(Debug)]
pub struct TableCheck(Recipe);

impl TableCheck {
    /// Takes what it needs of a validated configuration.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Self(Recipe::new(config))
    }

    /// The column whose type keeps the rows of a table from becoming records; `None` if there is none, or a column is
    /// missing.
    #[must_use]
    pub fn problem(&self, relation: &Relation) -> Option<ColumnProblem> {
        let unfit = match Plan::new(&self.0, relation) {
            Ok(plan) => plan.format_problem(relation)?,
            Err(unfit) => unfit,
        };
        match unfit {
            Unfit::Missing(_) => None,
            Unfit::Column(problem) => Some(problem),
        }
    }
}

fn typed<'a>(recipe: &Recipe, row: RowView<'a>, slot: Slot) -> Result<Typed<'a>, RouteError> {
    let Some(value) = row.value(slot.index) else {
        return Err(bad_value(recipe, row, slot.index, "is not in the row"));
    };
    let typed = typed::decode(slot.kind, recipe.shape, value);
    typed.map_err(|error| bad_value(recipe, row, slot.index, &error.to_string()))
}

/// The value of a column that has a problem with whatever is not NULL.
fn fitting<'a>(recipe: &Recipe, row: RowView<'a>, slot: Slot, problem: Option<&str>) -> Result<Typed<'a>, RouteError> {
    match (typed(recipe, row, slot)?, problem) {
        (Typed::Null, _) => Ok(Typed::Null),
        (_, Some(problem)) => Err(bad_value(recipe, row, slot.index, problem)),
        (value, None) => Ok(value),
    }
}

fn value<'a>(recipe: &Recipe, plan: &Plan, row: RowView<'a>) -> Result<Body<'a>, RouteError> {
    let payload = fitting(recipe, row, plan.payload, plan.payload_problem.as_deref())?;
    if recipe.value.is_tombstone(&payload) {
        return Ok(Body { bytes: None, is_no_document: false });
    }
    let bad = |index: usize, error: ValueError| bad_value(recipe, row, index, &error.to_string());
    let Some(envelope) = &plan.envelope else {
        return recipe.value.alone(payload).map_err(|error| bad(plan.payload.index, error));
    };
    let mut fields = Vec::with_capacity(envelope.len());
    for (name, slot) in envelope {
        fields.push((name.as_str(), typed(recipe, row, *slot)?));
    }
    recipe.value.enveloped(&payload, &fields).map_err(|(field, error)| {
        let slot = field.and_then(|field| envelope.get(field)).map_or(plan.payload, |(_, slot)| *slot);
        bad(slot.index, error)
    })
}

fn headers<'a>(
    context: &'a [(String, Vec<u8>)],
    recipe: &Recipe,
    plan: &'a Plan,
    row: RowView<'a>,
) -> Result<Vec<Header<'a>>, RouteError> {
    let mut headers = Vec::with_capacity(context.len() + plan.headers.len() + 1);
    let known = context.iter().map(|(key, value)| Header { key, value: Some(Cow::Borrowed(value)) });
    headers.extend(known);
    if let Some(index) = plan.tracing {
        tracing_headers(&mut headers, recipe, row, index)?;
    }
    headers.push(Header { key: "id", value: header(recipe, row, plan.id)? });
    for (key, slot) in &plan.headers {
        headers.push(Header { key, value: header(recipe, row, *slot)? });
    }
    Ok(headers)
}

fn header<'a>(recipe: &Recipe, row: RowView<'a>, slot: Slot) -> Result<Bytes<'a>, RouteError> {
    header_bytes(recipe.header_format, typed(recipe, row, slot)?)
        .map_err(|error| bad_value(recipe, row, slot.index, &error.to_string()))
}

fn header_bytes(format: HeaderFormat, value: Typed<'_>) -> Result<Bytes<'_>, ValueError> {
    match format {
        HeaderFormat::Simple => Ok(text::header(value)),
        HeaderFormat::Json => {
            let mut out = Vec::new();
            json::value(&mut out, &value)?;
            Ok(Some(Cow::Owned(out)))
        }
    }
}

/// The headers from a tracing context that was kept in a column; none where it is NULL or holds none.
fn tracing_headers(
    headers: &mut Vec<Header<'_>>,
    recipe: &Recipe,
    row: RowView<'_>,
    index: usize,
) -> Result<(), RouteError> {
    let Some(Value::Text(context)) = row.value(index) else { return Ok(()) };
    let context = std::str::from_utf8(context).map_err(|_| bad_value(recipe, row, index, "is not UTF-8"))?;
    for key in TRACE_CONTEXT {
        let Some(value) = properties::get(context, key).filter(|value| !value.is_empty()) else { continue };
        let value = header_bytes(recipe.header_format, Typed::Text(Cow::Owned(value.into_bytes())))
            .map_err(|error| bad_value(recipe, row, index, &error.to_string()))?;
        headers.push(Header { key, value });
    }
    Ok(())
}

fn partition(recipe: &Recipe, plan: &Plan, row: RowView<'_>) -> Result<Option<i32>, RouteError> {
    let Some(index) = plan.partition else { return Ok(None) };
    let Some(Value::Text(text)) = row.value(index) else { return Ok(None) };
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse::<i32>().ok());
    match number {
        Some(number @ 0..) => Ok(Some(number)),
        _ => {
            let problem = format!("is {}, which is no partition", String::from_utf8_lossy(text));
            Err(bad_value(recipe, row, index, &problem))
        }
    }
}

/// The record's time in milliseconds since 1970; `None` for NULL and for what Kafka cannot hold: infinity, times before
/// 1970, a text that is no time.
fn record_time(kind: ColumnType, value: Value<'_>) -> Option<i64> {
    let Value::Text(text) = value else { return None };
    let text = std::str::from_utf8(text).ok()?;
    let milliseconds = match kind {
        ColumnType::Timestamp(_) | ColumnType::TimestampTz(_) => time::microseconds(text)?.div_euclid(1000),
        _ => text.parse().ok()?,
    };
    (milliseconds >= 0).then_some(milliseconds)
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

fn no_topic(recipe: &Recipe, row: RowView<'_>) -> RouteError {
    RouteError::NoTopic { table: table_name(row), column: recipe.columns.route_by.clone(), id: id_text(recipe, row) }
}

fn bad_value(recipe: &Recipe, row: RowView<'_>, index: usize, problem: &str) -> RouteError {
    let column = row.relation.columns.get(index).map_or_else(String::new, |column| column.name.clone());
    RouteError::Value { table: table_name(row), column, id: id_text(recipe, row), problem: problem.to_owned() }
}

/// The event's id for a message.
fn id_text(recipe: &Recipe, row: RowView<'_>) -> String {
    let index = row.relation.columns.iter().position(|column| column.name == recipe.columns.id);
    match index.and_then(|index| row.value(index)) {
        Some(Value::Text(text)) => String::from_utf8_lossy(text).into_owned(),
        Some(Value::Binary(bytes)) => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
        Some(Value::Null) | None => "NULL".to_owned(),
    }
}

fn table_name(row: RowView<'_>) -> String {
    format!("{}.{}", row.relation.schema, row.relation.table)
}
