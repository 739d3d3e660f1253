//! Flags of `bench chaos`.

use clap::Args;

/// Flags of `bench chaos`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  cascadia bench chaos --seed 7 --kills 20")]
pub struct ChaosFlags {
    /// A small model: a .gguf file, a folder, or org/name on the hub; without it the model inside the program.
    pub model: Option<String>,
    /// Decides which machine meets what, and when.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Workers that are killed; others hang, are cut off or fall silent meanwhile.
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub kills: u32,
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
