//! Times as Ollama writes them.

use cascadia_text::Clock;

use crate::model::frontend::unix_seconds;

/// Now, such as `2026-03-09T14:05:07Z`.
pub(crate) fn now() -> String {
    timestamp(unix_seconds())
}

/// A time in seconds since 1970.
pub(crate) fn timestamp(seconds: u64) -> String {
    let clock = Clock { unix_seconds: seconds.cast_signed(), utc_offset_seconds: 0 };
    clock.format("%Y-%m-%dT%H:%M:%SZ").unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_are_right() {
        let cases = [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_773_065_107, "2026-03-09T14:05:07Z"),
            (4_107_542_399, "2100-02-28T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ];
        for (seconds, text) in cases {
            assert_eq!(timestamp(seconds), text);
        }
    }
}
