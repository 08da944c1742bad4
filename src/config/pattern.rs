//! Patterns of table names: `tenant_*.outbox`.

use super::names::NameError;

/// Tables by a pattern of their schema and one of their name, in which `*` stands for any characters, also none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TablePattern {
    /// Of the schema.
    pub schema: String,
    /// Of the table.
    pub table: String,
}

impl TablePattern {
    /// Whether a text of `outbox.tables` is a pattern: it has a `*` outside of double quotes.
    #[must_use]
    pub fn is_one(text: &str) -> bool {
        text.split('"').step_by(2).any(|part| part.contains('*'))
    }

    /// Reads `schema-pattern.table-pattern`.
    ///
    /// # Errors
    /// [`NameError`] says what is wrong with the text.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let error = |problem: &str| NameError::new(text, problem);
        if text.contains('"') {
            return Err(error("is a pattern with double quotes in it, which are for names: take one for the other"));
        }
        match text.trim().split_once('.') {
            None => Err(error("has no schema: expected schema.table")),
            Some((_, table)) if table.contains('.') => Err(error("has too many parts: expected schema.table")),
            Some((schema, table)) if schema.is_empty() || table.is_empty() => Err(error("has an empty part")),
            Some((schema, table)) => Ok(Self { schema: schema.to_owned(), table: table.to_owned() }),
        }
    }

    /// Whether a table is meant.
    #[must_use]
    pub fn matches(&self, schema: &str, table: &str) -> bool {
        // what belongs to the server is no outbox (manual, "System Catalogs")
        let is_of_server = schema.starts_with("pg_") || schema == "information_schema";
        !is_of_server && fits(&self.schema, schema) && fits(&self.table, table)
    }

    /// As it is written.
    #[must_use]
    pub fn plain(&self) -> String {
        format!("{}.{}", self.schema, self.table)
    }
}

/// Whether the name is the pattern with something in place of each `*`.
fn fits(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| name.strip_prefix(first)) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        let Some((_, behind)) = rest.split_once(part) else { return false };
        rest = behind;
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_outside_of_quotes_makes_a_pattern() {
        assert!(TablePattern::is_one("t*.outbox") && TablePattern::is_one("\"a\".*"));
        assert!(!TablePattern::is_one("\"t*\".outbox") && !TablePattern::is_one("public.outbox"));
        for text in ["*", "*.", "a.b.*", "\"a\".*"] {
            assert!(TablePattern::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn stars_stand_for_anything() {
        let matches =
            |pattern: &str, schema: &str, table: &str| TablePattern::parse(pattern).unwrap().matches(schema, table);
        assert!(matches("tenant_*.outbox", "tenant_", "outbox") && matches("tenant_*.outbox", "tenant_a.b", "outbox"));
        assert!(matches("*.*", "a", "b") && matches("a*b*c.x", "a1b2b3c", "x") && matches("*a.x", "aa", "x"));
        assert!(!matches("tenant_*.outbox", "tenantx", "outbox") && !matches("a*b*c.x", "ab", "x"));
        assert!(!matches("a*a.x", "a", "x") && !matches("*.outbox", "public", "outboxes"));
        assert!(!matches("*.*", "pg_toast", "x") && !matches("*.*", "information_schema", "x"));
    }
}
