//! The offset that Kafka Connect keeps for a Debezium MySQL or MariaDB connector.
//!
//! `gtids`, `file` and `pos` name the place behind the last transaction that was left: Debezium moves them when a
//! transaction ends, and every record of a transaction carries them as they were when it began
//! (`BinlogOffsetContext.getOffset`, 3.6.1: `restartGtidSet`, `restartBinlogFilename`, `restartBinlogPosition`). `event`
//! and `row` say how much of the transaction behind that place is done. Connect stores the offset of a record only when
//! all records before it are acknowledged. So every transaction before the place was published whole, and the one behind
//! it may have been in part: it is published again from its beginning, since nothing else is sure to lose none of it.

use serde_json::Value;

use crate::gtid::{MariadbGtids, MysqlGtids, ParseGtidError};

/// A stored offset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BinlogOffset {
    /// The transactions before the place, as they are written; `None` where the server had no GTIDs.
    pub gtids: Option<String>,
    /// File of the binary log.
    pub file: String,
    /// Offset in the file.
    pub offset: u64,
    /// Events of the transaction behind the place that are done.
    pub events: u64,
    /// Rows of the event behind those that are done.
    pub rows: u64,
    /// The time of the last event, seconds since 1970.
    pub time_s: Option<u64>,
    /// Whether the connector was still reading the rows that stand in the tables.
    pub in_snapshot: bool,
}

impl BinlogOffset {
    /// Reads the value of an offset.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(json: &Value) -> Result<Self, String> {
        let Some(fields) = json.as_object() else { return Err("it is no JSON object".to_owned()) };
        let field = |name: &str| fields.get(name).filter(|value| !value.is_null());
        let number = |name: &str| match field(name) {
            None => Ok(None),
            Some(value) => value.as_u64().map(Some).ok_or_else(|| format!("\"{name}\" is no number: {value}")),
        };
        let text = |name: &str| match field(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(value) => Err(format!("\"{name}\" is no text: {value}")),
        };
        let file = text("file")?.filter(|file| !file.is_empty()).ok_or("it has no \"file\"")?;
        let offset = number("pos")?.ok_or("it has no \"pos\"")?;
        // the last record of a snapshot says that it is complete
        let is_complete = field("snapshot_completed") == Some(&Value::Bool(true));
        Ok(Self {
            gtids: text("gtids")?.map(|set| set.replace(['\n', ' '], "")).filter(|set| !set.is_empty()),
            file,
            offset,
            events: number("event")?.unwrap_or_default(),
            rows: number("row")?.unwrap_or_default(),
            time_s: field("ts_sec").and_then(Value::as_u64),
            in_snapshot: super::connect_offset::in_snapshot(json)? && !is_complete,
        })
    }

    /// The transactions before the place as MySQL has them.
    ///
    /// # Errors
    /// They are none of MySQL's.
    pub fn mysql_gtids(&self) -> Result<Option<MysqlGtids>, ParseGtidError> {
        self.gtids.as_deref().map(str::parse).transpose()
    }

    /// The last transaction of each domain as MariaDB has them. Debezium names one for each server that ever wrote to the
    /// domain; the last of them is the one with the highest number.
    ///
    /// # Errors
    /// They are none of MariaDB's.
    pub fn mariadb_gtids(&self) -> Result<Option<MariadbGtids>, ParseGtidError> {
        let Some(text) = &self.gtids else { return Ok(None) };
        let mut last = MariadbGtids::default();
        for part in text.split(',') {
            for gtid in part.parse::<MariadbGtids>()?.last() {
                if last.of(gtid.domain).is_none_or(|known| known.sequence < gtid.sequence) {
                    last.set(*gtid);
                }
            }
        }
        Ok(Some(last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<BinlogOffset, String> {
        BinlogOffset::parse(&serde_json::from_str(text).unwrap())
    }

    /// As version 3.6.1 writes it.
    #[test]
    fn offsets_are_read() {
        let offset = parse(
            "{\"transaction_id\":null,\"ts_sec\":1767323045,\"file\":\"bin.000003\",\"pos\":4711,\"row\":2,\"server_id\":1,\
             \"event\":3,\"gtids\":\"3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5,\\n4e11fa47-71ca-11e1-9e33-c80aa9429562:1\"}",
        )
        .unwrap();
        assert_eq!((offset.file.as_str(), offset.offset, offset.events, offset.rows), ("bin.000003", 4711, 3, 2));
        assert_eq!((offset.time_s, offset.in_snapshot), (Some(1_767_323_045), false));
        assert_eq!(
            offset.mysql_gtids().unwrap().unwrap().to_string(),
            "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5,4e11fa47-71ca-11e1-9e33-c80aa9429562:1"
        );
        let bare = parse("{\"file\":\"a\",\"pos\":4,\"gtids\":null}").unwrap();
        assert_eq!((bare.gtids, bare.events, bare.time_s), (None, 0, None));
    }

    #[test]
    fn a_snapshot_counts_once_it_is_complete() {
        for (fields, expected) in [
            ("\"snapshot\":true", true),
            ("\"snapshot\":\"INITIAL\",\"snapshot_completed\":false", true),
            ("\"snapshot\":\"INITIAL\",\"snapshot_completed\":true", false),
            ("\"snapshot\":false", false),
        ] {
            let offset = parse(&format!("{{\"file\":\"a\",\"pos\":4,{fields}}}")).unwrap();
            assert_eq!(offset.in_snapshot, expected, "{fields}");
        }
    }

    #[test]
    fn of_mariadbs_servers_the_last_one_counts() {
        let set = |text: &str| {
            let offset = BinlogOffset { gtids: Some(text.to_owned()), ..BinlogOffset::default() };
            offset.mariadb_gtids().map(|set| set.unwrap().to_string())
        };
        assert_eq!(set("0-1-17"), Ok("0-1-17".to_owned()));
        assert_eq!(set("0-2-18,0-1-17,7-1-3"), Ok("0-2-18,7-1-3".to_owned()));
        assert!(set("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5").is_err());
    }

    #[test]
    fn what_is_no_offset_is_said() {
        for (text, problem) in [
            ("[]", "it is no JSON object"),
            ("{}", "it has no \"file\""),
            ("{\"file\":\"a\"}", "it has no \"pos\""),
            ("{\"file\":7,\"pos\":4}", "\"file\" is no text: 7"),
            ("{\"file\":\"a\",\"pos\":-4}", "\"pos\" is no number: -4"),
            ("{\"file\":\"a\",\"pos\":4,\"snapshot\":7}", "\"snapshot\" is not understood: 7"),
            ("{\"lsn\":1,\"lsn_commit\":1}", "it has no \"file\""),
        ] {
            assert_eq!(parse(text).unwrap_err(), problem, "{text}");
        }
    }
}
