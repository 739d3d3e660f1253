//! Flags of `bench chaos`.

use clap::{Args, ValueEnum};

/// Flags of `bench chaos`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  cascadia bench chaos --seed 7 --kills 20\n  \
    cascadia bench chaos --fault hang --times 20 --absence-ms 5000")]
pub struct ChaosFlags {
    /// A small model: a .gguf file, a folder, or org/name on the hub; without it the model inside the program.
    pub model: Option<String>,
    /// Decides which machine meets what, and when.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// The only thing that happens; without it mostly kills, while some machines hang, are cut off or fall silent.
    #[arg(long, value_name = "KIND")]
    pub fault: Option<Fault>,
    /// How often it happens; without --fault, how many workers are killed.
    #[arg(long, visible_alias = "times", value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub kills: u32,
    /// For how long a machine hangs, or its connection is disturbed.
    #[arg(long, value_name = "N", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=600_000))]
    pub absence_ms: u64,
    /// Answers that are made at the same time.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub streams: u32,
    /// Stages, each with a machine that computes and one to spare.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=16))]
    pub stages: u32,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// What happens to a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Fault {
    /// Its process is killed (`kill -9`) and started again.
    Kill,
    /// Its process is stopped (SIGSTOP) for a while.
    Hang,
    /// Its connection is cut.
    Cut,
    /// Nothing passes on its connection for a while, and nobody is told.
    Silence,
    /// The same for what is sent to it: it reads nothing.
    Deaf,
    /// The same for what it sends.
    Mute,
    /// A byte a second passes for a while.
    Dribble,
    /// Everything passes 50 ms later, in both directions, until another machine computes.
    Slow,
}
