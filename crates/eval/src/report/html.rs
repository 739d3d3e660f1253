//! A report as one page without scripts or other files.

use super::svg::{chart, style};
use super::{Metric, Report, Run};

impl Report {
    /// The whole page.
    pub fn html(&self) -> String {
        let title = escaped(&self.title);
        let notes: String = self.notes.iter().map(|note| format!("<p>{}</p>\n", escaped(note))).collect();
        let sections: String = self.metrics.iter().map(section).collect();
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <title>{title}</title>\n<style>\n{}</style>\n</head>\n<body>\n<header>\n<h1>{title}</h1>\n{}{notes}</header>\n\
             <main>\n{sections}</main>\n</body>\n</html>\n",
            include_str!("style.css"),
            facts(&self.run),
        )
    }
}

/// What was run, where and when.
fn facts(run: &Run) -> String {
    let machine = &run.machine;
    let cpu = machine.cpu.as_ref().map_or(String::new(), |cpu| format!("{cpu}, "));
    let facts = [
        ("Model", escaped(&run.model)),
        (
            "Machine",
            escaped(&format!("{cpu}{}, {}, {} threads", machine.system, machine.instructions, machine.threads)),
        ),
        ("Measured", escaped(&format!("{} by {}", run.date, run.program))),
        ("Command", format!("<code>{}</code>", escaped(&run.command))),
    ];
    let rows = facts.map(|(name, value)| format!("<dt>{name}</dt><dd>{value}</dd>\n"));
    format!("<dl>\n{}</dl>\n", rows.concat())
}

/// One metric: what it is, its plot and its numbers.
fn section(metric: &Metric) -> String {
    let quantity = &metric.quantity;
    let heading = format!("<h2>{}</h2>\n<p>{}</p>\n", escaped(&quantity.name), escaped(&quantity.describe()));
    let plot = chart(metric).map_or(String::new(), |chart| legend(metric) + &chart);
    format!("<section>\n{heading}{plot}{}</section>\n", numbers(metric))
}

/// The line of each series beside its name.
fn legend(metric: &Metric) -> String {
    let item = |(index, name): (usize, &str)| {
        let style = style(index);
        format!(
            "<li><svg viewBox=\"0 0 36 12\"><g class=\"{style}\"><polyline points=\"1,6 35,6\"/></g></svg>{}</li>\n",
            escaped(name)
        )
    };
    let names = metric.series.iter().map(|series| series.name.as_str());
    format!("<ul>\n{}</ul>\n", names.enumerate().map(item).collect::<String>())
}

fn numbers(metric: &Metric) -> String {
    let rows = metric.rows();
    let row = |(index, cells): (usize, &Vec<String>)| {
        let tag = if index == 0 { "th" } else { "td" };
        let cells = cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", escaped(cell)));
        format!("<tr>{}</tr>\n", cells.collect::<String>())
    };
    let rows: String = rows.iter().enumerate().map(row).collect();
    format!("<div class=\"numbers\"><table>\n{rows}</table></div>\n")
}

/// Text that means itself in HTML and in quoted attributes.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::tests::report;

    #[test]
    fn a_page_needs_nothing_else() {
        let page = report().html();
        for part in [
            "<h1>KV cache &lt;drift&gt; &amp; more</h1>",
            "<code>cascadia eval drift &quot;a b&quot;</code>",
            "<td>0.03000</td>",
            "lower is better",
            "prefers-color-scheme: dark",
            "<p>Beside a cache in f32.</p>",
        ] {
            assert!(page.contains(part), "{part} is not in {page}");
        }
        assert_eq!(page.matches("<section>").count(), 2);
        for foreign in ["<script", "http://", "https://", "src=", "@import", "url("] {
            assert!(!page.contains(foreign), "{foreign} is in {page}");
        }
        // Every element that is opened is closed.
        for tag in ["section", "svg", "g", "table", "tr", "td", "th", "ul", "li", "dl", "div", "title", "text"] {
            let opened = page.matches(&format!("<{tag}>")).count() + page.matches(&format!("<{tag} ")).count();
            assert_eq!(opened, page.matches(&format!("</{tag}>")).count(), "{tag}");
        }
    }
}
