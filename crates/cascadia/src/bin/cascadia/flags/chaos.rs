//! Flags of `bench chaos`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Flags of `bench chaos`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  cascadia bench chaos --seed 7 --kills 20\n  \
    cascadia bench chaos --fault hang --times 20 --absence-ms 5000")]
pub struct ChaosFlags {
    /// A small model: a .gguf file, a folder, or org/name on the Hub [default: the built-in model].
    pub model: Option<String>,
    /// Random seed for the faults: which worker, which fault, when.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Inject only this fault [default: mostly kills, with some hangs, cuts and silences].
    #[arg(long, value_name = "KIND")]
    pub fault: Option<Fault>,
    /// Number of faults with --fault; otherwise number of kills.
    #[arg(long, visible_alias = "times", value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub kills: u32,
    /// How long a worker hangs or its connection is disturbed, in milliseconds.
    #[arg(long, value_name = "N", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=600_000))]
    pub absence_ms: u64,
    /// Number of concurrent answers.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub streams: u32,
    /// Number of stages. Each has one active worker and one standby.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=16))]
    pub stages: u32,
    /// Folder of adapters (LoRA) for the model, one in each sub-folder. Answers use them in turn, and none.
    #[arg(long, value_name = "DIR")]
    pub adapters: Option<PathBuf>,
    /// Print the result as one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// A fault to inject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Fault {
    /// Kill the worker process (`kill -9`) and start it again.
    Kill,
    /// Stop the worker process (SIGSTOP) for a while.
    Hang,
    /// Close its connection.
    Cut,
    /// Drop all traffic in both directions for a while, without closing the connection.
    Silence,
    /// Drop only traffic to the worker.
    Deaf,
    /// Drop only traffic from the worker.
    Mute,
    /// Let one byte per second through for a while.
    Dribble,
    /// Delay traffic by 50 ms in both directions, until another worker takes over.
    Slow,
}
