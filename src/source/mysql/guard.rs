//! Whether a server can bring everything behind what was published.
//!
//! Transactions have names that no two servers share, so another server that has all that was published, and still has
//! what follows, is as good as the one before: a failover that lost nothing goes on by itself.

use std::sync::Arc;

use tracing::info;

use super::dump::Way;
use super::server::Server;
use super::settings::MysqlSettings;
use crate::gtid::Gtids;
use crate::position::{BinlogPosition, Position};
use crate::sink::positions::{FORMAT, PositionRecord, SourceIdentity};
use crate::source::{SourceError, Terminal};
use crate::state::{Gap, Reason};

/// The offset of a file's first event.
const FIRST_EVENT: u64 = 4;

/// Where reading begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Begin {
    pub place: BinlogPosition,
    pub way: Way,
}

impl Begin {
    /// Behind all that the server has.
    pub(super) fn at_end(server: &Server) -> Self {
        let way = if server.has_gtids() { Way::Gtids } else { Way::Place };
        Self { place: server.end.clone(), way }
    }
}

/// Compares the server with the record; gives the position to go on from.
///
/// # Errors
/// The state that says what is different, with the range in which events may be missing.
pub(super) fn verify(server: &Server, settings: &MysqlSettings, record: &PositionRecord) -> Result<Begin, SourceError> {
    judge(server, record).map_err(|(reason, message)| {
        let to = Position::Binlog(Arc::new(server.end.clone()));
        SourceError::Terminal(Box::new(Terminal {
            reason,
            message,
            gap: Some(Gap { from: Some(record.position.clone()), to: Some(to) }),
            hint: settings.leave_hint(),
        }))
    })
}

/// What was published and the server does not yet count as committed: it sends transactions a moment before, and with
/// semi-synchronous replication long before.
pub(super) fn pending(server: &Server, record: &PositionRecord) -> Option<String> {
    let published = record.position.binlog()?;
    // they are in the log: one that ends before them was reset
    let is_there = server.identity() == record.source && server.has_gtids() && !server.end.stands_before(published);
    match (&published.gtids, &server.end.gtids) {
        (Gtids::Mysql(published), Gtids::Mysql(present)) if is_there => {
            Some(published.without(present)).filter(|set| !set.is_empty()).map(|set| set.to_string())
        }
        _ => None,
    }
}

fn judge(server: &Server, record: &PositionRecord) -> Result<Begin, (Reason, String)> {
    let identity = server.identity();
    let end = |reason, message| Err((reason, message));
    let other = || {
        format!(
            "the server is {}, and the instance published from {} before",
            identity.server(),
            record.source.server()
        )
    };
    let Some(published) = record.position.binlog() else { return end(Reason::OtherServer, other()) };
    let is_same = identity == record.source;
    let is_same_kind = std::mem::discriminant(&identity) == std::mem::discriminant(&record.source);
    let is_empty = published.gtids.is_empty();
    if !is_same_kind {
        return end(Reason::OtherServer, other());
    }
    if !is_same && (is_empty || !server.has_gtids()) {
        let words = "without GTIDs the place in its log means nothing to another server";
        return end(Reason::OtherServer, format!("{}: {words}", other()));
    }
    let is_mysql = matches!(identity, SourceIdentity::Mysql { .. });
    if is_mysql && (is_empty || !server.has_gtids()) {
        return by_place(server, published).map(|place| Begin { place, way: Way::Place });
    }
    let missing = match (&published.gtids, &server.end.gtids) {
        (Gtids::Mysql(published), Gtids::Mysql(present)) => {
            Some(published.without(present)).filter(|set| !set.is_empty()).map(|set| set.to_string())
        }
        (Gtids::Mariadb(published), Gtids::Mariadb(present)) => {
            let is_behind = |gtid: &&crate::gtid::MariadbGtid| {
                present.of(gtid.domain).is_none_or(|last| last.sequence < gtid.sequence)
            };
            published.last().iter().find(is_behind).map(ToString::to_string)
        }
        _ if is_empty => None,
        _ => return end(Reason::OtherServer, other()),
    };
    if let Some(missing) = missing {
        let (reason, words) = if is_same {
            (Reason::ServerBehind, "its binary log was reset, or it was restored from an older state".to_owned())
        } else {
            (Reason::OtherServer, format!("it is another server: {}", other()))
        };
        return end(reason, format!("the server does not have transactions {missing}, which were published: {words}"));
    }
    if is_same && server.end.stands_before(published) {
        return end(Reason::ServerBehind, reset(published, &server.end));
    }
    // a crash that cost the log's end: what was committed since has the GTIDs of what was lost
    let file = server.logs().iter().find(|(file, _)| is_same && *file == published.file);
    if let Some((file, length)) = file
        && *length < published.offset
    {
        return end(Reason::ServerBehind, shortened(file, *length, published.offset));
    }
    if let (Gtids::Mysql(done), Some(purged)) = (&published.gtids, server.purged()) {
        let lost = purged.without(done);
        if !lost.is_empty() {
            return end(
                Reason::LogPurged,
                format!("the server no longer has transactions {lost} in its binary log, and they were not read"),
            );
        }
    }
    if !is_same {
        info!(server = identity.server(), "the server is another one than before, and has all that was published");
    }
    let gtids = if is_empty { server.no_gtids() } else { published.gtids.clone() };
    Ok(Begin { place: BinlogPosition::new(gtids, published.file.clone(), published.offset), way: Way::Gtids })
}

/// Finds a place in the server's own files. That they were made anew, and have grown beyond it since, is noticed only if
/// no event begins there.
fn by_place(server: &Server, published: &BinlogPosition) -> Result<BinlogPosition, (Reason, String)> {
    if server.end.stands_before(published) {
        return Err((Reason::ServerBehind, reset(published, &server.end)));
    }
    let BinlogPosition { file, offset, .. } = published;
    let begin = |file: &str, offset| BinlogPosition::new(server.no_gtids(), file.to_owned(), offset);
    let mut later = server.logs().iter().skip_while(|(present, _)| present != file);
    let place = match (later.next(), later.next()) {
        (None, _) => {
            let oldest = server.logs().first().map_or("none", |(oldest, _)| oldest.as_str());
            let message = format!("the server no longer has file {file} of its binary log; the oldest is {oldest}");
            return Err((Reason::LogPurged, message));
        }
        (Some((_, length)), _) if length < offset => {
            return Err((Reason::ServerBehind, shortened(file, *length, *offset)));
        }
        (Some((_, length)), Some((next, _))) if length == offset => begin(next, FIRST_EVENT),
        _ => begin(file, *offset),
    };
    if u32::try_from(place.offset).is_err() {
        let message = format!("reading cannot begin at {file}:{offset}: a server is told 32 bits of an offset");
        return Err((Reason::LogNotUnderstood, message));
    }
    Ok(place)
}

fn shortened(file: &str, length: u64, read: u64) -> String {
    format!("file {file} of the server's binary log has {length} bytes, and {read} were read: a crash cost its end")
}

fn reset(published: &BinlogPosition, end: &BinlogPosition) -> String {
    format!(
        "the server's log ends at {}:{}, but what is before {}:{} was published: its binary log was reset",
        end.file, end.offset, published.file, published.offset
    )
}

/// Where a stream begins that has published nothing yet from this position on. Where there are GTIDs it may come from another
/// server, and the place in that one's files means nothing.
///
/// # Errors
/// The server does not have what is behind it.
pub(super) fn begin(
    server: &Server,
    settings: &MysqlSettings,
    begin: &Arc<BinlogPosition>,
) -> Result<Begin, SourceError> {
    let position = Position::Binlog(Arc::new(in_own_files(server, begin)));
    let record = PositionRecord {
        version: FORMAT,
        instance: settings.instance.clone(),
        generation: 0,
        source: server.identity(),
        position: position.clone(),
        verified: position,
    };
    verify(server, settings, &record)
}

/// The same transactions at a place that the server's files have: at their beginning, if they do not have this one.
fn in_own_files(server: &Server, begin: &BinlogPosition) -> BinlogPosition {
    let has = |(file, length): &(String, u64)| *file == begin.file && *length >= begin.offset;
    match server.logs().first() {
        Some((oldest, _)) if !begin.gtids.is_empty() && server.has_gtids() && !server.logs().iter().any(has) => {
            BinlogPosition::new(begin.gtids.clone(), oldest.clone(), FIRST_EVENT)
        }
        _ => begin.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::secret::Secret;
    use crate::config::{Config, MysqlConfig};
    use crate::source::mysql::settings::Flavour;

    const A: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";
    const B: &str = "4e11fa47-71ca-11e1-9e33-c80aa9429562";

    fn settings(flavour: Flavour) -> MysqlSettings {
        let mysql = MysqlConfig { url: Secret::new("mysql://u@h/d"), ..MysqlConfig::default() };
        MysqlSettings::new(&Config::default(), &mysql, flavour).unwrap()
    }

    fn record(source: SourceIdentity, position: &str) -> PositionRecord {
        let position: Position = position.replace('A', A).replace('B', B).parse().unwrap();
        let (instance, verified) = ("shop".to_owned(), position.clone());
        PositionRecord { version: FORMAT, instance, generation: 1, source, position, verified }
    }

    /// The verdict on a server that ends at `end` and has lost `purged`.
    fn judge(server: &str, end: &str, purged: &str, record: &PositionRecord) -> Result<String, Reason> {
        let replaced = |text: &str| text.replace('A', A).replace('B', B);
        let variables = [("server_uuid", server), ("gtid_purged", &replaced(purged)), ("gtid_mode", "ON")];
        let end: BinlogPosition = replaced(end).parse().unwrap();
        let logs = [("bin.000001", 999), (end.file.as_str(), end.offset)];
        let server = Server::sample(Flavour::Mysql, &variables, end.clone()).with_logs(&logs);
        verify(&server, &settings(Flavour::Mysql), record)
            .map(|begin| begin.place.to_string())
            .map_err(|error| error.reason())
    }

    #[test]
    fn a_server_that_has_everything_goes_on_whoever_it_is() {
        let record = record(SourceIdentity::Mysql { server: "one".to_owned() }, "A:1-10,B:1-5@bin.000003:100");
        let position = record.position.to_string();
        for (server, end, purged) in [
            ("one", "A:1-10,B:1-5@bin.000003:100", ""),
            ("one", "A:1-12,B:1-5@bin.000004:4", "A:1-10"),
            ("two", "A:1-20,B:1-5@other.000001:4", "A:1-3"),
        ] {
            assert_eq!(judge(server, end, purged, &record), Ok(position.clone()), "{server} {end} {purged}");
        }
    }

    #[test]
    fn what_is_missing_has_a_name() {
        let record = record(SourceIdentity::Mysql { server: "one".to_owned() }, "A:1-10@bin.000003:100");
        for (server, end, purged, reason) in [
            ("one", "A:1-9@bin.000003:90", "", Reason::ServerBehind),
            ("one", "@bin.000001:157", "", Reason::ServerBehind),
            // reset, and as many transactions since
            ("one", "A:1-11@bin.000001:900", "", Reason::ServerBehind),
            ("two", "A:1-9,B:1-3@bin.000009:4", "", Reason::OtherServer),
            ("one", "A:1-30@bin.000009:4", "A:1-11", Reason::LogPurged),
            ("two", "A:1-30@bin.000009:4", "A:1-12", Reason::LogPurged),
        ] {
            assert_eq!(judge(server, end, purged, &record), Err(reason), "{server} {end} {purged}");
        }
    }

    #[test]
    fn a_log_that_lost_its_end_is_noticed() {
        let record = record(SourceIdentity::Mysql { server: "one".to_owned() }, "A:1-10@bin.000003:100");
        let judge = |server: &str, length: u64| {
            let variables = [("server_uuid", server), ("gtid_mode", "ON")];
            let end = "A:1-30@bin.000004:900".replace('A', A).parse().unwrap();
            let server = Server::sample(Flavour::Mysql, &variables, end)
                .with_logs(&[("bin.000003", length), ("bin.000004", 900)]);
            verify(&server, &settings(Flavour::Mysql), &record).map(|_| ()).map_err(|error| error.reason())
        };
        assert_eq!(judge("one", 100), Ok(()));
        assert_eq!(judge("one", 99), Err(Reason::ServerBehind));
        // another server's files are others
        assert_eq!(judge("two", 99), Ok(()));
    }

    #[test]
    fn transactions_are_found_in_the_files_of_another_server() {
        let begin = |text: &str| {
            let place: BinlogPosition = text.replace('A', A).parse().unwrap();
            let variables = [("server_uuid", "two"), ("gtid_mode", "ON")];
            let end = "A:1-30@other.000002:900".replace('A', A).parse().unwrap();
            let server = Server::sample(Flavour::Mysql, &variables, end)
                .with_logs(&[("other.000001", 500), ("other.000002", 900)]);
            super::begin(&server, &settings(Flavour::Mysql), &Arc::new(place))
                .map(|begin| begin.place.to_string().replace(A, "A"))
                .map_err(|error| error.reason())
        };
        assert_eq!(begin("A:1-9@bin.000007:100"), Ok("A:1-9@other.000001:4".to_owned()));
        assert_eq!(begin("A:1-9@other.000001:501"), Ok("A:1-9@other.000001:4".to_owned()));
        assert_eq!(begin("A:1-9@other.000002:100"), Ok("A:1-9@other.000002:100".to_owned()));
        assert_eq!(begin("A:1-31@other.000002:100"), Err(Reason::ServerBehind));
    }

    #[test]
    fn without_gtids_another_server_cannot_be_told() {
        let empty = record(SourceIdentity::Mysql { server: "one".to_owned() }, "@bin.000001:4");
        assert_eq!(judge("two", "A:1-5@bin.000001:900", "", &empty), Err(Reason::OtherServer));
        assert!(judge("one", "A:1-5@bin.000001:900", "", &empty).is_ok());
        let mariadb = record(SourceIdentity::Mariadb { server: 1 }, "0-1-5@bin.000001:4");
        assert_eq!(judge("one", "A:1-5@bin.000001:900", "", &mariadb), Err(Reason::OtherServer));
    }

    #[test]
    fn a_place_in_the_files_is_enough_on_the_same_server() {
        let judge = |server: &str, end: &str, logs: &[(&str, u64)], place: &str| {
            let record = record(SourceIdentity::Mysql { server: "one".to_owned() }, place);
            let variables = [("server_uuid", server), ("gtid_mode", "OFF")];
            let server = Server::sample(Flavour::Mysql, &variables, end.parse().unwrap()).with_logs(logs);
            verify(&server, &settings(Flavour::Mysql), &record)
                .map(|begin| (begin.place.to_string(), begin.way))
                .map_err(|error| error.reason())
        };
        let logs = [("bin.000003", 900), ("bin.000004", 5_000_000_000), ("bin.000005", 700)];
        let end = "@bin.000005:700";
        let found = |place: &str| Ok((place.to_owned(), Way::Place));
        assert_eq!(judge("one", end, &logs, "@bin.000003:157"), found("@bin.000003:157"));
        // GTIDs were switched off since
        let had_gtids = format!("{A}:1-5@bin.000003:157");
        assert_eq!(judge("one", end, &logs, &had_gtids), found("@bin.000003:157"));
        assert_eq!(judge("one", end, &logs, "@bin.000003:900"), found("@bin.000004:4"));
        assert_eq!(judge("one", end, &logs, "@bin.000004:5000000000"), found("@bin.000005:4"));
        assert_eq!(judge("one", end, &logs, "@bin.000005:700"), found("@bin.000005:700"));
        assert_eq!(judge("one", end, &logs, "@bin.000004:4999999999"), Err(Reason::LogNotUnderstood));
        assert_eq!(judge("one", end, &logs, "@bin.000003:901"), Err(Reason::ServerBehind));
        assert_eq!(judge("one", end, &logs, "@bin.000002:157"), Err(Reason::LogPurged));
        assert_eq!(judge("one", end, &logs, "@bin.000005:701"), Err(Reason::ServerBehind));
        assert_eq!(judge("one", end, &logs, "@bin.000006:4"), Err(Reason::ServerBehind));
        assert_eq!(judge("two", end, &logs, "@bin.000003:157"), Err(Reason::OtherServer));
    }

    #[test]
    fn each_domain_of_mariadb_counts() {
        let record = record(SourceIdentity::Mariadb { server: 1 }, "0-1-5,7-1-3@bin.000001:4");
        let judge = |server: &str, end: &str| {
            let server = Server::sample(Flavour::Mariadb, &[("server_id", server)], end.parse().unwrap());
            verify(&server, &settings(Flavour::Mariadb), &record).map(|_| ()).map_err(|error| error.reason())
        };
        assert_eq!(judge("1", "0-1-9,7-2-3@bin.000001:900"), Ok(()));
        assert_eq!(judge("2", "0-1-9,7-2-3@bin.000001:900"), Ok(()));
        assert_eq!(judge("1", "0-1-9@bin.000001:900"), Err(Reason::ServerBehind));
        assert_eq!(judge("1", "0-1-4,7-1-3@bin.000001:900"), Err(Reason::ServerBehind));
    }
}
