//! `${env:NAME}` in texts of the configuration file: the value of an environment variable.

/// Begin of a placeholder. `${routedByValue}` in `record.topic` is none.
const OPEN: &str = "${env:";

/// Replaces every placeholder in `text`; `None` if there is none in it.
///
/// # Errors
/// What is wrong with a placeholder, by name, and what to do about it. The variable's value is never part of it.
pub(super) fn resolve(
    text: &str,
    variable: &impl Fn(&str) -> Option<String>,
) -> Result<Option<String>, (String, String)> {
    if !text.contains(OPEN) {
        return Ok(None);
    }
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(OPEN) {
        out.push_str(before);
        let Some((name, tail)) = after.split_once('}') else {
            return Err((format!("\"{OPEN}\" is not closed"), "write ${env:NAME}".to_owned()));
        };
        let legal = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if name.is_empty() || !name.chars().all(legal) {
            return Err((format!("\"{name}\" is no name of an environment variable"), "write ${env:NAME}".to_owned()));
        }
        match variable(name) {
            Some(value) => out.push_str(&value),
            None => return Err((format!("environment variable \"{name}\" is not set"), format!("set {name}"))),
        }
        rest = tail;
    }
    out.push_str(rest);
    Ok(Some(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variable(name: &str) -> Option<String> {
        (name == "A").then(|| "${env:B}".to_owned())
    }

    #[test]
    fn values_are_put_in_once_and_not_looked_into_again() {
        assert_eq!(resolve("x${env:A}y${env:A}", &variable), Ok(Some("x${env:B}y${env:B}".to_owned())));
        assert_eq!(resolve("outbox.event.${routedByValue}", &variable), Ok(None));
    }

    #[test]
    fn a_missing_variable_is_named() {
        let (problem, hint) = resolve("${env:C}", &variable).unwrap_err();
        assert_eq!((problem.as_str(), hint.as_str()), ("environment variable \"C\" is not set", "set C"));
        assert!(resolve("${env:A", &variable).is_err());
        assert!(resolve("${env:}", &variable).is_err());
        assert!(resolve("${env:A-B}", &variable).is_err());
    }
}
