//! Any bytes as one pgoutput message: the decoder must not panic, must not hand out a range outside of the message,
//! and must notice when a message that it reads whole was cut.
#![no_main]

use libfuzzer_sys::fuzz_target;
use outboxd::change::Cell;
use outboxd::source::postgres::pgoutput::{Message, decode};

fuzz_target!(|body: &[u8]| {
    let mut cells = Vec::new();
    let Ok(message) = decode(body, &mut cells) else { return };
    let mut end = 0;
    for cell in &cells {
        if let Cell::Text(range) | Cell::Binary(range) = cell {
            assert!(end <= range.start && range.start <= range.end && range.end <= body.len(), "{range:?}");
            end = range.end;
        }
    }
    if let Message::Begin { .. } | Message::Commit { .. } | Message::Relation(_) | Message::Insert { .. } = message {
        let cut = &body[..body.len() - 1];
        assert!(decode(cut, &mut cells).is_err(), "a cut message was taken for a whole one");
    }
});
