//! The one list of what becomes of each property, to be read from top to bottom: the first line that fits counts.
//!
//! `source.*` stands for the table of the source: `source.postgres`, `source.mysql` or `source.mariadb`.
//!
//! Names and defaults are those of Debezium 3.6 and Kafka Connect 4. A name that ends with `*` stands for all that begin so.

mod binlog;
mod connect;
mod connector;

pub(super) use binlog::BINLOG;
pub(super) use connect::{CONNECT, ROUTER, SERVER};
pub(super) use connector::{COMMON, POSTGRES};

/// A line of the list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    /// The property's name.
    pub name: &'static str,
    /// What becomes of it.
    pub action: Action,
}

/// What becomes of a property.
#[derive(Clone, Copy, Debug)]
pub(super) enum Action {
    /// An option of ours takes the text as it is.
    Text(&'static str),
    /// An option of ours takes the truth value.
    Flag(&'static str),
    /// It depends on the word; others are refused. The option is empty if no word becomes one of ours.
    Choice(&'static str, &'static [(&'static str, Verdict)]),
    /// These words change nothing; with any other it is as the verdict says.
    Unless(&'static [&'static str], Verdict),
    /// The same whatever the value is.
    Always(Verdict),
    /// It goes into an option together with others, or has rules of its own.
    Part(&'static str),
}

/// What is said about a value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Verdict {
    /// This is our word for it.
    Is(&'static str),
    /// This is our word for it, with a difference.
    IsBut(&'static str, &'static str),
    /// It is there in this part of ours.
    Into(&'static str),
    /// It has no meaning here, and why.
    Ignored(&'static str),
    /// It has no effect here, and what is done instead.
    Warned(&'static str),
    /// It cannot be: why, what to do, and what is done instead with `--allow-unsupported`.
    Refused(&'static str, &'static str, &'static str),
    /// It cannot be, whatever is allowed: why, and what to do.
    Never(&'static str, &'static str),
}

const fn line(name: &'static str, action: Action) -> Line {
    Line { name, action }
}

/// The line that fits a name.
pub(super) fn find(lists: &[&'static [Line]], name: &str) -> Option<&'static Line> {
    lists.iter().flat_map(|list| list.iter()).find(|line| match line.name.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => line.name == name,
    })
}

#[cfg(test)]
mod tests {
    use super::super::kind::Kind;
    use super::Action::{Choice, Flag, Text};
    use super::Verdict::{Is, IsBut};
    use super::*;
    use crate::config::options;

    /// Every option that a line names is one of ours, and every word one of its words.
    #[test]
    fn the_list_names_options_of_ours() {
        let kinds = [Kind::Postgres, Kind::Mysql, Kind::Mariadb];
        let lists = kinds.into_iter().flat_map(|kind| kind.lists().into_iter().map(move |list| (kind, list)));
        let others = [(Kind::Postgres, SERVER), (Kind::Postgres, ROUTER)];
        for (kind, line) in lists.chain(others).flat_map(|(kind, list)| list.iter().map(move |line| (kind, line))) {
            let (option, words): (&str, &[(&str, Verdict)]) = match line.action {
                Text(option) | Flag(option) => (option, &[]),
                Choice(option, words) => (option, words),
                _ => continue,
            };
            let words: Vec<&str> = words
                .iter()
                .filter_map(|(_, verdict)| match verdict {
                    Is(word) | IsBut(word, _) => Some(*word),
                    _ => None,
                })
                .collect();
            assert_eq!(option.is_empty(), words.is_empty() && matches!(line.action, Choice(..)), "{}", line.name);
            if let Some(known) = options::find(&kind.named(option)) {
                let kinds: Vec<&str> = known.kind.split(", ").collect();
                let wrong: Vec<&&str> = words.iter().filter(|word| !kinds.contains(word)).collect();
                assert!(wrong.is_empty(), "{}: {wrong:?}", line.name);
            } else {
                assert_eq!(option, "", "{}", line.name);
            }
        }
    }

    /// No line stands behind one that takes its name first.
    #[test]
    fn every_line_can_be_reached() {
        for lists in [&[SERVER, COMMON, POSTGRES, CONNECT][..], &[BINLOG, CONNECT], &[ROUTER]] {
            for line in lists.iter().flat_map(|list| list.iter()) {
                let name = line.name.replace('*', "x");
                assert!(std::ptr::eq(find(lists, &name).unwrap(), line), "{}", line.name);
            }
        }
    }
}
