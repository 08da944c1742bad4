//! What a column's value is to Debezium: one of the types of Kafka Connect, which the formats then turn into bytes.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};

use super::array::{self, Element};
use super::number::Decimal;
use super::time::{self, Span};
use crate::change::{ColumnType, Value};
use crate::config::{BinaryAs, DecimalAs, RecordConfig, TimeFormat};

/// What values of some types become.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Shape {
    binary: BinaryAs,
    decimal: DecimalAs,
    time: TimeFormat,
}

impl Shape {
    #[must_use]
    pub(super) fn new(record: &RecordConfig) -> Self {
        Self { binary: record.binary_as, decimal: record.decimal_as, time: record.time_format }
    }
}

/// The type that a column has in Kafka Connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Text,
    Bool,
    Int16,
    Int32,
    Int64,
    Float,
    Decimal,
    Bytes,
    List,
}

/// The type that a column has in Kafka Connect.
#[must_use]
pub(super) fn class(kind: ColumnType, shape: Shape) -> Class {
    let counts = shape.time == TimeFormat::Debezium;
    match kind {
        ColumnType::Text | ColumnType::Json | ColumnType::Uuid => Class::Text,
        ColumnType::TimeTz | ColumnType::TimestampTz(_) => Class::Text,
        ColumnType::Bool | ColumnType::Bit => Class::Bool,
        ColumnType::Int16 => Class::Int16,
        ColumnType::Int32 => Class::Int32,
        ColumnType::Int64 => Class::Int64,
        ColumnType::Float32 | ColumnType::Float64 => Class::Float,
        ColumnType::Numeric | ColumnType::VariableNumeric | ColumnType::Money => match shape.decimal {
            DecimalAs::Precise => Class::Decimal,
            DecimalAs::Double => Class::Float,
            DecimalAs::String => Class::Text,
        },
        ColumnType::Bits => Class::Bytes,
        ColumnType::Bytes if shape.binary == BinaryAs::Raw => Class::Bytes,
        ColumnType::Bytes => Class::Text,
        ColumnType::Date | ColumnType::Time(0..=3) if counts => Class::Int32,
        ColumnType::Time(_) | ColumnType::Timestamp(_) | ColumnType::Interval if counts => Class::Int64,
        ColumnType::Date | ColumnType::Time(_) | ColumnType::Timestamp(_) | ColumnType::Interval => Class::Text,
        ColumnType::Array(_) => Class::List,
    }
}

/// A value as Kafka Connect holds it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Typed<'a> {
    Null,
    Text(Cow<'a, [u8]>),
    Bool(bool),
    /// Also MySQL's unsigned numbers of 64 bits.
    Int(i128),
    Float32(f32),
    Float64(f64),
    Decimal(Decimal),
    /// Debezium's `VariableScaleDecimal`, a struct of two fields.
    VariableDecimal(Decimal),
    /// `NaN`, `Infinity` or `-Infinity` in a column of exact numbers: only a text can hold them.
    Special(&'static str),
    Bytes(Cow<'a, [u8]>),
    List(Vec<Self>),
}

/// A value is not what its column's type promises, or cannot be written as asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ValueError {
    /// The server's text is not of the type.
    #[error("has a value that is not of its type {}", .0.name())]
    Malformed(ColumnType),
    /// Text that is not UTF-8.
    #[error("is not UTF-8")]
    NotUtf8,
    /// A number that only a text can hold.
    #[error("is {0}, which has no exact form here: set record.decimal-as to \"double\" or \"string\"")]
    Special(&'static str),
    /// Not a number that has an integer's bytes.
    #[error("has a value that is no integer of {0} bytes")]
    NoInteger(usize),
}

/// What the server's value is in Kafka Connect.
///
/// # Errors
/// [`ValueError`]
pub(super) fn decode<'a>(kind: ColumnType, shape: Shape, value: Value<'a>) -> Result<Typed<'a>, ValueError> {
    match (kind, value) {
        (_, Value::Null) => Ok(Typed::Null),
        (ColumnType::Text | ColumnType::Json | ColumnType::Uuid, Value::Text(text)) => {
            Ok(Typed::Text(Cow::Borrowed(text)))
        }
        // what is done with binary columns is not done with them
        (ColumnType::Bits, Value::Binary(bytes)) => Ok(Typed::Bytes(Cow::Borrowed(bytes))),
        (_, Value::Binary(bytes)) => Ok(binary(shape, Cow::Borrowed(bytes))),
        (_, Value::Text(text)) => {
            let text = std::str::from_utf8(text).map_err(|_| ValueError::NotUtf8)?;
            from_text(kind, shape, text).ok_or(ValueError::Malformed(kind))
        }
    }
}

fn from_text(kind: ColumnType, shape: Shape, text: &str) -> Option<Typed<'_>> {
    let as_it_is = Typed::Text(Cow::Borrowed(text.as_bytes()));
    let counts = shape.time == TimeFormat::Debezium;
    Some(match kind {
        ColumnType::Text | ColumnType::Json | ColumnType::Uuid => as_it_is,
        ColumnType::Bool => Typed::Bool(choose(text, "t", "f")?),
        ColumnType::Bit => Typed::Bool(choose(text, "1", "0")?),
        // MySQL's year zero is none, as its zero dates are: it stays what the server calls it
        ColumnType::Int32 if text == "0000" => as_it_is,
        ColumnType::Int16 | ColumnType::Int32 | ColumnType::Int64 => Typed::Int(text.parse().ok()?),
        ColumnType::Float32 => Typed::Float32(text.parse().ok()?),
        ColumnType::Float64 => Typed::Float64(text.parse().ok()?),
        ColumnType::Numeric | ColumnType::VariableNumeric => match shape.decimal {
            DecimalAs::String => javas_name(text).map_or(as_it_is, |name| owned(name.to_owned())),
            DecimalAs::Double => Typed::Float64(text.parse().ok()?),
            DecimalAs::Precise => exact(kind, text)?,
        },
        ColumnType::Money => money(shape, text).unwrap_or(as_it_is),
        ColumnType::Bits => Typed::Bytes(Cow::Owned(bits(text)?)),
        ColumnType::Bytes => binary(shape, Cow::Owned(unhex(text)?)),
        // an infinite day, moment or span has no count and no ISO text: it is what the server calls it
        ColumnType::Date if counts => time::days(text).map_or(as_it_is, int),
        ColumnType::Date => time::iso_date(text).map_or(as_it_is, owned),
        ColumnType::Time(digits) if counts => int(in_unit(time::time_of_day(text)?, digits)),
        ColumnType::Time(_) => as_it_is,
        ColumnType::TimeTz => owned(time::time_utc(text)?),
        ColumnType::Timestamp(digits) if counts => {
            time::count(text).map_or(as_it_is, |count| int(in_unit(count, digits)))
        }
        ColumnType::Timestamp(_) => time::iso(text).map_or(as_it_is, owned),
        ColumnType::TimestampTz(digits) => time::iso_utc(text, digits).map_or(as_it_is, owned),
        // PostgreSQL 17 and later
        ColumnType::Interval if matches!(text, "infinity" | "-infinity") => as_it_is,
        ColumnType::Interval if counts => int(Span::parse(text)?.microseconds()),
        ColumnType::Interval => owned(Span::parse(text)?.iso()),
        ColumnType::Array(kind) => Typed::List(list(*kind, shape, array::parse(text)?)?),
    })
}

fn int<'a>(number: i64) -> Typed<'a> {
    Typed::Int(number.into())
}

fn exact(kind: ColumnType, text: &str) -> Option<Typed<'static>> {
    const SPECIAL: [&str; 3] = ["NaN", "Infinity", "-Infinity"];
    if let Some(special) = SPECIAL.iter().find(|special| **special == text) {
        return Some(Typed::Special(special));
    }
    let decimal = Decimal::parse(text)?;
    let has_scale = kind == ColumnType::Numeric;
    Some(if has_scale { Typed::Decimal(decimal) } else { Typed::VariableDecimal(decimal.stripped()) })
}

/// What Debezium calls a number that is none, where numbers are texts.
fn javas_name(text: &str) -> Option<&'static str> {
    match text {
        "NaN" => Some("NAN"),
        "Infinity" => Some("POSITIVE_INFINITY"),
        "-Infinity" => Some("NEGATIVE_INFINITY"),
        _ => None,
    }
}

/// `-$1,234.50` as a number; `None` for the form of another locale.
fn money(shape: Shape, text: &str) -> Option<Typed<'static>> {
    let (sign, rest) = text.strip_prefix('-').map_or(("", text), |rest| ("-", rest));
    let number = format!("{sign}{}", rest.strip_prefix('$')?.replace(',', ""));
    let decimal = Decimal::parse(&number)?;
    Some(match shape.decimal {
        DecimalAs::Precise => Typed::Decimal(decimal),
        DecimalAs::Double => Typed::Float64(number.parse().ok()?),
        DecimalAs::String => owned(number),
    })
}

/// Columns that keep at most three digits of a second count milliseconds.
fn in_unit(microseconds: i64, digits: u8) -> i64 {
    if digits <= 3 { microseconds.div_euclid(1000) } else { microseconds }
}

fn owned<'a>(text: String) -> Typed<'a> {
    Typed::Text(Cow::Owned(text.into_bytes()))
}

fn choose(text: &str, yes: &str, no: &str) -> Option<bool> {
    if text == yes { Some(true) } else { (text == no).then_some(false) }
}

fn list<'a>(kind: ColumnType, shape: Shape, elements: Vec<Element<'a>>) -> Option<Vec<Typed<'a>>> {
    let typed = |element| match element {
        Element::Null => Some(Typed::Null),
        Element::Nested(elements) => list(kind, shape, elements).map(Typed::List),
        Element::Value(Cow::Borrowed(text)) => from_text(kind, shape, text),
        Element::Value(Cow::Owned(text)) => from_text(kind, shape, &text).map(into_owned),
    };
    elements.into_iter().map(typed).collect()
}

/// The same value without a borrow. Elements of arrays are never arrays themselves.
fn into_owned(value: Typed<'_>) -> Typed<'static> {
    match value {
        Typed::Null => Typed::Null,
        Typed::Text(text) => Typed::Text(Cow::Owned(text.into_owned())),
        Typed::Bool(value) => Typed::Bool(value),
        Typed::Int(value) => Typed::Int(value),
        Typed::Float32(value) => Typed::Float32(value),
        Typed::Float64(value) => Typed::Float64(value),
        Typed::Decimal(value) => Typed::Decimal(value),
        Typed::VariableDecimal(value) => Typed::VariableDecimal(value),
        Typed::Special(value) => Typed::Special(value),
        Typed::Bytes(bytes) => Typed::Bytes(Cow::Owned(bytes.into_owned())),
        Typed::List(values) => Typed::List(values.into_iter().map(into_owned).collect()),
    }
}

fn binary(shape: Shape, bytes: Cow<'_, [u8]>) -> Typed<'_> {
    match shape.binary {
        BinaryAs::Raw => Typed::Bytes(bytes),
        BinaryAs::Base64 => owned(STANDARD.encode(bytes)),
        BinaryAs::Base64UrlSafe => owned(URL_SAFE.encode(bytes)),
        BinaryAs::Hex => owned(bytes.iter().map(|byte| format!("{byte:02x}")).collect()),
    }
}

/// `\x` and two hexadecimal digits a byte (manual, "Binary Data Types").
fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.strip_prefix("\\x")?.as_bytes();
    let digit = |byte: &u8| char::from(*byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let (pairs, rest) = digits.as_chunks::<2>();
    let byte = |[high, low]: &[u8; 2]| Some(digit(high)? << 4 | digit(low)?);
    let bytes: Option<Vec<u8>> = pairs.iter().map(byte).collect();
    bytes.filter(|_| rest.is_empty())
}

/// Bits from the right to the left in bytes from the left to the right, without empty bytes at the end.
fn bits(text: &str) -> Option<Vec<u8>> {
    let mut bytes: Vec<u8> = Vec::with_capacity(text.len().div_ceil(8));
    for eight in text.as_bytes().rchunks(8) {
        let mut byte = 0;
        for bit in eight {
            byte = byte << 1 | u8::from(choose(std::str::from_utf8(&[*bit]).ok()?, "1", "0")?);
        }
        bytes.push(byte);
    }
    while bytes.last() == Some(&0) {
        bytes.pop();
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_from_hexadecimal_digits_and_bits() {
        assert_eq!(unhex("\\x00ff0a7b"), Some(vec![0, 0xff, 0x0a, 0x7b]));
        assert_eq!(unhex("\\x"), Some(vec![]));
        for wrong in ["00ff", "\\x0", "\\x0g"] {
            assert_eq!(unhex(wrong), None);
        }
        assert_eq!(bits("101"), Some(vec![5]));
        assert_eq!(bits("1000000001"), Some(vec![1, 2]));
        assert_eq!(bits("0000000000"), Some(vec![]));
        assert_eq!(bits("12"), None);
    }

    #[test]
    fn what_is_infinite_is_what_the_server_calls_it() {
        for time in [TimeFormat::Debezium, TimeFormat::Iso] {
            let shape = Shape { time, ..Shape::default() };
            for kind in [ColumnType::Date, ColumnType::TimestampTz(6), ColumnType::Interval] {
                for text in ["infinity", "-infinity"] {
                    let value = decode(kind, shape, Value::Text(text.as_bytes()));
                    assert_eq!(value, Ok(Typed::Text(Cow::Borrowed(text.as_bytes()))), "{kind:?}");
                }
            }
        }
    }

    #[test]
    fn a_value_that_is_not_of_its_type_is_named() {
        let error = |kind| decode(kind, Shape::default(), Value::Text(b"x")).unwrap_err().to_string();
        assert_eq!(error(ColumnType::Bool), "has a value that is not of its type boolean");
        assert_eq!(error(ColumnType::Int64), "has a value that is not of its type bigint");
        assert_eq!(error(ColumnType::Array(&ColumnType::Text)), "has a value that is not of its type array");
        let error = decode(ColumnType::Date, Shape::default(), Value::Text(b"\xff")).unwrap_err();
        assert_eq!(error.to_string(), "is not UTF-8");
    }

    /// What a value is and what its column is said to be agree.
    #[test]
    fn values_are_of_their_columns_class() {
        let shapes = [(BinaryAs::Raw, DecimalAs::Precise, TimeFormat::Debezium)].into_iter().chain([
            (BinaryAs::Hex, DecimalAs::Double, TimeFormat::Iso),
            (BinaryAs::Base64, DecimalAs::String, TimeFormat::Iso),
        ]);
        for (binary, decimal, time) in shapes {
            let shape = Shape { binary, decimal, time };
            for (kind, text) in [
                (ColumnType::Text, "x"),
                (ColumnType::Json, "{}"),
                (ColumnType::Uuid, "u"),
                (ColumnType::Bool, "t"),
                (ColumnType::Bit, "1"),
                (ColumnType::Bits, "11"),
                (ColumnType::Int16, "1"),
                (ColumnType::Int32, "1"),
                (ColumnType::Int64, "1"),
                (ColumnType::Float32, "1"),
                (ColumnType::Float64, "1"),
                (ColumnType::Numeric, "1.0"),
                (ColumnType::VariableNumeric, "1.0"),
                (ColumnType::Money, "-$1,234.50"),
                (ColumnType::Bytes, "\\x00"),
                (ColumnType::Date, "2024-01-01"),
                (ColumnType::Time(3), "00:00:00"),
                (ColumnType::Time(6), "00:00:00"),
                (ColumnType::TimeTz, "00:00:00+00"),
                (ColumnType::Timestamp(3), "2024-01-01 00:00:00"),
                (ColumnType::TimestampTz(3), "2024-01-01 00:00:00+00"),
                (ColumnType::Interval, "1 day"),
                (ColumnType::Array(&ColumnType::Text), "{}"),
            ] {
                let is = match decode(kind, shape, Value::Text(text.as_bytes())).unwrap() {
                    Typed::Null => unreachable!(),
                    Typed::Text(_) => Class::Text,
                    Typed::Bool(_) => Class::Bool,
                    Typed::Int(_) => Class::Int64,
                    Typed::Float32(_) | Typed::Float64(_) => Class::Float,
                    Typed::Decimal(_) | Typed::VariableDecimal(_) | Typed::Special(_) => Class::Decimal,
                    Typed::Bytes(_) => Class::Bytes,
                    Typed::List(_) => Class::List,
                };
                let said = match class(kind, shape) {
                    Class::Int16 | Class::Int32 => Class::Int64,
                    other => other,
                };
                assert_eq!(is, said, "{kind:?} {shape:?}");
            }
        }
    }
}
