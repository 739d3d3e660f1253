//! `cascadia eval perplexity`.

use anyhow::Context;
use cascadia_engine::{Engine, EngineError, ModelText, OpenOptions};
use cascadia_eval::{TextWindows, perplexity as score};
use cascadia_text::SpecialTokens;
use serde_json::json;

use crate::flags::PerplexityFlags;
use crate::output::{print, print_json};
use crate::progress::Progress;
use crate::source::Located;
use crate::threads::pool;

/// Scores a text.
pub(crate) fn perplexity(flags: &PerplexityFlags) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(&flags.text)
        .with_context(|| format!("cannot read the text {}; give a UTF-8 file with --text", flags.text.display()))?;
    let files = Located::find(&flags.model)?.files()?;
    let model_text = ModelText::read(&files)?;
    let special = model_text.special();
    let bos = special.bos.or(special.eos).ok_or(EngineError::Missing {
        path: files.path().to_path_buf(),
        what: "BOS token",
        advice: "the protocol puts one before each window; add bos_token_id to its configuration",
    })?;
    let tokens = model_text.tokenizer().encode(&text, SpecialTokens::Plain)?;
    let options = OpenOptions { context: Some(flags.window), ..OpenOptions::new(pool(&flags.threads)) };
    let mut engine = Engine::from_files(files, &options)
        .with_context(|| format!("cannot score windows of {} tokens (--window)", flags.window))?;
    let bar = Progress::new("windows");
    let cut = TextWindows { windows: flags.windows as usize, window: flags.window as usize, bos };
    let result = score(&mut engine.session, &tokens, cut, |done, total| bar.set(done as u64, total as u64))?;
    drop(bar);
    if flags.json {
        let object = json!({"tokens": result.tokens, "perplexity": result.perplexity, "top1": result.top1});
        print_json(&object)?;
    } else {
        print(&format!(
            "tokens      {}\nperplexity  {:.4}\ntop1        {:.5}\n",
            result.tokens, result.perplexity, result.top1
        ))?;
    }
    Ok(())
}
