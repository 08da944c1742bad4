//! The configuration file of a test.

use toml::{Table, Value};

/// Options by their dotted path.
#[derive(Clone, Debug, Default)]
pub(crate) struct Config {
    root: Table,
}

impl Config {
    /// What a file says.
    #[track_caller]
    pub(crate) fn parse(text: &str) -> Self {
        Self { root: text.parse().unwrap() }
    }

    /// Sets an option: `set("delivery.window-bytes", 4096)`.
    #[must_use]
    pub(crate) fn set(mut self, path: &str, value: impl Into<Value>) -> Self {
        let (folders, name) = path.rsplit_once('.').map_or(("", path), |(folders, name)| (folders, name));
        let mut table = &mut self.root;
        for folder in folders.split('.').filter(|folder| !folder.is_empty()) {
            let entry = table.entry(folder).or_insert_with(|| Value::Table(Table::new()));
            table = entry.as_table_mut().unwrap_or_else(|| panic!("{path}: {folder} is not a table"));
        }
        table.insert(name.to_owned(), value.into());
        self
    }

    /// Sets an option whose name has dots in it, such as one of librdkafka's.
    #[must_use]
    pub(crate) fn set_in(self, table: &str, name: &str, value: impl Into<Value>) -> Self {
        let placeholder = "\u{1}";
        let mut config = self.set(&format!("{table}.{placeholder}"), value);
        let mut inner = &mut config.root;
        for folder in table.split('.') {
            inner = inner.get_mut(folder).unwrap().as_table_mut().unwrap();
        }
        let value = inner.remove(placeholder).unwrap();
        inner.insert(name.to_owned(), value);
        config
    }

    /// Takes an option or a whole table out.
    #[must_use]
    pub(crate) fn without(mut self, path: &str) -> Self {
        let (folders, name) = path.rsplit_once('.').map_or(("", path), |(folders, name)| (folders, name));
        let mut table = &mut self.root;
        for folder in folders.split('.').filter(|folder| !folder.is_empty()) {
            table = table.get_mut(folder).unwrap().as_table_mut().unwrap();
        }
        table.remove(name);
        self
    }

    pub(crate) fn text(&self) -> String {
        toml::to_string(&self.root).unwrap()
    }
}
