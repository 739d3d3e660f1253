//! `cascadia eval perplexity`.

use anyhow::Context;
use cascadia_engine::{Engine, OpenOptions, Session};
use cascadia_eval::{Divergence, Perplexity, Reference, perplexity as score};
use serde_json::{Value, json};

use crate::flags::PerplexityFlags;
use crate::output::{print, print_json};
use crate::progress::Progress;
use crate::scored_text::{ScoredText, WindowLimits};
use crate::source::find;

/// What was found about one model.
enum Found {
    Alone(Perplexity),
    Beside(Divergence),
}

/// Scores a text with one model or several, alone or beside a reference.
pub(crate) fn perplexity(flags: &PerplexityFlags) -> anyhow::Result<()> {
    let bar = Progress::new("windows");
    let progress = |done: usize, total: usize| bar.set(done as u64, total as u64);
    let reference = match &flags.against {
        None => None,
        Some(name) => {
            let (mut session, text) = open(flags, name)?;
            Some(Reference::record(&mut session, &text.tokens, text.cut, progress)?)
        }
    };
    let mut results = Vec::new();
    for name in &flags.models {
        let (mut session, text) = open(flags, name)?;
        bar.label(name);
        results.push(match &reference {
            None => Found::Alone(score(&mut session, &text.tokens, text.cut, progress)?),
            Some(reference) => {
                let compared = reference.compare(&mut session, text.cut.windows, progress);
                Found::Beside(compared.with_context(|| format!("cannot compare {name} with --against"))?)
            }
        });
    }
    drop(bar);
    report(flags, &results)
}

fn open(flags: &PerplexityFlags, name: &str) -> anyhow::Result<(Session, ScoredText)> {
    let files = find(name)?.files()?;
    let limits = WindowLimits { windows: flags.windows, window: flags.window };
    let text = ScoredText::read(&flags.text, &files, limits)?;
    let options = flags.adapter.apply(flags.numerics.apply(flags.compute.open_options())?);
    let options = OpenOptions { context: Some(flags.window), ..options };
    let engine = Engine::from_files(files, &options)
        .with_context(|| format!("cannot score windows of {} tokens (--window)", flags.window))?;
    Ok((engine.into_session(), text))
}

/// One object for one model, a list of them for several.
fn report(flags: &PerplexityFlags, results: &[Found]) -> anyhow::Result<()> {
    if flags.json {
        let mut objects: Vec<Value> = results.iter().map(Found::object).collect();
        let object = match &mut objects[..] {
            [object] => object.take(),
            _ => {
                let named = flags.models.iter().zip(objects.iter_mut());
                named.for_each(|(name, object)| object["model"] = json!(name));
                json!({ "models": objects })
            }
        };
        return Ok(print_json(&object)?);
    }
    for (name, found) in flags.models.iter().zip(results) {
        let title = if results.len() > 1 { format!("{name}\n") } else { String::new() };
        print(&format!("{title}{}", found.lines()))?;
    }
    Ok(())
}

impl Found {
    fn object(&self) -> Value {
        match self {
            Found::Alone(Perplexity { tokens, perplexity, top1 }) => {
                json!({"tokens": tokens, "perplexity": perplexity, "top1": top1})
            }
            Found::Beside(Divergence { score, reference, divergence, same_top }) => json!({
                "tokens": score.tokens,
                "perplexity": score.perplexity,
                "top1": score.top1,
                "reference_perplexity": reference.perplexity,
                "reference_top1": reference.top1,
                "divergence": divergence,
                "same_top": same_top,
            }),
        }
    }

    fn lines(&self) -> String {
        match self {
            Found::Alone(Perplexity { tokens, perplexity, top1 }) => {
                format!("tokens      {tokens}\nperplexity  {perplexity:.4}\ntop1        {top1:.5}\n")
            }
            Found::Beside(result) => format!(
                "tokens      {}\nperplexity  {:.4}  ({:+.3} % of {:.4})\ntop1        {:.5}  ({:+.3} % of {:.5})\n\
                 divergence  {:.6} nats\nsame top    {:.5}\n",
                result.score.tokens,
                result.score.perplexity,
                100.0 * result.perplexity_growth(),
                result.reference.perplexity,
                result.score.top1,
                -100.0 * result.top1_loss(),
                result.reference.top1,
                result.divergence,
                result.same_top,
            ),
        }
    }
}
