//! Events of the binary log: header, checksum, and the bodies of those that make the frame of a transaction.
//!
//! ```text
//! timestamp u32 · type u8 · server_id u32 · length u32 · end position u32 · flags u16 · body · CRC-32 of all before it
//! ```
//!
//! MySQL source documentation, "Binlog Event"; MariaDB, "Replication Protocol". Pure: no event makes it panic or
//! allocate more than it holds.

use super::wire::{Malformed, Reader};
use crate::gtid::{GtidSource, MariadbGtid};

/// Bytes before the body.
pub(super) const HEADER_BYTES: usize = 19;

/// Bytes behind the body.
const CHECKSUM_BYTES: usize = 4;

/// Numbers of the types that are looked at.
pub(super) mod kind {
    pub(crate) const QUERY: u8 = 2;
    pub(crate) const STOP: u8 = 3;
    pub(crate) const ROTATE: u8 = 4;
    pub(crate) const INTVAR: u8 = 5;
    pub(crate) const APPEND_BLOCK: u8 = 9;
    pub(crate) const DELETE_FILE: u8 = 11;
    pub(crate) const RAND: u8 = 13;
    pub(crate) const USER_VAR: u8 = 14;
    pub(crate) const FORMAT_DESCRIPTION: u8 = 15;
    pub(crate) const XID: u8 = 16;
    pub(crate) const BEGIN_LOAD_QUERY: u8 = 17;
    pub(crate) const EXECUTE_LOAD_QUERY: u8 = 18;
    pub(crate) const TABLE_MAP: u8 = 19;
    pub(crate) const WRITE_ROWS_V1: u8 = 23;
    pub(crate) const UPDATE_ROWS_V1: u8 = 24;
    pub(crate) const DELETE_ROWS_V1: u8 = 25;
    pub(crate) const INCIDENT: u8 = 26;
    pub(crate) const HEARTBEAT: u8 = 27;
    pub(crate) const IGNORABLE: u8 = 28;
    pub(crate) const ROWS_QUERY: u8 = 29;
    pub(crate) const WRITE_ROWS: u8 = 30;
    pub(crate) const UPDATE_ROWS: u8 = 31;
    pub(crate) const DELETE_ROWS: u8 = 32;
    pub(crate) const GTID: u8 = 33;
    pub(crate) const ANONYMOUS_GTID: u8 = 34;
    pub(crate) const PREVIOUS_GTIDS: u8 = 35;
    pub(crate) const TRANSACTION_CONTEXT: u8 = 36;
    pub(crate) const VIEW_CHANGE: u8 = 37;
    pub(crate) const XA_PREPARE: u8 = 38;
    pub(crate) const PARTIAL_UPDATE_ROWS: u8 = 39;
    pub(crate) const TRANSACTION_PAYLOAD: u8 = 40;
    pub(crate) const HEARTBEAT_V2: u8 = 41;
    pub(crate) const GTID_TAGGED: u8 = 42;
    pub(crate) const MARIADB_ANNOTATE_ROWS: u8 = 160;
    pub(crate) const MARIADB_CHECKPOINT: u8 = 161;
    pub(crate) const MARIADB_GTID: u8 = 162;
    pub(crate) const MARIADB_GTID_LIST: u8 = 163;
    pub(crate) const MARIADB_START_ENCRYPTION: u8 = 164;
    pub(crate) const MARIADB_QUERY_COMPRESSED: u8 = 165;
    pub(crate) const MARIADB_WRITE_ROWS_V1_COMPRESSED: u8 = 166;
    pub(crate) const MARIADB_UPDATE_ROWS_V1_COMPRESSED: u8 = 167;
    pub(crate) const MARIADB_DELETE_ROWS_V1_COMPRESSED: u8 = 168;
    pub(crate) const MARIADB_WRITE_ROWS_COMPRESSED: u8 = 169;
    pub(crate) const MARIADB_UPDATE_ROWS_COMPRESSED: u8 = 170;
    pub(crate) const MARIADB_DELETE_ROWS_COMPRESSED: u8 = 171;
}

/// The event is not in the file: the server made it for us.
pub(super) const FLAG_ARTIFICIAL: u16 = 0x20;

/// A reader that does not know the event may go on without it.
pub(super) const FLAG_IGNORABLE: u16 = 0x80;

/// What stands before every body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// Seconds since 1970 on the server, when the statement began.
    pub timestamp: u32,
    pub kind: u8,
    /// The server that made it.
    pub server: u32,
    /// Length of the whole event.
    pub length: u32,
    /// The low 32 bits of the offset behind it; 0 where it has none.
    pub end: u32,
    pub flags: u16,
}

impl Header {
    pub(super) fn read(event: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(event);
        let (timestamp, kind, server) = (reader.u32()?, reader.u8()?, reader.u32()?);
        Ok(Self { timestamp, kind, server, length: reader.u32()?, end: reader.u32()?, flags: reader.u16()? })
    }
}

/// The event without its checksum, which is verified.
pub(super) fn verified(event: &[u8]) -> Result<&[u8], Malformed> {
    let split = event.len().checked_sub(CHECKSUM_BYTES).and_then(|at| event.split_at_checked(at));
    let Some((content, checksum)) = split else {
        return Err(Malformed::new("an event is shorter than its checksum"));
    };
    let said = Reader::new(checksum).u32()?;
    let computed = crc32fast::hash(content);
    if said == computed {
        Ok(content)
    } else {
        Err(Malformed(format!(
            "an event's CRC-32 is {computed:#010x} where {said:#010x} was written: the binary log is damaged"
        )))
    }
}

/// Whether the events behind a format description have checksums. The last byte before its own checksum says so.
pub(super) fn has_checksums(format_description: &[u8]) -> Result<bool, Malformed> {
    let at = format_description.len().checked_sub(CHECKSUM_BYTES + 1);
    match at.and_then(|at| format_description.get(at)) {
        Some(0) => Ok(false),
        Some(1) => Ok(true),
        Some(255) => Err(Malformed::new("the format of the binary log is one without checksums, of an old server")),
        _ => Err(Malformed::new("the format description names an unknown checksum")),
    }
}

/// A rotate event: what follows is from this file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Rotate<'a> {
    pub offset: u64,
    pub file: &'a [u8],
}

pub(super) fn rotate(body: &[u8]) -> Result<Rotate<'_>, Malformed> {
    let mut reader = Reader::new(body);
    Ok(Rotate { offset: reader.u64()?, file: reader.rest() })
}

/// A query event: a statement, or the frame of a transaction.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Query<'a> {
    pub schema: &'a [u8],
    pub sql: &'a [u8],
}

pub(super) fn query(body: &[u8]) -> Result<Query<'_>, Malformed> {
    let mut reader = Reader::new(body);
    let (_thread, _seconds) = (reader.u32()?, reader.u32()?);
    let schema_length = reader.u8()?;
    let (_error, status_length) = (reader.u16()?, reader.u16()?);
    reader.take(usize::from(status_length))?;
    let schema = reader.take(usize::from(schema_length))?;
    reader.take(1)?;
    Ok(Query { schema, sql: reader.rest() })
}

/// An execute-load event: a query with the place of a file's name in between.
pub(super) fn execute_load_query(body: &[u8]) -> Result<Query<'_>, Malformed> {
    const FILE_BYTES: usize = 4 + 4 + 4 + 1;
    let mut reader = Reader::new(body);
    reader.take(8)?;
    let schema_length = reader.u8()?;
    reader.take(2)?;
    let status_length = reader.u16()?;
    reader.take(FILE_BYTES)?;
    reader.take(usize::from(status_length))?;
    let schema = reader.take(usize::from(schema_length))?;
    reader.take(1)?;
    Ok(Query { schema, sql: reader.rest() })
}

/// A transaction of MySQL begins.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MysqlBegin {
    pub source: GtidSource,
    pub number: u64,
    /// When it was committed on this server, microseconds since 1970; 0: unknown.
    pub commit_ts_us: u64,
}

pub(super) fn mysql_gtid(body: &[u8]) -> Result<MysqlBegin, Malformed> {
    const LOGICAL_CLOCK: u8 = 2;
    const ORIGINAL_FOLLOWS: u64 = 1 << 55;
    let mut reader = Reader::new(body);
    reader.take(1)?;
    let source = GtidSource { uuid: uuid(reader.take(16)?)?, tag: String::new() };
    let number = reader.u64()?;
    let mut commit_ts_us = 0;
    if reader.rest().first() == Some(&LOGICAL_CLOCK) {
        reader.take(1 + 16)?;
        if reader.rest().len() >= 7 {
            commit_ts_us = reader.uint(7)? & !ORIGINAL_FOLLOWS;
        }
    }
    Ok(MysqlBegin { source, number, commit_ts_us })
}

fn uuid(bytes: &[u8]) -> Result<[u8; 16], Malformed> {
    bytes.try_into().map_err(|_| Malformed::new("a UUID has not 16 bytes"))
}

/// A tagged one has its fields numbered, in MySQL's serialization format (source documentation, "MySQL Serialization
/// Library"). Fields come in order; what is behind the last that is needed is not looked at.
pub(super) fn mysql_gtid_tagged(body: &[u8]) -> Result<MysqlBegin, Malformed> {
    const FORMAT: u8 = 2;
    let mut reader = Reader::new(body);
    let format = reader.u8()?;
    if format != FORMAT {
        return Err(Malformed(format!("a tagged GTID has format {format}, and 2 is known")));
    }
    let (_size, _last_needed) = (varlen(&mut reader)?, varlen(&mut reader)?);
    let mut begin = MysqlBegin { source: GtidSource::default(), number: 0, commit_ts_us: 0 };
    while !reader.is_empty() {
        match varlen(&mut reader)? {
            0 => _ = varlen(&mut reader)?,
            1 => {
                for byte in &mut begin.source.uuid {
                    *byte = u8::try_from(varlen(&mut reader)?)
                        .map_err(|_| Malformed::new("a tagged GTID's UUID is none"))?;
                }
            }
            // signed numbers have their sign in the lowest bit
            2 => begin.number = varlen(&mut reader)? >> 1,
            3 => {
                let length = usize::try_from(varlen(&mut reader)?).unwrap_or(usize::MAX);
                let tag = std::str::from_utf8(reader.take(length)?);
                tag.map_err(|_| Malformed::new("a GTID's tag is no text"))?.clone_into(&mut begin.source.tag);
            }
            4 | 5 => _ = varlen(&mut reader)?,
            6 => {
                begin.commit_ts_us = varlen(&mut reader)?;
                break;
            }
            _ => break,
        }
    }
    if begin.number == 0 || begin.source.tag.is_empty() {
        return Err(Malformed::new("a tagged GTID has no tag or no number"));
    }
    Ok(begin)
}

/// The ones at the low end of the first byte count the bytes that follow it.
fn varlen(reader: &mut Reader<'_>) -> Result<u64, Malformed> {
    let first = reader.rest().first().copied().unwrap_or_default();
    if first == 0xFF {
        reader.take(1)?;
        return reader.u64();
    }
    let width = first.trailing_ones() + 1;
    Ok(reader.uint(usize::try_from(width).unwrap_or(usize::MAX))? >> width)
}

/// A transaction of MariaDB begins.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MariadbBegin {
    pub gtid: MariadbGtid,
    /// One statement follows, and nothing that ends it.
    pub is_standalone: bool,
    /// The transaction is prepared here, and committed or rolled back by another one later.
    pub prepares: Option<Vec<u8>>,
    /// The transaction ends one that was prepared before.
    pub completes: Option<Vec<u8>>,
}

pub(super) fn mariadb_gtid(body: &[u8], server: u32) -> Result<MariadbBegin, Malformed> {
    const STANDALONE: u8 = 1;
    const GROUP_COMMIT: u8 = 2;
    const PREPARED_XA: u8 = 64;
    const COMPLETED_XA: u8 = 128;
    let mut reader = Reader::new(body);
    let (sequence, domain, flags) = (reader.u64()?, reader.u32()?, reader.u8()?);
    if flags & GROUP_COMMIT != 0 {
        reader.u64()?;
    }
    let xid = if flags & (PREPARED_XA | COMPLETED_XA) != 0 { Some(mariadb_xid(&mut reader)?) } else { None };
    Ok(MariadbBegin {
        gtid: MariadbGtid { domain, server, sequence },
        is_standalone: flags & STANDALONE != 0,
        prepares: xid.clone().filter(|_| flags & PREPARED_XA != 0),
        completes: xid.filter(|_| flags & COMPLETED_XA != 0),
    })
}

/// An XA identifier as one key: format, length of its first part, both parts.
fn mariadb_xid(reader: &mut Reader<'_>) -> Result<Vec<u8>, Malformed> {
    let format = reader.u32()?;
    let (global, branch) = (reader.u8()?, reader.u8()?);
    let data = reader.take(usize::from(global) + usize::from(branch))?;
    Ok(xid_key(format, global, data))
}

/// The key by which a prepared transaction is found again.
pub(super) fn xid_key(format: u32, global_length: u8, data: &[u8]) -> Vec<u8> {
    let mut key = format.to_le_bytes().to_vec();
    key.push(global_length);
    key.extend_from_slice(data);
    key
}

/// An XA prepare event: whether it commits in one phase, and the identifier.
pub(super) fn xa_prepare(body: &[u8]) -> Result<(bool, Vec<u8>), Malformed> {
    let mut reader = Reader::new(body);
    let is_one_phase = reader.u8()? != 0;
    let format = reader.u32()?;
    let (global, branch) = (reader.u32()?, reader.u32()?);
    let (Ok(global), Ok(branch)) = (u8::try_from(global), u8::try_from(branch)) else {
        return Err(Malformed::new("an XA identifier is longer than 64 bytes a part"));
    };
    let data = reader.take(usize::from(global) + usize::from(branch))?;
    Ok((is_one_phase, xid_key(format, global, data)))
}

/// Rows of one table: an event's body without what is decoded here.
#[derive(Debug)]
pub(super) struct Rows<'a> {
    pub column_count: usize,
    /// Which columns the rows hold: before an update, or of an insert or a delete.
    pub present: &'a [u8],
    /// All of them, one after the other; of an update only its first bitmap was read.
    pub rows: &'a [u8],
}

/// The table of a rows event, before anything else of it is looked at.
pub(super) fn table_id(body: &[u8]) -> Result<u64, Malformed> {
    Reader::new(body).uint(6)
}

pub(super) fn rows(body: &[u8], is_version_2: bool) -> Result<Rows<'_>, Malformed> {
    let mut reader = Reader::new(body);
    let (_table, _flags) = (reader.uint(6)?, reader.u16()?);
    if is_version_2 {
        // the length counts its own two bytes
        let extra = usize::from(reader.u16()?).checked_sub(2);
        reader.take(extra.ok_or_else(|| Malformed::new("a rows event's extra data has no length"))?)?;
    }
    let column_count = reader.length()?;
    let present = reader.take(column_count.div_ceil(8))?;
    Ok(Rows { column_count, present, rows: reader.rest() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_changed_byte_is_noticed() {
        let mut event = vec![1_u8; 40];
        event.extend_from_slice(&crc32fast::hash(&event).to_le_bytes());
        assert_eq!(verified(&event).unwrap().len(), 40);
        event[7] ^= 0x10;
        assert!(verified(&event).unwrap_err().to_string().contains("damaged"));
        assert!(verified(&[0; 3]).is_err());
    }

    #[test]
    fn frames_are_read_as_the_servers_write_them() {
        let found = query(b"\x08\0\0\0\0\0\0\0\x04\0\0\x02\0\xAA\xBBshop\0BEGIN").unwrap();
        assert_eq!((found.schema, found.sql), (b"shop".as_slice(), b"BEGIN".as_slice()));
        let found = rotate(b"\x9d\0\0\0\0\0\0\0bin.000002").unwrap();
        assert_eq!((found.offset, found.file), (157, b"bin.000002".as_slice()));
        let found = mariadb_gtid(b"\x11\0\0\0\0\0\0\0\x05\0\0\0\x01\0\0\0\0\0\0", 3).unwrap();
        assert_eq!((found.gtid.to_string().as_str(), found.is_standalone), ("5-3-17", true));
        // group commit, prepared: format 1, "ab" and "c"
        let found = mariadb_gtid(b"\x11\0\0\0\0\0\0\0\0\0\0\0\x42\x01\0\0\0\0\0\0\0\x01\0\0\0\x02\x01abc", 3).unwrap();
        let (is_one_phase, xid) = xa_prepare(b"\0\x01\0\0\0\x02\0\0\0\x01\0\0\0abc").unwrap();
        assert_eq!((found.prepares, found.completes, is_one_phase), (Some(xid), None, false));
    }

    #[test]
    fn tagged_identifiers_are_read_field_by_field() {
        let mut body = vec![2, 0x40, 0x08];
        body.extend_from_slice(&[0, 0, 2]);
        body.extend([0xFE_u8; 16].iter().flat_map(|byte| [(byte << 2) | 1, byte >> 6]));
        body.extend_from_slice(&[4, 10 << 1 << 1, 6, 2 << 1, b'a', b'b']);
        let found = mysql_gtid_tagged(&body).unwrap();
        assert_eq!((found.source.uuid, found.source.tag.as_str(), found.number), ([0xFE; 16], "ab", 10));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(body: Vec<u8>, version: bool) {
            let _ = (Header::read(&body), verified(&body), has_checksums(&body), rotate(&body), query(&body));
            let _ = (mysql_gtid(&body), mysql_gtid_tagged(&body), mariadb_gtid(&body, 1), xa_prepare(&body));
            let _ = (rows(&body, version), execute_load_query(&body), table_id(&body));
        }
    }
}
