//! MySQL's binary JSON as text (MySQL source, `sql-common/json_binary.h` for the bytes, `json_dom.cc` for the text).
//!
//! ```text
//! document   type u8 · value
//! container  count · size in bytes · key entries (objects) · value entries · keys · values
//! key entry  offset · length u16                    value entry  type u8 · offset, or the value where it fits
//! ```
//!
//! Counts, sizes and offsets have two bytes, in large containers four; offsets count from the container's beginning. Keys
//! stand in the server's order: shorter ones first.

use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::source::mysql::{decimal, double};

/// The server makes and reads no deeper documents (`JSON_DOCUMENT_MAX_DEPTH`).
const MAX_DEPTH: usize = 100;

/// Types of values.
mod kind {
    pub(super) const SMALL_OBJECT: u8 = 0x00;
    pub(super) const LARGE_OBJECT: u8 = 0x01;
    pub(super) const SMALL_ARRAY: u8 = 0x02;
    pub(super) const LARGE_ARRAY: u8 = 0x03;
    pub(super) const LITERAL: u8 = 0x04;
    pub(super) const INT16: u8 = 0x05;
    pub(super) const UINT16: u8 = 0x06;
    pub(super) const INT32: u8 = 0x07;
    pub(super) const UINT32: u8 = 0x08;
    pub(super) const INT64: u8 = 0x09;
    pub(super) const UINT64: u8 = 0x0A;
    pub(super) const DOUBLE: u8 = 0x0B;
    pub(super) const STRING: u8 = 0x0C;
    pub(super) const OPAQUE: u8 = 0x0F;
}

/// SQL types of opaque values that are more than bytes (MySQL source, `field_types.h`).
mod field {
    pub(super) const TIMESTAMP: u8 = 7;
    pub(super) const DATE: u8 = 10;
    pub(super) const TIME: u8 = 11;
    pub(super) const DATETIME: u8 = 12;
    pub(super) const NEWDECIMAL: u8 = 246;
    pub(super) const VAR_STRING: u8 = 253;
}

/// Bytes are not a JSON document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JsonbError {
    /// Bytes are missing.
    #[error("the JSON document ends in the middle of a value")]
    Cut,
    /// An offset leads out of the document, or back to its head.
    #[error("the JSON document has a value outside of its bytes")]
    Outside,
    /// Values share bytes, so that the text could be of any length.
    #[error("the JSON document uses the same bytes for several values")]
    Shared,
    /// Too many levels.
    #[error("the JSON document has more than {MAX_DEPTH} levels")]
    Deep,
    /// No such type.
    #[error("the JSON document has a value of type {0:#04x}, which is not known")]
    Type(u8),
    /// No such literal.
    #[error("the JSON document has literal {0:#04x}, which is not known")]
    Literal(u8),
    /// A text's length has too many bytes.
    #[error("the JSON document has a text without a length")]
    Length,
    /// A key or a text is not UTF-8.
    #[error("the JSON document has a text that is not UTF-8")]
    Text,
    /// Infinite, or not a number.
    #[error("the JSON document has a number that is not finite")]
    Number,
    /// A decimal cannot be read.
    #[error("the JSON document has a decimal that cannot be read")]
    Decimal(#[from] decimal::DecimalError),
}

/// Appends the text of a document, byte for byte what the server's SELECT prints.
///
/// # Errors
/// What is wrong with the bytes; some text may have been appended.
pub fn write_text(bytes: &[u8], out: &mut Vec<u8>) -> Result<(), JsonbError> {
    Writer { out, left: bytes.len(), style: Style::Server }.document(bytes)
}

/// Appends the text of a document as Debezium's connectors make it from the binary log: no blanks, no exponents, no zeros
/// at the end of a fraction of a second, and bare base64 for bytes.
///
/// # Errors
/// What is wrong with the bytes; some text may have been appended.
pub fn write_compact(bytes: &[u8], out: &mut Vec<u8>) -> Result<(), JsonbError> {
    Writer { out, left: bytes.len(), style: Style::Debezium }.document(bytes)
}

/// Whose text it is to be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Style {
    Server,
    Debezium,
}

struct Writer<'a> {
    out: &'a mut Vec<u8>,
    /// Bytes that no value has used yet: what bounds the text of a document that is not the server's.
    left: usize,
    style: Style,
}

impl Writer<'_> {
    fn document(&mut self, bytes: &[u8]) -> Result<(), JsonbError> {
        match bytes.split_first() {
            // what INSERT IGNORE leaves where it had no document to write
            None => self.out.extend_from_slice(b"null"),
            Some((kind, value)) => self.value(*kind, value, 0)?,
        }
        Ok(())
    }

    /// A value that begins with `bytes`, which may hold more behind it.
    fn value(&mut self, kind: u8, bytes: &[u8], depth: usize) -> Result<(), JsonbError> {
        match kind {
            kind::SMALL_OBJECT => return self.container::<2>(bytes, true, depth + 1),
            kind::LARGE_OBJECT => return self.container::<4>(bytes, true, depth + 1),
            kind::SMALL_ARRAY => return self.container::<2>(bytes, false, depth + 1),
            kind::LARGE_ARRAY => return self.container::<4>(bytes, false, depth + 1),
            kind::LITERAL => {
                let text: &[u8] = match array(bytes)? {
                    [0] => b"null",
                    [1] => b"true",
                    [2] => b"false",
                    [other] => return Err(JsonbError::Literal(other)),
                };
                self.out.extend_from_slice(text);
            }
            kind::INT16 => self.display(i16::from_le_bytes(array(bytes)?)),
            kind::UINT16 => self.display(u16::from_le_bytes(array(bytes)?)),
            kind::INT32 => self.display(i32::from_le_bytes(array(bytes)?)),
            kind::UINT32 => self.display(u32::from_le_bytes(array(bytes)?)),
            kind::INT64 => self.display(i64::from_le_bytes(array(bytes)?)),
            kind::UINT64 => self.display(u64::from_le_bytes(array(bytes)?)),
            kind::DOUBLE => self.double(f64::from_le_bytes(array(bytes)?))?,
            kind::STRING => {
                let text = self.prefixed(bytes)?;
                self.quoted(text)?;
            }
            kind::OPAQUE => {
                let (field, bytes) = bytes.split_first().ok_or(JsonbError::Cut)?;
                let value = self.prefixed(bytes)?;
                self.opaque(*field, value)?;
            }
            other => return Err(JsonbError::Type(other)),
        }
        Ok(())
    }

    /// An object or an array, whose numbers have `WIDTH` bytes.
    fn container<const WIDTH: usize>(&mut self, bytes: &[u8], is_object: bool, depth: usize) -> Result<(), JsonbError> {
        if depth > MAX_DEPTH {
            return Err(JsonbError::Deep);
        }
        let (count, rest) = number::<WIDTH>(bytes)?;
        let (size, rest) = number::<WIDTH>(rest)?;
        let bytes = bytes.get(..size).ok_or(JsonbError::Cut)?;
        let key_entry = if is_object { WIDTH + 2 } else { 0 };
        let heads = count.checked_mul(key_entry + 1 + WIDTH).ok_or(JsonbError::Cut)?;
        let head = heads.checked_add(2 * WIDTH).filter(|head| *head <= size).ok_or(JsonbError::Cut)?;
        self.charge(head)?;
        let (mut keys, mut values) = rest.split_at_checked(count * key_entry).ok_or(JsonbError::Cut)?;
        // what an offset leads to lies behind the head, so that nothing can hold itself
        let behind = |offset: usize| bytes.get(offset..).filter(|_| offset >= head).ok_or(JsonbError::Outside);
        self.out.push(if is_object { b'{' } else { b'[' });
        for index in 0..count {
            if index > 0 {
                self.out.extend_from_slice(if self.style == Style::Server { b", " } else { b"," });
            }
            if is_object {
                let (offset, rest) = number::<WIDTH>(keys)?;
                let (length, rest) = number::<2>(rest)?;
                keys = rest;
                self.charge(length)?;
                self.quoted(behind(offset)?.get(..length).ok_or(JsonbError::Outside)?)?;
                self.out.extend_from_slice(if self.style == Style::Server { b": " } else { b":" });
            }
            let (kind, place) = values.split_first().ok_or(JsonbError::Cut)?;
            if is_inlined::<WIDTH>(*kind) {
                self.value(*kind, place, depth)?;
            } else {
                let (offset, _) = number::<WIDTH>(place)?;
                self.value(*kind, behind(offset)?, depth)?;
            }
            values = place.get(WIDTH..).ok_or(JsonbError::Cut)?;
        }
        self.out.push(if is_object { b'}' } else { b']' });
        Ok(())
    }

    fn charge(&mut self, bytes: usize) -> Result<(), JsonbError> {
        self.left = self.left.checked_sub(bytes).ok_or(JsonbError::Shared)?;
        Ok(())
    }

    /// Bytes behind their length: seven bits a byte, the lowest first; the highest bit says that another follows.
    fn prefixed<'b>(&mut self, bytes: &'b [u8]) -> Result<&'b [u8], JsonbError> {
        let mut length = 0_u64;
        for (index, shift) in [0, 7, 14, 21, 28].into_iter().enumerate() {
            let byte = *bytes.get(index).ok_or(JsonbError::Cut)?;
            length |= u64::from(byte & 0x7F) << shift;
            if byte & 0x80 == 0 {
                let length = usize::try_from(length).map_err(|_| JsonbError::Length)?;
                let text = bytes.get(index + 1..).and_then(|rest| rest.get(..length)).ok_or(JsonbError::Cut)?;
                self.charge(length)?;
                return Ok(text);
            }
        }
        Err(JsonbError::Length)
    }

    fn display(&mut self, value: impl std::fmt::Display) {
        let _ = write!(self.out, "{value}");
    }

    fn double(&mut self, value: f64) -> Result<(), JsonbError> {
        if !value.is_finite() {
            return Err(JsonbError::Number);
        }
        if self.style == Style::Debezium {
            double::write_java_plain(value, self.out);
            return Ok(());
        }
        let begin = self.out.len();
        double::write_text(value, self.out);
        // it stays a floating-point number when it is read again
        if !self.out.get(begin..).unwrap_or_default().iter().any(|byte| matches!(byte, b'.' | b'e')) {
            self.out.extend_from_slice(b".0");
        }
        Ok(())
    }

    fn quoted(&mut self, text: &[u8]) -> Result<(), JsonbError> {
        std::str::from_utf8(text).map_err(|_| JsonbError::Text)?;
        self.out.push(b'"');
        let mut rest = text;
        while let Some(at) = rest.iter().position(|byte| *byte < 0x20 || matches!(byte, b'"' | b'\\')) {
            let (plain, tail) = rest.split_at_checked(at).unwrap_or((rest, &[]));
            self.out.extend_from_slice(plain);
            let Some((byte, tail)) = tail.split_first() else { break };
            match byte {
                b'"' => self.out.extend_from_slice(b"\\\""),
                b'\\' => self.out.extend_from_slice(b"\\\\"),
                0x08 => self.out.extend_from_slice(b"\\b"),
                b'\t' => self.out.extend_from_slice(b"\\t"),
                b'\n' => self.out.extend_from_slice(b"\\n"),
                0x0C => self.out.extend_from_slice(b"\\f"),
                b'\r' => self.out.extend_from_slice(b"\\r"),
                other if self.style == Style::Server => _ = write!(self.out, "\\u{other:04x}"),
                other => _ = write!(self.out, "\\u{other:04X}"),
            }
            rest = tail;
        }
        self.out.extend_from_slice(rest);
        self.out.push(b'"');
        Ok(())
    }

    /// A value of an SQL type that JSON has not: decimals are numbers, times are texts, all else is base64.
    fn opaque(&mut self, field: u8, value: &[u8]) -> Result<(), JsonbError> {
        match field {
            field::NEWDECIMAL => {
                let [precision, scale] = array(value)?;
                decimal::write_text(value.get(2..).unwrap_or_default(), precision, scale, self.out)?;
            }
            field::DATE | field::TIME | field::DATETIME | field::TIMESTAMP => {
                let packed = i64::from_le_bytes(array(value)?);
                self.out.push(b'"');
                self.time(field, packed);
                self.out.push(b'"');
            }
            // what a subquery gave
            field::VAR_STRING if self.style == Style::Server => self.quoted(value)?,
            _ if self.style == Style::Debezium => _ = write!(self.out, "\"{}\"", STANDARD.encode(value)),
            _ => {
                let _ = write!(self.out, "\"base64:type{field}:");
                for (index, line) in STANDARD.encode(value).as_bytes().chunks(76).enumerate() {
                    if index > 0 {
                        self.out.extend_from_slice(b"\\n");
                    }
                    self.out.extend_from_slice(line);
                }
                self.out.push(b'"');
            }
        }
        Ok(())
    }

    /// A packed time: year and month, day, hour, minute and second in 40 bits, then 24 bits of microseconds.
    fn time(&mut self, field: u8, packed: i64) {
        let magnitude = packed.unsigned_abs();
        let (whole, microseconds) = (magnitude >> 24, magnitude & 0xFF_FFFF);
        let (date, time) = (whole >> 17, whole & 0x1_FFFF);
        if field == field::TIME {
            let sign = if packed < 0 { "-" } else { "" };
            let _ = write!(self.out, "{sign}{:02}:{:02}:{:02}", whole >> 12 & 0x3FF, whole >> 6 & 63, whole & 63);
        } else {
            let (months, day) = (date >> 5, date & 31);
            let _ = write!(self.out, "{:04}-{:02}-{day:02}", months / 13, months % 13);
            if field == field::DATE {
                return;
            }
            let _ = write!(self.out, " {:02}:{:02}:{:02}", time >> 12, time >> 6 & 63, time & 63);
        }
        if self.style == Style::Server {
            let _ = write!(self.out, ".{microseconds:06}");
        } else if microseconds > 0 {
            let fraction = format!("{microseconds:06}");
            let _ = write!(self.out, ".{}", fraction.trim_end_matches('0'));
        }
    }
}

/// Whether a value stands in its entry, not behind an offset.
fn is_inlined<const WIDTH: usize>(kind: u8) -> bool {
    match kind {
        kind::LITERAL | kind::INT16 | kind::UINT16 => true,
        kind::INT32 | kind::UINT32 => WIDTH == 4,
        _ => false,
    }
}

fn array<const N: usize>(bytes: &[u8]) -> Result<[u8; N], JsonbError> {
    bytes.first_chunk().copied().ok_or(JsonbError::Cut)
}

/// A little-endian number of `WIDTH` bytes, and what is behind it.
fn number<const WIDTH: usize>(bytes: &[u8]) -> Result<(usize, &[u8]), JsonbError> {
    let (number, rest) = bytes.split_first_chunk::<WIDTH>().ok_or(JsonbError::Cut)?;
    let number = number.iter().rev().fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    Ok((usize::try_from(number).map_err(|_| JsonbError::Cut)?, rest))
}

#[cfg(test)]
mod tests;
