//! How a command opens a model on this machine.

use cascadia_engine::OpenOptions;

use crate::flags::MachineFlags;
use crate::threads::pool;

/// How to open a model as the flags say; what they leave open is left to the model.
pub(crate) fn open_options(flags: &MachineFlags) -> OpenOptions {
    OpenOptions { context: flags.ctx, memory: flags.memory, ..OpenOptions::new(pool(&flags.threads)) }
}
