//! A JSON document without its white space, otherwise as it is. Checks on the way that it is one (RFC 8259), without
//! recursion: a document may be as deep as it likes.

/// What may come next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Value,
    /// A value, or the end of an array that has just begun.
    ValueOrEnd,
    /// A field's name, or the end of an object that has just begun.
    NameOrEnd,
    Name,
    Colon,
    /// A comma or the end of what is open; the end of the document if nothing is.
    CommaOrEnd,
}

/// The document without white space; `None` if the text is no JSON document.
#[must_use]
pub(super) fn compact(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let mut out = String::with_capacity(bytes.len());
    // the brackets that are open
    let mut open: Vec<u8> = Vec::new();
    let mut next = Next::Value;
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        if matches!(byte, b' ' | b'\t' | b'\n' | b'\r') {
            at += 1;
            continue;
        }
        let begin = at;
        at += 1;
        next = match (next, byte) {
            (Next::Value | Next::ValueOrEnd, b'{') => {
                open.push(byte);
                Next::NameOrEnd
            }
            (Next::Value | Next::ValueOrEnd, b'[') => {
                open.push(byte);
                Next::ValueOrEnd
            }
            (Next::NameOrEnd | Next::CommaOrEnd, b'}') if open.last() == Some(&b'{') => {
                open.pop();
                Next::CommaOrEnd
            }
            (Next::ValueOrEnd | Next::CommaOrEnd, b']') if open.last() == Some(&b'[') => {
                open.pop();
                Next::CommaOrEnd
            }
            (Next::CommaOrEnd, b',') => match open.last()? {
                b'{' => Next::Name,
                _ => Next::Value,
            },
            (Next::Name | Next::NameOrEnd, b'"') => {
                at = string_end(bytes, at)?;
                Next::Colon
            }
            (Next::Colon, b':') => Next::Value,
            (Next::Value | Next::ValueOrEnd, _) => {
                at = scalar_end(bytes, begin)?;
                Next::CommaOrEnd
            }
            _ => return None,
        };
        out.push_str(text.get(begin..at)?);
    }
    (next == Next::CommaOrEnd && open.is_empty()).then_some(out)
}

/// Where a number, text or word ends that begins at `begin`.
fn scalar_end(bytes: &[u8], begin: usize) -> Option<usize> {
    let rest = bytes.get(begin..)?;
    for word in [b"true".as_slice(), b"false", b"null"] {
        if rest.starts_with(word) {
            return Some(begin + word.len());
        }
    }
    match rest.first()? {
        b'"' => string_end(bytes, begin + 1),
        _ => number_end(rest).map(|length| begin + length),
    }
}

/// Where the text ends whose content begins at `at`.
fn string_end(bytes: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match bytes.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => match bytes.get(at + 1)? {
                b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => at += 2,
                b'u' if bytes.get(at + 2..at + 6)?.iter().all(u8::is_ascii_hexdigit) => at += 6,
                _ => return None,
            },
            0..0x20 => return None,
            _ => at += 1,
        }
    }
}

/// The length of the number at the beginning.
fn number_end(bytes: &[u8]) -> Option<usize> {
    let digits = |at: usize| bytes.iter().skip(at).take_while(|byte| byte.is_ascii_digit()).count();
    let mut at = usize::from(bytes.first() == Some(&b'-'));
    let whole = digits(at);
    let has_leading_zero = whole > 1 && bytes.get(at) == Some(&b'0');
    if whole == 0 || has_leading_zero {
        return None;
    }
    at += whole;
    if bytes.get(at) == Some(&b'.') {
        let fraction = digits(at + 1);
        at += 1 + fraction;
        if fraction == 0 {
            return None;
        }
    }
    if matches!(bytes.get(at), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(at + 1), Some(b'+' | b'-')));
        let exponent = digits(at + 1 + sign);
        at += 1 + sign + exponent;
        if exponent == 0 {
            return None;
        }
    }
    Some(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_no_document_is_refused() {
        for wrong in [
            "",
            "{",
            "[",
            "]",
            "{]",
            "[}",
            "[1,]",
            "[,1]",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\":1,}",
            "{a:1}",
            "{'a':1}",
            "[1 2]",
            "01",
            "-",
            "1.",
            ".1",
            "1e",
            "+1",
            "tru",
            "nulll",
            "[1]]",
            "1,2",
            "\"\\x\"",
            "\"\\u12g4\"",
            "\"a\nb\"",
            "\"a",
            "NaN",
            "// x\n1",
            "[1]/**/",
        ] {
            assert_eq!(compact(wrong), None, "{wrong}");
        }
    }

    fn document() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<i64>().prop_map(Into::into),
            (-1e15..1e15_f64).prop_map(Into::into),
            ".{0,8}".prop_map(Into::into),
        ];
        leaf.prop_recursive(4, 40, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Into::into),
                prop::collection::vec((".{0,4}", inner), 0..5)
                    .prop_map(|fields| serde_json::Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn documents_stay_what_they_are(document in document()) {
            let compacted = compact(&serde_json::to_string_pretty(&document).unwrap()).unwrap();
            prop_assert_eq!(compacted, serde_json::to_string(&document).unwrap());
        }

        /// What another parser takes, and nothing else.
        #[test]
        fn the_same_texts_are_documents(text in "[\\[\\]{}:,\" \\\\u0-2a.eE+-]{0,12}") {
            let other: Result<serde::de::IgnoredAny, _> = serde_json::from_str(&text);
            prop_assert_eq!(compact(&text).is_some(), other.is_ok(), "{}", text);
        }
    }
}
