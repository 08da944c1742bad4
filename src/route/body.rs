//! The bytes of a record's key and value, in the configured formats.

use std::borrow::Cow;

use super::expand::{Expand, Expanded};
use super::typed::{Class, Typed, ValueError};
use super::{json, text};
use crate::config::{Delegate, KeyFormat, RecordConfig, ValueFormat};

/// Bytes, or none at all.
pub(super) type Bytes<'a> = Option<Cow<'a, [u8]>>;

/// How a typed value becomes bytes: a format with its delegate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    String,
    Json,
    /// Binary values as they are, others as the delegate says.
    Bytes(Delegate),
    Int32,
    Int64,
}

impl Format {
    #[must_use]
    pub(super) fn of_key(record: &RecordConfig) -> Self {
        match record.key_format {
            KeyFormat::String => Self::String,
            KeyFormat::Bytes => Self::Bytes(record.key_delegate),
            KeyFormat::Int32 => Self::Int32,
            KeyFormat::Int64 => Self::Int64,
            // validation refuses those with a schema
            KeyFormat::Json | KeyFormat::JsonSchema | KeyFormat::Avro | KeyFormat::Protobuf => Self::Json,
        }
    }

    #[must_use]
    pub(super) fn of_value(record: &RecordConfig) -> Self {
        match record.value_format {
            ValueFormat::String => Self::String,
            ValueFormat::Bytes => Self::Bytes(record.value_delegate),
            ValueFormat::Json | ValueFormat::JsonSchema | ValueFormat::Avro | ValueFormat::Protobuf => Self::Json,
        }
    }

    /// Why a column of this class cannot have this format, with what to do; `None` if it can. `which` is `key` or `value`.
    #[must_use]
    pub(super) fn problem(self, class: Class, which: &str, type_name: &str) -> Option<String> {
        let (format, hint) = match self {
            Self::Bytes(Delegate::None) if class != Class::Bytes => {
                ("bytes", format!("choose another format, or set record.{which}-delegate"))
            }
            Self::Int32 if class != Class::Int32 => ("int32", "it takes an integer column".to_owned()),
            Self::Int64 if class != Class::Int64 => ("int64", "it takes a bigint column".to_owned()),
            // all keys of one length would be one key in Debezium, so nobody can depend on its bytes
            Self::String if class == Class::Bytes && which == "key" => {
                ("string", "set record.key-format = \"bytes\", or record.binary-as".to_owned())
            }
            _ => return None,
        };
        Some(format!("is of type {type_name}, which record.{which}-format = \"{format}\" does not take: {hint}"))
    }

    /// The bytes of a value.
    ///
    /// # Errors
    /// [`ValueError`]
    pub(super) fn bytes(self, value: Typed<'_>) -> Result<Bytes<'_>, ValueError> {
        match (self, value) {
            (Self::String, value) => Ok(text::plain(value)),
            (Self::Json | Self::Bytes(Delegate::Json), value)
                if !matches!((self, &value), (Self::Bytes(_), Typed::Bytes(_))) =>
            {
                let mut out = Vec::new();
                json::value(&mut out, &value)?;
                Ok(Some(Cow::Owned(out)))
            }
            (_, Typed::Null) => Ok(None),
            (Self::Int32, value) => integer(&value, 4),
            (Self::Int64, value) => integer(&value, 8),
            (_, value) => Ok(text::plain(value)),
        }
    }
}

fn integer(value: &Typed<'_>, width: usize) -> Result<Bytes<'static>, ValueError> {
    let bytes = match value {
        Typed::Int(number) if width == 4 => i32::try_from(*number).ok().map(|number| number.to_be_bytes().to_vec()),
        Typed::Int(number) => i64::try_from(*number).ok().map(|number| number.to_be_bytes().to_vec()),
        _ => None,
    };
    bytes.map(|bytes| Some(Cow::Owned(bytes))).ok_or(ValueError::NoInteger(width))
}

/// What a value is made of beside the payload.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    pub(super) format: Format,
    pub(super) expand: Expand,
    pub(super) tombstone_on_empty: bool,
}

/// A record's value.
#[derive(Debug)]
pub(super) struct Body<'a> {
    pub(super) bytes: Bytes<'a>,
    /// Whether the payload was to be expanded and is no document.
    pub(super) is_no_document: bool,
}

impl Rules {
    /// Whether the payload makes a record without value. Blank is what Java's `trim` takes away; bytes are never blank.
    #[must_use]
    pub(super) fn is_tombstone(&self, payload: &Typed<'_>) -> bool {
        self.tombstone_on_empty
            && match payload {
                Typed::Null => true,
                Typed::Text(text) => text.iter().all(|byte| *byte <= b' '),
                _ => false,
            }
    }

    /// The value of a record whose payload stands alone.
    ///
    /// # Errors
    /// [`ValueError`]
    pub(super) fn alone<'a>(&self, payload: Typed<'a>) -> Result<Body<'a>, ValueError> {
        let mut is_no_document = false;
        if self.gives_json()
            && let Typed::Text(text) = &payload
        {
            match self.expand.payload(text, false) {
                Expanded::Document(document) => {
                    return Ok(Body { bytes: Some(Cow::Owned(document)), is_no_document: false });
                }
                Expanded::NoDocument => is_no_document = true,
                Expanded::Text => {}
            }
        }
        Ok(Body { bytes: self.format.bytes(payload)?, is_no_document })
    }

    /// The value of a record whose payload stands in an envelope with further fields.
    ///
    /// # Errors
    /// [`ValueError`], with the number of the field.
    pub(super) fn enveloped(
        &self,
        payload: &Typed<'_>,
        fields: &[(&str, Typed<'_>)],
    ) -> Result<Body<'static>, (Option<usize>, ValueError)> {
        let mut is_no_document = false;
        let mut out = b"{\"payload\":".to_vec();
        let expanded = match payload {
            Typed::Text(text) => self.expand.payload(text, true),
            _ => Expanded::Text,
        };
        match expanded {
            Expanded::Document(document) => out.extend_from_slice(&document),
            other => {
                is_no_document = other == Expanded::NoDocument;
                json::value(&mut out, payload).map_err(|error| (None, error))?;
            }
        }
        for (index, (name, value)) in fields.iter().enumerate() {
            out.push(b',');
            json::text(&mut out, name);
            out.push(b':');
            json::value(&mut out, value).map_err(|error| (Some(index), error))?;
        }
        out.push(b'}');
        Ok(Body { bytes: Some(Cow::Owned(out)), is_no_document })
    }

    fn gives_json(&self) -> bool {
        matches!(self.format, Format::Json | Format::Bytes(Delegate::Json))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(format: Format, value: Typed<'_>) -> Result<Option<Vec<u8>>, String> {
        format.bytes(value).map(|bytes| bytes.map(Cow::into_owned)).map_err(|error| error.to_string())
    }

    fn text(value: &str) -> Typed<'_> {
        Typed::Text(Cow::Borrowed(value.as_bytes()))
    }

    #[test]
    fn formats_and_delegates() {
        let binary = || Typed::Bytes(Cow::Borrowed([0, 0xff].as_slice()));
        for (format, value, expected) in [
            (Format::String, text("a"), Some(b"a".to_vec())),
            (Format::String, Typed::Int(-5), Some(b"-5".to_vec())),
            (Format::String, binary(), Some(vec![0, 0xff])),
            (Format::String, Typed::Null, None),
            (Format::Json, text("a"), Some(b"\"a\"".to_vec())),
            (Format::Json, binary(), Some(b"\"AP8=\"".to_vec())),
            (Format::Json, Typed::Null, Some(b"null".to_vec())),
            (Format::Bytes(Delegate::None), binary(), Some(vec![0, 0xff])),
            (Format::Bytes(Delegate::None), Typed::Null, None),
            (Format::Bytes(Delegate::Json), binary(), Some(vec![0, 0xff])),
            (Format::Bytes(Delegate::Json), text("a"), Some(b"\"a\"".to_vec())),
            (Format::Bytes(Delegate::String), text("a"), Some(b"a".to_vec())),
            (Format::Bytes(Delegate::String), Typed::Int(7), Some(b"7".to_vec())),
            (Format::Int32, Typed::Int(42), Some(vec![0, 0, 0, 42])),
            (Format::Int32, Typed::Null, None),
            (Format::Int64, Typed::Int(-1), Some(vec![0xff; 8])),
        ] {
            assert_eq!(show(format, value.clone()), Ok(expected), "{format:?} {value:?}");
        }
        let error = show(Format::Int32, text("infinity")).unwrap_err();
        assert_eq!(error, "has a value that is no integer of 4 bytes");
    }

    #[test]
    fn columns_that_a_format_does_not_take_are_refused() {
        let problem = |format: Format, class, which| format.problem(class, which, "text").unwrap_or_default();
        assert_eq!(
            problem(Format::Bytes(Delegate::None), Class::Text, "value"),
            "is of type text, which record.value-format = \"bytes\" does not take: choose another format, or set \
             record.value-delegate"
        );
        assert_eq!(
            problem(Format::Int32, Class::Int16, "key"),
            "is of type text, which record.key-format = \"int32\" does not take: it takes an integer column"
        );
        assert_eq!(
            problem(Format::String, Class::Bytes, "key"),
            "is of type text, which record.key-format = \"string\" does not take: set record.key-format = \"bytes\", or \
             record.binary-as"
        );
        for (format, class, which) in [
            (Format::String, Class::Bytes, "value"),
            (Format::Bytes(Delegate::None), Class::Bytes, "key"),
            (Format::Bytes(Delegate::Json), Class::Text, "key"),
            (Format::Int64, Class::Int64, "key"),
            (Format::Json, Class::List, "key"),
        ] {
            assert_eq!(format.problem(class, which, "x"), None);
        }
    }

    #[test]
    fn blank_texts_are_empty_and_bytes_never() {
        let rules = |tombstone_on_empty| Rules {
            format: Format::String,
            expand: Expand::new(&RecordConfig::default()),
            tombstone_on_empty,
        };
        for (payload, is_empty) in [
            (Typed::Null, true),
            (text(""), true),
            (text(" \t\n\u{0}\u{1f}"), true),
            (text("\u{a0}"), false),
            (text("null"), false),
            (Typed::Bytes(Cow::Borrowed(b"")), false),
        ] {
            assert_eq!(rules(true).is_tombstone(&payload), is_empty, "{payload:?}");
            assert!(!rules(false).is_tombstone(&payload));
        }
    }
}
