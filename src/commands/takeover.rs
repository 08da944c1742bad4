//! `outboxd takeover`: shows where a Debezium connector stopped, and lets the relay begin behind what it has published.

use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::Context;
use humantime_serde::re::humantime::format_rfc3339_seconds;
use serde_json::Value;

use crate::commands::connect_offset::{self, ConnectOffset};
use crate::commands::resume::Resume;
use crate::commands::{
    ConfiguredSource, Verdict, configured_source, obstacle, refusal, refuse_while_active, sink_error, source_error,
    takeover_binlog,
};
use crate::config::{Config, Connector};
use crate::finding::bytes;
use crate::position::Lsn;
use crate::sink::kafka::KafkaSink;
use crate::sink::positions::PositionRecord;
use crate::sink::store::PositionStore;
use crate::source::SourceError;
use crate::source::postgres::survey::Survey;
use crate::state::Reason;

/// What is shown as a date has four digits for the year.
pub(super) const YEAR_10000_US: u64 = 253_402_300_800_000_000;

/// Where the connector's offset is read.
#[derive(Clone, Debug, Default)]
pub struct OffsetsFrom {
    /// A file with the answer of Connect's REST interface.
    pub file: Option<PathBuf>,
    /// Connect's offsets topic; else the one that the worker's file names.
    pub topic: Option<String>,
}

/// Shows what is there, asks, moves the slot to where the connector had published, and stores that position.
///
/// # Errors
/// What stands in the way; nothing was changed then, unless the message says so.
pub async fn takeover(config: Config, from: OffsetsFrom, yes: bool) -> anyhow::Result<Verdict> {
    let source = configured_source(&config)?;
    let Some(connector) = config.connector.clone() else {
        let hint = "give the connector's own file: --config connector.json";
        return Err(refusal("the configuration is not a Debezium connector's", hint));
    };
    let settings = match source {
        ConfiguredSource::Postgres(settings) => settings,
        ConfiguredSource::Mysql(settings) => {
            return takeover_binlog::takeover(&config, &settings, &connector, from, yes).await;
        }
    };
    let mut store = PositionStore::new(&config).map_err(sink_error)?;
    let survey = Survey::take(&settings).await.map_err(source_error)?;
    refuse_while_active(&config, &survey).await?;
    let record = store.peek(&config.name).await.map_err(sink_error)?;
    survey.usable().map_err(source_error)?;
    let (json, place) = read_offset(&store, &connector, from).await?;
    let offset = json.map(|json| ConnectOffset::parse(&json)).transpose().map_err(|problem| {
        refusal(format!("the offset in {place} is not understood: {problem}"), "is it Debezium's?")
    })?;

    let names = &settings.names;
    let run = names.command("run");
    println!(
        "connector \"{}\", database \"{}\" at {}",
        connector.name, settings.connect.database, settings.connect.address
    );
    println!(
        "  offset of the connector, {place}: {}",
        offset.as_ref().map_or_else(|| "there is none".to_owned(), show)
    );
    let Some(slot) = survey.slot() else {
        println!("  slot \"{}\": does not exist", names.slot);
        println!("there is nothing to take over: the relay would begin for the first time with {run}");
        return Ok(Verdict::NotReady);
    };
    let confirmed = slot.confirmed.unwrap_or_default();
    println!("  slot \"{}\": at {confirmed}", names.slot);
    println!("  log: ends at {}", survey.wal_end());
    let known = match &record {
        None => {
            println!("  stored position: nothing, the relay has not published yet");
            None
        }
        Some(record) => {
            println!("  stored position: everything before {} was published by the relay", record.position);
            if !moved_ahead(&survey, record).await? {
                println!("the connector's offset no longer counts: the relay goes on by itself with {run}");
                return Ok(Verdict::Done);
            }
            Some(record.position.clone())
        }
    };
    let committed = match (beyond(offset.as_ref(), confirmed, known.is_some()), &known) {
        (Ok(committed), _) => committed,
        (Err(why), None) => {
            println!("{why}: the relay goes on at the slot, at {confirmed}, with {run}");
            return Ok(Verdict::Done);
        }
        (Err(why), Some(published)) => {
            let message = format!(
                "the slot stands ahead of what the relay has published, and the connector's offset does not account for it: {why}"
            );
            let hint = format!(
                "find out which events of {published} to {confirmed} consumers lack, and go on with {}",
                names.resume_command("now")
            );
            return Err(obstacle(message, hint));
        }
    };
    if committed > survey.wal_end() {
        let message = format!("the offset {committed} is behind the end of the server's log, {}", survey.wal_end());
        let hint = "the offset belongs to another server, or the server was restored from an older state: find out which events \
                    consumers have, and go on without the offset";
        return Err(obstacle(message, hint));
    }
    match known {
        None => println!(
            "without this the relay would publish again what was committed in {} of log; with it, only transactions that end \
             behind {committed}",
            bytes(committed.bytes_since(confirmed))
        ),
        Some(published) => println!(
            "what was committed from {published} up to {committed} was published by the connector, if nobody made the slot again \
             in between; the relay goes on behind it"
        ),
    }
    println!("go on only if the database was neither failed over nor restored since the connector stopped");
    let mut task = Resume { config: &config, settings: &settings, survey, store, record };
    if !task.behind_connector(committed, yes).await? {
        return Ok(Verdict::NotReady);
    }
    println!("start the relay: {run}");
    Ok(Verdict::Done)
}

/// Whether somebody else has moved the slot since the relay published; says so.
async fn moved_ahead(survey: &Survey, record: &PositionRecord) -> anyhow::Result<bool> {
    match survey.judge(Some(record)).await {
        Ok(()) => Ok(false),
        Err(SourceError::Terminal(terminal)) if terminal.reason == Reason::SlotMovedAhead => {
            println!("  state: {} ({})", terminal.message, terminal.reason);
            Ok(true)
        }
        Err(error) => Err(source_error(error)),
    }
}

/// The position up to which everything was published, ahead of the slot or, where that counts too, at the slot; else why
/// there is none.
fn beyond(offset: Option<&ConnectOffset>, confirmed: Lsn, at_slot_too: bool) -> Result<Lsn, &'static str> {
    let offset = offset.ok_or("there is no offset to go by")?;
    if offset.in_snapshot {
        return Err("the connector stopped while it was reading the table, so its offset says nothing about the log");
    }
    match offset.committed {
        None => Err("the offset names no transaction that was published whole"),
        Some(committed) if committed == confirmed && at_slot_too => Ok(committed),
        Some(committed) if committed <= confirmed => Err("the slot stands where the offset is, or ahead of it"),
        Some(committed) => Ok(committed),
    }
}

fn show(offset: &ConnectOffset) -> String {
    let lsn = |lsn: Option<Lsn>| lsn.map_or_else(|| "nowhere".to_owned(), |lsn| lsn.to_string());
    let us = offset.time_us.and_then(|us| u64::try_from(us).ok()).filter(|us| *us < YEAR_10000_US);
    let time = us.and_then(|us| UNIX_EPOCH.checked_add(Duration::from_micros(us)));
    let time = time.map_or_else(String::new, |time| format!(", committed {}", format_rfc3339_seconds(time)));
    let snapshot = if offset.in_snapshot { ", while it read the table" } else { "" };
    format!(
        "published whole up to {} (lsn_commit), last row at {} (lsn){time}{snapshot}",
        lsn(offset.committed),
        lsn(offset.row)
    )
}

/// The connector's offset, and where it was looked for.
pub(super) async fn read_offset(
    store: &PositionStore,
    connector: &Connector,
    from: OffsetsFrom,
) -> anyhow::Result<(Option<Value>, String)> {
    let Connector { name, prefix, offsets_topic } = connector.clone();
    if let Some(path) = from.file {
        let text = std::fs::read_to_string(&path).with_context(|| format!("read \"{}\"", path.display()))?;
        let offset = connect_offset::from_answer(&text, &prefix).map_err(|problem| {
            let hint = format!("save the answer of Connect: curl http://CONNECT:8083/connectors/{name}/offsets > FILE");
            refusal(format!("file \"{}\" is no answer about offsets: {problem}", path.display()), hint)
        })?;
        return Ok((offset, format!("file \"{}\"", path.display())));
    }
    let Some(topic) = from.topic.or(offsets_topic) else {
        return Ok((None, "not looked for (give --worker-config, --offsets-topic or --offsets)".to_owned()));
    };
    let place = format!("topic \"{topic}\"");
    let value = match store {
        PositionStore::Kafka(sink) => last_of(sink, &topic, name, prefix).await?,
        PositionStore::File(_) => {
            return Err(refusal("the offsets topic needs brokers", "give --offsets FILE, or leave out --stdout"));
        }
    };
    let Some(value) = value else { return Ok((None, place)) };
    let json = serde_json::from_slice(&value).map_err(|error| {
        refusal(format!("the offset in {place} is no JSON: {error}"), "is it the offsets topic of Kafka Connect?")
    })?;
    Ok((Some(json), place))
}

async fn last_of(sink: &KafkaSink, topic: &str, name: String, prefix: String) -> anyhow::Result<Option<Vec<u8>>> {
    let is_key = move |key: &[u8]| connect_offset::is_key(key, &name, &prefix);
    sink.last_of(topic, is_key).await.map_err(sink_error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offset(committed: Option<u64>, in_snapshot: bool) -> ConnectOffset {
        ConnectOffset {
            committed: committed.map(Lsn),
            row: Some(Lsn(1000)),
            time_us: Some(1_767_323_045_678_901),
            in_snapshot,
        }
    }

    /// Nothing is left out but what is known to be published: never because of the position of a row.
    #[test]
    fn only_whole_transactions_are_left_out() {
        let at_slot = Some(offset(Some(100), false));
        assert_eq!(super::beyond(at_slot.as_ref(), Lsn(100), true), Ok(Lsn(100)));
        assert!(super::beyond(at_slot.as_ref(), Lsn(101), true).is_err());
        let beyond = |offset: Option<&ConnectOffset>| beyond(offset, Lsn(100), false);
        assert_eq!(beyond(Some(&offset(Some(101), false))), Ok(Lsn(101)));
        for offset in [Some(offset(Some(100), false)), Some(offset(Some(7), false)), Some(offset(None, false)), None] {
            assert!(beyond(offset.as_ref()).is_err(), "{offset:?}");
        }
        assert!(beyond(Some(&offset(Some(500), true))).is_err());
    }

    #[test]
    fn an_offset_is_shown() {
        assert_eq!(
            show(&offset(Some(0x1_0000_0010), false)),
            "published whole up to 1/10 (lsn_commit), last row at 0/3E8 (lsn), committed 2026-01-02T03:04:05Z"
        );
        let far = ConnectOffset { time_us: Some(i64::MAX), ..offset(None, false) };
        assert_eq!(show(&far), "published whole up to nowhere (lsn_commit), last row at 0/3E8 (lsn)");
        assert!(show(&offset(None, true)).starts_with("published whole up to nowhere (lsn_commit)"));
        assert!(show(&offset(None, true)).ends_with("while it read the table"));
    }
}
