//! How long a coordinator waits for its workers.

use std::time::Duration;

/// How long to wait for workers.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// For the answer to any step.
    pub step: Duration,
    /// And for each of its rows besides.
    pub row: Duration,
    /// For a worker that can take over when none is there.
    pub worker: Duration,
    /// For a heartbeat: a busy worker sends several in that time.
    pub silence: Duration,
}

impl Default for Timeouts {
    fn default() -> Timeouts {
        Timeouts {
            step: Duration::from_secs(10),
            row: Duration::from_millis(500),
            worker: Duration::from_secs(4),
            silence: Duration::from_millis(250),
        }
    }
}
