//! What is kept of a table between its rows: which cells are wanted, and how each is read.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::events::Rows;
use super::table_map::{MappedColumn, TableMap, column_type as t};
use super::value::{Decoder, Form, Shape};
use super::wire::{Malformed, Reader, bit};
use crate::change::{Batch, Cell, Column, Relation};
use crate::config::{MysqlValues, TableName};
use bytes::Bytes;

/// What is wanted of the outbox tables.
#[derive(Clone, Debug, Default)]
pub(super) struct Wanted {
    /// Columns, as they are configured.
    pub columns: Vec<String>,
    /// The column whose sixteen bytes are a UUID, if there is one.
    pub uuid: Option<String>,
    /// Whose form values have.
    pub values: MysqlValues,
    /// Columns whose type the log does not tell.
    pub special: Vec<Special>,
}

/// A column whose type the log does not tell.
#[derive(Clone, Debug)]
pub(super) struct Special {
    pub table: TableName,
    pub column: String,
    pub kind: SpecialKind,
}

/// Types of MariaDB that are bytes in the log, as BINARY is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SpecialKind {
    Uuid,
    Inet6,
    Inet4,
}

/// How the rows of one table are read.
#[derive(Debug)]
pub(super) struct Layout {
    pub relation: Arc<Relation>,
    columns: Vec<Slot>,
    /// How many cells a row hands over.
    wanted: usize,
}

/// One column of the table.
#[derive(Debug)]
struct Slot {
    shape: Shape,
    /// Index among the wanted cells, and how to read one.
    read: Option<(usize, Decoder)>,
}

/// A row that is not as it has to be.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RowProblem {
    /// The event cannot be understood.
    Malformed(Malformed),
    /// The session wrote some columns only, and this one is not among them.
    Partial(String),
}

impl From<Malformed> for RowProblem {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

impl Layout {
    /// Prepares for the rows of a table.
    ///
    /// # Errors
    /// What is wrong with the table: a few words that follow its name.
    pub(super) fn new(schema: &str, table: &str, map: TableMap, wanted: &Wanted) -> Result<Self, String> {
        if !map.has_names {
            return Err("was written without its columns' names: binlog_row_metadata was not FULL".to_owned());
        }
        let mut described = Vec::new();
        let mut columns = Vec::with_capacity(map.columns.len());
        for column in &map.columns {
            let shape = Shape::of(column).map_err(|error| format!("has column \"{}\": {error}", column.name))?;
            // names of columns have no case
            let name = wanted.columns.iter().find(|name| same_name(name, &column.name));
            let read = match name {
                None => None,
                Some(name) => {
                    let table = TableName { schema: schema.to_owned(), table: table.to_owned() };
                    let decoder = decoder(column, &table, wanted)
                        .map_err(|problem| format!("has column \"{}\", which {problem}", column.name))?;
                    described.push(Column { name: name.clone(), kind: decoder.meaning() });
                    Some((described.len() - 1, decoder))
                }
            };
            columns.push(Slot { shape, read });
        }
        let wanted = described.len();
        let relation =
            Relation { serial: next_serial(), schema: schema.to_owned(), table: table.to_owned(), columns: described };
        Ok(Self { relation: Arc::new(relation), columns, wanted })
    }

    /// Adds the rows of an insert to `batch`.
    pub(super) fn insert(&self, rows: &Rows<'_>, batch: &mut Batch) -> Result<(), RowProblem> {
        if rows.column_count != self.columns.len() {
            let (count, known) = (rows.column_count, self.columns.len());
            return Err(Malformed(format!("rows have {count} columns, and their table has {known}")).into());
        }
        let present = (0..rows.column_count).filter(|index| bit(rows.present, *index)).count();
        let mut reader = Reader::new(rows.rows);
        // text is mostly as long as what it is made of
        let mut body = Vec::with_capacity(rows.rows.len() + rows.rows.len() / 4);
        let mut cells = Vec::new();
        let mut row_count = 0_usize;
        while !reader.is_empty() {
            self.row(rows.present, present, &mut reader, &mut body, &mut cells)?;
            row_count += 1;
        }
        let body = Bytes::from(body);
        let mut cells = cells.into_iter();
        for _ in 0..row_count {
            batch.push_row(Arc::clone(&self.relation), body.clone(), cells.by_ref().take(self.wanted));
        }
        Ok(())
    }

    /// One row: a bit for each NULL, and the cells that are not.
    fn row(
        &self,
        present: &[u8],
        present_count: usize,
        reader: &mut Reader<'_>,
        body: &mut Vec<u8>,
        cells: &mut Vec<Cell>,
    ) -> Result<(), RowProblem> {
        let first = cells.len();
        cells.resize(first + self.wanted, Cell::Null);
        let nulls = reader.take(present_count.div_ceil(8))?;
        let mut ordinal = 0;
        for (index, column) in self.columns.iter().enumerate() {
            if !bit(present, index) {
                if let Some((cell, _)) = &column.read {
                    let name = self.relation.columns.get(*cell).map(|column| column.name.clone());
                    return Err(RowProblem::Partial(name.unwrap_or_default()));
                }
                continue;
            }
            let is_null = bit(nulls, ordinal);
            ordinal += 1;
            if is_null {
                continue;
            }
            let raw = column.shape.take(reader)?;
            let Some((cell, decoder)) = &column.read else { continue };
            let begin = body.len();
            let form = decoder.append(raw, body)?;
            let range = begin..body.len();
            if let Some(slot) = cells.get_mut(first + cell) {
                *slot = match form {
                    Form::Text => Cell::Text(range),
                    Form::Binary => Cell::Binary(range),
                };
            }
        }
        Ok(())
    }
}

/// A number that no relation of this process has.
pub(super) fn next_serial() -> u64 {
    static SERIAL: AtomicU64 = AtomicU64::new(1);
    SERIAL.fetch_add(1, Ordering::Relaxed)
}

/// Names of columns are compared without case.
pub(super) fn same_name(a: &str, b: &str) -> bool {
    a == b || a.to_lowercase() == b.to_lowercase()
}

fn decoder(column: &MappedColumn, table: &TableName, wanted: &Wanted) -> Result<Decoder, String> {
    let decoder = Decoder::of(column, wanted.values)?;
    if column.kind != t::STRING || !matches!(decoder, Decoder::Binary { .. }) {
        return Ok(decoder);
    }
    let special =
        wanted.special.iter().find(|special| special.table == *table && same_name(&special.column, &column.name));
    let is_uuid = wanted.uuid.as_ref().is_some_and(|name| same_name(name, &column.name));
    Ok(match (special.map(|special| special.kind), column.meta) {
        (Some(SpecialKind::Uuid), 16) => Decoder::Uuid,
        (Some(SpecialKind::Inet6), 16) => Decoder::Inet6,
        (Some(SpecialKind::Inet4), 4) => Decoder::Inet4,
        (_, 16) if is_uuid => Decoder::Uuid,
        _ => decoder,
    })
}

/// The bytes of a MariaDB event's part that is compressed: a byte with algorithm and width, the length, and the data
/// (MariaDB source, `sql/log_event.cc`, `binlog_buf_uncompress`).
pub(super) fn inflate(compressed: &[u8]) -> Result<Vec<u8>, Malformed> {
    /// A row of the server is no longer.
    const MAX_BYTES: u64 = 4 << 30;
    let mut reader = Reader::new(compressed);
    let head = reader.u8()?;
    if head & 0x80 == 0 || head & 0x70 != 0 {
        return Err(Malformed(format!("a compressed event has algorithm {}, and zlib is known", head >> 4 & 7)));
    }
    let length = reader.uint_be(usize::from(head & 7))?;
    if length > MAX_BYTES {
        return Err(Malformed(format!("a compressed event says that it has {length} bytes")));
    }
    let mut plain = Vec::new();
    let inflated = flate2::read::ZlibDecoder::new(reader.rest()).take(length + 1).read_to_end(&mut plain);
    match inflated {
        Ok(count) if u64::try_from(count) == Ok(length) => Ok(plain),
        Ok(count) => Err(Malformed(format!("a compressed event has {count} bytes where {length} were said"))),
        Err(error) => Err(Malformed(format!("a compressed event cannot be unpacked: {error}"))),
    }
}
