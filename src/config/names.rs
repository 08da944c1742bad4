//! Names in the configuration that have parts: `schema.table`, `column:header-name`, and the default names of slot and
//! publication.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

/// Longest name that PostgreSQL keeps, in bytes (`NAMEDATALEN - 1`).
pub const MAX_IDENTIFIER_BYTES: usize = 63;

/// The text is not a name of the expected form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{text}\" {problem}")]
pub struct NameError {
    text: String,
    problem: String,
}

impl NameError {
    /// What is wrong with a text.
    pub(super) fn new(text: &str, problem: &str) -> Self {
        Self { text: text.to_owned(), problem: problem.to_owned() }
    }
}

/// A table by schema and name, both exactly as the catalogue holds them: nothing is folded to lower case.
///
/// Written `schema.table`. A part with a dot, a double quote or outer blanks stands in double quotes, with inner double
/// quotes doubled. `Display` gives the form for SQL, always quoted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableName {
    /// Schema.
    pub schema: String,
    /// Table.
    pub table: String,
}

impl TableName {
    /// Reads `schema.table`.
    ///
    /// # Errors
    /// [`NameError`] says what is wrong with the text.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let error = |problem: &str| NameError { text: text.to_owned(), problem: problem.to_owned() };
        let parts = split_parts(text, '.').map_err(error)?;
        let (schema, table) = match parts.as_slice() {
            [schema, table] => (schema.clone(), table.clone()),
            [_] => return Err(error("has no schema: expected schema.table")),
            _ => return Err(error("has too many parts: expected schema.table")),
        };
        for part in [&schema, &table] {
            check_identifier(part).map_err(|problem| error(&problem))?;
        }
        Ok(Self { schema, table })
    }

    /// Both names with a dot between, unquoted: for logs and comparisons, not for SQL.
    #[must_use]
    pub fn plain(&self) -> String {
        format!("{}.{}", self.schema, self.table)
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", quote_identifier(&self.schema), quote_identifier(&self.table))
    }
}

impl FromStr for TableName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        Self::parse(text)
    }
}

/// An entry of `record.headers` or `record.envelope`: a column, and the header or field that it becomes.
///
/// Written `column` or `column:header-name`. A column with a colon or a double quote in its name stands in double quotes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderColumn {
    /// Column of the outbox table.
    pub column: String,
    /// Key of the header.
    pub header: String,
}

impl HeaderColumn {
    /// Reads `column` or `column:header-name`.
    ///
    /// # Errors
    /// [`NameError`] says what is wrong with the text.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let error = |problem: &str| NameError { text: text.to_owned(), problem: problem.to_owned() };
        let (column, rest) = first_part(text, ':').map_err(error)?;
        check_identifier(&column).map_err(|problem| error(&problem))?;
        let header = rest.map_or_else(|| column.clone(), |rest| rest.trim().to_owned());
        if header.is_empty() {
            return Err(error("has no name after the colon"));
        }
        if header.contains('\0') {
            return Err(error("has a zero byte in it"));
        }
        if let Some(placement) = header.split(':').next()
            && ["header", "envelope", "partition"].contains(&placement)
            && header.contains(':')
        {
            return Err(error("has three parts: expected column:header-name, without a placement in the middle"));
        }
        Ok(Self { column, header })
    }
}

/// Puts an identifier into double quotes for SQL.
#[must_use]
pub fn quote_identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A command on the instance that is configured in `file` with these further flags, as it is typed.
#[must_use]
pub fn command(file: Option<&Path>, flags: &[String], words: &str) -> String {
    match file {
        Some(file) => {
            let flags = flags.iter().map(|flag| format!(" {}", shell_word(flag))).collect::<String>();
            format!("outboxd {words} --config {}{flags}", shell_word(&file.display().to_string()))
        }
        None => format!("outboxd {words} (with the flags and variables of this instance)"),
    }
}

/// A text as one word for a shell.
fn shell_word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%,=".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

/// `outboxd_<name>`, in lower case, with `_` for every character that a replication slot may not have.
#[must_use]
pub fn default_object_name(name: &str) -> String {
    let legal = |c: char| if c.is_ascii_lowercase() || c.is_ascii_digit() { c } else { '_' };
    format!("outboxd_{}", name.to_lowercase().chars().map(legal).collect::<String>())
}

/// Splits a list at commas that are not in double quotes, and leaves out empty entries.
#[must_use]
pub fn split_list(text: &str) -> Vec<String> {
    let mut in_quotes = false;
    text.split(|c: char| {
        in_quotes ^= c == '"';
        c == ',' && !in_quotes
    })
    .map(|entry| entry.trim().to_owned())
    .filter(|entry| !entry.is_empty())
    .collect()
}

/// What is wrong with an identifier of PostgreSQL, if anything.
pub(super) fn check_identifier(name: &str) -> Result<(), String> {
    if name.is_empty() {
        return Err("has an empty part".to_owned());
    }
    if name.len() > MAX_IDENTIFIER_BYTES {
        return Err(format!("is too long: PostgreSQL keeps {MAX_IDENTIFIER_BYTES} bytes of a name"));
    }
    if name.contains('\0') {
        return Err("has a zero byte in it".to_owned());
    }
    Ok(())
}

fn split_parts(text: &str, separator: char) -> Result<Vec<String>, &'static str> {
    let mut parts = Vec::new();
    let mut rest = Some(text);
    while let Some(text) = rest {
        let (part, next) = first_part(text, separator)?;
        parts.push(part);
        rest = next;
    }
    Ok(parts)
}

/// The first part of `text`, unquoted, and what follows the separator.
fn first_part(text: &str, separator: char) -> Result<(String, Option<&str>), &'static str> {
    let text = text.trim();
    let Some(quoted) = text.strip_prefix('"') else {
        let (part, rest) = text.split_once(separator).map_or((text, None), |(part, rest)| (part, Some(rest)));
        if part.contains('"') {
            return Err("has a double quote inside a part: put the part in double quotes and double the inner one");
        }
        return Ok((part.trim().to_owned(), rest));
    };
    let mut part = String::new();
    let mut rest = quoted;
    loop {
        let (before, after) = rest.split_once('"').ok_or("has a double quote without its counterpart")?;
        part.push_str(before);
        match after.strip_prefix('"') {
            Some(after) => {
                part.push('"');
                rest = after;
            }
            None => {
                let after = after.trim_start();
                if after.is_empty() {
                    return Ok((part, None));
                }
                let next = after.strip_prefix(separator).ok_or("goes on after a closing double quote")?;
                return Ok((part, Some(next)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn table(text: &str) -> (String, String) {
        let name = TableName::parse(text).unwrap();
        (name.schema, name.table)
    }

    #[test]
    fn table_names_are_taken_as_they_are() {
        let cases = [
            ("public.outbox", "public", "outbox"),
            ("app.\"OutBox\"", "app", "OutBox"),
            ("app.OutBox", "app", "OutBox"),
            ("my-app.out-box", "my-app", "out-box"),
            ("\"a.b\".\"c.d\"", "a.b", "c.d"),
            ("\"a\"\"b\".c", "a\"b", "c"),
            ("\"\"\"\".x", "\"", "x"),
            ("\" x \".y", " x ", "y"),
            (" public . outbox ", "public", "outbox"),
            ("schéma.täble", "schéma", "täble"),
        ];
        for (text, schema, name) in cases {
            assert_eq!(table(text), (schema.to_owned(), name.to_owned()), "{text}");
        }
    }

    #[test]
    fn malformed_table_names_say_what_is_wrong() {
        let long = format!("a.{}", "x".repeat(64));
        let cases = [
            ("outbox", "has no schema: expected schema.table"),
            ("a.b.c", "has too many parts: expected schema.table"),
            ("", "has no schema: expected schema.table"),
            (".", "has an empty part"),
            ("a.", "has an empty part"),
            ("a.\"\"", "has an empty part"),
            ("a.\"b", "has a double quote without its counterpart"),
            ("\"a\"b.c", "goes on after a closing double quote"),
            ("a\"b.c", "has a double quote inside a part: put the part in double quotes and double the inner one"),
            (&long, "is too long: PostgreSQL keeps 63 bytes of a name"),
        ];
        for (text, problem) in cases {
            assert_eq!(TableName::parse(text).unwrap_err().to_string(), format!("\"{text}\" {problem}"));
        }
    }

    #[test]
    fn display_is_safe_in_sql() {
        assert_eq!(TableName::parse("\"a\"\"b\".\"c.d\"").unwrap().to_string(), "\"a\"\"b\".\"c.d\"");
        assert_eq!(TableName::parse("app.order").unwrap().to_string(), "\"app\".\"order\"");
        assert_eq!(TableName::parse("app.\"order\"").unwrap().plain(), "app.order");
    }

    #[test]
    fn header_entries() {
        let header = |text: &str| HeaderColumn::parse(text).map(|h| (h.column, h.header)).map_err(|e| e.to_string());
        let pair = |a: &str, b: &str| Ok((a.to_owned(), b.to_owned()));
        assert_eq!(header("traceparent"), pair("traceparent", "traceparent"));
        assert_eq!(header("type:eventType"), pair("type", "eventType"));
        assert_eq!(header(" type : event type "), pair("type", "event type"));
        assert_eq!(header("\"a:b\":c:d"), pair("a:b", "c:d"));
        assert_eq!(header("id:header"), pair("id", "header"));
        assert!(header(":x").is_err() && header("x:").is_err() && header("").is_err());
        assert!(header("x:a\0b").unwrap_err().contains("zero byte"));
        assert!(header("type:header:eventType").unwrap_err().contains("three parts"));
    }

    #[test]
    fn default_names_are_legal_for_slots() {
        assert_eq!(default_object_name("shop"), "outboxd_shop");
        assert_eq!(default_object_name("My-Shop.eu é"), "outboxd_my_shop_eu__");
    }

    #[test]
    fn lists_are_split_outside_quotes_only() {
        assert_eq!(split_list("a.b, c.\"d,e\",,"), ["a.b", "c.\"d,e\""]);
    }

    proptest! {
        #[test]
        fn quoted_form_round_trips(schema in "[^\\x00]{1,15}", table in "[^\\x00]{1,15}") {
            let name = TableName { schema, table };
            prop_assert_eq!(TableName::parse(&name.to_string()).unwrap(), name);
        }

        #[test]
        fn any_text_is_parsed_or_refused(text in ".*") {
            let _ = TableName::parse(&text);
            let _ = HeaderColumn::parse(&text);
        }
    }
}
