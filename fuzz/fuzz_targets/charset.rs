//! A collation's number and any bytes: what comes out is UTF-8, or the error names a byte of the text.
#![no_main]

use libfuzzer_sys::fuzz_target;
use outboxd::source::mysql::charset::decoder;

fuzz_target!(|input: &[u8]| {
    let Some((number, text)) = input.split_first_chunk::<2>() else { return };
    let Some(charset) = decoder(u16::from_le_bytes(*number)) else { return };
    match charset.to_utf8(text) {
        Ok(converted) => assert!(std::str::from_utf8(&converted).is_ok()),
        Err(error) => {
            assert_eq!(text.get(error.offset), Some(&error.byte));
            let before = &text[..error.offset];
            assert!(charset.to_utf8(before).is_ok(), "{error}, but what stands before it is refused too");
        }
    }
});
