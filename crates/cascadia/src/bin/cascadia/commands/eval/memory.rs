//! `cascadia eval memory`.

use cascadia_engine::OpenOptions;
use cascadia_eval::{KvMemory, MemoryPlan, held_memory_bytes};

use super::measured_model::{Heading, MeasuredModel};
use crate::flags::MemoryFlags;
use crate::progress::Progress;

/// The longest context unless the flags say otherwise.
const MOST_CONTEXT: u32 = 32_768;

/// Measures what the cache takes as a sequence grows.
pub(super) fn memory(flags: &MemoryFlags) -> anyhow::Result<()> {
    let model = MeasuredModel::find(&flags.model, &flags.report)?;
    let context = flags.context.unwrap_or(model.spec.context.min(MOST_CONTEXT));
    let plan = MemoryPlan { context: context as usize };
    let mut memory = KvMemory::new(plan)?;
    let bar = Progress::new("tokens");
    for policy in &flags.kv {
        bar.label(&format!("tokens with {}", policy.name()));
        let kv = policy.policy()?;
        let options = model.options(kv.clone(), plan.context)?;
        let options = OpenOptions { rows_per_step: plan.rows_per_step() as u32, ..options };
        let progress = |done, total| bar.set(done as u64, total as u64);
        memory.add((policy.name(), &kv), &mut model.session(&options)?, held_memory_bytes, progress)?;
    }
    drop(bar);
    let notes = vec![
        format!("Growth after the first {} tokens, which also fill buffers of other kinds.", plan.rows_per_step()),
        "Theory is the layout of the cache; measured is memory that the process holds besides mapped files.".to_owned(),
    ];
    let heading = Heading { measurement: "memory", title: "Memory of the KV cache", notes };
    flags.report.deliver(&model.report(heading, memory.into_metrics()))
}
