//! What was given: the connector's properties, and those of the Connect worker.
//!
//! A connector is JSON, `{"name": …, "config": {…}}` or the bare map, or a `.properties` file. Debezium Server's names
//! (`debezium.source.…`) are brought to those of a connector; each property remembers how it is written.

use std::path::Path;

use serde_json::{Map, Value};

use super::super::error::Finding;
use super::super::placeholder::{self, Part};
use super::super::properties;

/// A property with a value.
#[derive(Clone, Debug)]
pub(super) struct Property {
    /// Its name in a connector.
    pub name: String,
    /// Its name as it is written.
    pub written: String,
    /// Its value as it is written.
    pub raw: String,
    /// Its value with placeholders resolved; as it is written where that failed.
    pub value: String,
    /// Why it could not be resolved, and what to do.
    pub broken: Option<(String, String)>,
}

impl Property {
    fn new(name: String, written: String, raw: &str, variable: &impl Fn(&str) -> Option<String>) -> Self {
        // Connect trims texts; what a password's placeholder brings stays as it is
        let raw = raw.trim().to_owned();
        let resolved = foreign_provider(&raw).map_or_else(|| placeholder::resolve(&raw, variable), Err);
        let (value, broken) = match resolved {
            Ok(value) => (value.unwrap_or_else(|| raw.clone()), None),
            Err(broken) => (raw.clone(), Some(broken)),
        };
        Self { name, written, raw, value, broken }
    }

    /// Whether the value is one placeholder and nothing else.
    pub(super) fn is_placeholder(&self) -> bool {
        self.broken.is_none() && matches!(placeholder::parts(&self.raw).as_deref(), Ok([Part::Placeholder(_)]))
    }
}

/// A file's properties.
#[derive(Clone, Debug, Default)]
pub(super) struct Input {
    /// The file, as it is called in findings.
    pub file: String,
    /// In the file's order.
    pub properties: Vec<Property>,
    /// Whether they are Debezium Server's.
    pub is_server: bool,
}

impl Input {
    /// The property of this name.
    pub(super) fn get(&self, name: &str) -> Option<&Property> {
        self.properties.iter().find(|property| property.name == name)
    }

    /// Its value, if it has one.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        self.get(name).map(|property| property.value.as_str()).filter(|value| !value.is_empty())
    }
}

/// Whether the file is a connector's, by its name or by its first character: no TOML begins with a brace.
pub(in crate::config) fn is_connector(path: &Path, text: &str) -> bool {
    let extension = path.extension().map(|extension| extension.to_string_lossy().to_ascii_lowercase());
    matches!(extension.as_deref(), Some("json" | "properties")) || text.trim_start().starts_with('{')
}

/// Reads the text of a connector's file.
///
/// # Errors
/// The text is no connector at all.
pub(super) fn connector(text: &str, file: &str, variable: &impl Fn(&str) -> Option<String>) -> Result<Input, Finding> {
    let is_json = file.ends_with(".json") || text.trim_start().starts_with('{');
    let pairs = if is_json { from_json(text, file)? } else { from_properties(text, file)? };
    let is_server = pairs.iter().any(|(name, _)| name.starts_with("debezium.source."));
    let mut input = Input { file: file.to_owned(), properties: Vec::new(), is_server };
    for (written, raw) in pairs {
        let name = if is_server { from_server(&written) } else { written.clone() };
        let mut property = Property::new(name, written, &raw, variable);
        if is_server && property.broken.is_none() {
            property.broken = quarkus_placeholder(&property);
        }
        input.properties.push(property);
    }
    Ok(input)
}

/// Reads the text of a worker's file.
///
/// # Errors
/// The text is no `.properties` file.
pub(super) fn worker(text: &str, file: &str, variable: &impl Fn(&str) -> Option<String>) -> Result<Input, Finding> {
    let pairs = from_properties(text, file)?;
    let property = |(name, raw): (String, String)| Property::new(name.clone(), name, &raw, variable);
    Ok(Input { file: file.to_owned(), properties: pairs.into_iter().map(property).collect(), is_server: false })
}

fn finding(file: &str, problem: String, hint: &str) -> Finding {
    Finding { place: Some(file.to_owned()), option: None, problem, hint: Some(hint.to_owned()) }
}

fn from_properties(text: &str, file: &str) -> Result<Vec<(String, String)>, Finding> {
    properties::parse(text).map_err(|problem| finding(file, problem, "write \\uXXXX, or the character itself"))
}

fn from_json(text: &str, file: &str) -> Result<Vec<(String, String)>, Finding> {
    const SHAPES: &str = "write {\"name\": …, \"config\": {…}} or the bare map of properties";
    let root: Map<String, Value> = serde_json::from_str(text).map_err(|error| {
        let problem = match error.classify() {
            serde_json::error::Category::Data => "is no JSON object".to_owned(),
            _ => format!("is no JSON: {error}"),
        };
        finding(file, problem, SHAPES)
    })?;
    let mut pairs = Vec::new();
    let properties = match root.get("config") {
        Some(Value::Object(config)) => {
            if let Some(name) = root.get("name").filter(|_| !config.contains_key("name")) {
                pairs.push(pair("name", name, file)?);
            }
            config
        }
        Some(_) => return Err(finding(file, "\"config\" is no JSON object".to_owned(), SHAPES)),
        None => &root,
    };
    for (name, value) in properties.iter().filter(|(_, value)| !value.is_null()) {
        pairs.push(pair(name, value, file)?);
    }
    Ok(pairs)
}

/// Connect takes numbers and truth values for their texts.
fn pair(name: &str, value: &Value, file: &str) -> Result<(String, String), Finding> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        Value::Bool(truth) => truth.to_string(),
        _ => {
            let problem = format!("property \"{name}\" is no text");
            return Err(finding(file, problem, "write each value as a text in double quotes"));
        }
    };
    Ok((name.to_owned(), text))
}

/// The connector's name of a property of Debezium Server; others stay.
fn from_server(name: &str) -> String {
    const PREFIXES: &[(&str, &str)] = &[
        ("debezium.source.", ""),
        ("debezium.sink.kafka.producer.", "producer.override."),
        ("debezium.transforms", "transforms"),
        ("debezium.predicates", "predicates"),
    ];
    let translated = PREFIXES.iter().find_map(|(prefix, with)| Some(format!("{with}{}", name.strip_prefix(prefix)?)));
    translated.unwrap_or_else(|| name.to_owned())
}

/// A placeholder of a provider that is not here: `${vault:path:key}`.
fn foreign_provider(raw: &str) -> Option<(String, String)> {
    let mut rest = raw;
    while let Some((_, after)) = rest.split_once("${") {
        let (inner, tail) = after.split_once('}')?;
        if let Some((provider, _)) = inner.split_once(':')
            && !matches!(provider, "env" | "file")
            && !provider.contains(['$', '{', ' '])
        {
            let problem = format!("the configuration provider \"{provider}\" is not available");
            let hint = "have its value in an environment variable or a file, and write ${env:NAME} or ${file:PATH:KEY}";
            return Some((problem, hint.to_owned()));
        }
        rest = tail;
    }
    None
}

/// Debezium Server's own `${NAME}`; the router's replacement text has the same form.
fn quarkus_placeholder(property: &Property) -> Option<(String, String)> {
    if property.name.ends_with(".route.topic.replacement") || property.name.ends_with(".route.topic.regex") {
        return None;
    }
    let (_, after) = property.raw.split_once("${")?;
    let (name, _) = after.split_once('}').filter(|(name, _)| !name.contains(':'))?;
    let problem = format!("the placeholder \"${{{name}}}\" is not available");
    Some((problem, format!("write ${{env:{name}}} for the environment variable")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variable(name: &str) -> Option<String> {
        (name == "A").then(|| "b c".to_owned())
    }

    fn read(text: &str) -> Vec<(String, String)> {
        let input = connector(text, "c", &variable).unwrap();
        input.properties.into_iter().map(|property| (property.name, property.value)).collect()
    }

    fn refused(text: &str) -> String {
        connector(text, "c", &variable).unwrap_err().to_string()
    }

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn every_shape_gives_the_same_properties() {
        let expected = pairs(&[("name", "n"), ("tasks.max", "1"), ("a", "true")]);
        assert_eq!(read("{\"name\": \"n\", \"config\": {\"tasks.max\": 1, \"a\": true, \"b\": null}}"), expected);
        assert_eq!(read(" {\"name\": \"n\", \"tasks.max\": \" 1 \", \"a\": \"true\"}"), expected);
        assert_eq!(read("name=n\ntasks.max=1\na=true\n"), expected);
        assert_eq!(read("{\"name\": \"x\", \"config\": {\"name\": \"n\"}}"), pairs(&[("name", "n")]));
    }

    #[test]
    fn debezium_servers_names_are_a_connectors() {
        let text = "debezium.source.topic.prefix=p\ndebezium.sink.type=kafka\ndebezium.sink.kafka.producer.linger.ms=5\n\
                    debezium.transforms=o\ndebezium.transforms.o.type=x\n";
        let expected = pairs(&[
            ("topic.prefix", "p"),
            ("debezium.sink.type", "kafka"),
            ("producer.override.linger.ms", "5"),
            ("transforms", "o"),
            ("transforms.o.type", "x"),
        ]);
        assert_eq!(read(text), expected);
    }

    #[test]
    fn placeholders_are_resolved_and_others_are_named() {
        let text = "{\"a\": \"<${env:A}>\", \"b\": \"${env:A}\", \"c\": \"outbox.${routedByValue}\"}";
        let input = connector(text, "f", &variable).unwrap();
        let values: Vec<(&str, bool)> =
            input.properties.iter().map(|p| (p.value.as_str(), p.is_placeholder())).collect();
        assert_eq!(values, [("<b c>", false), ("b c", true), ("outbox.${routedByValue}", false)]);
        let problem = |text: &str| {
            let broken = connector(text, "f", &variable).unwrap().properties.remove(0).broken.unwrap();
            format!("{} [{}]", broken.0, broken.1)
        };
        assert_eq!(
            problem("{\"a\": \"${vault:db/shop:password}\"}"),
            "the configuration provider \"vault\" is not available [have its value in an environment variable or a file, \
             and write ${env:NAME} or ${file:PATH:KEY}]"
        );
        assert_eq!(problem("{\"a\": \"${env:NOPE}\"}"), "environment variable \"NOPE\" is not set [set NOPE]");
        assert_eq!(
            problem("debezium.source.database.password=${PASSWORD}"),
            "the placeholder \"${PASSWORD}\" is not available [write ${env:PASSWORD} for the environment variable]"
        );
    }

    #[test]
    fn what_is_no_connector_is_refused() {
        assert_eq!(refused("{\"a\": "), "c: is no JSON: EOF while parsing a value at line 1 column 6");
        assert_eq!(refused("{\"a\": {}}"), "c: property \"a\" is no text");
        assert_eq!(refused("{\"config\": []}"), "c: \"config\" is no JSON object");
        assert_eq!(refused("a=\\u12"), "c: line 1: \\u is not followed by the four digits of a character");
    }
}
