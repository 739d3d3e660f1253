//! Steps on their way through the stages: one after the other on this thread, or several at once where stages are
//! other machines, so that none of these waits while another computes.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use cascadia_model::{Hidden, Stage, StageError};

use super::schedule::Plan;

/// A plan, its rows, and when it set out.
pub(super) struct Travel {
    pub(super) plan: Plan,
    pub(super) hidden: Hidden,
    pub(super) begin: Instant,
}

/// A step that has come through, or got stuck.
pub(super) struct Arrival {
    pub(super) travel: Travel,
    pub(super) result: Result<(), StageError>,
}

type Stages = Arc<[Box<dyn Stage>]>;

/// Ways through the stages. A stage runs a step at a time; a step that finds it busy waits.
pub(super) struct Lanes {
    stages: Stages,
    count: usize,
    under_way: usize,
    /// Steps that were run here at once.
    here: VecDeque<Arrival>,
    threads: Option<Threads>,
}

struct Threads {
    steps: Option<Sender<Travel>>,
    arrived: Receiver<Arrival>,
    handles: Vec<JoinHandle<()>>,
}

impl Lanes {
    /// As many ways as there are stages; with one, steps run on the thread that sets them out.
    pub(super) fn new(stages: Stages) -> Lanes {
        let count = stages.len().max(1);
        let threads = (count > 1).then(|| Threads::start(&stages, count));
        Lanes { stages, count, under_way: 0, here: VecDeque::new(), threads }
    }

    /// Whether another step may set out.
    pub(super) fn has_room(&self) -> bool {
        self.under_way < self.count
    }

    pub(super) fn set_out(&mut self, travel: Travel) {
        self.under_way += 1;
        match self.threads.as_ref().and_then(|threads| threads.steps.as_ref()) {
            // The threads end only after the sender.
            Some(steps) => drop(steps.send(travel)),
            None => self.here.push_back(run(&self.stages, travel)),
        }
    }

    /// Waits for a step that has come through; `None` when none is under way.
    pub(super) fn arrive(&mut self) -> Option<Arrival> {
        if self.under_way == 0 {
            return None;
        }
        self.under_way -= 1;
        match &self.threads {
            Some(threads) => threads.arrived.recv().ok(),
            None => self.here.pop_front(),
        }
    }
}

impl Threads {
    fn start(stages: &Stages, count: usize) -> Threads {
        let (steps, waiting) = channel::<Travel>();
        let (arrivals, arrived) = channel();
        let waiting = Arc::new(Mutex::new(waiting));
        let lane = |_| {
            let (stages, waiting, arrivals) = (Arc::clone(stages), Arc::clone(&waiting), arrivals.clone());
            thread::spawn(move || {
                loop {
                    let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    let Ok(travel) = next else { return };
                    if arrivals.send(run(&stages, travel)).is_err() {
                        return;
                    }
                }
            })
        };
        let handles = (0..count).map(lane).collect();
        Threads { steps: Some(steps), arrived, handles }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.steps = None;
        // A fault in a step has been reported as its result.
        self.handles.drain(..).for_each(|handle| drop(handle.join()));
    }
}

/// Takes a step through all stages. A fault in our own code is an error of this step and not the end of the service:
/// what the step left behind are rows that are written again before they are read.
fn run(stages: &Stages, mut travel: Travel) -> Arrival {
    let (plan, hidden) = (&travel.plan.step, &mut travel.hidden);
    let ran = catch_unwind(AssertUnwindSafe(|| stages.iter().try_for_each(|stage| stage.run(plan, hidden))));
    let broke_off = |_| Err(StageError::Plan { problem: "it broke off; this is a bug worth reporting".into() });
    Arrival { result: ran.unwrap_or_else(broke_off), travel }
}
