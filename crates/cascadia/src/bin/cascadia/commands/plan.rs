//! `cascadia plan`.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use cascadia_fleet::{
    Candidate, FleetPlan, HERE, MachineSpeed, StageSplit, Suggestion, Task, plan as plan_fleet, suggestions,
};
use cascadia_kernels::Pool;
use cascadia_model::{CacheDemand, ModelSpec};
use cascadia_weights::ModelFiles;
use serde_json::json;

use super::export::recipe;
use crate::flags::PlanFlags;
use crate::fleet_home::FleetHome;
use crate::known_machines::{candidates, gather, measure};
use crate::model_costs::model_costs;
use crate::output::{print, print_json};
use crate::source::Located;
use crate::threads::pool;

/// Users at a time unless others are asked for.
pub(crate) const USERS: u32 = 8;
/// Contexts beyond this have to be asked for, as where models are opened.
const DEFAULT_CONTEXT: u32 = 4096;
/// Tokens of one step, as where models are opened.
const ROWS_PER_STEP: u32 = 512;
/// How long machines may take to come and be measured afresh.
const PATIENCE: Duration = Duration::from_secs(3);

/// What a model is to be planned for.
pub(crate) struct Wanted<'a> {
    /// The formats of its shards.
    pub(crate) precision: &'a str,
    /// Tokens of a conversation; the model's own limit, up to 4096, if none are asked for.
    pub(crate) context: Option<u32>,
    /// Users at a time.
    pub(crate) users: u32,
}

/// Shows how a model would be spread over machines, and how fast that would be.
pub(crate) fn plan(flags: &PlanFlags) -> anyhow::Result<()> {
    let folder = tempfile::tempdir().context("cannot make a folder for the headers of the model")?;
    let files = Located::outline(&flags.model, folder.path())?.files()?;
    let wanted = Wanted { precision: &flags.precision, context: flags.ctx, users: flags.users };
    let coordinator = measure(&pool(&flags.threads));
    let (machines, unknown) = machines(flags, coordinator)?;
    let (found, suggestions) = best(&files, &wanted, (coordinator, &machines))?;
    if flags.json {
        return Ok(print_json(&json!({
            "model": flags.model, "precision": flags.precision,
            "plan": found, "suggestions": suggestions, "machines_without_numbers": unknown,
        }))?);
    }
    let mut text = format!("{} as {}\n{}", flags.model, flags.precision, table(&found, &suggestions));
    if !unknown.is_empty() {
        let names = unknown.join(", ");
        text += &format!("Nothing is known of {names}; run `cascadia worker start` there, and plan again.\n");
    }
    Ok(print(&text)?)
}

/// The best plan for these machines, the first of which may be the coordinator, and what would help.
pub(crate) fn best(
    files: &ModelFiles,
    wanted: &Wanted<'_>,
    (coordinator, machines): (MachineSpeed, &[Candidate]),
) -> anyhow::Result<(FleetPlan, Vec<Suggestion>)> {
    let spec = ModelSpec::from_files(files)?;
    let context = wanted.context.unwrap_or(DEFAULT_CONTEXT).min(spec.context);
    let demand = CacheDemand { context, rows_per_step: ROWS_PER_STEP.min(context), sequences: wanted.users };
    let model = model_costs(files, recipe(wanted.precision)?.as_ref(), &demand)?;
    let task = Task { model: &model, coordinator, machines, users: wanted.users };
    let found = plan_fleet(&task)?;
    let suggestions = suggestions(&task, &found);
    Ok((found, suggestions))
}

/// The best plan for this machine and all others of the fleet of which something is known.
pub(crate) fn for_known_machines(
    home: &FleetHome,
    files: &ModelFiles,
    (wanted, pool): (&Wanted<'_>, &Arc<Pool>),
) -> anyhow::Result<FleetPlan> {
    let here = measure(pool);
    let (members, _) = asked(home, "all")?;
    let mut known = home.machines()?;
    known.retain(|name, _| members.contains(name));
    let machines = candidates(Some(here), &known);
    Ok(best(files, wanted, (here, &machines))?.0)
}

/// Where a plan cuts the model.
pub(crate) fn split(spec: &ModelSpec, plan: &FleetPlan) -> anyhow::Result<StageSplit> {
    let starts: Vec<u32> = plan.stages.iter().map(|stage| stage.layers.start).collect();
    Ok(StageSplit::at(spec, &starts)?)
}

/// The machines to plan for, and those of which nothing is known.
fn machines(flags: &PlanFlags, here: MachineSpeed) -> anyhow::Result<(Vec<Candidate>, Vec<String>)> {
    if !flags.nodes.is_empty() {
        let imagined = flags.nodes.iter().flat_map(|kind| (0..kind.count).map(move |_| kind)).enumerate();
        let imagined = imagined.map(|(number, kind)| {
            let name = format!("node-{number:02}");
            Candidate { name, speed: kind.speed, link: Some(kind.link) }
        });
        let here = Candidate { name: HERE.to_owned(), speed: here, link: None };
        return Ok(([here].into_iter().chain(imagined).collect(), Vec::new()));
    }
    let home = FleetHome::find(flags.home.home.as_deref())?;
    let (asked, with_here) = asked(&home, &flags.fleet)?;
    // Nobody comes while a server has the port; what it was told last is then good enough.
    if let Some(arrivals) = home.coordinator().ok().and_then(|settings| home.arrivals(&settings).ok()) {
        gather(&home, &arrivals, &asked, PATIENCE)?;
    }
    let mut known = home.machines()?;
    let unknown = asked.iter().filter(|name| !known.contains_key(*name)).cloned().collect();
    known.retain(|name, _| asked.contains(name));
    Ok((candidates(with_here.then_some(here), &known), unknown))
}

/// The machines that are meant by `all` or a list of names, and whether this one is among them.
pub(crate) fn asked(home: &FleetHome, fleet: &str) -> anyhow::Result<(Vec<String>, bool)> {
    let members: Vec<String> = home.members().all()?.into_iter().map(|member| member.name).collect();
    if fleet == "all" {
        return Ok((members, true));
    }
    let (here, others): (Vec<_>, Vec<_>) = fleet.split(',').map(str::to_owned).partition(|name| name == HERE);
    match others.iter().find(|name| !members.contains(name)) {
        Some(stranger) => bail!("`{stranger}` is no machine of this fleet; there are {}", members.join(", ")),
        None => Ok((others, !here.is_empty())),
    }
}

/// A plan for people.
pub(crate) fn table(plan: &FleetPlan, suggestions: &[Suggestion]) -> String {
    let mut text = "stage  layers    machine         memory  ms a token  network\n".to_owned();
    for (number, stage) in plan.stages.iter().enumerate() {
        let layers = format!("{}-{}", stage.layers.start, stage.layers.end.saturating_sub(1));
        let (memory, ms, network) = (stage.bytes as f64 / 1e9, 1e3 * stage.seconds, 1e3 * stage.network_seconds);
        let node = &stage.node;
        text += &format!("{number:<6} {layers:<9} {node:<12} {memory:>6.2} GB  {ms:>10.1}  {network:>7.1}\n");
    }
    text += &format!("both ends        {HERE:<12} {:>9}  {:>10.1}\n", "", 1e3 * plan.ends_seconds);
    let FleetPlan { one_user, users, all_users, slowest, .. } = plan;
    text += &format!("Expected: {one_user:.1} tokens/s for one user, {all_users:.1} for {users} together; ");
    text += &format!("{slowest} is busy longest.\n");
    for Suggestion { change, all_users } in suggestions {
        text += &format!("With {change}: {all_users:.1} tokens/s.\n");
    }
    text
}
