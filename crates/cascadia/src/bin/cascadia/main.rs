//! The `cascadia` program: reads flags, runs one command, reports how it went.
#![forbid(unsafe_code)]

mod commands;
mod failure;
pub mod flags;
mod fleet_home;
mod handover;
mod hub;
mod known_machines;
mod machine;
mod model_costs;
mod os;
mod output;
mod progress;
mod scored_text;
mod source;
mod threads;

use std::process::ExitCode;

use clap::Parser;

use crate::commands::execute;
use crate::failure::exit_code;
use crate::flags::Flags;

fn main() -> ExitCode {
    exit_code(execute(Flags::parse()))
}
