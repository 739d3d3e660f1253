//! `cascadia bench`: what it measures, one file each.

mod adapters;
mod batch;
mod chaos;
mod load;
mod machine;
mod profile;
mod speed;

use cascadia::ModelSource;
use cascadia_engine::OpenOptions;
use cascadia_eval::SpeedPlan;
use cascadia_weights::ModelFiles;

use crate::flags::{BenchCommand, BenchFlags};
use crate::source::{find, in_format};

/// Measures what the flags ask for.
pub(crate) fn bench(flags: &BenchFlags) -> anyhow::Result<()> {
    match &flags.command {
        Some(BenchCommand::Machine(flags)) => machine::machine(flags),
        Some(BenchCommand::Serve(flags)) => load::load(flags),
        Some(BenchCommand::Chaos(flags)) => chaos::chaos(flags),
        None if flags.adapters.is_some() => adapters::adapters(flags),
        None if !flags.batch.is_empty() => batch::batch(flags),
        None if flags.profile => profile::profile(flags),
        None => speed::speed(flags),
    }
}

/// The name that the user gave; clap asks for it unless there is a subcommand.
fn model_name(flags: &BenchFlags) -> &str {
    flags.model.as_deref().unwrap_or_default()
}

fn source(flags: &BenchFlags) -> anyhow::Result<ModelSource> {
    in_format(find(model_name(flags))?, flags.kind.as_deref(), flags.compute.threads.threads())
}

fn files(flags: &BenchFlags) -> anyhow::Result<ModelFiles> {
    Ok(source(flags)?.files()?)
}

fn speed_plan(flags: &BenchFlags) -> SpeedPlan {
    SpeedPlan {
        prompt: flags.prompt as usize,
        generate: flags.generate as usize,
        depths: flags.depth.iter().map(|&depth| depth as usize).collect(),
        repeat: flags.repeat as usize,
    }
}

fn open_options(flags: &BenchFlags, context: usize) -> anyhow::Result<OpenOptions> {
    let context = Some(u32::try_from(context)?);
    let pages = flags.pages.prepare()?;
    let options = flags.adapter.apply(flags.numerics.apply(flags.compute.open_options())?);
    Ok(OpenOptions { context, memory: flags.memory, pages, ..options })
}
