//! Goes through the properties with the list, and gathers what becomes of each.

use std::collections::BTreeMap;

use super::super::error::Finding;
use super::super::secret::Secret;
use super::document::Document;
use super::input::{Input, Property};
use super::kind::Kind;
use super::list::{self, Action, Line, Verdict};
use super::{Given, Row, formats, kafka, router, source};

/// What became of a property.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is part of this option of ours.
    Mapped(String),
    /// It is part of this option of ours, with a difference.
    Differs(String, String),
    /// It has no meaning here, and why.
    Ignored(String),
    /// It has no effect here, and what is done instead.
    Warned(String),
    /// The configuration is refused because of it: why, and what to do.
    Refused {
        /// What is wrong.
        problem: String,
        /// What to do.
        hint: String,
    },
}

/// The words of a refusal.
#[derive(Clone, Debug)]
pub(super) struct Objection {
    pub problem: String,
    pub hint: String,
    /// What is done instead where it is allowed; `None` where it cannot be.
    pub instead: Option<String>,
}

impl Objection {
    /// One that no flag takes away.
    pub(super) fn never(problem: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { problem: problem.into(), hint: hint.into(), instead: None }
    }

    /// One that `--allow-unsupported` turns into a warning.
    pub(super) fn unless_allowed(
        problem: impl Into<String>,
        hint: impl Into<String>,
        instead: impl Into<String>,
    ) -> Self {
        Self { problem: problem.into(), hint: hint.into(), instead: Some(instead.into()) }
    }
}

/// The work under way.
pub(super) struct Translation<'a> {
    /// The connector's properties.
    pub connector: &'a Input,
    /// Whose connector it is.
    pub kind: Kind,
    /// The worker's.
    pub worker: Option<&'a Input>,
    /// What flags say.
    pub given: Given,
    /// The configuration so far.
    pub document: Document,
    /// What became of each property so far.
    pub rows: Vec<Row>,
    /// Findings about properties that are not there.
    pub missing: Vec<Finding>,
    /// Options that are left out because of a finding.
    pub left_out: Vec<String>,
    /// The properties that an option comes from.
    pub origins: BTreeMap<String, Vec<String>>,
    /// Passwords that stand in the connector, by the variable that takes their place.
    pub secrets: BTreeMap<String, Secret>,
}

impl<'a> Translation<'a> {
    pub(super) fn new(connector: &'a Input, worker: Option<&'a Input>, given: Given) -> Self {
        Self {
            connector,
            kind: Kind::of(connector.value("connector.class").unwrap_or_default()),
            worker,
            given,
            document: Document::default(),
            rows: Vec::new(),
            missing: Vec::new(),
            left_out: Vec::new(),
            origins: BTreeMap::new(),
            secrets: BTreeMap::new(),
        }
    }

    /// Translates everything.
    pub(super) fn run(&mut self) {
        let connector = self.connector;
        for property in &connector.properties {
            let fate = self.by_list(property, &self.lists(), &property.name);
            self.note(&connector.file, property, fate);
        }
        source::translate(self);
        router::translate(self);
        formats::translate(self);
        kafka::translate(self);
        self.required();
    }

    fn lists(&self) -> Vec<&'static [Line]> {
        let mut lists = self.kind.lists();
        if self.connector.is_server {
            lists.insert(0, list::SERVER);
        }
        lists
    }

    /// What the list says to a property that is called `name` there.
    pub(super) fn by_list(&mut self, property: &Property, lists: &[&'static [Line]], name: &str) -> Fate {
        if let Some((problem, hint)) = &property.broken {
            if let Some(Line { action: Action::Part(option) | Action::Text(option), .. }) = list::find(lists, name) {
                self.left_out.push(self.kind.named(option));
            }
            return Fate::Refused { problem: problem.clone(), hint: hint.clone() };
        }
        let Some(line) = list::find(lists, name) else {
            return Fate::Warned("it is not known here".to_owned());
        };
        match line.action {
            Action::Part(option) => Fate::Mapped(self.kind.named(option)),
            Action::Text(option) => {
                if property.value.is_empty() {
                    return Fate::Ignored("it is empty".to_owned());
                }
                let option = self.kind.named(option);
                self.set(&option, property.raw.as_str(), property);
                Fate::Mapped(option)
            }
            Action::Flag(option) => match truth(&property.value) {
                Some(truth) => {
                    let option = self.kind.named(option);
                    self.set(&option, truth, property);
                    Fate::Mapped(option)
                }
                None => self.object(unknown_word(property, &["true", "false"])),
            },
            Action::Always(verdict) => self.verdict("", verdict, property),
            Action::Unless(words, verdict) => {
                if words.iter().any(|word| word.eq_ignore_ascii_case(&property.value)) {
                    return Fate::Ignored("it is so in any case".to_owned());
                }
                self.verdict("", verdict, property)
            }
            Action::Choice(option, words) => {
                match words.iter().find(|(word, _)| word.eq_ignore_ascii_case(&property.value)) {
                    Some((_, verdict)) => self.verdict(option, *verdict, property),
                    None => {
                        // those that are refused whatever is allowed need not be offered
                        let offered = words.iter().filter(|(_, verdict)| !matches!(verdict, Verdict::Never(..)));
                        let words: Vec<&str> = offered.map(|(word, _)| *word).collect();
                        self.object(unknown_word(property, &words))
                    }
                }
            }
        }
    }

    fn verdict(&mut self, option: &str, verdict: Verdict, property: &Property) -> Fate {
        let option = self.kind.named(option);
        match verdict {
            Verdict::Is(word) => {
                self.set(&option, word, property);
                Fate::Mapped(option)
            }
            Verdict::IsBut(word, difference) => {
                self.set(&option, word, property);
                Fate::Differs(option, difference.to_owned())
            }
            Verdict::Into(part) => Fate::Mapped(part.to_owned()),
            Verdict::Ignored(why) => Fate::Ignored(self.kind.named(why)),
            Verdict::Warned(instead) => Fate::Warned(self.kind.named(instead)),
            Verdict::Refused(problem, hint, instead) => self.object(Objection::unless_allowed(problem, hint, instead)),
            Verdict::Never(problem, hint) => self.object(Objection::never(problem, hint)),
        }
    }

    /// Sets an option that comes from a property.
    pub(super) fn set(&mut self, option: &str, value: impl Into<toml::Value>, property: &Property) {
        self.document.set(option, value);
        self.come_from(option, property);
    }

    /// Sets an entry of a table of free keys that comes from a property.
    pub(super) fn set_entry(&mut self, table: &str, key: &str, value: &str, property: &Property) {
        self.document.set_entry(table, key, value);
        self.come_from(&format!("{table}.{key}"), property);
    }

    /// Remembers that an option comes from a property.
    pub(super) fn come_from(&mut self, option: &str, property: &Property) {
        let origins = self.origins.entry(option.to_owned()).or_default();
        if !origins.contains(&property.written) {
            origins.push(property.written.clone());
        }
    }

    /// What an objection comes to: a refusal, or a warning where that is allowed.
    pub(super) fn object(&self, objection: Objection) -> Fate {
        let Objection { problem, hint, instead } = objection;
        match instead {
            None => Fate::Refused { problem, hint },
            Some(instead) if self.given.allow_unsupported => Fate::Warned(format!("{problem}; {instead}")),
            Some(instead) => {
                let hint = format!("{hint}; or add --allow-unsupported: {instead}");
                Fate::Refused { problem, hint }
            }
        }
    }

    /// Notes what became of a property; of two notes the later one counts.
    pub(super) fn note(&mut self, file: &str, property: &Property, fate: Fate) {
        let known = self.rows.iter_mut().find(|row| row.file == file && row.property == property.written);
        match known {
            // a value that cannot be resolved stays the first thing to mend
            Some(row) if property.broken.is_none() => row.fate = fate,
            Some(_) => {}
            None => self.rows.push(Row { file: file.to_owned(), property: property.written.clone(), fate }),
        }
    }

    /// Notes about the connector's own property.
    pub(super) fn mark(&mut self, property: &Property, fate: Fate) {
        let file = self.connector.file.clone();
        self.note(&file, property, fate);
    }

    /// Refuses because of the connector's own property; `option` is left out.
    pub(super) fn refuse(&mut self, property: &Property, option: &str, objection: Objection) {
        let fate = self.object(objection);
        if matches!(fate, Fate::Refused { .. }) {
            self.left_out.push(option.to_owned());
        }
        self.mark(property, fate);
    }

    /// Refuses because a property is not there; `option` is left out.
    pub(super) fn lack(&mut self, name: &str, problem: &str, hint: impl Into<String>, option: &str) {
        let written = if self.connector.is_server { format!("debezium.source.{name}") } else { name.to_owned() };
        self.missing.push(Finding {
            place: Some(self.connector.file.clone()),
            option: Some(written),
            problem: problem.to_owned(),
            hint: Some(hint.into()),
        });
        self.left_out.push(option.to_owned());
    }

    /// What a password becomes in the configuration: a placeholder, its own or one of ours.
    pub(super) fn secret(&mut self, option: &str, variable: &str, property: &Property) -> String {
        if property.is_placeholder() {
            return property.raw.clone();
        }
        self.hide(option, variable, property, &property.value)
    }

    /// Puts a placeholder of ours in the place of a secret.
    pub(super) fn hide(&mut self, option: &str, variable: &str, property: &Property, secret: &str) -> String {
        self.secrets.insert(variable.to_owned(), Secret::new(secret));
        self.document.comment(option, format!("set {variable} to what {} has", property.written));
        format!("${{env:{variable}}}")
    }

    fn required(&mut self) {
        let connector = self.connector;
        let url = self.kind.option("url");
        for (name, what, option) in self.kind.required() {
            let is_given = match option.as_str() {
                option if option == url => self.given.source_url,
                "record.legacy-prefix" => connector.value("database.server.name").is_some(),
                _ => false,
            };
            let is_there = connector.get(name).is_some_and(|property| !property.raw.is_empty());
            if !is_there && !is_given {
                let option = if option.is_empty() { name } else { &option };
                self.lack(name, "is missing", format!("add it: {what}"), option);
            }
        }
    }
}

/// Reads a truth value as Connect does.
pub(super) fn truth(value: &str) -> Option<bool> {
    match value.to_ascii_lowercase().as_str() {
        "true" => Some(true),
        "false" => Some(false),
        _ => None,
    }
}

/// The objection to a word that is none of these.
pub(super) fn unknown_word(property: &Property, words: &[&str]) -> Objection {
    let problem = format!("\"{}\" is no value of it", property.value.escape_debug());
    Objection::never(problem, format!("write {}", any_of(words)))
}

/// `a, b or c`
fn any_of(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [word] => format!("\"{word}\""),
        [rest @ .., last] => {
            let rest: Vec<String> = rest.iter().map(|word| format!("\"{word}\"")).collect();
            format!("{} or \"{last}\"", rest.join(", "))
        }
    }
}
