//! Steps on their way through the stages: several at once where stages are other machines, so that none of these waits
//! while another computes. Stages on this machine run on the thread that owns the model, which has its threads.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use cascadia_model::{Hidden, Placement, Stage, StageError};

use super::schedule::Plan;

/// A plan, its rows, when it set out, and how many stages it has behind it.
pub(super) struct StepInFlight {
    pub(super) plan: Plan,
    pub(super) hidden: Hidden,
    pub(super) begin: Instant,
    passed: usize,
}

/// A step that has come through, or got stuck.
pub(super) struct StepResult {
    pub(super) travel: StepInFlight,
    pub(super) result: Result<(), StageError>,
}

type Stages = Arc<[Box<dyn Stage>]>;

/// Ways through the stages. A stage runs a step at a time; a step that finds it busy waits.
pub(super) struct InFlightSteps {
    stages: Stages,
    count: usize,
    under_way: usize,
    /// Steps that have no stage before them any more.
    arrived: VecDeque<StepResult>,
    threads: Option<Threads>,
}

/// They take steps through stages elsewhere, which is mostly waiting.
struct Threads {
    steps: Option<Sender<StepInFlight>>,
    back: Receiver<StepResult>,
    handles: Vec<JoinHandle<()>>,
}

impl StepInFlight {
    pub(super) fn new(plan: Plan, hidden: Hidden) -> StepInFlight {
        StepInFlight { plan, hidden, begin: Instant::now(), passed: 0 }
    }
}

impl InFlightSteps {
    /// As many ways as there are machines that compute; with one, steps run on the thread that sets them out.
    pub(super) fn new(stages: Stages) -> InFlightSteps {
        let elsewhere = stages.iter().filter(|stage| !is_local(&***stage)).count();
        let count = (elsewhere + usize::from(elsewhere < stages.len())).max(1);
        let threads = (count > 1).then(|| Threads::start(&stages, elsewhere));
        InFlightSteps { stages, count, under_way: 0, arrived: VecDeque::new(), threads }
    }

    /// How many steps may be under way.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Whether another step may set out.
    pub(super) fn has_room(&self) -> bool {
        self.under_way < self.count
    }

    /// Takes a step as far as it comes here; from there it goes on by itself.
    pub(super) fn set_out(&mut self, travel: StepInFlight) {
        self.under_way += 1;
        self.lead(StepResult { travel, result: Ok(()) });
    }

    /// Waits for a step that has come through, and leads others on meanwhile; `None` when none is under way.
    pub(super) fn arrive(&mut self) -> Option<StepResult> {
        loop {
            if let Some(arrival) = self.arrived.pop_front() {
                self.under_way -= 1;
                return Some(arrival);
            }
            let threads = self.threads.as_ref().filter(|_| self.under_way > 0)?;
            let back = threads.back.recv().ok()?;
            // The machine that this step comes from may now be sent another, which must not wait for what is next here.
            thread::yield_now();
            self.lead(back);
        }
    }

    /// Runs the stages that come next for a step and are here, and sends it on to those that are not.
    fn lead(&mut self, arrival: StepResult) {
        let alone = self.threads.is_none();
        let arrival = run(&self.stages, arrival, |stage| alone || is_local(stage));
        let is_through = arrival.result.is_err() || arrival.travel.passed == self.stages.len();
        match self.threads.as_ref().and_then(|threads| threads.steps.as_ref()).filter(|_| !is_through) {
            Some(steps) => {
                // The threads end only after the sender.
                drop(steps.send(arrival.travel));
                // Sending takes microseconds and the next step here many milliseconds: where the two share a core, the
                // other machine must not wait for that.
                thread::yield_now();
            }
            None => self.arrived.push_back(arrival),
        }
    }
}

impl Threads {
    fn start(stages: &Stages, count: usize) -> Threads {
        let (steps, waiting) = channel::<StepInFlight>();
        let (arrivals, back) = channel();
        let waiting = Arc::new(Mutex::new(waiting));
        let lane = |_| {
            let (stages, waiting, arrivals) = (Arc::clone(stages), Arc::clone(&waiting), arrivals.clone());
            thread::spawn(move || {
                loop {
                    let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    let Ok(travel) = next else { return };
                    let set_out = StepResult { travel, result: Ok(()) };
                    if arrivals.send(run(&stages, set_out, |stage| !is_local(stage))).is_err() {
                        return;
                    }
                }
            })
        };
        let handles = (0..count).map(lane).collect();
        Threads { steps: Some(steps), back, handles }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.steps = None;
        // A fault in a step has been reported as its result.
        self.handles.drain(..).for_each(|handle| drop(handle.join()));
    }
}

fn is_local(stage: &dyn Stage) -> bool {
    stage.traits().placement == Placement::Local
}

/// Takes a step through the stages before it, up to the first that is not `mine`. A fault in our own code is an error of
/// this step and not the end of the service: what the step left behind are rows that are written again before they are
/// read.
fn run(
    stages: &Stages,
    StepResult { mut travel, mut result }: StepResult,
    mine: impl Fn(&dyn Stage) -> bool,
) -> StepResult {
    while let Some(stage) = stages.get(travel.passed).filter(|stage| result.is_ok() && mine(&***stage)) {
        let (plan, hidden) = (&travel.plan.step, &mut travel.hidden);
        let ran = catch_unwind(AssertUnwindSafe(|| stage.run(plan, hidden)));
        let broke_off = |_| Err(StageError::Plan { problem: "it broke off; this is a bug worth reporting".into() });
        result = ran.unwrap_or_else(broke_off);
        travel.passed += 1;
    }
    StepResult { travel, result }
}
