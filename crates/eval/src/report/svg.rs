//! A metric as a line chart in SVG, coloured by the style sheet of the page around it.

use super::html::escaped;
use super::number::short;
use super::ruler::Ruler;
use super::{Metric, Series};

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 300.0;
/// Where lines may be: left, right, top, bottom.
const PLOT: (f64, f64, f64, f64) = (76.0, WIDTH - 16.0, 12.0, HEIGHT - 46.0);
/// Axes with at most so many places mark each of them.
const MARKED_PLACES: usize = 8;
/// Line styles in the style sheet; further series begin again.
const STYLES: usize = 8;

/// A line for each series; nothing where there are no two places on the axis.
pub(super) fn chart(metric: &Metric) -> Option<String> {
    let (left, right, top, bottom) = PLOT;
    let places = metric.places();
    if places.len() < 2 {
        return None;
    }
    let values: Vec<f64> = metric.series.iter().flat_map(|series| &series.points).map(|point| point.1).collect();
    let across = Ruler::exact(metric.axis.scale, &places, (left, right));
    let up = Ruler::round(&values, (bottom, top));
    let (name, axis) = (escaped(&metric.quantity.name), escaped(&metric.axis.describe()));
    let unit = if metric.quantity.unit.is_empty() { name.clone() } else { escaped(&metric.quantity.unit) };
    let mut svg = format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{name} by {axis}\">\n");
    for mark in up.marks() {
        let y = up.at(mark);
        svg.push_str(&format!("<line class=\"grid\" x1=\"{left}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>"));
        svg.push_str(&text("end", (left - 8.0, y + 4.0), &axis_number(mark)));
    }
    svg.push('\n');
    for mark in if places.len() <= MARKED_PLACES { places } else { across.marks() } {
        let x = across.at(mark);
        let end = bottom + 5.0;
        svg.push_str(&format!("<line class=\"axis\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{bottom}\" y2=\"{end}\"/>"));
        svg.push_str(&text("middle", (x, bottom + 19.0), &axis_number(mark)));
    }
    svg.push_str(&format!("\n<line class=\"axis\" x1=\"{left}\" x2=\"{right}\" y1=\"{bottom}\" y2=\"{bottom}\"/>\n"));
    svg.push_str(&text("middle", ((left + right) / 2.0, HEIGHT - 6.0), &axis));
    let middle = (top + bottom) / 2.0;
    svg.push_str(&format!(
        "<text text-anchor=\"middle\" transform=\"translate(13 {middle}) rotate(-90)\">{unit}</text>\n"
    ));
    for (index, series) in metric.series.iter().enumerate() {
        svg.push_str(&line(index, series, &metric.quantity.unit, |(x, y)| (across.at(x), up.at(y))));
    }
    svg.push_str("</svg>\n");
    Some(svg)
}

/// The class of a series, which gives it its colour.
pub(super) fn style(index: usize) -> String {
    format!("s{}", index % STYLES)
}

/// One series: a line, and a dot for each point that says what it is when pointed at.
fn line(index: usize, series: &Series, unit: &str, at: impl Fn((f64, f64)) -> (f64, f64)) -> String {
    let style = style(index);
    let points: Vec<String> =
        series.points.iter().map(|&point| at(point)).map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let mut svg = format!("<g class=\"{style}\"><polyline points=\"{}\"/>", points.join(" "));
    for &(place, value) in &series.points {
        let (x, y) = at((place, value));
        let said = format!("{}, {}: {} {unit}", series.name, short(place), short(value));
        let said = escaped(said.trim_end());
        svg.push_str(&format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"><title>{said}</title></circle>"));
    }
    svg.push_str("</g>\n");
    svg
}

fn text(anchor: &str, (x, y): (f64, f64), said: &str) -> String {
    format!("<text text-anchor=\"{anchor}\" x=\"{x:.1}\" y=\"{y:.1}\">{said}</text>")
}

/// A round number without the zeros that fill it up.
fn axis_number(value: f64) -> String {
    // Sums of steps are rounded: what is left of zero is zero.
    let value = if value.abs() < 1e-12 { 0.0 } else { value };
    let text = short(value);
    match text.contains('.') && !text.contains('e') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::report;
    use super::*;

    #[test]
    fn a_chart_has_a_line_and_a_dot_for_each_value() {
        let report = report();
        let svg = chart(&report.metrics[0]).unwrap();
        assert_eq!(svg.matches("<polyline").count(), 2);
        assert_eq!(svg.matches("<circle").count(), 4);
        assert!(svg.contains("<title>int4, 1,024: 0.03000 nats</title>"), "{svg}");
        for label in [">context, tokens<", ">nats<", ">256<", ">1,024<", ">0.03<", ">0<"] {
            assert!(svg.contains(label), "{label} is not in {svg}");
        }
        // The first value is at the lower left, the greatest at the upper right; 512 is half-way on this axis.
        assert!(svg.contains("points=\"76.0,254.0 350.0,173.3 624.0,12.0\""), "{svg}");
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }

    #[test]
    fn one_place_is_no_chart() {
        let mut metric = report().metrics.remove(0);
        metric.series.iter_mut().for_each(|series| series.points.retain(|point| point.0 == 512.0));
        assert!(chart(&metric).is_none());
    }

    #[test]
    fn names_are_text() {
        let mut metric = report().metrics.remove(0);
        metric.series[0].name = "<script>\"&'".to_owned();
        metric.quantity.name = "\" onload=\"".into();
        let svg = chart(&metric).unwrap();
        assert!(svg.contains("&lt;script&gt;&quot;&amp;&#39;") && !svg.contains("<script"), "{svg}");
        assert!(!svg.contains("\" onload"), "{svg}");
    }
}
