//! `cascadia plan`.

use std::time::Duration;

use anyhow::Context;
use cascadia_coordinator::{Machines, PlanDemand, plan_model};
use cascadia_fleet::{Candidate, FleetPlan, HERE, MachineSpeed, Suggestion, candidates, gather};
use serde_json::json;

use crate::flags::PlanFlags;
use crate::home::home;
use crate::output::{print, print_json};
use crate::source::outline;

/// How long machines may take to come and be measured afresh.
const PATIENCE: Duration = Duration::from_secs(3);

/// Shows how a model would be spread over machines, and how fast that would be.
pub(crate) fn plan(flags: &PlanFlags) -> anyhow::Result<()> {
    let folder = tempfile::tempdir().context("cannot make a folder for the headers of the model")?;
    let files = outline(&flags.model, folder.path())?.files()?;
    let kv = &flags.kv.policy()?;
    let demand = PlanDemand { precision: &flags.precision, context: flags.ctx, users: flags.users, kv };
    let coordinator = MachineSpeed::measure_here(&flags.threads.pool());
    let (machines, unknown) = machines(flags, coordinator)?;
    let (found, suggestions) = plan_model(&files, &demand, (coordinator, &machines))?;
    if flags.json {
        return Ok(print_json(&json!({
            "model": flags.model, "precision": flags.precision,
            "plan": found, "suggestions": suggestions, "machines_without_numbers": unknown,
        }))?);
    }
    let mut text = format!("{} as {}\n{}", flags.model, flags.precision, plan_table(&found, &suggestions));
    if !unknown.is_empty() {
        let names = unknown.join(", ");
        text += &format!(
            "Nothing is known of {names}; run `cascadia join` or `cascadia worker start` there, and plan again.\n"
        );
    }
    Ok(print(&text)?)
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
    let home = home(flags.home.home.as_deref())?;
    let (asked, with_here) = Machines::parse(&flags.fleet).members(&home)?;
    // A process that has the port measures machines as they connect to it.
    let free = home.coordinator().ok().filter(|_| !home.is_attended());
    if let Some(arrivals) = free.and_then(|settings| home.arrivals(&settings).ok()) {
        gather(&home, &arrivals, &asked, PATIENCE)?;
    }
    let mut known = home.machines()?;
    let unknown = asked.iter().filter(|name| !known.contains_key(*name)).cloned().collect();
    known.retain(|name, _| asked.contains(name));
    Ok((candidates(with_here.then_some(here), &known), unknown))
}

/// A plan for people.
pub(crate) fn plan_table(plan: &FleetPlan, suggestions: &[Suggestion]) -> String {
    let mut text = "stage  layers    machine         memory  ms a token  network\n".to_owned();
    for (number, stage) in plan.stages.iter().enumerate() {
        let layers = format!("{}-{}", stage.layers.start, stage.layers.end.saturating_sub(1));
        let (memory, ms, network) = (stage.bytes as f64 / 1e9, 1e3 * stage.seconds, 1e3 * stage.network_seconds);
        let node = &stage.node;
        text += &format!("{number:<6} {layers:<9} {node:<12} {memory:>6.2} GB  {ms:>10.1}  {network:>7.1}\n");
    }
    text += &format!("embed + output   {HERE:<12} {:>9}  {:>10.1}\n", "", 1e3 * plan.ends_seconds);
    let FleetPlan { one_user, users, all_users, slowest, .. } = plan;
    text += &format!("Expected: {one_user:.1} tokens/s for one user, {all_users:.1} for {users} together; ");
    text += &format!("{slowest} is busy longest.\n");
    if plan.sends_tokens {
        text += "Token ids, which are the text itself, are sent to the other machines: every layer of this model has inputs \
                 made from them.\n";
    }
    for Suggestion { change, all_users } in suggestions {
        text += &format!("With {change}: {all_users:.1} tokens/s.\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_tells_when_token_ids_leave_this_machine() {
        let plan = |sends_tokens| FleetPlan {
            stages: Vec::new(),
            ends_seconds: 0.0,
            one_user: 1.0,
            users: 1,
            all_users: 1.0,
            slowest: HERE.to_owned(),
            sends_tokens,
        };
        assert!(plan_table(&plan(true), &[]).contains("Token ids, which are the text itself, are sent"));
        assert!(!plan_table(&plan(false), &[]).contains("Token ids"));
    }
}
