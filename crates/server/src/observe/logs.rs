//! Logging to standard error.

use std::io;
use std::panic::{self, PanicHookInfo};

use tracing_subscriber::EnvFilter;

/// How log lines are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// Starts logging for the whole process, also of panics: called once, by the program. `filter` is a level such as `info` or `debug`.
pub fn start_logs(format: LogFormat, filter: &str) -> io::Result<()> {
    let filter = EnvFilter::try_new(filter).map_err(io::Error::other)?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).with_target(false);
    let started = match format {
        LogFormat::Text => builder.with_ansi(false).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    panic::set_hook(Box::new(log_panic));
    started.map_err(io::Error::other)
}

/// A panic as a line of the log, whether it is caught or ends its thread.
fn log_panic(info: &PanicHookInfo<'_>) {
    let place = info.location().map(ToString::to_string).unwrap_or_default();
    let message = info.payload_as_str().unwrap_or("");
    tracing::error!(place, what = message, "a panic: this is a bug worth reporting");
}
