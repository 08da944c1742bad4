//! The chain of transforms: one EventRouter, and its options.

use super::input::{Input, Property};
use super::list::{self, ROUTER};
use super::translate::{Fate, Objection, Translation, truth};

const ROUTER_CLASS: &str = "io.debezium.transforms.outbox.EventRouter";
const PLACEMENT: &str = "table.fields.additional.placement";

/// Transforms whose absence changes records without showing what should be hidden, with what does their work here.
const LEFT_OUT: &[(&str, &str)] = &[
    (
        "io.debezium.transforms.ExtractNewRecordState",
        "leave it out: in front of the router it breaks it, and behind it nothing is left to do",
    ),
    ("io.debezium.transforms.ByLogicalTableRouter", "leave it out, and name the topic by route.topic.replacement"),
    ("org.apache.kafka.connect.transforms.InsertHeader", "leave it out, and have a column with the header's value"),
    (
        "org.apache.kafka.connect.transforms.RegexRouter",
        "leave it out, and name the topic by route.topic.regex and route.topic.replacement",
    ),
    (
        "org.apache.kafka.connect.transforms.TimestampRouter",
        "leave it out, and name the topic by route.topic.replacement",
    ),
];

/// Predicates that let the outbox's rows through in any case.
const NARROWING: &[&str] = &["TopicNameMatches", "RecordIsTombstone"];

pub(super) fn translate(translation: &mut Translation<'_>) {
    let connector = translation.connector;
    // what no rule takes up below belongs to no transform or predicate of the chain
    for property in &connector.properties {
        let is_part = property.name.starts_with("transforms.") || property.name.starts_with("predicates.");
        if is_part && property.broken.is_none() {
            translation.mark(property, Fate::Ignored("it belongs to nothing that is in the chain".to_owned()));
        }
    }
    let names = chain(connector);
    let routers: Vec<&String> = names.iter().filter(|name| class(connector, name) == Some(ROUTER_CLASS)).collect();
    match (routers.as_slice(), connector.get("transforms")) {
        ([], None) => {
            let hint = format!("add \"transforms\": \"outbox\" and \"transforms.outbox.type\": \"{ROUTER_CLASS}\"");
            translation.lack(
                "transforms",
                "is missing, and without the outbox's EventRouter the rows are no events",
                hint,
                "record",
            );
        }
        ([], Some(property)) => {
            let hint = format!("add one with type {ROUTER_CLASS}");
            translation.refuse(property, "record", Objection::never("names no EventRouter", hint));
        }
        ([_, _, ..], Some(property)) => {
            translation.refuse(property, "record", Objection::never("names two EventRouters", "leave one of them out"));
        }
        _ => {}
    }
    for name in &names {
        if class(connector, name) != Some(ROUTER_CLASS) {
            foreign(translation, name);
        }
    }
    if let [router] = routers.as_slice() {
        options(translation, router);
    }
    predicates(translation);
    // Debezium's defaults, which differ from ours
    if !translation.document.has("record.context-headers") {
        translation.document.set("record.context-headers", true);
    }
    translation.document.set("record.timestamp", "processing");
}

/// The names of the transforms, in their order.
fn chain(connector: &Input) -> Vec<String> {
    let names = connector.value("transforms").unwrap_or_default().split(',').map(str::trim);
    names.filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

fn class<'a>(connector: &'a Input, name: &str) -> Option<&'a str> {
    connector.value(&format!("transforms.{name}.type"))
}

/// Refuses a transform that is no EventRouter.
fn foreign(translation: &mut Translation<'_>, name: &str) {
    let connector = translation.connector;
    let prefix = format!("transforms.{name}.");
    for property in connector.properties.iter().filter(|property| property.name.starts_with(&prefix)) {
        translation.mark(property, Fate::Ignored(format!("see transforms.{name}.type")));
    }
    let Some(property) = connector.get(&format!("{prefix}type")) else {
        let hint = "add its class, or take it out of transforms";
        return translation.lack(&format!("{prefix}type"), "is missing", hint, "record");
    };
    let short =
        property.value.rsplit('.').next().unwrap_or_default().trim_end_matches("$Value").trim_end_matches("$Key");
    let problem = format!("the transform {short} is not available");
    let class = property.value.trim_end_matches("$Value").trim_end_matches("$Key");
    let objection = match LEFT_OUT.iter().find(|(known, _)| *known == class) {
        Some((_, hint)) => Objection::unless_allowed(problem, *hint, "records go without it"),
        None => Objection::never(
            problem,
            format!("do its work where the row is written, then take \"{name}\" out of transforms"),
        ),
    };
    translation.refuse(property, "record", objection);
}

fn options(translation: &mut Translation<'_>, name: &str) {
    let connector = translation.connector;
    let prefix = format!("transforms.{name}.");
    let own = |property: &&'_ Property| property.name.starts_with(&prefix);
    for property in connector.properties.iter().filter(own) {
        let option = property.name.get(prefix.len()..).unwrap_or_default();
        if property.broken.is_none() && list::find(&[ROUTER], option).is_none() {
            translation.mark(
                property,
                Fate::Warned("the router has no such option; it has no effect in Debezium either".to_owned()),
            );
            continue;
        }
        let fate = match option {
            "type" => Fate::Mapped("record".to_owned()),
            "predicate" | "negate" => Fate::Warned("only rows of the outbox are routed in any case".to_owned()),
            _ => translation.by_list(property, &[ROUTER], option),
        };
        translation.mark(property, fate);
        if option == PLACEMENT && property.broken.is_none() {
            place(translation, property);
        }
    }
    if !connector.value(&format!("{prefix}table.expand.json.payload")).and_then(truth).unwrap_or_default() {
        for (option, ours) in [
            ("table.json.payload.null.behavior", "record.expand-json-null"),
            ("table.json.payload.empty.array.behavior", "record.expand-json-empty-array"),
        ] {
            if let Some(property) = connector.get(&format!("{prefix}{option}"))
                && translation.document.unset(ours)
            {
                translation.mark(property, Fate::Ignored("table.expand.json.payload is not true".to_owned()));
            }
        }
    }
}

/// The places of further columns: headers, envelope, partition.
fn place(translation: &mut Translation<'_>, property: &Property) {
    let placements = match placements(&property.value) {
        Ok(placements) => placements,
        Err(entry) => {
            let problem = format!("\"{}\" is no placement", entry.escape_debug());
            let hint = "write column:header, column:envelope or column:partition, with a further colon and another name if needed";
            return translation.refuse(property, "record.headers", Objection::never(problem, hint));
        }
    };
    let mut targets = Vec::new();
    for (place, option) in [("header", "record.headers"), ("envelope", "record.envelope")] {
        let entries: Vec<toml::Value> =
            placements.iter().filter(|entry| entry.place == place).map(|entry| entry.written().into()).collect();
        if !entries.is_empty() {
            translation.set(option, entries, property);
            targets.push(option);
        }
    }
    // of several the last one counts, as in Debezium
    if let Some(entry) = placements.iter().rfind(|entry| entry.place == "partition") {
        translation.set("record.partition", entry.column.as_str(), property);
        targets.push("record.partition");
    }
    translation.mark(property, Fate::Mapped(targets.join(", ")));
}

/// An entry of `table.fields.additional.placement`.
struct Placement {
    column: String,
    place: String,
    alias: Option<String>,
}

impl Placement {
    /// As `record.headers` and `record.envelope` take it.
    fn written(&self) -> String {
        let column = if self.column.contains('"') {
            format!("\"{}\"", self.column.replace('"', "\"\""))
        } else {
            self.column.clone()
        };
        match &self.alias {
            Some(alias) => format!("{column}:{alias}"),
            None => column,
        }
    }
}

/// Reads the entries.
///
/// # Errors
/// The entry that is none.
fn placements(text: &str) -> Result<Vec<Placement>, String> {
    let entry = |text: &str| {
        let parts: Vec<&str> = text.split(':').map(str::trim).collect();
        let (column, place, alias) = match parts.as_slice() {
            [column, place] => (*column, *place, None),
            [column, place, alias] => (*column, *place, Some(*alias).filter(|alias| !alias.is_empty())),
            _ => return Err(text.to_owned()),
        };
        let place = place.to_ascii_lowercase();
        if column.is_empty() || !matches!(place.as_str(), "header" | "envelope" | "partition") {
            return Err(text.to_owned());
        }
        Ok(Placement { column: column.to_owned(), place, alias: alias.map(str::to_owned) })
    };
    text.split(',').map(str::trim).map(entry).collect()
}

/// The columns that a record is made of.
pub(super) fn needed_columns(connector: &Input) -> Vec<String> {
    const COLUMNS: &[(&str, Option<&str>)] = &[
        ("table.field.event.id", Some("id")),
        ("table.field.event.key", Some("aggregateid")),
        ("route.by.field", Some("aggregatetype")),
        ("table.field.event.payload", Some("payload")),
        ("table.field.event.timestamp", None),
    ];
    let names = chain(connector);
    let Some(name) = names.iter().find(|name| class(connector, name) == Some(ROUTER_CLASS)) else { return Vec::new() };
    let option = |option: &str| connector.value(&format!("transforms.{name}.{option}"));
    let columns = COLUMNS.iter().filter_map(|(name, default)| option(name).or(*default).map(str::to_owned));
    let placed = option(PLACEMENT).and_then(|text| placements(text).ok()).unwrap_or_default();
    columns.chain(placed.into_iter().map(|entry| entry.column)).collect()
}

fn predicates(translation: &mut Translation<'_>) {
    let connector = translation.connector;
    let Some(list) = connector.get("predicates").filter(|property| property.broken.is_none()) else { return };
    translation.mark(list, Fate::Warned("only rows of the outbox are routed in any case".to_owned()));
    for name in list.value.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        let prefix = format!("predicates.{name}.");
        for property in connector.properties.iter().filter(|property| property.name.starts_with(&prefix)) {
            let is_type = property.name == format!("{prefix}type");
            let short = property.value.rsplit('.').next().unwrap_or_default();
            if is_type && !NARROWING.contains(&short) {
                let objection = Objection::unless_allowed(
                    format!("the predicate {short} is not available"),
                    "leave it out",
                    "every row of the outbox is routed",
                );
                translation.refuse(property, "record", objection);
            } else {
                translation.mark(property, Fate::Warned("only rows of the outbox are routed in any case".to_owned()));
            }
        }
    }
}
