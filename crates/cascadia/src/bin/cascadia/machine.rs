//! How commands use this machine: threads, and how a model is opened on them.

use std::sync::Arc;

use cascadia::Threads;
use cascadia_engine::OpenOptions;
use cascadia_kernels::Pool;

use crate::flags::{MachineFlags, ThreadFlags};

impl ThreadFlags {
    /// The threads that were asked for.
    pub(crate) fn threads(&self) -> Threads {
        Threads { count: self.threads, pin: self.pin }
    }

    /// Starts them.
    pub(crate) fn pool(&self) -> Arc<Pool> {
        self.threads().pool()
    }
}

/// How to open a model as the flags say; what they leave open is left to the model.
pub(crate) fn open_options(flags: &MachineFlags) -> OpenOptions {
    OpenOptions { context: flags.ctx, memory: flags.memory, ..OpenOptions::new(flags.threads.pool()) }
}
