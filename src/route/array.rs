//! PostgreSQL's text form of arrays (manual, "Arrays: Array Input and Output Syntax").

use std::borrow::Cow;

/// One element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Element<'a> {
    /// NULL.
    Null,
    /// The text of a value.
    Value(Cow<'a, str>),
    /// The next dimension.
    Nested(Vec<Self>),
}

/// More dimensions than the server allows (`MAXDIM` is 6).
const MAX_DEPTH: usize = 8;

/// Reads `{a,"b c",NULL}`; `None` if it is no array.
#[must_use]
pub(super) fn parse(text: &str) -> Option<Vec<Element<'_>>> {
    // bounds that do not begin with 1 stand in front: [0:1]={a,b}
    let text = if text.starts_with('[') { text.split_once('=')?.1 } else { text };
    let (elements, rest) = list(text, MAX_DEPTH)?;
    rest.is_empty().then_some(elements)
}

fn list(text: &str, depth: usize) -> Option<(Vec<Element<'_>>, &str)> {
    let mut rest = text.strip_prefix('{')?;
    let mut elements = Vec::new();
    if let Some(behind) = rest.strip_prefix('}') {
        return Some((elements, behind));
    }
    loop {
        let (element, behind) = element(rest, depth.checked_sub(1)?)?;
        elements.push(element);
        if let Some(behind) = behind.strip_prefix('}') {
            return Some((elements, behind));
        }
        rest = behind.strip_prefix(',')?;
    }
}

fn element(text: &str, depth: usize) -> Option<(Element<'_>, &str)> {
    if text.starts_with('{') {
        let (nested, rest) = list(text, depth)?;
        return Some((Element::Nested(nested), rest));
    }
    if let Some(quoted) = text.strip_prefix('"') {
        let (value, rest) = quoted_value(quoted)?;
        return Some((Element::Value(value), rest));
    }
    let end = text.find([',', '}'])?;
    let (value, rest) = text.split_at(end);
    let element = if value == "NULL" { Element::Null } else { Element::Value(Cow::Borrowed(value)) };
    Some((element, rest))
}

/// A value up to its closing quote; a backslash takes the next character as it is.
fn quoted_value(text: &str) -> Option<(Cow<'_, str>, &str)> {
    let mut value = Cow::Borrowed("");
    let mut rest = text;
    loop {
        let at = rest.find(['"', '\\'])?;
        let (before, behind) = rest.split_at(at);
        if value.is_empty() {
            value = Cow::Borrowed(before);
        } else {
            value.to_mut().push_str(before);
        }
        if let Some(behind) = behind.strip_prefix('"') {
            return Some((value, behind));
        }
        let mut characters = behind.chars();
        let _backslash = characters.next();
        value.to_mut().push(characters.next()?);
        rest = characters.as_str();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn value(text: &str) -> Element<'_> {
        Element::Value(Cow::Borrowed(text))
    }

    #[test]
    fn arrays_are_read() {
        assert_eq!(parse("{}"), Some(vec![]));
        assert_eq!(parse("{a,\"b c\",NULL,\"NULL\",\"\"}"), {
            Some(vec![value("a"), value("b c"), Element::Null, value("NULL"), value("")])
        });
        assert_eq!(parse(r#"{"q\"x","\\,{}"}"#), Some(vec![value("q\"x"), value("\\,{}")]));
        assert_eq!(parse("[0:1]={1,2}"), Some(vec![value("1"), value("2")]));
        assert_eq!(
            parse("{{1,2},{3,NULL}}"),
            Some(vec![Element::Nested(vec![value("1"), value("2")]), Element::Nested(vec![value("3"), Element::Null])])
        );
        for wrong in ["", "a", "{", "{a", "{a}b", "{\"a}", "{\"a\\", "{{{{{{{{{{1}}}}}}}}}}", "{a,}x"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn quoted_values_come_back(values in prop::collection::vec(".*", 1..5)) {
            let quoted: Vec<_> = values.iter()
                .map(|value| format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\"")))
                .collect();
            let text = format!("{{{}}}", quoted.join(","));
            let expected: Vec<_> = values.iter().map(|text| value(text)).collect();
            prop_assert_eq!(parse(&text), Some(expected));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[\\[\\]{},\"\\\\a=N:]{0,20}") {
            let _ = parse(&text);
        }
    }
}
