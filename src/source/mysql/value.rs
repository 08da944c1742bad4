//! Cells of a row: how many bytes one has, and its value as the server's own text.
//!
//! The layout follows the server's `Field::pack` and `log_event_print_value` (MySQL source, `sql/field.cc`,
//! `client/mysqlbinlog`).

use std::io::Write;
use std::net::{Ipv4Addr, Ipv6Addr};

use super::charset::{self, Charset};
use super::table_map::{MappedColumn, column_type as t};
use super::wire::{Malformed, Reader};
use super::{decimal, double, jsonb, temporal};
use crate::change::ColumnType;
use crate::config::MysqlValues;

/// How many bytes a cell has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// Always so many.
    Fixed(usize),
    /// As many as a little-endian number of this width says, which comes first.
    Prefixed(usize),
}

impl Shape {
    /// The shape of a column's cells.
    pub(super) fn of(column: &MappedColumn) -> Result<Self, Malformed> {
        let MappedColumn { kind, meta, .. } = *column;
        let meta = usize::from(meta);
        let digits = column.meta.to_le_bytes()[0];
        Ok(match kind {
            t::TINY | t::YEAR => Self::Fixed(1),
            t::SHORT => Self::Fixed(2),
            t::INT24 | t::DATE | t::NEWDATE | t::TIME => Self::Fixed(3),
            t::LONG | t::TIMESTAMP => Self::Fixed(4),
            t::LONGLONG | t::DATETIME => Self::Fixed(8),
            t::FLOAT | t::DOUBLE if matches!(meta, 4 | 8) => Self::Fixed(meta),
            t::NULL => Self::Fixed(0),
            t::TIMESTAMP2 => Self::Fixed(4 + temporal::fraction_bytes(digits)),
            t::DATETIME2 => Self::Fixed(5 + temporal::fraction_bytes(digits)),
            t::TIME2 => Self::Fixed(3 + temporal::fraction_bytes(digits)),
            t::NEWDECIMAL => {
                let [scale, precision] = column.meta.to_le_bytes();
                let bytes = decimal::packed_bytes(precision, scale);
                Self::Fixed(bytes.ok_or_else(|| Malformed::new("a DECIMAL has more scale than precision"))?)
            }
            t::BIT => {
                let [odd_bits, bytes] = column.meta.to_le_bytes();
                Self::Fixed(usize::from(bytes) + usize::from(odd_bits > 0))
            }
            t::ENUM | t::SET if (1..=8).contains(&meta) => Self::Fixed(meta),
            t::STRING | t::VARCHAR | t::VAR_STRING | t::MARIADB_VARCHAR_COMPRESSED => {
                Self::Prefixed(if meta < 256 { 1 } else { 2 })
            }
            t::TINY_BLOB
            | t::BLOB
            | t::MEDIUM_BLOB
            | t::LONG_BLOB
            | t::JSON
            | t::GEOMETRY
            | t::VECTOR
            | t::MARIADB_BLOB_COMPRESSED
                if (1..=4).contains(&meta) =>
            {
                Self::Prefixed(meta)
            }
            _ => return Err(Malformed(format!("a column of type {kind} has metadata {meta}, which is not known"))),
        })
    }

    /// Takes a cell's bytes.
    pub(super) fn take<'a>(self, reader: &mut Reader<'a>) -> Result<&'a [u8], Malformed> {
        match self {
            Self::Fixed(count) => reader.take(count),
            Self::Prefixed(width) => {
                let count = reader.uint(width)?;
                reader.take(usize::try_from(count).unwrap_or(usize::MAX))
            }
        }
    }
}

/// What a cell becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Text, UTF-8.
    Text,
    /// Bytes that are no text.
    Binary,
}

/// How the cells of a column are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Decoder {
    Int {
        width: usize,
        is_unsigned: bool,
    },
    Float,
    Double,
    Decimal {
        precision: u8,
        scale: u8,
    },
    Year {
        is_counted: bool,
    },
    Date,
    Time {
        digits: u8,
        is_counted: bool,
    },
    OldTime {
        is_counted: bool,
    },
    Datetime(u8),
    OldDatetime,
    Timestamp(u8),
    OldTimestamp,
    /// One bit: true or false.
    Bool,
    /// Several bits, as bytes: the highest first, or the lowest.
    Bits {
        is_reversed: bool,
    },
    Enum(Vec<String>),
    Set(Vec<String>),
    Text(Charset),
    /// Bytes; those of a fixed length lose their zeros at the end in the log.
    Binary {
        pad_to: usize,
    },
    /// Sixteen bytes as the text of a UUID.
    Uuid,
    /// Sixteen bytes as the text of an IPv6 address.
    Inet6,
    /// Four bytes as the text of an IPv4 address.
    Inet4,
    /// A document as the server prints it, or as Debezium does.
    Json {
        is_compact: bool,
    },
}

impl Decoder {
    /// Chooses by the column's type.
    ///
    /// # Errors
    /// Why the column cannot be read: a few words that follow its name.
    pub(super) fn of(column: &MappedColumn, values: MysqlValues) -> Result<Self, String> {
        let is_debezium = values == MysqlValues::Debezium;
        let [low, high] = column.meta.to_le_bytes();
        let int = |width| Self::Int { width, is_unsigned: column.is_unsigned };
        let fixed = |pad_to| if column.kind == t::STRING { pad_to } else { 0 };
        Ok(match column.kind {
            t::TINY => int(1),
            t::SHORT => int(2),
            t::INT24 => int(3),
            t::LONG => int(4),
            t::LONGLONG => int(8),
            t::FLOAT => Self::Float,
            t::DOUBLE => Self::Double,
            t::NEWDECIMAL => Self::Decimal { precision: high, scale: low },
            t::YEAR => Self::Year { is_counted: is_debezium },
            t::DATE | t::NEWDATE => Self::Date,
            t::TIME => Self::OldTime { is_counted: is_debezium },
            t::TIME2 => Self::Time { digits: low, is_counted: is_debezium },
            t::DATETIME => Self::OldDatetime,
            t::DATETIME2 => Self::Datetime(low),
            t::TIMESTAMP => Self::OldTimestamp,
            t::TIMESTAMP2 => Self::Timestamp(low),
            t::BIT if column.meta == 1 => Self::Bool,
            t::BIT => Self::Bits { is_reversed: is_debezium },
            t::JSON => Self::Json { is_compact: is_debezium },
            t::ENUM => Self::Enum(words(column)?),
            t::SET => Self::Set(words(column)?),
            t::STRING | t::VARCHAR | t::VAR_STRING | t::TINY_BLOB | t::BLOB | t::MEDIUM_BLOB | t::LONG_BLOB => {
                match charset(column)? {
                    charset if charset.is_binary() => Self::Binary { pad_to: fixed(usize::from(column.meta)) },
                    charset => Self::Text(charset),
                }
            }
            t::MARIADB_BLOB_COMPRESSED | t::MARIADB_VARCHAR_COMPRESSED => {
                return Err("is COMPRESSED, which is not available here".to_owned());
            }
            t::GEOMETRY => return Err("is a geometry, which has no text".to_owned()),
            t::VECTOR => return Err("is a vector, which has no text".to_owned()),
            kind => return Err(format!("has type {kind} in the binary log, which is not available here")),
        })
    }

    /// The meaning of the values.
    pub(super) fn meaning(&self) -> ColumnType {
        match self {
            Self::Int { width: 1, .. } | Self::Int { width: 2, is_unsigned: false } => ColumnType::Int16,
            Self::Int { width: 8, .. } | Self::Int { width: 4, is_unsigned: true } => ColumnType::Int64,
            Self::Int { .. } | Self::Year { .. } => ColumnType::Int32,
            Self::Float => ColumnType::Float32,
            Self::Double => ColumnType::Float64,
            Self::Decimal { .. } => ColumnType::Numeric,
            Self::Date => ColumnType::Date,
            Self::Datetime(digits) => ColumnType::Timestamp(*digits),
            Self::OldDatetime => ColumnType::Timestamp(0),
            Self::Timestamp(digits) => ColumnType::TimestampTz(*digits),
            Self::OldTimestamp => ColumnType::TimestampTz(0),
            Self::Bool => ColumnType::Bool,
            Self::Bits { is_reversed: true } => ColumnType::Bits,
            Self::Bits { .. } | Self::Binary { .. } => ColumnType::Bytes,
            Self::Uuid => ColumnType::Uuid,
            Self::Json { .. } => ColumnType::Json,
            // whatever the digits are
            Self::Time { is_counted: true, .. } | Self::OldTime { is_counted: true } => ColumnType::Time(6),
            Self::Time { .. }
            | Self::OldTime { .. }
            | Self::Enum(_)
            | Self::Set(_)
            | Self::Text(_)
            | Self::Inet6
            | Self::Inet4 => ColumnType::Text,
        }
    }

    /// Appends a cell's value.
    pub(super) fn append(&self, raw: &[u8], into: &mut Vec<u8>) -> Result<Form, Malformed> {
        match self {
            Self::Int { width, is_unsigned } => {
                let value = Reader::new(raw).uint(*width)?;
                if *is_unsigned {
                    let _ = write!(into, "{value}");
                } else {
                    let _ = write!(into, "{}", signed(value, *width));
                }
            }
            Self::Float => double::write_float(f32::from_bits(Reader::new(raw).u32()?), into),
            Self::Double => double::write_text(f64::from_bits(Reader::new(raw).u64()?), into),
            Self::Decimal { precision, scale } => decimal::write_text(raw, *precision, *scale, into)?,
            // the year zero is none, and Debezium's number all the same
            Self::Year { is_counted: true } if *raw == [0] => into.push(b'0'),
            Self::Year { .. } => temporal::year(raw, into)?,
            Self::Date => temporal::date(raw, into)?,
            Self::Time { digits, .. } => temporal::time(raw, *digits, into)?,
            Self::OldTime { .. } => temporal::old_time(raw, into)?,
            Self::Datetime(digits) => temporal::datetime(raw, *digits, into)?,
            Self::OldDatetime => temporal::old_datetime(raw, into)?,
            Self::Timestamp(digits) => temporal::timestamp(raw, *digits, into)?,
            Self::OldTimestamp => temporal::old_timestamp(raw, into)?,
            Self::Bool => into.push(if raw.iter().all(|byte| *byte == 0) { b'f' } else { b't' }),
            Self::Enum(words) => enumerated(raw, words, into)?,
            Self::Set(words) => set(raw, words, into)?,
            Self::Text(charset) => into.extend_from_slice(&charset.to_utf8(raw)?),
            Self::Json { is_compact: false } => jsonb::write_text(raw, into)?,
            Self::Json { is_compact: true } => jsonb::write_compact(raw, into)?,
            Self::Uuid => uuid(raw, into)?,
            Self::Inet6 => inet6(padded(raw)?, into),
            Self::Inet4 => _ = write!(into, "{}", Ipv4Addr::from(padded::<4>(raw)?)),
            Self::Bits { is_reversed } => {
                if *is_reversed {
                    into.extend(raw.iter().rev());
                } else {
                    into.extend_from_slice(raw);
                }
                return Ok(Form::Binary);
            }
            Self::Binary { pad_to } => {
                into.extend_from_slice(raw);
                into.extend(std::iter::repeat_n(0, pad_to.saturating_sub(raw.len())));
                return Ok(Form::Binary);
            }
        }
        Ok(Form::Text)
    }
}

fn charset(column: &MappedColumn) -> Result<Charset, String> {
    let number = u16::try_from(column.collation).ok();
    number
        .and_then(charset::decoder)
        .ok_or_else(|| format!("has collation {}, whose character set is not available here", column.collation))
}

fn words(column: &MappedColumn) -> Result<Vec<String>, String> {
    let charset = charset(column)?;
    let mut words = Vec::with_capacity(column.words.len());
    for word in &column.words {
        let word = charset.to_utf8(word).map_err(|error| format!("has a word that cannot be read: {error}"))?;
        words.push(String::from_utf8_lossy(&word).into_owned());
    }
    Ok(words)
}

/// A number of `width` bytes as a signed one.
fn signed(value: u64, width: usize) -> i64 {
    let shift = u32::try_from(64_usize.saturating_sub(8 * width)).unwrap_or_default();
    (value << shift).cast_signed() >> shift
}

/// The word's number, counted from one; 0 is what a value that is no word became.
fn enumerated(raw: &[u8], words: &[String], into: &mut Vec<u8>) -> Result<(), Malformed> {
    let number = Reader::new(raw).uint(raw.len().min(8))?;
    if number == 0 {
        return Ok(());
    }
    let index = usize::try_from(number - 1).unwrap_or(usize::MAX);
    let word = words.get(index).ok_or_else(|| Malformed(format!("an ENUM has no word {number}")))?;
    into.extend_from_slice(word.as_bytes());
    Ok(())
}

/// One bit a word, joined by commas.
fn set(raw: &[u8], words: &[String], into: &mut Vec<u8>) -> Result<(), Malformed> {
    let bits = Reader::new(raw).uint(raw.len().min(8))?;
    if usize::try_from(u64::BITS - bits.leading_zeros()).unwrap_or(usize::MAX) > words.len() {
        return Err(Malformed::new("a SET has more words than its column"));
    }
    let chosen = words.iter().enumerate().filter(|(index, _)| bits >> index & 1 == 1);
    for (place, (_, word)) in chosen.enumerate() {
        if place > 0 {
            into.push(b',');
        }
        into.extend_from_slice(word.as_bytes());
    }
    Ok(())
}

/// Bytes of a fixed length, which lose their zeros at the end in the log.
fn padded<const N: usize>(raw: &[u8]) -> Result<[u8; N], Malformed> {
    let mut bytes = [0; N];
    let room = bytes.get_mut(..raw.len()).ok_or_else(|| Malformed(format!("{N} bytes are {}", raw.len())))?;
    room.copy_from_slice(raw);
    Ok(bytes)
}

/// As the server prints it: one that holds an IPv4 address ends with its text.
fn inet6(bytes: [u8; 16], into: &mut Vec<u8>) {
    let address = Ipv6Addr::from(bytes);
    let [.., a, b, c, d] = bytes;
    if address.segments().starts_with(&[0; 6]) && (a, b) != (0, 0) {
        let _ = write!(into, "::{}", Ipv4Addr::new(a, b, c, d));
    } else {
        let _ = write!(into, "{address}");
    }
}

/// A UUID's sixteen bytes, in their order, as text.
fn uuid(raw: &[u8], into: &mut Vec<u8>) -> Result<(), Malformed> {
    if raw.len() > 16 {
        return Err(Malformed(format!("a UUID has {} bytes", raw.len())));
    }
    into.extend_from_slice(uuid_text(raw).as_bytes());
    Ok(())
}

/// Up to sixteen bytes as the text of a UUID; those that are not there are zero.
pub(super) fn uuid_text(raw: &[u8]) -> String {
    let mut text = String::with_capacity(36);
    let padded = raw.iter().chain(std::iter::repeat(&0)).take(16);
    for (index, byte) in padded.enumerate() {
        let dash = if matches!(index, 4 | 6 | 8 | 10) { "-" } else { "" };
        text.push_str(&format!("{dash}{byte:02x}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(kind: u8, meta: u16) -> MappedColumn {
        MappedColumn { kind, meta, collation: 255, ..MappedColumn::default() }
    }

    fn of(column: &MappedColumn) -> Result<Decoder, String> {
        Decoder::of(column, MysqlValues::Server)
    }

    fn shown(column: &MappedColumn, cell: &[u8]) -> String {
        let raw = Shape::of(column).unwrap().take(&mut Reader::new(cell)).unwrap();
        let mut into = Vec::new();
        of(column).unwrap().append(raw, &mut into).unwrap();
        String::from_utf8(into).unwrap()
    }

    #[test]
    fn integers_have_their_sign() {
        for (kind, cell, signed, unsigned) in [
            (t::TINY, [0xFF; 8], "-1", "255"),
            (t::SHORT, [0xFF; 8], "-1", "65535"),
            (t::INT24, [0xFF; 8], "-1", "16777215"),
            (t::INT24, [0, 0, 0x80, 0, 0, 0, 0, 0], "-8388608", "8388608"),
            (t::LONG, [0xFF; 8], "-1", "4294967295"),
            (t::LONGLONG, [0xFF; 8], "-1", "18446744073709551615"),
        ] {
            let mut column = column(kind, 0);
            assert_eq!(shown(&column, &cell), signed);
            column.is_unsigned = true;
            assert_eq!(shown(&column, &cell), unsigned);
        }
    }

    #[test]
    fn fixed_bytes_get_their_zeros_back() {
        let mut binary = column(t::STRING, 16);
        binary.collation = 63;
        let mut into = Vec::new();
        assert_eq!(of(&binary).unwrap().append(&[0x10], &mut into), Ok(Form::Binary));
        assert_eq!((into.len(), into[0], into[15]), (16, 0x10, 0));
        into.clear();
        Decoder::Uuid.append(&[0x10], &mut into).unwrap();
        assert_eq!(into, b"10000000-0000-0000-0000-000000000000");
    }

    #[test]
    fn debezium_has_forms_of_its_own() {
        let decoded = |column: &MappedColumn, raw: &[u8]| {
            let mut into = Vec::new();
            let decoder = Decoder::of(column, MysqlValues::Debezium).unwrap();
            decoder.append(raw, &mut into).unwrap();
            (decoder.meaning(), into)
        };
        assert_eq!(decoded(&column(t::BIT, 0x0104), &[0x0A, 0xBC]), (ColumnType::Bits, vec![0xBC, 0x0A]));
        assert_eq!(decoded(&column(t::TIME2, 0), &[0x80, 0x10, 0x83]), (ColumnType::Time(6), b"01:02:03".to_vec()));
        assert_eq!(decoded(&column(t::JSON, 4), &[0x02, 1, 0, 7, 0, 5, 1, 0]), (ColumnType::Json, b"[1]".to_vec()));
    }

    #[test]
    fn words_of_enum_and_set() {
        let mut column = column(t::ENUM, 1);
        column.words = vec![b"new".to_vec(), b"paid".to_vec()];
        assert_eq!(shown(&column, &[2]) + "|" + &shown(&column, &[0]), "paid|");
        let decoder = of(&column).unwrap();
        assert!(decoder.append(&[3], &mut Vec::new()).is_err());
        column.kind = t::SET;
        assert_eq!(shown(&column, &[3]) + "|" + &shown(&column, &[0]), "new,paid|");
        assert!(of(&column).unwrap().append(&[4], &mut Vec::new()).is_err());
    }

    #[test]
    fn what_has_no_text_is_refused_with_words() {
        let mut unknown = column(t::VARCHAR, 10);
        unknown.collation = 17;
        for (column, words) in
            [(column(t::GEOMETRY, 4), "geometry"), (unknown, "collation 17"), (column(t::NULL, 0), "type 6")]
        {
            assert!(of(&column).unwrap_err().contains(words));
        }
    }
}
