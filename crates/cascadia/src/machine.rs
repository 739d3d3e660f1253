//! What a command may use of this machine.

use std::sync::Arc;
use std::thread::available_parallelism;

use cascadia_engine::OpenOptions;
use cascadia_kernels::Pool;

/// Tokens computed in one step: enough to keep the matrices busy, few enough for the caches.
pub(crate) const ROWS_PER_STEP: u32 = 512;

/// Threads to compute with: as many as asked for, or as many as the machine offers.
pub(crate) fn pool(threads: Option<u32>) -> Arc<Pool> {
    let offered = || available_parallelism().map_or(1, usize::from);
    Arc::new(Pool::new(threads.map_or_else(offered, |count| count as usize)))
}

/// How to open a model for a context; `None` leaves it to the model.
pub(crate) fn open_options(context: Option<u32>, threads: Option<u32>) -> OpenOptions {
    OpenOptions { context, rows_per_step: ROWS_PER_STEP, pool: pool(threads) }
}
