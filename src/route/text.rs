//! Values as text: what Kafka Connect's `StringConverter` and `SimpleHeaderConverter` write.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::number;
use super::typed::Typed;

/// The bytes of a key or value of format `string`; `None` for NULL. Binary values are passed as they are, and a numeric
/// without a fixed scale is its digits: Java's text of both would lose them.
#[must_use]
pub(super) fn plain(value: Typed<'_>) -> Option<Cow<'_, [u8]>> {
    Some(match value {
        Typed::Null => return None,
        Typed::Text(bytes) | Typed::Bytes(bytes) => bytes,
        Typed::VariableDecimal(decimal) => Cow::Owned(decimal.text().into_bytes()),
        // Java's own text of a list
        Typed::List(values) => {
            let mut out = vec![b'['];
            for (index, value) in values.into_iter().enumerate() {
                if index > 0 {
                    out.extend_from_slice(b", ");
                }
                match value {
                    Typed::Bytes(bytes) => out.extend_from_slice(STANDARD.encode(bytes).as_bytes()),
                    value => out.extend_from_slice(&plain(value).unwrap_or(Cow::Borrowed(b"null"))),
                }
            }
            out.push(b']');
            Cow::Owned(out)
        }
        value => {
            let mut out = Vec::new();
            append(&mut out, &value, false);
            Cow::Owned(out)
        }
    })
}

/// The bytes of a header of format `simple`; `None` for NULL.
#[must_use]
pub(super) fn header(value: Typed<'_>) -> Option<Cow<'_, [u8]>> {
    match value {
        Typed::Null => None,
        Typed::Text(text) => Some(text),
        value => {
            let mut out = Vec::new();
            append(&mut out, &value, false);
            Some(Cow::Owned(out))
        }
    }
}

/// Kafka Connect's `Values.append`: texts inside of something else stand in quotes, with quotes and backslashes escaped and
/// nothing else.
fn append(out: &mut Vec<u8>, value: &Typed<'_>, is_embedded: bool) {
    match value {
        Typed::Null => out.extend_from_slice(b"null"),
        Typed::Text(text) if is_embedded => {
            out.push(b'"');
            for byte in text.iter() {
                if matches!(byte, b'"' | b'\\') {
                    out.push(b'\\');
                }
                out.push(*byte);
            }
            out.push(b'"');
        }
        Typed::Text(text) => out.extend_from_slice(text),
        Typed::Special(text) => out.extend_from_slice(text.as_bytes()),
        Typed::Bool(value) => out.extend_from_slice(value.to_string().as_bytes()),
        Typed::Int(value) => out.extend_from_slice(value.to_string().as_bytes()),
        Typed::Float32(value) => out.extend_from_slice(number::float(*value).as_bytes()),
        Typed::Float64(value) => out.extend_from_slice(number::double(*value).as_bytes()),
        Typed::Decimal(value) => out.extend_from_slice(value.text().as_bytes()),
        Typed::VariableDecimal(value) => {
            let (scale, unscaled) = (value.scale(), STANDARD.encode(value.unscaled()));
            out.extend_from_slice(format!("{{\"scale\":{scale},\"value\":\"{unscaled}\"}}").as_bytes());
        }
        Typed::Bytes(bytes) => {
            let quote = if is_embedded { "\"" } else { "" };
            out.extend_from_slice(format!("{quote}{}{quote}", STANDARD.encode(bytes)).as_bytes());
        }
        Typed::List(values) => {
            out.push(b'[');
            for (index, value) in values.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                append(out, value, true);
            }
            out.push(b']');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::{ColumnType, Value};
    use crate::config::{RecordConfig, TimeFormat};
    use crate::route::typed::{Shape, decode};

    fn typed(kind: ColumnType, text: &str, time_format: TimeFormat) -> Typed<'_> {
        let shape = Shape::new(&RecordConfig { time_format, ..RecordConfig::default() });
        decode(kind, shape, Value::Text(text.as_bytes())).unwrap()
    }

    fn show(bytes: Option<Cow<'_, [u8]>>) -> String {
        String::from_utf8(bytes.unwrap().into_owned()).unwrap()
    }

    #[test]
    fn headers_are_what_the_simple_header_converter_writes() {
        let texts = ColumnType::Array(&ColumnType::Text);
        for (kind, text, expected) in [
            (ColumnType::Int64, "-1", "-1"),
            (ColumnType::Int64, "18446744073709551615", "18446744073709551615"),
            (ColumnType::Int32, "0000", "0000"),
            (ColumnType::Int32, "2024", "2024"),
            (ColumnType::Bool, "t", "true"),
            (ColumnType::Bool, "f", "false"),
            (ColumnType::Bit, "1", "true"),
            (ColumnType::Bits, "0101", "BQ=="),
            (ColumnType::Float64, "1e+10", "1.0E10"),
            (ColumnType::Float32, "0.1", "0.1"),
            (ColumnType::Numeric, "12.50", "12.50"),
            (ColumnType::Numeric, "NaN", "NaN"),
            (ColumnType::VariableNumeric, "12.50", "{\"scale\":1,\"value\":\"fQ==\"}"),
            (ColumnType::Bytes, "\\x00ff10", "AP8Q"),
            (ColumnType::Date, "1970-01-02", "1"),
            (ColumnType::Date, "1969-12-31", "-1"),
            (ColumnType::Date, "infinity", "infinity"),
            (ColumnType::Time(3), "00:00:01.5", "1500"),
            (ColumnType::Time(6), "00:00:01.5", "1500000"),
            (ColumnType::TimeTz, "02:00:00+01", "01:00:00Z"),
            (ColumnType::Timestamp(6), "2024-01-02 03:04:05.678901", "1704164645678901"),
            (ColumnType::Timestamp(3), "2024-01-02 03:04:05.678", "1704164645678"),
            (ColumnType::Timestamp(3), "-infinity", "-9223372036832400"),
            (ColumnType::Money, "-$1,234.50", "-1234.50"),
            (ColumnType::Money, "1.234,50 €", "1.234,50 €"),
            (ColumnType::Timestamp(0), "2024-01-02 03:04:05", "1704164645000"),
            (ColumnType::TimestampTz(6), "2024-01-02 03:04:05.000006+00", "2024-01-02T03:04:05.000006Z"),
            (ColumnType::TimestampTz(6), "infinity", "infinity"),
            (ColumnType::Interval, "1 day 00:00:01", "86401000000"),
            (ColumnType::Uuid, "6f1c2a52-0d0b-4c55-9a5e-2a1f0c7f1a01", "6f1c2a52-0d0b-4c55-9a5e-2a1f0c7f1a01"),
            (texts, r#"{a,"b c",NULL,"q\"\\x"}"#, r#"["a","b c",null,"q\"\\x"]"#),
            (ColumnType::Array(&ColumnType::Int32), "{{1,2},{3,NULL}}", "[[1,2],[3,null]]"),
            (ColumnType::Array(&ColumnType::Bytes), r#"{"\\x00ff41"}"#, "[\"AP9B\"]"),
            (ColumnType::Array(&ColumnType::Bool), "{t,f}", "[true,false]"),
        ] {
            assert_eq!(show(header(typed(kind, text, TimeFormat::Debezium))), expected, "{kind:?} {text}");
        }
        assert_eq!(header(Typed::Null), None);
    }

    #[test]
    fn times_may_be_iso_texts() {
        for (kind, text, expected) in [
            (ColumnType::Date, "2024-01-02", "2024-01-02"),
            (ColumnType::Time(6), "03:04:05.6", "03:04:05.6"),
            (ColumnType::Timestamp(6), "2024-01-02 03:04:05.678901", "2024-01-02T03:04:05.678901"),
            (ColumnType::TimestampTz(6), "2024-01-02 03:04:05+00", "2024-01-02T03:04:05.000000Z"),
            (ColumnType::Interval, "1 mon", "P0Y1M0DT0H0M0S"),
        ] {
            assert_eq!(show(header(typed(kind, text, TimeFormat::Iso))), expected, "{kind:?} {text}");
        }
    }

    #[test]
    fn plain_text_keeps_what_javas_would_lose() {
        let texts = ColumnType::Array(&ColumnType::Text);
        for (kind, text, expected) in [
            (ColumnType::Text, "a\"b", "a\"b"),
            (ColumnType::Bytes, "\\x4142", "AB"),
            (ColumnType::VariableNumeric, "12.50", "12.5"),
            (texts, r#"{a,"b c",NULL}"#, "[a, b c, null]"),
            (ColumnType::Array(&ColumnType::Bytes), r#"{"\\x00ff41"}"#, "[AP9B]"),
            (ColumnType::Float64, "1e+07", "1.0E7"),
        ] {
            assert_eq!(show(plain(typed(kind, text, TimeFormat::Debezium))), expected, "{kind:?} {text}");
        }
        assert_eq!(plain(Typed::Null), None);
    }
}
