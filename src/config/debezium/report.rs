//! What became of the properties, for a person.

use super::{Fate, Row};

/// One line for each property: its name, and what became of it.
#[must_use]
pub fn table(rows: &[Row]) -> String {
    let width = rows.iter().map(|row| row.property.chars().count()).max().unwrap_or_default();
    let mut text = String::new();
    let mut file = "";
    for row in rows {
        if row.file != file {
            file = &row.file;
            text.push_str(&format!("properties of {file}\n"));
        }
        let fate = match &row.fate {
            Fate::Mapped(option) => format!("-> {option}"),
            Fate::Differs(option, words) => format!("-> {option}, but {words}"),
            Fate::Ignored(words) => format!("not needed: {words}"),
            Fate::Warned(words) => format!("WARNING no effect: {words}"),
            Fate::Refused { problem, .. } => format!("REFUSED {problem}"),
        };
        text.push_str(&format!("  {:width$}  {fate}\n", row.property));
    }
    text
}

/// The comments at the head of a configuration that was converted.
pub(super) fn head(file: &str, rows: &[Row]) -> String {
    let mut text = format!("# From {file}.\n");
    for row in rows {
        match &row.fate {
            Fate::Warned(words) => text.push_str(&format!("# {} is left out: {words}.\n", row.property)),
            Fate::Differs(_, words) => text.push_str(&format!("# {}: {words}.\n", row.property)),
            _ => {}
        }
    }
    text.push('\n');
    text
}
