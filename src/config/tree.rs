//! From the text of a configuration file to a [`Config`], with every finding on the way.
//!
//! serde ends at the first unknown key and at the first value of a wrong type. So the parsed tree is walked against
//! [`OPTIONS`](super::options::OPTIONS) first, and what is wrong is taken out of it before the next try.

use std::borrow::Cow;
use std::ops::Range;

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::error::Finding;
use super::options::{self, TABLE_OF_TEXT};
use super::secret::redact;
use super::{Config, placeholder};

/// Most syntax errors that are shown: behind the first few the rest are mostly their consequences.
const MAX_SYNTAX_ERRORS: usize = 10;

/// What reading a file brought.
#[derive(Debug, Default)]
pub(super) struct Parsed {
    /// The configuration, with defaults in place of what could not be used.
    pub(super) config: Config,
    /// What is wrong.
    pub(super) findings: Vec<Finding>,
    /// Full names of options and tables that were left out because of a finding.
    pub(super) left_out: Vec<String>,
    /// Whether the text is no TOML at all: then the rest says nothing.
    pub(super) syntax_error: bool,
}

/// Reads the text of the file that is called `file` in findings.
pub(super) fn parse(text: &str, file: &str, variable: &impl Fn(&str) -> Option<String>) -> Parsed {
    let mut walk = Walk { text, file, findings: Vec::new(), parsed: Parsed::default() };
    let (mut root, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        for error in errors.into_iter().take(MAX_SYNTAX_ERRORS) {
            walk.toml_error(error);
        }
        walk.parsed.syntax_error = true;
        return walk.end();
    }
    walk.table(root.get_mut(), "");
    walk.placeholders(root.get_mut(), "", variable);
    walk.deserialize(&mut root);
    walk.end()
}

struct Walk<'t> {
    text: &'t str,
    file: &'t str,
    /// With the offset in the text, so that they can be shown in its order: the tree is sorted by name.
    findings: Vec<(usize, Finding)>,
    parsed: Parsed,
}

impl Walk<'_> {
    fn end(mut self) -> Parsed {
        self.findings.sort_by_key(|(offset, _)| *offset);
        self.parsed.findings = self.findings.into_iter().map(|(_, finding)| finding).collect();
        self.parsed
    }

    /// Takes unknown keys out of `table`, and reports them.
    fn table(&mut self, table: &mut DeTable<'_>, path: &str) {
        retain(table, |key, value| {
            let full = join(path, key.get_ref());
            let kind = options::find(&full).map(|option| option.kind);
            match (kind, value.get_mut()) {
                (Some(TABLE_OF_TEXT), DeValue::Table(entries)) => self.table_of_text(entries, &full),
                (Some(_), _) => {}
                (None, DeValue::Table(inner)) if options::is_table(&full) => self.table(inner, &full),
                (None, _) if options::is_table(&full) => {
                    let problem = format!("\"{full}\" is a table, not a value");
                    self.add(key.span(), &full, problem, format!("write [{full}] and its options below it"));
                    return false;
                }
                (None, _) => {
                    let hint = did_you_mean(path, key.get_ref());
                    self.add(key.span(), &full, format!("unknown option \"{full}\""), hint);
                    return false;
                }
            }
            true
        });
    }

    /// Looks through a table whose keys are another program's: only the form of the values is ours.
    fn table_of_text(&mut self, table: &mut DeTable<'_>, path: &str) {
        retain(table, |key, value| {
            let full = join(path, key.get_ref());
            let (problem, hint) = match value.get_ref() {
                DeValue::String(_) => return true,
                DeValue::Table(inner) => {
                    let name = dotted(key.get_ref(), inner);
                    let problem = format!("the dots in \"{name}\" make a table of it");
                    (problem, format!("put the whole name in double quotes: \"{name}\" = \"…\""))
                }
                DeValue::Array(_) => ("is a list, not a text".to_owned(), "write one text in double quotes".to_owned()),
                _ => {
                    let literal = self.text.get(value.span()).unwrap_or("…");
                    let hint = format!("put the value in double quotes: \"{}\" = \"{literal}\"", key.get_ref());
                    (format!("is of type {}, not a text", value.get_ref().type_str()), hint)
                }
            };
            self.add(key.span(), &full, format!("{full}: {problem}"), hint);
            false
        });
    }

    /// Puts in the values of environment variables.
    fn placeholders(&mut self, table: &mut DeTable<'_>, path: &str, variable: &impl Fn(&str) -> Option<String>) {
        retain(table, |key, value| {
            let full = join(path, key.get_ref());
            if let DeValue::Table(inner) = value.get_mut() {
                self.placeholders(inner, &full, variable);
                return true;
            }
            let span = value.span();
            match put_in(value.get_mut(), variable) {
                Ok(()) => true,
                Err((problem, hint)) => {
                    self.add(span, &full, format!("{full}: {problem}"), hint);
                    false
                }
            }
        });
    }

    /// Deserializes the tree; takes out each value that has the wrong type, and tries again.
    fn deserialize(&mut self, root: &mut Spanned<DeTable<'_>>) {
        loop {
            let error = match Config::deserialize(toml::Deserializer::from(root.clone())) {
                Ok(config) => {
                    self.parsed.config = config;
                    return;
                }
                Err(error) => error,
            };
            let left_out = error.span().and_then(|span| take_out(root.get_mut(), "", &span));
            self.toml_error(error);
            match left_out {
                Some(path) => self.parsed.left_out.push(path),
                None => {
                    self.parsed.syntax_error = true;
                    return;
                }
            }
        }
    }

    /// Adds a finding in toml's own form, with line, column and caret.
    fn toml_error(&mut self, mut error: toml::de::Error) {
        error.set_input(Some(self.text));
        let finding = Finding {
            place: Some(self.file.to_owned()),
            option: None,
            problem: redact(error.to_string().trim_end()),
            hint: None,
        };
        self.findings.push((error.span().map_or(0, |span| span.start), finding));
    }

    fn add(&mut self, span: Range<usize>, option: &str, problem: String, hint: String) {
        let line = self.text.get(..span.start).map_or(0, |before| before.matches('\n').count()) + 1;
        let place = Some(format!("{}:{line}", self.file));
        self.findings.push((span.start, Finding { place, option: None, problem, hint: Some(hint) }));
        self.parsed.left_out.push(option.to_owned());
    }
}

/// Keeps what `keep` says: the tree's own map can do that for plain keys only.
fn retain<'i>(
    table: &mut DeTable<'i>,
    mut keep: impl FnMut(&Spanned<DeString<'i>>, &mut Spanned<DeValue<'i>>) -> bool,
) {
    for (key, mut value) in std::mem::take(table) {
        if keep(&key, &mut value) {
            table.insert(key, value);
        }
    }
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// The name that was meant by a key with dots in it that are not in quotes: `linger.ms` made a table `linger`.
fn dotted(key: &str, table: &DeTable<'_>) -> String {
    match table.iter().next() {
        Some((inner, value)) => match value.get_ref() {
            DeValue::Table(table) => format!("{key}.{}", dotted(inner.get_ref(), table)),
            _ => format!("{key}.{}", inner.get_ref()),
        },
        None => key.to_owned(),
    }
}

/// Puts the values of environment variables into a text, or into the texts of a list.
fn put_in(value: &mut DeValue<'_>, variable: &impl Fn(&str) -> Option<String>) -> Result<(), (String, String)> {
    match value {
        DeValue::String(text) => {
            if let Some(resolved) = placeholder::resolve(text, variable)? {
                *text = Cow::Owned(resolved);
            }
            Ok(())
        }
        DeValue::Array(entries) => entries.iter_mut().try_for_each(|entry| put_in(entry.get_mut(), variable)),
        _ => Ok(()),
    }
}

/// Takes the value at `span` out of the tree, and returns its full name.
fn take_out(table: &mut DeTable<'_>, path: &str, span: &Range<usize>) -> Option<String> {
    let mut found = None;
    retain(table, |key, value| {
        if found.is_some() {
            return true;
        }
        let full = join(path, key.get_ref());
        if let DeValue::Table(inner) = value.get_mut() {
            found = take_out(inner, &full, span);
            if found.is_some() {
                return true;
            }
        }
        let around = value.span();
        if key.span() == *span || (around.start <= span.start && span.end <= around.end) {
            found = Some(full);
            return false;
        }
        true
    });
    found
}

/// A hint for an unknown key: the nearest name beside it, or the table in which a key of this name stands.
fn did_you_mean(path: &str, key: &str) -> String {
    let siblings = options::keys_in(path);
    let near = siblings
        .iter()
        .map(|name| (distance(key, name), *name))
        .min()
        .filter(|(distance, name)| *distance <= 2.max(name.len() / 4) && *distance < name.len());
    if let Some((_, name)) = near {
        return format!("did you mean \"{name}\"?");
    }
    let elsewhere = options::OPTIONS.iter().find_map(|option| {
        let (table, name) = option.key.rsplit_once('.').unwrap_or(("", option.key));
        (distance(key, name) <= 1).then(|| match table {
            "" => format!("did you mean \"{name}\" at the top of the file, above all tables?"),
            _ => format!("did you mean \"{name}\" in [{table}]?"),
        })
    });
    elsewhere.unwrap_or_else(|| {
        let place = if path.is_empty() { "the top of the file".to_owned() } else { format!("[{path}]") };
        format!("{place} knows: {}", siblings.join(", "))
    })
}

/// Levenshtein's distance between two names; `_` counts as `-`, and case does not count.
fn distance(a: &str, b: &str) -> usize {
    let plain = |text: &str| text.to_ascii_lowercase().replace('_', "-");
    let (a, b) = (plain(a), plain(b));
    let mut row: Vec<usize> = (0..=b.chars().count()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut left = i + 1;
        let mut next = vec![left];
        for (to, pair) in b.chars().zip(row.windows(2)) {
            if let [diagonal, above] = pair {
                left = (diagonal + usize::from(from != to)).min(above + 1).min(left + 1);
            }
            next.push(left);
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CONNECTOR: &str = include_str!("../../connectors/postgres.toml");

    #[test]
    fn distances_are_levenshteins() {
        for (a, b, expected) in
            [("", "", 0), ("", "ab", 2), ("kitten", "sitting", 3), ("window_bytes", "Window-Bytes", 0)]
        {
            assert_eq!((distance(a, b), distance(b, a)), (expected, expected), "{a} {b}");
        }
    }

    proptest! {
        /// A file that was cut, or in which something was put anywhere, is read or refused; nothing panics or hangs.
        #[test]
        fn broken_files_are_refused(cut in 0..CONNECTOR.len(), end in 0..CONNECTOR.len(), noise in "[\\[\\]{}=\".#a-z0-9é\n]{0,6}") {
            let head = CONNECTOR.get(..cut).unwrap_or_default();
            let tail = CONNECTOR.get(end..).unwrap_or_default();
            parse(&format!("{head}{noise}{tail}"), "f", &|_| None);
        }

        #[test]
        fn any_text_is_refused_or_read(text in ".*") {
            parse(&text, "f", &|_| None);
        }
    }
}
