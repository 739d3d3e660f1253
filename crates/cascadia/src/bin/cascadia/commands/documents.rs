//! `cascadia completions` and `cascadia man`: what shells and people read, made from the same flags as the program.

use std::fs;

use anyhow::Context;
use clap::CommandFactory;

use crate::flags::{CompletionsFlags, Flags, ManFlags};
use crate::output::print;

const NAME: &str = "cascadia";

/// Prints a completion script.
pub(crate) fn completions(flags: &CompletionsFlags) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(flags.shell, &mut Flags::command(), NAME, &mut script);
    Ok(print(&String::from_utf8_lossy(&script))?)
}

/// Writes a page for the program and one for each of its commands.
pub(crate) fn man(flags: &ManFlags) -> anyhow::Result<()> {
    let failed = || format!("cannot write manual pages to {}", flags.folder.display());
    fs::create_dir_all(&flags.folder).with_context(failed)?;
    clap_mangen::generate_to(Flags::command(), &flags.folder).with_context(failed)
}
