//! The time as templates may ask for it.

use std::fmt::Write;

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// A moment, passed in so that rendering depends on nothing but its arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Clock {
    /// Seconds since 1970-01-01 00:00 UTC.
    pub unix_seconds: i64,
    /// What to add to get local time.
    pub utc_offset_seconds: i32,
}

impl Clock {
    /// Formats the local time like Python's `strftime`; `None` for a directive that is not supported.
    pub fn format(self, format: &str) -> Option<String> {
        let local = self.unix_seconds.checked_add(i64::from(self.utc_offset_seconds))?;
        let (days, seconds) = (local.div_euclid(86_400), local.rem_euclid(86_400));
        let date = Date::from_days(days)?;
        let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        let hour12 = (hour + 11) % 12 + 1;
        let weekday = DAYS[(days + 4).rem_euclid(7) as usize];
        let month = MONTHS[date.month as usize - 1];
        let mut text = String::new();
        let mut rest = format.chars();
        while let Some(character) = rest.next() {
            if character != '%' {
                text.push(character);
                continue;
            }
            let mut directive = rest.next()?;
            let unpadded = directive == '-';
            if unpadded {
                directive = rest.next()?;
            }
            let (number, width) = match directive {
                'Y' => (date.year, 4),
                'y' => (date.year.rem_euclid(100), 2),
                'm' => (date.month, 2),
                'd' => (date.day, 2),
                'H' => (hour, 2),
                'I' => (hour12, 2),
                'M' => (minute, 2),
                'S' => (second, 2),
                'j' => (date.day_of_year, 3),
                word => {
                    text.push_str(match word {
                        'B' => month,
                        'b' => &month[..3],
                        'A' => weekday,
                        'a' => &weekday[..3],
                        'p' if hour < 12 => "AM",
                        'p' => "PM",
                        '%' => "%",
                        _ => return None,
                    });
                    continue;
                }
            };
            let width = if unpadded { 0 } else { width };
            write!(text, "{number:0width$}").ok()?;
        }
        Some(text)
    }
}

struct Date {
    year: i64,
    month: i64,
    day: i64,
    day_of_year: i64,
}

impl Date {
    /// The Gregorian date of a day counted from 1970-01-01, for the years 1 to 9999.
    fn from_days(days: i64) -> Option<Date> {
        let mut day = days.checked_add(719_162)?;
        if !(0..3_652_059).contains(&day) {
            return None;
        }
        // Days since 0001-01-01, taken apart into spans of 400, 100, 4 and 1 years; the last day of a leap year would
        // count as a fifth span, hence the caps.
        let spans_400 = day / 146_097;
        day %= 146_097;
        let spans_100 = (day / 36_524).min(3);
        day -= spans_100 * 36_524;
        let spans_4 = day / 1_461;
        day %= 1_461;
        let years = (day / 365).min(3);
        day -= years * 365;
        let year = spans_400 * 400 + spans_100 * 100 + spans_4 * 4 + years + 1;
        let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let lengths = [31, if is_leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        let day_of_year = day + 1;
        let mut month = 0;
        while day >= lengths[month] {
            day -= lengths[month];
            month += 1;
        }
        Some(Date { year, month: month as i64 + 1, day: day + 1, day_of_year })
    }
}
