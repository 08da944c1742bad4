//! A JSON document as a tree, with what Jackson would hold.

use std::borrow::Cow;
use std::collections::HashMap;

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Node<'a> {
    Null,
    Bool(bool),
    /// An integer of at most 64 bits.
    Int(i64),
    /// A larger integer.
    Large,
    /// A number with a fraction or an exponent.
    Double(f64),
    Text(Cow<'a, str>),
    /// A text with half a surrogate pair, which UTF-8 cannot hold.
    Broken,
    Array(Vec<Self>),
    /// The fields in the order in which their names come first; of two of one name the last value counts.
    Object(Vec<(Cow<'a, str>, Self)>),
}

/// Deepest nesting (Jackson's `StreamReadConstraints`).
const MAX_DEPTH: usize = 1000;

/// Longest number (likewise).
const MAX_NUMBER_LENGTH: usize = 1000;

/// Objects with fewer fields are searched without an index.
const FEW_FIELDS: usize = 16;

/// Reads a document that is known to be well-formed and to have no white space outside of texts, and whether a field's name
/// has half a surrogate pair in it; `None` if it is deeper than Jackson reads, or has a longer number.
#[must_use]
pub(super) fn parse(text: &str) -> Option<(Node<'_>, bool)> {
    let mut reader = Reader { text, at: 0, has_broken_name: false };
    let node = reader.value(MAX_DEPTH)?;
    Some((node, reader.has_broken_name))
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    has_broken_name: bool,
}

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// Steps over a byte if it is this one.
    fn skip(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    fn value(&mut self, depth: usize) -> Option<Node<'a>> {
        match self.peek()? {
            b'n' => Some(self.word(4, Node::Null)),
            b't' => Some(self.word(4, Node::Bool(true))),
            b'f' => Some(self.word(5, Node::Bool(false))),
            b'"' => Some(self.string()?.map_or(Node::Broken, Node::Text)),
            b'[' => self.array(depth.checked_sub(1)?),
            b'{' => self.object(depth.checked_sub(1)?),
            _ => self.number(),
        }
    }

    fn word(&mut self, length: usize, node: Node<'a>) -> Node<'a> {
        self.at += length;
        node
    }

    fn array(&mut self, depth: usize) -> Option<Node<'a>> {
        self.at += 1;
        let mut elements = Vec::new();
        if self.skip(b']') {
            return Some(Node::Array(elements));
        }
        loop {
            elements.push(self.value(depth)?);
            if !self.skip(b',') {
                self.at += 1;
                return Some(Node::Array(elements));
            }
        }
    }

    fn object(&mut self, depth: usize) -> Option<Node<'a>> {
        self.at += 1;
        let mut fields: Vec<(Cow<'a, str>, Node<'a>)> = Vec::new();
        let mut index: HashMap<String, usize> = HashMap::new();
        if self.skip(b'}') {
            return Some(Node::Object(fields));
        }
        loop {
            let name = self.string()?;
            self.has_broken_name |= name.is_none();
            let name = name.unwrap_or_default();
            self.at += 1;
            let value = self.value(depth)?;
            let known = match fields.len() {
                0..FEW_FIELDS => fields.iter().position(|(other, _)| *other == name),
                _ => index.get(name.as_ref()).copied(),
            };
            match known.and_then(|known| fields.get_mut(known)) {
                Some((_, first)) => *first = value,
                None => {
                    fields.push((name, value));
                    if fields.len() == FEW_FIELDS {
                        index = fields.iter().enumerate().map(|(at, (name, _))| (name.to_string(), at)).collect();
                    } else if let (Some((name, _)), true) = (fields.last(), fields.len() > FEW_FIELDS) {
                        index.insert(name.to_string(), fields.len() - 1);
                    }
                }
            }
            if !self.skip(b',') {
                self.at += 1;
                return Some(Node::Object(fields));
            }
        }
    }

    fn number(&mut self) -> Option<Node<'a>> {
        let rest = self.text.get(self.at..)?;
        let length = rest.bytes().take_while(|byte| !matches!(byte, b',' | b']' | b'}')).count();
        let number = rest.get(..length)?;
        self.at += length;
        if length > MAX_NUMBER_LENGTH {
            return None;
        }
        if number.contains(['.', 'e', 'E']) {
            return number.parse().ok().map(Node::Double);
        }
        Some(number.parse().map_or(Node::Large, Node::Int))
    }

    /// A text with its escapes decoded; `Some(None)` if half a surrogate pair is in it.
    #[expect(clippy::option_option, reason = "the outer one is the end of the reading")]
    fn string(&mut self) -> Option<Option<Cow<'a, str>>> {
        self.at += 1;
        let rest = self.text.get(self.at..)?;
        let mut decoded = Cow::Borrowed("");
        let (mut from, mut is_broken) = (0, false);
        loop {
            let step = rest.get(from..)?.find(['"', '\\'])?;
            let piece = rest.get(from..from + step)?;
            match decoded {
                Cow::Borrowed("") => decoded = Cow::Borrowed(piece),
                _ => decoded.to_mut().push_str(piece),
            }
            from += step;
            if rest.as_bytes().get(from) == Some(&b'"') {
                self.at += from + 1;
                return Some((!is_broken).then_some(decoded));
            }
            let (character, length) = escape(rest.get(from + 1..)?)?;
            match character {
                Some(character) => decoded.to_mut().push(character),
                None => is_broken = true,
            }
            from += 1 + length;
        }
    }
}

/// What stands behind a backslash, and its length; no character for half a surrogate pair.
fn escape(text: &str) -> Option<(Option<char>, usize)> {
    let character = match text.bytes().next()? {
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        b'u' => {
            let unit = |at: usize| u16::from_str_radix(text.get(at..at + 4)?, 16).ok();
            let high = unit(1)?;
            // the second half may follow in an escape of its own
            let low = if text.get(5..7) == Some("\\u") { unit(7) } else { None };
            let mut decoded = char::decode_utf16([high].into_iter().chain(low));
            return Some(match decoded.next()? {
                Ok(character) => (Some(character), if character.len_utf16() == 2 { 11 } else { 5 }),
                Err(_) => (None, 5),
            });
        }
        other => char::from(other),
    };
    Some((Some(character), 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(value: &str) -> Node<'_> {
        Node::Text(Cow::Borrowed(value))
    }

    #[test]
    fn values_are_what_jackson_holds() {
        for (given, node) in [
            ("null", Node::Null),
            ("-0", Node::Int(0)),
            ("9223372036854775807", Node::Int(i64::MAX)),
            ("9223372036854775808", Node::Large),
            ("1E3", Node::Double(1000.0)),
            (r#""a\"\\\/\b\f\n\r\t\u00e9z""#, text("a\"\\/\u{8}\u{c}\n\r\téz")),
            (r#""\ud83d\udeb2!""#, text("🚲!")),
            (r#""\ud83d""#, Node::Broken),
            (r#""\ud83d\u0041""#, Node::Broken),
            (r#""\udeb2\ud83d""#, Node::Broken),
            ("[]", Node::Array(vec![])),
            ("[1,[true]]", Node::Array(vec![Node::Int(1), Node::Array(vec![Node::Bool(true)])])),
        ] {
            assert_eq!(parse(given), Some((node, false)), "{given}");
        }
        assert_eq!(parse(&format!("[{}]", "1".repeat(1001))), None);
        assert!(parse(r#"{"\ud83d":1,"b":2}"#).is_some_and(|(_, is_broken)| is_broken));
    }

    #[test]
    fn of_fields_of_one_name_the_last_counts() {
        let many: Vec<String> = (0..40).chain(0..40).map(|number| format!("\"k{number}\":{}", number % 7)).collect();
        let document = format!("{{{},\"k3\":true}}", many.join(","));
        let Some((Node::Object(fields), false)) = parse(&document) else { panic!("no object") };
        assert_eq!(fields.len(), 40);
        assert_eq!(fields[3], (Cow::Borrowed("k3"), Node::Bool(true)));
        assert_eq!(fields[39], (Cow::Borrowed("k39"), Node::Int(4)));
    }
}
