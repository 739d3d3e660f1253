//! The `cascadia` program: reads flags, runs one command, reports how it went.

use std::process::ExitCode;

use cascadia::{execute, exit_code, flags::Flags};
use clap::Parser;

fn main() -> ExitCode {
    exit_code(execute(Flags::parse()))
}
