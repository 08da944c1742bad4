//! `outboxd takeover` on a MySQL or MariaDB source: there the position is the connector's alone, so it is what the relay
//! goes on from.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use humantime_serde::re::humantime::format_rfc3339_seconds;

use super::binlog_offset::BinlogOffset;
use super::takeover::{OffsetsFrom, YEAR_10000_US, read_offset};
use super::{Verdict, agreed, mysql, obstacle, refusal, sink_error, source_error};
use crate::config::{Config, Connector};
use crate::gtid::Gtids;
use crate::position::BinlogPosition;
use crate::sink::store::PositionStore;
use crate::source::mysql::settings::{Flavour, MysqlSettings};
use crate::source::mysql::survey::Survey;

/// Shows what is there, asks, and stores the connector's position as the relay's.
pub(super) async fn takeover(
    config: &Config,
    settings: &MysqlSettings,
    connector: &Connector,
    from: OffsetsFrom,
    yes: bool,
) -> anyhow::Result<Verdict> {
    let mut store = PositionStore::new(config).map_err(sink_error)?;
    let mut survey = Survey::take(settings).await.map_err(source_error)?;
    mysql::refuse_while_active(config, &survey).await?;
    let record = store.peek(&config.name).await.map_err(sink_error)?;
    let (json, place) = read_offset(&store, connector, from).await?;
    let offset =
        json.map(|json| BinlogOffset::parse(&json)).transpose().map_err(|problem| not_debeziums(&place, &problem))?;

    let run = settings.command("run");
    println!("connector \"{}\", {}", connector.name, survey.place());
    println!(
        "  offset of the connector, {place}: {}",
        offset.as_ref().map_or_else(|| "there is none".to_owned(), show)
    );
    println!("  server: {}; its log ends at {}", survey.identity().server(), survey.end());
    match &record {
        None => println!("  stored position: nothing, the relay has not published yet"),
        Some(record) => println!("  stored position: everything before {} was published by the relay", record.position),
    }
    let offset = match (offset, &record) {
        (Some(offset), _) if !offset.in_snapshot => offset,
        (found, record) => {
            let why = if found.is_some() {
                "the connector stopped while it was reading the tables, so its offset says nothing about the log"
            } else {
                "there is nothing to take over"
            };
            let then = if record.is_some() { "goes on by itself" } else { "would begin for the first time" };
            println!("{why}: the relay {then} with {run}");
            return Ok(if record.is_some() { Verdict::Done } else { Verdict::NotReady });
        }
    };
    let gtids = gtids(settings, &mut survey, &offset, &place).await?;
    let found = Arc::new(BinlogPosition::new(gtids, offset.file.clone(), offset.offset));
    if let Some(published) = record.as_ref().and_then(|record| record.position.binlog()) {
        if is_within(&found.gtids, &published.gtids) {
            println!("the connector's offset no longer counts: the relay goes on by itself with {run}");
            return Ok(Verdict::Done);
        }
        if !is_within(&published.gtids, &found.gtids) {
            let message = format!(
                "the connector's offset lacks transactions that the relay has published, up to {published}, and has others"
            );
            let hint = format!(
                "find out which of the two consumers go by, and go on at a position: {}",
                settings.command("resume --from GTIDS@FILE:OFFSET")
            );
            return Err(obstacle(message, hint));
        }
    }
    let position = survey.serves(&found).map_err(source_error)?;
    println!("publishing will begin at {position}: what was committed before it was published by the connector");
    if offset.events > 0 || offset.rows > 0 {
        println!("the transaction behind it, of which the connector may have published a part, is published whole");
    }
    if !agreed("Go on?", yes).await? {
        return Ok(Verdict::NotReady);
    }
    // one that was started meanwhile is in the way too
    mysql::refuse_while_active(config, &Survey::take(settings).await.map_err(source_error)?).await?;
    mysql::write_position(&mut store, config, &survey, record.as_ref(), position).await?;
    println!("start the relay: {run}");
    Ok(Verdict::Done)
}

fn not_debeziums(place: &str, problem: &str) -> anyhow::Error {
    refusal(
        format!("the offset in {place} is not understood: {problem}"),
        "is it that of Debezium's connector for this kind of server?",
    )
}

/// The transactions before the offset's place.
async fn gtids(
    settings: &MysqlSettings,
    survey: &mut Survey<'_>,
    offset: &BinlogOffset,
    place: &str,
) -> anyhow::Result<Gtids> {
    let wrong = |error: crate::gtid::ParseGtidError| not_debeziums(place, &error.to_string());
    let BinlogOffset { file, offset: at, .. } = offset;
    match settings.flavour() {
        Flavour::Mysql => match offset.mysql_gtids().map_err(wrong)? {
            Some(set) => Ok(Gtids::Mysql(set)),
            None => {
                let hint = "let the connector publish one more event with gtid_mode = ON, stop it, and run this again";
                Err(obstacle("the connector's offset has no GTIDs: it was stored before the server had any", hint))
            }
        },
        Flavour::Mariadb => match offset.mariadb_gtids().map_err(wrong)? {
            Some(set) => Ok(Gtids::Mariadb(set)),
            None => survey.gtids_at(file, *at).await.map_err(source_error)?.ok_or_else(|| {
                let hint = format!(
                    "find out which events consumers lack, and go on without the offset: {}",
                    settings.command("resume --from now")
                );
                obstacle(format!("the server's log has no place {file}:{at}, where the connector stopped"), hint)
            }),
        },
    }
}

/// Whether all transactions of the one are among those of the other.
fn is_within(these: &Gtids, those: &Gtids) -> bool {
    match (these, those) {
        (Gtids::Mysql(these), Gtids::Mysql(those)) => these.is_within(those),
        (Gtids::Mariadb(these), Gtids::Mariadb(those)) => {
            these.last().iter().all(|gtid| those.of(gtid.domain).is_some_and(|other| gtid.sequence <= other.sequence))
        }
        // an empty text is read as MySQL's
        (these, _) => these.is_empty(),
    }
}

fn show(offset: &BinlogOffset) -> String {
    let BinlogOffset { gtids, file, offset: at, events, rows, time_s, in_snapshot } = offset;
    let limit = YEAR_10000_US / 1_000_000;
    let time = time_s.filter(|time| *time < limit).and_then(|time| UNIX_EPOCH.checked_add(Duration::from_secs(time)));
    let time = time.map_or_else(String::new, |time| format!(", last event at {}", format_rfc3339_seconds(time)));
    let place = match gtids {
        Some(gtids) => format!("{gtids}@{file}:{at}"),
        None => format!("{file}:{at} without GTIDs"),
    };
    let part = if *events > 0 || *rows > 0 {
        format!(", and {events} events and {rows} rows of the transaction behind it")
    } else {
        String::new()
    };
    let snapshot = if *in_snapshot { ", while it read the tables" } else { "" };
    format!("published whole up to {place}{part}{time}{snapshot}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gtids(text: &str) -> Gtids {
        text.replace('A', "3e11fa47-71ca-11e1-9e33-c80aa9429562").parse().unwrap()
    }

    /// A position is given up only for one that has all of it.
    #[test]
    fn sets_are_compared_by_what_is_in_them() {
        for (these, those, expected) in [
            ("A:1-5", "A:1-5", true),
            ("A:1-5", "A:1-6", true),
            ("A:1-6", "A:1-5", false),
            ("", "A:1-5", true),
            ("A:1-5", "", false),
            ("0-1-5", "0-1-5", true),
            ("0-1-5", "0-2-9", true),
            ("0-1-5,7-1-1", "0-1-9", false),
            ("0-1-5", "A:1-5", false),
            ("", "0-1-5", true),
        ] {
            assert_eq!(is_within(&gtids(these), &gtids(those)), expected, "{these} in {those}");
        }
    }

    #[test]
    fn an_offset_is_shown() {
        let offset = BinlogOffset {
            gtids: Some("0-1-5".to_owned()),
            file: "bin.000003".to_owned(),
            offset: 4711,
            events: 2,
            rows: 1,
            time_s: Some(1_767_323_045),
            in_snapshot: false,
        };
        assert_eq!(
            show(&offset),
            "published whole up to 0-1-5@bin.000003:4711, and 2 events and 1 rows of the transaction behind it, last event at \
             2026-01-02T03:04:05Z"
        );
        let bare =
            BinlogOffset { gtids: None, events: 0, rows: 0, time_s: Some(u64::MAX), in_snapshot: true, ..offset };
        assert_eq!(show(&bare), "published whole up to bin.000003:4711 without GTIDs, while it read the tables");
    }
}
