//! Flags of commands that write a model.

use clap::Args;

/// What a command may write over.
#[derive(Debug, Clone, Copy, Args)]
pub struct OutputFlags {
    /// Replace the output if it exists. The model that is read is never replaced.
    #[arg(long)]
    pub force: bool,
}
