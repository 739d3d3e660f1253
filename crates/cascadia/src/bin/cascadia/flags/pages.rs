//! Flags for where weights lie in memory.

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

/// Where weights lie in memory.
#[derive(Debug, Clone, Args)]
pub struct PageFlags {
    /// Read all weights into memory before the first token.
    #[arg(long, conflicts_with = "memory")]
    pub populate: bool,
    /// Lock the weights in memory (mlock), so that the system never drops them. Needs a limit on locked memory
    /// (`ulimit -l`) above their size.
    #[arg(long, conflicts_with = "memory")]
    pub lock: bool,
    /// On machines with several memory nodes (Linux): interleave spreads weights and KV cache evenly over all of them.
    /// Weights that are in the system's file cache already stay where they are.
    #[arg(long, value_name = "POLICY")]
    pub numa: Option<NumaChoice>,
}

/// A value of `--numa`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NumaChoice {
    /// Page by page over all nodes.
    Interleave,
}
