//! The offset that Kafka Connect keeps for a connector, from the offsets topic or from its REST interface
//! (`GET /connectors/NAME/offsets`), and what is in that of a Debezium PostgreSQL connector.
//!
//! Of those fields `lsn_commit` is what counts. Debezium sets it when a transaction's COMMIT arrives, to the position of that
//! message, which for pgoutput is the end of the commit's record; and every record carries the value as it was when the
//! record was made. Connect stores the offset of a record only when all records before it are acknowledged. So every
//! transaction that ended at or before `lsn_commit` was published whole, and Debezium itself confirms the slot with this
//! value, after it was stored (`PostgresStreamingChangeEventSource.commitOffset`, 3.6.1). The rows of the transaction
//! behind it may have been published in part: they are published again. `lsn` and `lsn_proc` stand inside a transaction;
//! nothing is left out because of them.

use serde_json::Value;

use crate::position::Lsn;

/// A stored offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectOffset {
    /// The end of the last transaction that was published whole; there is none before the first.
    pub committed: Option<Lsn>,
    /// The position of the last row.
    pub row: Option<Lsn>,
    /// The time of its commit, microseconds since 1970.
    pub time_us: Option<i64>,
    /// Whether the connector was still reading the rows that stand in the tables.
    pub in_snapshot: bool,
}

impl ConnectOffset {
    /// Reads the value of an offset.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(json: &Value) -> Result<Self, String> {
        let Some(fields) = json.as_object() else { return Err("it is no JSON object".to_owned()) };
        let lsn = |name: &str| match fields.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => value
                .as_u64()
                .map(|number| Some(Lsn(number)))
                .ok_or_else(|| format!("\"{name}\" is no position: {value}")),
        };
        Ok(Self {
            committed: lsn("lsn_commit")?,
            row: lsn("lsn")?,
            time_us: fields.get("ts_usec").and_then(Value::as_i64),
            in_snapshot: in_snapshot(json)?,
        })
    }
}

/// Whether the connector was still reading the rows that stand in the tables. Older versions write true, newer ones the
/// kind of snapshot.
pub(super) fn in_snapshot(offset: &Value) -> Result<bool, String> {
    match offset.get("snapshot") {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(truth)) => Ok(*truth),
        Some(Value::String(word)) => Ok(!word.eq_ignore_ascii_case("false")),
        Some(other) => Err(format!("\"snapshot\" is not understood: {other}")),
    }
}

/// Finds the offset of the connector with this `topic.prefix` in an answer of the REST interface; `None` if there is none.
///
/// # Errors
/// The text is no such answer.
pub fn from_answer(text: &str, prefix: &str) -> Result<Option<Value>, String> {
    let json: Value = serde_json::from_str(text).map_err(|error| format!("it is no JSON: {error}"))?;
    let Some(offsets) = json.get("offsets").and_then(Value::as_array) else {
        return Err("it has no list \"offsets\"".to_owned());
    };
    let of_prefix = |entry: &&Value| entry.pointer("/partition/server").and_then(Value::as_str) == Some(prefix);
    let offset = offsets.iter().find(of_prefix).and_then(|entry| entry.get("offset"));
    Ok(offset.filter(|offset| !offset.is_null()).cloned())
}

/// Whether a record's key in the offsets topic is the connector's.
#[must_use]
pub fn is_key(key: &[u8], name: &str, prefix: &str) -> bool {
    let Ok(Value::Array(parts)) = serde_json::from_slice(key) else { return false };
    match parts.as_slice() {
        [Value::String(connector), partition] => {
            connector == name && partition.get("server").and_then(Value::as_str) == Some(prefix)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As version 3.6.1 writes it.
    const STREAMING: &str = "{\"lsn_proc\":27262976,\"messageType\":\"INSERT\",\"lsn_commit\":27262720,\"lsn\":27262976,\
                             \"txId\":744,\"ts_usec\":1767323045678901}";

    fn parse(text: &str) -> Result<ConnectOffset, String> {
        ConnectOffset::parse(&serde_json::from_str(text).unwrap())
    }

    #[test]
    fn offsets_are_read() {
        let offset = parse(STREAMING).unwrap();
        assert_eq!((offset.committed, offset.row), (Some(Lsn(27_262_720)), Some(Lsn(27_262_976))));
        assert_eq!((offset.time_us, offset.in_snapshot), (Some(1_767_323_045_678_901), false));
        for (snapshot, expected) in [("true", true), ("false", false), ("\"INITIAL\"", true), ("null", false)] {
            let text = format!("{{\"snapshot\":{snapshot},\"lsn\":1,\"lsn_commit\":null}}");
            let offset = parse(&text).unwrap();
            assert_eq!((offset.in_snapshot, offset.committed), (expected, None), "{text}");
        }
    }

    #[test]
    fn what_is_no_offset_is_said() {
        for (text, problem) in [
            ("[]", "it is no JSON object"),
            ("{\"lsn_commit\":\"0/1\"}", "\"lsn_commit\" is no position: \"0/1\""),
            ("{\"lsn_commit\":-1}", "\"lsn_commit\" is no position: -1"),
            ("{\"snapshot\":7}", "\"snapshot\" is not understood: 7"),
        ] {
            assert_eq!(parse(text).unwrap_err(), problem);
        }
    }

    #[test]
    fn the_rest_interfaces_answer_is_read() {
        let entry = |server: &str| format!("{{\"partition\":{{\"server\":\"{server}\"}},\"offset\":{STREAMING}}}");
        let answer = format!("{{\"offsets\":[{},{}]}}", entry("other"), entry("shop"));
        assert_eq!(ConnectOffset::parse(&from_answer(&answer, "shop").unwrap().unwrap()), parse(STREAMING));
        assert_eq!(from_answer(&answer, "none"), Ok(None));
        assert_eq!(from_answer("{\"offsets\":[]}", "shop"), Ok(None));
        assert!(from_answer(STREAMING, "shop").is_err());
    }

    #[test]
    fn keys_are_told_apart() {
        for (key, expected) in [
            ("[\"shop-outbox\",{\"server\":\"shop\"}]", true),
            ("[ \"shop-outbox\", {\"server\": \"shop\"} ]", true),
            ("[\"shop-outbox\",{\"server\":\"other\"}]", false),
            ("[\"other\",{\"server\":\"shop\"}]", false),
            ("[\"shop-outbox\"]", false),
            ("x", false),
        ] {
            assert_eq!(is_key(key.as_bytes(), "shop-outbox", "shop"), expected, "{key}");
        }
    }
}
