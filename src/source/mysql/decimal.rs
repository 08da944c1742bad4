//! Packed decimals as text (MySQL source, `strings/decimal.cc`, `decimal2bin`): groups of nine digits in four bytes, the odd
//! digits of the whole part before them and those of the fraction behind them in fewer bytes, big-endian. The highest bit
//! is set for a number that is not negative; of a negative one all bits are inverted.

use std::io::Write;

/// Most digits: nine groups. A column has up to 65; JSON counts the groups of the whole part as full ones.
const MAX_PRECISION: u8 = 81;

/// Most digits of the fraction.
const MAX_SCALE: u8 = 30;

/// Digits in a full group.
const GROUP: usize = 9;

/// Bytes of so many digits.
const GROUP_BYTES: [usize; GROUP + 1] = [0, 1, 1, 2, 2, 3, 3, 4, 4, 4];

/// A packed decimal is not one of its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecimalError {
    /// No such type.
    #[error("DECIMAL({precision},{scale}) is no type")]
    Type {
        /// Digits of the type.
        precision: u8,
        /// Digits behind the point.
        scale: u8,
    },
    /// Too many bytes, or too few.
    #[error("a DECIMAL({precision},{scale}) has {length} bytes")]
    Length {
        /// Digits of the type.
        precision: u8,
        /// Digits behind the point.
        scale: u8,
        /// How many bytes there are.
        length: usize,
    },
    /// A group of digits is larger than it can be.
    #[error("a DECIMAL has the group {0}, which has too many digits")]
    Group(u32),
}

/// How many bytes a packed decimal has; `None` if there is no such type.
#[must_use]
pub fn packed_bytes(precision: u8, scale: u8) -> Option<usize> {
    let bytes = |digits: u8| {
        let digits = usize::from(digits);
        digits / GROUP * 4 + GROUP_BYTES.get(digits % GROUP).copied().unwrap_or_default()
    };
    let whole = precision.checked_sub(scale)?;
    (1..=MAX_PRECISION).contains(&precision).then_some(())?;
    (scale <= MAX_SCALE).then(|| bytes(whole) + bytes(scale))
}

/// Appends a packed decimal with all digits of its scale, as the server prints it.
///
/// # Errors
/// What is wrong with the bytes; some text may have been appended.
pub fn write_text(raw: &[u8], precision: u8, scale: u8, out: &mut Vec<u8>) -> Result<(), DecimalError> {
    let bytes = packed_bytes(precision, scale).ok_or(DecimalError::Type { precision, scale })?;
    let (Some(first), true) = (raw.first(), raw.len() == bytes) else {
        return Err(DecimalError::Length { precision, scale, length: raw.len() });
    };
    let is_negative = first & 0x80 == 0;
    let invert = if is_negative { 0xFF } else { 0 };
    let mut digits = raw.iter().enumerate().map(|(at, byte)| byte ^ invert ^ if at == 0 { 0x80 } else { 0 });
    // zero has no sign
    if is_negative && digits.clone().any(|byte| byte != 0) {
        out.push(b'-');
    }
    let mut group = |digit_count: usize| {
        let width = GROUP_BYTES.get(digit_count).copied().unwrap_or_default();
        let value = digits.by_ref().take(width).fold(0_u32, |value, byte| value << 8 | u32::from(byte));
        let limit = u32::try_from(digit_count).ok().and_then(|count| 10_u32.checked_pow(count));
        if limit.is_some_and(|limit| value < limit) { Ok(value) } else { Err(DecimalError::Group(value)) }
    };
    let (whole, scale) = (usize::from(precision - scale), usize::from(scale));
    let mut has_begun = false;
    for digit_count in std::iter::once(whole % GROUP).chain(std::iter::repeat_n(GROUP, whole / GROUP)) {
        let value = group(digit_count)?;
        if has_begun {
            let _ = write!(out, "{value:0digit_count$}");
        } else if value > 0 {
            let _ = write!(out, "{value}");
            has_begun = true;
        }
    }
    if !has_begun {
        out.push(b'0');
    }
    if scale > 0 {
        out.push(b'.');
    }
    for digit_count in std::iter::repeat_n(GROUP, scale / GROUP).chain(std::iter::once(scale % GROUP)) {
        let value = group(digit_count)?;
        if digit_count > 0 {
            let _ = write!(out, "{value:0digit_count$}");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shown(raw: &[u8], precision: u8, scale: u8) -> String {
        let mut out = Vec::new();
        write_text(raw, precision, scale, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn decimals_are_the_servers() {
        // the example in the server's source: 1234567890.1234
        let packed = [0x81, 0x0D, 0xFB, 0x38, 0xD2, 0x04, 0xD2];
        assert_eq!(shown(&packed, 14, 4), "1234567890.1234");
        assert_eq!(shown(&packed.map(|byte| !byte), 14, 4), "-1234567890.1234");
        assert_eq!(shown(&[0x80, 0], 4, 2), "0.00");
        assert_eq!(shown(&[0x7F, 0xFF], 4, 2), "0.00");
        assert_eq!(shown(&[0x7F, 0xFE], 4, 2), "-0.01");
        assert_eq!(shown(&[0x80], 2, 0), "0");
        assert_eq!(shown(&[0x85], 1, 1), "0.5");
    }

    #[test]
    fn what_is_no_decimal_is_refused() {
        let refused = |raw: &[u8], precision, scale| write_text(raw, precision, scale, &mut Vec::new()).unwrap_err();
        assert_eq!(refused(&[0x80], 4, 2), DecimalError::Length { precision: 4, scale: 2, length: 1 });
        assert_eq!(refused(&[], 4, 2), DecimalError::Length { precision: 4, scale: 2, length: 0 });
        for (precision, scale) in [(0, 0), (2, 4), (82, 0), (40, 31)] {
            assert_eq!(refused(&[0; 9], precision, scale), DecimalError::Type { precision, scale });
        }
        assert_eq!(refused(&[0x80 + 100, 0], 4, 2), DecimalError::Group(100));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_decimal_or_refused(raw: Vec<u8>, precision in 0_u8..70, scale in 0_u8..40) {
            let _ = write_text(&raw, precision, scale, &mut Vec::new());
        }
    }
}
