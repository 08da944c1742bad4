//! Numbers as text: exact decimals from their packed form, and floating point as the server prints it.

use std::io::Write;

use super::wire::Malformed;

/// Bytes of so many leftover digits (MySQL source, `strings/decimal.cc`, `dig2bytes`).
const DIGIT_BYTES: [usize; 10] = [0, 1, 1, 2, 2, 3, 3, 4, 4, 4];

/// Digits in a full group of four bytes.
const GROUP: usize = 9;

fn digit_bytes(digits: usize) -> usize {
    digits / GROUP * 4 + DIGIT_BYTES.get(digits % GROUP).copied().unwrap_or_default()
}

/// Bytes of a packed decimal; `None` if scale and precision do not fit.
pub(super) fn decimal_bytes(precision: u8, scale: u8) -> Option<usize> {
    let whole = precision.checked_sub(scale)?;
    Some(digit_bytes(usize::from(whole)) + digit_bytes(usize::from(scale)))
}

/// Appends a packed decimal. Its sign is the inverted highest bit; of a negative one all bits are inverted.
pub(super) fn decimal(raw: &[u8], precision: u8, scale: u8, into: &mut Vec<u8>) -> Result<(), Malformed> {
    let wrong = || Malformed(format!("a DECIMAL({precision},{scale}) has {} bytes", raw.len()));
    if decimal_bytes(precision, scale) != Some(raw.len()) {
        return Err(wrong());
    }
    let first = *raw.first().ok_or_else(wrong)?;
    let is_negative = first & 0x80 == 0;
    let invert = if is_negative { 0xFF } else { 0 };
    let bytes = raw.iter().enumerate().map(|(at, byte)| byte ^ invert ^ if at == 0 { 0x80 } else { 0 });
    let begin = into.len();
    if is_negative {
        into.push(b'-');
    }
    let whole = usize::from(precision - scale);
    let scale = usize::from(scale);
    // the odd group of the whole part comes first, that of the fraction last
    let groups = std::iter::once(whole % GROUP)
        .chain(std::iter::repeat_n(GROUP, whole / GROUP))
        .map(|digits| (digits, false))
        .chain(std::iter::repeat_n((GROUP, true), scale / GROUP))
        .chain(std::iter::once((scale % GROUP, true)));
    let mut bytes = bytes;
    let digits_begin = into.len();
    let mut in_fraction = false;
    for (digits, is_fraction) in groups.filter(|(digits, _)| *digits > 0) {
        if is_fraction && !in_fraction {
            trim_zeros(into, digits_begin);
            into.push(b'.');
            in_fraction = true;
        }
        let width = DIGIT_BYTES.get(digits).copied().unwrap_or_default();
        let value = bytes.by_ref().take(width).fold(0_u32, |sum, byte| sum << 8 | u32::from(byte));
        let _ = write!(into, "{value:0digits$}");
    }
    if !in_fraction {
        trim_zeros(into, digits_begin);
    }
    // the server prints no negative zero
    let printed = into.get(begin..).unwrap_or_default();
    if is_negative && printed.iter().all(|byte| matches!(byte, b'-' | b'0' | b'.')) {
        into.remove(begin);
    }
    Ok(())
}

/// Takes leading zeros away, but for one before the point.
fn trim_zeros(into: &mut Vec<u8>, begin: usize) {
    let digits = into.get(begin..).unwrap_or_default();
    let zeros = digits.iter().take_while(|byte| **byte == b'0').count();
    if zeros == digits.len() {
        into.truncate(begin);
        into.push(b'0');
    } else {
        into.drain(begin..begin + zeros);
    }
}

/// Appends the shortest text that is this number, with an exponent where the server has one (MySQL source,
/// `strings/dtoa.cc`, `my_gcvt`).
pub(super) fn double(value: f64, into: &mut Vec<u8>) {
    let mut scratch = [0; 40];
    let mut print = |precision: Option<usize>| {
        let mut cursor = std::io::Cursor::new(scratch.as_mut_slice());
        let _ = match precision {
            None => write!(cursor, "{value:e}"),
            Some(precision) => write!(cursor, "{value:.precision$e}"),
        };
        let length = usize::try_from(cursor.position()).unwrap_or_default();
        (length, scratch)
    };
    let (mut length, mut text) = print(None);
    let digits =
        text.iter().take(length).take_while(|byte| **byte != b'e').filter(|byte| byte.is_ascii_digit()).count();
    if digits == 17 {
        // of two that are equally near the server takes the even one
        (length, text) = print(Some(digits - 1));
    }
    plain_or_exponent(text.get(..length).unwrap_or_default(), into);
}

/// As [`double`], for FLOAT.
pub(super) fn float(value: f32, into: &mut Vec<u8>) {
    let mut scratch = [0; 40];
    let mut cursor = std::io::Cursor::new(scratch.as_mut_slice());
    let _ = write!(cursor, "{value:e}");
    let length = usize::try_from(cursor.position()).unwrap_or_default();
    plain_or_exponent(scratch.get(..length).unwrap_or_default(), into);
}

/// From Rust's `-d.ddde-n` to the server's form.
fn plain_or_exponent(text: &[u8], into: &mut Vec<u8>) {
    /// `DBL_DIG`: up to here zeros are written in place of an exponent.
    const MAX_PLAIN: i32 = 15;
    let text = std::str::from_utf8(text).unwrap_or_default();
    let Some((mantissa, exponent)) = text.split_once('e') else {
        into.extend_from_slice(text.as_bytes());
        return;
    };
    let (sign, mantissa) = mantissa.strip_prefix('-').map_or(("", mantissa), |rest| ("-", rest));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    let digits = mantissa.bytes().filter(|byte| *byte != b'.');
    let count = digits.clone().count();
    // digits before the point, if it were written without an exponent
    let point = exponent + 1;
    let has_fraction = usize::try_from(point).is_ok_and(|point| point < count);
    let is_plain = (1 - MAX_PLAIN..=MAX_PLAIN).contains(&point) || (point > 0 && has_fraction);
    if !is_plain {
        let _ = write!(into, "{sign}{mantissa}e{exponent}");
        return;
    }
    into.extend_from_slice(sign.as_bytes());
    match usize::try_from(point) {
        Ok(point) if point > 0 => {
            for (at, digit) in digits.enumerate() {
                if at == point {
                    into.push(b'.');
                }
                into.push(digit);
            }
            into.extend(std::iter::repeat_n(b'0', point.saturating_sub(count)));
        }
        _ => {
            into.extend_from_slice(b"0.");
            into.extend(std::iter::repeat_n(b'0', usize::try_from(-point).unwrap_or_default()));
            into.extend(digits);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shown(raw: &[u8], precision: u8, scale: u8) -> String {
        let mut into = Vec::new();
        decimal(raw, precision, scale, &mut into).unwrap();
        String::from_utf8(into).unwrap()
    }

    #[test]
    fn decimals_are_the_servers() {
        // the example in the server's source: 1234567890.1234
        let packed = [0x81, 0x0D, 0xFB, 0x38, 0xD2, 0x04, 0xD2];
        assert_eq!(shown(&packed, 14, 4), "1234567890.1234");
        assert_eq!(shown(&packed.map(|byte| !byte), 14, 4), "-1234567890.1234");
        assert_eq!(shown(&[0x80, 0], 4, 2), "0.00");
        assert_eq!(shown(&[0x80], 2, 0), "0");
        assert_eq!(shown(&[0x80, 5], 2, 2 - 1), "0.5");
        assert!(decimal(&[], 4, 2, &mut Vec::new()).is_err());
        assert!(decimal(&[0; 9], 2, 4, &mut Vec::new()).is_err());
    }

    #[test]
    fn floating_point_is_the_servers() {
        let shown = |value: f64| {
            let mut into = Vec::new();
            double(value, &mut into);
            String::from_utf8(into).unwrap()
        };
        for (value, text) in [
            (0.0, "0"),
            (1.0, "1"),
            (-1.5, "-1.5"),
            (1e14, "100000000000000"),
            (1e15, "1e15"),
            (123_456_789.125, "123456789.125"),
            (1.234_567_890_123_456_8e17, "1.2345678901234568e17"),
            (0.000_01, "0.00001"),
            (1e-15, "0.000000000000001"),
            (1e-16, "1e-16"),
            (1_529_143_589_110_247.8, "1529143589110247.8"),
            (-1_964_477_586_526_868.2, "-1964477586526868.2"),
            (9_999_999_999_999_998.0, "9.999999999999998e15"),
            (1.5e-15, "0.0000000000000015"),
            (1.797_693_134_862_315_7e308, "1.7976931348623157e308"),
        ] {
            assert_eq!(shown(value), text);
        }
        let mut into = Vec::new();
        float(0.1, &mut into);
        assert_eq!(into, b"0.1");
    }

    proptest! {
        #[test]
        fn no_number_is_lost(value: f64) {
            let mut into = Vec::new();
            double(value, &mut into);
            if value.is_finite() {
                prop_assert_eq!(String::from_utf8(into).unwrap().parse::<f64>().unwrap(), value);
            }
        }

        #[test]
        fn any_bytes_are_a_decimal_or_refused(raw: Vec<u8>, precision in 0_u8..70, scale in 0_u8..40) {
            let _ = decimal(&raw, precision, scale, &mut Vec::new());
        }
    }
}
