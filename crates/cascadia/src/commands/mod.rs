//! One file per command.

mod bench;
mod chat;
mod inspect;
mod keys;
mod logits;
mod perplexity;
mod quantize;
mod run;
mod serve;
mod tokenize;

use crate::flags::{Command, EvalCommand, Flags, KeysCommand};

/// Runs the command that the flags ask for.
pub fn execute(flags: Flags) -> anyhow::Result<()> {
    match flags.command {
        Command::Run(flags) => run::run(&flags),
        Command::Serve(flags) => serve::serve(flags),
        Command::Keys(KeysCommand::New(flags)) => keys::new(flags),
        Command::Inspect(flags) => inspect::inspect(&flags),
        Command::Eval(EvalCommand::Perplexity(flags)) => perplexity::perplexity(&flags),
        Command::Eval(EvalCommand::Logits(flags)) => logits::logits(&flags),
        Command::Bench(flags) => bench::bench(&flags),
        Command::Quantize(flags) => quantize::quantize(&flags),
        Command::Tokenize(flags) => tokenize::tokenize(&flags),
    }
}
