//! The jobs of one request and the bounded queue through which their updates reach its connection.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Instant;

use cascadia_engine::Flow;
use cascadia_engine::service::{Job, JobId, JobSink, NewToken, ServiceHandle, SubmitError, Update};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::observe::metrics::Metrics;

/// The most bytes that wait for a reader; one that is further behind is cut off.
const MAX_QUEUED_BYTES: usize = 64 << 10;

/// The jobs of one request that the service has at a time. The others follow as these end, so that a long list of prompts
/// takes turns with other requests and leaves them room in the queue.
const MOST_AT_ONCE: usize = 16;

/// Jobs under way and the updates that come from them; dropping it cancels them, also while they wait.
pub(crate) struct Jobs {
    service: ServiceHandle,
    ids: Vec<JobId>,
    /// Those that follow, the next one first.
    following: VecDeque<Job>,
    /// Jobs that the service has.
    submitted: usize,
    pub(crate) updates: Updates,
}

/// The numbers of a request's jobs, by which a fleet records who computed for them.
#[derive(Clone, Debug)]
pub(crate) struct JobNumbers(pub(crate) String);

/// The updates of all jobs of a request, in the order in which they came.
pub(crate) struct Updates {
    receiver: UnboundedReceiver<Queued>,
    queue: Arc<QueueState>,
}

/// Makes the sinks of a request's jobs. The updates end when it and all sinks are gone.
pub(crate) struct Sinks {
    sender: UnboundedSender<Queued>,
    queue: Arc<QueueState>,
    metrics: Arc<Metrics>,
}

struct Queued {
    job: usize,
    bytes: usize,
    /// `None` when the job is gone and nothing more was said.
    update: Option<Update>,
}

/// Tells the reader when a job is gone without its last update.
struct LastWord {
    sender: UnboundedSender<Queued>,
    job: usize,
    is_said: bool,
}

impl LastWord {
    /// The last update is sent.
    fn say(&mut self) {
        self.is_said = true;
    }
}

impl Drop for LastWord {
    fn drop(&mut self) {
        if !self.is_said {
            // The reader may be gone too.
            let _ = self.sender.send(Queued { job: self.job, bytes: 0, update: None });
        }
    }
}

#[derive(Default)]
struct QueueState {
    /// Bytes that wait. The channel itself has no bound; this number is it.
    bytes: AtomicUsize,
    overflowed: AtomicBool,
}

impl Jobs {
    /// No jobs yet, and the sinks for those to come.
    pub(crate) fn new(service: ServiceHandle, metrics: Arc<Metrics>) -> (Jobs, Sinks) {
        let (sinks, updates) = channel(metrics);
        (Jobs { service, ids: Vec::new(), following: VecDeque::new(), submitted: 0, updates }, sinks)
    }

    /// Adds one: it is submitted at once, or after others.
    pub(crate) fn submit(&mut self, job: Job) -> Result<(), SubmitError> {
        self.following.push_back(job);
        self.submit_next()
    }

    /// One has ended, and another takes its place.
    pub(crate) fn ended(&mut self) -> Result<(), SubmitError> {
        self.submitted -= 1;
        self.submit_next()
    }

    /// Stops one that has been submitted.
    pub(crate) fn cancel(&self, job: usize) {
        self.ids.get(job).into_iter().for_each(|id| self.service.cancel(*id));
    }

    /// Submits as many as may be there at a time. Those that follow others wait until there is room for them.
    fn submit_next(&mut self) -> Result<(), SubmitError> {
        while self.submitted < MOST_AT_ONCE {
            let follows = self.submitted > 0 && self.ids.len() >= MOST_AT_ONCE;
            let has_room = |job: &Job| !follows || self.service.has_room(job.tenant);
            if !self.following.front().is_some_and(has_room) {
                break;
            }
            let Some(job) = self.following.pop_front() else { break };
            self.ids.push(self.service.submit(job)?);
            self.submitted += 1;
        }
        Ok(())
    }

    /// Their numbers, for the log.
    pub(crate) fn numbers(&self) -> JobNumbers {
        JobNumbers(self.ids.iter().map(|id| id.0.to_string()).collect::<Vec<_>>().join(","))
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.ids.len() + self.following.len()
    }
}

impl Drop for Jobs {
    fn drop(&mut self) {
        for id in &self.ids {
            self.service.cancel(*id);
        }
    }
}

fn channel(metrics: Arc<Metrics>) -> (Sinks, Updates) {
    let (sender, receiver) = unbounded_channel();
    let queue = Arc::new(QueueState::default());
    (Sinks { sender, queue: Arc::clone(&queue), metrics }, Updates { receiver, queue })
}

impl Updates {
    /// The next update and the job it belongs to, counted from 0; `None` when all jobs are gone, or one is gone too early.
    pub(crate) async fn next(&mut self) -> Option<(usize, Update)> {
        std::future::poll_fn(|context| self.poll_next(context)).await
    }

    pub(crate) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<(usize, Update)>> {
        let Some(queued) = ready!(self.receiver.poll_recv(context)) else { return Poll::Ready(None) };
        self.queue.bytes.fetch_sub(queued.bytes, Ordering::Relaxed);
        Poll::Ready(queued.update.map(|update| (queued.job, update)))
    }

    /// Whether updates were lost because they were read too slowly.
    pub(crate) fn overflowed(&self) -> bool {
        self.queue.overflowed.load(Ordering::Relaxed)
    }
}

impl Sinks {
    /// The sink of one job. It never blocks, and stops the job when nobody reads any more or the reader is too slow.
    pub(crate) fn sink(&self, job: usize) -> JobSink {
        let (sender, queue) = (self.sender.clone(), Arc::clone(&self.queue));
        let mut timing = Timing::new(Arc::clone(&self.metrics));
        let mut last = LastWord { sender: sender.clone(), job, is_said: false };
        Box::new(move |update| {
            timing.observe(&update);
            let bytes = size(&update);
            let queued = queue.bytes.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
            if queued > MAX_QUEUED_BYTES {
                queue.overflowed.store(true, Ordering::Relaxed);
            }
            let is_last = matches!(update, Update::Finished(_) | Update::Embedded(_) | Update::Failed(_));
            let queued = Queued { job, bytes, update: Some(update) };
            if queue.overflowed.load(Ordering::Relaxed) || sender.send(queued).is_err() {
                return Flow::Stop;
            }
            if is_last {
                last.say();
            }
            Flow::Continue
        })
    }
}

/// Bytes that an update takes while it waits.
fn size(update: &Update) -> usize {
    let inner = match update {
        Update::Token(NewToken { text, logprobs, .. }) => {
            text.len() + logprobs.as_ref().map_or(0, |logprobs| size_of_val(logprobs.alternatives.as_slice()))
        }
        Update::Finished(outcome) => outcome.text.len(),
        // One per job, as large as the model is wide or as long as an answer; what is said of prompts was reserved.
        Update::Embedded(_) | Update::Scored(_) | Update::Started { .. } | Update::Failed(_) => 0,
    };
    inner + size_of::<Queued>()
}

/// Measures how long a job takes from one update to the next.
struct Timing {
    metrics: Arc<Metrics>,
    submitted: Instant,
    last_token: Option<Instant>,
}

impl Timing {
    fn new(metrics: Arc<Metrics>) -> Timing {
        Timing { metrics, submitted: Instant::now(), last_token: None }
    }

    fn observe(&mut self, update: &Update) {
        let now = Instant::now();
        let waited = now.duration_since(self.submitted);
        match update {
            Update::Started { known, .. } => {
                self.metrics.known_tokens.fetch_add(known.len() as u64, Ordering::Relaxed);
                self.metrics.queue_time.observe(waited);
            }
            Update::Token(_) => {
                match self.last_token.replace(now) {
                    None => self.metrics.first_token.observe(waited),
                    Some(last) => self.metrics.inter_token.observe(now.duration_since(last)),
                };
            }
            Update::Finished(_) | Update::Embedded(_) => self.metrics.end_to_end.observe(waited),
            Update::Scored(_) | Update::Failed(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token() -> Update {
        Update::Token(NewToken { token: 0, text: "word".to_owned(), logprobs: None })
    }

    #[tokio::test]
    async fn a_slow_reader_is_cut_off_at_the_limit() {
        let (sinks, mut updates) = channel(Arc::default());
        let mut sink = sinks.sink(0);
        drop(sinks);
        let mut pushed = 0;
        while sink(token()) == Flow::Continue {
            pushed += 1;
        }
        assert!((MAX_QUEUED_BYTES / 512..MAX_QUEUED_BYTES / 64).contains(&pushed), "{pushed}");
        assert!(updates.overflowed());
        for _ in 0..pushed {
            assert!(updates.next().await.is_some());
        }
        assert_eq!(sink(token()), Flow::Stop, "what was lost stays lost");
        drop(sink);
        assert!(updates.next().await.is_none());
    }

    #[tokio::test]
    async fn a_quick_reader_is_never_cut_off_and_one_that_leaves_stops_the_job() {
        let (sinks, mut updates) = channel(Arc::default());
        let mut sink = sinks.sink(0);
        for _ in 0..10_000 {
            assert_eq!(sink(token()), Flow::Continue);
            assert!(updates.next().await.is_some());
        }
        drop(updates);
        assert_eq!(sink(token()), Flow::Stop);
    }
}
