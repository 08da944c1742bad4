//! The decoder on binary logs that real servers wrote (`tests/data`): what comes out, and what happens to each of their
//! events when it is cut or changed.
//!
//! All three logs hold the same statements: rows with a value of each kind, a transaction of several tables, XA, a
//! compressed transaction, and on MySQL one with a tag.

use bytes::Bytes;

use super::assembler::{Assembler, Reading};
use super::events::{HEADER_BYTES, Header, kind};
use super::layout::Wanted;
use super::trouble::Trouble;
use crate::change::{Batch, Item, Value};
use crate::config::TableName;

const LOGS: [(&str, &[u8]); 3] = [
    ("mysql-9.7", include_bytes!("../../../tests/data/mysql-9.7.binlog")),
    ("mariadb-10.11", include_bytes!("../../../tests/data/mariadb-10.11.binlog")),
    ("mariadb-11.8", include_bytes!("../../../tests/data/mariadb-11.8.binlog")),
];

fn assembler() -> Assembler {
    assembler_of(Reading::default())
}

fn assembler_of(reading: Reading) -> Assembler {
    let outbox = TableName { schema: "app".to_owned(), table: "outbox".to_owned() };
    let columns = ["id", "aggregateid", "payload", "at", "kind", "price", "raw"].map(str::to_owned);
    let wanted = Wanted { columns: columns.to_vec(), ..Wanted::default() };
    Assembler::new(vec![outbox], false, wanted, &"@bin.000001:4".parse().unwrap(), reading)
}

/// The events of a file, behind its four bytes.
fn events(log: &[u8]) -> Vec<Bytes> {
    let mut rest = &log[4..];
    let mut events = Vec::new();
    while !rest.is_empty() {
        let length = usize::try_from(Header::read(rest).unwrap().length).unwrap();
        events.push(Bytes::copy_from_slice(&rest[..length]));
        rest = &rest[length..];
    }
    events
}

fn take(assembler: &mut Assembler, event: &Bytes, batch: &mut Batch) -> Result<(), Trouble> {
    assembler.event(event, batch)?;
    while assembler.unpack(batch)?.is_some() {}
    Ok(())
}

/// What a log becomes, one word for each step.
fn shown(batch: &Batch) -> Vec<String> {
    let value = |value: Value<'_>| match value {
        Value::Null => "NULL".to_owned(),
        Value::Text(text) => String::from_utf8(text.to_vec()).unwrap(),
        Value::Binary(bytes) => format!("{bytes:02x?}"),
    };
    let mut words = Vec::new();
    for item in batch.items() {
        words.push(match item {
            Item::Begin { .. } => "begin".to_owned(),
            Item::Commit(_) => "commit".to_owned(),
            Item::Ignored(what, relation) => format!("{what:?} of {}", relation.table),
            Item::Row(row) => {
                let view = batch.view(row);
                let cells = (0..view.relation.columns.len()).map(|cell| value(view.value(cell).unwrap()));
                cells.collect::<Vec<_>>().join("|")
            }
            other => format!("{other:?}"),
        });
    }
    words
}

#[test]
fn logs_of_all_servers_become_the_same_rows() {
    for (name, log) in LOGS {
        let (mut assembler, mut batch) = (assembler(), Batch::default());
        for event in events(log) {
            take(&mut assembler, &event, &mut batch).unwrap_or_else(|trouble| panic!("{name}: {trouble}"));
        }
        let json = if name.starts_with("mysql") {
            "{\"a\": [1, 2.5, null, \"é\"], \"b\": {\"c\": true}}"
        } else {
            // as it was written
            "{\"a\": [1, 2.5, null, \"é\"], \"b\": {\"c\": true}}"
        };
        let words = shown(&batch);
        let expected = [
            "begin".to_owned(),
            format!("1|k|{json}|2024-01-02 03:04:05.678901|paid|-12.50|[01, 00, 00, 00]"),
            "2|NULL|NULL|NULL|NULL|NULL|NULL".to_owned(),
            "commit".to_owned(),
            "begin".to_owned(),
            "3|k|1|NULL|NULL|NULL|NULL".to_owned(),
            "Update of outbox".to_owned(),
            "Delete of outbox".to_owned(),
            "commit".to_owned(),
            "begin".to_owned(),
            "4|k|2|NULL|NULL|NULL|NULL".to_owned(),
            "commit".to_owned(),
        ];
        assert_eq!(words[..expected.len()], expected, "{name}");
        let payloads: Vec<&str> =
            words[expected.len()..].iter().filter_map(|word| word.split('|').nth(2)).map(|word| &word[..5]).collect();
        let wanted: &[&str] =
            if name.starts_with("mysql") { &["\"pack", "\"tagg", "\"last"] } else { &["\"pack", "\"last"] };
        assert_eq!(payloads, wanted, "{name}: {words:#?}");
        let position = assembler.position();
        let place = position.binlog().unwrap();
        assert_eq!((place.file.as_str(), place.offset), ("bin.000002", 4), "{name}");
        assert_eq!(place.gtids.to_string().contains(":tag1:1"), name.starts_with("mysql"), "{name}: {position}");
    }
}

/// The server died while it wrote a transaction: the next file begins without the rest of it, which was undone.
#[test]
fn what_was_cut_off_is_no_event() {
    for (name, log) in LOGS {
        let events = events(log);
        let is = |wanted: u8| move |event: &&Bytes| Header::read(event).unwrap().kind == wanted;
        let rows = events.iter().position(|event| is(kind::WRITE_ROWS)(&event) || is(kind::WRITE_ROWS_V1)(&event));
        let format = events.iter().find(is(kind::FORMAT_DESCRIPTION)).unwrap();
        let (mut assembler, mut batch) = (assembler(), Batch::default());
        let begun = &events[..=rows.unwrap()];
        for event in begun.iter().chain([format]).chain(&events) {
            take(&mut assembler, event, &mut batch).unwrap_or_else(|trouble| panic!("{name}: {trouble}"));
        }
        let (mut whole, mut expected) = (self::assembler(), Batch::default());
        events.iter().for_each(|event| take(&mut whole, event, &mut expected).unwrap());
        let positions = |words: Vec<String>| words.into_iter().filter(|word| !word.starts_with("Progress")).collect();
        let (found, expected): (Vec<String>, Vec<String>) = (positions(shown(&batch)), positions(shown(&expected)));
        assert_eq!(found, expected, "{name}");
    }
}

/// Every event, cut at each of its bytes: an error, or nothing that is not in it; never a panic.
#[test]
fn cut_events_are_refused() {
    for (_, log) in LOGS {
        let events = events(log);
        for (index, event) in events.iter().enumerate() {
            for length in 0..event.len() {
                let (mut assembler, mut batch) = (assembler(), Batch::default());
                // what an event needs before it
                for before in &events[index.saturating_sub(6)..index] {
                    let _ = take(&mut assembler, before, &mut batch);
                }
                assert!(take(&mut assembler, &event.slice(..length), &mut batch).is_err(), "length {length}");
                // the same with a right length and without a checksum: now the decoders see it
                let mut cut = event[..length].to_vec();
                if let Some(said) = cut.get_mut(9..13) {
                    said.copy_from_slice(&u32::try_from(length).unwrap().to_le_bytes());
                }
                let mut unchecked = self::assembler();
                for before in &events[index.saturating_sub(6)..index] {
                    // a format description would ask for checksums
                    if Header::read(before).unwrap().kind != 15 {
                        let _ = take(&mut unchecked, before, &mut batch);
                    }
                }
                let _ = take(&mut unchecked, &cut.into(), &mut batch);
            }
        }
    }
}

/// One bit of each byte of each event changed: the checksum notices.
#[test]
fn changed_events_are_noticed() {
    for (name, log) in LOGS {
        let events = events(log);
        for (index, event) in events.iter().enumerate().skip(1) {
            for at in 0..event.len() {
                let mut changed = event.to_vec();
                changed[at] ^= 1 << (at % 8);
                let (mut assembler, mut batch) = (assembler(), Batch::default());
                take(&mut assembler, &events[0], &mut batch).unwrap();
                let taken = take(&mut assembler, &changed.into(), &mut batch);
                assert!(
                    taken.is_err(),
                    "{name}: event {index}, byte {at} of {} ({HEADER_BYTES} of header)",
                    event.len()
                );
            }
        }
    }
}

/// An event that may hold rows and is not known is an error by name; one that says itself that it may be left out is not.
#[test]
fn unknown_events_stop_by_name() {
    let event = |kind: u8, flags: u8| {
        let mut event = vec![0_u8; HEADER_BYTES + 4];
        event[4] = kind;
        event[9] = u8::try_from(event.len()).unwrap();
        event[17] = flags;
        Bytes::from(event)
    };
    let verdict =
        |kind, flags| take(&mut assembler(), &event(kind, flags), &mut Batch::default()).map_err(|t| t.to_string());
    for kind in [1, 20, 21, 22, 43, 99, 172, 255] {
        assert!(verdict(kind, 0).unwrap_err().contains(&format!("event of type {kind}")), "{kind}");
        assert_eq!(verdict(kind, 0x80), Ok(()), "{kind}");
    }
    assert!(verdict(26, 0).unwrap_err().contains("lost events"));
    assert!(verdict(34, 0).unwrap_err().contains("without a GTID"));
    for kind in [3, 5, 13, 14, 17, 27, 28, 29, 35, 36, 37, 41, 160, 161, 163, 164] {
        assert_eq!(verdict(kind, 0), Ok(()), "{kind}");
    }
}

/// An XA transaction is committed that was prepared before the beginning. Where the position cannot leave it out, it has
/// waited for it, so what it has passed was published; else nothing is known of its rows.
#[test]
fn what_was_prepared_before_the_beginning_was_published_or_is_an_error() {
    for (name, log) in LOGS {
        let events = events(log);
        let kinds: Vec<u8> = events.iter().map(|event| Header::read(event).unwrap().kind).collect();
        let prepared = kinds.iter().position(|found| *found == kind::XA_PREPARE).unwrap();
        let is_begin = |found: &u8| matches!(*found, kind::GTID | kind::GTID_TAGGED | kind::MARIADB_GTID);
        let begun = kinds[..prepared].iter().rposition(is_begin).unwrap();
        let read = |reading: Reading| {
            let mut assembler = assembler_of(reading);
            let mut batch = Batch::default();
            let rest = events[..begun].iter().chain(&events[prepared + 1..]);
            rest.map(|event| take(&mut assembler, event, &mut batch))
                .find_map(Result::err)
                .map(|trouble| trouble.message)
        };
        let reading = |by_place, is_resumed| read(Reading { by_place, is_resumed });
        assert!(reading(false, false).unwrap().contains("XA transaction"), "{name}");
        assert_eq!(reading(false, true).is_some(), name.starts_with("mysql"), "{name}");
        if name.starts_with("mysql") {
            assert!(reading(true, false).unwrap().contains("XA transaction"));
            assert_eq!(reading(true, true), None);
        }
    }
}

/// Read by place a file's beginning says which transactions are before it, and the set grows from there.
#[test]
fn a_place_becomes_a_set_at_the_beginning_of_a_file() {
    let (_, log) = LOGS[0];
    let shown = |by_place| {
        let mut assembler = assembler_of(Reading { by_place, is_resumed: false });
        for event in events(log) {
            take(&mut assembler, &event, &mut Batch::default()).unwrap();
        }
        assembler.position().to_string()
    };
    assert_eq!(shown(true), shown(false));
    assert!(shown(true).contains(":tag1:1@bin.000002:4"), "{}", shown(true));
}
