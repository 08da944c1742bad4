//! Decoder of pgoutput protocol 1, the output plug-in of PostgreSQL's logical replication. Pure: bytes in, messages
//! out, no I/O, no copy of a value, and no panic on any bytes.
//!
//! Layouts: PostgreSQL manual, chapter "Frontend/Backend Protocol", section "Logical Replication Message Formats".
//! Integers are big endian, strings end with a zero byte.

use crate::change::Cell;

/// Microseconds from 1970-01-01 to 2000-01-01, the epoch of PostgreSQL's timestamps.
const POSTGRES_EPOCH_US: i64 = 946_684_800_000_000;

/// The bytes are not the message they begin as.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The message ends inside a field.
    #[error("{message} message ends inside field \"{field}\"")]
    Truncated {
        /// Name of the message.
        message: &'static str,
        /// Name of the field.
        field: &'static str,
    },
    /// A field has a value that the protocol does not know.
    #[error("{message} message has an unknown value {value} in field \"{field}\"")]
    Unknown {
        /// Name of the message.
        message: &'static str,
        /// Name of the field.
        field: &'static str,
        /// The value.
        value: u8,
    },
    /// A name is not UTF-8 although the connection's encoding is.
    #[error("{message} message has a field \"{field}\" that is not UTF-8")]
    NotUtf8 {
        /// Name of the message.
        message: &'static str,
        /// Name of the field.
        field: &'static str,
    },
    /// Bytes follow the last field.
    #[error("{message} message has {count} bytes behind its last field")]
    Trailing {
        /// Name of the message.
        message: &'static str,
        /// Number of bytes.
        count: usize,
    },
}

/// A column as a Relation message describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelationColumn {
    /// Part of the replica identity.
    pub is_key: bool,
    /// Column name.
    pub name: String,
    /// OID of the type.
    pub type_oid: u32,
    /// Type modifier (`atttypmod`), -1 for none.
    pub type_modifier: i32,
}

/// A table as it was when the rows that follow were written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelationMessage {
    /// OID of the table; the rows refer to it.
    pub oid: u32,
    /// Schema, empty for `pg_catalog`.
    pub schema: String,
    /// Table name.
    pub table: String,
    /// The columns in the order of the rows' values.
    pub columns: Vec<RelationColumn>,
}

/// One pgoutput message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// `B`: a committed transaction begins.
    Begin {
        /// LSN of its commit record.
        final_lsn: u64,
        /// Commit time, microseconds since 1970-01-01 UTC.
        commit_ts_us: i64,
    },
    /// `C`: the transaction is complete.
    Commit {
        /// LSN behind its commit record: the position to confirm.
        end_lsn: u64,
    },
    /// `R`
    Relation(RelationMessage),
    /// `I`: a row was inserted; its values were put into the caller's cells.
    Insert {
        /// OID of the table.
        relation_oid: u32,
    },
    /// `U`: a row was updated; its values are not read.
    Update {
        /// OID of the table.
        relation_oid: u32,
    },
    /// `D`: a row was deleted; its values are not read.
    Delete {
        /// OID of the table.
        relation_oid: u32,
    },
    /// `T`: tables were truncated.
    Truncate {
        /// OIDs of the tables.
        relation_oids: Vec<u32>,
    },
    /// `O`, `Y`, `M`: replication origin, type name, logical message; nothing of an outbox is in them.
    Other,
}

/// Decodes one message. For an insert `cells` receives the row's values as ranges of `body`; it is emptied first.
///
/// # Errors
/// [`DecodeError`] names message and field. The tag itself may be unknown: then the message is called "pgoutput".
pub fn decode(body: &[u8], cells: &mut Vec<Cell>) -> Result<Message, DecodeError> {
    cells.clear();
    let mut reader = Reader { body, at: 0, message: "pgoutput" };
    match reader.u8("tag")? {
        b'I' => insert(reader.named("Insert"), cells),
        b'B' => begin(reader.named("Begin")),
        b'C' => commit(reader.named("Commit")),
        b'R' => relation(reader.named("Relation")),
        b'U' => Ok(Message::Update { relation_oid: reader.named("Update").u32("relation OID")? }),
        b'D' => Ok(Message::Delete { relation_oid: reader.named("Delete").u32("relation OID")? }),
        b'T' => truncate(reader.named("Truncate")),
        b'O' | b'Y' | b'M' => Ok(Message::Other),
        value => Err(DecodeError::Unknown { message: "pgoutput", field: "tag", value }),
    }
}

fn begin(mut reader: Reader<'_>) -> Result<Message, DecodeError> {
    let final_lsn = reader.u64("final LSN")?;
    let commit_ts_us = reader.i64("commit timestamp")?.saturating_add(POSTGRES_EPOCH_US);
    reader.u32("xid")?;
    reader.end()?;
    Ok(Message::Begin { final_lsn, commit_ts_us })
}

fn commit(mut reader: Reader<'_>) -> Result<Message, DecodeError> {
    reader.u8("flags")?;
    reader.u64("commit LSN")?;
    let end_lsn = reader.u64("end LSN")?;
    reader.i64("commit timestamp")?;
    reader.end()?;
    Ok(Message::Commit { end_lsn })
}

fn relation(mut reader: Reader<'_>) -> Result<Message, DecodeError> {
    let oid = reader.u32("relation OID")?;
    let schema = reader.string("schema")?;
    let table = reader.string("table")?;
    reader.u8("replica identity")?;
    let count = reader.u16("column count")?;
    // grows as columns are really there: the count alone allocates nothing
    let mut columns = Vec::new();
    for _ in 0..count {
        columns.push(RelationColumn {
            is_key: reader.u8("column flags")? & 1 == 1,
            name: reader.string("column name")?,
            type_oid: reader.u32("column type")?,
            type_modifier: reader.i32("column type modifier")?,
        });
    }
    reader.end()?;
    Ok(Message::Relation(RelationMessage { oid, schema, table, columns }))
}

fn insert(mut reader: Reader<'_>, cells: &mut Vec<Cell>) -> Result<Message, DecodeError> {
    let relation_oid = reader.u32("relation OID")?;
    match reader.u8("tuple kind")? {
        b'N' => {}
        value => return Err(DecodeError::Unknown { message: "Insert", field: "tuple kind", value }),
    }
    for _ in 0..reader.u16("column count")? {
        cells.push(match reader.u8("value kind")? {
            b'n' => Cell::Null,
            b't' => Cell::Text(reader.value()?),
            b'b' => Cell::Binary(reader.value()?),
            // "unchanged TOAST" belongs to updates: an insert always carries its values
            value => return Err(DecodeError::Unknown { message: "Insert", field: "value kind", value }),
        });
    }
    reader.end()?;
    Ok(Message::Insert { relation_oid })
}

fn truncate(mut reader: Reader<'_>) -> Result<Message, DecodeError> {
    let count = reader.u32("relation count")?;
    reader.u8("options")?;
    let mut relation_oids = Vec::new();
    for _ in 0..count {
        relation_oids.push(reader.u32("relation OID")?);
    }
    reader.end()?;
    Ok(Message::Truncate { relation_oids })
}

/// Reads fields from the front; every read is checked against the end.
struct Reader<'a> {
    body: &'a [u8],
    at: usize,
    message: &'static str,
}

impl<'a> Reader<'a> {
    fn named(mut self, message: &'static str) -> Self {
        self.message = message;
        self
    }

    fn truncated(&self, field: &'static str) -> DecodeError {
        DecodeError::Truncated { message: self.message, field }
    }

    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], DecodeError> {
        let chunk = self.body.get(self.at..).and_then(<[u8]>::first_chunk::<N>);
        let bytes = *chunk.ok_or_else(|| self.truncated(field))?;
        self.at += N;
        Ok(bytes)
    }

    fn u8(&mut self, field: &'static str) -> Result<u8, DecodeError> {
        self.array(field).map(u8::from_be_bytes)
    }

    fn u16(&mut self, field: &'static str) -> Result<u16, DecodeError> {
        self.array(field).map(u16::from_be_bytes)
    }

    fn u32(&mut self, field: &'static str) -> Result<u32, DecodeError> {
        self.array(field).map(u32::from_be_bytes)
    }

    fn i32(&mut self, field: &'static str) -> Result<i32, DecodeError> {
        self.array(field).map(i32::from_be_bytes)
    }

    fn u64(&mut self, field: &'static str) -> Result<u64, DecodeError> {
        self.array(field).map(u64::from_be_bytes)
    }

    fn i64(&mut self, field: &'static str) -> Result<i64, DecodeError> {
        self.array(field).map(i64::from_be_bytes)
    }

    fn string(&mut self, field: &'static str) -> Result<String, DecodeError> {
        let rest: &'a [u8] = self.body.get(self.at..).unwrap_or_default();
        let length = memchr::memchr(0, rest).ok_or_else(|| self.truncated(field))?;
        let bytes = rest.get(..length).unwrap_or_default();
        self.at += length + 1;
        let text = std::str::from_utf8(bytes);
        text.map(str::to_owned).map_err(|_| DecodeError::NotUtf8 { message: self.message, field })
    }

    /// A length and that many bytes, given as their range.
    fn value(&mut self) -> Result<std::ops::Range<usize>, DecodeError> {
        let length = usize::try_from(self.u32("value length")?).map_err(|_| self.truncated("value"))?;
        let end = self.at.checked_add(length).filter(|end| *end <= self.body.len());
        let end = end.ok_or_else(|| self.truncated("value"))?;
        let range = self.at..end;
        self.at = end;
        Ok(range)
    }

    fn end(&self) -> Result<(), DecodeError> {
        match self.body.len() - self.at {
            0 => Ok(()),
            count => Err(DecodeError::Trailing { message: self.message, count }),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Messages recorded from PostgreSQL 15 and 18: one per line, hexadecimal.
    const RECORDED: &str = include_str!("../../../tests/data/pgoutput.hex");

    fn recorded() -> Vec<Vec<u8>> {
        let lines = RECORDED.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        lines.map(|line| line.as_bytes().chunks(2).map(byte).collect()).collect()
    }

    #[test]
    fn recorded_messages_decode_as_before() {
        let mut cells = Vec::new();
        let shown: Vec<String> = recorded()
            .iter()
            .map(|body| {
                let message = decode(body, &mut cells).unwrap();
                let values = cells.iter().map(|cell| match cell {
                    Cell::Null => "NULL".to_owned(),
                    Cell::Text(range) => format!("{:?}", String::from_utf8_lossy(&body[range.clone()])),
                    Cell::Binary(range) => format!("{:02x?}", &body[range.clone()]),
                });
                let values: Vec<String> = values.collect();
                format!("{message:?} {}", values.join(", ")).trim_end().to_owned()
            })
            .collect();
        assert!(shown.len() > 10, "the recording is there");
        insta::assert_snapshot!(shown.join("\n"));
    }

    #[test]
    fn every_truncation_of_a_recorded_message_is_an_error_that_names_it() {
        let mut cells = Vec::new();
        for body in recorded() {
            // the values of updates and deletes, and the messages that are passed over, are not read
            let read_whole = !matches!(body[0], b'U' | b'D' | b'O' | b'Y' | b'M');
            for length in 0..body.len() {
                let result = decode(&body[..length], &mut cells);
                if read_whole {
                    assert!(
                        matches!(result, Err(DecodeError::Truncated { .. })),
                        "{length} of {body:02x?}: {result:?}"
                    );
                }
            }
            let mut longer = body.clone();
            longer.push(0);
            if read_whole {
                assert!(matches!(decode(&longer, &mut cells), Err(DecodeError::Trailing { count: 1, .. })));
            }
        }
    }

    #[test]
    fn a_length_beyond_the_message_allocates_nothing() {
        let mut body = vec![b'I', 0, 0, 0, 1, b'N', 0, 1, b't'];
        body.extend(u32::MAX.to_be_bytes());
        let error = decode(&body, &mut Vec::new()).unwrap_err();
        assert_eq!(error.to_string(), "Insert message ends inside field \"value\"");
    }

    #[test]
    fn unchanged_toast_in_an_insert_is_refused() {
        let body = [b'I', 0, 0, 0, 1, b'N', 0, 1, b'u'];
        let error = decode(&body, &mut Vec::new()).unwrap_err();
        assert_eq!(error.to_string(), "Insert message has an unknown value 117 in field \"value kind\"");
    }

    proptest! {
        #[test]
        fn no_bytes_panic(body: Vec<u8>) {
            let _ = decode(&body, &mut Vec::new());
        }

        #[test]
        fn no_flipped_byte_panics(pick: prop::sample::Index, at: prop::sample::Index, value: u8) {
            let all = recorded();
            let mut body = all[pick.index(all.len())].clone();
            let at = at.index(body.len());
            body[at] = value;
            let mut cells = Vec::new();
            if decode(&body, &mut cells).is_ok() {
                for cell in &cells {
                    if let Cell::Text(range) | Cell::Binary(range) = cell {
                        prop_assert!(range.end <= body.len());
                    }
                }
            }
        }
    }
}
