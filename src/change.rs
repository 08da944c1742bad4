//! What a source hands over: rows inserted into an outbox table, in commit order.
//!
//! A [`Batch`] holds what one socket read brought and is used again for the next one. Values are not copied: a
//! [`Row`] keeps the bytes of its log message and the ranges of its cells.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use crate::position::Position;

/// The meaning of a column's values, independent of the server they come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnType {
    /// Any type whose text form is its meaning: text, varchar, char, enum, inet, …
    Text,
    /// JSON documents: the server's own text.
    Json,
    /// UUIDs as lower-case text with dashes.
    Uuid,
    /// Booleans: `t` or `f`.
    Bool,
    /// One bit: `0` or `1`.
    Bit,
    /// Strings of bits: `0101`.
    Bits,
    /// 16-bit integers.
    Int16,
    /// 32-bit integers.
    Int32,
    /// 64-bit integers.
    Int64,
    /// 32-bit floating point numbers.
    Float32,
    /// 64-bit floating point numbers.
    Float64,
    /// Exact decimal numbers whose number of digits behind the point is the column's.
    Numeric,
    /// Exact decimal numbers, each with a number of digits of its own.
    VariableNumeric,
    /// Amounts of money: `-$1,234.50`.
    Money,
    /// Binary strings; as text they are `\x` and hexadecimal digits.
    Bytes,
    /// Calendar days, ISO text.
    Date,
    /// Time of day without time zone, ISO text; the number of digits of a second that the column keeps.
    Time(u8),
    /// Time of day with time zone, ISO text.
    TimeTz,
    /// Date and time without time zone, ISO text; the number of digits of a second that the column keeps.
    Timestamp(u8),
    /// Moments, ISO text in UTC; the number of digits of a second that the column keeps.
    TimestampTz(u8),
    /// Spans of time: `1 year 2 mons 3 days 04:05:06.789`.
    Interval,
    /// Arrays of such values, in PostgreSQL's text form.
    Array(&'static Self),
}

impl ColumnType {
    /// The type's name for people, as SQL has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
            Self::Uuid => "uuid",
            Self::Bool => "boolean",
            Self::Bit | Self::Bits => "bit",
            Self::Int16 => "smallint",
            Self::Int32 => "integer",
            Self::Int64 => "bigint",
            Self::Float32 => "real",
            Self::Float64 => "double precision",
            Self::Numeric | Self::VariableNumeric => "numeric",
            Self::Money => "money",
            Self::Bytes => "binary",
            Self::Date => "date",
            Self::Time(_) => "time",
            Self::TimeTz => "time with time zone",
            Self::Timestamp(_) => "timestamp",
            Self::TimestampTz(_) => "timestamp with time zone",
            Self::Interval => "interval",
            Self::Array(_) => "array",
        }
    }
}

/// One column of a relation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// The name as the server has it, neither quoted nor folded.
    pub name: String,
    /// What its values mean.
    pub kind: ColumnType,
}

/// A table as it was when the rows that refer to it were written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relation {
    /// Unique within the process: a changed table gets a new number, so it is safe as a cache's key.
    pub serial: u64,
    /// Schema of the configured table (of the root, where the row stands in a partition).
    pub schema: String,
    /// Name of the configured table (of the root, where the row stands in a partition).
    pub table: String,
    /// The columns in the order of a row's cells.
    pub columns: Vec<Column>,
}

/// One value of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// SQL NULL.
    Null,
    /// The server's text form, UTF-8.
    Text(&'a [u8]),
    /// Raw bytes.
    Binary(&'a [u8]),
}

/// Where a cell's value stands in its row's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cell {
    /// SQL NULL.
    Null,
    /// The server's text form.
    Text(Range<usize>),
    /// Raw bytes.
    Binary(Range<usize>),
}

/// One inserted row.
#[derive(Debug)]
pub struct Row {
    relation: Arc<Relation>,
    body: Bytes,
    cells: Range<usize>,
}

/// A statement on an outbox table that is not an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ignored {
    /// A row was updated.
    Update,
    /// A row was deleted.
    Delete,
    /// The table was truncated.
    Truncate,
    /// A row of a table that is not configured.
    OtherTable,
}

/// One step of the log, in its order.
#[derive(Debug)]
pub enum Item {
    /// A committed transaction begins; its commit time in microseconds since 1970-01-01 UTC.
    Begin {
        /// Commit time in microseconds since 1970-01-01 UTC.
        commit_ts_us: i64,
    },
    /// A row inserted by the transaction.
    Row(Row),
    /// Something the transaction did that is not an event; the table's name.
    Ignored(Ignored, Arc<Relation>),
    /// The transaction is complete; everything before the position has been handed over.
    Commit(Position),
    /// No transaction is open and everything before the position has been handed over.
    Progress(Position),
    /// Nothing will follow: a source that reads what stands in tables has read it all.
    End,
}

/// What one read brought, in log order.
#[derive(Debug, Default)]
pub struct Batch {
    items: Vec<Item>,
    cells: Vec<Cell>,
}

impl Batch {
    /// Forgets the content and keeps the memory.
    pub fn clear(&mut self) {
        self.items.clear();
        self.cells.clear();
    }

    /// Returns whether nothing is in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The steps in log order.
    #[must_use]
    pub fn items(&self) -> &[Item] {
        &self.items
    }

    /// Adds a step that is not a row.
    pub fn push(&mut self, item: Item) {
        self.items.push(item);
    }

    /// Adds a row whose cells are ranges of `body`, in the order of the relation's columns.
    pub fn push_row(&mut self, relation: Arc<Relation>, body: Bytes, cells: impl IntoIterator<Item = Cell>) {
        let start = self.cells.len();
        self.cells.extend(cells);
        let cells = start..self.cells.len();
        self.items.push(Item::Row(Row { relation, body, cells }));
    }

    /// Gives read access to a row of this batch.
    #[must_use]
    pub fn view<'a>(&'a self, row: &'a Row) -> RowView<'a> {
        RowView { relation: &row.relation, body: &row.body, cells: self.cells.get(row.cells.clone()).unwrap_or(&[]) }
    }
}

/// A row with its values.
#[derive(Clone, Copy, Debug)]
pub struct RowView<'a> {
    /// The table it was inserted into.
    pub relation: &'a Arc<Relation>,
    body: &'a [u8],
    cells: &'a [Cell],
}

impl<'a> RowView<'a> {
    /// The value of the column at `index`; `None` if the row has no such cell.
    #[must_use]
    pub fn value(&self, index: usize) -> Option<Value<'a>> {
        match self.cells.get(index)? {
            Cell::Null => Some(Value::Null),
            Cell::Text(range) => self.body.get(range.clone()).map(Value::Text),
            Cell::Binary(range) => self.body.get(range.clone()).map(Value::Binary),
        }
    }
}
