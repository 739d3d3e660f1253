//! Metrics as tables: a row for each place on the axis, a column for each series.

use super::number::short;
use super::{Metric, Report};

/// What a cell without a value shows.
pub(super) const NOTHING: &str = "–";

impl Metric {
    /// All places on the axis, in order.
    pub(super) fn places(&self) -> Vec<f64> {
        let points = self.series.iter().flat_map(|series| &series.points);
        let mut places: Vec<f64> = points.map(|(place, _)| *place).collect();
        places.sort_by(f64::total_cmp);
        places.dedup();
        places
    }

    /// The heading of the table, and its rows.
    pub(super) fn rows(&self) -> Vec<Vec<String>> {
        let names = self.series.iter().map(|series| series.name.clone());
        let mut rows = vec![std::iter::once(self.axis.describe()).chain(names).collect()];
        for place in self.places() {
            let value =
                |points: &[(f64, f64)]| points.iter().find(|point| point.0 == place).map(|point| short(point.1));
            let cells = self.series.iter().map(|series| value(&series.points).unwrap_or_else(|| NOTHING.to_owned()));
            rows.push(std::iter::once(short(place)).chain(cells).collect());
        }
        rows
    }
}

impl Report {
    /// All metrics as tables for the terminal.
    pub fn tables(&self) -> String {
        let table = |metric: &Metric| {
            format!("\n{} ({})\n{}", metric.quantity.name, metric.quantity.describe(), aligned(&metric.rows(), 0))
        };
        let notes = self.notes.iter().map(|note| format!("{note}\n"));
        format!("{}: {}\n", self.title, self.run.model)
            + &notes.collect::<String>()
            + &self.metrics.iter().map(table).collect::<String>()
    }
}

/// Rows of equally many cells as columns: so many of text first, then numbers, which end where their columns end.
pub(super) fn aligned(rows: &[Vec<String>], of_text: usize) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let room = " ".repeat(width - cell.chars().count());
            line.push_str(&if column < of_text { format!("  {cell}{room}") } else { format!("  {room}{cell}") });
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::tests::report;

    #[test]
    fn a_table_has_a_row_for_each_place() {
        let text = report().tables();
        let lines: Vec<&str> = text.lines().collect();
        let expected = [
            "KV cache <drift> & more: model.gguf",
            "Beside a cache in f32.",
            "",
            "KL divergence (nats, lower is better)",
            "  context, tokens     int4     int8",
            "              256        0        –",
            "              512  0.01000  0.00100",
            "            1,024  0.03000        –",
            "",
            "top-1 agreement (%, higher is better)",
        ];
        assert_eq!(lines[..expected.len()], expected);
    }
}
