//! `cascadia quantize`.

use std::path::Path;

use cascadia_engine::{PackJob, QuantizeJob, QuantizeProgress, QuantizeSummary, Recipe, pack, quantize as convert};
use cascadia_kernels::Pool;
use cascadia_weights::ModelFiles;
use serde_json::json;

use crate::flags::QuantizeFlags;
use crate::output::{print, print_json};
use crate::progress::Progress;
use crate::source::Located;
use crate::threads::pool;

/// Writes a model as GGUF in another format, in another layout, or both.
pub(crate) fn quantize(flags: &QuantizeFlags) -> anyhow::Result<()> {
    let recipe = flags.kind.as_deref().map(str::parse::<Recipe>).transpose()?;
    let files = Located::find(&flags.model)?.files()?;
    let pool = pool(&flags.threads);
    let summary = match recipe {
        Some(recipe) if flags.packed => {
            // Packing re-arranges a finished file, so the quantised rows are written beside it first.
            let rows = flags.out.with_extension("rows.gguf");
            let before = write_rows(&files, &rows, recipe, &pool)?.bytes_before;
            let packed = ModelFiles::open(&rows).map_err(anyhow::Error::from).and_then(|files| {
                let summary = write_packed(&files, &flags.out, &pool)?;
                Ok(QuantizeSummary { bytes_before: before, ..summary })
            });
            std::fs::remove_file(&rows)?;
            packed?
        }
        Some(recipe) => write_rows(&files, &flags.out, recipe, &pool)?,
        None => write_packed(&files, &flags.out, &pool)?,
    };
    if flags.json {
        print_json(&json!({
            "out": flags.out,
            "type": flags.kind,
            "packed": flags.packed,
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

fn write_rows(files: &ModelFiles, out: &Path, recipe: Recipe, pool: &Pool) -> anyhow::Result<QuantizeSummary> {
    let bar = Progress::new("quantising");
    Ok(convert(&QuantizeJob { files, out, recipe, pool }, |step| show(&bar, step))?)
}

fn write_packed(files: &ModelFiles, out: &Path, pool: &Pool) -> anyhow::Result<QuantizeSummary> {
    let bar = Progress::new("packing");
    Ok(pack(&PackJob { files, out, pool }, |step| show(&bar, step))?)
}

fn show(bar: &Progress, QuantizeProgress { tensor, done, total }: QuantizeProgress<'_>) {
    bar.label(tensor);
    bar.set(done, total);
}
