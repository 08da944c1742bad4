//! Any bytes as events of a binary log, one after the other: the decoder must not panic, and must hand out cells that are
//! within their row.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    outboxd::source::mysql::fuzz_events(input);
});
