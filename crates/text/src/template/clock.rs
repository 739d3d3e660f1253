//! The time for templates, formatted like Python's `strftime`.

use std::fmt::Write;

use chrono::{DateTime, Datelike};

/// The supported directives of `strftime` that are numbers; a `-` before one leaves out its padding.
const NUMBERS: &str = "HIMSYdjmy";
/// Those that are words, and `%` itself.
const WORDS: &str = "ABabp%";

/// A moment, passed in so that rendering depends on nothing but its arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Clock {
    /// Seconds since 1970-01-01 00:00 UTC.
    pub unix_seconds: i64,
    /// What to add to get local time.
    pub utc_offset_seconds: i32,
}

impl Clock {
    /// Formats the local time like Python's `strftime`; `None` for a directive that is not supported, and outside the
    /// years 1 to 9999, which are all that Python knows.
    pub fn format(self, format: &str) -> Option<String> {
        let local = self.unix_seconds.checked_add(i64::from(self.utc_offset_seconds))?;
        let time = DateTime::from_timestamp(local, 0).filter(|time| (1..=9999).contains(&time.year()))?;
        let mut text = String::new();
        write!(text, "{}", time.format(&supported(format)?)).ok()?;
        Some(text)
    }
}

/// The format, if it has only directives on which Python and every platform agree. Words have no padding to leave out.
fn supported(format: &str) -> Option<String> {
    let mut supported = String::with_capacity(format.len());
    let mut rest = format.chars();
    while let Some(character) = rest.next() {
        supported.push(character);
        if character != '%' {
            continue;
        }
        let (is_unpadded, directive) = match rest.next()? {
            '-' => (true, rest.next()?),
            directive => (false, directive),
        };
        if !NUMBERS.contains(directive) && !WORDS.contains(directive) {
            return None;
        }
        if is_unpadded && NUMBERS.contains(directive) {
            supported.push('-');
        }
        supported.push(directive);
    }
    Some(supported)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(unix_seconds: i64, utc_offset_seconds: i32, format: &str, expected: Option<&str>) {
        let clock = Clock { unix_seconds, utc_offset_seconds };
        assert_eq!(clock.format(format).as_deref(), expected, "{clock:?} {format}");
    }

    #[test]
    fn every_directive_is_that_of_python() {
        let moment = 1_773_065_107;
        let cases = [
            ("%Y-%m-%d %H:%M:%S", "2026-03-09 14:05:07"),
            ("%y %j %I %p", "26 068 02 PM"),
            ("%A %a %B %b", "Monday Mon March Mar"),
            ("%-d.%-m.%-y %-H:%-M:%-S %-I %-j %-Y", "9.3.26 14:5:7 2 68 2026"),
            ("100%% %-B é", "100% March é"),
            ("", ""),
        ];
        for (format, expected) in cases {
            check(moment, 0, format, Some(expected));
        }
        for wrong in ["%", "%-", "%Z", "%5d", "%_d", "%é", "%s", "%-", "%:z", "%^a"] {
            check(moment, 0, wrong, None);
        }
    }

    #[test]
    fn dates_are_right_in_leap_years_and_far_away() {
        let format = "%Y-%m-%d %j %a %H:%M:%S";
        let cases = [
            (0, 0, "1970-01-01 001 Thu 00:00:00"),
            (-1, 0, "1969-12-31 365 Wed 23:59:59"),
            (951_782_400, 0, "2000-02-29 060 Tue 00:00:00"),
            (978_307_199, 0, "2000-12-31 366 Sun 23:59:59"),
            (4_107_542_399, 0, "2100-02-28 059 Sun 23:59:59"),
            (4_107_542_400, 0, "2100-03-01 060 Mon 00:00:00"),
            (1_709_164_800, -1, "2024-02-28 059 Wed 23:59:59"),
            (1_709_164_800, 3600, "2024-02-29 060 Thu 01:00:00"),
            (-62_135_596_800, 0, "0001-01-01 001 Mon 00:00:00"),
            (253_402_300_799, 0, "9999-12-31 365 Fri 23:59:59"),
        ];
        for (seconds, offset, expected) in cases {
            check(seconds, offset, format, Some(expected));
        }
        for (seconds, offset) in [(-62_135_596_801, 0), (253_402_300_799, 1), (i64::MAX, 1), (i64::MIN, -1)] {
            check(seconds, offset, format, None);
        }
    }
}
