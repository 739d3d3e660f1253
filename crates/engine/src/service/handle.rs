//! How the rest of the program talks to the service.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::run::Runner;
use super::{Job, JobId, Snapshot};
use crate::{Engine, EngineError, ModelText};

/// Limits of a service, fixed at its start.
#[derive(Clone, Debug)]
pub struct ServiceOptions {
    /// Jobs that may wait; more are refused at once.
    pub queue: usize,
}

/// A running service; dropping it ends what it is doing.
pub struct Service {
    handle: ServiceHandle,
    thread: Option<JoinHandle<()>>,
}

/// Submits jobs; cheap to clone.
#[derive(Clone)]
pub struct ServiceHandle {
    shared: Arc<Shared>,
}

/// Why a job was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum SubmitError {
    /// Too many jobs wait already.
    #[error("{waiting} requests are waiting already; try again in {} s", retry_after.as_secs())]
    QueueFull {
        /// Jobs in the queue.
        waiting: u64,
        /// When it is worth trying again.
        retry_after: Duration,
    },
    /// The service is ending.
    #[error("the server is shutting down; send the request to another one")]
    ShuttingDown,
    /// The job cannot be done.
    #[error(transparent)]
    Invalid(#[from] EngineError),
}

/// What the handle and the thread both see.
pub(super) struct Shared {
    next: AtomicU64,
    jobs: Mutex<Option<SyncSender<Job>>>,
    pub(super) snapshot: Mutex<Snapshot>,
    context: u32,
}

impl Service {
    /// Starts the thread that computes.
    pub fn start(engine: Engine, text: Arc<ModelText>, options: &ServiceOptions) -> Service {
        let (jobs, waiting): (_, Receiver<Job>) = sync_channel(options.queue);
        let shared = Arc::new(Shared {
            next: AtomicU64::new(0),
            jobs: Mutex::new(Some(jobs)),
            snapshot: Mutex::default(),
            context: engine.session.context(),
        });
        let runner = Runner { engine, text, shared: Arc::clone(&shared) };
        let thread = std::thread::spawn(move || runner.run(&waiting));
        Service { handle: ServiceHandle { shared }, thread: Some(thread) }
    }

    /// A handle to submit jobs with.
    pub fn handle(&self) -> ServiceHandle {
        self.handle.clone()
    }

    /// Takes no more jobs, and waits for those that were taken.
    pub fn drain(mut self) {
        self.stop();
    }

    fn stop(&mut self) {
        self.handle.shared.jobs.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = self.thread.take() {
            // A panic on that thread has been reported there.
            let _ = thread.join();
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.stop();
    }
}

impl ServiceHandle {
    /// Puts a job into the queue; never waits. Everything that follows comes through its sink.
    pub fn submit(&self, job: Job) -> Result<JobId, SubmitError> {
        let jobs = self.shared.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        let jobs = jobs.as_ref().ok_or(SubmitError::ShuttingDown)?;
        match jobs.try_send(job) {
            Ok(()) => Ok(JobId(self.shared.next.fetch_add(1, Ordering::Relaxed))),
            Err(TrySendError::Disconnected(_)) => Err(SubmitError::ShuttingDown),
            Err(TrySendError::Full(_)) => {
                let mut snapshot = self.shared.snapshot.lock().unwrap_or_else(PoisonError::into_inner);
                snapshot.refused += 1;
                Err(SubmitError::QueueFull { waiting: snapshot.waiting, retry_after: Duration::from_secs(1) })
            }
        }
    }

    /// The most tokens of prompt and answer together.
    pub fn context(&self) -> u32 {
        self.shared.context
    }

    /// What the service is doing now.
    pub fn snapshot(&self) -> Snapshot {
        self.shared.snapshot.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
