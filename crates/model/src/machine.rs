//! What computes: the kernels of this CPU and the threads that run them.

use std::sync::Arc;

use cascadia_kernels::{Ops, Pool};

/// Kernels and threads, passed down to everything that computes.
#[derive(Clone)]
pub struct Machine {
    /// Kernels of one instruction set.
    pub ops: &'static Ops,
    /// Threads.
    pub pool: Arc<Pool>,
}
