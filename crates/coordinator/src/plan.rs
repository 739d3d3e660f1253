//! Plans a model over machines from its names and shapes.

use cascadia_fleet::{
    Candidate, FleetHome, FleetPlan, MachineSpeed, StageSplit, Suggestion, Task, candidates, plan, suggestions,
};
use cascadia_kernels::Pool;
use cascadia_model::{CacheDemand, KvPolicy, ModelSpec};
use cascadia_weights::ModelFiles;

use crate::{CoordinatorError, Machines, model_costs, recipe};

/// Users at a time unless others are asked for.
pub const DEFAULT_USERS: u32 = 8;
/// Contexts beyond this have to be asked for, as where models are opened.
const DEFAULT_CONTEXT: u32 = 4096;
/// Tokens of one step, as where models are opened.
const ROWS_PER_STEP: u32 = 512;

/// What a model is planned for.
#[derive(Clone, Copy, Debug)]
pub struct PlanDemand<'a> {
    /// The formats of its shards, see [`recipe`].
    pub precision: &'a str,
    /// Tokens of a conversation; the model's own limit, up to 4096, if none are asked for.
    pub context: Option<u32>,
    /// Users at a time.
    pub users: u32,
    /// How their caches are stored.
    pub kv: &'a KvPolicy,
}

/// The best plan for these machines, the first of which may be the coordinator, and what would help.
pub fn plan_model(
    files: &ModelFiles,
    demand: &PlanDemand<'_>,
    (coordinator, machines): (MachineSpeed, &[Candidate]),
) -> Result<(FleetPlan, Vec<Suggestion>), CoordinatorError> {
    let spec = ModelSpec::from_files(files)?;
    let context = demand.context.unwrap_or(DEFAULT_CONTEXT).min(spec.context);
    let cache = CacheDemand { context, rows_per_step: ROWS_PER_STEP.min(context), sequences: demand.users };
    let model = model_costs(files, recipe(demand.precision)?.as_ref(), (&cache, demand.kv))?;
    let task = Task { model: &model, coordinator, machines, users: demand.users };
    let found = plan(&task)?;
    let suggestions = suggestions(&task, &found);
    Ok((found, suggestions))
}

/// The best plan for this machine and all others of the fleet whose speed is known.
pub fn plan_for_known_machines(
    home: &FleetHome,
    files: &ModelFiles,
    demand: &PlanDemand<'_>,
    pool: &Pool,
) -> Result<FleetPlan, CoordinatorError> {
    let here = MachineSpeed::measure_here(pool);
    let (members, _) = Machines::All.members(home)?;
    let mut known = home.machines()?;
    known.retain(|name, _| members.contains(name));
    let machines = candidates(Some(here), &known);
    Ok(plan_model(files, demand, (here, &machines))?.0)
}

/// Where a plan splits the model.
pub fn split_as_planned(spec: &ModelSpec, plan: &FleetPlan) -> Result<StageSplit, CoordinatorError> {
    let starts: Vec<u32> = plan.stages.iter().map(|stage| stage.layers.start).collect();
    Ok(StageSplit::at(spec, &starts)?)
}
