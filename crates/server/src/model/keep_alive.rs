//! How long a model stays in memory after its last request.

use std::time::Duration;

/// A time after the last request; `None` for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAlive(pub Option<Duration>);

/// The longest time that is not for ever.
const MOST_SECONDS: f64 = 366.0 * 86_400.0;

impl KeepAlive {
    /// So many seconds; for ever if they are negative. `None` for what is no time.
    pub fn of_seconds(seconds: f64) -> Option<KeepAlive> {
        match seconds {
            seconds if seconds.is_nan() || seconds > MOST_SECONDS => None,
            seconds if seconds < 0.0 => Some(KeepAlive(None)),
            seconds => Some(KeepAlive(Some(Duration::from_secs_f64(seconds)))),
        }
    }

    /// A time such as `30s`, `5m`, `1h30m` or `90`, which are seconds; for ever if it is negative, or `forever`.
    pub fn parse(text: &str) -> Option<KeepAlive> {
        if text == "forever" {
            return Some(KeepAlive(None));
        }
        let (sign, mut rest) = text.strip_prefix('-').map_or((1.0, text), |rest| (-1.0, rest));
        let begins = |text: &str| text.starts_with(|c: char| c.is_ascii_digit() || c == '.');
        if let Some(seconds) = rest.parse::<f64>().ok().filter(|_| begins(rest)) {
            return KeepAlive::of_seconds(sign * seconds);
        }
        let mut seconds = 0.0;
        while !rest.is_empty() {
            let (number, after) = rest.split_at(rest.find(|c: char| c.is_ascii_alphabetic())?);
            if !begins(number) {
                return None;
            }
            let (unit, after) = after.split_at(after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len()));
            let factor = match unit {
                "ms" => 0.001,
                "s" => 1.0,
                "m" => 60.0,
                "h" => 3600.0,
                _ => return None,
            };
            seconds += number.parse::<f64>().ok()? * factor;
            rest = after;
        }
        (!text.is_empty()).then(|| KeepAlive::of_seconds(sign * seconds)).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_people_write_them() {
        let seconds = |text: &str| KeepAlive::parse(text).map(|KeepAlive(time)| time.map(|time| time.as_secs_f64()));
        for (text, expected) in [
            ("0", 0.0),
            ("90", 90.0),
            ("30s", 30.0),
            ("5m", 300.0),
            ("1h30m", 5400.0),
            ("250ms", 0.25),
            ("1.5h", 5400.0),
        ] {
            assert_eq!(seconds(text), Some(Some(expected)), "{text}");
        }
        for text in ["-1", "-1m", "forever"] {
            assert_eq!(seconds(text), Some(None), "{text}");
        }
        for text in ["", "m", "5 m", "5x", "5m3", "nan", "inf", "1e30", "5mm", "--1", "5m-3s", "+1"] {
            assert_eq!(seconds(text), None, "{text}");
        }
    }
}
