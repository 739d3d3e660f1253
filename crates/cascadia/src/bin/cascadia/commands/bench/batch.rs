//! `cascadia bench --batch`: several sequences in one step.

use std::sync::Arc;

use cascadia_engine::OpenOptions;
use cascadia_eval::{BatchPlan, Spread, measure_batch};
use cascadia_model::{LoadOptions, ModelLimits, ModelSpec};
use cascadia_weights::{ModelFiles, WeightPages};
use serde_json::json;

use super::{files, model_name};
use crate::flags::BenchFlags;
use crate::output::{print, print_json};
use crate::progress::Progress;

/// Measures decode speed for every number of sequences.
pub(crate) fn batch(flags: &BenchFlags) -> anyhow::Result<()> {
    let setup = BatchSetup::new(flags)?;
    let BatchSetup { files, spec, options: OpenOptions { pool, activations, kv, .. }, .. } = &setup;
    let bar = Progress::new("measurements");
    let mut rows: Vec<(u32, Spread)> = Vec::new();
    for &sequences in &flags.batch {
        bar.set(rows.len() as u64, flags.batch.len() as u64);
        let (plan, options) = setup.plan(flags, sequences)?;
        rows.push((sequences, measure_batch(files, &plan, &options)?));
    }
    drop(bar);
    if flags.json {
        let row = |(sequences, speed): &(u32, Spread)| {
            let speed = json!({"median": speed.median, "min": speed.min, "max": speed.max});
            json!({"sequences": sequences, "decode_tok_s": speed})
        };
        print_json(&json!({
            "model": model_name(flags),
            "threads": pool.threads(),
            "activations": activations.name(),
            "kv": kv.describe(spec),
            "prompt": flags.prompt,
            "gen": flags.generate,
            "repeat": flags.repeat,
            "batches": rows.iter().map(row).collect::<Vec<_>>(),
        }))?;
    } else {
        let mut text = format!("threads {}\nsequences   decode tok/s of all (min … max)\n", pool.threads());
        for (sequences, speed) in rows {
            text.push_str(&format!("{sequences:9} {:10.1} ({:.1} … {:.1})\n", speed.median, speed.min, speed.max));
        }
        print(&text)?;
    }
    Ok(())
}

/// A model, and how it is loaded for batches.
pub(super) struct BatchSetup {
    pub(super) files: Arc<ModelFiles>,
    pub(super) spec: ModelSpec,
    pub(super) options: OpenOptions,
    pages: WeightPages,
    memory: Option<u64>,
}

impl BatchSetup {
    pub(super) fn new(flags: &BenchFlags) -> anyhow::Result<BatchSetup> {
        let files = Arc::new(files(flags)?);
        let spec = ModelSpec::from_files(&files)?;
        let pages = flags.pages.prepare()?;
        let options = flags.numerics.apply(flags.compute.open_options())?;
        Ok(BatchSetup { files, spec, options, pages, memory: flags.memory })
    }

    /// What is measured with so many sequences, and what the model is loaded with for that.
    pub(super) fn plan(&self, flags: &BenchFlags, sequences: u32) -> anyhow::Result<(BatchPlan, LoadOptions)> {
        let plan = BatchPlan {
            sequences: sequences as usize,
            prompt: flags.prompt as usize,
            generate: flags.generate as usize,
            repeat: flags.repeat as usize,
        };
        let OpenOptions { pool, ops, activations, kv, .. } = &self.options;
        let rows_per_step = flags.prompt.max(flags.generate).max(sequences).min(512);
        let one = ModelLimits::one_sequence(&self.spec, u32::try_from(plan.context())?, rows_per_step);
        let limits = ModelLimits { activations: *activations, kv: kv.clone(), ..one };
        let own = LoadOptions::new(limits, Arc::clone(pool));
        Ok((plan, LoadOptions { memory: self.memory, pages: self.pages, ops: ops.clone(), ..own }))
    }
}
