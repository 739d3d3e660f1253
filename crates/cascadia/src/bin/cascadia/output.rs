//! Standard output: results and nothing else.

use std::io::{self, Write};

use serde_json::Value;

/// Writes text at once, without a line end.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Writes one JSON object on lines of its own.
pub(crate) fn print_json(object: &Value) -> io::Result<()> {
    print(&format!("{object:#}\n"))
}

/// Writes a remark for people to standard error; a closed one is not an error.
pub(crate) fn remark(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Writes a remark beside what matters, such as speed: dim on a terminal, unless `NO_COLOR` is set.
pub(crate) fn aside(text: &str) {
    remark(&console::style(text).for_stderr().dim().to_string());
}

/// The columns of the terminal to which results go, if it is one.
pub(crate) fn columns() -> Option<usize> {
    let out = console::Term::stdout();
    out.is_term().then(|| out.size().1.into())
}
