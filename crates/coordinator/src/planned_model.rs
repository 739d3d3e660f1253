//! A model that is planned over the machines that connect, and split for them.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cascadia_fleet::{
    Candidate, Digest, FleetEvent, FleetHome, FleetPlan, HERE, KnownMachines, MachineSpeed, Manifest, Shard,
    candidates, remember,
};
use cascadia_kernels::Pool;
use cascadia_model::{KvPolicy, ModelSpec};
use cascadia_weights::{ModelFiles, WeightsError};

use crate::export::{ExportJob, KEEP};
use crate::plan::{PlanDemand, plan_model, split_as_planned};
use crate::{Coordinator, CoordinatorError, Deployment, Machines};

/// How long machines may take to connect; those that connect later are used when it is planned again.
pub(crate) const CONNECTING: Duration = Duration::from_secs(10);
/// How long one may take to connect again for its shard.
pub(crate) const SENDING: Duration = Duration::from_secs(60);
/// How much faster a model must become to be split anew while it is served.
const WORTH: f64 = 1.1;
/// Formats that a model is not left in.
const WIDE: [&str; 3] = ["F32", "F16", "BF16"];
/// What it gets instead.
const NARROW: &str = "int4";

/// Opens the files of a model, each time it is planned.
pub type OpenModelFiles = Arc<dyn Fn() -> Result<ModelFiles, WeightsError> + Send + Sync>;

/// A model that is to run on a fleet.
#[derive(Clone)]
pub struct PlannedModel {
    /// What people call it.
    pub name: String,
    /// Opens its files.
    pub open: OpenModelFiles,
    /// The machines that may run it.
    pub machines: Machines,
    /// Tokens of a conversation; the model's own limit, up to 4096, if none are asked for.
    pub context: Option<u32>,
    /// Users at a time.
    pub users: u32,
    /// How their caches are stored.
    pub kv: KvPolicy,
}

/// A model that was split for machines.
pub struct PreparedModel {
    /// Where it is, and what of it runs here.
    pub deployment: Deployment,
    /// Its digest.
    pub model: Digest,
    /// Machines and the number of the stage each gets.
    pub targets: Vec<(String, usize)>,
}

impl PreparedModel {
    /// How long a machine may take to connect again for its shard.
    pub const PATIENCE: Duration = SENDING;
}

impl PlannedModel {
    /// Plans the model over the machines that are connected, or connect in time, and splits it.
    pub fn prepare(
        &self,
        coordinator: &Coordinator,
        pool: &Arc<Pool>,
        patience: Duration,
    ) -> Result<PreparedModel, CoordinatorError> {
        let (files, precision) = self.files()?;
        let found = self.plan(coordinator, (&files, precision), (pool, patience))?;
        self.split(coordinator.home(), (&files, precision), (pool, found))
    }

    /// The same if that makes it noticeably faster than it is expected to be now; nothing otherwise.
    pub fn prepare_faster(
        &self,
        coordinator: &Coordinator,
        pool: &Arc<Pool>,
        patience: Duration,
    ) -> Result<Option<PreparedModel>, CoordinatorError> {
        let (files, precision) = self.files()?;
        let found = self.plan(coordinator, (&files, precision), (pool, patience))?;
        let is_faster = coordinator.plan().is_some_and(|now| found.all_users >= WORTH * now.all_users);
        is_faster.then(|| self.split(coordinator.home(), (&files, precision), (pool, found))).transpose()
    }

    /// The files of the model, and the formats that its shards get.
    fn files(&self) -> Result<(ModelFiles, &'static str), CoordinatorError> {
        let files = (self.open)()?;
        let precision = if files.main_format().is_none_or(|format| WIDE.contains(&format)) { NARROW } else { KEEP };
        Ok((files, precision))
    }

    /// Splits the model as it was planned, unless it was split so before.
    fn split(
        &self,
        home: &FleetHome,
        (files, precision): (&ModelFiles, &str),
        (pool, found): (&Arc<Pool>, FleetPlan),
    ) -> Result<PreparedModel, CoordinatorError> {
        home.notify(FleetEvent::Planned(found.clone()));
        let split = split_as_planned(&ModelSpec::from_files(files)?, &found)?;
        let notify = |event: &FleetEvent| home.notify(event.clone());
        let job = |out| {
            let (name, pool) = (self.name.clone(), Arc::clone(pool));
            ExportJob { name, files, split: &split, precision, out, pool, notify: &notify }
        };
        let folder = home.exports().join(job(Path::new("")).key());
        let manifest = match Manifest::read(&folder).ok().filter(|manifest| is_whole(&folder, manifest)) {
            Some(manifest) => manifest,
            None => {
                let (model, stages, precision) = (self.name.clone(), split.stages().len(), precision.to_owned());
                home.notify(FleetEvent::Exporting { model, stages, precision });
                job(&folder).write()?
            }
        };
        let targets: Vec<(String, usize)> = found.stages.iter().map(|stage| stage.node.clone()).zip(0..).collect();
        let own_stages = targets.iter().filter(|(node, _)| node == HERE).map(|(_, stage)| *stage as u32).collect();
        let deployment = Deployment { folder, own_stages, plan: Some(found) };
        Ok(PreparedModel { deployment, model: manifest.model, targets })
    }

    /// The best plan for the machines that connect. Those in quarantine are used only if it does not fit without them.
    fn plan(
        &self,
        coordinator: &Coordinator,
        (files, precision): (&ModelFiles, &str),
        (pool, patience): (&Pool, Duration),
    ) -> Result<FleetPlan, CoordinatorError> {
        let (home, clock) = (coordinator.home(), coordinator.registry().clock());
        let (asked, with_here) = self.machines.members(home)?;
        if !asked.is_empty() {
            home.notify(FleetEvent::Measuring { nodes: asked.clone() });
        }
        let connected = remember(home, coordinator.registry().measure(&asked, clock.now() + patience))?;
        coordinator.planned_over(connected.keys());
        let absent: Vec<String> = asked.into_iter().filter(|node| !connected.contains_key(node)).collect();
        if !absent.is_empty() {
            home.notify(FleetEvent::Absent { nodes: absent });
        }
        let (mut steady, held_back) = (connected.clone(), coordinator.quarantine().held_back(clock.now()));
        steady.retain(|node, _| !held_back.contains_key(node));
        let here = MachineSpeed::measure_here(pool);
        let demand = PlanDemand { precision, context: self.context, users: self.users, kv: &self.kv };
        let plan = |machines: &KnownMachines| {
            let mut machines = candidates(with_here.then_some(here), machines);
            keep_stages(&mut machines, coordinator);
            plan_model(files, &demand, (here, &machines))
        };
        Ok(plan(&steady).or_else(|_| plan(&connected))?.0)
    }
}

/// Orders machines so that one that computes a stage can keep it, and others take the place of the first that is missing.
fn keep_stages(machines: &mut [Candidate], coordinator: &Coordinator) {
    let Some(workers) = coordinator.served() else { return };
    let (stages, gap) = (workers.manifest().stages.len(), coordinator.missing().first().copied());
    // The coordinator itself stays the first.
    machines.sort_by_cached_key(|Candidate { name, link, .. }| {
        (link.is_some(), (0..stages).find(|stage| coordinator.has(name, *stage)).or(gap))
    });
}

/// Whether all files of an export are there; their content is checked when they are loaded.
fn is_whole(folder: &Path, manifest: &Manifest) -> bool {
    let shards = std::iter::once(&manifest.token_io).chain(&manifest.stages);
    let length = |shard: &Shard| std::fs::metadata(folder.join(&shard.file)).ok().map(|metadata| metadata.len());
    shards.into_iter().all(|shard| length(shard) == Some(shard.bytes))
}
