//! The beginning of a dump: what is set for the session, the relay's registration as a replica, and the command itself
//! (MySQL source documentation, "COM_BINLOG_DUMP_GTID"; MariaDB, "COM_BINLOG_DUMP" and "Replication Slave Registration").

use tracing::debug;

use super::client::{Client, run};
use super::error::{ClientError, ServerError, from_client};
use super::gtid_set;
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

/// How a server is told where to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// By the transactions that were read.
    Gtids,
    /// By a place in its files.
    Place,
}

/// Asks the server for everything behind `begin`. Events follow on the connection.
///
/// # Errors
/// As the relay's dispositions say.
pub(super) async fn begin(
    client: &mut Client,
    settings: &MysqlSettings,
    begin: &BinlogPosition,
    way: Way,
) -> Result<(), SourceError> {
    let connect = &settings.connect;
    let action = "prepare for reading the binary log";
    let mut sets = vec![
        // that we can take them; whether there are any each file says itself
        "@master_binlog_checksum = 'CRC32', @source_binlog_checksum = 'CRC32'".to_owned(),
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
        _ if way == Way::Place => dump(settings.server_id, begin),
        Gtids::Mysql(set) if connect.flavour == Flavour::Mysql => dump_gtid(settings.server_id, set),
        // MariaDB takes the position from the session
        _ => dump(settings.server_id, &BinlogPosition::new(begin.gtids.clone(), String::new(), 0)),
    };
    debug!(server_id = settings.server_id, position = %begin, ?way, "asking for the binary log");
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

/// The command has 32 bits for the offset; the guard lets no larger one come here.
fn dump(server_id: u32, begin: &BinlogPosition) -> Vec<u8> {
    let offset = u32::try_from(begin.offset).unwrap_or(u32::MAX).max(FIRST_EVENT);
    let mut body = vec![COM_BINLOG_DUMP];
    body.extend_from_slice(&offset.to_le_bytes());
    body.extend_from_slice(&[0; 2]);
    body.extend_from_slice(&server_id.to_le_bytes());
    body.extend_from_slice(begin.file.as_bytes());
    body
}

fn dump_gtid(server_id: u32, done: &MysqlGtids) -> Vec<u8> {
    /// The set is in the command, not the file's name.
    const THROUGH_GTID: u16 = 4;
    let set = gtid_set::encode(done);
    let mut body = vec![COM_BINLOG_DUMP_GTID];
    body.extend_from_slice(&THROUGH_GTID.to_le_bytes());
    body.extend_from_slice(&server_id.to_le_bytes());
    body.extend_from_slice(&[0; 4]);
    body.extend_from_slice(&u64::from(FIRST_EVENT).to_le_bytes());
    body.extend_from_slice(&u32::try_from(set.len()).unwrap_or(u32::MAX).to_le_bytes());
    body.extend_from_slice(&set);
    body
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
    let unknown = [
        "not in the master's binlog",
        "binlog on the master is missing the gtid",
        "more gtids than",
        "diverged",
        "alternate future",
        "position > file size",
    ];
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
