//! JSON as Jackson writes it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::number;
use super::typed::{Typed, ValueError};

/// Writes a value.
///
/// # Errors
/// [`ValueError::NotUtf8`], or [`ValueError::Special`] for an exact number that is none.
pub(super) fn value(out: &mut Vec<u8>, value: &Typed<'_>) -> Result<(), ValueError> {
    match value {
        Typed::Null => out.extend_from_slice(b"null"),
        Typed::Text(text) => self::text(out, std::str::from_utf8(text).map_err(|_| ValueError::NotUtf8)?),
        Typed::Special(special) => return Err(ValueError::Special(special)),
        Typed::Bool(value) => out.extend_from_slice(value.to_string().as_bytes()),
        Typed::Int(value) => out.extend_from_slice(value.to_string().as_bytes()),
        Typed::Float32(value) => float(out, value.is_finite(), &number::float(*value)),
        Typed::Float64(value) => double(out, *value),
        Typed::Decimal(value) => base64(out, &value.unscaled()),
        Typed::VariableDecimal(value) => {
            out.extend_from_slice(format!("{{\"scale\":{},\"value\":", value.scale()).as_bytes());
            base64(out, &value.unscaled());
            out.push(b'}');
        }
        Typed::Bytes(bytes) => base64(out, bytes),
        Typed::List(values) => {
            out.push(b'[');
            for (index, element) in values.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                self::value(out, element)?;
            }
            out.push(b']');
        }
    }
    Ok(())
}

/// Writes a floating point number; those that JSON does not have stand in quotes.
pub(super) fn double(out: &mut Vec<u8>, value: f64) {
    float(out, value.is_finite(), &number::double(value));
}

fn float(out: &mut Vec<u8>, is_finite: bool, text: &str) {
    let quote = if is_finite { "" } else { "\"" };
    out.extend_from_slice(format!("{quote}{text}{quote}").as_bytes());
}

fn base64(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'"');
    out.extend_from_slice(STANDARD.encode(bytes).as_bytes());
    out.push(b'"');
}

/// Writes a text in quotes. Characters beyond U+FFFF are two escapes, control characters one, all others stand as UTF-8.
pub(super) fn text(out: &mut Vec<u8>, text: &str) {
    out.reserve(text.len() + 2);
    out.push(b'"');
    let mut begin = 0;
    for (at, byte) in text.bytes().enumerate() {
        let is_plain = byte >= 0x20 && byte != b'"' && byte != b'\\' && byte < 0xf0;
        // a byte in the middle of a character that was escaped whole
        if is_plain || at < begin {
            continue;
        }
        let rest = text.get(at..).unwrap_or_default();
        let Some(character) = rest.chars().next() else { continue };
        out.extend_from_slice(text.get(begin..at).unwrap_or_default().as_bytes());
        escape(out, character);
        begin = at + character.len_utf8();
    }
    out.extend_from_slice(text.get(begin..).unwrap_or_default().as_bytes());
    out.push(b'"');
}

fn escape(out: &mut Vec<u8>, character: char) {
    let short = match character {
        '"' => "\\\"",
        '\\' => "\\\\",
        '\u{8}' => "\\b",
        '\t' => "\\t",
        '\n' => "\\n",
        '\u{c}' => "\\f",
        '\r' => "\\r",
        _ => {
            for unit in character.encode_utf16(&mut [0; 2]) {
                out.extend_from_slice(format!("\\u{unit:04X}").as_bytes());
            }
            return;
        }
    };
    out.extend_from_slice(short.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::{ColumnType, Value};
    use crate::config::{DecimalAs, RecordConfig};
    use crate::route::typed::{Shape, decode};
    use proptest::prelude::*;

    fn quoted(given: &str) -> String {
        let mut out = Vec::new();
        text(&mut out, given);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn texts_are_jacksons() {
        assert_eq!(quoted("a🚲é\u{2028}/\u{7f}"), "\"a\\uD83D\\uDEB2é\u{2028}/\u{7f}\"");
        assert_eq!(
            quoted("\"\\\u{8}\t\n\u{c}\r\u{1}\u{1f}🦀🦀"),
            r#""\"\\\b\t\n\f\r\u0001\u001F\uD83E\uDD80\uD83E\uDD80""#
        );
        assert_eq!(quoted(""), "\"\"");
    }

    fn written(kind: ColumnType, given: &str, decimal_as: DecimalAs) -> Result<String, String> {
        let shape = Shape::new(&RecordConfig { decimal_as, ..RecordConfig::default() });
        let typed = decode(kind, shape, Value::Text(given.as_bytes())).unwrap();
        let mut out = Vec::new();
        value(&mut out, &typed).map_err(|error| error.to_string())?;
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn columns_are_what_the_json_converter_writes() {
        let precise = |kind, given| written(kind, given, DecimalAs::Precise).unwrap();
        for (kind, given, expected) in [
            (ColumnType::Text, "a", "\"a\""),
            (ColumnType::Int64, "9007199254740993", "9007199254740993"),
            (ColumnType::Bool, "t", "true"),
            (ColumnType::Float64, "NaN", "\"NaN\""),
            (ColumnType::Float64, "0.5", "0.5"),
            (ColumnType::Float32, "-Infinity", "\"-Infinity\""),
            (ColumnType::Numeric, "12.50", "\"BOI=\""),
            (ColumnType::VariableNumeric, "12.50", "{\"scale\":1,\"value\":\"fQ==\"}"),
            (ColumnType::Bytes, "\\x00ff41", "\"AP9B\""),
            (ColumnType::Date, "2026-01-02", "20455"),
            (ColumnType::Array(&ColumnType::Text), "{a,NULL,\"🦀\"}", "[\"a\",null,\"\\uD83E\\uDD80\"]"),
        ] {
            assert_eq!(precise(kind, given), expected, "{kind:?} {given}");
        }
        assert_eq!(written(ColumnType::Numeric, "12.50", DecimalAs::Double).unwrap(), "12.5");
        assert_eq!(written(ColumnType::Numeric, "12.50", DecimalAs::String).unwrap(), "\"12.50\"");
        assert_eq!(written(ColumnType::Numeric, "NaN", DecimalAs::String).unwrap(), "\"NAN\"");
        let error = written(ColumnType::Numeric, "NaN", DecimalAs::Precise).unwrap_err();
        assert_eq!(error, "is NaN, which has no exact form here: set record.decimal-as to \"double\" or \"string\"");
    }

    proptest! {
        #[test]
        fn texts_read_back_as_themselves(given in ".*") {
            let back: String = serde_json::from_str(&quoted(&given)).unwrap();
            prop_assert_eq!(back, given);
        }

        #[test]
        fn doubles_read_back_as_themselves(given in any::<f64>().prop_filter("finite", |given| given.is_finite())) {
            let mut out = Vec::new();
            double(&mut out, given);
            let back: f64 = std::str::from_utf8(&out).unwrap().parse().unwrap();
            prop_assert_eq!(back, given);
        }
    }
}
