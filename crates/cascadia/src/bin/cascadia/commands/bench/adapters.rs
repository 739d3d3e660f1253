//! `cascadia bench --adapters`: what adapters cost beside the model alone.

use std::sync::Arc;

use cascadia_eval::{Spread, measure_adapters};
use cascadia_model::{Adapter, AdapterTargets, SyntheticAdapter};
use serde_json::json;

use super::batch::BatchSetup;
use super::model_name;
use crate::flags::{BenchFlags, TargetsFlag};
use crate::output::{print, print_json};
use crate::progress::Progress;

/// What was measured with one number of sequences.
struct Row {
    sequences: u32,
    /// Without adapters and with them.
    speeds: [Spread; 2],
    /// Adapters that a step reads.
    read: usize,
}

/// Measures decode speed without adapters and with them, in turns.
pub(crate) fn adapters(flags: &BenchFlags) -> anyhow::Result<()> {
    let setup = BatchSetup::new(flags)?;
    let targets = match flags.targets {
        TargetsFlag::Attention => AdapterTargets::Attention,
        TargetsFlag::All => AdapterTargets::All,
    };
    let count = flags.adapters.unwrap_or(1);
    let make = |seed: u32| SyntheticAdapter { rank: flags.rank as usize, targets, seed: u64::from(seed) + 1 };
    let made = (0..count).map(|seed| make(seed).make(&setup.files, &setup.spec).map(Arc::new));
    let made = made.collect::<Result<Vec<Arc<Adapter>>, _>>()?;
    let bar = Progress::new("measurements");
    let mut rows = Vec::new();
    for &sequences in &flags.batch {
        bar.set(rows.len() as u64, flags.batch.len() as u64);
        let (plan, options) = setup.plan(flags, sequences)?;
        let speeds = measure_adapters(&setup.files, &plan, &options, &made)?;
        rows.push(Row { sequences, speeds, read: made.len().min(sequences as usize) });
    }
    drop(bar);
    let (each, weights) = (made[0].bytes(), setup.files.weight_bytes());
    if flags.json {
        let spread = |speed: &Spread| json!({"median": speed.median, "min": speed.min, "max": speed.max});
        let row = |Row { sequences, speeds: [alone, adapted], read }: &Row| {
            json!({
                "sequences": sequences,
                "base_tok_s": spread(alone),
                "adapted_tok_s": spread(adapted),
                "slower": alone.median / adapted.median - 1.0,
                "floor": *read as f64 * each as f64 / weights as f64,
            })
        };
        return Ok(print_json(&json!({
            "model": model_name(flags),
            "threads": setup.options.pool.threads(),
            "adapters": count,
            "rank": flags.rank,
            "targets": format!("{:?}", flags.targets).to_lowercase(),
            "adapter_bytes": each,
            "weight_bytes": weights,
            "batches": rows.iter().map(row).collect::<Vec<_>>(),
        }))?);
    }
    let mut text = format!(
        "threads {}, {count} adapters of rank {} ({:?}), {:.1} MB each beside {:.1} MB of weights\n\
         sequences   alone tok/s (min … max)   adapted tok/s (min … max)   slower   bytes more to read\n",
        setup.options.pool.threads(),
        flags.rank,
        flags.targets,
        each as f64 / 1e6,
        weights as f64 / 1e6
    );
    for Row { sequences, speeds: [alone, adapted], read } in rows {
        let speed = |speed: &Spread| format!("{:.1} ({:.1} … {:.1})", speed.median, speed.min, speed.max);
        let slower = 100.0 * (alone.median / adapted.median - 1.0);
        let more = 100.0 * read as f64 * each as f64 / weights as f64;
        text.push_str(&format!(
            "{sequences:9}   {:>23}   {:>25}   {slower:5.1} %   {more:5.1} %\n",
            speed(&alone),
            speed(&adapted)
        ));
    }
    Ok(print(&text)?)
}
