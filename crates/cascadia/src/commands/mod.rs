//! One file per command.

mod bench;
mod chat;
mod inspect;
mod logits;
mod perplexity;
mod quantize;
mod run;
mod tokenize;

use crate::flags::{Command, EvalCommand, Flags};

/// Runs the command that the flags ask for.
pub fn execute(flags: Flags) -> anyhow::Result<()> {
    match flags.command {
        Command::Run(flags) => run::run(&flags),
        Command::Inspect(flags) => inspect::inspect(&flags),
        Command::Eval(EvalCommand::Perplexity(flags)) => perplexity::perplexity(&flags),
        Command::Eval(EvalCommand::Logits(flags)) => logits::logits(&flags),
        Command::Bench(flags) => bench::bench(&flags),
        Command::Quantize(flags) => quantize::quantize(&flags),
        Command::Tokenize(flags) => tokenize::tokenize(&flags),
    }
}
