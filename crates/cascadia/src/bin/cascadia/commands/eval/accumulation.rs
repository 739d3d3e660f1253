//! `cascadia eval accumulation`.

use std::sync::Arc;

use cascadia_eval::{AccumulationPlan, TwoCaches, measure_accumulation};

use super::measured_model::{Heading, MeasuredModel};
use crate::flags::AccumulationFlags;
use crate::progress::Progress;
use crate::scored_text::TextReader;

/// The longest sequence unless the flags say otherwise.
const MOST_TOKENS: u32 = 4096;

/// Runs one long sequence with and without refreshes.
pub(super) fn accumulation(flags: &AccumulationFlags) -> anyhow::Result<()> {
    let model = MeasuredModel::find(&flags.model, &flags.report)?;
    let files = Arc::new(model.files()?);
    let reader = TextReader::new(&files)?;
    let text = reader.tokens(&flags.text)?;
    let plan = AccumulationPlan {
        tokens: flags.tokens.unwrap_or(model.spec.context.min(MOST_TOKENS)) as usize,
        block: flags.block as usize,
        refresh: flags.refresh as usize,
        bos: reader.bos,
    };
    let options = model.options(flags.kv.policy()?, plan.tokens)?;
    let bar = Progress::new("tokens");
    let mut caches = TwoCaches::open(files, &options)?;
    let progress = |done, total| bar.set(done as u64, total as u64);
    let metrics = measure_accumulation(&mut caches, &text, &plan, progress)?;
    drop(bar);
    let notes = vec![
        format!("A KV cache in {} beside one in f32, on the same {} tokens.", flags.kv.name(), plan.tokens),
        format!(
            "Refreshed: every {} tokens the whole sequence is computed with the f32 cache, and quantised again.",
            plan.refresh
        ),
    ];
    let heading = Heading { measurement: "accumulation", title: "Errors of the KV cache over a long text", notes };
    flags.report.deliver(&model.report(heading, metrics))
}
