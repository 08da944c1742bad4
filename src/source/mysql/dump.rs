//! The beginning of a dump: what is set for the session, the relay's registration as a replica, and the command itself
//! (MySQL source documentation, "COM_BINLOG_DUMP_GTID"; MariaDB, "COM_BINLOG_DUMP" and "Replication Slave Registration").

use tracing::debug;

use super::client::{Client, run};
use super::error::{ClientError, ServerError, from_client};
use super::server::literal;
use super::settings::{Flavour, MysqlSettings};
use crate::gtid::{Gtids, MysqlGtids};
use crate::position::{BinlogPosition, Position};
use crate::source::{SourceError, Terminal};
use crate::state::{Gap, Reason};

/// How often a quiet server says that it lives, in nanoseconds.
const HEARTBEAT_NS: u64 = 2_000_000_000;

/// How long the server waits for us to take what it has written, in seconds: as long as a broker may be away.
const WRITE_TIMEOUT: u32 = 86_400;

const COM_BINLOG_DUMP: u8 = 0x12;
const COM_REGISTER_SLAVE: u8 = 0x15;
const COM_BINLOG_DUMP_GTID: u8 = 0x1E;

/// The position of the first event of a file.
const FIRST_EVENT: u32 = 4;

/// Asks the server for everything behind `begin`. Events follow on the connection.
///
/// # Errors
/// As the relay's dispositions say.
pub(super) async fn begin(
    client: &mut Client,
    settings: &MysqlSettings,
    begin: &BinlogPosition,
) -> Result<(), SourceError> {
    let connect = &settings.connect;
    let action = "prepare for reading the binary log";
    let mut sets = vec![
        "@master_binlog_checksum = @@global.binlog_checksum".to_owned(),
        "@source_binlog_checksum = @@global.binlog_checksum".to_owned(),
        format!("@master_heartbeat_period = {HEARTBEAT_NS}"),
        format!("@source_heartbeat_period = {HEARTBEAT_NS}"),
        format!("SESSION net_write_timeout = {WRITE_TIMEOUT}"),
    ];
    if connect.flavour == Flavour::Mariadb {
        // 4: we know GTID events
        sets.push("@mariadb_slave_capability = 4".to_owned());
        sets.push(format!("@slave_connect_state = {}", literal(&begin.gtids.to_string())));
        sets.push("@slave_gtid_strict_mode = 1, @slave_gtid_ignore_duplicates = 0".to_owned());
    }
    run(client, connect, action, &format!("SET {}", sets.join(", "))).await?;
    let failed = |error: ClientError| from_client("register as a replica", connect, error);
    client.command(&registration(settings)).await.map_err(failed)?;
    client.ok().await.map_err(failed)?;
    let command = match &begin.gtids {
        Gtids::Mysql(set) if connect.flavour == Flavour::Mysql => dump_gtid(settings.server_id, set),
        _ => dump(settings.server_id),
    };
    debug!(server_id = settings.server_id, position = %begin, "asking for the binary log");
    client.command(&command).await.map_err(|error| from_client("ask for the binary log", connect, error))
}

/// A text with its length in one byte, cut to what the server keeps.
fn put_short(into: &mut Vec<u8>, text: &str, limit: usize) {
    let text = text.as_bytes().get(..text.len().min(limit)).unwrap_or_default();
    into.push(u8::try_from(text.len()).unwrap_or_default());
    into.extend_from_slice(text);
}

/// Shows the relay in `SHOW REPLICAS`.
fn registration(settings: &MysqlSettings) -> Vec<u8> {
    let mut body = vec![COM_REGISTER_SLAVE];
    body.extend_from_slice(&settings.server_id.to_le_bytes());
    put_short(&mut body, &format!("outboxd {}", settings.instance), 60);
    // user and password, which the server need not know; port, rank, and the source's number, which it fills in
    body.extend_from_slice(&[0; 2 + 2 + 4 + 4]);
    body
}

/// MariaDB takes the position from the session.
fn dump(server_id: u32) -> Vec<u8> {
    let mut body = vec![COM_BINLOG_DUMP];
    body.extend_from_slice(&FIRST_EVENT.to_le_bytes());
    body.extend_from_slice(&[0; 2]);
    body.extend_from_slice(&server_id.to_le_bytes());
    body
}

fn dump_gtid(server_id: u32, done: &MysqlGtids) -> Vec<u8> {
    /// The set is in the command, not the file's name.
    const THROUGH_GTID: u16 = 4;
    let set = encode(done);
    let mut body = vec![COM_BINLOG_DUMP_GTID];
    body.extend_from_slice(&THROUGH_GTID.to_le_bytes());
    body.extend_from_slice(&server_id.to_le_bytes());
    body.extend_from_slice(&[0; 4]);
    body.extend_from_slice(&u64::from(FIRST_EVENT).to_le_bytes());
    body.extend_from_slice(&u32::try_from(set.len()).unwrap_or(u32::MAX).to_le_bytes());
    body.extend_from_slice(&set);
    body
}

/// A set as the server reads it (MySQL source, `sql/rpl_gtid_set.cc`, `Gtid_set::encode`). With tags it has another form,
/// which servers without tags do not know, so it is used only where there is one.
fn encode(set: &MysqlGtids) -> Vec<u8> {
    const TAGGED: u64 = 1 << 56;
    let has_tags = set.sources().iter().any(|(source, _)| !source.tag.is_empty());
    let count = u64::try_from(set.sources().len()).unwrap_or_default();
    let head = if has_tags { TAGGED | count << 8 } else { count };
    let mut out = head.to_le_bytes().to_vec();
    for (source, intervals) in set.sources() {
        out.extend_from_slice(&source.uuid);
        if has_tags {
            // lengths below 128 are one byte, shifted by one
            out.push(u8::try_from(source.tag.len()).unwrap_or_default() << 1);
            out.extend_from_slice(source.tag.as_bytes());
        }
        out.extend_from_slice(&u64::try_from(intervals.len()).unwrap_or_default().to_le_bytes());
        for interval in intervals {
            out.extend_from_slice(&interval.first.to_le_bytes());
            out.extend_from_slice(&(interval.last + 1).to_le_bytes());
        }
    }
    out
}

/// What an error in the place of an event means.
pub(super) fn failure(settings: &MysqlSettings, position: Position, error: ServerError) -> SourceError {
    const FATAL_READING: u16 = 1236;
    let text = error.message.to_ascii_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| text.contains(word));
    if says(&["same server_uuid/server_id", "same server_id"]) {
        let id = settings.server_id;
        return SourceError::Connection {
            reason: Reason::ServerIdInUse,
            message: format!(
                "another replica uses server_id {id}: give each its own, here by option \"source.{}.server-id\"",
                settings.connect.flavour.option()
            ),
            source: Some(error.into()),
        };
    }
    if error.code != FATAL_READING {
        return from_client("read the binary log", &settings.connect, ClientError::Server(error));
    }
    let gone = [
        "purged required binary logs",
        "could not find first log file name",
        "could not find gtid state requested",
        "has purged",
        "too old",
    ];
    let unknown = ["not in the master's binlog", "more gtids than", "diverged", "alternate future"];
    let reason = if says(&gone) {
        Reason::LogPurged
    } else if says(&unknown) {
        Reason::ServerBehind
    } else {
        Reason::LogNotUnderstood
    };
    let what = match reason {
        Reason::LogPurged => "no longer has the part of its binary log that is needed",
        Reason::ServerBehind => "does not know the transactions that were published",
        _ => "cannot read its binary log",
    };
    SourceError::Terminal(Box::new(Terminal {
        reason,
        message: format!("the server {} {what}: {error}", settings.connect.address),
        gap: Some(Gap { from: Some(position), to: None }),
        hint: settings.leave_hint(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_encoded_with_ends_that_are_not_included() {
        let uuid = "3e11fa47-71ca-11e1-9e33-c80aa9429562";
        let plain = encode(&format!("{uuid}:1-5:7").parse().unwrap());
        assert_eq!((plain.len(), &plain[..8]), (8 + 16 + 8 + 32, [1, 0, 0, 0, 0, 0, 0, 0].as_slice()));
        assert_eq!(plain[24..40], [2, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(plain[40..48], [6, 0, 0, 0, 0, 0, 0, 0]);
        let tagged = encode(&format!("{uuid}:1-5,{uuid}:ab:7").parse().unwrap());
        assert_eq!(tagged[..8], [0, 2, 0, 0, 0, 0, 0, 1]);
        assert_eq!((tagged[24], tagged.len()), (0, 8 + (16 + 1 + 8 + 16) + (16 + 3 + 8 + 16)));
    }
}
