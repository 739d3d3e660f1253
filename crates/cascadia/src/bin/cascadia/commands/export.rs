//! `cascadia export`.

use cascadia_coordinator::{DEFAULT_USERS, ExportJob, PlanDemand, plan_for_known_machines, split_as_planned};
use cascadia_fleet::{Manifest, StageSplit, layer_names};
use cascadia_model::ModelSpec;
use serde_json::json;

use super::plan_table;
use crate::flags::{ExportFlags, StageCount};
use crate::home::{home, reporter};
use crate::output::{print, print_json, remark};
use crate::overwrite::check_is_not_input;
use crate::source::find;

/// Writes a model as one shard with embeddings and output matrix, one for every stage, and a manifest.
pub(crate) fn export(flags: &ExportFlags) -> anyhow::Result<()> {
    let source = find(&flags.model)?;
    let files = source.files()?;
    let spec = ModelSpec::from_files(&files)?;
    let pool = flags.threads.pool();
    let split = match flags.stages {
        Some(StageCount::Count(count)) => StageSplit::even(&spec, count)?,
        Some(StageCount::Auto) => {
            let home = home(flags.home.home.as_deref())?;
            let kv = &flags.kv.policy()?;
            let demand = PlanDemand { precision: &flags.precision, context: None, users: DEFAULT_USERS, kv };
            let found = plan_for_known_machines(&home, &files, &demand, &pool)?;
            remark(plan_table(&found, &[]).trim_end());
            split_as_planned(&spec, &found)?
        }
        None => StageSplit::at(&spec, &flags.splits)?,
    };
    let job = ExportJob {
        name: source.name(),
        files: &files,
        split: &split,
        precision: &flags.precision,
        out: &flags.out,
        pool,
        notify: &*reporter(),
    };
    job.outputs().iter().try_for_each(|out| check_is_not_input(out, &files))?;
    flags.output.check(job.replaced().as_deref())?;
    report(flags, &job.write()?)
}

fn report(flags: &ExportFlags, manifest: &Manifest) -> anyhow::Result<()> {
    if flags.json {
        return Ok(print_json(&json!({
            "out": flags.out,
            "model": manifest.model,
            "precision": manifest.precision,
            "shards": std::iter::once(&manifest.token_io).chain(&manifest.stages).map(|shard| json!({
                "file": shard.file, "digest": shard.digest, "bytes": shard.bytes, "layers": shard.layers,
            })).collect::<Vec<_>>(),
        }))?);
    }
    let mut text = format!("{} in {}:\n", manifest.name, flags.out.display());
    for shard in std::iter::once(&manifest.token_io).chain(&manifest.stages) {
        let [first, end] = shard.layers;
        let layers = if end == 0 { "both ends".to_owned() } else { layer_names(&(first..end)) };
        text += &format!(
            "  {:<16} {layers:<18} {:>9.1} MB  {}\n",
            shard.file,
            shard.bytes as f64 / 1e6,
            shard.digest.short()
        );
    }
    Ok(print(&text)?)
}
