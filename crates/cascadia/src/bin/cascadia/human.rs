//! Sizes, ages and tables as people read them.

use std::time::{Duration, SystemTime};

/// A number of bytes in powers of 1000, as shops and Ollama count them.
pub(crate) fn size(bytes: u64) -> String {
    match bytes as f64 {
        bytes if bytes >= 1e9 => format!("{:.1} GB", bytes / 1e9),
        bytes if bytes >= 1e6 => format!("{:.0} MB", bytes / 1e6),
        bytes => format!("{:.0} kB", bytes / 1e3),
    }
}

/// How long ago something was.
pub(crate) fn age(since: SystemTime, now: SystemTime) -> String {
    // A clock may have been set back.
    let seconds = now.duration_since(since).unwrap_or(Duration::ZERO).as_secs();
    let units = [
        ("year", 31_556_952),
        ("month", 2_629_746),
        ("week", 604_800),
        ("day", 86_400),
        ("hour", 3600),
        ("minute", 60),
    ];
    let unit = units.into_iter().find(|(_, length)| seconds >= *length);
    unit.map_or_else(
        || "just now".to_owned(),
        |(unit, length)| {
            let count = seconds / length;
            format!("{count} {unit}{} ago", if count == 1 { "" } else { "s" })
        },
    )
}

/// Rows below their headings, each column as wide as its longest cell.
pub(crate) fn table<const N: usize>(headings: [&str; N], rows: Vec<[String; N]>) -> String {
    let rows: Vec<[String; N]> = [headings.map(str::to_owned)].into_iter().chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let widths: [usize; N] = std::array::from_fn(width);
    let line = |row: &[String; N]| {
        let cells: Vec<String> = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        format!("{}\n", cells.join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_ages_are_short() {
        for (bytes, expected) in [(0, "0 kB"), (98_362_432, "98 MB"), (1_234_567_890, "1.2 GB"), (5_000, "5 kB")] {
            assert_eq!(size(bytes), expected);
        }
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(4_000_000_000);
        for (seconds, expected) in [
            (0, "just now"),
            (60, "1 minute ago"),
            (7300, "2 hours ago"),
            (86_400, "1 day ago"),
            (15 * 86_400, "2 weeks ago"),
            (100 * 86_400, "3 months ago"),
            (800 * 86_400, "2 years ago"),
        ] {
            assert_eq!(age(now - Duration::from_secs(seconds), now), expected);
        }
        assert_eq!(age(now + Duration::from_secs(60), now), "just now");
    }

    #[test]
    fn columns_are_aligned() {
        let rows = vec![["smollm2:135m".to_owned(), "98 MB".to_owned()], ["ä".to_owned(), "1 GB".to_owned()]];
        assert_eq!(table(["NAME", "SIZE"], rows), "NAME          SIZE\nsmollm2:135m  98 MB\nä             1 GB\n");
    }
}
