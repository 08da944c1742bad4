//! Character sets: which one a collation belongs to, and its text as UTF-8.
//!
//! The binary log holds text in the column's own character set. Those that are common in tables are converted here; a
//! column of another one is refused by name. Numbers: `information_schema.COLLATIONS`.

/// A character set that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Charset {
    /// No text: bytes.
    Binary,
    /// utf8mb4, utf8mb3, ascii: UTF-8 as it is.
    Utf8,
    /// Windows-1252 with the five bytes that it leaves out, which MySQL calls latin1.
    Latin1,
    /// ucs2 and utf16.
    Utf16,
    /// utf16le.
    Utf16Le,
    /// utf32.
    Utf32,
}

impl Charset {
    /// The character set of a collation; `None` if it is one that is not known.
    pub(super) fn of(collation: u64) -> Option<Self> {
        // MariaDB numbers its NOPAD collations 1024 higher, and its UCA-14.0.0 ones in blocks of 256 from 2048 on
        let number = if (1024..2048).contains(&collation) { collation - 1024 } else { collation };
        Some(match number {
            63 => Self::Binary,
            11 | 65 => Self::Utf8,
            33 | 76 | 83 | 192..=215 | 223 | 576 | 577 | 578 => Self::Utf8,
            45 | 46 | 224..=247 | 255..=323 | 608 | 609 | 610 => Self::Utf8,
            5 | 8 | 15 | 31 | 47 | 48 | 49 | 94 => Self::Latin1,
            35 | 90 | 128..=151 | 159 | 640 | 641 | 642 | 54 | 55 | 101..=124 | 672 | 673 | 674 => Self::Utf16,
            56 | 62 => Self::Utf16Le,
            60 | 61 | 160..=183 | 736 | 737 | 738 => Self::Utf32,
            // utf8mb3 and utf8mb4; ucs2, utf16 and utf32
            2048..=2559 => Self::Utf8,
            2560..=3071 => Self::Utf16,
            3072..=3327 => Self::Utf32,
            _ => return None,
        })
    }

    /// Appends a text as UTF-8; false if it is none of this character set.
    pub(super) fn convert(self, text: &[u8], into: &mut Vec<u8>) -> bool {
        match self {
            Self::Binary => into.extend_from_slice(text),
            Self::Utf8 => {
                into.extend_from_slice(text);
                return std::str::from_utf8(text).is_ok();
            }
            Self::Latin1 => text.iter().for_each(|byte| push(into, latin1(*byte))),
            Self::Utf16 => return utf16(text, u16::from_be_bytes, into),
            Self::Utf16Le => return utf16(text, u16::from_le_bytes, into),
            Self::Utf32 => {
                let (words, rest) = text.as_chunks::<4>();
                for word in words {
                    let Some(c) = char::from_u32(u32::from_be_bytes(*word)) else { return false };
                    push(into, c);
                }
                return rest.is_empty();
            }
        }
        true
    }
}

fn push(into: &mut Vec<u8>, c: char) {
    into.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
}

fn utf16(text: &[u8], unit: fn([u8; 2]) -> u16, into: &mut Vec<u8>) -> bool {
    let (units, rest) = text.as_chunks::<2>();
    for c in char::decode_utf16(units.iter().map(|bytes| unit(*bytes))) {
        let Ok(c) = c else { return false };
        push(into, c);
    }
    rest.is_empty()
}

/// MySQL's latin1 is Windows-1252, with a control character where that has nothing.
fn latin1(byte: u8) -> char {
    const FROM_0X80: [char; 32] = [
        '€', '\u{81}', '‚', 'ƒ', '„', '…', '†', '‡', 'ˆ', '‰', 'Š', '‹', 'Œ', '\u{8d}', 'Ž', '\u{8f}', '\u{90}', '‘',
        '’', '“', '”', '•', '–', '—', '˜', '™', 'š', '›', 'œ', '\u{9d}', 'ž', 'Ÿ',
    ];
    let special = usize::from(byte).checked_sub(0x80).and_then(|index| FROM_0X80.get(index));
    special.copied().unwrap_or_else(|| char::from(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(charset: Charset, bytes: &[u8]) -> Option<String> {
        let mut into = Vec::new();
        charset.convert(bytes, &mut into).then(|| String::from_utf8(into).unwrap())
    }

    #[test]
    fn text_of_each_set_becomes_utf8() {
        assert_eq!(text(Charset::Latin1, b"f\xfcr 5\x80\x81").unwrap(), "für 5€\u{81}");
        assert_eq!(text(Charset::Utf16, b"\0a\xd8\x3d\xde\0").unwrap(), "a😀");
        assert_eq!(text(Charset::Utf16Le, b"a\0").unwrap(), "a");
        assert_eq!(text(Charset::Utf32, b"\0\x01\xf6\0").unwrap(), "😀");
        assert_eq!(text(Charset::Utf8, "é😀\u{a0}".as_bytes()).unwrap(), "é😀\u{a0}");
        for (charset, bytes) in
            [(Charset::Utf16, b"\xd8\0".as_slice()), (Charset::Utf16, b"a"), (Charset::Utf8, b"\xff")]
        {
            assert_eq!(text(charset, bytes), None, "{charset:?}");
        }
        assert_eq!(text(Charset::Utf32, b"\0\0\0"), None);
    }

    #[test]
    fn collations_have_their_sets() {
        for (collation, charset) in [
            (255, Some(Charset::Utf8)),
            (45, Some(Charset::Utf8)),
            (8, Some(Charset::Latin1)),
            (63, Some(Charset::Binary)),
            (1069, Some(Charset::Utf8)),
            (2304, Some(Charset::Utf8)),
            (13, None),
            (0, None),
        ] {
            assert_eq!(Charset::of(collation), charset, "{collation}");
        }
    }
}
