//! MySQL's binary JSON as text, byte for byte what the server prints (MySQL source, `sql-common/json_binary.h` and
//! `json_dom.cc`): keys in their stored order, a blank behind `:` and `,`, numbers exact.

use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::number;
use super::table_map::column_type;
use super::temporal;
use super::wire::{Malformed, Reader};

/// The server takes no deeper documents (`JSON_DOCUMENT_MAX_DEPTH`).
const MAX_DEPTH: usize = 100;

const SMALL_OBJECT: u8 = 0x00;
const LARGE_OBJECT: u8 = 0x01;
const SMALL_ARRAY: u8 = 0x02;
const LARGE_ARRAY: u8 = 0x03;
const LITERAL: u8 = 0x04;
const INT16: u8 = 0x05;
const UINT16: u8 = 0x06;
const INT32: u8 = 0x07;
const UINT32: u8 = 0x08;
const INT64: u8 = 0x09;
const UINT64: u8 = 0x0A;
const DOUBLE: u8 = 0x0B;
const STRING: u8 = 0x0C;
const OPAQUE: u8 = 0x0F;

/// Appends the text of a document.
pub(super) fn text(document: &[u8], into: &mut Vec<u8>) -> Result<(), Malformed> {
    match document.split_first() {
        // what an INSERT IGNORE leaves where no document was given
        None => {
            into.extend_from_slice(b"null");
            Ok(())
        }
        Some((kind, value)) => scalar_or_container(*kind, value, 0, into),
    }
}

fn scalar_or_container(kind: u8, value: &[u8], depth: usize, into: &mut Vec<u8>) -> Result<(), Malformed> {
    if depth > MAX_DEPTH {
        return Err(Malformed::new("a JSON document is too deep"));
    }
    let mut reader = Reader::new(value);
    match kind {
        SMALL_OBJECT => return container(value, 2, true, depth, into),
        LARGE_OBJECT => return container(value, 4, true, depth, into),
        SMALL_ARRAY => return container(value, 2, false, depth, into),
        LARGE_ARRAY => return container(value, 4, false, depth, into),
        LITERAL => into.extend_from_slice(match reader.u8()? {
            0 => b"null",
            1 => b"true",
            2 => b"false",
            other => return Err(Malformed(format!("a JSON document has literal {other}"))),
        }),
        INT16 => _ = write!(into, "{}", i16::from_le_bytes(reader.u16()?.to_le_bytes())),
        UINT16 => _ = write!(into, "{}", reader.u16()?),
        INT32 => _ = write!(into, "{}", i32::from_le_bytes(reader.u32()?.to_le_bytes())),
        UINT32 => _ = write!(into, "{}", reader.u32()?),
        INT64 => _ = write!(into, "{}", i64::from_le_bytes(reader.u64()?.to_le_bytes())),
        UINT64 => _ = write!(into, "{}", reader.u64()?),
        DOUBLE => double(f64::from_bits(reader.u64()?), into),
        STRING => {
            let length = varying_length(&mut reader)?;
            quoted(reader.take(length)?, into);
        }
        OPAQUE => {
            let kind = reader.u8()?;
            let length = varying_length(&mut reader)?;
            opaque(kind, reader.take(length)?, into)?;
        }
        other => return Err(Malformed(format!("a JSON document has a value of type {other}"))),
    }
    Ok(())
}

/// An object or an array: count and size, places of keys, places of values, and then both, at their offsets.
fn container(bytes: &[u8], width: usize, is_object: bool, depth: usize, into: &mut Vec<u8>) -> Result<(), Malformed> {
    let number = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
    let mut reader = Reader::new(bytes);
    let (count, size) = (number(reader.uint(width)?), number(reader.uint(width)?));
    let bytes = bytes.get(..size).ok_or_else(|| Malformed::new("a JSON document is longer than its bytes"))?;
    let outside = || Malformed::new("a JSON document has a value outside of it");
    let mut keys = Reader::new(reader.rest());
    if is_object {
        reader.take(count.saturating_mul(width + 2))?;
    }
    into.push(if is_object { b'{' } else { b'[' });
    for index in 0..count {
        if index > 0 {
            into.extend_from_slice(b", ");
        }
        if is_object {
            let (offset, length) = (number(keys.uint(width)?), usize::from(keys.u16()?));
            let key = bytes.get(offset..).and_then(|rest| rest.get(..length));
            quoted(key.ok_or_else(outside)?, into);
            into.extend_from_slice(b": ");
        }
        let (kind, place) = (reader.u8()?, reader.take(width)?);
        let is_inlined = matches!(kind, LITERAL | INT16 | UINT16) || (width == 4 && matches!(kind, INT32 | UINT32));
        let value = if is_inlined {
            place
        } else {
            let offset = number(Reader::new(place).uint(width)?);
            // a value lies behind the header, so that no document can hold itself
            let offset = Some(offset).filter(|offset| *offset > 2 * width);
            offset.and_then(|offset| bytes.get(offset..)).ok_or_else(outside)?
        };
        scalar_or_container(kind, value, depth + 1, into)?;
    }
    into.push(if is_object { b'}' } else { b']' });
    Ok(())
}

/// Seven bits a byte, the lowest first; the highest bit says that another follows.
fn varying_length(reader: &mut Reader<'_>) -> Result<usize, Malformed> {
    let mut length = 0_u64;
    for shift in [0, 7, 14, 21, 28] {
        let byte = reader.u8()?;
        length |= u64::from(byte & 0x7F) << shift;
        if byte & 0x80 == 0 {
            return usize::try_from(length).map_err(|_| Malformed::new("a JSON text is too long"));
        }
    }
    Err(Malformed::new("a JSON text has no length"))
}

/// A number that stays floating point when it is read again.
fn double(value: f64, into: &mut Vec<u8>) {
    let begin = into.len();
    number::double(value, into);
    let is_plain = into.get(begin..).unwrap_or_default().iter().all(|byte| byte.is_ascii_digit() || *byte == b'-');
    if is_plain {
        into.extend_from_slice(b".0");
    }
}

fn quoted(text: &[u8], into: &mut Vec<u8>) {
    into.push(b'"');
    let mut rest = text;
    while let Some(at) = rest.iter().position(|byte| *byte < 0x20 || matches!(byte, b'"' | b'\\')) {
        let (plain, tail) = rest.split_at(at);
        into.extend_from_slice(plain);
        let Some((byte, tail)) = tail.split_first() else { break };
        match byte {
            b'"' => into.extend_from_slice(b"\\\""),
            b'\\' => into.extend_from_slice(b"\\\\"),
            0x08 => into.extend_from_slice(b"\\b"),
            0x09 => into.extend_from_slice(b"\\t"),
            0x0A => into.extend_from_slice(b"\\n"),
            0x0C => into.extend_from_slice(b"\\f"),
            0x0D => into.extend_from_slice(b"\\r"),
            other => _ = write!(into, "\\u{other:04x}"),
        }
        rest = tail;
    }
    into.extend_from_slice(rest);
    into.push(b'"');
}

/// A value of an SQL type: a decimal is a number, times are texts, anything else is base64 with its type before it.
fn opaque(kind: u8, value: &[u8], into: &mut Vec<u8>) -> Result<(), Malformed> {
    match kind {
        column_type::NEWDECIMAL => {
            let mut reader = Reader::new(value);
            let (precision, scale) = (reader.u8()?, reader.u8()?);
            return number::decimal(reader.rest(), precision, scale, into);
        }
        column_type::DATE | column_type::DATETIME | column_type::TIMESTAMP | column_type::TIME => {
            let packed = i64::from_le_bytes(Reader::new(value).u64()?.to_le_bytes());
            into.push(b'"');
            temporal::packed(kind, packed, into);
            into.push(b'"');
        }
        _ => _ = write!(into, "\"base64:type{kind}:{}\"", STANDARD.encode(value)),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shown(document: &[u8]) -> String {
        let mut into = Vec::new();
        text(document, &mut into).unwrap();
        String::from_utf8(into).unwrap()
    }

    #[test]
    fn documents_are_printed_as_the_server_does() {
        assert_eq!(shown(b""), "null");
        assert_eq!(shown(b"\x04\x01"), "true");
        assert_eq!(shown(b"\x0c\x05a\"\n\x01\x7f"), "\"a\\\"\\n\\u0001\u{7f}\"");
        assert_eq!(shown(b"\x0b\0\0\0\0\0\0\xf0\x3f"), "1.0");
        // {"a": 1, "b": [null, "x"]}
        let document = b"\x00\x02\0\x22\0\x12\0\x01\0\x13\0\x01\0\x05\x01\0\x02\x14\0ab\
                         \x02\0\x0c\0\x04\0\0\x0c\x0a\0\x01x\0\0";
        assert_eq!(shown(document), "{\"a\": 1, \"b\": [null, \"x\"]}");
        // 123.450 as a decimal of seven digits
        assert_eq!(shown(b"\x0f\xf6\x06\x06\x03\x80\x7b\x01\xc2"), "123.450");
        assert_eq!(shown(b"\x0f\x0f\x02ab"), "\"base64:type15:YWI=\"");
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_document_or_refused(document in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = text(&document, &mut Vec::new());
        }
    }
}
