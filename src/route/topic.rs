//! The topic of a record, from the routing value: `record.topic-regex` and `record.topic`.

use std::collections::HashMap;

use super::pattern::JavaPattern;
use super::replacement::Replacement;
use crate::config::RecordConfig;

/// How many topics are remembered. A service has tens; a routing column that is misused as an id must not fill memory.
const REMEMBERED: usize = 4096;

/// What is wrong with the configured rule; empty if nothing is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleProblem {
    /// With `record.topic-regex`.
    Regex(String),
    /// With `record.topic`.
    Topic(String),
}

/// The rule that makes a topic of a routing value.
#[derive(Debug)]
struct Rule {
    pattern: JavaPattern,
    replacement: Replacement,
}

impl Rule {
    fn new(record: &RecordConfig) -> Result<Self, RuleProblem> {
        let pattern = JavaPattern::new(&record.topic_regex).map_err(RuleProblem::Regex)?;
        let replacement = Replacement::new(&record.topic, &pattern).map_err(RuleProblem::Topic)?;
        Ok(Self { pattern, replacement })
    }

    /// The topic of a value. One that the pattern does not match as a whole is the topic itself.
    fn topic(&self, value: &str) -> Result<String, String> {
        match self.pattern.first_of_whole(value).map_err(|error| error.to_string())? {
            Some(captures) => Ok(self.replacement.replace(value, &captures)),
            None => Ok(value.to_owned()),
        }
    }
}

/// The fixed parts of the topics that a configuration gives, and whether there is nothing but them.
///
/// # Errors
/// [`RuleProblem`]
pub fn fixed_parts(record: &RecordConfig) -> Result<(Vec<String>, bool), RuleProblem> {
    let rule = Rule::new(record)?;
    Ok((rule.replacement.fixed().map(str::to_owned).collect(), rule.replacement.is_fixed()))
}

/// Makes topics of routing values, and remembers them.
#[derive(Debug)]
pub(super) struct Topics {
    /// `None` for a rule that validation would have refused.
    rule: Option<Rule>,
    known: HashMap<Vec<u8>, String>,
}

impl Topics {
    /// Takes the rule of a validated configuration.
    #[must_use]
    pub(super) fn new(record: &RecordConfig) -> Self {
        Self { rule: Rule::new(record).ok(), known: HashMap::new() }
    }

    /// Makes sure that [`get`](Self::get) has the topic of this value.
    ///
    /// # Errors
    /// What is wrong with the value.
    pub(super) fn learn(&mut self, value: &[u8]) -> Result<(), String> {
        if self.known.contains_key(value) {
            return Ok(());
        }
        let text = std::str::from_utf8(value).map_err(|_| "is not UTF-8".to_owned())?;
        let rule = self.rule.as_ref().ok_or("cannot choose a topic: record.topic-regex or record.topic is wrong")?;
        let topic = rule.topic(text)?;
        if self.known.len() >= REMEMBERED {
            self.known.clear();
        }
        self.known.insert(value.to_vec(), topic);
        Ok(())
    }

    /// The topic of a value that was just learned.
    #[must_use]
    pub(super) fn get(&self, value: &[u8]) -> &str {
        self.known.get(value).map_or("", String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topics(topic: &str) -> Topics {
        Topics::new(&RecordConfig { topic: topic.to_owned(), ..RecordConfig::default() })
    }

    #[test]
    fn the_value_takes_the_groups_place() {
        let mut topics = topics("outbox.event.${routedByValue}");
        for (value, topic) in
            [("Order", "outbox.event.Order"), ("", "outbox.event."), ("a$b", "outbox.event.a$b"), ("a\nb", "a\nb")]
        {
            topics.learn(value.as_bytes()).unwrap();
            assert_eq!(topics.get(value.as_bytes()), topic);
        }
        assert!(topics.learn(b"\xff").is_err());
    }

    #[test]
    fn a_flood_of_values_does_not_fill_memory() {
        let mut topics = topics("t.${routedByValue}");
        for value in 0..3 * REMEMBERED {
            let value = value.to_string();
            topics.learn(value.as_bytes()).unwrap();
            assert_eq!(topics.get(value.as_bytes()), format!("t.{value}"));
        }
        assert!(topics.known.len() <= REMEMBERED);
    }

    #[test]
    fn fixed_parts_are_told() {
        let parts = |topic: &str| fixed_parts(&RecordConfig { topic: topic.to_owned(), ..RecordConfig::default() });
        assert_eq!(parts("a.${routedByValue}.b"), Ok((vec!["a.".to_owned(), ".b".to_owned()], false)));
        assert_eq!(parts(r"a\$"), Ok((vec!["a$".to_owned()], true)));
        assert!(matches!(parts("$9"), Err(RuleProblem::Topic(_))));
    }
}
