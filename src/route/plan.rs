//! What the configuration asks of a row, and which cells of a table's rows answer.

use super::body::{Format, Rules};
use super::expand::Expand;
use super::typed::{self, Shape};
use crate::change::{ColumnType, Relation};
use crate::config::{ColumnsConfig, Config, HeaderColumn, HeaderFormat, MissingColumns, RecordTime};

/// The configuration, as far as a row is concerned.
#[derive(Debug)]
pub(super) struct Recipe {
    pub(super) columns: ColumnsConfig,
    headers: Vec<HeaderColumn>,
    envelope: Vec<HeaderColumn>,
    partition: Option<String>,
    missing: MissingColumns,
    pub(super) shape: Shape,
    pub(super) key: Format,
    pub(super) value: Rules,
    pub(super) header_format: HeaderFormat,
    pub(super) time: RecordTime,
}

impl Recipe {
    /// Takes what it needs of a validated configuration.
    #[must_use]
    pub(super) fn new(config: &Config) -> Self {
        let record = &config.record;
        let parsed = |entries: &[String]| entries.iter().filter_map(|entry| HeaderColumn::parse(entry).ok()).collect();
        Self {
            columns: config.outbox.columns.clone(),
            headers: parsed(&record.headers),
            envelope: parsed(&record.envelope),
            partition: record.partition.clone(),
            missing: record.missing_columns,
            shape: Shape::new(record),
            key: Format::of_key(record),
            value: Rules {
                format: Format::of_value(record),
                expand: Expand::new(record),
                tombstone_on_empty: record.tombstone_on_empty,
            },
            header_format: record.header_format,
            time: record.timestamp,
        }
    }
}

/// A table does not fit the configuration: none of its rows can become a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unfit {
    /// It has no such column.
    Missing(String),
    /// A column is not of a type that will do.
    Column(ColumnProblem),
}

/// A column is not of a type that will do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnProblem {
    /// The column.
    pub column: String,
    /// What is wrong with it.
    pub problem: String,
    /// The SQL type that will do, where there is one.
    pub wanted: Option<&'static str>,
}

/// A cell, and what its column's values mean.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) index: usize,
    pub(super) kind: ColumnType,
}

/// Which cell of a table's rows is what.
#[derive(Debug)]
pub(super) struct Plan {
    /// [`Relation::serial`]
    pub(super) serial: u64,
    pub(super) id: Slot,
    pub(super) key: Slot,
    /// Why no value of the key's column can become a key; NULL always can.
    pub(super) key_problem: Option<String>,
    pub(super) route_by: usize,
    pub(super) payload: Slot,
    /// Why no value of the payload's column can become a record's value; NULL always can.
    pub(super) payload_problem: Option<String>,
    pub(super) timestamp: Option<Slot>,
    pub(super) partition: Option<usize>,
    pub(super) tracing: Option<usize>,
    /// Header names with their cells.
    pub(super) headers: Vec<(String, Slot)>,
    /// The envelope's fields; `None`: the payload stands alone.
    pub(super) envelope: Option<Vec<(String, Slot)>>,
}

/// Finds a recipe's columns in a table.
struct Finder<'a> {
    relation: &'a Relation,
    missing: MissingColumns,
}

impl Finder<'_> {
    fn find(&self, name: &str) -> Option<Slot> {
        let mut columns = self.relation.columns.iter().enumerate();
        columns.find(|(_, column)| column.name == name).map(|(index, column)| Slot { index, kind: column.kind })
    }

    fn need(&self, name: &str) -> Result<Slot, Unfit> {
        self.find(name).ok_or_else(|| Unfit::Missing(name.to_owned()))
    }

    /// A column that may be missing, if the configuration says so.
    fn placed(&self, name: &str) -> Result<Option<Slot>, Unfit> {
        match self.find(name) {
            None if self.missing == MissingColumns::Error => Err(Unfit::Missing(name.to_owned())),
            slot => Ok(slot),
        }
    }

    fn all(&self, entries: &[HeaderColumn]) -> Result<Vec<(String, Slot)>, Unfit> {
        let mut slots = Vec::with_capacity(entries.len());
        for entry in entries {
            slots.extend(self.placed(&entry.column)?.map(|slot| (entry.header.clone(), slot)));
        }
        Ok(slots)
    }
}

impl Plan {
    /// Finds the columns.
    ///
    /// # Errors
    /// [`Unfit`]
    pub(super) fn new(recipe: &Recipe, relation: &Relation) -> Result<Self, Unfit> {
        let finder = Finder { relation, missing: recipe.missing };
        let columns = &recipe.columns;
        let partition = recipe.partition.as_deref().map(|name| finder.placed(name)).transpose()?.flatten();
        let has_envelope = !recipe.envelope.is_empty();
        let envelope = finder.all(&recipe.envelope)?;
        let tracing = columns.tracing_context.as_deref().and_then(|name| finder.find(name));
        let (key, payload) = (finder.need(&columns.key)?, finder.need(&columns.payload)?);
        let problem = |slot: Slot, format: Format, which| {
            format.problem(typed::class(slot.kind, recipe.shape), which, slot.kind.name())
        };
        let plan = Self {
            serial: relation.serial,
            id: finder.need(&columns.id)?,
            key,
            key_problem: problem(key, recipe.key, "key"),
            route_by: finder.need(&columns.route_by)?.index,
            payload,
            payload_problem: if has_envelope { None } else { problem(payload, recipe.value.format, "value") },
            timestamp: columns.timestamp.as_deref().map(|name| finder.need(name)).transpose()?,
            partition: partition.map(|slot| slot.index),
            tracing: tracing.map(|slot| slot.index),
            headers: finder.all(&recipe.headers)?,
            envelope: has_envelope.then_some(envelope),
        };
        let text = |slot: Slot| matches!(slot.kind, ColumnType::Text | ColumnType::Json | ColumnType::Uuid);
        let time = |kind| matches!(kind, ColumnType::Timestamp(_) | ColumnType::TimestampTz(_) | ColumnType::Int64);
        let route_by = finder.find(&columns.route_by);
        let checks = [
            (route_by.filter(|slot| !text(*slot)), "text", "which cannot choose the topic: it has to be text"),
            (
                partition.filter(|slot| slot.kind != ColumnType::Int32),
                "integer",
                "which cannot be the partition: it has to be integer",
            ),
            (
                plan.timestamp.filter(|slot| !time(slot.kind)),
                "timestamptz",
                "which cannot be the record's time: it has to be timestamp, timestamp with time zone, or bigint with \
                 milliseconds",
            ),
            (tracing.filter(|slot| !text(*slot)), "text", "which holds no tracing context: it has to be text"),
        ];
        for (slot, wanted, problem) in checks {
            if let Some(slot) = slot {
                let problem = format!("is of type {}, {problem}", slot.kind.name());
                return Err(unfit(relation, slot, problem, Some(wanted)));
            }
        }
        Ok(plan)
    }

    /// What keeps the values of a column from becoming a key or a record's value, if anything does: rows with NULL there can
    /// become records all the same.
    #[must_use]
    pub(super) fn format_problem(&self, relation: &Relation) -> Option<Unfit> {
        let of = |slot, problem: &Option<String>| problem.clone().map(|problem| unfit(relation, slot, problem, None));
        of(self.key, &self.key_problem).or_else(|| of(self.payload, &self.payload_problem))
    }
}

fn unfit(relation: &Relation, slot: Slot, problem: String, wanted: Option<&'static str>) -> Unfit {
    let column = relation.columns.get(slot.index).map_or_else(String::new, |column| column.name.clone());
    Unfit::Column(ColumnProblem { column, problem, wanted })
}
