//! The topic of a record: a template with the routing value in it.

use std::collections::HashMap;

/// What stands for the routing value in a template.
pub(super) const PLACEHOLDER: &str = "${routedByValue}";

/// How many topics are remembered. A service has tens; a routing column that is misused as an id must not fill memory.
const REMEMBERED: usize = 4096;

/// Makes topics of routing values, and remembers them.
#[derive(Debug)]
pub(super) struct TopicTemplate {
    template: String,
    known: HashMap<Vec<u8>, String>,
}

impl TopicTemplate {
    /// Takes the template as it is configured.
    #[must_use]
    pub(super) fn new(template: &str) -> Self {
        Self { template: template.to_owned(), known: HashMap::new() }
    }

    /// Makes sure that [`get`](Self::get) has the topic of this value.
    ///
    /// # Errors
    /// The value is not UTF-8.
    pub(super) fn learn(&mut self, value: &[u8]) -> Result<(), std::str::Utf8Error> {
        if self.known.contains_key(value) {
            return Ok(());
        }
        let topic = self.template.replace(PLACEHOLDER, std::str::from_utf8(value)?);
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

    #[test]
    fn the_value_takes_the_placeholders_place() {
        let mut template = TopicTemplate::new("outbox.event.${routedByValue}");
        for (value, topic) in [("Order", "outbox.event.Order"), ("", "outbox.event."), ("a$b", "outbox.event.a$b")] {
            template.learn(value.as_bytes()).unwrap();
            assert_eq!(template.get(value.as_bytes()), topic);
        }
        assert!(template.learn(b"\xff").is_err());
    }

    #[test]
    fn a_flood_of_values_does_not_fill_memory() {
        let mut template = TopicTemplate::new("t.${routedByValue}");
        for value in 0..3 * REMEMBERED {
            let value = value.to_string();
            template.learn(value.as_bytes()).unwrap();
            assert_eq!(template.get(value.as_bytes()), format!("t.{value}"));
        }
        assert!(template.known.len() <= REMEMBERED);
    }
}
