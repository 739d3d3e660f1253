//! The jobs of one request: they end when nobody waits for their answers any more.

use std::task::{Context, Poll};

use cascadia_engine::service::{Job, JobId, ServiceHandle, SubmitError, Update};

use crate::queue::Receiver;

/// Jobs under way and what comes from them; dropping it ends them, also while they wait.
pub(crate) struct Jobs {
    service: ServiceHandle,
    receiver: Receiver,
    ids: Vec<JobId>,
}

impl Jobs {
    /// No jobs yet; their sinks send to `receiver`.
    pub(crate) fn new(service: ServiceHandle, receiver: Receiver) -> Jobs {
        Jobs { service, receiver, ids: Vec::new() }
    }

    /// Submits one more.
    pub(crate) fn submit(&mut self, job: Job) -> Result<(), SubmitError> {
        self.ids.push(self.service.submit(job)?);
        Ok(())
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.ids.len()
    }

    /// The next update and the job it belongs to, counted from 0; `None` when all jobs are gone.
    pub(crate) async fn next(&mut self) -> Option<(usize, Update)> {
        std::future::poll_fn(|context| self.poll_next(context)).await
    }

    /// The same for those who poll.
    pub(crate) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<(usize, Update)>> {
        self.receiver.poll_next(context)
    }

    /// Whether updates were lost because they were taken too slowly.
    pub(crate) fn overflowed(&self) -> bool {
        self.receiver.overflowed()
    }
}

impl Drop for Jobs {
    fn drop(&mut self) {
        for id in &self.ids {
            self.service.cancel(*id);
        }
    }
}
