//! Java's `.properties` files (`java.util.Properties.load`): workers' files, and the files behind `${file:…}`.

/// What Java counts as white space in such a file.
const BLANKS: &[char] = &[' ', '\t', '\u{c}'];

/// The properties of a text, in its order; of two of one name the later one counts, as in Java.
///
/// # Errors
/// The line's number and what is wrong with it.
pub(super) fn parse(text: &str) -> Result<Vec<(String, String)>, String> {
    let mut properties: Vec<(String, String)> = Vec::new();
    let mut lines = text.lines().zip(1usize..);
    while let Some((line, number)) = lines.next() {
        let line = line.trim_start_matches(BLANKS);
        if line.is_empty() || line.starts_with(['#', '!']) {
            continue;
        }
        let mut logical = line.to_owned();
        while goes_on(&logical) {
            logical.pop();
            let Some((next, _)) = lines.next() else { break };
            logical.push_str(next.trim_start_matches(BLANKS));
        }
        let (name, value) = split(&logical);
        let broken = || format!("line {number}: \\u is not followed by the four digits of a character");
        let (name, value) = (unescape(name).ok_or_else(broken)?, unescape(value).ok_or_else(broken)?);
        properties.retain(|(known, _)| *known != name);
        properties.push((name, value));
    }
    Ok(properties)
}

/// Whether the line ends with a backslash that is not escaped itself.
fn goes_on(line: &str) -> bool {
    line.bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 1
}

/// Name and value, still escaped: between them stands `=`, `:`, or white space that is not escaped.
fn split(line: &str) -> (&str, &str) {
    let mut escaped = false;
    let end = line.char_indices().find(|(_, c)| {
        let ends = !escaped && (matches!(c, '=' | ':') || BLANKS.contains(c));
        escaped = !escaped && *c == '\\';
        ends
    });
    let Some((end, _)) = end else { return (line, "") };
    let (name, rest) = line.split_at(end);
    let rest = rest.trim_start_matches(BLANKS);
    (name, rest.strip_prefix(['=', ':']).unwrap_or(rest).trim_start_matches(BLANKS))
}

/// `None` for a broken escape. Java counts in UTF-16: a character beyond U+FFFF is written as two escapes.
fn unescape(text: &str) -> Option<String> {
    let mut units: Vec<u16> = Vec::new();
    let mut characters = text.chars();
    while let Some(mut c) = characters.next() {
        if c == '\\' {
            c = match characters.next().unwrap_or('\\') {
                't' => '\t',
                'n' => '\n',
                'r' => '\r',
                'f' => '\u{c}',
                'u' => {
                    let digits: String = characters.by_ref().take(4).collect();
                    units.push(u16::from_str_radix(&digits, 16).ok().filter(|_| digits.len() == 4)?);
                    continue;
                }
                other => other,
            };
        }
        units.extend_from_slice(c.encode_utf16(&mut [0; 2]));
    }
    String::from_utf16(&units).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Vec<(String, String)> {
        parse(text).unwrap()
    }

    /// The forms that the documentation of `Properties.load` shows.
    #[test]
    fn lines_are_read_as_java_does() {
        let cases = [
            ("Truth = Beauty", "Truth", "Beauty"),
            ("  Truth:Beauty", "Truth", "Beauty"),
            ("Truth                    :Beauty", "Truth", "Beauty"),
            ("fruits       apple, banana, \\\n    kiwi, \\\n   mango", "fruits", "apple, banana, kiwi, mango"),
            ("cheeses", "cheeses", ""),
            ("a\\ b\\:c=d e ", "a b:c", "d e "),
            ("path=c\\:\\\\x", "path", "c:\\x"),
            ("u=\\u0041\\ud83e\\udd80\\t.", "u", "A🦀\t."),
            ("jaas=a.b.C required username=\"x\";", "jaas", "a.b.C required username=\"x\";"),
            ("end=x\\", "end", "x"),
        ];
        for (text, name, value) in cases {
            assert_eq!(read(text), [(name.to_owned(), value.to_owned())], "{text}");
        }
    }

    #[test]
    fn comments_and_repeats() {
        let text = "# a=1\r\n! b=2\r\n\r\nc=3\r\nd=4\r\nc=5\r\n";
        assert_eq!(read(text), [("d".to_owned(), "4".to_owned()), ("c".to_owned(), "5".to_owned())]);
        assert_eq!(
            parse("a=1\nb=\\u00g0").unwrap_err(),
            "line 2: \\u is not followed by the four digits of a character"
        );
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[\\\\=:# \t\nau0dé🦀]{0,40}") {
            let _ = parse(&text);
        }
    }
}
