use super::*;
use proptest::prelude::*;

fn text(charset: &str, bytes: &[u8]) -> Result<String, CharsetError> {
    let charset = named(charset);
    charset.to_utf8(bytes).map(|text| String::from_utf8(text.into_owned()).unwrap())
}

fn named(name: &str) -> Charset {
    (0..=u16::MAX).filter_map(decoder).find(|charset| charset.name() == name).unwrap()
}

fn lines(recorded: &str) -> impl Iterator<Item = &str> {
    recorded.lines().filter(|line| !line.starts_with('#'))
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

/// Every collation of the servers has its character set, and what no server numbers has none.
#[test]
fn collations_have_their_sets() {
    let mut count = 0;
    for line in lines(include_str!("../../../../tests/data/mysql/collations.txt")) {
        let words: Vec<&str> = line.split(' ').collect();
        for number in words[0].parse::<u16>().unwrap()..=words[1].parse().unwrap() {
            assert_eq!(decoder(number).unwrap().name(), words[2], "{number}");
            count += 1;
        }
    }
    assert_eq!(count, 1311);
    for number in [0, 17, 100, 324, 612, 1024, 1041, 3328, u16::MAX] {
        assert_eq!(decoder(number), None, "{number}");
    }
    assert!(decoder(63).unwrap().is_binary() && !decoder(45).unwrap().is_binary());
}

/// The bytes of the binary log become the text that SELECT gives.
#[test]
fn recorded_texts_are_the_servers() {
    let mut count = 0;
    for line in lines(include_str!("../../../../tests/data/mysql/charset.hex")) {
        let fields: Vec<&str> = line.split('\t').collect();
        let charset = decoder(fields[0].parse().unwrap()).unwrap();
        assert_eq!(charset.name(), fields[1]);
        let bytes = unhex(fields[2]);
        assert_eq!(std::str::from_utf8(&charset.to_utf8(&bytes).unwrap()).unwrap(), fields[3], "{}", fields[1]);
        count += 1;
    }
    assert_eq!(count, 87);
}

#[test]
fn signs_differ_from_the_webs() {
    assert_eq!(text("latin1", b"5\x80 \x81\x8d\x8f\x90\x9d").unwrap(), "5€ \u{81}\u{8d}\u{8f}\u{90}\u{9d}");
    assert_eq!(text("sjis", b"a\x81\x60\x82\xa0\xb1").unwrap(), "a〜あｱ");
    assert_eq!(text("cp932", b"a\x81\x60\x87\x40").unwrap(), "a～①");
    assert_eq!(text("ujis", b"\xa1\xc1\xf5\xa1\x8f\xf5\xa1\x8e\xb1").unwrap(), "〜\u{e000}\u{e3ac}ｱ");
    assert_eq!(text("eucjpms", b"\xa1\xc1\x8f\xf3\xf3\x8f\xf4\xfe").unwrap(), "～ⅰ黑");
    assert_eq!(text("big5", b"\xa1\x45\xc6\xa1\xc7\x40\xc7\xfc\xa4\xa4").unwrap(), "•ヾエ⑽中");
    assert_eq!(text("gb2312", b"\xa1\xaa\xd6\xd0").unwrap(), "―中");
    assert_eq!(text("gbk", b"\xa1\xaa\x81\x40").unwrap(), "—丂");
    assert_eq!(text("gb18030", b"\x81\x30\x81\x30\x94\x39\xda\x33").unwrap(), "\u{80}\u{1f4a9}");
    assert_eq!(text("swe7", b"]{}").unwrap(), "Åäå");
    assert_eq!(text("utf16", b"\0a\xd8\x3d\xde\0").unwrap(), "a😀");
    assert_eq!(text("utf16le", b"a\0").unwrap(), "a");
    assert_eq!(text("utf32", b"\0\x01\xf6\0").unwrap(), "😀");
}

/// The error says where, in which set, and with which byte.
#[test]
fn what_is_no_character_is_refused() {
    for (charset, bytes, offset, byte) in [
        ("utf8mb4", b"ab\xff".as_slice(), 2, 0xFF),
        ("ascii", b"a\x80", 1, 0x80),
        ("binary", b"\xff", 0, 0xFF),
        ("cp1257", b"a\x81", 1, 0x81),
        ("swe7", b"a\x80", 1, 0x80),
        ("ucs2", b"\0a\xd8\x3d\xde\0", 2, 0xD8),
        ("ucs2", b"\0a\0", 2, 0),
        ("utf16", b"\0a\xd8\0", 2, 0xD8),
        ("utf16le", b"a", 0, b'a'),
        ("utf32", b"\0\0\0a\0\x11\0\0", 4, 0),
        ("sjis", b"a\x82\xa0\x87\x40", 3, 0x87),
        ("sjis", b"a\x82", 1, 0x82),
        ("cp932", b"\x82\xa0\x80", 2, 0x80),
        ("cp932", b"\x82\xa0\x81\xad", 2, 0x81),
        ("ujis", b"\xad\xa1", 0, 0xAD),
        // the first of two
        ("ujis", b"\xa9\xa1\xad\xa1", 0, 0xA9),
        ("big5", b"\xa4\xa4\xf9\xdd", 2, 0xF9),
        ("big5", b"\x87\x40", 0, 0x87),
        ("gbk", b"\x80", 0, 0x80),
        ("gb2312", b"a\x81\x40", 1, 0x81),
        ("gb18030", b"\xd6\xd0\x81\x30\x81", 2, 0x81),
        ("euckr", b"\xb0\xa1\xc9\xa1", 2, 0xC9),
    ] {
        let error = named(charset).to_utf8(bytes).unwrap_err();
        assert_eq!(error, CharsetError { charset: named(charset).name(), offset, byte }, "{charset}");
    }
    let error =
        named("latin2").to_utf8(b"ok").map(|_| ()).and(named("ascii").to_utf8(b"\x80").map(|_| ())).unwrap_err();
    assert_eq!(error.to_string(), "byte 0 of the text (0x80) begins no character of ascii");
}

#[test]
fn what_is_utf8_already_is_not_copied() {
    for (charset, bytes) in
        [("utf8mb4", "é😀"), ("ascii", "a"), ("latin1", "plain"), ("sjis", "plain\\"), ("binary", "é")]
    {
        assert!(matches!(named(charset).to_utf8(bytes.as_bytes()), Ok(Cow::Borrowed(_))), "{charset}");
    }
}

const MULTI_BYTE: [&str; 9] = ["big5", "cp932", "eucjpms", "euckr", "gb18030", "gb2312", "gbk", "sjis", "ujis"];

proptest! {
    /// No bytes make it panic, and what comes out is UTF-8.
    #[test]
    fn any_bytes_are_text_or_refused(bytes: Vec<u8>, number in 0_u16..3400) {
        if let Some(charset) = decoder(number) {
            match charset.to_utf8(&bytes) {
                Ok(text) => prop_assert!(std::str::from_utf8(&text).is_ok()),
                Err(error) => prop_assert!(bytes.get(error.offset) == Some(&error.byte)),
            }
        }
    }

    /// A text is what its characters are one by one.
    #[test]
    fn texts_are_their_characters(set in 0..MULTI_BYTE.len(), codes in prop::collection::vec(any::<(u8, u8, bool)>(), 0..20)) {
        let charset = named(MULTI_BYTE[set]);
        let (mut bytes, mut expected) = (Vec::new(), String::new());
        for (lead, trail, is_plain) in codes {
            let character = if is_plain { vec![lead & 0x7F] } else { vec![lead | 0x80, trail] };
            if let Ok(text) = charset.to_utf8(&character) {
                expected.push_str(std::str::from_utf8(&text).unwrap());
                bytes.extend(character);
            }
        }
        let converted = charset.to_utf8(&bytes).unwrap().into_owned();
        prop_assert_eq!(String::from_utf8(converted).unwrap(), expected);
    }
}
