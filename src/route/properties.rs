//! A `java.util.Properties` text, as Debezium's tracing keeps a span's context in a column (`Properties.load`).

/// The value of a key; of two the last counts.
#[must_use]
pub(super) fn get(text: &str, wanted: &str) -> Option<String> {
    let mut found = None;
    let mut lines = text.split(['\n', '\r']).map(|line| line.trim_start_matches([' ', '\t', '\u{c}']));
    while let Some(first) = lines.next() {
        if first.is_empty() || first.starts_with(['#', '!']) {
            continue;
        }
        let mut line = first.to_owned();
        // an odd number of backslashes at its end: the line goes on
        while line.bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 1 {
            line.pop();
            match lines.next() {
                Some(next) => line.push_str(next),
                None => break,
            }
        }
        let (key, value) = split(&line);
        if unescape(key) == wanted {
            found = Some(unescape(value));
        }
    }
    found
}

/// Key and value: a `=`, a `:` or white space stands between.
fn split(line: &str) -> (&str, &str) {
    const BLANK: [char; 3] = [' ', '\t', '\u{c}'];
    let mut is_escaped = false;
    let end = line.find(|c| {
        let is_end = !is_escaped && (matches!(c, '=' | ':') || BLANK.contains(&c));
        is_escaped = c == '\\' && !is_escaped;
        is_end
    });
    let Some((key, rest)) = end.and_then(|end| line.split_at_checked(end)) else { return (line, "") };
    let rest = rest.trim_start_matches(BLANK);
    (key, rest.strip_prefix(['=', ':']).unwrap_or(rest).trim_start_matches(BLANK))
}

fn unescape(text: &str) -> String {
    let mut units: Vec<u16> = Vec::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        let plain = match if c == '\\' { rest.next() } else { Some(c) } {
            Some('u') if c == '\\' => {
                // half a surrogate pair; the other half stands in the next escape
                let digits: String = rest.by_ref().take(4).collect();
                units.push(u16::from_str_radix(&digits, 16).unwrap_or(0xfffd));
                continue;
            }
            Some('t') if c == '\\' => '\t',
            Some('n') if c == '\\' => '\n',
            Some('r') if c == '\\' => '\r',
            Some('f') if c == '\\' => '\u{c}',
            Some(plain) => plain,
            None => break,
        };
        units.extend_from_slice(plain.encode_utf16(&mut [0; 2]));
    }
    String::from_utf16_lossy(&units)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_as_java_does() {
        let text = "#Mon Jan 01\n! more\ntraceparent=00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n\
                    tracestate : a\\=b,c\\:d\n  blank   value  \nlong=1\\\n   2\\\\\nempty\nesc\\u0061ped=\\t\\u00e9\\ud83d\\udeb2\nempty2=\n";
        for (key, value) in [
            ("traceparent", Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")),
            ("tracestate", Some("a=b,c:d")),
            ("blank", Some("value  ")),
            ("long", Some("12\\")),
            ("empty", Some("")),
            ("empty2", Some("")),
            ("escaped", Some("\té🚲")),
            ("more", None),
        ] {
            assert_eq!(get(text, key).as_deref(), value, "{key}");
        }
        assert_eq!(get("a=1\na=2", "a").as_deref(), Some("2"));
        assert_eq!(get("", "a"), None);
        assert_eq!(get("a=1\\", "a").as_deref(), Some("1"));
    }
}
