//! The thread that computes: takes jobs in, plans, runs steps, and says what came of them.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::sync::{Arc, PoisonError};

use cascadia_model::{ModelLimits, PageClass, StageError};

use super::active_job::{ActiveJob, Ending};
use super::handle::{Command, Shared};
use super::in_flight::{InFlightSteps, StepInFlight, StepResult};
use super::pace::PromptPace;
use super::schedule::{Advance, Plan, PromptRows, ScheduleLimits, Scheduler, Work};
use super::speculate::DraftModel;
use super::{JobId, ServiceOptions, Snapshot};
use crate::{FinishReason, Pipeline};

/// Steps in a row that may find no stage before the jobs in them are given up.
const LOST_STEPS: u32 = 3;
/// Machines that may be lost while they compute one job and nothing else before it is given up.
const LOST_ALONE: u32 = 3;

/// A job as it was accepted.
pub(super) struct Submitted {
    pub(super) work: Work,
    pub(super) live: ActiveJob,
}

pub(super) struct Runner {
    pub(super) pipeline: Pipeline,
    lanes: InFlightSteps,
    pub(super) draft: Option<DraftModel>,
    pub(super) scheduler: Scheduler,
    pub(super) jobs: HashMap<JobId, ActiveJob>,
    pub(super) shared: Arc<Shared>,
    /// Counters that no one else keeps.
    pub(super) counted: Snapshot,
    pub(super) logits: Vec<f32>,
    pace: PromptPace,
    lost: u32,
}

impl Runner {
    pub(super) fn new(
        (pipeline, draft): (Pipeline, Option<DraftModel>),
        shared: Arc<Shared>,
        options: ServiceOptions,
    ) -> Runner {
        let limits = pipeline.limits();
        let (alone, beside_answers) = (limits.rows_per_step, options.prompt_rows_beside_answers);
        let prompt_rows = PromptRows { alone, beside_answers };
        let lanes = InFlightSteps::new(pipeline.stages());
        let scheduler = Scheduler::new(ScheduleLimits {
            model: ModelLimits { context: shared.context(), ..limits.clone() },
            window: pipeline.spec().window().unwrap_or(0),
            cache: pipeline.cache(),
            prompt_rows,
            draft_rows: options.draft_rows,
            parallel: options.parallel,
            lanes: lanes.count() as u32,
            patience_seconds: options.patience_seconds,
            sharing: options.sharing,
            weights: options.weights,
        });
        Runner {
            lanes,
            pipeline,
            draft,
            scheduler,
            jobs: HashMap::new(),
            shared,
            counted: Snapshot::default(),
            logits: Vec::new(),
            pace: PromptPace { most: prompt_rows, seconds: options.prompt_seconds, row_seconds: 0.0 },
            lost: 0,
        }
    }

    pub(super) fn run(mut self, commands: &Receiver<Command>) {
        self.publish();
        while self.receive(commands) {
            for id in self.scheduler.expire(self.shared.now()) {
                self.finish(id, FinishReason::Deadline);
            }
            self.step();
            self.publish();
        }
    }

    /// Takes in what has come, and waits for it when there is nothing to do; `false` after the last job.
    fn receive(&mut self, commands: &Receiver<Command>) -> bool {
        if self.shared.abandoned.load(Ordering::Relaxed) {
            let all: Vec<JobId> = self.jobs.keys().copied().collect();
            all.into_iter().for_each(|id| self.cancel(id));
        }
        if self.scheduler.is_empty() {
            match commands.recv() {
                Ok(command) => self.obey(command),
                Err(_) => return false,
            }
        }
        loop {
            match commands.try_recv() {
                Ok(command) => self.obey(command),
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => return true,
            }
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Submit(submitted) => {
                let Submitted { work, live } = *submitted;
                self.jobs.insert(work.id, live);
                self.scheduler.admit(work, self.shared.now());
            }
            Command::Cancel(id) => self.cancel(id),
        }
    }

    fn cancel(&mut self, id: JobId) {
        self.scheduler.remove(id);
        self.finish(id, FinishReason::Cancelled);
    }

    /// Tells a job that it is over.
    fn finish(&mut self, id: JobId, finish: FinishReason) {
        if let Some(mut live) = self.jobs.remove(&id) {
            let ending = live.end(finish);
            self.count(&live, ending);
        }
    }

    /// Sets out as many steps as may be under way, and takes in one that has come through.
    fn step(&mut self) {
        while self.lanes.has_room() && self.set_out() {}
        let Some(StepResult { travel: StepInFlight { plan, hidden, begin, .. }, result }) = self.lanes.arrive() else {
            return;
        };
        self.pipeline.end(hidden);
        let results = match result {
            Ok(()) => self.read(&plan),
            Err(error) => return self.step_failed(plan, error),
        };
        self.lost = 0;
        self.counted.steps += 1;
        self.counted.step_rows += plan.step.tokens.len() as u64;
        let seconds = begin.elapsed().as_secs_f64();
        self.counted.step_seconds += seconds;
        self.scheduler.set_prompt_rows(self.pace.rows(plan.step.tokens.len(), seconds));
        self.scheduler.commit(plan, results);
    }

    /// Plans a step and sends it through the stages; `false` when there is nothing to plan.
    fn set_out(&mut self) -> bool {
        self.guess();
        let plan = self.scheduler.plan(self.shared.now());
        // Before anything of this plan runs: a sequence that had to give way may be in it again, from its beginning.
        self.scheduler.take_released().into_iter().for_each(|id| self.pipeline.end_sequence(id.0));
        let Some(plan) = plan else { return false };
        self.start(&plan);
        match self.pipeline.begin(&plan.step) {
            Ok(hidden) => self.lanes.set_out(StepInFlight::new(plan, hidden)),
            Err(error) => self.step_failed(plan, error),
        }
        true
    }

    /// Tells jobs that they left the queue.
    fn start(&mut self, plan: &Plan) {
        for part in &plan.parts {
            let (Some(reused), Some(live)) = (part.reused, self.jobs.get_mut(&part.id)) else { continue };
            self.shared.queue().start(live.tenant);
            if let Some(finish) = live.start(reused) {
                self.scheduler.remove(part.id);
                self.finish(part.id, finish);
            }
        }
    }

    /// A step that could not be computed: jobs that were in it together are tried one by one, so that only those fail
    /// that fail alone.
    fn step_failed(&mut self, plan: Plan, error: StageError) {
        match error {
            StageError::Lost { problem, while_computing: true, .. } => return self.machine_lost(plan, &problem),
            StageError::Lost { layers, problem, .. } => return self.stage_lost(plan, &layers, &problem),
            StageError::Wrong { layers, problem } => return self.rows_wrong(plan, &layers, &problem),
            StageError::Weights(_) | StageError::Plan { .. } => {}
        }
        let results = plan.parts.iter().map(|_| Advance::Again).collect();
        if let [part] = plan.parts.as_slice() {
            self.fail(part.id, error);
        }
        self.scheduler.commit(plan, results);
    }

    /// A machine was lost while it computed a step: everything is computed again. Jobs that were in the step are kept
    /// apart from others, so that one that takes every machine with it is found and given up.
    fn machine_lost(&mut self, plan: Plan, problem: &str) {
        let losses = self.scheduler.suspect(&plan);
        if let (LOST_ALONE.., [part]) = (losses, plan.parts.as_slice()) {
            let problem = format!("{losses} machines were lost while they computed it and nothing else ({problem})");
            self.fail(part.id, StageError::Plan { problem });
        }
        self.scheduler.lose(plan);
    }

    /// Nobody runs a stage, or nobody has its caches: everything is computed again, a few times.
    fn stage_lost(&mut self, plan: Plan, layers: &Range<u32>, problem: &str) {
        let news = plan.step.generation == self.scheduler.memory().generation();
        self.lost += u32::from(news);
        if news && self.lost >= LOST_STEPS {
            for part in &plan.parts {
                let (layers, problem) = (layers.clone(), problem.to_owned());
                self.fail(part.id, StageError::Lost { layers, problem, while_computing: false });
            }
            self.lost = 0;
        }
        self.scheduler.lose(plan);
    }

    /// Rows were wrong that tokens may have come from: every job that has begun ends with an error, and nothing that is
    /// cached is used again.
    fn rows_wrong(&mut self, plan: Plan, layers: &Range<u32>, problem: &str) {
        let begun = self.jobs.iter().filter(|(_, live)| live.started.is_some());
        for id in begun.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.fail(id, StageError::Wrong { layers: layers.clone(), problem: problem.to_owned() });
        }
        self.scheduler.lose(plan);
    }

    pub(super) fn fail(&mut self, id: JobId, error: StageError) {
        self.scheduler.remove(id);
        if let Some(mut live) = self.jobs.remove(&id) {
            let ending = live.fail(error.into());
            self.count(&live, ending);
        }
    }

    /// Counts a job that ended.
    pub(super) fn count(&mut self, live: &ActiveJob, ending: Ending) {
        match ending {
            Ending::Done => self.counted.finished += 1,
            Ending::Cancelled => self.counted.cancelled += 1,
            Ending::Failed => self.counted.failed += 1,
        }
        match live.started {
            Some(started) => self.shared.queue().ran(started.elapsed().as_secs_f64()),
            None => self.shared.queue().leave(live.tenant),
        }
    }

    /// Lets others see what the service is doing.
    fn publish(&self) {
        let (memory, counters) = (self.scheduler.memory(), self.scheduler.counters());
        let now = Snapshot {
            running: self.scheduler.running() as u64,
            preempted: self.scheduler.preempted() as u64,
            pages: u64::from(memory.pages(PageClass::Full).count()),
            pages_held: u64::from(memory.pages(PageClass::Full).running()),
            pages_cached: u64::from(memory.pages(PageClass::Full).cached()),
            window_pages: u64::from(memory.pages(PageClass::Window).count()),
            window_pages_held: u64::from(memory.pages(PageClass::Window).running()),
            window_pages_cached: u64::from(memory.pages(PageClass::Window).cached()),
            prompt_tokens: counters.prompt_tokens,
            reused_tokens: counters.reused_tokens,
            recomputed_tokens: counters.recomputed_tokens,
            preemptions: counters.preemptions,
            evictions: memory.evictions(),
            drafted_tokens: counters.drafted_tokens,
            tenants: self.scheduler.shares(),
            ..self.counted.clone()
        };
        *self.shared.snapshot.lock().unwrap_or_else(PoisonError::into_inner) = now;
    }
}
