//! Expanding a payload: a text that is a JSON document becomes that document inside of a JSON value.
//!
//! ```text
//! text ─▶ document ─▶ schema, guessed as Debezium does ─▶ its bytes        mode debezium
//!                          │ Debezium would stop, or lose something
//!                          ▼
//! text ─────────────▶ the document without its white space                 mode raw
//! ```

mod compact;
mod document;
mod schema;

use crate::config::{ExpandEmpty, ExpandJson, RecordConfig};

/// How documents are expanded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expand {
    mode: ExpandJson,
    rules: Rules,
}

/// What is kept that Debezium leaves out unless told otherwise.
#[derive(Clone, Copy, Debug, Default)]
struct Rules {
    nulls: bool,
    empty_arrays: bool,
}

/// What becomes of a payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Expanded {
    /// It is this document.
    Document(Vec<u8>),
    /// It stays a text, as most texts do.
    Text,
    /// It stays a text although it begins as a document does.
    NoDocument,
}

impl Expand {
    #[must_use]
    pub(super) fn new(record: &RecordConfig) -> Self {
        let keep = |option| option == ExpandEmpty::Keep;
        let rules = Rules { nulls: keep(record.expand_json_null), empty_arrays: keep(record.expand_json_empty_array) };
        Self { mode: record.expand_json, rules }
    }

    /// Expands a payload; `in_envelope` tells whether it stands in an envelope.
    #[must_use]
    pub(super) fn payload(self, text: &[u8], in_envelope: bool) -> Expanded {
        if self.mode == ExpandJson::Off || !matches!(text.first(), Some(b'{' | b'[')) {
            return Expanded::Text;
        }
        let Ok(text) = std::str::from_utf8(text) else { return Expanded::NoDocument };
        let Some(compact) = compact::compact(text) else { return Expanded::NoDocument };
        if self.mode == ExpandJson::Raw {
            return Expanded::Document(compact.into_bytes());
        }
        match schema::as_debezium(&compact, self.rules) {
            Ok(document) => Expanded::Document(document),
            // an empty array is no reason for a warning, and in an envelope the original ends at it
            Err(schema::Why::EmptyArray) if in_envelope => Expanded::Document(compact.into_bytes()),
            Err(schema::Why::EmptyArray) => Expanded::Text,
            Err(schema::Why::NoSchema) => Expanded::NoDocument,
            Err(schema::Why::Lossy) => Expanded::Document(compact.into_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(mode: ExpandJson, keep: bool, text: &str) -> String {
        let rules = Rules { nulls: keep, empty_arrays: keep };
        match (Expand { mode, rules }).payload(text.as_bytes(), false) {
            Expanded::Document(document) => String::from_utf8(document).unwrap(),
            Expanded::Text => "text".to_owned(),
            Expanded::NoDocument => "no document".to_owned(),
        }
    }

    /// What a running Debezium was seen to do, and what we do where it stops or loses something.
    #[test]
    fn documents_are_debeziums() {
        for (text, expected) in [
            (r#"{"b": 1, "a": {"x": "é", "t": true}, "l": [1, 2]}"#, r#"{"b":1,"a":{"x":"é","t":true},"l":[1,2]}"#),
            (r#"{"i": 1, "l": 3000000000, "f": 2.50, "z": 1.0}"#, r#"{"i":1,"l":3000000000,"f":2.5,"z":1.0}"#),
            (r#"{"f": 1.23456789012345678901, "e": 1E3, "m": -0}"#, r#"{"f":1.2345678901234567,"e":1000.0,"m":0}"#),
            (r#"{"n": null, "x": 1, "arr": []}"#, r#"{"x":1}"#),
            (r#"{"o": {"n": null}, "e": {}}"#, r#"{"o":{},"e":{}}"#),
            (r#"{"u": "ž\u013e/\/\u0041🦀"}"#, r#"{"u":"žľ//A\uD83E\uDD80"}"#),
            (r#"{"l": [{"a": 1}, {"b": "x"}]}"#, r#"{"l":[{"a":1,"b":null},{"a":null,"b":"x"}]}"#),
            (r#"{"l": [null, {"a": [1]}, {"a": []}]}"#, r#"{"l":[null,{"a":[1]},{"a":[]}]}"#),
            (r#"{"l": [{"a": null}, {"a": 1}]}"#, r#"{"l":[{"a":null},{"a":1}]}"#),
            (r#"{"l": [[1, 2], [3], []]}"#, r#"{"l":[[1,2],[3],[]]}"#),
            (r#"{"a": 1, "b": 2, "a": 3}"#, r#"{"a":3,"b":2}"#),
            ("{}", "{}"),
            // a text: it has no schema
            (r#"{"b": [1, 2.50, "x"]}"#, "no document"),
            (r#"{"b": [1, 2.5]}"#, "no document"),
            (r#"{"b": [1, 3000000000]}"#, "no document"),
            (r#"{"b": [null, null]}"#, "no document"),
            (r#"{"b": [[], [1]]}"#, "no document"),
            (r#"[1, "a", null]"#, "no document"),
            (r#"{"": 1}"#, "no document"),
            (r#"{"": null, "a.b": 1}"#, r#"{"a.b":1}"#),
            (r#"{"a": "#, "no document"),
            (r#"{"a": 1} x"#, "no document"),
            ("[]", "text"),
            ("12", "text"),
            (" {}", "text"),
            ("", "text"),
            // it stops at these, or loses something
            ("[1, 2]", "[1,2]"),
            (r#"[{"a": 4.90}]"#, r#"[{"a":4.90}]"#),
            (r#"{"i": 12345678901234567890, "n": null}"#, r#"{"i":12345678901234567890,"n":null}"#),
            (r#"{"f": 1e400}"#, r#"{"f":1e400}"#),
            (r#"{"l": [{"v": 1}, {"v": "s"}]}"#, r#"{"l":[{"v":1},{"v":"s"}]}"#),
            (r#"{"l": [{"o": {"x": 1}}, {"o": {"y": 2}}]}"#, r#"{"l":[{"o":{"x":1}},{"o":{"y":2}}]}"#),
            (r#"{"l": [[1], ["a"]]}"#, r#"{"l":[[1],["a"]]}"#),
            (r#"{"l": [[{"a": 1}], [{"b": 1}]]}"#, r#"{"l":[[{"a":1}],[{"b":1}]]}"#),
            (r#"{"l": [[1], [3000000000]]}"#, r#"{"l":[[1],[3000000000]]}"#),
            (r#"{"l": [{"a": 1}, {"a": 2.5}]}"#, r#"{"l":[{"a":1},{"a":2.5}]}"#),
            (r#"{"\ud800": 1}"#, r#"{"\ud800":1}"#),
            (r#"{"s": "\ud800"}"#, r#"{"s":"\ud800"}"#),
        ] {
            assert_eq!(expanded(ExpandJson::Debezium, false, text), expected, "{text}");
        }
    }

    #[test]
    fn nulls_and_empty_arrays_may_be_kept() {
        for (text, expected) in [
            (r#"{"n": null, "x": 1, "arr": []}"#, r#"{"n":null,"x":1,"arr":[]}"#),
            (r#"{"l": [null, null], "m": [[]]}"#, r#"{"l":[null,null],"m":[[]]}"#),
            (r#"{"l": [{"a": null}, {"a": 1}]}"#, r#"{"l":[{"a":null},{"a":1}]}"#),
        ] {
            assert_eq!(expanded(ExpandJson::Debezium, true, text), expected, "{text}");
        }
    }

    #[test]
    fn raw_documents_lose_their_white_space_only() {
        for (text, expected) in [
            (r#"{"a":null, "e": [],"m" : [1 , "x y"]}"#, r#"{"a":null,"e":[],"m":[1,"x y"]}"#),
            ("[]", "[]"),
            (r#"[ 1.50, 1e400, "\u00e9🦀" ]"#, r#"[1.50,1e400,"\u00e9🦀"]"#),
            ("{\"a\":1}\n", "{\"a\":1}"),
            ("\"text\"", "text"),
            ("not json", "text"),
            ("{not json}", "no document"),
        ] {
            assert_eq!(expanded(ExpandJson::Raw, false, text), expected, "{text}");
        }
    }

    #[test]
    fn an_empty_array_in_an_envelope_is_one() {
        let expand = Expand { mode: ExpandJson::Debezium, rules: Rules::default() };
        assert_eq!(expand.payload(b"[]", true), Expanded::Document(b"[]".to_vec()));
        assert_eq!(expand.payload(b"[1, \"a\"]", true), Expanded::NoDocument);
    }

    #[test]
    fn deep_documents_do_no_harm() {
        let deep = format!("{}1{}", "[".repeat(200_000), "]".repeat(200_000));
        assert_eq!(expanded(ExpandJson::Raw, false, &deep), deep);
        assert_eq!(expanded(ExpandJson::Debezium, false, &deep), "no document");
    }
}
