//! `cascadia eval latency`.

use cascadia_engine::{CacheSize, Engine, OpenOptions};
use cascadia_eval::{Latency, LatencyPlan};

use super::measured_model::{Heading, MeasuredModel};
use crate::flags::LatencyFlags;
use crate::progress::Progress;

/// Times decode steps and first tokens for every number of users.
pub(super) fn latency(flags: &LatencyFlags) -> anyhow::Result<()> {
    let model = MeasuredModel::find(&flags.model, &flags.report)?;
    let contexts = flags.contexts.iter().map(|&context| context as usize).collect();
    let plan = LatencyPlan { contexts, steps: flags.steps as usize }.within(model.spec.context as usize);
    let options = model.options(flags.kv.policy()?, plan.context())?;
    let mut latency = Latency::new(plan)?;
    let bar = Progress::new("contexts");
    for &users in &flags.users {
        bar.label(&format!("contexts with users: {users}"));
        let options = OpenOptions { cache: CacheSize::Sequences(users), ..options.clone() };
        let pipeline = Engine::from_files(model.files()?, &options)?.into_pipeline();
        latency.add(users as usize, pipeline, |done, total| bar.set(done as u64, total as u64))?;
    }
    drop(bar);
    let notes = vec![
        format!(
            "{} steps per measurement, one token of each user in every step; KV cache {}.",
            flags.steps,
            flags.kv.name()
        ),
        "First tokens: the prompts of all users come at once and are computed one after the other.".to_owned(),
    ];
    let heading = Heading { measurement: "latency", title: "Latency by context and users", notes };
    flags.report.deliver(&model.report(heading, latency.into_metrics()))
}
