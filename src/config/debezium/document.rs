//! The configuration that a connector amounts to, written as TOML.

use std::collections::BTreeMap;

use super::super::options::{OPTIONS, TABLE_OF_TEXT};

/// Options and their values; written in the order of the documentation.
#[derive(Clone, Debug, Default)]
pub(super) struct Document {
    options: BTreeMap<String, toml::Value>,
    /// Entries of the tables of free keys.
    entries: Vec<(String, String, String)>,
    /// Comments before options.
    comments: BTreeMap<String, String>,
}

impl Document {
    /// Sets an option.
    pub(super) fn set(&mut self, option: &str, value: impl Into<toml::Value>) {
        self.options.insert(option.to_owned(), value.into());
    }

    /// Sets an entry of a table of free keys.
    pub(super) fn set_entry(&mut self, table: &str, key: &str, value: &str) {
        self.entries.retain(|(known, name, _)| (known.as_str(), name.as_str()) != (table, key));
        self.entries.push((table.to_owned(), key.to_owned(), value.to_owned()));
    }

    /// Puts a comment before an option or an entry.
    pub(super) fn comment(&mut self, option: &str, comment: String) {
        self.comments.insert(option.to_owned(), comment);
    }

    /// Whether an option is set.
    pub(super) fn has(&self, option: &str) -> bool {
        self.options.contains_key(option)
    }

    /// Takes an option out; whether it was there.
    pub(super) fn unset(&mut self, option: &str) -> bool {
        self.options.remove(option).is_some()
    }

    /// The TOML text.
    pub(super) fn text(&self) -> String {
        let mut groups: Vec<(&str, Vec<String>)> = vec![("", Vec::new())];
        for option in OPTIONS {
            let (table, key) = option.key.rsplit_once('.').unwrap_or(("", option.key));
            if option.kind == TABLE_OF_TEXT {
                for (_, key, value) in self.entries.iter().filter(|(table, _, _)| table == option.key) {
                    let full = format!("{}.{key}", option.key);
                    let line = format!("\"{key}\" = {}", toml::Value::String(value.clone()));
                    self.push(&mut groups, option.key, &full, line);
                }
            } else if let Some(value) = self.options.get(option.key) {
                self.push(&mut groups, table, option.key, format!("{key} = {value}"));
            }
        }
        let mut text = String::new();
        for (table, lines) in groups.iter().filter(|(_, lines)| !lines.is_empty()) {
            if !table.is_empty() {
                text.push_str(&format!("\n[{table}]\n"));
            }
            lines.iter().for_each(|line| text.push_str(&format!("{line}\n")));
        }
        text
    }

    fn push<'g>(&self, groups: &mut Vec<(&'g str, Vec<String>)>, table: &'g str, option: &str, line: String) {
        let comment = self.comments.get(option).map(|comment| format!("# {comment}"));
        let lines = comment.into_iter().chain([line]);
        match groups.iter_mut().find(|(name, _)| *name == table) {
            Some((_, group)) => group.extend(lines),
            None => groups.push((table, lines.collect())),
        }
    }
}
