//! `[record]`: how a row becomes a record.

use serde::{Deserialize, Serialize};

/// `[record]`
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct RecordConfig {
    /// Topic, in the syntax of a Java replacement text: `${routedByValue}` stands for what the group of that name in
    /// `topic-regex` matched.
    pub topic: String,
    /// Regular expression in Java's syntax that the value of the column `route-by` must match as a whole; a value that
    /// does not is the topic itself.
    pub topic_regex: String,
    /// Further columns that become headers: `column` or `column:header-name`.
    pub headers: Vec<String>,
    /// Columns that stand beside the payload in the record's value: `column` or `column:field-name`.
    pub envelope: Vec<String>,
    /// Column of the record's partition. Unset or NULL: the hash of the key decides.
    pub partition: Option<String>,
    /// What happens when a column of `headers`, `envelope` or `partition` is not in the table.
    pub missing_columns: MissingColumns,
    /// Bytes of the key.
    pub key_format: KeyFormat,
    /// What a key that is not binary becomes under the key format `bytes`.
    pub key_delegate: Delegate,
    /// Bytes of the value.
    pub value_format: ValueFormat,
    /// What a value that is not binary becomes under the value format `bytes`.
    pub value_delegate: Delegate,
    /// Bytes of the headers that come from columns.
    pub header_format: HeaderFormat,
    /// Whether an empty payload makes a record without value.
    pub tombstone_on_empty: bool,
    /// Whether a text payload that is a JSON document becomes that document in a value of format `json`.
    pub expand_json: ExpandJson,
    /// What happens with null fields when a document is expanded as Debezium does.
    pub expand_json_null: ExpandEmpty,
    /// What happens with fields that are empty arrays when a document is expanded as Debezium does.
    pub expand_json_empty_array: ExpandEmpty,
    /// Whether records carry the headers `__debezium.context.…`.
    pub context_headers: bool,
    /// Debezium's `topic.prefix`: the logical name in the context headers.
    pub legacy_prefix: Option<String>,
    /// What binary columns become.
    pub binary_as: BinaryAs,
    /// What exact decimal numbers become.
    pub decimal_as: DecimalAs,
    /// What dates and times become in key, value and headers.
    pub time_format: TimeFormat,
    /// Whose form values of MySQL and MariaDB have where the server prints another than Debezium.
    pub mysql_values: MysqlValues,
    /// The record's time where no column gives it.
    pub timestamp: RecordTime,
}

impl Default for RecordConfig {
    fn default() -> Self {
        Self {
            topic: "outbox.event.${routedByValue}".to_owned(),
            topic_regex: "(?<routedByValue>.*)".to_owned(),
            headers: Vec::new(),
            envelope: Vec::new(),
            partition: None,
            missing_columns: MissingColumns::default(),
            key_format: KeyFormat::default(),
            key_delegate: Delegate::default(),
            value_format: ValueFormat::default(),
            value_delegate: Delegate::default(),
            header_format: HeaderFormat::default(),
            tombstone_on_empty: false,
            expand_json: ExpandJson::default(),
            expand_json_null: ExpandEmpty::default(),
            expand_json_empty_array: ExpandEmpty::default(),
            context_headers: false,
            legacy_prefix: None,
            binary_as: BinaryAs::default(),
            decimal_as: DecimalAs::default(),
            time_format: TimeFormat::default(),
            mysql_values: MysqlValues::default(),
            timestamp: RecordTime::default(),
        }
    }
}

/// What happens when a column of `record.headers`, `record.envelope` or `record.partition` is not in the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MissingColumns {
    /// It is an error.
    #[default]
    Error,
    /// The record goes without it.
    Ignore,
}

/// Bytes of the key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeyFormat {
    /// UTF-8 text.
    #[default]
    String,
    /// JSON without a schema.
    Json,
    /// Binary columns as they are.
    Bytes,
    /// Four bytes, big endian.
    Int32,
    /// Eight bytes, big endian.
    Int64,
    /// JSON with a schema. Not available in this version: validation refuses it.
    JsonSchema,
    /// Avro. Not available in this version: validation refuses it.
    Avro,
    /// Protobuf. Not available in this version: validation refuses it.
    Protobuf,
}

/// Bytes of the value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ValueFormat {
    /// UTF-8 text; binary columns as they are.
    #[default]
    String,
    /// JSON without a schema.
    Json,
    /// Binary columns as they are.
    Bytes,
    /// JSON with a schema. Not available in this version: validation refuses it.
    JsonSchema,
    /// Avro. Not available in this version: validation refuses it.
    Avro,
    /// Protobuf. Not available in this version: validation refuses it.
    Protobuf,
}

/// What values that are not binary become under the format `bytes`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Delegate {
    /// They are an error.
    #[default]
    None,
    /// UTF-8 text.
    String,
    /// JSON without a schema.
    Json,
}

/// Bytes of headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum HeaderFormat {
    /// Text; NULL is a header without value.
    #[default]
    Simple,
    /// JSON without a schema; NULL is the text `null`.
    Json,
}

/// Whether a text payload that is a JSON document becomes that document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExpandJson {
    /// It stays a text.
    #[default]
    Off,
    /// The bytes that Debezium gives.
    Debezium,
    /// The document without its white space, otherwise as it is.
    Raw,
}

/// What happens with null fields and empty arrays when a document is expanded as Debezium does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExpandEmpty {
    /// They are left out.
    #[default]
    Ignore,
    /// They are kept.
    Keep,
}

/// What binary columns become.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum BinaryAs {
    /// Bytes, which are base64 where there has to be text.
    #[default]
    Raw,
    /// Base64 text.
    Base64,
    /// Base64 text with `-` and `_`.
    Base64UrlSafe,
    /// Hexadecimal digits.
    Hex,
}

/// What exact decimal numbers become.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DecimalAs {
    /// Exact: digits as text, and base64 of the unscaled number in JSON.
    #[default]
    Precise,
    /// The nearest floating point number.
    Double,
    /// Digits as text, also in JSON.
    String,
}

/// What dates and times become in key, value and headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TimeFormat {
    /// Counts since 1970-01-01 in the column's own unit; moments with a time zone as ISO text.
    #[default]
    Debezium,
    /// ISO text.
    Iso,
}

/// Whose form values of MySQL and MariaDB have where the server prints another than Debezium.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MysqlValues {
    /// The server's: JSON and TIME as SELECT prints them, BIT as its bytes.
    #[default]
    Server,
    /// Debezium's: JSON from the log without blanks, TIME as a count of microseconds, BIT with its lowest byte first.
    Debezium,
}

/// The record's time where no column gives it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RecordTime {
    /// The time of the commit.
    #[default]
    Commit,
    /// The time at which the row is routed.
    Processing,
}
