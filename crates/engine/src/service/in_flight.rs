//! Steps on their way through the stages: several at once where stages are other machines, so that none of these waits
//! while another computes. Stages on this machine run on the thread that owns the model, which has its threads.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use cascadia_model::{Hidden, Placement, Stage, StageError};

use super::panics::{PanicBoundary, StepPart};
use super::schedule::Plan;
use crate::Pipeline;

/// Runs plans on a pipeline. A stage runs one step at a time; a step that finds it busy waits.
pub(super) struct InFlightSteps {
    pipeline: Pipeline,
    stages: Stages,
    most: usize,
    in_flight: usize,
    /// Steps that have passed all stages, or failed.
    finished: VecDeque<StepInFlight>,
    remote: Option<RemoteThreads>,
    panics: PanicBoundary,
}

/// A step whose rows the pipeline holds now, unless it failed.
pub(super) struct FinishedStep {
    pub(super) plan: Plan,
    pub(super) seconds: f64,
    pub(super) result: Result<(), StageError>,
}

struct StepInFlight {
    plan: Plan,
    hidden: Hidden,
    begin: Instant,
    /// Stages that have run it.
    passed: usize,
    result: Result<(), StageError>,
}

type Stages = Arc<[Box<dyn Stage>]>;

/// Threads that take steps through remote stages, which is mostly waiting.
struct RemoteThreads {
    steps: Option<Sender<StepInFlight>>,
    returned: Receiver<StepInFlight>,
    handles: Vec<JoinHandle<()>>,
}

impl InFlightSteps {
    /// As many steps at a time as there are machines that compute; with one machine, steps run on the calling thread.
    pub(super) fn new(pipeline: Pipeline, panics: PanicBoundary) -> InFlightSteps {
        let stages = pipeline.stages();
        let remote = stages.iter().filter(|stage| !is_local(&***stage)).count();
        let most = (remote + usize::from(remote < stages.len())).max(1);
        let remote = (most > 1).then(|| RemoteThreads::start(&stages, remote, &panics));
        InFlightSteps { pipeline, stages, most, in_flight: 0, finished: VecDeque::new(), remote, panics }
    }

    /// The pipeline, with the rows of the step that finished last.
    pub(super) fn pipeline(&mut self) -> &mut Pipeline {
        &mut self.pipeline
    }

    /// How many steps may be in flight.
    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// Whether another step may start.
    pub(super) fn has_room(&self) -> bool {
        self.in_flight < self.most
    }

    /// Embeds the tokens of a plan and runs it up to the first remote stage; from there other threads run it.
    pub(super) fn start(&mut self, plan: Plan) {
        self.in_flight += 1;
        let (hidden, result) = match self.panics.catch_step(StepPart::Stages, || self.pipeline.embed(&plan.step)) {
            Ok(hidden) => (hidden, Ok(())),
            Err(error) => (Hidden::default(), Err(error)),
        };
        self.advance(StepInFlight { plan, hidden, begin: Instant::now(), passed: 0, result });
    }

    /// Waits for a step to finish, and advances others meanwhile; `None` when none is in flight.
    pub(super) fn next(&mut self) -> Option<FinishedStep> {
        loop {
            if let Some(StepInFlight { plan, hidden, begin, result, .. }) = self.finished.pop_front() {
                self.in_flight -= 1;
                self.pipeline.keep(hidden);
                return Some(FinishedStep { plan, seconds: begin.elapsed().as_secs_f64(), result });
            }
            let remote = self.remote.as_ref().filter(|_| self.in_flight > 0)?;
            let step = remote.returned.recv().ok()?;
            // The machine that this step comes from may now be sent another, which must not wait for what is next here.
            thread::yield_now();
            self.advance(step);
        }
    }

    /// Waits for all steps in flight, and forgets what came of them.
    pub(super) fn abandon(&mut self) {
        while self.next().is_some() {}
    }

    /// Runs the local stages that are next for a step, and passes it on to the threads for remote ones.
    fn advance(&mut self, step: StepInFlight) {
        let alone = self.remote.is_none();
        let step = run((&self.stages, &self.panics), step, |stage| alone || is_local(stage));
        let is_done = step.result.is_err() || step.passed == self.stages.len();
        match self.remote.as_ref().and_then(|remote| remote.steps.as_ref()).filter(|_| !is_done) {
            Some(steps) => {
                // The threads end only after the sender.
                drop(steps.send(step));
                // Sending takes microseconds and the next step here many milliseconds: where the two share a core, the
                // other machine must not wait for that.
                thread::yield_now();
            }
            None => self.finished.push_back(step),
        }
    }
}

impl RemoteThreads {
    fn start(stages: &Stages, count: usize, panics: &PanicBoundary) -> RemoteThreads {
        let (steps, waiting) = channel::<StepInFlight>();
        let (results, returned) = channel();
        let waiting = Arc::new(Mutex::new(waiting));
        let thread = |_| {
            let (stages, waiting) = (Arc::clone(stages), Arc::clone(&waiting));
            let (results, panics) = (results.clone(), panics.clone());
            thread::spawn(move || {
                loop {
                    let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    let Ok(step) = next else { return };
                    if results.send(run((&stages, &panics), step, |stage| !is_local(stage))).is_err() {
                        return;
                    }
                }
            })
        };
        let handles = (0..count).map(thread).collect();
        RemoteThreads { steps: Some(steps), returned, handles }
    }
}

impl Drop for RemoteThreads {
    fn drop(&mut self) {
        self.steps = None;
        // A fault in a step has been reported as its result.
        self.handles.drain(..).for_each(|handle| drop(handle.join()));
    }
}

fn is_local(stage: &dyn Stage) -> bool {
    stage.traits().placement == Placement::Local
}

/// Takes a step through the next stages, up to the first that is not `mine`. A panic in a stage is an error of this step.
fn run(
    (stages, panics): (&Stages, &PanicBoundary),
    mut step: StepInFlight,
    mine: impl Fn(&dyn Stage) -> bool,
) -> StepInFlight {
    while let Some(stage) = stages.get(step.passed).filter(|stage| step.result.is_ok() && mine(&***stage)) {
        let (plan, hidden) = (&step.plan.step, &mut step.hidden);
        step.result = panics.catch_step(StepPart::Stages, || stage.run(plan, hidden));
        step.passed += 1;
    }
    step
}
