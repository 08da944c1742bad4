//! The bytes of a column's value, as Debezium's string and simple header converters write them.
//!
//! Text, numbers, UUIDs and JSON are the server's own text, byte for byte. What differs from it: booleans are words,
//! binary is raw (base64 in a header), a date is a count of days, a time without zone a count in the column's unit, a
//! moment ISO text in UTC.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;

use crate::change::{ColumnType, Value};

/// The value does not have the form that its type has.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("has a value that is not of its type {kind:?}")]
pub(super) struct ValueError {
    /// The column's type.
    pub kind: ColumnType,
}

/// The bytes for a key or a record's value; `None` for NULL.
///
/// # Errors
/// [`ValueError`]
pub(super) fn body<'a>(kind: ColumnType, value: Value<'a>) -> Result<Option<Cow<'a, [u8]>>, ValueError> {
    match (kind, value) {
        (_, Value::Null) => Ok(None),
        (_, Value::Binary(bytes)) => Ok(Some(Cow::Borrowed(bytes))),
        (ColumnType::Bytes, Value::Text(text)) => unhex(text).map(|bytes| Some(Cow::Owned(bytes))),
        (_, Value::Text(text)) => plain(kind, text).map(Some),
    }
}

/// The bytes for a header; `None` for NULL.
///
/// # Errors
/// [`ValueError`]
pub(super) fn header<'a>(kind: ColumnType, value: Value<'a>) -> Result<Option<Cow<'a, [u8]>>, ValueError> {
    let bytes = body(kind, value)?;
    if kind != ColumnType::Bytes && !matches!(value, Value::Binary(_)) {
        return Ok(bytes);
    }
    Ok(bytes.map(|bytes| Cow::Owned(STANDARD.encode(bytes).into_bytes())))
}

/// The record's time in milliseconds since 1970; `None` for NULL and for what Kafka cannot hold: infinity, times before
/// 1970, a text that is no time.
#[must_use]
pub(super) fn timestamp_ms(kind: ColumnType, value: Value<'_>) -> Option<i64> {
    let Value::Text(text) = value else { return None };
    let text = std::str::from_utf8(text).ok()?;
    let milliseconds = match kind {
        ColumnType::Timestamp(_) | ColumnType::TimestampTz => microseconds(text)?.div_euclid(1000),
        ColumnType::Int64 | ColumnType::Int32 => text.parse().ok()?,
        _ => return None,
    };
    (milliseconds >= 0).then_some(milliseconds)
}

fn plain(kind: ColumnType, text: &[u8]) -> Result<Cow<'_, [u8]>, ValueError> {
    let number = |number: i64| Cow::Owned(number.to_string().into_bytes());
    let as_str = || std::str::from_utf8(text).map_err(|_| ValueError { kind });
    Ok(match kind {
        ColumnType::Bool => match text {
            b"t" => Cow::Borrowed(b"true"),
            b"f" => Cow::Borrowed(b"false"),
            _ => return Err(ValueError { kind }),
        },
        // infinity and years before Christ have no count: their text says what they are
        ColumnType::Date => days(as_str()?).map_or(Cow::Borrowed(text), number),
        ColumnType::Timestamp(digits) => {
            let unit = if digits <= 3 { 1000 } else { 1 };
            microseconds(as_str()?).map_or(Cow::Borrowed(text), |count| number(count.div_euclid(unit)))
        }
        ColumnType::TimestampTz => match as_str()?.strip_suffix("+00") {
            Some(moment) => Cow::Owned(format!("{}Z", moment.replacen(' ', "T", 1)).into_bytes()),
            None => Cow::Borrowed(text),
        },
        _ => Cow::Borrowed(text),
    })
}

/// Days since 1970-01-01.
fn days(text: &str) -> Option<i64> {
    let date: Date = text.parse().ok()?;
    let midnight = date.to_datetime(jiff::civil::Time::midnight());
    Some(TimeZone::UTC.to_timestamp(midnight).ok()?.as_second().div_euclid(86_400))
}

/// Microseconds since 1970-01-01 of an ISO text, taken as UTC.
fn microseconds(text: &str) -> Option<i64> {
    let time: DateTime = text.strip_suffix("+00").unwrap_or(text).parse().ok()?;
    Some(TimeZone::UTC.to_timestamp(time).ok()?.as_microsecond())
}

/// `\x` and two hexadecimal digits a byte (manual, "Binary Data Types").
fn unhex(text: &[u8]) -> Result<Vec<u8>, ValueError> {
    let wrong = || ValueError { kind: ColumnType::Bytes };
    let digits = text.strip_prefix(b"\\x").ok_or_else(wrong)?;
    let digit = |byte: &u8| char::from(*byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let (pairs, rest) = digits.as_chunks::<2>();
    let byte = |[high, low]: &[u8; 2]| Some(digit(high)? << 4 | digit(low)?);
    let bytes: Option<Vec<u8>> = pairs.iter().map(byte).collect();
    bytes.filter(|_| rest.is_empty()).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_header(kind: ColumnType, text: &str) -> String {
        let bytes = header(kind, Value::Text(text.as_bytes())).unwrap().unwrap();
        String::from_utf8(bytes.into_owned()).unwrap()
    }

    #[test]
    fn headers_are_what_the_simple_header_converter_writes() {
        for (kind, text, expected) in [
            (ColumnType::Int64, "-1", "-1"),
            (ColumnType::Bool, "t", "true"),
            (ColumnType::Bool, "f", "false"),
            (ColumnType::Numeric, "12.50", "12.50"),
            (ColumnType::Bytes, "\\x00ff10", "AP8Q"),
            (ColumnType::Date, "1970-01-02", "1"),
            (ColumnType::Date, "1969-12-31", "-1"),
            (ColumnType::Date, "infinity", "infinity"),
            (ColumnType::Timestamp(6), "2024-01-02 03:04:05.678901", "1704164645678901"),
            (ColumnType::Timestamp(3), "2024-01-02 03:04:05.678", "1704164645678"),
            (ColumnType::Timestamp(0), "2024-01-02 03:04:05", "1704164645000"),
            (ColumnType::TimestampTz, "2024-01-02 03:04:05.000006+00", "2024-01-02T03:04:05.000006Z"),
            (ColumnType::TimestampTz, "infinity", "infinity"),
            (ColumnType::Uuid, "6f1c2a52-0d0b-4c55-9a5e-2a1f0c7f1a01", "6f1c2a52-0d0b-4c55-9a5e-2a1f0c7f1a01"),
        ] {
            assert_eq!(in_header(kind, text), expected, "{kind:?} {text}");
        }
        assert_eq!(header(ColumnType::Int64, Value::Null).unwrap(), None);
    }

    #[test]
    fn binary_bodies_are_raw_and_no_bytes_are_not_null() {
        let raw = |text: &'static [u8]| body(ColumnType::Bytes, Value::Text(text)).unwrap().unwrap().into_owned();
        assert_eq!(raw(b"\\x00ff0a7b"), [0, 0xff, 0x0a, 0x7b]);
        assert_eq!(raw(b"\\x"), [0_u8; 0]);
        for wrong in [b"00ff".as_slice(), b"\\x0", b"\\x0g"] {
            assert!(body(ColumnType::Bytes, Value::Text(wrong)).is_err());
        }
    }

    #[test]
    fn record_times_are_floored_and_fall_back_when_kafka_cannot_hold_them() {
        let time = |kind, text: &'static str| timestamp_ms(kind, Value::Text(text.as_bytes()));
        assert_eq!(time(ColumnType::Timestamp(6), "2024-01-02 03:04:05.678901"), Some(1_704_164_645_678));
        assert_eq!(time(ColumnType::TimestampTz, "2024-01-02 03:04:05.678901+00"), Some(1_704_164_645_678));
        assert_eq!(time(ColumnType::Int64, "1704164645678"), Some(1_704_164_645_678));
        assert_eq!(time(ColumnType::Timestamp(6), "1969-12-31 23:59:59.999"), None);
        assert_eq!(time(ColumnType::Timestamp(6), "infinity"), None);
        assert_eq!(timestamp_ms(ColumnType::Int64, Value::Null), None);
    }
}
