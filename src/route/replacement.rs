//! Replacement texts in Java's syntax (`Matcher.appendReplacement`).

use fancy_regex::Captures;

use super::pattern::JavaPattern;

/// A piece of a replacement text.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Fixed(String),
    /// What a group matched; nothing if it took no part.
    Group(usize),
}

/// A replacement text: `$1` and `${name}` stand for groups, a backslash takes the next character as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Replacement {
    parts: Vec<Part>,
}

impl Replacement {
    /// Reads a replacement for a pattern.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn new(text: &str, pattern: &JavaPattern) -> Result<Self, String> {
        let (mut parts, mut fixed) = (Vec::new(), String::new());
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            rest = rest.get(c.len_utf8()..).unwrap_or_default();
            match c {
                '\\' => {
                    let escaped = rest.chars().next().ok_or("ends with a backslash")?;
                    fixed.push(escaped);
                    rest = rest.get(escaped.len_utf8()..).unwrap_or_default();
                }
                '$' => {
                    let (group, behind) = reference(rest, pattern)?;
                    if !fixed.is_empty() {
                        parts.push(Part::Fixed(std::mem::take(&mut fixed)));
                    }
                    parts.push(Part::Group(group));
                    rest = behind;
                }
                _ => fixed.push(c),
            }
        }
        if !fixed.is_empty() {
            parts.push(Part::Fixed(fixed));
        }
        Ok(Self { parts })
    }

    /// The texts between the groups.
    pub(super) fn fixed(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            Part::Fixed(text) => Some(text.as_str()),
            Part::Group(_) => None,
        })
    }

    /// Whether every match gives the same text.
    #[must_use]
    pub(super) fn is_fixed(&self) -> bool {
        self.parts.iter().all(|part| matches!(part, Part::Fixed(_)))
    }

    /// The text with the match replaced.
    #[must_use]
    pub(super) fn replace(&self, text: &str, captures: &Captures<'_, str>) -> String {
        let whole = captures.get(0).map_or(0..0, |whole| whole.start()..whole.end());
        let mut out = text.get(..whole.start).unwrap_or_default().to_owned();
        for part in &self.parts {
            match part {
                Part::Fixed(fixed) => out.push_str(fixed),
                Part::Group(group) => out.push_str(captures.get(*group).map_or("", |group| group.as_str())),
            }
        }
        out.push_str(text.get(whole.end..).unwrap_or_default());
        out
    }
}

/// The group that is meant behind a dollar sign, and what follows.
fn reference<'t>(text: &'t str, pattern: &JavaPattern) -> Result<(usize, &'t str), String> {
    if let Some(named) = text.strip_prefix('{') {
        let (name, behind) = named.split_once('}').ok_or("has a \"${\" that is not closed")?;
        let group = pattern.group(name).ok_or_else(|| {
            let names: Vec<String> = pattern.names().iter().map(|name| format!("${{{name}}}")).collect();
            let known = if names.is_empty() { "no group has a name".to_owned() } else { names.join(", ") };
            format!("\"${{{name}}}\" is no group of record.topic-regex: {known}")
        })?;
        return Ok((group, behind));
    }
    let digit = |at: usize| text.get(at..at + 1).and_then(|digit| digit.parse::<usize>().ok());
    let first =
        digit(0).ok_or("has a \"$\" with neither a group's number nor a name behind it: write \"\\$\" for a \"$\"")?;
    if first > pattern.group_count() {
        return Err(format!("\"${first}\" is no group of record.topic-regex, which has {}", pattern.group_count()));
    }
    // more digits belong to the number as long as there is such a group
    let (mut group, mut length) = (first, 1);
    while let Some(next) = digit(length)
        && let Some(longer) = group.checked_mul(10).and_then(|tens| tens.checked_add(next))
        && longer <= pattern.group_count()
    {
        (group, length) = (longer, length + 1);
    }
    Ok((group, text.get(length..).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replaced(pattern: &str, replacement: &str, text: &str) -> Result<String, String> {
        let pattern = JavaPattern::new(pattern)?;
        let replacement = Replacement::new(replacement, &pattern)?;
        let captures = pattern.first_of_whole(text).unwrap().unwrap();
        Ok(replacement.replace(text, &captures))
    }

    #[test]
    fn groups_are_put_in_as_java_does() {
        for (pattern, replacement, text, expected) in [
            ("(?<routedByValue>.*)", "outbox.event.${routedByValue}", "Order", "outbox.event.Order"),
            (r"([a-z]+)\.([a-z]+)", "$2x-$1", "eu.orders", "ordersx-eu"),
            ("(a)(b)", "$12$0", "ab", "a2ab"),
            ("(a)(b)(c)(d)(e)(f)(g)(h)(i)(j)", "$10$11", "abcdefghij", "ja1"),
            ("(a)|(b)", "<$1|$2>", "b", "<|b>"),
            ("a", r"\$1\\\x", "a", r"$1\x"),
            ("a|ab", "T-", "ab", "T-b"),
        ] {
            assert_eq!(replaced(pattern, replacement, text).as_deref(), Ok(expected), "{pattern} {replacement}");
        }
    }

    #[test]
    fn what_java_would_refuse_later_is_refused_at_once() {
        for (pattern, replacement, problem) in [
            ("(?<a>x)", "${b}", "\"${b}\" is no group of record.topic-regex: ${a}"),
            ("x", "${b}", "\"${b}\" is no group of record.topic-regex: no group has a name"),
            ("x", "${b", "has a \"${\" that is not closed"),
            ("(x)", "$2", "\"$2\" is no group of record.topic-regex, which has 1"),
            ("x", "a$", "has a \"$\" with neither a group's number nor a name behind it: write \"\\$\" for a \"$\""),
            ("x", "a\\", "ends with a backslash"),
        ] {
            assert_eq!(replaced(pattern, replacement, "x").unwrap_err(), problem);
        }
    }
}
