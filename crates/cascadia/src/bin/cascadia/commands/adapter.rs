//! `cascadia adapter`.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use anyhow::bail;
use cascadia_model::{Adapter, AdapterFiles, AdapterPart, AdapterPrecision, AdapterSummary, ModelSpec};
use cascadia_quantize::{MergeJob, QuantizeSummary, Recipe, merge as write_merged};
use cascadia_weights::ModelFiles;
use serde_json::json;

use crate::flags::{AdapterInspectFlags, AdapterMergeFlags};
use crate::output::{print, print_json};
use crate::overwrite::check_is_not_input;
use crate::progress::Progress;
use crate::source::find;

/// Prints what an adapter's files say.
pub(crate) fn inspect(flags: &AdapterInspectFlags) -> anyhow::Result<()> {
    let files = AdapterFiles::open(&flags.path)?;
    let layers = layers(files.path())?;
    let summary = files.summary();
    if flags.json {
        let AdapterSummary { format, kind, base, alpha, ranks, modules, tensors, parameters, bytes } = &summary;
        return Ok(print_json(&json!({
            "path": files.path(),
            "format": format,
            "kind": kind,
            "base": base,
            "ranks": [ranks.start(), ranks.end()],
            "alpha": alpha,
            "modules": modules,
            "layers": layers,
            "tensors": tensors,
            "parameters": parameters,
            "bytes": bytes,
            "digest": files.id().to_string(),
        }))?);
    }
    Ok(print(&report(&files, &summary, &layers))?)
}

/// One line per fact.
fn report(files: &AdapterFiles, summary: &AdapterSummary, layers: &BTreeSet<u64>) -> String {
    let rank = match (summary.ranks.start(), summary.ranks.end()) {
        (least, greatest) if least == greatest => least.to_string(),
        (least, greatest) => format!("{least} to {greatest}"),
    };
    let lines = [
        ("format", summary.format.to_owned()),
        ("kind", summary.kind.to_owned()),
        ("base", summary.base.clone().unwrap_or_else(|| "not named".to_owned())),
        ("rank", rank),
        ("alpha", summary.alpha.to_string()),
        ("modules", summary.modules.join(", ")),
        ("layers", ranges(layers)),
        ("tensors", summary.tensors.to_string()),
        ("parameters", summary.parameters.to_string()),
        ("bytes", format!("{} ({:.1} MB)", summary.bytes, summary.bytes as f64 / 1e6)),
        ("digest", files.id().to_string()),
    ];
    lines.map(|(name, fact)| format!("{name:<11} {fact}\n")).concat()
}

/// Numbers of layers that it changes: the first number in the names of tensors.
fn layers(weights: &Path) -> anyhow::Result<BTreeSet<u64>> {
    let files = ModelFiles::open(weights)?;
    let number = |name: &str| name.split('.').find_map(|part| part.parse::<u64>().ok());
    Ok(files.tensors().iter().filter_map(|tensor| number(tensor.name())).collect())
}

/// Numbers with neighbours joined, such as `0–3, 7`.
fn ranges(numbers: &BTreeSet<u64>) -> String {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for &number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(number) => *last = number,
            _ => ranges.push((number, number)),
        }
    }
    let one = |(first, last): (u64, u64)| if first == last { first.to_string() } else { format!("{first}–{last}") };
    match ranges.is_empty() {
        true => "none".to_owned(),
        false => ranges.into_iter().map(one).collect::<Vec<_>>().join(", "),
    }
}

/// Writes a model with an adapter merged into its weights.
pub(crate) fn merge(flags: &AdapterMergeFlags) -> anyhow::Result<()> {
    let recipe = flags.kind.as_deref().map(str::parse::<Recipe>).transpose()?;
    let files = find(&flags.model)?.files()?;
    let part = AdapterFiles::open(&flags.adapter.path)?;
    check_is_not_input(&flags.out, &files)?;
    check_is_not_adapter(&flags.out, &part)?;
    flags.output.check(flags.out.exists().then_some(&flags.out))?;
    let spec = ModelSpec::from_files(&files)?;
    let parts = [AdapterPart { files: &part, weight: flags.adapter.weight }];
    let adapter = Adapter::load(&parts, &files, &spec, AdapterPrecision::Exact)?;
    let kind = recipe.as_ref().map(Recipe::to_string);
    let job = MergeJob { files: &files, adapter: &adapter, out: &flags.out, recipe, pool: &flags.threads.pool() };
    let bar = Progress::new("merging");
    let summary = write_merged(&job, |step| bar.show(step))?;
    drop(bar);
    Ok(report_merged(flags, kind.as_deref(), &summary, adapter.targets().len())?)
}

/// Refuses an output that is the adapter itself.
fn check_is_not_adapter(out: &Path, adapter: &AdapterFiles) -> anyhow::Result<()> {
    match (out.canonicalize(), adapter.path().canonicalize()) {
        (Ok(out), Ok(own)) if out == own => {
            bail!("{} is the adapter that is read; choose another output, so that no weights are lost", out.display())
        }
        _ => Ok(()),
    }
}

fn report_merged(
    flags: &AdapterMergeFlags,
    kind: Option<&str>,
    summary: &QuantizeSummary,
    changed: usize,
) -> io::Result<()> {
    if flags.json {
        return print_json(&json!({
            "out": flags.out,
            "type": kind,
            "tensors": summary.tensors,
            "changed": changed,
            "parameters": summary.parameters,
            "bytes_before": summary.bytes_before,
            "bytes_after": summary.bytes_after,
        }));
    }
    let megabytes = |bytes: u64| bytes as f64 / 1e6;
    print(&format!(
        "{}: {} tensors, {changed} of them changed, {:.1} MB → {:.1} MB\n",
        flags.out.display(),
        summary.tensors,
        megabytes(summary.bytes_before),
        megabytes(summary.bytes_after)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_joined() {
        let check = |numbers: &[u64], expected: &str| assert_eq!(ranges(&numbers.iter().copied().collect()), expected);
        check(&[], "none");
        check(&[3], "3");
        check(&[0, 1, 2, 3, 7, 9, 10], "0–3, 7, 9–10");
    }
}
