//! Character sets: which one a collation belongs to, and its text as UTF-8.
//!
//! The binary log holds text in the column's own character set. What comes out here is what the server's `CONVERT` to
//! utf8mb4 gives; where that has only a replacement to give (`?` or U+FFFD), the text is refused. Collations are those of
//! `information_schema` on MySQL 9.7 and MariaDB 11.8.

mod multi_byte;
mod single_byte;

use std::borrow::Cow;
use std::fmt;

use multi_byte::MultiByte;
use single_byte::{NONE, Table};

/// A text has a byte sequence that is no character of its character set, or one that Unicode has not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("byte {offset} of the text ({byte:#04x}) begins no character of {charset}")]
pub struct CharsetError {
    /// Name of the character set.
    pub charset: &'static str,
    /// Where the character begins, counted from zero.
    pub offset: usize,
    /// Its first byte.
    pub byte: u8,
}

/// A character set that can be read.
#[derive(Clone, Copy)]
pub struct Charset {
    name: &'static str,
    form: Form,
}

/// How characters are written.
#[derive(Clone, Copy)]
enum Form {
    /// No characters at all.
    Binary,
    Utf8,
    Ascii,
    /// ASCII with Swedish letters in place of some signs.
    Swe7,
    /// ASCII, and a table for the bytes above it.
    SingleByte(&'static Table),
    MultiByte(&'static MultiByte),
    /// UTF-16 without pairs, the high byte first.
    Ucs2,
    Utf16(fn([u8; 2]) -> u16),
    Utf32,
}

/// The character set of a collation, by the number that the server gives it; `None` if it is not known.
#[must_use]
pub fn decoder(collation_id: u16) -> Option<Charset> {
    /// MariaDB's collations without padding stand so much behind their padded twins.
    const NOPAD: u16 = 1024;
    let charset = match collation_id {
        NOPAD..2048 => plain(collation_id - NOPAD)?,
        // MariaDB's UCA-14.0.0: a block of 256 for each character set
        2048..=2303 => Charset { name: "utf8mb3", form: Form::Utf8 },
        2304..=2559 => Charset { name: "utf8mb4", form: Form::Utf8 },
        2560..=2815 => Charset { name: "ucs2", form: Form::Ucs2 },
        2816..=3071 => Charset { name: "utf16", form: Form::Utf16(u16::from_be_bytes) },
        3072..=3327 => Charset { name: "utf32", form: Form::Utf32 },
        _ => plain(collation_id)?,
    };
    Some(charset)
}

/// The collations that are not numbered by a rule.
fn plain(collation_id: u16) -> Option<Charset> {
    use {multi_byte as m, single_byte as s};
    let single = |name, table| Charset { name, form: Form::SingleByte(table) };
    let multi = |name, set| Charset { name, form: Form::MultiByte(set) };
    Some(match collation_id {
        1 | 84 => multi("big5", &m::BIG5),
        2 | 9 | 21 | 27 | 77 => single("latin2", &s::LATIN2),
        3 | 69 => single("dec8", &s::DEC8),
        4 | 80 => single("cp850", &s::CP850),
        5 | 8 | 15 | 31 | 47..=49 | 94 => single("latin1", &s::LATIN1),
        6 | 72 => single("hp8", &s::HP8),
        7 | 74 => single("koi8r", &s::KOI8R),
        10 | 82 => Charset { name: "swe7", form: Form::Swe7 },
        11 | 65 => Charset { name: "ascii", form: Form::Ascii },
        12 | 91 => multi("ujis", &m::UJIS),
        13 | 88 => multi("sjis", &m::SJIS),
        14 | 23 | 50..=52 => single("cp1251", &s::CP1251),
        16 | 71 => single("hebrew", &s::HEBREW),
        18 | 89 => single("tis620", &s::TIS620),
        19 | 85 => multi("euckr", &m::EUCKR),
        20 | 41 | 42 | 79 => single("latin7", &s::LATIN7),
        22 | 75 => single("koi8u", &s::KOI8U),
        24 | 86 => multi("gb2312", &m::GB2312),
        25 | 70 => single("greek", &s::GREEK),
        26 | 34 | 44 | 66 | 99 => single("cp1250", &s::CP1250),
        28 | 87 => multi("gbk", &m::GBK),
        29 | 58 | 59 => single("cp1257", &s::CP1257),
        30 | 78 => single("latin5", &s::LATIN5),
        32 | 64 => single("armscii8", &s::ARMSCII8),
        33 | 76 | 83 | 192..=215 | 223 | 576..=579 => Charset { name: "utf8mb3", form: Form::Utf8 },
        35 | 90 | 128..=151 | 159 | 640..=642 => Charset { name: "ucs2", form: Form::Ucs2 },
        36 | 68 => single("cp866", &s::CP866),
        37 | 73 => single("keybcs2", &s::KEYBCS2),
        38 | 43 => single("macce", &s::MACCE),
        39 | 53 => single("macroman", &s::MACROMAN),
        40 | 81 => single("cp852", &s::CP852),
        45 | 46 | 224..=247 | 255..=323 | 608..=611 => Charset { name: "utf8mb4", form: Form::Utf8 },
        54 | 55 | 101..=124 | 672..=674 => Charset { name: "utf16", form: Form::Utf16(u16::from_be_bytes) },
        56 | 62 => Charset { name: "utf16le", form: Form::Utf16(u16::from_le_bytes) },
        57 | 67 => single("cp1256", &s::CP1256),
        60 | 61 | 160..=183 | 736..=738 => Charset { name: "utf32", form: Form::Utf32 },
        63 => Charset { name: "binary", form: Form::Binary },
        92 | 93 => single("geostd8", &s::GEOSTD8),
        95 | 96 => multi("cp932", &m::CP932),
        97 | 98 => multi("eucjpms", &m::EUCJPMS),
        248..=250 => multi("gb18030", &m::GB18030),
        _ => return None,
    })
}

impl Charset {
    /// The name that the server gives it.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Whether it is none: the column holds bytes.
    #[must_use]
    pub fn is_binary(&self) -> bool {
        matches!(self.form, Form::Binary)
    }

    /// A text as UTF-8. It is copied only where its bytes change. Bytes of the set `binary` pass if they are UTF-8.
    ///
    /// # Errors
    /// Where the first character stands that is none.
    pub fn to_utf8<'a>(&self, text: &'a [u8]) -> Result<Cow<'a, [u8]>, CharsetError> {
        let is_same = match self.form {
            Form::Binary | Form::Utf8 => {
                std::str::from_utf8(text).map_err(|error| self.error(text, error.valid_up_to()))?;
                true
            }
            Form::Ascii => match text.iter().position(|byte| !byte.is_ascii()) {
                Some(offset) => return Err(self.error(text, offset)),
                None => true,
            },
            Form::SingleByte(_) | Form::MultiByte(_) => text.is_ascii(),
            Form::Swe7 | Form::Ucs2 | Form::Utf16(_) | Form::Utf32 => text.is_empty(),
        };
        if is_same {
            return Ok(Cow::Borrowed(text));
        }
        // most characters above ASCII have two or three bytes
        let mut into = String::with_capacity(text.len().saturating_mul(2));
        match self.convert(text, &mut into) {
            Ok(()) => Ok(Cow::Owned(into.into_bytes())),
            Err(offset) => Err(self.error(text, offset)),
        }
    }

    /// Appends a text. The error is the offset of what is no character.
    fn convert(&self, text: &[u8], into: &mut String) -> Result<(), usize> {
        match self.form {
            Form::Binary | Form::Utf8 | Form::Ascii => into.push_str(std::str::from_utf8(text).map_err(|_| 0_usize)?),
            Form::Swe7 => {
                for (offset, byte) in text.iter().enumerate() {
                    into.push(swe7(*byte).ok_or(offset)?);
                }
            }
            Form::SingleByte(table) => {
                for (offset, byte) in text.iter().enumerate() {
                    into.push(above_ascii(*byte, table).ok_or(offset)?);
                }
            }
            Form::MultiByte(set) => return set.convert(text, into),
            Form::Ucs2 => {
                let (units, rest) = text.as_chunks::<2>();
                for (index, unit) in units.iter().enumerate() {
                    into.push(char::from_u32(u32::from(u16::from_be_bytes(*unit))).ok_or(2 * index)?);
                }
                return whole(text, rest);
            }
            Form::Utf16(unit) => {
                let (units, rest) = text.as_chunks::<2>();
                let mut offset = 0;
                for c in char::decode_utf16(units.iter().map(|bytes| unit(*bytes))) {
                    let c = c.map_err(|_| offset)?;
                    offset += 2 * c.len_utf16();
                    into.push(c);
                }
                return whole(text, rest);
            }
            Form::Utf32 => {
                let (units, rest) = text.as_chunks::<4>();
                for (index, unit) in units.iter().enumerate() {
                    into.push(char::from_u32(u32::from_be_bytes(*unit)).ok_or(4 * index)?);
                }
                return whole(text, rest);
            }
        }
        Ok(())
    }

    fn error(&self, text: &[u8], offset: usize) -> CharsetError {
        CharsetError { charset: self.name, offset, byte: text.get(offset).copied().unwrap_or_default() }
    }
}

impl fmt::Debug for Charset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for Charset {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Charset {}

/// A text of units of equal width has no piece of one at its end.
fn whole(text: &[u8], rest: &[u8]) -> Result<(), usize> {
    if rest.is_empty() { Ok(()) } else { Err(text.len() - rest.len()) }
}

fn above_ascii(byte: u8, table: &Table) -> Option<char> {
    let Some(index) = byte.checked_sub(0x80) else { return Some(char::from(byte)) };
    let code = table.get(usize::from(index)).copied().filter(|code| *code != NONE)?;
    char::from_u32(u32::from(code))
}

fn swe7(byte: u8) -> Option<char> {
    Some(match byte {
        b'@' => 'É',
        b'[' => 'Ä',
        b'\\' => 'Ö',
        b']' => 'Å',
        b'^' => 'Ü',
        b'`' => 'é',
        b'{' => 'ä',
        b'|' => 'ö',
        b'}' => 'å',
        b'~' => 'ü',
        0x7F.. => return None,
        _ => char::from(byte),
    })
}

#[cfg(test)]
mod tests;
