//! Whether a server can bring everything behind what was published.
//!
//! Transactions have names that no two servers share, so another server that has all that was published, and still has
//! what follows, is as good as the one before: a failover that lost nothing goes on by itself.

use std::sync::Arc;

use tracing::info;

use super::server::Server;
use super::settings::MysqlSettings;
use crate::gtid::Gtids;
use crate::position::{BinlogPosition, Position};
use crate::sink::positions::{FORMAT, PositionRecord};
use crate::source::{SourceError, Terminal};
use crate::state::{Gap, Reason};

/// Compares the server with the record; gives the position to go on from.
///
/// # Errors
/// The state that says what is different, with the range in which events may be missing.
pub(super) fn verify(
    server: &Server,
    settings: &MysqlSettings,
    record: &PositionRecord,
) -> Result<BinlogPosition, SourceError> {
    let identity = server.identity();
    let end = |reason, message: String| {
        let to = Position::Binlog(Arc::new(server.end.clone()));
        Err(SourceError::Terminal(Box::new(Terminal {
            reason,
            message,
            gap: Some(Gap { from: Some(record.position.clone()), to: Some(to) }),
            hint: settings.leave_hint(),
        })))
    };
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
    if !is_same_kind || (!is_same && is_empty) {
        return end(Reason::OtherServer, other());
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
    if is_same && is_reset(published, &server.end) {
        return end(
            Reason::ServerBehind,
            format!(
                "the server's log ends at {}:{}, but what is before {}:{} was published: its binary log was reset",
                server.end.file, server.end.offset, published.file, published.offset
            ),
        );
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
    Ok(BinlogPosition::new(gtids, published.file.clone(), published.offset))
}

/// Where the stream goes on after what stood in the tables was read.
///
/// # Errors
/// The server has changed meanwhile: the read begins again.
pub(super) fn begin(
    server: &Server,
    settings: &MysqlSettings,
    begin: &Arc<BinlogPosition>,
) -> Result<BinlogPosition, SourceError> {
    let position = Position::Binlog(Arc::clone(begin));
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

/// Whether the log ends before what was published, although the server is the same.
fn is_reset(published: &BinlogPosition, end: &BinlogPosition) -> bool {
    let parts = |file: &str| {
        let (base, number) = file.rsplit_once('.')?;
        Some((base.to_owned(), number.parse::<u64>().ok()?))
    };
    let (Some((old_base, old)), Some((base, new))) = (parts(&published.file), parts(&end.file)) else { return false };
    old_base == base && (new, end.offset) < (old, published.offset)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::secret::Secret;
    use crate::config::{Config, MysqlConfig};
    use crate::sink::positions::SourceIdentity;
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
        let variables = [("server_uuid", server), ("gtid_purged", &replaced(purged))];
        let server = Server::sample(Flavour::Mysql, &variables, replaced(end).parse().unwrap());
        verify(&server, &settings(Flavour::Mysql), record)
            .map(|begin| begin.to_string())
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
    fn without_gtids_another_server_cannot_be_told() {
        let empty = record(SourceIdentity::Mysql { server: "one".to_owned() }, "@bin.000001:4");
        assert_eq!(judge("two", "A:1-5@bin.000001:900", "", &empty), Err(Reason::OtherServer));
        assert!(judge("one", "A:1-5@bin.000001:900", "", &empty).is_ok());
        let mariadb = record(SourceIdentity::Mariadb { server: 1 }, "0-1-5@bin.000001:4");
        assert_eq!(judge("one", "A:1-5@bin.000001:900", "", &mariadb), Err(Reason::OtherServer));
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
