//! TABLE_MAP events: what a table was when the rows behind it were written (MySQL source documentation,
//! "Table_map_event"; MariaDB writes the same).
//!
//! Names, signs, character sets and the words of ENUM and SET are in it only with `binlog_row_metadata = FULL`.

use super::settings::Flavour;
use super::wire::{Malformed, Reader, bit};

/// Numbers of the column types (MySQL source, `field_types.h`).
pub(super) mod column_type {
    pub(crate) const DECIMAL: u8 = 0;
    pub(crate) const TINY: u8 = 1;
    pub(crate) const SHORT: u8 = 2;
    pub(crate) const LONG: u8 = 3;
    pub(crate) const FLOAT: u8 = 4;
    pub(crate) const DOUBLE: u8 = 5;
    pub(crate) const NULL: u8 = 6;
    pub(crate) const TIMESTAMP: u8 = 7;
    pub(crate) const LONGLONG: u8 = 8;
    pub(crate) const INT24: u8 = 9;
    pub(crate) const DATE: u8 = 10;
    pub(crate) const TIME: u8 = 11;
    pub(crate) const DATETIME: u8 = 12;
    pub(crate) const YEAR: u8 = 13;
    pub(crate) const NEWDATE: u8 = 14;
    pub(crate) const VARCHAR: u8 = 15;
    pub(crate) const BIT: u8 = 16;
    pub(crate) const TIMESTAMP2: u8 = 17;
    pub(crate) const DATETIME2: u8 = 18;
    pub(crate) const TIME2: u8 = 19;
    pub(crate) const MARIADB_BLOB_COMPRESSED: u8 = 140;
    pub(crate) const MARIADB_VARCHAR_COMPRESSED: u8 = 141;
    pub(crate) const VECTOR: u8 = 242;
    pub(crate) const JSON: u8 = 245;
    pub(crate) const NEWDECIMAL: u8 = 246;
    pub(crate) const ENUM: u8 = 247;
    pub(crate) const SET: u8 = 248;
    pub(crate) const TINY_BLOB: u8 = 249;
    pub(crate) const MEDIUM_BLOB: u8 = 250;
    pub(crate) const LONG_BLOB: u8 = 251;
    pub(crate) const BLOB: u8 = 252;
    pub(crate) const VAR_STRING: u8 = 253;
    pub(crate) const STRING: u8 = 254;
    pub(crate) const GEOMETRY: u8 = 255;
}
use column_type as t;

/// Whose rows follow.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TableName<'a> {
    pub id: u64,
    pub schema: &'a [u8],
    pub table: &'a [u8],
}

/// Reads the name alone: most rows of a server are of other tables.
pub(super) fn table_name(body: &[u8]) -> Result<TableName<'_>, Malformed> {
    let mut reader = Reader::new(body);
    name(&mut reader)
}

fn name<'a>(reader: &mut Reader<'a>) -> Result<TableName<'a>, Malformed> {
    let (id, _flags) = (reader.uint(6)?, reader.u16()?);
    let mut text = || {
        let length = reader.u8()?;
        let text = reader.take(usize::from(length))?;
        reader.take(1)?;
        Ok::<_, Malformed>(text)
    };
    Ok(TableName { id, schema: text()?, table: text()? })
}

/// One column as the event describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct MappedColumn {
    /// The real type: where CHAR, ENUM and SET share a number, it is told apart.
    pub kind: u8,
    /// Two bytes or one of metadata, as a number.
    pub meta: u16,
    /// Name; empty where the server does not write it.
    pub name: String,
    pub is_unsigned: bool,
    /// Number of the collation, of text, ENUM and SET; 0 where it is not known.
    pub collation: u64,
    /// The words of an ENUM or a SET, in the column's character set.
    pub words: Vec<Vec<u8>>,
}

/// A table as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TableMap {
    pub columns: Vec<MappedColumn>,
    /// Whether the columns' names are known.
    pub has_names: bool,
}

/// Reads all of the event, which one of the two kinds of server wrote.
pub(super) fn table_map(body: &[u8], flavour: Flavour) -> Result<TableMap, Malformed> {
    let mut reader = Reader::new(body);
    name(&mut reader)?;
    let count = reader.length()?;
    let types = reader.take(count)?;
    let metadata = reader.lenenc_bytes()?;
    reader.take(count.div_ceil(8))?;
    let mut columns = Vec::with_capacity(count);
    let mut metadata = Reader::new(metadata);
    for kind in types {
        let (kind, meta) = real_type(*kind, &mut metadata)?;
        columns.push(MappedColumn { kind, meta, ..MappedColumn::default() });
    }
    let mut map = TableMap { columns, has_names: false };
    let has_collation = match flavour {
        Flavour::Mysql => mysql_has_collation,
        Flavour::Mariadb => mariadb_has_collation,
    };
    while !reader.is_empty() {
        let field = reader.u8()?;
        let value = reader.lenenc_bytes()?;
        map.optional(field, value, has_collation)?;
    }
    Ok(map)
}

/// The real type with its metadata. CHAR, ENUM and SET are written as STRING, with the type in the metadata.
fn real_type(kind: u8, metadata: &mut Reader<'_>) -> Result<(u8, u16), Malformed> {
    Ok(match kind {
        t::STRING | t::ENUM | t::SET => {
            let (high, low) = (metadata.u8()?, metadata.u8()?);
            if high & 0x30 == 0x30 {
                (high, u16::from(low))
            } else {
                // lengths of more than 255 bytes hide two bits in the type
                (high | 0x30, u16::from(low) | u16::from((high & 0x30) ^ 0x30) << 4)
            }
        }
        // precision and scale
        t::NEWDECIMAL => (kind, u16::from(metadata.u8()?) << 8 | u16::from(metadata.u8()?)),
        t::VARCHAR | t::VAR_STRING | t::BIT | t::MARIADB_VARCHAR_COMPRESSED => (kind, metadata.u16()?),
        t::FLOAT
        | t::DOUBLE
        | t::TINY_BLOB
        | t::MEDIUM_BLOB
        | t::LONG_BLOB
        | t::BLOB
        | t::GEOMETRY
        | t::JSON
        | t::VECTOR
        | t::MARIADB_BLOB_COMPRESSED
        | t::TIMESTAMP2
        | t::DATETIME2
        | t::TIME2 => (kind, u16::from(metadata.u8()?)),
        t::DECIMAL
        | t::TINY
        | t::SHORT
        | t::LONG
        | t::NULL
        | t::TIMESTAMP
        | t::LONGLONG
        | t::INT24
        | t::DATE
        | t::TIME
        | t::DATETIME
        | t::YEAR
        | t::NEWDATE => (kind, 0),
        _ => return Err(Malformed(format!("a column has type {kind}, which is not known"))),
    })
}

fn is_numeric(column: &MappedColumn) -> bool {
    matches!(
        column.kind,
        t::TINY
            | t::SHORT
            | t::INT24
            | t::LONG
            | t::LONGLONG
            | t::DECIMAL
            | t::NEWDECIMAL
            | t::FLOAT
            | t::DOUBLE
            | t::YEAR
    )
}

fn is_text(column: &MappedColumn) -> bool {
    matches!(
        column.kind,
        t::STRING
            | t::VAR_STRING
            | t::VARCHAR
            | t::TINY_BLOB
            | t::BLOB
            | t::MEDIUM_BLOB
            | t::LONG_BLOB
            | t::MARIADB_BLOB_COMPRESSED
            | t::MARIADB_VARCHAR_COMPRESSED
    )
}

/// Whether MySQL counts a column among those with a collation.
fn mysql_has_collation(column: &MappedColumn) -> bool {
    is_text(column) || column.kind == t::VECTOR
}

/// The same for MariaDB, to which a geometry is a BLOB, and a vector a VARBINARY.
fn mariadb_has_collation(column: &MappedColumn) -> bool {
    is_text(column) || column.kind == t::GEOMETRY
}

fn is_words(column: &MappedColumn) -> bool {
    matches!(column.kind, t::ENUM | t::SET)
}

impl TableMap {
    /// One field of the optional metadata.
    fn optional(&mut self, field: u8, value: &[u8], has_collation: fn(&MappedColumn) -> bool) -> Result<(), Malformed> {
        let mut reader = Reader::new(value);
        match field {
            1 => {
                for (index, column) in self.columns.iter_mut().filter(|column| is_numeric(column)).enumerate() {
                    // the first column has the highest bit
                    column.is_unsigned = bit(value, index / 8 * 8 + 7 - index % 8);
                }
            }
            2 => self.default_collation(&mut reader, has_collation)?,
            3 => self.collations(&mut reader, has_collation)?,
            4 => {
                for column in &mut self.columns {
                    let name = std::str::from_utf8(reader.lenenc_bytes()?);
                    name.map_err(|_| Malformed::new("a column's name is not UTF-8"))?.clone_into(&mut column.name);
                }
                self.has_names = true;
            }
            5 => self.words(&mut reader, t::SET)?,
            6 => self.words(&mut reader, t::ENUM)?,
            10 => self.default_collation(&mut reader, is_words)?,
            11 => self.collations(&mut reader, is_words)?,
            // types of geometries, keys, visibility, dimensions
            _ => {}
        }
        Ok(())
    }

    /// One collation for most columns, and pairs of index and collation for the others.
    fn default_collation(&mut self, reader: &mut Reader<'_>, of: fn(&MappedColumn) -> bool) -> Result<(), Malformed> {
        let most = reader.lenenc()?;
        let mut columns: Vec<&mut MappedColumn> = self.columns.iter_mut().filter(|column| of(column)).collect();
        columns.iter_mut().for_each(|column| column.collation = most);
        while !reader.is_empty() {
            let (index, collation) = (reader.length()?, reader.lenenc()?);
            let column = columns.get_mut(index);
            column.ok_or_else(|| Malformed::new("a collation is of a column that is not there"))?.collation = collation;
        }
        Ok(())
    }

    fn collations(&mut self, reader: &mut Reader<'_>, of: fn(&MappedColumn) -> bool) -> Result<(), Malformed> {
        for column in self.columns.iter_mut().filter(|column| of(column)) {
            column.collation = reader.lenenc()?;
        }
        Ok(())
    }

    fn words(&mut self, reader: &mut Reader<'_>, kind: u8) -> Result<(), Malformed> {
        for column in self.columns.iter_mut().filter(|column| column.kind == kind) {
            let count = reader.length()?;
            // each word has at least a byte of length
            column.words = Vec::with_capacity(count.min(reader.rest().len()));
            for _ in 0..count {
                column.words.push(reader.lenenc_bytes()?.to_vec());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lengths_beyond_a_byte_hide_in_the_type() {
        // CHAR(255) CHARACTER SET utf8mb4: 1020 bytes
        assert_eq!(real_type(t::STRING, &mut Reader::new(&[0xCE, 0xFC])), Ok((t::STRING, 1020)));
        assert_eq!(real_type(t::STRING, &mut Reader::new(&[0xFE, 0x10])), Ok((t::STRING, 16)));
        assert_eq!(real_type(t::STRING, &mut Reader::new(&[0xF7, 0x01])), Ok((t::ENUM, 1)));
        assert!(real_type(99, &mut Reader::new(&[])).is_err());
    }

    /// VARCHAR in latin1, a spatial column, VARCHAR in utf8mb4: what the servers wrote of their collations.
    #[test]
    fn each_server_counts_collations_in_its_own_way() {
        let read = |flavour, kind: u8, field: &[u8]| {
            let mut body = b"\x01\0\0\0\0\0\x01\0\x01a\0\x01b\0\x03".to_vec();
            body.extend_from_slice(&[t::VARCHAR, kind, t::VARCHAR, 5, 9, 0, 4, 36, 0, 7]);
            body.extend_from_slice(field);
            let map = table_map(&body, flavour).unwrap();
            map.columns.iter().map(|column| column.collation).collect::<Vec<_>>()
        };
        for (flavour, kind, field, wanted) in [
            (Flavour::Mysql, t::GEOMETRY, [3, 2, 8, 45].as_slice(), [8, 0, 45]),
            (Flavour::Mysql, t::VECTOR, &[3, 3, 8, 63, 45], [8, 63, 45]),
            (Flavour::Mariadb, t::GEOMETRY, &[3, 3, 8, 63, 45], [8, 63, 45]),
            (Flavour::Mariadb, t::GEOMETRY, &[2, 5, 63, 0, 8, 2, 45], [8, 63, 45]),
        ] {
            assert_eq!(read(flavour, kind, field), wanted, "{flavour:?} {field:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(body: Vec<u8>) {
            let _ = (table_name(&body), table_map(&body, Flavour::Mysql), table_map(&body, Flavour::Mariadb));
        }
    }
}
