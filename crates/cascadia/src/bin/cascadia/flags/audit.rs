//! Flags of commands for the audit log.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::HomeFlags;

/// What can be done with the audit log of a coordinator.
#[derive(Debug, Subcommand)]
pub enum AuditCommand {
    /// Check that no record was changed, moved, restamped or removed since it was written.
    Verify(AuditVerifyFlags),
    /// Show what was done with the fleet, and by whom.
    Show(AuditShowFlags),
}

/// Flags of `audit verify`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  cascadia audit verify\n  cascadia audit verify --heads node-00.json node-01.json\n\n\
    The files are what `cascadia worker head` prints on those machines. One from an honest machine is enough to notice \
    that the log was cut, rewritten or replaced by an older copy."
)]
pub struct AuditVerifyFlags {
    /// What workers remember of this log.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub heads: Vec<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
    /// Where keys and the log are.
    #[command(flatten)]
    pub home: HomeFlags,
}

/// Flags of `audit show`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  cascadia audit show --last 50")]
pub struct AuditShowFlags {
    /// Only the last so many records.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    pub last: u32,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
    /// Where keys and the log are.
    #[command(flatten)]
    pub home: HomeFlags,
}
