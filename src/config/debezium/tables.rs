//! Which tables are outboxes: Debezium's lists of regular expressions, where they name tables.

use fancy_regex::Regex;

use super::input::Property;
use super::kind::Kind;
use super::translate::{Fate, Objection, Translation};
use crate::config::{TableName, TablePattern};

const TABLES: &str = "outbox.tables";

/// The lists that narrow `table.include.list`.
fn filters(kind: Kind) -> [&'static str; 3] {
    match kind {
        Kind::Postgres => ["table.exclude.list", "schema.include.list", "schema.exclude.list"],
        Kind::Mysql | Kind::Mariadb => ["table.exclude.list", "database.include.list", "database.exclude.list"],
    }
}

pub(super) fn translate(translation: &mut Translation<'_>) {
    let (connector, kind) = (translation.connector, translation.kind);
    let name_them = format!("name each outbox table, as {}, or give --table (OUTBOXD_TABLE)", kind.example());
    let filters: Vec<&Property> = filters(kind).iter().filter_map(|name| connector.get(name)).collect();
    let included = connector.get("table.include.list");
    if !translation.given.tables.is_empty() {
        let tables: Vec<toml::Value> = translation.given.tables.iter().map(|table| table.as_str().into()).collect();
        translation.document.set(TABLES, tables);
        for property in included.into_iter().chain(filters) {
            translation.mark(property, Fate::Ignored("--table wins over it".to_owned()));
        }
        return;
    }
    let Some(included) = included.filter(|property| !property.value.is_empty()) else {
        translation.lack("table.include.list", "is missing, which means all tables", name_them, TABLES);
        return;
    };
    if included.broken.is_some() {
        return;
    }
    let (mut names, mut patterns): (Vec<TableName>, Vec<TablePattern>) = (Vec::new(), Vec::new());
    for entry in entries(&included.value) {
        match (plain_name(&entry), pattern(&entry).filter(|_| kind == Kind::Postgres && !has_other_lists(translation)))
        {
            (Some(name), _) if names.contains(&name) => {}
            (Some(name), _) => names.push(name),
            (None, Some(pattern)) => patterns.push(pattern),
            (None, None) => {
                let problem = format!("\"{}\" is a pattern, and tables are taken by name", entry.escape_debug());
                return translation.refuse(included, TABLES, Objection::never(problem, name_them));
            }
        }
    }
    for filter in filters {
        narrow(translation, filter, &names);
    }
    let folded = names.iter().any(|name| name.plain().chars().any(char::is_uppercase));
    let names_text = names.iter().map(|name| written(name).into());
    let texts: Vec<toml::Value> = names_text.chain(patterns.iter().map(|pattern| pattern.plain().into())).collect();
    // a single placeholder stays one
    let value = if included.is_placeholder() && !included.value.contains(['\\', ',']) && patterns.is_empty() {
        vec![included.raw.as_str().into()]
    } else {
        texts
    };
    translation.set(TABLES, value, included);
    if folded || !patterns.is_empty() {
        let difference = "upper and lower case count here, and do not in Debezium";
        translation.mark(included, Fate::Differs(TABLES.to_owned(), difference.to_owned()));
    }
    columns(translation, &names);
}

/// Whether there are lists that could take out what a pattern fits: which tables those are is not known here.
fn has_other_lists(translation: &Translation<'_>) -> bool {
    let others = ["column.include.list", "column.exclude.list", "snapshot.select.statement.overrides"];
    let lists = filters(translation.kind).into_iter().chain(others);
    lists.into_iter().any(|name| translation.connector.value(name).is_some())
}

/// Splits a list at its commas, unless a backslash stands before one (`Strings.setOfRegex`).
fn entries(list: &str) -> Vec<String> {
    let mut entries = vec![String::new()];
    let mut characters = list.chars().peekable();
    while let Some(c) = characters.next() {
        if c == '\\' && characters.peek() == Some(&',') {
            characters.next();
            entries.last_mut().into_iter().for_each(|entry| entry.push(','));
        } else if c == ',' {
            entries.push(String::new());
        } else {
            entries.last_mut().into_iter().for_each(|entry| entry.push(c));
        }
    }
    entries.into_iter().map(|entry| entry.trim().to_owned()).filter(|entry| !entry.is_empty()).collect()
}

/// The table that a regular expression names: no character in it stands for others, but for a dot between the names.
fn plain_name(entry: &str) -> Option<TableName> {
    let mut parts = vec![String::new()];
    let mut characters = entry.chars();
    while let Some(c) = characters.next() {
        let (c, escaped) = if c == '\\' { (characters.next()?, true) } else { (c, false) };
        match c {
            '.' => parts.push(String::new()),
            // a backslash before a letter is a class or an anchor
            _ if escaped && c.is_alphanumeric() => return None,
            _ if !escaped && "^$*+?()[]{}|".contains(c) => return None,
            _ => parts.last_mut()?.push(c),
        }
    }
    match parts.as_slice() {
        [schema, table] if !schema.is_empty() && !table.is_empty() => {
            Some(TableName { schema: schema.clone(), table: table.clone() })
        }
        _ => None,
    }
}

/// The pattern of `outbox.tables` that an expression is: names in which `.*` alone stands for other characters.
fn pattern(entry: &str) -> Option<TablePattern> {
    const ANY: char = '\u{1}';
    let mut marked = String::with_capacity(entry.len());
    let mut characters = entry.chars().peekable();
    while let Some(c) = characters.next() {
        match c {
            '.' if characters.next_if_eq(&'*').is_some() => marked.push(ANY),
            '\\' => marked.extend([Some(c), characters.next()].into_iter().flatten()),
            _ => marked.push(c),
        }
    }
    let TableName { schema, table } = plain_name(&marked)?;
    let is_fit = |part: &str| !part.contains(['*', '.', '"']) && part.trim() == part;
    let with_stars = |part: &str| part.replace(ANY, "*");
    (is_fit(&schema) && is_fit(&table)).then(|| TablePattern { schema: with_stars(&schema), table: with_stars(&table) })
}

/// The table as `outbox.tables` takes it.
fn written(name: &TableName) -> String {
    let plain = |part: &str| !part.contains(['"', '.']) && part.trim() == part;
    if plain(&name.schema) && plain(&name.table) { name.plain() } else { name.to_string() }
}

/// Whether one of the list's expressions matches the whole text, whatever its case.
fn matches(list: &str, text: &str) -> Option<bool> {
    let mut any = false;
    for entry in entries(list) {
        let regex = Regex::new(&format!("(?is)\\A(?:{entry})\\z")).ok()?;
        any |= regex.is_match(text).ok()?;
    }
    Some(any)
}

fn no_regex(property: &Property) -> Objection {
    let problem = format!("\"{}\" is not understood", property.value.escape_debug());
    Objection::never(problem, "leave it out: table.include.list names the tables")
}

/// Holds another list against the tables that are named.
fn narrow(translation: &mut Translation<'_>, filter: &Property, names: &[TableName]) {
    if filter.value.is_empty() || filter.broken.is_some() {
        return;
    }
    let excludes = filter.name.ends_with("exclude.list");
    for name in names {
        let text = if filter.name.starts_with("table.") { name.plain() } else { name.schema.clone() };
        match matches(&filter.value, &text) {
            None => return translation.refuse(filter, TABLES, no_regex(filter)),
            Some(found) if found == excludes => {
                let problem = format!("takes out table \"{}\", which table.include.list names", name.plain());
                let hint = "make the two agree";
                return translation.refuse(filter, TABLES, Objection::never(problem, hint));
            }
            Some(_) => {}
        }
    }
    translation.mark(filter, Fate::Ignored("it takes none of the outbox's tables out".to_owned()));
}

/// The lists of columns must leave those that a record is made of.
fn columns(translation: &mut Translation<'_>, names: &[TableName]) {
    let connector = translation.connector;
    for list in ["column.include.list", "column.exclude.list"] {
        let Some(property) = connector.get(list).filter(|property| property.broken.is_none()) else { continue };
        if property.value.is_empty() {
            continue;
        }
        let excludes = list.ends_with("exclude.list");
        let needed = super::router::needed_columns(connector);
        let taken =
            names.iter().flat_map(|table| needed.iter().map(move |column| (table, column))).find(|(table, column)| {
                matches(&property.value, &format!("{}.{column}", table.plain())) != Some(!excludes)
            });
        match taken {
            Some((table, column)) => {
                let problem =
                    format!("takes out column \"{column}\" of table \"{}\", which a record is made of", table.plain());
                translation.refuse(property, "outbox.columns", Objection::never(problem, "leave the property out"));
            }
            None => {
                translation.mark(property, Fate::Ignored("it leaves all columns that a record is made of".to_owned()))
            }
        }
    }
    overrides(translation, names);
}

/// `snapshot.select.statement.overrides`: narrowing the first read.
fn overrides(translation: &mut Translation<'_>, names: &[TableName]) {
    const NAME: &str = "snapshot.select.statement.overrides";
    let connector = translation.connector;
    for property in connector.properties.iter().filter(|property| property.name.starts_with(NAME)) {
        let tables =
            if property.name == NAME { property.value.as_str() } else { property.name.trim_start_matches(NAME) };
        let tables = entries(tables.trim_start_matches('.'));
        let of_outbox = tables.iter().any(|table| names.iter().any(|name| table.eq_ignore_ascii_case(&name.plain())));
        if of_outbox {
            let objection = Objection::unless_allowed(
                "narrows the first read by a statement, which is not available",
                "leave it out, run outboxd config convert, and give the condition as outbox.start-where",
                "all rows that stand in the table are read",
            );
            translation.refuse(property, "outbox.start-where", objection);
        } else {
            translation.mark(property, Fate::Ignored("it is about other tables".to_owned()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_cut_at_commas() {
        assert_eq!(entries(" a\\.b , c\\,d ,,"), ["a\\.b", "c,d"]);
        assert_eq!(entries(""), Vec::<String>::new());
    }

    #[test]
    fn plain_names_are_told_from_patterns() {
        for (entry, expected) in [
            ("public.outbox", Some("public.outbox")),
            ("public\\.outbox", Some("public.outbox")),
            ("my-app.out_box", Some("my-app.out_box")),
            ("public\\.out\\$box", Some("public.out$box")),
            ("public.Outbox", Some("public.Outbox")),
            ("outbox", None),
            ("shop.public.outbox", None),
            ("public.out.*", None),
            (".*outbox", None),
            ("public\\.(a|b)", None),
            ("public.outbox\\d", None),
            ("public.outbox$", None),
            ("public.", None),
            ("public.outbox\\", None),
        ] {
            assert_eq!(plain_name(entry).map(|name| name.plain()).as_deref(), expected, "{entry}");
        }
    }

    #[test]
    fn some_expressions_are_patterns() {
        for (entry, expected) in [
            ("tenant_.*\\.outbox", Some("tenant_*.outbox")),
            ("tenant_.*.outbox", Some("tenant_*.outbox")),
            (".*\\.outbox", Some("*.outbox")),
            ("public\\.out.*box.*", Some("public.out*box*")),
            // that matches a whole name, with a dot in it
            (".*outbox", None),
            (".*", None),
            ("tenant_\\d+\\.outbox", None),
            ("tenant_.+\\.outbox", None),
            ("tenant_[^.]*\\.outbox", None),
            ("tenant_.*?\\.outbox", None),
            ("tenant\\.*\\.outbox", None),
        ] {
            assert_eq!(pattern(entry).map(|pattern| pattern.plain()).as_deref(), expected, "{entry}");
        }
    }

    #[test]
    fn expressions_match_whole_names_whatever_their_case() {
        assert_eq!(matches("public\\.out.*,x", "Public.Outbox"), Some(true));
        assert_eq!(matches("outbox", "public.outbox"), Some(false));
        assert_eq!(matches("a(", "a"), None);
    }
}
