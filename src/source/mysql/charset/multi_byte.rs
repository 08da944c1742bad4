//! Character sets with one to four bytes a character.
//!
//! The tables are `encoding_rs`'s, those of the web. Where the server's are others (found by asking MySQL 9.7 and MariaDB
//! 11.8 for every code of at most three bytes), the lists here go first: signs with another character, and codes for which
//! the server has none.

use encoding_rs::Encoding;

/// Codes, as one number, with the server's character. Sorted.
type Signs = &'static [(u32, char)];

/// First and last code. Sorted, apart from each other.
type Ranges = &'static [(u32, u32)];

/// One character set.
pub(super) struct MultiByte {
    encoding: &'static Encoding,
    /// How many bytes the character at the beginning has; it is not ASCII.
    length: fn(&[u8]) -> Option<usize>,
    signs: Signs,
    none: Ranges,
    /// Characters that stand one behind another, from a code on.
    row: fn(u32) -> Option<char>,
}

pub(super) static BIG5: MultiByte =
    MultiByte { encoding: encoding_rs::BIG5, length: big5_length, signs: BIG5_SIGNS, none: BIG5_NONE, row: big5_row };

pub(super) static EUCKR: MultiByte =
    MultiByte { encoding: encoding_rs::EUC_KR, length: euckr_length, signs: &[], none: &[], row: no_row };

pub(super) static GB2312: MultiByte = MultiByte {
    encoding: encoding_rs::GBK,
    length: gb2312_length,
    signs: GB2312_SIGNS,
    none: GB2312_NONE,
    row: no_row,
};

pub(super) static GBK: MultiByte =
    MultiByte { encoding: encoding_rs::GBK, length: gbk_length, signs: &[], none: GBK_NONE, row: no_row };

pub(super) static GB18030: MultiByte =
    MultiByte { encoding: encoding_rs::GB18030, length: gb18030_length, signs: GB18030_SIGNS, none: &[], row: no_row };

pub(super) static SJIS: MultiByte = MultiByte {
    encoding: encoding_rs::SHIFT_JIS,
    length: sjis_length,
    signs: SJIS_SIGNS,
    none: SJIS_NONE,
    row: no_row,
};

pub(super) static CP932: MultiByte =
    MultiByte { encoding: encoding_rs::SHIFT_JIS, length: sjis_length, signs: &[], none: &[], row: no_row };

pub(super) static UJIS: MultiByte = MultiByte {
    encoding: encoding_rs::EUC_JP,
    length: euc_jp_length,
    signs: UJIS_SIGNS,
    none: UJIS_NONE,
    row: user_defined_row,
};

pub(super) static EUCJPMS: MultiByte = MultiByte {
    encoding: encoding_rs::EUC_JP,
    length: euc_jp_length,
    signs: &[(0x8FA2C3, '￤')],
    none: &[],
    row: eucjpms_row,
};

impl MultiByte {
    /// Appends a text. The error is the offset of what is no character.
    pub(super) fn convert(&self, text: &[u8], into: &mut String) -> Result<(), usize> {
        let mut run = 0;
        let mut at = 0;
        while let Some(rest @ [first, ..]) = text.get(at..) {
            if first.is_ascii() {
                at += 1;
                continue;
            }
            let character = (self.length)(rest).and_then(|length| rest.get(..length)).unwrap_or_default();
            let code = character.iter().fold(0_u32, |code, byte| code << 8 | u32::from(*byte));
            if character.is_empty() || is_within(self.none, code) {
                // unless one before it is none either
                self.append(text, run, at, into)?;
                return Err(at);
            }
            if let Some(c) = self.sign(code) {
                self.append(text, run, at, into)?;
                into.push(c);
                run = at + character.len();
            }
            at += character.len();
        }
        self.append(text, run, at, into)
    }

    fn sign(&self, code: u32) -> Option<char> {
        let at = self.signs.binary_search_by_key(&code, |(code, _)| *code).ok();
        at.and_then(|at| self.signs.get(at)).map(|(_, c)| *c).or_else(|| (self.row)(code))
    }

    /// Appends what is between two offsets by the table of the web.
    fn append(&self, text: &[u8], from: usize, to: usize, into: &mut String) -> Result<(), usize> {
        let run = text.get(from..to).unwrap_or_default();
        if let Some(converted) = self.encoding.decode_without_bom_handling_and_without_replacement(run) {
            into.push_str(&converted);
            return Ok(());
        }
        // one of them is none: which
        let mut at = 0;
        while let Some(rest @ [first, ..]) = run.get(at..) {
            let length = if first.is_ascii() { 1 } else { (self.length)(rest).unwrap_or(1) };
            let character = rest.get(..length).unwrap_or_default();
            if self.encoding.decode_without_bom_handling_and_without_replacement(character).is_none() {
                break;
            }
            at += length;
        }
        Err(from + at)
    }
}

fn is_within(ranges: Ranges, code: u32) -> bool {
    let behind = ranges.partition_point(|(first, _)| *first <= code);
    behind.checked_sub(1).and_then(|at| ranges.get(at)).is_some_and(|(_, last)| code <= *last)
}

fn no_row(_: u32) -> Option<char> {
    None
}

/// Kana, Cyrillic, and numbers in circles and brackets, as the Eten extension has them, but for its drawings.
fn big5_row(code: u32) -> Option<char> {
    /// From 0xC6A1 on.
    const KANA: &str = "\
        ヾゝゞ々ぁあぃいぅうぇえぉおかがきぎくぐけげこごさざしじすずせぜそぞただちぢっつづてでとどなにぬねの\
        はばぱひびぴふぶぷへべぺほぼぽまみむめもゃやゅゆょよらりるれろゎわゐゑをんァアィイゥウェエォオカガキ\
        ギクグケゲコゴサザシジスズセゼソゾタダチヂッツヅテデトドナニヌネノハバパヒビピフブプヘベペホボポマミ\
        ムメモャヤュユョヨラリルレロヮワヰヱヲンヴヵヶДЕЁЖЗИЙКЛМУФХЦЧШЩЪЫЬЭЮЯабвг\
        деёжзийклмнопрстуфхцчшщъыьэюя①②③④⑤⑥⑦⑧⑨⑩⑴⑵⑶⑷⑸⑹⑺⑻⑼⑽";
    let [_, _, lead, trail] = code.to_be_bytes();
    // 157 codes for each first byte: 0x40 to 0x7E, 0xA1 to 0xFE
    let cell = if trail < 0x80 { u32::from(trail).checked_sub(0x40)? } else { u32::from(trail).checked_sub(0x62)? };
    let index = (u32::from(lead).checked_sub(0xC6)? * 157 + cell).checked_sub(63)?;
    KANA.chars().nth(usize::try_from(index).ok()?)
}

/// Rows 85 to 94 of both planes of EUC-JP are the user's: the private use area, one behind another.
fn user_defined_row(code: u32) -> Option<char> {
    let [_, plane, lead, trail] = code.to_be_bytes();
    let first = match plane {
        0 => 0xE000,
        0x8F => 0xE3AC,
        _ => return None,
    };
    let row = u32::from(lead).checked_sub(0xF5)?;
    char::from_u32(first + row * 94 + u32::from(trail).checked_sub(0xA1)?)
}

/// IBM's and NEC's extensions, which Microsoft's EUC-JP has in rows 83 and 84 of its second plane.
fn eucjpms_row(code: u32) -> Option<char> {
    /// From 0x8FF3F3 on.
    const EXTENSIONS: &str = "\
        ⅰⅱⅲⅳⅴⅵⅶⅷⅸⅹⅠⅡⅢⅣⅤⅥⅦⅧⅨⅩ＇＂㈱№℡炻仼僴凬匇匤﨎咊坙﨏塚增寬峵嵓﨑德悅愠敎昻晥晴朗栁\
        﨓﨔橫櫢淸淲瀨凞猪甁皂皞益礰礼神祥福竧靖精綠緖羽荢﨟薰蘒﨡蠇諸譿賴赶﨣﨤逸郞都鄕﨧﨨閒隆﨩霻靍靑飯飼\
        館馞髙魲鶴黑";
    let [_, plane, lead, trail] = code.to_be_bytes();
    if plane == 0x8F && matches!(lead, 0xF3 | 0xF4) {
        let cell = u32::from(lead - 0xF3) * 94 + u32::from(trail).checked_sub(0xA1)?;
        return EXTENSIONS.chars().nth(usize::try_from(cell.checked_sub(82)?).ok()?);
    }
    user_defined_row(code)
}

fn big5_length(text: &[u8]) -> Option<usize> {
    matches!(text, [0xA1..=0xF9, 0x40..=0x7E | 0xA1..=0xFE, ..]).then_some(2)
}

fn euckr_length(text: &[u8]) -> Option<usize> {
    matches!(text, [0x81..=0xFE, 0x41..=0x5A | 0x61..=0x7A | 0x81..=0xFE, ..]).then_some(2)
}

fn gb2312_length(text: &[u8]) -> Option<usize> {
    matches!(text, [0xA1..=0xF7, 0xA1..=0xFE, ..]).then_some(2)
}

fn gbk_length(text: &[u8]) -> Option<usize> {
    matches!(text, [0x81..=0xFE, 0x40..=0x7E | 0x80..=0xFE, ..]).then_some(2)
}

fn gb18030_length(text: &[u8]) -> Option<usize> {
    let has_four = matches!(text, [0x81..=0xFE, 0x30..=0x39, 0x81..=0xFE, 0x30..=0x39, ..]);
    if has_four { Some(4) } else { gbk_length(text) }
}

fn sjis_length(text: &[u8]) -> Option<usize> {
    match text {
        [0xA1..=0xDF, ..] => Some(1),
        [0x81..=0x9F | 0xE0..=0xFC, 0x40..=0x7E | 0x80..=0xFC, ..] => Some(2),
        _ => None,
    }
}

fn euc_jp_length(text: &[u8]) -> Option<usize> {
    match text {
        [0x8E, 0xA1..=0xDF, ..] | [0xA1..=0xFE, 0xA1..=0xFE, ..] => Some(2),
        [0x8F, 0xA1..=0xFE, 0xA1..=0xFE, ..] => Some(3),
        _ => None,
    }
}

/// Signs that have another character on the web.
static BIG5_SIGNS: Signs = &[
    (0xA145, '•'),
    (0xA14E, '､'),
    (0xA1C2, '‾'),
    (0xA1E3, '∼'),
    (0xA1F2, '♁'),
    (0xA1F3, '☉'),
    (0xA241, '／'),
    (0xA242, '＼'),
    (0xA244, '\u{a5}'),
    (0xA246, '\u{a2}'),
    (0xA247, '\u{a3}'),
];

/// Not in the server's table, or U+FFFD there.
static BIG5_NONE: Ranges = &[
    (0xA15A, 0xA15A),
    (0xA1C3, 0xA1C3),
    (0xA1C5, 0xA1C5),
    (0xA1FE, 0xA1FE),
    (0xA240, 0xA240),
    (0xA2CC, 0xA2CC),
    (0xA2CE, 0xA2CE),
    (0xA3C0, 0xA3E1),
    (0xC7FD, 0xC8FE),
    (0xF9DD, 0xF9FE),
];

static GBK_NONE: Ranges = &[
    (0xA140, 0xA1A0),
    (0xA240, 0xA2A0),
    (0xA2AB, 0xA2B0),
    (0xA2E3, 0xA2E4),
    (0xA2EF, 0xA2F0),
    (0xA2FD, 0xA3A0),
    (0xA440, 0xA4A0),
    (0xA4F4, 0xA5A0),
    (0xA5F7, 0xA6A0),
    (0xA6B9, 0xA6C0),
    (0xA6D9, 0xA6DF),
    (0xA6EC, 0xA6ED),
    (0xA6F3, 0xA6F3),
    (0xA6F6, 0xA7A0),
    (0xA7C2, 0xA7D0),
    (0xA7F2, 0xA7FE),
    (0xA896, 0xA8A0),
    (0xA8BC, 0xA8BC),
    (0xA8BF, 0xA8BF),
    (0xA8C1, 0xA8C4),
    (0xA8EA, 0xA8FE),
    (0xA958, 0xA958),
    (0xA95B, 0xA95B),
    (0xA95D, 0xA95F),
    (0xA989, 0xA995),
    (0xA997, 0xA9A3),
    (0xA9F0, 0xA9FE),
    (0xAAA1, 0xAAFE),
    (0xABA1, 0xABFE),
    (0xACA1, 0xACFE),
    (0xADA1, 0xADFE),
    (0xAEA1, 0xAEFE),
    (0xAFA1, 0xAFFE),
    (0xD7FA, 0xD7FE),
    (0xF8A1, 0xF8FE),
    (0xF9A1, 0xF9FE),
    (0xFAA1, 0xFAFE),
    (0xFBA1, 0xFBFE),
    (0xFCA1, 0xFCFE),
    (0xFDA1, 0xFDFE),
    (0xFE50, 0xFEFE),
];

static GB2312_SIGNS: Signs = &[(0xA1A4, '・'), (0xA1AA, '―')];

static GB2312_NONE: Ranges = &[
    (0xA2A1, 0xA2B0),
    (0xA2E3, 0xA2E4),
    (0xA2EF, 0xA2F0),
    (0xA2FD, 0xA2FE),
    (0xA4F4, 0xA4FE),
    (0xA5F7, 0xA5FE),
    (0xA6B9, 0xA6C0),
    (0xA6D9, 0xA6FE),
    (0xA7C2, 0xA7D0),
    (0xA7F2, 0xA7FE),
    (0xA8BB, 0xA8C4),
    (0xA8EA, 0xA9A3),
    (0xA9F0, 0xAFFE),
    (0xD7FA, 0xD7FE),
];

static GB18030_SIGNS: Signs = &[
    (0xA3A0, '\u{e5e5}'),
    (0xA6D9, '\u{e78d}'),
    (0xA6DA, '\u{e78e}'),
    (0xA6DB, '\u{e78f}'),
    (0xA6DC, '\u{e790}'),
    (0xA6DD, '\u{e791}'),
    (0xA6DE, '\u{e792}'),
    (0xA6DF, '\u{e793}'),
    (0xA6EC, '\u{e794}'),
    (0xA6ED, '\u{e795}'),
    (0xA6F3, '\u{e796}'),
    (0xFE59, '\u{e81e}'),
    (0xFE61, '\u{e826}'),
    (0xFE66, '\u{e82b}'),
    (0xFE67, '\u{e82c}'),
    (0xFE6D, '\u{e832}'),
    (0xFE7E, '\u{e843}'),
    (0xFE90, '\u{e854}'),
    (0xFEA0, '\u{e864}'),
];

/// JIS X 0208 as it was first mapped; the web follows Microsoft.
static SJIS_SIGNS: Signs = &[
    (0x815F, '\\'),
    (0x8160, '〜'),
    (0x8161, '‖'),
    (0x817C, '−'),
    (0x8191, '\u{a2}'),
    (0x8192, '\u{a3}'),
    (0x81CA, '\u{ac}'),
];

static SJIS_NONE: Ranges = &[(0x8740, 0x879C), (0xED40, 0xFCFC)];

static UJIS_SIGNS: Signs = &[
    (0xA1C0, '\\'),
    (0xA1C1, '〜'),
    (0xA1C2, '‖'),
    (0xA1DD, '−'),
    (0xA1F1, '\u{a2}'),
    (0xA1F2, '\u{a3}'),
    (0xA2CC, '\u{ac}'),
    (0x8FA2B7, '~'),
];

static UJIS_NONE: Ranges = &[(0xADA1, 0xADFC)];
