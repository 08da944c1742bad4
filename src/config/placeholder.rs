//! `${env:NAME}` and `${file:PATH:KEY}` in texts of the configuration: the value of an environment variable, and a property
//! of a `.properties` file, as Kafka Connect's providers of these names give them.

use super::properties;

/// Begins of placeholders. `${routedByValue}` in `record.topic` is none.
const ENV: &str = "${env:";
const FILE: &str = "${file:";

/// A part of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part<'t> {
    /// As it stands.
    Text(&'t str),
    /// A placeholder without `${` and `}`.
    Placeholder(&'t str),
}

/// Cuts a text into what stands as it is and its placeholders.
///
/// # Errors
/// A placeholder has no end.
pub(super) fn parts(text: &str) -> Result<Vec<Part<'_>>, (String, String)> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(at) = [ENV, FILE].iter().filter_map(|open| rest.find(open)).min() {
        let (before, placeholder) = rest.split_at(at);
        let Some((inner, tail)) = placeholder.split_once('}') else {
            let open = if placeholder.starts_with(ENV) { ENV } else { FILE };
            let form = if open == ENV { "write ${env:NAME}" } else { "write ${file:PATH:KEY}" };
            return Err((format!("\"{open}\" is not closed"), form.to_owned()));
        };
        parts.push(Part::Text(before));
        parts.push(Part::Placeholder(inner.strip_prefix("${").unwrap_or(inner)));
        rest = tail;
    }
    parts.push(Part::Text(rest));
    parts.retain(|part| *part != Part::Text(""));
    Ok(parts)
}

/// Replaces every placeholder in `text`; `None` if there is none in it.
///
/// # Errors
/// What is wrong with a placeholder, by name, and what to do about it. The value is never part of it.
pub(super) fn resolve(
    text: &str,
    variable: &impl Fn(&str) -> Option<String>,
) -> Result<Option<String>, (String, String)> {
    if !text.contains(ENV) && !text.contains(FILE) {
        return Ok(None);
    }
    let mut out = String::new();
    for part in parts(text)? {
        match part {
            Part::Text(text) => out.push_str(text),
            Part::Placeholder(inner) => match inner.split_once(':') {
                Some(("file", rest)) => out.push_str(&from_file(rest)?),
                Some((_, name)) => out.push_str(&from_environment(name, variable)?),
                None => {}
            },
        }
    }
    Ok(Some(out))
}

fn from_environment(name: &str, variable: &impl Fn(&str) -> Option<String>) -> Result<String, (String, String)> {
    let legal = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.is_empty() || !name.chars().all(legal) {
        return Err((format!("\"{name}\" is no name of an environment variable"), "write ${env:NAME}".to_owned()));
    }
    variable(name).ok_or_else(|| (format!("environment variable \"{name}\" is not set"), format!("set {name}")))
}

fn from_file(inner: &str) -> Result<String, (String, String)> {
    let form = "write ${file:PATH:KEY}, with the path of a file of lines KEY=VALUE";
    let (path, key) = inner
        .split_once(':')
        .filter(|(path, key)| !path.is_empty() && !key.is_empty())
        .ok_or_else(|| (format!("\"${{file:{inner}}}\" does not name a file and a key"), form.to_owned()))?;
    let text = std::fs::read_to_string(path).map_err(|error| {
        (format!("cannot read file \"{path}\": {error}"), "give the path of a file that this user may read".to_owned())
    })?;
    let properties =
        properties::parse(&text).map_err(|problem| (format!("file \"{path}\": {problem}"), form.to_owned()))?;
    let found = properties.into_iter().find(|(name, _)| name == key);
    let missing = || (format!("file \"{path}\" has no key \"{key}\""), format!("add a line {key}=… to it"));
    found.map(|(_, value)| value).ok_or_else(missing)
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

    #[test]
    fn files_are_looked_into() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secrets.properties");
        std::fs::write(&path, "user=u\nword=p\\=w:${env:A}\n").unwrap();
        let path = path.display();
        let resolve = |text: String| resolve(&text, &variable).map_err(|(problem, _)| problem);
        assert_eq!(
            resolve(format!("<${{file:{path}:user}}|${{file:{path}:word}}>")),
            Ok(Some("<u|p=w:${env:A}>".to_owned()))
        );
        assert_eq!(resolve(format!("${{file:{path}:nope}}")), Err(format!("file \"{path}\" has no key \"nope\"")));
        assert_eq!(resolve("${file:/x}".to_owned()), Err("\"${file:/x}\" does not name a file and a key".to_owned()));
        assert!(resolve("${file:/nonexistent:x}".to_owned()).unwrap_err().starts_with("cannot read file"));
        assert_eq!(resolve("${file:/x".to_owned()), Err("\"${file:\" is not closed".to_owned()));
    }
}
