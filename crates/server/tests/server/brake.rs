//! A brake on a model, for tests in which no answer may end sooner than they want.

use std::sync::mpsc::{Sender, channel};
use std::thread::sleep;
use std::time::{Duration, Instant};

use cascadia_engine::service::{Generation, Job, Priority, ServiceHandle, Task, Tenant, Update};
use cascadia_engine::{Flow, Sampling};

/// Tokens of its own job that it lets the model generate beside others before it holds.
const TOKENS: u32 = 32;
/// Nothing that is waited for takes this long.
const PATIENCE: Duration = Duration::from_secs(60);

/// Holds a model until it is dropped: a step is over when every sink has returned, and the sink of a job here waits.
pub(crate) struct Brake {
    service: ServiceHandle,
    steps: Sender<()>,
}

impl Brake {
    /// Holds a model that has nothing to do yet.
    pub(crate) fn new(service: ServiceHandle) -> Brake {
        let (steps, allowed) = channel();
        let (begin, begun) = channel();
        let sink = move |_: Update| {
            // Only the first is waited for.
            let _ = begin.send(());
            // An error once the brake is off.
            let _ = allowed.recv();
            Flow::Continue
        };
        let generation = Generation::new(Sampling::default(), 2 * TOKENS);
        let job = Job {
            prompt: vec![1],
            task: Task::Generate(generation),
            tenant: Tenant(0),
            adapter: None,
            priority: Priority::Normal,
            deadline: None,
            sink: Box::new(sink),
        };
        service.submit(job).expect("the model has nothing to do");
        begun.recv_timeout(PATIENCE).expect("the job begins");
        Brake { service, steps }
    }

    /// Lets the job that is on its way to the model begin, and holds it after a few tokens.
    pub(crate) fn let_begin(&self) {
        let begin = Instant::now();
        while self.service.snapshot().waiting == 0 {
            assert!(begin.elapsed() < PATIENCE, "no job came");
            sleep(Duration::from_millis(10));
        }
        (0..TOKENS).for_each(|_| self.steps.send(()).expect("the model waits for it"));
    }
}
