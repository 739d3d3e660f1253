//! Writes the logits of every position of a token sequence, for comparison with another implementation.

use std::path::Path;

use cascadia_engine::Session;

use crate::{EvalError, NpyWriter};

/// Feeds `tokens` to an empty session and writes a matrix of (positions, vocabulary) to `path`.
pub fn write_logits(session: &mut Session, tokens: &[u32], path: &Path) -> Result<(), EvalError> {
    session.truncate(0);
    session.check(tokens)?;
    let mut writer = NpyWriter::create(path, (tokens.len(), session.spec().vocabulary))?;
    session.feed_each(tokens, |_, row| writer.push_row(row))?;
    writer.finish()
}
