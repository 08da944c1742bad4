//! Any bytes as one document of MySQL's binary JSON: the writers must not panic, must write UTF-8, and no more of it than
//! the document has bytes for.
#![no_main]

use libfuzzer_sys::fuzz_target;
use outboxd::source::mysql::jsonb::{write_compact, write_text};

fuzz_target!(|document: &[u8]| {
    let mut text = Vec::new();
    let is_read = write_text(document, &mut text).is_ok();
    assert!(text.len() <= 64 + 16 * document.len(), "{} bytes of text", text.len());
    assert!(!is_read || std::str::from_utf8(&text).is_ok());
    let mut compact = Vec::new();
    let is_compact_read = write_compact(document, &mut compact).is_ok();
    // a text that came out of a subquery is none of JSON's to Debezium, so that it need not be UTF-8
    assert!(!is_read || is_compact_read);
    assert!(!is_compact_read || std::str::from_utf8(&compact).is_ok());
});
