//! The `cascadia` program: reads flags, runs one command, reports how it went.
#![forbid(unsafe_code)]

mod commands;
mod failure;
pub mod flags;
mod home;
mod hub;
mod human;
mod machine;
mod output;
mod overwrite;
mod progress;
mod scored_text;
mod source;

use std::process::ExitCode;

use clap::Parser;

use crate::commands::execute;
use crate::failure::exit_code;
use crate::flags::Flags;

fn main() -> ExitCode {
    exit_code(execute(Flags::parse()))
}
