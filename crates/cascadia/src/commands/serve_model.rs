//! `cascadia serve MODEL --fleet`: plans a model over the machines that come, exports it, and sends it to them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use cascadia_fleet::{Arrival, FleetPlan, HERE, Manifest, Shard};
use cascadia_kernels::Pool;
use cascadia_model::ModelSpec;
use cascadia_weights::ModelFiles;

use super::export::{ExportJob, KEEP};
use super::fleet_push::send_shards;
use super::inspect::main_format;
use super::plan::{self, Wanted};
use crate::fleet_home::{CoordinatorSettings, FleetHome};
use crate::known_machines::{candidates, gather, measure};
use crate::output::remark;
use crate::source::Located;

/// How long machines may take to come; those that come later are not planned with.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long one may take to come back for its shard.
const WAIT: Duration = Duration::from_secs(60);
/// Formats that a model is not left in.
const WIDE: [&str; 3] = ["F32", "F16", "BF16"];
/// What it gets instead.
const NARROW: &str = "int4";

/// A model that is to run on a fleet.
pub(crate) struct ModelChoice<'a> {
    /// The model, as it was asked for.
    pub(crate) model: &'a str,
    /// `all`, or names of machines.
    pub(crate) fleet: &'a str,
    /// Tokens of a conversation.
    pub(crate) context: Option<u32>,
    /// Users at a time.
    pub(crate) users: u32,
    /// The threads to compute with here.
    pub(crate) pool: &'a Arc<Pool>,
}

/// A model that every machine has its part of.
pub(crate) struct Prepared {
    pub(crate) folder: PathBuf,
    pub(crate) nodes: Vec<String>,
    pub(crate) own_stages: Vec<u32>,
    pub(crate) plan: FleetPlan,
}

/// Plans, exports and sends a model.
pub(crate) fn prepare(
    home: &FleetHome,
    settings: &CoordinatorSettings,
    choice: &ModelChoice<'_>,
    arrivals: &Receiver<Arrival>,
) -> anyhow::Result<Prepared> {
    let located = Located::find(choice.model)?;
    let files = located.files()?;
    let precision = if main_format(&files).is_none_or(|format| WIDE.contains(&format)) { NARROW } else { KEEP };
    let found = plan(home, choice, &files, (precision, arrivals))?;
    remark(plan::table(&found, &[]).trim_end());
    let split = plan::split(&ModelSpec::from_files(&files)?, &found)?;
    let pool = Arc::clone(choice.pool);
    let job =
        |out| ExportJob { name: located.name(), files: &files, split: &split, precision, out, pool: pool.clone() };
    let folder = home.exports().join(job(Path::new("")).key());
    let manifest = match Manifest::read(&folder).ok().filter(|manifest| is_whole(&folder, manifest)) {
        Some(manifest) => manifest,
        None => {
            remark(&format!("Cutting {} into {} ({precision}).", located.name(), stages(split.stages().len())));
            job(&folder).write()?
        }
    };
    let node = |stage: usize| found.stages[stage].node.clone();
    let targets = manifest.stages.iter().enumerate().map(|(stage, shard)| (node(stage), shard));
    let (own, others): (Vec<_>, Vec<_>) = targets.partition(|(node, _)| node == HERE);
    let nodes = others.iter().map(|(node, _)| node.clone()).collect();
    // Who came while the model was cut may have given up; it comes again.
    while arrivals.try_recv().is_ok() {}
    send_shards(home, arrivals, (&folder, others), WAIT)?;
    let number = |shard: &Shard| manifest.stages.iter().position(|stage| stage == shard).unwrap_or_default() as u32;
    let own_stages: Vec<u32> = own.into_iter().map(|(_, shard)| number(shard)).collect();
    let pushed = Some(folder.clone());
    home.set_coordinator(&CoordinatorSettings { pushed, own_stages: own_stages.clone(), ..settings.clone() })?;
    Ok(Prepared { folder, nodes, own_stages, plan: found })
}

/// The best plan for the machines that come.
fn plan(
    home: &FleetHome,
    choice: &ModelChoice<'_>,
    files: &ModelFiles,
    (precision, arrivals): (&str, &Receiver<Arrival>),
) -> anyhow::Result<FleetPlan> {
    let (asked, with_here) = plan::asked(home, choice.fleet)?;
    if !asked.is_empty() {
        remark(&format!("Waiting for {} to be measured.", asked.join(", ")));
    }
    let come = gather(home, arrivals, &asked, PATIENCE)?;
    let absent: Vec<&str> = asked.iter().filter(|node| !come.contains_key(*node)).map(String::as_str).collect();
    if !absent.is_empty() {
        remark(&format!("{} did not come; planning without.", absent.join(", ")));
    }
    let here = measure(choice.pool);
    let machines = candidates(with_here.then_some(here), &come);
    let wanted = Wanted { precision, context: choice.context, users: choice.users };
    Ok(plan::best(files, &wanted, (here, &machines))?.0)
}

/// Whether all files of an export are there; what is in them is checked by whoever loads them.
fn is_whole(folder: &Path, manifest: &Manifest) -> bool {
    let shards = std::iter::once(&manifest.token_io).chain(&manifest.stages);
    let length = |shard: &Shard| std::fs::metadata(folder.join(&shard.file)).ok().map(|metadata| metadata.len());
    shards.into_iter().all(|shard| length(shard) == Some(shard.bytes))
}

fn stages(count: usize) -> String {
    if count == 1 { "one stage".to_owned() } else { format!("{count} stages") }
}
