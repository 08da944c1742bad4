//! Dates, times and spans of time, from the server's text to Debezium's counts or to ISO text.

const SECOND_US: i64 = 1_000_000;
const DAY_US: i64 = 86_400 * SECOND_US;

/// What Debezium sends for an infinite timestamp, in microseconds.
const INFINITY_US: i64 = 9_223_372_036_825_200_000;
const MINUS_INFINITY_US: i64 = -9_223_372_036_832_400_000;

/// A calendar day; years before Christ are zero and less.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Day {
    year: i64,
    month: i64,
    day: i64,
}

impl Day {
    /// Reads `YYYY-MM-DD`.
    fn parse(text: &str, is_before_christ: bool) -> Option<Self> {
        let mut parts = text.splitn(3, '-').map(|part| part.parse::<u32>().ok().map(i64::from));
        let mut part = || parts.next().flatten();
        let (year, month, day) = (part()?, part()?, part()?);
        let year = if is_before_christ { 1 - year } else { year };
        ((1..=12).contains(&month) && (1..=31).contains(&day)).then_some(Self { year, month, day })
    }

    /// Days since 1970-01-01 in the Gregorian calendar, counted in years that begin in March and eras of 400 years.
    fn since_1970(self) -> i64 {
        let year = if self.month <= 2 { self.year - 1 } else { self.year };
        let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
        let day_of_year = (153 * ((self.month + 9) % 12) + 2) / 5 + self.day - 1;
        let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
        era * 146_097 + day_of_era - 719_468
    }

    /// `YYYY-MM-DD` as Java writes it: years of more than four digits have a sign.
    fn iso(self) -> String {
        let sign = match self.year {
            10_000.. => "+",
            0.. => "",
            _ => "-",
        };
        format!("{sign}{:04}-{:02}-{:02}", self.year.abs(), self.month, self.day)
    }
}

/// The text without `BC`, and whether it was there.
fn era(text: &str) -> (&str, bool) {
    text.strip_suffix(" BC").map_or((text, false), |text| (text, true))
}

/// Days since 1970-01-01; `None` for infinity.
#[must_use]
pub(super) fn days(text: &str) -> Option<i64> {
    let (text, is_before_christ) = era(text);
    Day::parse(text, is_before_christ).map(Day::since_1970)
}

/// Day and time of an ISO text, in UTC if it has a zone.
fn day_and_time(text: &str) -> Option<(Day, &str)> {
    let (text, is_before_christ) = era(text);
    let (day, time) = text.strip_suffix("+00").unwrap_or(text).split_once(' ')?;
    Some((Day::parse(day, is_before_christ)?, time))
}

/// Microseconds since 1970-01-01 of an ISO text, taken as UTC; `None` for infinity.
#[must_use]
pub(super) fn microseconds(text: &str) -> Option<i64> {
    let (day, time) = day_and_time(text)?;
    day.since_1970().checked_mul(DAY_US)?.checked_add(time_of_day(time)?)
}

/// The same with Debezium's numbers for infinity.
#[must_use]
pub(super) fn count(text: &str) -> Option<i64> {
    match text {
        "infinity" => Some(INFINITY_US),
        "-infinity" => Some(MINUS_INFINITY_US),
        _ => microseconds(text),
    }
}

/// `2024-01-02` of a day; `None` for infinity.
#[must_use]
pub(super) fn iso_date(text: &str) -> Option<String> {
    let (text, is_before_christ) = era(text);
    Day::parse(text, is_before_christ).map(Day::iso)
}

/// `2024-01-02T03:04:05.6` of a time without zone; `None` for infinity.
#[must_use]
pub(super) fn iso(text: &str) -> Option<String> {
    let (day, time) = day_and_time(text)?;
    Some(format!("{}T{time}", day.iso()))
}

/// `2024-01-02T03:04:05.600000Z` of a moment in UTC, with as many digits behind the point as the column keeps, which is
/// what Debezium writes; `None` for infinity.
#[must_use]
pub(super) fn iso_utc(text: &str, digits: u8) -> Option<String> {
    let (day, time) = day_and_time(text)?;
    let (day, width) = (day.iso(), usize::from(digits));
    if width == 0 {
        return Some(format!("{day}T{time}Z"));
    }
    let (seconds, fraction) = time.split_once('.').unwrap_or((time, ""));
    Some(format!("{day}T{seconds}.{fraction:0<width$}Z"))
}

/// Microseconds since midnight of `HH:MM:SS.ffffff`; MySQL's may be negative, or more than a day.
#[must_use]
pub(super) fn time_of_day(text: &str) -> Option<i64> {
    let (sign, text) = text.strip_prefix('-').map_or((1, text), |rest| (-1, rest));
    let mut parts = text.splitn(3, ':');
    let mut whole = || parts.next()?.parse::<u32>().ok().map(i64::from);
    let (hours, minutes) = (whole()?, whole()?);
    let seconds = seconds_us(parts.next().unwrap_or("0"))?;
    Some(sign * ((hours * 60 + minutes) * 60 * SECOND_US + seconds))
}

/// Microseconds of `SS.ffffff`, without a sign.
fn seconds_us(text: &str) -> Option<i64> {
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    if fraction.len() > 6 || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let fraction: i64 = format!("{fraction:0<6}").parse().ok()?;
    Some(i64::from(seconds.parse::<u32>().ok()?) * SECOND_US + fraction)
}

/// `HH:MM:SS.fZ` of a time of day with an offset, moved to UTC.
#[must_use]
pub(super) fn time_utc(text: &str) -> Option<String> {
    let at = text.rfind(['+', '-'])?;
    let (time, offset) = text.split_at_checked(at)?;
    let local = time_of_day(time)?;
    let (sign, offset) = if offset.starts_with('-') { (-1, offset) } else { (1, offset) };
    let mut parts = offset.get(1..)?.split(':').map(|part| part.parse::<u32>().ok().map(i64::from));
    let mut part = || parts.next().unwrap_or(Some(0));
    let offset = sign * ((part()? * 60 + part()?) * 60 + part()?);
    let utc = (local - offset * SECOND_US).rem_euclid(DAY_US);
    let (seconds, fraction) = (utc / SECOND_US, utc % SECOND_US);
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let fraction = format!(".{fraction:06}");
    Some(format!("{hours:02}:{minutes:02}:{seconds:02}{}Z", fraction.trim_end_matches('0').trim_end_matches('.')))
}

/// A span of time in PostgreSQL's units.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Span {
    years: i32,
    months: i32,
    days: i32,
    hours: i32,
    minutes: i32,
    /// The seconds, in microseconds.
    seconds_us: i64,
}

impl Span {
    /// Reads `1 year 2 mons -3 days 04:05:06.789` (`IntervalStyle` postgres).
    #[must_use]
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut span = Self::default();
        let mut words = text.split(' ');
        while let Some(word) = words.next() {
            if word.contains(':') {
                let (sign, clock) = word.strip_prefix('-').map_or((1, word), |rest| (-1, rest));
                let mut parts = clock.trim_start_matches('+').splitn(3, ':');
                let mut number = || parts.next()?.parse::<i32>().ok();
                span.hours = sign * number()?;
                span.minutes = sign * number()?;
                span.seconds_us = i64::from(sign) * seconds_us(parts.next().unwrap_or("0"))?;
                continue;
            }
            let count: i32 = word.parse().ok()?;
            match words.next()? {
                "year" | "years" => span.years = count,
                "mon" | "mons" => span.months = count,
                "day" | "days" => span.days = count,
                _ => return None,
            }
        }
        Some(span)
    }

    /// Microseconds, a month taken as a twelfth of 365.25 days: Debezium's `MicroDuration`, with its arithmetic. A span has
    /// at most 178,000,000 years, so that nothing is cut off.
    #[must_use]
    #[expect(clippy::as_conversions, reason = "the arithmetic is defined in floating point; the cast saturates")]
    pub(super) fn microseconds(self) -> i64 {
        let months = f64::from(self.years) * 12.0 + f64::from(self.months);
        let days = months * (365.25 / 12.0) + f64::from(self.days);
        let seconds = self.seconds_us as f64 / 1e6;
        let seconds = ((days * 24.0 + f64::from(self.hours)) * 60.0 + f64::from(self.minutes)) * 60.0 + seconds;
        (seconds * 1e6) as i64
    }

    /// ISO 8601: `P1Y2M3DT4H5M6.789S`.
    #[must_use]
    pub(super) fn iso(self) -> String {
        let sign = if self.seconds_us < 0 { "-" } else { "" };
        let seconds = self.seconds_us.unsigned_abs();
        let fraction = format!(".{:06}", seconds % 1_000_000);
        let seconds = format!("{sign}{}{}", seconds / 1_000_000, fraction.trim_end_matches('0').trim_end_matches('.'));
        let Self { years, months, days, hours, minutes, .. } = self;
        format!("P{years}Y{months}M{days}DT{hours}H{minutes}M{seconds}S")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn moments_have_the_columns_digits() {
        for (text, digits, expected) in [
            ("2024-01-02 03:04:05.000006+00", 6, "2024-01-02T03:04:05.000006Z"),
            ("2024-01-02 03:04:05.6+00", 6, "2024-01-02T03:04:05.600000Z"),
            ("2024-01-02 03:04:05+00", 3, "2024-01-02T03:04:05.000Z"),
            ("2024-01-02 03:04:05+00", 0, "2024-01-02T03:04:05Z"),
        ] {
            assert_eq!(iso_utc(text, digits).as_deref(), Some(expected));
        }
        for (text, digits, expected) in [
            ("12345-01-02 03:04:05+00", 6, "+12345-01-02T03:04:05.000000Z"),
            ("2026-01-02 03:04:05+00 BC", 6, "-2025-01-02T03:04:05.000000Z"),
            ("0001-01-02 03:04:05+00 BC", 0, "0000-01-02T03:04:05Z"),
        ] {
            assert_eq!(iso_utc(text, digits).as_deref(), Some(expected));
        }
        assert_eq!(iso_utc("infinity", 6), None);
        assert_eq!(iso_date("12345-01-02").as_deref(), Some("+12345-01-02"));
        assert_eq!(iso("2024-01-02 03:04:05.6").as_deref(), Some("2024-01-02T03:04:05.6"));
        assert_eq!(iso("-infinity"), None);
    }

    /// Numbers that a running Debezium gave.
    #[test]
    fn days_and_timestamps_are_counted() {
        for (text, expected) in [
            ("2026-01-02", Some(20_455)),
            ("1970-01-01", Some(0)),
            ("1969-12-31", Some(-1)),
            ("0001-01-01", Some(-719_162)),
            ("2026-01-02 BC", Some(-1_459_143)),
            ("12345-01-02", Some(3_789_392)),
            ("infinity", None),
            ("2026-13-01", None),
            ("2026-01", None),
        ] {
            assert_eq!(days(text), expected, "{text}");
        }
        for (text, expected) in [
            ("2026-01-02 03:04:05.678901", Some(1_767_323_045_678_901)),
            ("1969-12-31 23:59:59.5", Some(-500_000)),
            ("0001-01-01 00:00:00", Some(-62_135_596_800_000_000)),
            ("12345-01-02 03:04:05", Some(327_403_479_845_000_000)),
            ("2026-01-02 03:04:05 BC", Some(-126_069_944_155_000_000)),
            ("infinity", Some(9_223_372_036_825_200_000)),
            ("-infinity", Some(-9_223_372_036_832_400_000)),
            ("999999999-01-01 00:00:00", None),
        ] {
            assert_eq!(count(text), expected, "{text}");
        }
        assert_eq!(microseconds("infinity"), None);
    }

    proptest! {
        /// Every day of the calendar of another library.
        #[test]
        fn days_are_those_of_the_calendar(day in -700_000..2_900_000_i64) {
            let date = jiff::civil::Date::new(1970, 1, 1).unwrap().saturating_add(jiff::Span::new().days(day));
            let text = date.to_string();
            prop_assume!(!text.starts_with('-'));
            prop_assert_eq!(days(&text), Some(day));
        }
    }

    #[test]
    fn times_of_day() {
        assert_eq!(time_of_day("00:00:00"), Some(0));
        assert_eq!(time_of_day("13:51:30.123456"), Some(49_890_123_456));
        assert_eq!(time_of_day("24:00:00"), Some(DAY_US));
        assert_eq!(time_of_day("-838:59:59.5"), Some(-3_020_399_500_000));
        for wrong in ["", "1", "a:b:c", "00:00:00.1234567", "00:-1:00"] {
            assert_eq!(time_of_day(wrong), None, "{wrong}");
        }
        for (text, expected) in [
            ("13:51:30.123789+02", "11:51:30.123789Z"),
            ("13:51:30.1+02", "11:51:30.1Z"),
            ("00:30:00+05:45", "18:45:00Z"),
            ("23:30:00-01:00:30", "00:30:30Z"),
            ("24:00:00+00", "00:00:00Z"),
        ] {
            assert_eq!(time_utc(text).as_deref(), Some(expected));
        }
        assert_eq!(time_utc("13:51"), None);
    }

    #[test]
    fn spans() {
        let micros = |text| Span::parse(text).map(Span::microseconds);
        assert_eq!(micros("00:00:00"), Some(0));
        assert_eq!(micros("3 days 04:05:06.789"), Some((((3 * 24 + 4) * 60 + 5) * 60 + 6) * SECOND_US + 789_000));
        assert_eq!(micros("1 year 2 mons 3 days 04:05:06"), Some(37_091_106_000_000));
        assert_eq!(micros("-1 years"), Some(-31_557_600_000_000));
        assert_eq!(micros("1 day -00:00:01"), Some(86_399_000_000));
        assert_eq!(micros("soon"), None);
        let iso = |text| Span::parse(text).map(Span::iso);
        assert_eq!(iso("1 year 2 mons 3 days 04:05:06.789").as_deref(), Some("P1Y2M3DT4H5M6.789S"));
        assert_eq!(iso("-00:00:01.5").as_deref(), Some("P0Y0M0DT0H0M-1.5S"));
    }
}
