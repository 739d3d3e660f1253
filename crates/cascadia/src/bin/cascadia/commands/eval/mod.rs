//! `cascadia eval`: what it measures, one file each.

mod accumulation;
mod compare;
mod deliver;
mod drift;
mod latency;
mod logits;
mod measured_model;
mod memory;
mod perplexity;

use crate::flags::EvalCommand;

/// Measures what the command asks for.
pub(crate) fn eval(command: &EvalCommand) -> anyhow::Result<()> {
    match command {
        EvalCommand::Perplexity(flags) => perplexity::perplexity(flags),
        EvalCommand::Logits(flags) => logits::logits(flags),
        EvalCommand::Latency(flags) => latency::latency(flags),
        EvalCommand::Memory(flags) => memory::memory(flags),
        EvalCommand::Drift(flags) => drift::drift(flags),
        EvalCommand::Accumulation(flags) => accumulation::accumulation(flags),
        EvalCommand::Compare(flags) => compare::compare(flags),
    }
}
