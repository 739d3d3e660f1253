//! `cascadia serve MODEL --fleet`: plans a model over the machines that come, and cuts it for them.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cascadia_fleet::{Candidate, Digest, FleetPlan, HERE, Manifest, Shard};
use cascadia_kernels::Pool;
use cascadia_model::ModelSpec;
use cascadia_weights::ModelFiles;

use super::export::{ExportJob, KEEP};
use super::inspect::main_format;
use super::plan::{self, Wanted};
use super::serve::parallel;
use super::serve_fleet::{Cast, Fleet};
use crate::flags::ServeFlags;
use crate::fleet_home::FleetHome;
use crate::known_machines::{KnownMachines, candidates, measure, remember};
use crate::output::remark;
use crate::source::Located;

/// How long machines may take to come; those that come later are used when it is planned again.
pub(super) const COMING: Duration = Duration::from_secs(10);
/// How long one may take to come back for its shard.
pub(super) const SENDING: Duration = Duration::from_secs(60);
/// Formats that a model is not left in.
const WIDE: [&str; 3] = ["F32", "F16", "BF16"];
/// What it gets instead.
const NARROW: &str = "int4";

/// A model that is to run on a fleet.
#[derive(Clone, Copy)]
pub(crate) struct ModelChoice<'a> {
    /// The model, as it was asked for.
    pub(crate) model: &'a str,
    /// `all`, or names of machines.
    pub(crate) fleet: &'a str,
    /// Tokens of a conversation.
    pub(crate) context: Option<u32>,
    /// Users at a time.
    pub(crate) users: u32,
}

/// A model that was cut for machines.
pub(crate) struct Prepared {
    pub(crate) cast: Cast,
    pub(crate) model: Digest,
    /// Machines and the number of the stage each gets.
    pub(crate) targets: Vec<(String, usize)>,
}

impl<'a> ModelChoice<'a> {
    /// The model that is to be planned, if that was asked for.
    pub(crate) fn of(flags: &'a ServeFlags) -> Option<ModelChoice<'a>> {
        let (model, fleet) = flags.model.as_deref().zip(flags.fleet.as_deref())?;
        Some(ModelChoice { model, fleet, context: flags.ctx, users: parallel(flags) })
    }

    /// The machines that may take part; all of the fleet if none are named.
    pub(crate) fn nodes(&self, home: &FleetHome) -> anyhow::Result<Option<Vec<String>>> {
        let (asked, _) = plan::asked(home, self.fleet)?;
        Ok((self.fleet != "all").then_some(asked))
    }

    /// Plans the model over the machines that are there, or come in time, and cuts it.
    pub(crate) fn prepare(&self, fleet: &Fleet, pool: &Arc<Pool>, patience: Duration) -> anyhow::Result<Prepared> {
        let located = Located::find(self.model)?;
        let files = located.files()?;
        let precision = if main_format(&files).is_none_or(|format| WIDE.contains(&format)) { NARROW } else { KEEP };
        let found = self.plan(fleet, (&files, precision), (pool, patience))?;
        remark(plan::table(&found, &[]).trim_end());
        let split = plan::split(&ModelSpec::from_files(&files)?, &found)?;
        let job = |out| {
            let (name, pool) = (located.name(), Arc::clone(pool));
            ExportJob { name, files: &files, split: &split, precision, out, pool }
        };
        let folder = fleet.home.exports().join(job(Path::new("")).key());
        let manifest = match Manifest::read(&folder).ok().filter(|manifest| is_whole(&folder, manifest)) {
            Some(manifest) => manifest,
            None => {
                remark(&format!("Cutting {} into {} ({precision}).", located.name(), stages(split.stages().len())));
                job(&folder).write()?
            }
        };
        let targets: Vec<(String, usize)> = found.stages.iter().map(|stage| stage.node.clone()).zip(0..).collect();
        let own = targets.iter().filter(|(node, _)| node == HERE).map(|(_, stage)| *stage as u32).collect();
        Ok(Prepared { cast: Cast { folder, own, plan: Some(found) }, model: manifest.model, targets })
    }

    /// The best plan for the machines that come. One that is held back is used if it does not fit without.
    fn plan(
        &self,
        fleet: &Fleet,
        (files, precision): (&ModelFiles, &str),
        (pool, patience): (&Arc<Pool>, Duration),
    ) -> anyhow::Result<FleetPlan> {
        let (asked, with_here) = plan::asked(&fleet.home, self.fleet)?;
        if !asked.is_empty() {
            remark(&format!("Waiting for {} to be measured.", asked.join(", ")));
        }
        let come = remember(&fleet.home, fleet.registry.measure(&asked, Instant::now() + patience))?;
        let absent: Vec<&str> = asked.iter().filter(|node| !come.contains_key(*node)).map(String::as_str).collect();
        if !absent.is_empty() {
            remark(&format!("{} did not come; planning without.", absent.join(", ")));
        }
        let (mut steady, held_back) = (come.clone(), fleet.quarantine.held_back(Instant::now()));
        steady.retain(|node, _| !held_back.contains_key(node));
        let (here, wanted) = (measure(pool), Wanted { precision, context: self.context, users: self.users });
        let plan = |machines: &KnownMachines| {
            let mut machines = candidates(with_here.then_some(here), machines);
            keep_places(&mut machines, fleet);
            plan::best(files, &wanted, (here, &machines))
        };
        Ok(plan(&steady).or_else(|_| plan(&come))?.0)
    }
}

/// Orders machines so that one that computes a stage can keep it, and others come where the first is missing.
fn keep_places(machines: &mut [Candidate], fleet: &Fleet) {
    let Some(model_workers) = fleet.served() else { return };
    let (stages, gap) = (model_workers.manifest().stages.len(), fleet.missing().first().copied());
    // The coordinator itself stays the first.
    machines.sort_by_cached_key(|Candidate { name, link, .. }| {
        (link.is_some(), (0..stages).find(|stage| fleet.has(name, *stage)).or(gap))
    });
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
