//! Routing: one row in, one record out. A plain function of the row and the configuration.
//!
//! ```text
//! row ─▶ plan (which cell is what, once a table) ─▶ topic · key · headers · value · time ─▶ Record
//! ```

mod topic;
mod value;

use self::topic::TopicTemplate;
use crate::change::{Column, Relation, RowView, Value};
use crate::config::{ColumnsConfig, Config, HeaderColumn, MissingColumns};
use crate::record::{Header, Record};

/// A row cannot become a record.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RouteError {
    /// The table has no such column, at least not when the row was written.
    #[error("table \"{table}\" has no column \"{column}\"")]
    MissingColumn {
        /// `schema.table`
        table: String,
        /// The configured name.
        column: String,
    },
    /// The routing value is NULL, so there is no topic.
    #[error("column \"{column}\" of table \"{table}\" is NULL, so the record has no topic (event id {id})")]
    NoTopic {
        /// `schema.table`
        table: String,
        /// The routing column.
        column: String,
        /// The event's id.
        id: String,
    },
    /// A row was updated, and `outbox.on-update` is `stop`.
    #[error("a row of table \"{table}\" was updated, which option \"outbox.on-update\" forbids")]
    Updated {
        /// `schema.table`
        table: String,
    },
    /// A value cannot be written.
    #[error("column \"{column}\" of table \"{table}\" {problem} (event id {id})")]
    Value {
        /// `schema.table`
        table: String,
        /// The column.
        column: String,
        /// The event's id.
        id: String,
        /// What is wrong with it.
        problem: String,
    },
}

/// Which cell of a table's rows is what.
#[derive(Debug)]
struct Plan {
    /// [`Relation::serial`]
    serial: u64,
    id: usize,
    key: usize,
    route_by: usize,
    payload: usize,
    timestamp: Option<usize>,
    /// Header names with their cells.
    headers: Vec<(String, usize)>,
}

/// Turns rows into records.
#[derive(Debug)]
pub struct Router {
    columns: ColumnsConfig,
    headers: Vec<HeaderColumn>,
    missing: MissingColumns,
    topics: TopicTemplate,
    /// One per table that sends rows; a changed table gets a new serial and replaces nothing: few ever exist.
    plans: Vec<Plan>,
    time_fell_back: bool,
}

/// More plans than this are those of tables that have changed meanwhile.
const MAX_PLANS: usize = 256;

impl Router {
    /// Takes what it needs of a validated configuration.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Self {
            columns: config.outbox.columns.clone(),
            headers: config.record.headers.iter().filter_map(|entry| HeaderColumn::parse(entry).ok()).collect(),
            missing: config.record.missing_columns,
            topics: TopicTemplate::new(&config.record.topic),
            plans: Vec::new(),
            time_fell_back: false,
        }
    }

    /// Makes the record of a row that was committed at `commit_ts_us` (microseconds since 1970).
    ///
    /// # Errors
    /// [`RouteError`] if the row can never become a record.
    pub fn route<'a>(&'a mut self, row: RowView<'a>, commit_ts_us: i64) -> Result<Record<'a>, RouteError> {
        let plan = self.plan(row.relation)?;
        let route_by = self.plans.get(plan).map_or(0, |plan| plan.route_by);
        let topic_value = match row.value(route_by) {
            Some(Value::Text(text)) => text,
            _ => return Err(self.no_topic(row)),
        };
        if self.topics.learn(topic_value).is_err() {
            return Err(self.bad_value(row, route_by, "is not UTF-8"));
        }
        let mut fell_back = false;
        let Some(plan) = self.plans.get(plan) else { return Err(self.no_topic(row)) };
        let commit_ts_ms = commit_ts_us.div_euclid(1000).max(0);
        let timestamp_ms = plan.timestamp.map_or(commit_ts_ms, |index| {
            let time = cell(row, index).and_then(|(column, value)| value::timestamp_ms(column.kind, value));
            fell_back = time.is_none();
            time.unwrap_or(commit_ts_ms)
        });
        let key = self.body(row, plan.key)?;
        let payload = self.body(row, plan.payload)?;
        let mut headers = Vec::with_capacity(plan.headers.len() + 1);
        headers.push(self.header(row, "id", plan.id)?);
        for (name, index) in &plan.headers {
            headers.push(self.header(row, name, *index)?);
        }
        self.time_fell_back = fell_back;
        let topic = self.topics.get(topic_value);
        Ok(Record { topic, partition: None, key, payload, headers, timestamp_ms })
    }

    /// Whether the last record got the commit time because its time column was empty or out of range.
    #[must_use]
    pub fn time_fell_back(&self) -> bool {
        self.time_fell_back
    }

    /// Index of the plan for a table, made when its first row comes.
    fn plan(&mut self, relation: &Relation) -> Result<usize, RouteError> {
        if let Some(index) = self.plans.iter().position(|plan| plan.serial == relation.serial) {
            return Ok(index);
        }
        let find = |name: &str| relation.columns.iter().position(|column| column.name == name);
        let need = |name: &str| {
            let table = format!("{}.{}", relation.schema, relation.table);
            find(name).ok_or_else(|| RouteError::MissingColumn { table, column: name.to_owned() })
        };
        let mut headers = Vec::with_capacity(self.headers.len());
        for entry in &self.headers {
            match (find(&entry.column), self.missing) {
                (None, MissingColumns::Ignore) => {}
                (None, MissingColumns::Error) => headers.push((entry.header.clone(), need(&entry.column)?)),
                (Some(index), _) => headers.push((entry.header.clone(), index)),
            }
        }
        let plan = Plan {
            serial: relation.serial,
            id: need(&self.columns.id)?,
            key: need(&self.columns.key)?,
            route_by: need(&self.columns.route_by)?,
            payload: need(&self.columns.payload)?,
            timestamp: self.columns.timestamp.as_deref().map(need).transpose()?,
            headers,
        };
        if self.plans.len() >= MAX_PLANS {
            self.plans.clear();
        }
        self.plans.push(plan);
        Ok(self.plans.len() - 1)
    }

    fn body<'a>(&self, row: RowView<'a>, index: usize) -> Result<Option<std::borrow::Cow<'a, [u8]>>, RouteError> {
        let Some((column, value)) = cell(row, index) else {
            return Err(self.bad_value(row, index, "is not in the row"));
        };
        value::body(column.kind, value).map_err(|error| self.bad_value(row, index, &error.to_string()))
    }

    fn header<'a>(&self, row: RowView<'a>, name: &'a str, index: usize) -> Result<Header<'a>, RouteError> {
        let Some((column, value)) = cell(row, index) else {
            return Err(self.bad_value(row, index, "is not in the row"));
        };
        let value = value::header(column.kind, value);
        let value = value.map_err(|error| self.bad_value(row, index, &error.to_string()))?;
        Ok(Header { key: name, value })
    }

    fn no_topic(&self, row: RowView<'_>) -> RouteError {
        RouteError::NoTopic { table: table_name(row), column: self.columns.route_by.clone(), id: self.id_text(row) }
    }

    fn bad_value(&self, row: RowView<'_>, index: usize, problem: &str) -> RouteError {
        let column = row.relation.columns.get(index).map_or_else(String::new, |column| column.name.clone());
        RouteError::Value { table: table_name(row), column, id: self.id_text(row), problem: problem.to_owned() }
    }

    /// The event's id for a message.
    fn id_text(&self, row: RowView<'_>) -> String {
        let index = row.relation.columns.iter().position(|column| column.name == self.columns.id);
        match index.and_then(|index| row.value(index)) {
            Some(Value::Text(text)) => String::from_utf8_lossy(text).into_owned(),
            Some(Value::Binary(bytes)) => format!("{bytes:02x?}"),
            Some(Value::Null) | None => "NULL".to_owned(),
        }
    }
}

fn cell<'a>(row: RowView<'a>, index: usize) -> Option<(&'a Column, Value<'a>)> {
    Some((row.relation.columns.get(index)?, row.value(index)?))
}

fn table_name(row: RowView<'_>) -> String {
    format!("{}.{}", row.relation.schema, row.relation.table)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;

    use super::*;
    use crate::change::{Batch, Cell, ColumnType, Item};

    /// A batch with one row of the given columns, types and values.
    fn batch(columns: &[(&str, ColumnType, Option<&str>)]) -> Batch {
        let (mut body, mut cells, mut described) = (Vec::new(), Vec::new(), Vec::new());
        for (name, kind, value) in columns {
            described.push(Column { name: (*name).to_owned(), kind: *kind });
            cells.push(value.map_or(Cell::Null, |value| {
                body.extend_from_slice(value.as_bytes());
                Cell::Text(body.len() - value.len()..body.len())
            }));
        }
        let (schema, table) = ("public".to_owned(), "outbox".to_owned());
        let relation = Arc::new(Relation { serial: 1, schema, table, columns: described });
        let mut batch = Batch::default();
        batch.push_row(relation, Bytes::from(body), cells);
        batch
    }

    const DEFAULT: [(&str, ColumnType, Option<&str>); 5] = [
        ("id", ColumnType::Uuid, Some("e1")),
        ("aggregatetype", ColumnType::Text, Some("Order")),
        ("aggregateid", ColumnType::Text, Some("A-17")),
        ("type", ColumnType::Text, Some("OrderPlaced")),
        ("payload", ColumnType::Json, Some("{\"n\": 1}")),
    ];

    /// Routes the row of a batch and shows the result.
    fn route(router: &mut Router, batch: &Batch) -> Result<String, RouteError> {
        let [Item::Row(row)] = batch.items() else { panic!("one row") };
        let show = |bytes: Option<&[u8]>| bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        let record = router.route(batch.view(row), 1_700_000_000_123_456)?;
        let headers: Vec<_> = record.headers.iter().map(|header| (header.key, show(header.value.as_deref()))).collect();
        let (key, payload) = (show(record.key.as_deref()), show(record.payload.as_deref()));
        Ok(format!("{} {key:?} {payload:?} {headers:?} {}", record.topic, record.timestamp_ms))
    }

    #[test]
    fn the_default_table_becomes_the_default_record() {
        let record = route(&mut Router::new(&Config::default()), &batch(&DEFAULT)).unwrap();
        let expected = r#"outbox.event.Order Some("A-17") Some("{\"n\": 1}") [("id", Some("e1"))] 1700000000123"#;
        assert_eq!(record, expected);
    }

    #[test]
    fn null_key_payload_and_header_stay_null() {
        let mut config = Config::default();
        config.record.headers = vec!["type:eventType".to_owned(), "type".to_owned()];
        let mut router = Router::new(&config);
        let mut columns = DEFAULT;
        columns[2].2 = None;
        columns[3].2 = None;
        columns[4].2 = None;
        let record = route(&mut router, &batch(&columns)).unwrap();
        let expected =
            r#"outbox.event.Order None None [("id", Some("e1")), ("eventType", None), ("type", None)] 1700000000123"#;
        assert_eq!(record, expected);
    }

    #[test]
    fn a_row_without_topic_or_column_is_an_error_that_names_it() {
        let mut router = Router::new(&Config::default());
        let mut columns = DEFAULT;
        columns[1].2 = None;
        let error = route(&mut router, &batch(&columns)).unwrap_err().to_string();
        let expected =
            "column \"aggregatetype\" of table \"public.outbox\" is NULL, so the record has no topic (event id e1)";
        assert_eq!(error, expected);
        let mut router = Router::new(&Config::default());
        let error = route(&mut router, &batch(&DEFAULT[..4])).unwrap_err().to_string();
        assert_eq!(error, "table \"public.outbox\" has no column \"payload\"");
    }

    #[test]
    fn a_header_column_that_is_missing_may_be_left_out() {
        let mut config = Config::default();
        config.record.headers = vec!["tenant".to_owned()];
        let error = route(&mut Router::new(&config), &batch(&DEFAULT)).unwrap_err().to_string();
        assert_eq!(error, "table \"public.outbox\" has no column \"tenant\"");
        config.record.missing_columns = MissingColumns::Ignore;
        assert!(route(&mut Router::new(&config), &batch(&DEFAULT)).is_ok());
    }
}
