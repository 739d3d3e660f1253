//! `cascadia quantize`.

use cascadia_engine::{QuantizeJob, QuantizeProgress, Recipe, quantize as convert};
use serde_json::json;

use crate::flags::QuantizeFlags;
use crate::machine::pool;
use crate::output::{print, print_json};
use crate::progress::Progress;
use crate::source::Located;

/// Writes a model as GGUF in another format.
pub(crate) fn quantize(flags: &QuantizeFlags) -> anyhow::Result<()> {
    let recipe: Recipe = flags.kind.parse()?;
    let files = Located::find(&flags.model)?.files()?;
    let bar = Progress::new("quantising");
    let job = QuantizeJob { files: &files, out: &flags.out, recipe, pool: &pool(flags.threads) };
    let summary = convert(&job, |QuantizeProgress { tensor, done, total }| {
        bar.label(tensor);
        bar.set(done, total);
    })?;
    drop(bar);
    if flags.json {
        print_json(&json!({
            "out": flags.out,
            "type": flags.kind,
            "tensors": summary.tensors,
            "parameters": summary.parameters,
            "bytes_before": summary.bytes_before,
            "bytes_after": summary.bytes_after,
        }))?;
    } else {
        let megabytes = |bytes: u64| bytes as f64 / 1e6;
        print(&format!(
            "{}: {} tensors, {:.1} MB → {:.1} MB, {:.2} bits per weight\n",
            flags.out.display(),
            summary.tensors,
            megabytes(summary.bytes_before),
            megabytes(summary.bytes_after),
            summary.bytes_after as f64 * 8.0 / summary.parameters.max(1) as f64
        ))?;
    }
    Ok(())
}
