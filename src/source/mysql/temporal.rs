//! Dates and times as ISO text (MySQL source documentation, "Date and Time Data Type Representation"). Zero and partial
//! dates are kept as they are.

use std::io::Write;

use super::wire::{Malformed, Reader};

/// Bytes of a fraction with so many digits.
pub(super) fn fraction_bytes(digits: u8) -> usize {
    usize::from(digits.min(6)).div_ceil(2)
}

/// The fraction in microseconds. It is stored with an even number of digits.
fn microseconds(reader: &mut Reader<'_>, digits: u8) -> Result<u64, Malformed> {
    let width = fraction_bytes(digits);
    Ok(reader.uint_be(width)? * scale(width))
}

/// What one unit of a fraction of `width` bytes is in microseconds.
fn scale(width: usize) -> u64 {
    match width {
        1 => 10_000,
        2 => 100,
        _ => 1,
    }
}

fn fraction(microseconds: u64, digits: u8, into: &mut Vec<u8>) {
    let digits = usize::from(digits.min(6));
    if digits > 0 {
        let text = format!("{microseconds:06}");
        into.push(b'.');
        into.extend_from_slice(text.as_bytes().get(..digits).unwrap_or_default());
    }
}

/// DATE: three bytes, day, month and year from the low end.
pub(super) fn date(raw: &[u8], into: &mut Vec<u8>) -> Result<(), Malformed> {
    let packed = Reader::new(raw).uint(3)?;
    let _ = write!(into, "{:04}-{:02}-{:02}", packed >> 9, packed >> 5 & 15, packed & 31);
    Ok(())
}

/// YEAR: one byte, counted from 1900; 0 is the year 0000.
pub(super) fn year(raw: &[u8], into: &mut Vec<u8>) -> Result<(), Malformed> {
    let year = u16::from(Reader::new(raw).u8()?);
    let _ = write!(into, "{:04}", if year == 0 { 0 } else { year + 1900 });
    Ok(())
}

/// DATETIME with `digits` of a second.
pub(super) fn datetime(raw: &[u8], digits: u8, into: &mut Vec<u8>) -> Result<(), Malformed> {
    const SIGN: u64 = 0x80_0000_0000;
    let mut reader = Reader::new(raw);
    let packed = reader.uint_be(5)?.checked_sub(SIGN).ok_or_else(|| Malformed::new("a DATETIME is negative"))?;
    let microseconds = microseconds(&mut reader, digits)?;
    date_and_time(packed, into);
    fraction(microseconds, digits, into);
    Ok(())
}

/// Year and month, day, hour, minute, second in 40 bits.
fn date_and_time(packed: u64, into: &mut Vec<u8>) {
    let (day, time) = (packed >> 17, packed & 0x1_FFFF);
    let months = day >> 5;
    let _ = write!(into, "{:04}-{:02}-{:02} ", months / 13, months % 13, day & 31);
    clock(time, into);
}

fn clock(packed: u64, into: &mut Vec<u8>) {
    let _ = write!(into, "{:02}:{:02}:{:02}", packed >> 12, packed >> 6 & 63, packed & 63);
}

/// TIMESTAMP with `digits` of a second, in UTC. Zero is no moment, and has no zone.
pub(super) fn timestamp(raw: &[u8], digits: u8, into: &mut Vec<u8>) -> Result<(), Malformed> {
    let mut reader = Reader::new(raw);
    let seconds = reader.uint_be(4)?;
    let microseconds = microseconds(&mut reader, digits)?;
    moment(seconds, microseconds, digits, into)
}

/// TIMESTAMP of a table that was made before fractions existed.
pub(super) fn old_timestamp(raw: &[u8], into: &mut Vec<u8>) -> Result<(), Malformed> {
    moment(Reader::new(raw).uint(4)?, 0, 0, into)
}

fn moment(seconds: u64, microseconds: u64, digits: u8, into: &mut Vec<u8>) -> Result<(), Malformed> {
    if seconds == 0 && microseconds == 0 {
        into.extend_from_slice(b"0000-00-00 00:00:00");
        fraction(0, digits, into);
        return Ok(());
    }
    let (year, month, day) = civil(seconds / 86_400);
    let second = seconds % 86_400;
    let _ =
        write!(into, "{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60);
    fraction(microseconds, digits, into);
    into.extend_from_slice(b"+00");
    Ok(())
}

/// The calendar day that is `days` after 1970-01-01 (Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms").
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + u64::from(month <= 2), month, day)
}

/// TIME with `digits` of a second: one signed number, shifted so that it is never negative, with the fraction at its end.
pub(super) fn time(raw: &[u8], digits: u8, into: &mut Vec<u8>) -> Result<(), Malformed> {
    let width = fraction_bytes(digits);
    let bits = 8 * width;
    let packed = Reader::new(raw).uint_be(3 + width)?;
    let zero = 0x80_0000_u64 << bits;
    if packed < zero {
        into.push(b'-');
    }
    let magnitude = packed.abs_diff(zero);
    clock(magnitude >> bits, into);
    fraction((magnitude & ((1 << bits) - 1)) * scale(width), digits, into);
    Ok(())
}

/// TIME of a table that was made before fractions existed: decimal digits.
pub(super) fn old_time(raw: &[u8], into: &mut Vec<u8>) -> Result<(), Malformed> {
    let packed = Reader::new(raw).uint(3)?;
    let is_negative = packed & 0x80_0000 != 0;
    let magnitude = if is_negative { 0x100_0000 - packed } else { packed };
    let sign = if is_negative { "-" } else { "" };
    let _ = write!(into, "{sign}{:02}:{:02}:{:02}", magnitude / 10_000, magnitude / 100 % 100, magnitude % 100);
    Ok(())
}

/// DATETIME of a table that was made before fractions existed: decimal digits.
pub(super) fn old_datetime(raw: &[u8], into: &mut Vec<u8>) -> Result<(), Malformed> {
    let packed = Reader::new(raw).u64()?;
    let (date, time) = (packed / 1_000_000, packed % 1_000_000);
    let _ = write!(into, "{:04}-{:02}-{:02} ", date / 10_000, date / 100 % 100, date % 100);
    let _ = write!(into, "{:02}:{:02}:{:02}", time / 10_000, time / 100 % 100, time % 100);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shown(decode: impl FnOnce(&mut Vec<u8>) -> Result<(), Malformed>) -> String {
        let mut into = Vec::new();
        decode(&mut into).unwrap();
        String::from_utf8(into).unwrap()
    }

    #[test]
    fn times_of_every_type() {
        // the manual's example of a packed DATETIME: 2012-06-21 15:45:17
        let packed: u64 = 0x80_0000_0000 | (((2012 * 13 + 6) << 5 | 21) << 17) | (15 << 12 | 45 << 6 | 17);
        let raw = packed.to_be_bytes();
        assert_eq!(shown(|into| datetime(&raw[3..], 0, into)), "2012-06-21 15:45:17");
        let mut with_fraction = raw[3..].to_vec();
        with_fraction.extend_from_slice(&[0x0A, 0x5B, 0x05]);
        assert_eq!(shown(|into| datetime(&with_fraction, 6, into)), "2012-06-21 15:45:17.678661");
        assert_eq!(shown(|into| datetime(&[0x80, 0, 0, 0, 0], 0, into)), "0000-00-00 00:00:00");
        let partial: u64 = 2023 << 9 | 15;
        assert_eq!(shown(|into| date(&partial.to_le_bytes()[..3], into)), "2023-00-15");
        assert_eq!(shown(|into| year(&[124], into)) + &shown(|into| year(&[0], into)), "20240000");
        assert_eq!(shown(|into| timestamp(&[0, 0, 0, 0, 0], 2, into)), "0000-00-00 00:00:00.00");
    }

    #[test]
    fn moments_are_in_utc() {
        let raw = 1_704_164_645_u32.to_be_bytes();
        assert_eq!(shown(|into| timestamp(&raw, 0, into)), "2024-01-02 03:04:05+00");
        let mut raw = u32::MAX.to_be_bytes().to_vec();
        raw.push(99);
        assert_eq!(shown(|into| timestamp(&raw, 2, into)), "2106-02-07 06:28:15.99+00");
        assert_eq!(shown(|into| timestamp(&[0x65, 0xE0, 0x06, 0x00], 0, into)), "2024-02-29 04:20:16+00");
    }

    #[test]
    fn negative_times_keep_their_fraction() {
        // -12:34:56.78 as TIME(2)
        let magnitude: u64 = (12 << 12 | 34 << 6 | 56) << 8 | 78;
        let raw = ((0x80_0000_u64 << 8) - magnitude).to_be_bytes();
        assert_eq!(shown(|into| time(&raw[4..], 2, into)), "-12:34:56.78");
        assert_eq!(shown(|into| time(&[0x80, 0, 0], 0, into)), "00:00:00");
        let magnitude: u64 = (838 << 12 | 59 << 6 | 59) << 24;
        let raw = ((0x80_0000_u64 << 24) + magnitude).to_be_bytes();
        assert_eq!(shown(|into| time(&raw[2..], 6, into)), "838:59:59.000000");
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_time_or_refused(raw: Vec<u8>, digits in 0_u8..9) {
            let into = &mut Vec::new();
            let _ = (date(&raw, into), year(&raw, into), datetime(&raw, digits, into), timestamp(&raw, digits, into));
            let _ = (time(&raw, digits, into), old_time(&raw, into), old_datetime(&raw, into));
        }
    }
}
