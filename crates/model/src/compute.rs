//! What computes: the kernels of this CPU, the threads that run them and the counters of what they do.

use std::sync::Arc;

use cascadia_kernels::{Ops, Pool};

use crate::Profile;

/// Kernels, threads and counters, passed down to everything that computes.
#[derive(Clone)]
pub struct Compute {
    /// Kernels of one instruction set.
    pub ops: &'static Ops,
    /// Threads.
    pub pool: Arc<Pool>,
    /// Where the time goes.
    pub profile: Arc<Profile>,
}
