//! `cascadia bench --adapters`: what adapters cost beside the model alone.

use std::sync::Arc;

use cascadia_eval::{AdapterCost, Spread, measure_adapters};
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
    cost: AdapterCost,
    /// Adapters that a step reads.
    read: usize,
}

/// What adapters add at least, as shares of what the model alone does.
struct Floor {
    /// Bytes of weights that a step reads.
    bytes: f64,
    /// Products that are added up for a token.
    multiply_adds: f64,
}

impl Row {
    /// By how much a step takes longer.
    fn slower(&self) -> f64 {
        self.cost.alone.median / self.cost.adapted.median - 1.0
    }

    /// What follows from sizes, with adapters like this one.
    fn floor(&self, each: &Adapter, weights: u64) -> Floor {
        let bytes = self.read as f64 * each.bytes() as f64 / weights as f64;
        Floor { bytes, multiply_adds: each.multiply_adds() as f64 / self.cost.multiply_adds as f64 }
    }
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
        let cost = measure_adapters(&setup.files, &plan, &options, &made)?;
        rows.push(Row { sequences, cost, read: made.len().min(sequences as usize) });
    }
    drop(bar);
    let (each, weights) = (made[0].bytes(), setup.files.weight_bytes());
    if flags.json {
        let spread = |speed: &Spread| json!({"median": speed.median, "min": speed.min, "max": speed.max});
        let row = |row: &Row| {
            let floor = row.floor(&made[0], weights);
            json!({
                "sequences": row.sequences,
                "base_tok_s": spread(&row.cost.alone),
                "adapted_tok_s": spread(&row.cost.adapted),
                "slower": row.slower(),
                "floor": floor.bytes,
                "multiply_adds_floor": floor.multiply_adds,
                "base_multiply_adds": row.cost.multiply_adds,
            })
        };
        return Ok(print_json(&json!({
            "model": model_name(flags),
            "threads": setup.options.pool.threads(),
            "adapters": count,
            "rank": flags.rank,
            "targets": format!("{:?}", flags.targets).to_lowercase(),
            "adapter_bytes": each,
            "adapter_multiply_adds": made[0].multiply_adds(),
            "weight_bytes": weights,
            "batches": rows.iter().map(row).collect::<Vec<_>>(),
        }))?);
    }
    let mut text = format!(
        "threads {}, {count} adapters of rank {} ({:?}), {:.1} MB each beside {:.1} MB of weights\n\
         sequences   alone tok/s (min … max)   adapted tok/s (min … max)   slower   more bytes   more multiply-adds\n",
        setup.options.pool.threads(),
        flags.rank,
        flags.targets,
        each as f64 / 1e6,
        weights as f64 / 1e6
    );
    for row in rows {
        let speed = |speed: &Spread| format!("{:.1} ({:.1} … {:.1})", speed.median, speed.min, speed.max);
        let Floor { bytes, multiply_adds } = row.floor(&made[0], weights);
        text.push_str(&format!(
            "{:9}   {:>23}   {:>25}   {:5.1} %   {:8.1} %   {:16.1} %\n",
            row.sequences,
            speed(&row.cost.alone),
            speed(&row.cost.adapted),
            100.0 * row.slower(),
            100.0 * bytes,
            100.0 * multiply_adds
        ));
    }
    Ok(print(&text)?)
}
