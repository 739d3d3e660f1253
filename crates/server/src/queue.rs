//! The way of an answer from the service's thread to a connection: a queue of bounded size that never blocks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Instant;

use cascadia_engine::Flow;
use cascadia_engine::service::{JobSink, NewToken, Update};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::metrics::Metrics;

/// The most bytes that wait for a reader; one that is further behind is cut.
const MAX_QUEUED_BYTES: usize = 64 << 10;

/// Makes the sinks of a request's jobs, one for each answer.
pub(crate) struct Sender {
    updates: UnboundedSender<Queued>,
    shared: Arc<Shared>,
    metrics: Arc<Metrics>,
}

/// Receives the updates of all answers to a request.
pub(crate) struct Receiver {
    updates: UnboundedReceiver<Queued>,
    shared: Arc<Shared>,
}

struct Queued {
    choice: usize,
    bytes: usize,
    update: Update,
}

#[derive(Default)]
struct Shared {
    /// Bytes under way. The channel itself has no bound; this number is it.
    bytes: AtomicUsize,
    overflowed: AtomicBool,
}

pub(crate) fn channel(metrics: Arc<Metrics>) -> (Sender, Receiver) {
    let (sender, receiver) = unbounded_channel();
    let shared = Arc::new(Shared::default());
    let sender = Sender { updates: sender, shared: Arc::clone(&shared), metrics };
    (sender, Receiver { updates: receiver, shared })
}

impl Sender {
    /// The sink of one answer. It asks the service to stop when nobody listens any more or the reader is too slow.
    pub(crate) fn sink(&self, choice: usize) -> JobSink {
        let (updates, shared) = (self.updates.clone(), Arc::clone(&self.shared));
        let mut timing = Timing::new(Arc::clone(&self.metrics));
        Box::new(move |update| {
            timing.observe(&update);
            let bytes = size(&update);
            let queued = shared.bytes.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
            if queued > MAX_QUEUED_BYTES {
                shared.overflowed.store(true, Ordering::Relaxed);
            }
            if shared.overflowed.load(Ordering::Relaxed) || updates.send(Queued { choice, bytes, update }).is_err() {
                return Flow::Stop;
            }
            Flow::Continue
        })
    }
}

impl Receiver {
    /// The next update and the answer it belongs to; `None` when every sink is gone.
    pub(crate) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<(usize, Update)>> {
        let Some(queued) = ready!(self.updates.poll_recv(context)) else { return Poll::Ready(None) };
        self.shared.bytes.fetch_sub(queued.bytes, Ordering::Relaxed);
        Poll::Ready(Some((queued.choice, queued.update)))
    }

    /// Whether updates were lost because the reader was too slow.
    pub(crate) fn overflowed(&self) -> bool {
        self.shared.overflowed.load(Ordering::Relaxed)
    }
}

/// Bytes that an update takes while it waits.
fn size(update: &Update) -> usize {
    let inner = match update {
        Update::Token(NewToken { text, logprobs, .. }) => {
            text.len() + logprobs.as_ref().map_or(0, |logprobs| size_of_val(logprobs.alternatives.as_slice()))
        }
        Update::Finished(outcome) => outcome.text.len(),
        // One per request, as large as the model is wide or as long as an answer.
        Update::Embedded(_) | Update::Started { .. } | Update::Failed(_) => 0,
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
                self.metrics.known.fetch_add(known.len() as u64, Ordering::Relaxed);
                self.metrics.queue_time.observe(waited);
            }
            Update::Token(_) => {
                match self.last_token.replace(now) {
                    None => self.metrics.first_token.observe(waited),
                    Some(last) => self.metrics.inter_token.observe(now.duration_since(last)),
                };
            }
            Update::Finished(_) | Update::Embedded(_) => self.metrics.end_to_end.observe(waited),
            Update::Failed(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn next(receiver: &mut Receiver) -> Option<(usize, Update)> {
        std::future::poll_fn(|context| receiver.poll_next(context)).await
    }

    fn token() -> Update {
        Update::Token(NewToken { token: 0, text: "word".to_owned(), logprobs: None })
    }

    #[tokio::test]
    async fn a_slow_reader_is_cut_at_the_limit() {
        let (sender, mut receiver) = channel(Arc::default());
        let mut sink = sender.sink(0);
        drop(sender);
        let mut pushed = 0;
        while sink(token()) == Flow::Continue {
            pushed += 1;
        }
        assert!((MAX_QUEUED_BYTES / 512..MAX_QUEUED_BYTES / 64).contains(&pushed), "{pushed}");
        assert!(receiver.overflowed());
        for _ in 0..pushed {
            assert!(next(&mut receiver).await.is_some());
        }
        assert_eq!(sink(token()), Flow::Stop, "what was lost stays lost");
        drop(sink);
        assert!(next(&mut receiver).await.is_none());
    }

    #[tokio::test]
    async fn a_quick_reader_is_never_cut_and_one_that_leaves_stops_the_job() {
        let (sender, mut receiver) = channel(Arc::default());
        let mut sink = sender.sink(0);
        for _ in 0..10_000 {
            assert_eq!(sink(token()), Flow::Continue);
            assert!(next(&mut receiver).await.is_some());
        }
        drop(receiver);
        assert_eq!(sink(token()), Flow::Stop);
    }
}
