//! Flags of commands for the audit log.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::HomeFlags;

/// Commands for the coordinator's audit log.
#[derive(Debug, Subcommand)]
pub enum AuditCommand {
    /// Verify that no record was changed, reordered, re-dated or removed.
    Verify(AuditVerifyFlags),
    /// Show the log: what was done with the fleet, and by whom.
    Show(AuditShowFlags),
}

/// Flags of `audit verify`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  cascadia audit verify\n  cascadia audit verify --heads node-00.json node-01.json\n\n\
    A head file is the output of `cascadia worker head` on a worker. One head from an honest worker is enough to \
    detect that the log was truncated, rewritten or replaced by an older copy."
)]
pub struct AuditVerifyFlags {
    /// Head files from workers: the log state they have countersigned.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub heads: Vec<PathBuf>,
    /// Print the result as one JSON object.
    #[arg(long)]
    pub json: bool,
    /// Where keys and the log are stored.
    #[command(flatten)]
    pub home: HomeFlags,
}

/// Flags of `audit show`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  cascadia audit show --last 50\n  cascadia audit show --seen-by node-01")]
pub struct AuditShowFlags {
    /// Show only the last N records.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    pub last: u32,
    /// Show for which requests this node was sent hidden states, instead of the records.
    #[arg(long, value_name = "NODE")]
    pub seen_by: Option<String>,
    /// Print the result as one JSON object.
    #[arg(long)]
    pub json: bool,
    /// Where keys and the log are stored.
    #[command(flatten)]
    pub home: HomeFlags,
}
