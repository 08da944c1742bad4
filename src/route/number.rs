//! Numbers as Java writes them.

/// The digits of a positive number, and the power of ten of the first one.
fn digits(scientific: &str) -> (String, i32) {
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((scientific, "0"));
    (mantissa.replace('.', ""), exponent.parse().unwrap_or(0))
}

/// `Double.toString` as of Java 19: the shortest digits that name the number, at least two of them. (Java before 19 now and
/// then writes a digit more.)
#[must_use]
pub(super) fn double(number: f64) -> String {
    let two = format!("{:.1e}", number.abs());
    let is_two = two.parse() == Ok(number.abs());
    spell(
        number.is_nan(),
        number.is_infinite(),
        number.is_sign_negative(),
        &format!("{:e}", number.abs()),
        (&two, is_two),
    )
}

/// `Float.toString`, as [`double`].
#[must_use]
pub(super) fn float(number: f32) -> String {
    let two = format!("{:.1e}", number.abs());
    let is_two = two.parse() == Ok(number.abs());
    spell(
        number.is_nan(),
        number.is_infinite(),
        number.is_sign_negative(),
        &format!("{:e}", number.abs()),
        (&two, is_two),
    )
}

/// Java's form of `shortest`; of one digit if two digits, the next shortest, do not name the number.
fn spell(is_nan: bool, is_infinite: bool, is_negative: bool, shortest: &str, (two, is_two): (&str, bool)) -> String {
    if is_nan {
        return "NaN".to_owned();
    }
    let sign = if is_negative { "-" } else { "" };
    if is_infinite {
        return format!("{sign}Infinity");
    }
    let (mut digits, mut exponent) = digits(shortest);
    if digits.len() == 1 && is_two {
        (digits, exponent) = self::digits(two);
    }
    // two digits may end in a zero that Java writes only behind the point
    let trimmed = digits.trim_end_matches('0');
    let digits = if trimmed.is_empty() { "0" } else { trimmed };
    let or_zero = |rest: &str| if rest.is_empty() { "0".to_owned() } else { rest.to_owned() };
    if !(-3..7).contains(&exponent) {
        let (first, rest) = digits.split_at(1);
        return format!("{sign}{first}.{}E{exponent}", or_zero(rest));
    }
    match usize::try_from(exponent) {
        Ok(whole) => {
            let padded = format!("{digits:0<width$}", width = whole + 1);
            let (before, behind) = padded.split_at(whole + 1);
            format!("{sign}{before}.{}", or_zero(behind))
        }
        Err(_) => {
            let zeros = usize::try_from(-1 - exponent).unwrap_or(0);
            format!("{sign}0.{}{digits}", "0".repeat(zeros))
        }
    }
}

/// An exact decimal number: digits without a point, and how many of them stand behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Decimal {
    is_negative: bool,
    /// Without leading zeros; at least one.
    digits: String,
    scale: usize,
}

impl Decimal {
    /// Reads the server's form: `-12.50`.
    #[must_use]
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (is_negative, unsigned) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
        let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
        let all = format!("{whole}{fraction}");
        if all.is_empty() || !all.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let digits = all.trim_start_matches('0');
        let digits = if digits.is_empty() { "0" } else { digits };
        Some(Self { is_negative: is_negative && digits != "0", digits: digits.to_owned(), scale: fraction.len() })
    }

    /// The same number without zeros at the end of its fraction, as `BigDecimal.stripTrailingZeros` with a scale that is
    /// not negative.
    #[must_use]
    pub(super) fn stripped(mut self) -> Self {
        if self.digits == "0" {
            self.scale = 0;
        }
        while self.scale > 0 && self.digits.ends_with('0') {
            self.digits.pop();
            self.scale -= 1;
        }
        self
    }

    /// Digits behind the point.
    #[must_use]
    pub(super) fn scale(&self) -> usize {
        self.scale
    }

    /// `BigDecimal.toString`: with an exponent for numbers smaller than a millionth.
    #[must_use]
    pub(super) fn text(&self) -> String {
        let sign = if self.is_negative { "-" } else { "" };
        let before = i64::try_from(self.digits.len()).unwrap_or(i64::MAX) - 1;
        let exponent = before - i64::try_from(self.scale).unwrap_or(i64::MAX);
        if exponent >= -6 || self.scale == 0 {
            let padded = format!("{:0>width$}", self.digits, width = self.scale + 1);
            let (whole, fraction) = padded.split_at(padded.len() - self.scale);
            let point = if fraction.is_empty() { "" } else { "." };
            return format!("{sign}{whole}{point}{fraction}");
        }
        let (first, rest) = self.digits.split_at(1);
        let point = if rest.is_empty() { "" } else { "." };
        format!("{sign}{first}{point}{rest}E{exponent}")
    }

    /// The number without its point as `BigInteger.toByteArray`: two's complement, big endian, no byte more than needed.
    #[must_use]
    pub(super) fn unscaled(&self) -> Vec<u8> {
        const CHUNK: usize = 9;
        let mut limbs: Vec<u32> = Vec::new();
        let mut rest = self.digits.as_str();
        while !rest.is_empty() {
            let (chunk, behind) = rest.split_at(rest.len().min(CHUNK));
            let factor = 10_u64.pow(u32::try_from(chunk.len()).unwrap_or(0));
            let mut carry: u64 = chunk.parse().unwrap_or(0);
            for limb in &mut limbs {
                let product = u64::from(*limb) * factor + carry;
                *limb = u32::try_from(product & 0xffff_ffff).unwrap_or(0);
                carry = product >> 32;
            }
            if carry > 0 {
                limbs.push(u32::try_from(carry).unwrap_or(0));
            }
            rest = behind;
        }
        let mut bytes: Vec<u8> = limbs.iter().flat_map(|limb| limb.to_le_bytes()).collect();
        bytes.push(0);
        if self.is_negative {
            let mut carry = true;
            for byte in &mut bytes {
                (*byte, carry) = (!*byte).overflowing_add(u8::from(carry));
            }
        }
        // a leading byte that only repeats the sign bit of the next one
        while let [.., next, last] = bytes.as_slice()
            && *last == if next & 0x80 == 0 { 0 } else { 0xff }
        {
            bytes.pop();
        }
        bytes.reverse();
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Values of Java 17 and 21, where they agree.
    #[test]
    fn doubles_are_javas() {
        for (number, text) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (0.5, "0.5"),
            (4.90, "4.9"),
            (1e3, "1000.0"),
            (123_456.789, "123456.789"),
            (9_999_999.0, "9999999.0"),
            (1e7, "1.0E7"),
            (1e10, "1.0E10"),
            (-1.5e300, "-1.5E300"),
            (0.001, "0.001"),
            (0.000_99, "9.9E-4"),
            (f64::MIN_POSITIVE, "2.2250738585072014E-308"),
            (4.9e-324, "4.9E-324"),
            (f64::MAX, "1.7976931348623157E308"),
            (1.234_567_890_123_456_7, "1.2345678901234567"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-Infinity"),
        ] {
            assert_eq!(double(number), text);
        }
        for (number, text) in [(0.1_f32, "0.1"), (1.4e-45, "1.4E-45"), (16_777_216.0, "1.6777216E7"), (100.0, "100.0")]
        {
            assert_eq!(float(number), text);
        }
    }

    #[test]
    fn decimals_are_javas() {
        for (given, text, unscaled) in [
            ("12.50", "12.50", "04e2"),
            ("-1.00", "-1.00", "9c"),
            ("0", "0", "00"),
            ("0.00", "0.00", "00"),
            ("127", "127", "7f"),
            ("128", "128", "0080"),
            ("-128", "-128", "80"),
            ("-129", "-129", "ff7f"),
            ("0.000001", "0.000001", "01"),
            ("0.0000001", "1E-7", "01"),
            ("-0.00000012", "-1.2E-7", "f4"),
            ("0.0000000", "0E-7", "00"),
            ("123456789012345678901234567890", "123456789012345678901234567890", "018ee90ff6c373e0ee4e3f0ad2"),
        ] {
            let decimal = Decimal::parse(given).unwrap();
            assert_eq!(decimal.text(), text, "{given}");
            let hex: String = decimal.unscaled().iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(hex, unscaled, "{given}");
        }
        for wrong in ["", "-", "1e5", "NaN", "1.2.3", "."] {
            assert_eq!(Decimal::parse(wrong), None, "{wrong}");
        }
        let stripped = |text: &str| {
            let decimal = Decimal::parse(text).unwrap().stripped();
            (decimal.text(), decimal.scale())
        };
        assert_eq!(stripped("12.50"), ("12.5".to_owned(), 1));
        assert_eq!(stripped("1200.00"), ("1200".to_owned(), 0));
        assert_eq!(stripped("0.000"), ("0".to_owned(), 0));
    }

    proptest! {
        #[test]
        fn doubles_read_back_as_themselves(number in any::<f64>()) {
            let text = double(number);
            let back: f64 = text.parse().unwrap();
            prop_assert!(back == number || number.is_nan());
        }

        #[test]
        fn unscaled_numbers_are_twos_complement(number in any::<i128>()) {
            let bytes = Decimal::parse(&number.to_string()).unwrap().unscaled();
            let sign = if number < 0 { 0xff } else { 0 };
            let mut full = vec![sign; 17 - bytes.len()];
            full.extend(&bytes);
            prop_assert_eq!(&full[1..], number.to_be_bytes());
            prop_assert!(bytes.len() == 1 || (bytes[0] != sign || (bytes[1] & 0x80 != sign & 0x80)));
        }
    }
}
