//! Regular expressions in Java's syntax (`java.util.regex.Pattern`), for an engine that knows most of it.
//!
//! What means something else to the engine is translated; what it does not have is refused by name. So a pattern either
//! matches what it matches in Java, or the configuration is refused.

use std::iter::Peekable;
use std::str::Chars;

use fancy_regex::{Captures, Regex};

/// The line terminators, which `.` does not match (`Pattern`, "Line terminators").
const LINE_ENDS: &str = r"\n\r\x{85}\x{2028}\x{2029}";

/// A compiled pattern.
#[derive(Debug)]
pub(super) struct JavaPattern {
    /// Matches the whole text.
    whole: Regex,
    /// Finds the first match.
    find: Regex,
}

/// The search was given up: it would take too long.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("takes too long to match: {0}")]
pub(super) struct TooHard(String);

impl JavaPattern {
    /// Compiles a pattern.
    ///
    /// # Errors
    /// What is wrong with it, or what of it is not supported.
    pub(super) fn new(pattern: &str) -> Result<Self, String> {
        let translated =
            Translator { rest: pattern.chars().peekable(), out: String::new(), scopes: vec![false], names: Vec::new() }
                .run()?;
        // the engine's message may quote the translation, so only its first line is shown
        let compile = |text: &str| {
            Regex::new(text).map_err(|error| {
                let words = error.to_string();
                format!("is no regular expression: {}", words.lines().last().unwrap_or_default().trim())
            })
        };
        Ok(Self { find: compile(&translated)?, whole: compile(&format!(r"\A(?:{translated})\z"))? })
    }

    /// The number of groups, without the whole.
    #[must_use]
    pub(super) fn group_count(&self) -> usize {
        self.find.captures_len().saturating_sub(1)
    }

    /// The number of the group of this name.
    #[must_use]
    pub(super) fn group(&self, name: &str) -> Option<usize> {
        self.find.capture_names().position(|group| group == Some(name))
    }

    /// The names of its groups.
    #[must_use]
    pub(super) fn names(&self) -> Vec<&str> {
        self.find.capture_names().flatten().collect()
    }

    /// The first match in a text that matches as a whole; `None` if it does not. The first match may be shorter than the
    /// whole: `a|ab` matches `ab`, and is found in it as `a`.
    ///
    /// # Errors
    /// [`TooHard`]
    pub(super) fn first_of_whole<'t>(&self, text: &'t str) -> Result<Option<Captures<'t, str>>, TooHard> {
        let too_hard = |error: fancy_regex::Error| TooHard(error.to_string());
        if !self.whole.is_match(text).map_err(too_hard)? {
            return Ok(None);
        }
        self.find.captures(text).map_err(too_hard)
    }
}

struct Translator<'p> {
    rest: Peekable<Chars<'p>>,
    out: String,
    /// Whether `.` matches everything, for each open group.
    scopes: Vec<bool>,
    /// The names of groups.
    names: Vec<String>,
}

fn unsupported(what: &str) -> String {
    format!("has \"{what}\" in it, which is not supported")
}

/// Whether a character would mean something to the engine, inside or outside of a class.
fn is_special(c: char) -> bool {
    r"\.+*?()|[]{}^$#&-~".contains(c)
}

impl Translator<'_> {
    fn run(mut self) -> Result<String, String> {
        while let Some(c) = self.rest.next() {
            match c {
                '\\' => self.escape()?,
                '.' => {
                    let dot_all = self.scopes.last().copied().unwrap_or_default();
                    let dot = if dot_all { "(?s:.)".to_owned() } else { format!("[^{LINE_ENDS}]") };
                    self.out.push_str(&dot);
                }
                '^' => self.out.push_str(r"\A"),
                // also before a line terminator at the very end
                '$' => self.out.push_str(&format!(r"(?=(?:\r\n|[{LINE_ENDS}])?\z)")),
                '[' => self.class()?,
                '(' => self.group()?,
                ')' => {
                    self.scopes.pop();
                    if self.scopes.is_empty() {
                        return Err("is no regular expression: \")\" without \"(\"".to_owned());
                    }
                    self.out.push(')');
                }
                '{' => self.repetition()?,
                '|' | '*' | '+' | '?' => self.out.push(c),
                _ => self.literal(c),
            }
        }
        Ok(self.out)
    }

    fn literal(&mut self, c: char) {
        if is_special(c) {
            self.out.push('\\');
        }
        self.out.push(c);
    }

    /// `{2}`, `{2,}`, `{2,3}`: anything else is an error in Java.
    fn repetition(&mut self) -> Result<(), String> {
        let mut body = String::new();
        for c in self.rest.by_ref().take_while(|c| *c != '}') {
            body.push(c);
        }
        let mut bounds = body.splitn(2, ',');
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let is_low = bounds.next().is_some_and(|low| !low.is_empty() && digits(low));
        if !is_low || !bounds.next().is_none_or(digits) {
            return Err(format!("is no regular expression: \"{{{body}}}\" is no repetition"));
        }
        self.out.push_str(&format!("{{{body}}}"));
        Ok(())
    }

    /// What follows an opening bracket.
    fn group(&mut self) -> Result<(), String> {
        let dot_all = self.scopes.last().copied().unwrap_or_default();
        self.scopes.push(dot_all);
        if self.rest.next_if_eq(&'?').is_none() {
            self.out.push('(');
            return Ok(());
        }
        let mut kind = String::new();
        while let Some(c) = self.rest.next() {
            kind.push(c);
            match (kind.as_str(), c) {
                (":" | "=" | "!" | ">" | "<=" | "<!", _) => {
                    self.out.push_str(&format!("(?{kind}"));
                    return Ok(());
                }
                ("<", _) => {}
                (_, '>') if kind.starts_with('<') => {
                    let name = kind.trim_matches(['<', '>']);
                    let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic())
                        && name.bytes().all(|byte| byte.is_ascii_alphanumeric());
                    if !is_name {
                        return Err(format!("is no regular expression: \"{name}\" is no name of a group"));
                    }
                    if self.names.iter().any(|other| other == name) {
                        return Err(format!("is no regular expression: group \"{name}\" is there twice"));
                    }
                    self.names.push(name.to_owned());
                    self.out.push_str(&format!("(?<{name}>"));
                    return Ok(());
                }
                (_, ':' | ')') if !kind.starts_with('<') => return self.flags(&kind, c),
                _ => {}
            }
        }
        Err("is no regular expression: a group is not closed".to_owned())
    }

    /// `(?i)`, `(?s:`: the flags for case and for `.`.
    fn flags(&mut self, kind: &str, end: char) -> Result<(), String> {
        let (on, off) = kind.trim_end_matches(end).split_once('-').unwrap_or((kind.trim_end_matches(end), ""));
        if !on.chars().chain(off.chars()).all(|flag| matches!(flag, 'i' | 's')) {
            return Err(unsupported(&format!("(?{kind}")));
        }
        // without a group of their own they hold until the group around them ends
        if end == ')' {
            self.scopes.pop();
        }
        if let Some(dot_all) = self.scopes.last_mut() {
            *dot_all = (*dot_all || on.contains('s')) && !off.contains('s');
        }
        let case = match (on.contains('i'), off.contains('i')) {
            (_, true) => "-i",
            (true, false) => "i",
            (false, false) => "",
        };
        match (case, end) {
            ("", ')') => {}
            ("", _) => self.out.push_str("(?:"),
            (case, _) => self.out.push_str(&format!("(?{case}{end}")),
        }
        Ok(())
    }

    /// A backslash outside of a class.
    fn escape(&mut self) -> Result<(), String> {
        let Some(c) = self.rest.next() else {
            return Err("is no regular expression: it ends with a backslash".to_owned());
        };
        match c {
            'b' | 'B' | 'A' | 'z' => self.out.push_str(&format!("\\{c}")),
            'Q' => self.quotation(),
            '1'..='9' => {
                if self.rest.peek().is_some_and(char::is_ascii_digit) {
                    return Err(unsupported(&format!("\\{c}… with more than one digit")));
                }
                self.out.push_str(&format!("(?:\\{c})"));
            }
            'k' => {
                let name: String = self.rest.by_ref().take_while(|c| *c != '>').collect();
                let Some(name) = name.strip_prefix('<') else { return Err(unsupported("\\k")) };
                self.out.push_str(&format!("\\k<{name}>"));
            }
            _ => {
                let class = self.shared_escape(c)?;
                self.out.push_str(&class);
            }
        }
        Ok(())
    }

    /// `\Q…\E`: as it stands.
    fn quotation(&mut self) {
        while let Some(c) = self.rest.next() {
            if c == '\\' && self.rest.next_if_eq(&'E').is_some() {
                return;
            }
            self.literal(c);
        }
    }

    /// The escapes that mean the same inside and outside of a class.
    fn shared_escape(&mut self, c: char) -> Result<String, String> {
        Ok(match c {
            // ASCII only, unless a flag that is not supported says otherwise
            'd' => "[0-9]".to_owned(),
            'D' => "[^0-9]".to_owned(),
            'w' => "[a-zA-Z_0-9]".to_owned(),
            'W' => "[^a-zA-Z_0-9]".to_owned(),
            's' => r"[ \t\n\x0B\f\r]".to_owned(),
            'S' => r"[^ \t\n\x0B\f\r]".to_owned(),
            't' | 'n' | 'r' | 'f' => format!("\\{c}"),
            'a' => r"\x07".to_owned(),
            'e' => r"\x1B".to_owned(),
            'x' if self.rest.next_if_eq(&'{').is_some() => {
                let digits: String = self.rest.by_ref().take_while(|c| *c != '}').collect();
                code_point(&digits)?
            }
            'x' => {
                let digits = self.take(2);
                code_point(&digits)?
            }
            'u' => {
                let digits = self.take(4);
                code_point(&digits)?
            }
            'p' | 'P' => self.property(c)?,
            _ if c.is_ascii_alphanumeric() => return Err(unsupported(&format!("\\{c}"))),
            _ if is_special(c) => format!("\\{c}"),
            _ => c.to_string(),
        })
    }

    fn take(&mut self, count: usize) -> String {
        self.rest.by_ref().take(count).collect()
    }

    /// `\p{Alpha}`, `\p{Lu}`, `\pL`.
    fn property(&mut self, escape: char) -> Result<String, String> {
        let name: String = match self.rest.next_if_eq(&'{') {
            Some(_) => self.rest.by_ref().take_while(|c| *c != '}').collect(),
            None => self.take(1),
        };
        let ascii = match name.as_str() {
            "Lower" => "a-z",
            "Upper" => "A-Z",
            "Alpha" => "a-zA-Z",
            "Digit" => "0-9",
            "Alnum" => "a-zA-Z0-9",
            "Punct" => r"!-/:-@\[-`\{-~",
            "XDigit" => "0-9a-fA-F",
            // a general category of Unicode
            _ if name.len() <= 2 && name.bytes().all(|byte| byte.is_ascii_alphabetic()) => {
                return Ok(format!("\\{escape}{{{name}}}"));
            }
            _ => return Err(unsupported(&format!("\\{escape}{{{name}}}"))),
        };
        let not = if escape == 'P' { "^" } else { "" };
        Ok(format!("[{not}{ascii}]"))
    }

    /// A class in brackets, which may hold others.
    fn class(&mut self) -> Result<(), String> {
        self.out.push('[');
        if self.rest.next_if_eq(&'^').is_some() {
            self.out.push('^');
        }
        let mut is_empty = true;
        while let Some(c) = self.rest.next() {
            match c {
                ']' if is_empty => return Err(unsupported("[]")),
                ']' => {
                    self.out.push(']');
                    return Ok(());
                }
                '[' => self.class()?,
                '\\' => {
                    let Some(c) = self.rest.next() else { break };
                    let class = self.shared_escape(c)?;
                    self.out.push_str(&class);
                }
                '&' if self.rest.peek() == Some(&'&') => return Err(unsupported("&&")),
                '-' if self.rest.peek() == Some(&'-') => return Err(unsupported("--")),
                '-' => self.out.push('-'),
                _ => self.literal(c),
            }
            is_empty = false;
        }
        Err("is no regular expression: a class is not closed".to_owned())
    }
}

fn code_point(digits: &str) -> Result<String, String> {
    let point = u32::from_str_radix(digits, 16).ok().and_then(char::from_u32);
    point.map(|c| format!("\\x{{{:x}}}", u32::from(c))).ok_or_else(|| unsupported(&format!("\\u{digits}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is found in a text that matches as a whole.
    fn found(pattern: &str, text: &str) -> Option<String> {
        let pattern = JavaPattern::new(pattern).unwrap_or_else(|problem| panic!("{pattern}: {problem}"));
        let captures = pattern.first_of_whole(text).unwrap();
        captures.map(|captures| captures[0].to_owned())
    }

    #[test]
    fn whole_texts_match_and_the_first_find_counts() {
        assert_eq!(found("a|ab", "ab").as_deref(), Some("a"));
        assert_eq!(found("(?<x>Order)", "XOrderX"), None);
        assert_eq!(found(".*", "a\nb"), None);
        assert_eq!(found(".*", "a\u{2028}b"), None);
        assert_eq!(found("(?s).*", "a\nb").as_deref(), Some("a\nb"));
        assert_eq!(found("(?s:a.)b.", "a\nbc").as_deref(), Some("a\nbc"));
        assert_eq!(found("(?s:a.)b.", "a\nb\n"), None);
        assert_eq!(found("", "").as_deref(), Some(""));
    }

    #[test]
    fn javas_constructs_mean_what_they_mean_there() {
        for (pattern, yes, no) in [
            (r"\d+", "123", "١٢٣"),
            (r"\w+", "a_1", "é"),
            (r"[\w.]+", "a.b", "a b"),
            (r"[^\d]+", "ab", "a1"),
            (r"(?=a)\w+", "ab", "ba"),
            (r"(?!a)\w+", "ba", "ab"),
            (r"\w+(?<!x)", "ab", "ax"),
            (r"(\w)\1", "aa", "ab"),
            (r"(?<c>\w)-\k<c>", "a-a", "a-b"),
            (r"(?>a+)b", "aab", "aa"),
            (r"a++b", "aab", "aa"),
            (r"(?i)order", "OrDeR", "orders"),
            (r"\Qa.b\E+", "a.bb", "axb"),
            (r"\p{Upper}\p{Lower}+", "Order", "order"),
            (r"\p{Lu}.*", "Éa", "éa"),
            (r"[a-c[x-z]]+", "axz", "d"),
            (r"[a\-z]+", "a-z", "b"),
            (r"[~#&]+", "~#&", "-"),
            (r"a{2,3}", "aaa", "a"),
            (r"\x41\u0042\x{43}", "ABC", "abc"),
            (r"^a$", "a", "b"),
            (r"a\.b/c~]", "a.b/c~]", "a.b"),
        ] {
            assert!(found(pattern, yes).is_some(), "{pattern} {yes}");
            assert!(found(pattern, no).is_none(), "{pattern} {no}");
        }
    }

    #[test]
    fn what_is_not_supported_is_refused_by_name() {
        for (pattern, problem) in [
            ("(?x)a b", "has \"(?x)\" in it, which is not supported"),
            (r"\h", "has \"\\h\" in it, which is not supported"),
            (r"\p{IsLatin}", "has \"\\p{IsLatin}\" in it, which is not supported"),
            ("[a&&b]", "has \"&&\" in it, which is not supported"),
            ("[]a]", "has \"[]\" in it, which is not supported"),
            (r"\ud83d", "has \"\\ud83d\" in it, which is not supported"),
            ("a{x}", "is no regular expression: \"{x}\" is no repetition"),
            ("a)", "is no regular expression: \")\" without \"(\""),
            ("[a", "is no regular expression: a class is not closed"),
            ("(?<a", "is no regular expression: a group is not closed"),
            ("(?<a>x)(?<a>y)", "is no regular expression: group \"a\" is there twice"),
            ("(?<1a>x)", "is no regular expression: \"1a\" is no name of a group"),
            ("a\\", "is no regular expression: it ends with a backslash"),
        ] {
            assert_eq!(JavaPattern::new(pattern).unwrap_err(), problem, "{pattern}");
        }
        for pattern in ["(", "*a", r"\2(a)"] {
            let refused = JavaPattern::new(pattern);
            assert!(refused.is_err(), "{pattern}: {refused:?}");
        }
    }

    #[test]
    fn a_hopeless_search_ends() {
        let pattern = JavaPattern::new(r"(?:(a+)+\1)+$b").unwrap();
        assert!(pattern.first_of_whole(&"a".repeat(60)).is_err());
    }
}
