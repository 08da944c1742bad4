//! Whether a server can bring everything behind what was published.
//!
//! Transactions have names that no two servers share, so another server that has all that was published, and still has
//! what follows, is as good as the one before: a failover that lost nothing goes on by itself.

use tracing::info;

use super::server::Server;
use super::settings::MysqlSettings;
use crate::gtid::Gtids;
use crate::position::{BinlogPosition, Position};
use crate::sink::positions::PositionRecord;
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
        let to = Position::Binlog(std::sync::Arc::new(server.end.clone()));
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

/// Whether the log ends before what was published, although the server is the same.
fn is_reset(published: &BinlogPosition, end: &BinlogPosition) -> bool {
    let parts = |file: &str| {
        let (base, number) = file.rsplit_once('.')?;
        Some((base.to_owned(), number.parse::<u64>().ok()?))
    };
    let (Some((old_base, old)), Some((base, new))) = (parts(&published.file), parts(&end.file)) else { return false };
    old_base == base && (new, end.offset) < (old, published.offset)
}
