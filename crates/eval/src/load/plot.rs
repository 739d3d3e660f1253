//! A histogram for the terminal.

/// Columns of the longest bar.
const WIDTH: f64 = 40.0;
/// The most bars.
const BARS: usize = 12;
/// Parts of a column, from none to all but a whole one.
const PARTS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];

/// How durations in seconds are spread: bars over ranges that each end a factor further. Empty without durations.
pub fn histogram(title: &str, seconds: &[f64]) -> String {
    let sorted = {
        let mut sorted = seconds.to_vec();
        sorted.sort_by(f64::total_cmp);
        sorted
    };
    let (Some(&least), Some(&most)) = (sorted.first(), sorted.last()) else { return String::new() };
    // Below a tenth of a millisecond differences mean nothing.
    let (least, most) = (least.max(1e-4), most.max(1e-4) * 1.0001);
    let step = (libm::log(most / least) / BARS as f64).max(0.05);
    let bars = ((libm::log(most / least) / step).ceil() as usize).clamp(1, BARS);
    let mut counts = vec![0usize; bars];
    for value in &sorted {
        counts[((libm::log(value.max(least) / least) / step) as usize).min(bars - 1)] += 1;
    }
    let tallest = counts.iter().copied().max().unwrap_or(1).max(1);
    let mut text = format!("{title}\n");
    for (bar, count) in counts.iter().enumerate() {
        let end = least * libm::exp(step * (bar + 1) as f64);
        let bar = bar_of(*count as f64 / tallest as f64 * WIDTH);
        text.push_str(&format!("{:>10} {bar} {count}\n", format!("≤ {}", duration(end))));
    }
    text
}

fn bar_of(columns: f64) -> String {
    let eighths = (columns * 8.0).round() as usize;
    let mut bar = "█".repeat(eighths / 8);
    if !eighths.is_multiple_of(8) {
        bar.push(PARTS[eighths % 8]);
    }
    bar
}

/// A duration with three digits and its unit.
pub(super) fn duration(seconds: f64) -> String {
    let (value, unit) = if seconds < 1.0 { (seconds * 1e3, "ms") } else { (seconds, "s") };
    let digits = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.digits$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_show_where_durations_lie() {
        assert_eq!(histogram("none", &[]), "");
        assert_eq!(histogram("one", &[0.02]), format!("one\n ≤ 21.0 ms {} 1\n", "█".repeat(40)));
        let plot = histogram("two", &[0.001, 0.001, 0.001, 0.001, 1.0]);
        let lines: Vec<&str> = plot.lines().collect();
        assert_eq!(lines.len(), 1 + BARS);
        assert!(lines[1].ends_with(&format!("{} 4", "█".repeat(40))), "{plot}");
        assert!(lines[BARS].ends_with(&format!("{} 1", "█".repeat(10))), "{plot}");
    }

    #[test]
    fn bars_and_durations_have_parts() {
        for (columns, expected) in [(0.0, ""), (0.125, "▏"), (1.5, "█▌"), (2.0, "██")] {
            assert_eq!(bar_of(columns), expected, "{columns}");
        }
        for (seconds, expected) in [(0.0012, "1.20 ms"), (0.0456, "45.6 ms"), (0.5, "500 ms"), (12.34, "12.3 s")] {
            assert_eq!(duration(seconds), expected, "{seconds}");
        }
    }
}
