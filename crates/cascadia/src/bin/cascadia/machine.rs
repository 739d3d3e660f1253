//! How commands use this machine: threads, and how a model is opened on them.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread::available_parallelism;

use anyhow::Context;
use cascadia::{Kernels, Threads, interleave_memory};
use cascadia_engine::OpenOptions;
use cascadia_kernels::Pool;
use cascadia_weights::WeightPages;

use crate::flags::{ComputeFlags, KernelChoice, MachineFlags, NumaChoice, PageFlags, ThreadFlags};
use crate::hub;
use crate::output::remark;

/// Says so where more threads are asked for than can run at once: each of them waits for the slowest.
pub(crate) fn warn_of_threads(asked: Option<u32>) {
    let cores = available_parallelism().map_or(u32::MAX, |cores| cores.get() as u32);
    if let Some(asked) = asked.filter(|asked| *asked > cores) {
        remark(&format!(
            "--threads {asked} is more than the {cores} processors that this process may use; {cores} or fewer are faster."
        ));
    }
}

impl ThreadFlags {
    /// The threads that were asked for.
    pub(crate) fn threads(&self) -> Threads {
        Threads { count: self.threads, pin: self.pin }
    }

    /// Starts them.
    pub(crate) fn pool(&self) -> Arc<Pool> {
        warn_of_threads(self.threads);
        self.threads().pool()
    }
}

impl ComputeFlags {
    /// Options for a model that is computed with these threads and kernels.
    pub(crate) fn open_options(&self) -> OpenOptions {
        let pool = self.threads.pool();
        OpenOptions { ops: self.kernels.kernels().slot(pool.threads()), ..OpenOptions::new(pool) }
    }
}

impl KernelChoice {
    /// What the choice stands for.
    pub(crate) fn kernels(self) -> Kernels {
        match self {
            KernelChoice::Auto => choices_folder().map_or(Kernels::Default, Kernels::Measured),
            KernelChoice::Default => Kernels::Default,
            KernelChoice::Fixed(reading) => Kernels::Fixed(reading),
        }
    }
}

impl PageFlags {
    /// Sets the policy for new memory, and returns what to do with weights. Comes before any thread that computes is
    /// started, so that all of them have the policy.
    pub(crate) fn prepare(&self) -> anyhow::Result<WeightPages> {
        if self.numa == Some(NumaChoice::Interleave) {
            let advice = "cannot interleave memory; leave out --numa, or give a container the capability SYS_NICE";
            if interleave_memory().context(advice)? == 1 {
                remark("--numa interleave changes nothing: this machine has one memory node.");
            }
        }
        Ok(WeightPages { populate: self.populate, lock: self.lock })
    }
}

/// How to open a model as the flags say; what they leave open is left to the model.
pub(crate) fn open_options(flags: &MachineFlags) -> anyhow::Result<OpenOptions> {
    let (pages, options) = (flags.pages.prepare()?, flags.numerics.apply(flags.compute.open_options())?);
    Ok(OpenOptions { context: flags.ctx, memory: flags.memory, pages, ..options })
}

/// Where the fastest ways to read weights are kept.
pub(crate) fn choices_folder() -> Option<PathBuf> {
    Some(cache_folder()?.join("kernels"))
}

/// Where this program keeps what it can make again; none, where the system names no home folder.
pub(crate) fn cache_folder() -> Option<PathBuf> {
    Some(hub::cache_folder()?.join("cascadia"))
}
