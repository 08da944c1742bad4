//! What is kept of a table between its rows: which cells are wanted, and how each is read.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::events::Rows;
use super::settings::Flavour;
use super::statement::names;
use super::table_map::{MappedColumn, TableMap, column_type as t};
use super::trouble::Trouble;
use super::value::{Decoder, Form, Shape};
use super::wire::{Malformed, Reader, bit};
use crate::change::{Batch, Cell, Column, Relation};
use crate::config::{MysqlValues, TableName};
use crate::position::BinlogPosition;
use bytes::Bytes;

/// What is wanted of the outbox tables.
#[derive(Clone, Debug, Default)]
pub(super) struct Wanted {
    /// Who writes the log.
    pub flavour: Flavour,
    /// Columns, as they are configured.
    pub columns: Vec<String>,
    /// The one of them with the event's id.
    pub id: String,
    /// The column whose sixteen bytes are a UUID, if there is one.
    pub uuid: Option<String>,
    /// Whose form values have.
    pub values: MysqlValues,
    /// Columns whose type the log does not tell.
    pub special: Vec<Special>,
    /// Where the log ended when those were read.
    pub known_at: Option<BinlogPosition>,
}

impl Wanted {
    /// Says that the columns have to be asked for again behind a definition that the log has at `place`. MySQL's log tells
    /// all of them.
    pub(super) fn hold_behind(
        &self,
        sql: &[u8],
        schema: &[u8],
        outboxes: &[TableName],
        place: &BinlogPosition,
    ) -> Result<(), Trouble> {
        let is_older = self.known_at.as_ref().is_some_and(|known_at| known_at.stands_before(place));
        if self.flavour == Flavour::Mysql || !is_older {
            return Ok(());
        }
        match outboxes.iter().find(|outbox| names(sql, schema, outbox)) {
            None => Ok(()),
            Some(outbox) => Err(Trouble::passing(format!(
                "table \"{}\" was defined anew: the server is asked for its columns again",
                outbox.plain()
            ))),
        }
    }
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
    /// Which of them is the event's id.
    id: Option<usize>,
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
    /// A column holds what is no text of its character set.
    Text { table: String, id: String, column: String, error: Malformed },
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
        let id = described.iter().position(|column| column.name == wanted.id);
        let wanted = described.len();
        let relation =
            Relation { serial: next_serial(), schema: schema.to_owned(), table: table.to_owned(), columns: described };
        Ok(Self { relation: Arc::new(relation), columns, wanted, id })
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
            let before = reader.rest().len();
            self.row(rows.present, present, &mut reader, &mut body, &mut cells)?;
            if reader.rest().len() == before {
                return Err(Malformed::new("rows have no bytes, and some are left behind them").into());
            }
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
        let mut no_text = None;
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
            let form = match decoder.append(raw, body) {
                Ok(form) => form,
                // the row is named by its id, which may stand behind
                Err(error) if matches!(decoder, Decoder::Text(_)) => {
                    no_text.get_or_insert((*cell, error));
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            let range = begin..body.len();
            if let Some(slot) = cells.get_mut(first + cell) {
                *slot = match form {
                    Form::Text => Cell::Text(range),
                    Form::Binary => Cell::Binary(range),
                };
            }
        }
        match no_text {
            None => Ok(()),
            Some((column, error)) => {
                let id = self.id.and_then(|id| cells.get(first + id));
                Err(RowProblem::Text {
                    table: format!("{}.{}", self.relation.schema, self.relation.table),
                    id: id.map_or_else(|| "?".to_owned(), |id| shown(id, body)),
                    column: self.relation.columns.get(column).map(|column| column.name.clone()).unwrap_or_default(),
                    error,
                })
            }
        }
    }
}

/// A cell for a message: text as it is, bytes in hexadecimal digits.
fn shown(cell: &Cell, body: &[u8]) -> String {
    match cell {
        Cell::Null => "?".to_owned(),
        Cell::Text(range) => {
            let text = String::from_utf8_lossy(body.get(range.clone()).unwrap_or_default());
            format!("\"{}\"", text.escape_debug())
        }
        Cell::Binary(range) => {
            let bytes = body.get(range.clone()).unwrap_or_default();
            bytes.iter().map(|byte| format!("{byte:02x}")).collect()
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(columns: Vec<MappedColumn>) -> Layout {
        let wanted =
            Wanted { columns: vec!["id".to_owned(), "a".to_owned()], id: "id".to_owned(), ..Wanted::default() };
        Layout::new("s", "t", TableMap { columns, has_names: true }, &wanted).unwrap()
    }

    fn insert(layout: &Layout, rows: &[u8]) -> Result<(), RowProblem> {
        let column_count = layout.columns.len();
        layout.insert(&Rows { column_count, present: &[0xFF][..column_count.min(1)], rows }, &mut Batch::default())
    }

    #[test]
    fn rows_without_bytes_have_an_end() {
        assert!(matches!(insert(&layout(Vec::new()), &[0]), Err(RowProblem::Malformed(_))));
        assert_eq!(insert(&layout(Vec::new()), &[]), Ok(()));
    }

    /// Whether its id stands before or behind it.
    #[test]
    fn a_row_whose_text_is_none_has_a_name() {
        const UTF8MB4: u64 = 45;
        let text = |name: &str| MappedColumn {
            kind: t::VARCHAR,
            meta: 40,
            name: name.to_owned(),
            collation: UTF8MB4,
            ..MappedColumn::default()
        };
        for (columns, row) in [(["id", "a"], b"\0\x01x\x02a\xff"), (["a", "id"], b"\0\x02a\xff\x01x")] {
            let problem = insert(&layout(columns.map(text).to_vec()), row).unwrap_err();
            let RowProblem::Text { table, id, column, .. } = problem else { panic!("{problem:?}") };
            assert_eq!([table.as_str(), &id, &column], ["s.t", "\"x\"", "a"]);
        }
    }
}
