//! `cascadia eval logits`.

use cascadia_engine::{Engine, OpenOptions};
use cascadia_eval::write_logits;
use serde_json::json;

use crate::flags::LogitsFlags;
use crate::output::{print, print_json};
use crate::overwrite::check_is_not_input;
use crate::source::find;

/// Writes the logits of every position of a token sequence.
pub(crate) fn logits(flags: &LogitsFlags) -> anyhow::Result<()> {
    let context = u32::try_from(flags.tokens.len())?;
    let usual = flags.adapter.apply(flags.numerics.apply(flags.compute.open_options())?);
    let options = OpenOptions { context: Some(context), rows_per_step: flags.chunk, ..usual };
    let files = find(&flags.model)?.files()?;
    check_is_not_input(&flags.out, &files)?;
    let mut session = Engine::from_files(files, &options)?.into_session();
    write_logits(&mut session, &flags.tokens, &flags.out)?;
    let (positions, vocabulary) = (flags.tokens.len(), session.spec().vocabulary);
    if flags.json {
        print_json(&json!({"out": flags.out, "positions": positions, "vocabulary": vocabulary}))?;
    } else {
        print(&format!("{}: {positions} positions × {vocabulary} logits\n", flags.out.display()))?;
    }
    Ok(())
}
