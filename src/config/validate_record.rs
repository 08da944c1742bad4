//! What `[record]` must fulfil.

use super::error::Findings;
use super::names::{HeaderColumn, check_identifier};
use super::validate::{topic_name_problem, topic_part_problem};
use super::{Config, Delegate, ExpandEmpty, ExpandJson, KeyFormat, RecordConfig, ValueFormat};
use crate::route::RuleProblem;

/// The field of an envelope that holds the payload.
const PAYLOAD_FIELD: &str = "payload";

pub(super) fn record(config: &Config, findings: &mut Findings) {
    let record = &config.record;
    topic(record, findings);
    for entry in &record.headers {
        if let Err(error) = HeaderColumn::parse(entry) {
            findings.add("record.headers", error.to_string(), "write column or column:header-name");
        }
    }
    envelope(record, findings);
    if let Some(problem) = record.partition.as_deref().and_then(|column| check_identifier(column).err()) {
        findings.add("record.partition", problem, "give the column's name as the table has it");
    }
    formats(record, findings);
    expand(record, findings);
    context(record, findings);
}

/// What is wrong with `[record]` alone.
#[cfg(test)]
pub(crate) fn record_findings(config: &Config) -> Vec<super::Finding> {
    let mut findings = Findings::default();
    record(config, &mut findings);
    findings.0
}

fn topic(record: &RecordConfig, findings: &mut Findings) {
    let hint = "use letters, digits, dot, _ and -, and ${routedByValue} where the routing value goes";
    if record.topic.is_empty() {
        findings.add("record.topic", "is empty", hint);
        return;
    }
    match crate::route::fixed_parts(record) {
        Err(RuleProblem::Regex(problem)) => {
            let hint = "write a regular expression as Java has them, such as \"(?<routedByValue>.*)\"";
            findings.add("record.topic-regex", problem, hint);
        }
        Err(RuleProblem::Topic(problem)) => findings.add("record.topic", problem, hint),
        Ok((parts, is_whole)) => {
            let fixed = parts.concat();
            let problem = if is_whole { topic_name_problem(&fixed) } else { topic_part_problem(&fixed) };
            if let Some(problem) = problem {
                findings.add("record.topic", problem, hint);
            }
        }
    }
}

fn envelope(record: &RecordConfig, findings: &mut Findings) {
    const OPTION: &str = "record.envelope";
    const HINT: &str = "write column or column:field-name";
    let mut fields: Vec<String> = Vec::new();
    for entry in &record.envelope {
        match HeaderColumn::parse(entry) {
            Ok(field) if field.header == PAYLOAD_FIELD => {
                let problem = format!("\"{entry}\" would be a second field \"{PAYLOAD_FIELD}\" beside the payload");
                findings.add(OPTION, problem, "give the field another name: column:field-name");
            }
            Ok(field) if fields.contains(&field.header) => {
                let problem = format!("field \"{}\" is there twice", field.header);
                findings.add(OPTION, problem, "give one of them another name: column:field-name");
            }
            Ok(field) => fields.push(field.header),
            Err(error) => findings.add(OPTION, error.to_string(), HINT),
        }
    }
    let gives_json = match record.value_format {
        ValueFormat::String => false,
        ValueFormat::Bytes => record.value_delegate == Delegate::Json,
        _ => true,
    };
    if !record.envelope.is_empty() && !gives_json {
        findings.add(OPTION, "needs values in JSON", "set record.value-format = \"json\", or leave the envelope out");
    }
}

fn formats(record: &RecordConfig, findings: &mut Findings) {
    let key = match record.key_format {
        KeyFormat::JsonSchema => Some("json-schema"),
        KeyFormat::Avro => Some("avro"),
        KeyFormat::Protobuf => Some("protobuf"),
        _ => None,
    };
    let value = match record.value_format {
        ValueFormat::JsonSchema => Some("json-schema"),
        ValueFormat::Avro => Some("avro"),
        ValueFormat::Protobuf => Some("protobuf"),
        _ => None,
    };
    let key_hint = "use \"string\", \"json\", \"bytes\", \"int32\" or \"int64\"";
    let value_hint = "use \"string\", \"json\" or \"bytes\"";
    for (option, word, hint) in [("record.key-format", key, key_hint), ("record.value-format", value, value_hint)] {
        if let Some(word) = word {
            findings.add(option, format!("\"{word}\" is not available in this version"), hint);
        }
    }
    let key = (record.key_delegate, record.key_format == KeyFormat::Bytes, "key");
    let value = (record.value_delegate, record.value_format == ValueFormat::Bytes, "value");
    for (delegate, has_effect, which) in [key, value] {
        if delegate != Delegate::None && !has_effect {
            let problem = format!("has no effect without record.{which}-format = \"bytes\"");
            findings.add(&format!("record.{which}-delegate"), problem, "leave it out, or set the format");
        }
    }
}

fn expand(record: &RecordConfig, findings: &mut Findings) {
    let is_text = match record.value_format {
        ValueFormat::String => true,
        ValueFormat::Bytes => record.value_delegate == Delegate::String,
        _ => false,
    };
    if record.expand_json != ExpandJson::Off && is_text {
        let hint = "set record.value-format = \"json\"; under \"string\" the payload is the document already";
        findings.add("record.expand-json", "needs values in JSON", hint);
    }
    let options = [("null", record.expand_json_null), ("empty-array", record.expand_json_empty_array)];
    for (name, value) in options {
        if value != ExpandEmpty::Ignore && record.expand_json != ExpandJson::Debezium {
            let problem = "has no effect without record.expand-json = \"debezium\"";
            findings.add(&format!("record.expand-json-{name}"), problem, "leave it out: \"raw\" keeps everything");
        }
    }
}

fn context(record: &RecordConfig, findings: &mut Findings) {
    const OPTION: &str = "record.legacy-prefix";
    match record.legacy_prefix.as_deref() {
        None if record.context_headers => {
            let hint = "give the connector's topic.prefix, or set record.context-headers = false";
            findings.add(OPTION, "is missing beside context-headers", hint);
        }
        Some("") => findings.add(OPTION, "is empty", "give the connector's topic.prefix, or leave it out"),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is found about a configuration that differs from the default by `change`, with the hints.
    fn found(change: impl FnOnce(&mut RecordConfig)) -> Vec<String> {
        let mut config = Config::default();
        change(&mut config.record);
        let mut findings = Findings::default();
        record(&config, &mut findings);
        let show =
            |finding: super::super::Finding| format!("{finding} [{}]", finding.hint.as_deref().unwrap_or_default());
        findings.0.into_iter().map(show).collect()
    }

    #[test]
    fn topics_are_checked_with_their_pattern() {
        let topic = |regex: &str, topic: &str| {
            found(|record| (record.topic_regex, record.topic) = (regex.to_owned(), topic.to_owned()))
        };
        let hint = "use letters, digits, dot, _ and -, and ${routedByValue} where the routing value goes";
        assert_eq!(topic("([a-z]+)\\.([a-z]+)", "$2x-$1"), [""; 0]);
        assert_eq!(
            topic("([a-z]+)", "${routedByValue}"),
            [format!(
                "record.topic: \"${{routedByValue}}\" is no group of record.topic-regex: no group has a name [{hint}]"
            )]
        );
        assert_eq!(topic("a", "b\\$"), [format!("record.topic: '$' is not allowed in a topic's name [{hint}]")]);
        assert_eq!(topic("a", ".."), [format!("record.topic: \"..\" is no name that Kafka allows [{hint}]")]);
        assert_eq!(
            topic("[a", "b"),
            [
                "record.topic-regex: is no regular expression: a class is not closed [write a regular expression as Java has \
              them, such as \"(?<routedByValue>.*)\"]"
            ]
        );
    }

    #[test]
    fn formats_that_are_not_there_are_refused_by_name() {
        assert_eq!(
            found(|record| {
                record.key_format = KeyFormat::JsonSchema;
                record.value_format = ValueFormat::Avro;
            }),
            [
                "record.key-format: \"json-schema\" is not available in this version [use \"string\", \"json\", \
                 \"bytes\", \"int32\" or \"int64\"]",
                "record.value-format: \"avro\" is not available in this version [use \"string\", \"json\" or \"bytes\"]",
            ]
        );
        let protobuf = found(|record| record.value_format = ValueFormat::Protobuf);
        assert!(protobuf[0].starts_with("record.value-format: \"protobuf\" is not available"), "{protobuf:?}");
    }

    #[test]
    fn options_that_need_another_one_say_which() {
        assert_eq!(
            found(|record| {
                record.envelope = vec!["type".to_owned()];
                record.expand_json = ExpandJson::Raw;
                record.expand_json_null = ExpandEmpty::Keep;
                record.value_delegate = Delegate::Json;
                record.context_headers = true;
            }),
            [
                "record.envelope: needs values in JSON [set record.value-format = \"json\", or leave the envelope out]",
                "record.value-delegate: has no effect without record.value-format = \"bytes\" [leave it out, or set \
                 the format]",
                "record.expand-json: needs values in JSON [set record.value-format = \"json\"; under \"string\" the \
                 payload is the document already]",
                "record.expand-json-null: has no effect without record.expand-json = \"debezium\" [leave it out: \
                 \"raw\" keeps everything]",
                "record.legacy-prefix: is missing beside context-headers [give the connector's topic.prefix, or set \
                 record.context-headers = false]",
            ]
        );
        let fine = found(|record| {
            record.envelope = vec!["type".to_owned()];
            record.expand_json = ExpandJson::Debezium;
            record.value_format = ValueFormat::Bytes;
            record.value_delegate = Delegate::Json;
        });
        assert_eq!(fine, [""; 0]);
    }

    #[test]
    fn fields_of_the_envelope_have_names_of_their_own() {
        let found = found(|record| {
            record.value_format = ValueFormat::Json;
            record.envelope = ["a:payload", "b:x", "c:x", "d:"].map(str::to_owned).to_vec();
            record.partition = Some(String::new());
            record.legacy_prefix = Some(String::new());
        });
        assert_eq!(
            found,
            [
                "record.envelope: \"a:payload\" would be a second field \"payload\" beside the payload [give the field \
                 another name: column:field-name]",
                "record.envelope: field \"x\" is there twice [give one of them another name: column:field-name]",
                "record.envelope: \"d:\" has no name after the colon [write column or column:field-name]",
                "record.partition: has an empty part [give the column's name as the table has it]",
                "record.legacy-prefix: is empty [give the connector's topic.prefix, or leave it out]",
            ]
        );
    }
}
