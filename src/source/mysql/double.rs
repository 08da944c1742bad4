//! Floating-point numbers as text: in the server's form (MySQL source, `strings/dtoa.cc`, `my_gcvt`), and as Debezium
//! does in JSON.
//!
//! The server's form depends on how much room it gives a number: in documents, and where SELECT shows a column, it is
//! enough for every digit, so only the size decides between zeros and an exponent. `CAST(… AS CHAR)` on MySQL gives less
//! and takes the exponent earlier; that form is nowhere here. A DOUBLE or FLOAT column is read from this text again and
//! published as Java writes it; a JSON document is published with it.

use std::io::Write;

/// Digits up to which the server writes zeros in place of an exponent (`DBL_DIG`).
const MAX_PLAIN: i32 = 15;

/// Digits that a number can need to be told from its neighbours.
const MAX_DIGITS: usize = 17;

/// The shortest digits that are a number again when they are read, without its sign.
struct Digits {
    /// Without zeros at the end, but for zero itself.
    digits: [u8; MAX_DIGITS],
    count: usize,
    /// How many stand before the point.
    point: i32,
}

impl Digits {
    /// Of a finite number.
    fn of(value: f64) -> Self {
        let mut digits = Self::read(format_args!("{:e}", value.abs()));
        if digits.count + 1 >= MAX_DIGITS {
            digits.even(value);
        }
        digits
    }

    fn read(number: std::fmt::Arguments<'_>) -> Self {
        let mut digits = Self { digits: [b'0'; MAX_DIGITS], count: 0, point: 1 };
        let text = number.to_string();
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        for (digit, slot) in mantissa.bytes().filter(u8::is_ascii_digit).zip(&mut digits.digits) {
            *slot = digit;
            digits.count += 1;
        }
        digits.point += exponent.parse::<i32>().unwrap_or_default();
        digits
    }

    fn text(&self) -> &[u8] {
        self.digits.get(..self.count).unwrap_or_default()
    }

    /// Where the number lies in the very middle between two shortest ones, the server takes the even one.
    fn even(&mut self, value: f64) {
        let exact = format!("{:.25e}", value.abs());
        let mantissa = exact.split_once('e').map_or("", |(mantissa, _)| mantissa);
        let all: Vec<u8> = mantissa.bytes().filter(u8::is_ascii_digit).collect();
        let Some((kept, rest)) = all.split_at_checked(self.count) else { return };
        let is_middle =
            rest.split_first().is_some_and(|(five, zeros)| *five == b'5' && zeros.iter().all(|z| *z == b'0'));
        if !is_middle || kept.last().is_none_or(|digit| digit % 2 == 1) {
            return;
        }
        for (slot, digit) in self.digits.iter_mut().zip(kept) {
            *slot = *digit;
        }
    }
}

/// Appends a finite number as the server prints a DOUBLE.
pub fn write_text(value: f64, out: &mut Vec<u8>) {
    server(&Digits::of(value), value.is_sign_negative(), out);
}

/// Appends a finite number of a FLOAT in the server's form. Its SELECT shows six digits; here are all that are needed to
/// read the same number again.
pub fn write_float(value: f32, out: &mut Vec<u8>) {
    server(&Digits::read(format_args!("{:e}", value.abs())), value.is_sign_negative(), out);
}

fn server(digits: &Digits, is_negative: bool, out: &mut Vec<u8>) {
    if is_negative {
        out.push(b'-');
    }
    let text = digits.text();
    let count = i32::try_from(digits.count).unwrap_or(i32::MAX);
    if digits.point > -MAX_PLAIN && (digits.point <= MAX_PLAIN || count > digits.point) {
        plain(text, digits.point, out);
        return;
    }
    let (first, rest) = text.split_at_checked(1).unwrap_or((text, &[]));
    out.extend_from_slice(first);
    if !rest.is_empty() {
        out.push(b'.');
        out.extend_from_slice(rest);
    }
    let _ = write!(out, "e{}", digits.point - 1);
}

/// Digits with `point` of them before the point, with no exponent.
fn plain(text: &[u8], point: i32, out: &mut Vec<u8>) {
    match usize::try_from(point) {
        Ok(point) if point > 0 => {
            let (whole, fraction) = text.split_at_checked(point).unwrap_or((text, &[]));
            out.extend_from_slice(whole);
            out.extend(std::iter::repeat_n(b'0', point - whole.len()));
            if !fraction.is_empty() {
                out.push(b'.');
                out.extend_from_slice(fraction);
            }
        }
        _ => {
            out.extend_from_slice(b"0.");
            out.extend(std::iter::repeat_n(b'0', usize::try_from(-point).unwrap_or_default()));
            out.extend_from_slice(text);
        }
    }
}

/// Appends a finite number as Debezium writes it in JSON: shortest from a thousandth to ten million, as Java has it, and
/// with all digits of its binary value outside of that.
pub fn write_java_plain(value: f64, out: &mut Vec<u8>) {
    let magnitude = value.abs();
    if value == 0.0 || (1e-3..1e7).contains(&magnitude) {
        if value.is_sign_negative() {
            out.push(b'-');
        }
        let begin = out.len();
        let digits = Digits::of(value);
        plain(digits.text(), digits.point, out);
        if !out.get(begin..).unwrap_or_default().contains(&b'.') {
            out.extend_from_slice(b".0");
        }
        return;
    }
    /// The smallest number has so many digits behind the point.
    const MAX_FRACTION: usize = 1074;
    let exact = format!("{value:.MAX_FRACTION$}");
    out.extend_from_slice(exact.trim_end_matches('0').trim_end_matches('.').as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shown(value: f64) -> String {
        let mut out = Vec::new();
        write_text(value, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn numbers_are_the_servers() {
        for (value, text) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (-1.5, "-1.5"),
            (1e14, "100000000000000"),
            (1e15, "1e15"),
            (1_234_567_890_123_456.8, "1234567890123456.8"),
            (1_628_158_625_711_594.0 + 0.25, "1628158625711594.2"),
            (770_561_754_576_773.0 + 0.25, "770561754576773.2"),
            (770_561_754_576_773.0 + 0.75, "770561754576773.8"),
            (123_456_789.125, "123456789.125"),
            (1.234_567_890_123_456_8e17, "1.2345678901234568e17"),
            (0.000_01, "0.00001"),
            (1e-15, "0.000000000000001"),
            (1e-16, "1e-16"),
            (5e-324, "5e-324"),
            (1.797_693_134_862_315_7e308, "1.7976931348623157e308"),
        ] {
            assert_eq!(shown(value), text);
        }
        for (value, text) in
            [(0.1_f32, "0.1"), (16_777_216.0, "16777216"), (-1.234_567_9, "-1.2345679"), (1e20, "1e20")]
        {
            let mut out = Vec::new();
            write_float(value, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), text);
        }
    }

    #[test]
    fn numbers_are_debeziums() {
        for (value, text) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.5, "1.5"),
            (0.001, "0.001"),
            (9_999_999.0, "9999999.0"),
            (1e7, "10000000"),
            (12_345_678.5, "12345678.5"),
            (1e22, "10000000000000000000000"),
            (1e23, "99999999999999991611392"),
            (0.000_5, "0.0005000000000000000104083408558608425664715468883514404296875"),
        ] {
            let mut out = Vec::new();
            write_java_plain(value, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), text);
        }
    }

    proptest! {
        #[test]
        fn no_number_is_lost(value in prop::num::f64::NORMAL | prop::num::f64::SUBNORMAL | prop::num::f64::ZERO) {
            prop_assert_eq!(shown(value).parse::<f64>().unwrap().to_bits(), value.to_bits());
            let mut out = Vec::new();
            write_java_plain(value, &mut out);
            prop_assert_eq!(String::from_utf8(out).unwrap().parse::<f64>().unwrap().to_bits(), value.to_bits());
        }
    }
}
