//! The thread that owns the model: takes jobs in, plans steps, runs them, and reports what came of them.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use cascadia_model::{Adapter, ModelLimits, PageClass, StageError};

use super::active_job::{ActiveJob, ActiveTask, Ending};
use super::handle::{Command, Shared};
use super::in_flight::{FinishedStep, InFlightSteps};
use super::pace::PromptPace;
use super::panics::{PanicBoundary, StepPart};
use super::schedule::{Advance, JobRows, Plan, PromptRows, ScheduleLimits, Scheduler, Work};
use super::speculate::{DraftModel, DraftRequest, MeasuredCosts, Proposal, draft_lengths, draft_model_length};
use super::spill::{Spill, WriterThread};
use super::{JobId, ServiceOptions, Snapshot};
use crate::stage_pages::StagePages;
use crate::{EngineError, FinishReason, LOGITS_AT_ONCE, Pipeline};

/// Steps in a row that may find no stage before the jobs in them are given up.
const LOST_STEPS: u32 = 3;
/// Machines that may be lost while they compute one job and nothing else before it is given up.
const LOST_ALONE: u32 = 3;

/// A job as it was accepted.
pub(super) struct Submitted {
    pub(super) work: Work,
    pub(super) job: ActiveJob,
}

/// Owns the model and everything that runs on it.
pub(super) struct Runner {
    steps: InFlightSteps,
    draft: Option<DraftModel>,
    scheduler: Scheduler,
    jobs: HashMap<JobId, ActiveJob>,
    shared: Arc<Shared>,
    /// Counters that no one else keeps.
    counted: Snapshot,
    logits: Vec<f32>,
    pace: PromptPace,
    costs: MeasuredCosts,
    lost: u32,
    panics: PanicBoundary,
    /// Jobs of the step that is being taken in.
    taking_in: Vec<JobId>,
    restarting: bool,
    /// Writes pages that are given up.
    spill: Option<WriterThread>,
    /// Where the memory of pages can be given back.
    pages: Option<Arc<StagePages>>,
}

/// What is read of the rows of one job.
struct Reading {
    tokens: Vec<u32>,
    /// No further row counts: a draft token was rejected, or the answer has ended.
    closed: bool,
    ended: bool,
    failed: bool,
    /// Draft tokens that were accepted.
    accepted: usize,
}

impl Runner {
    pub(super) fn new(
        (pipeline, draft, spill): (Pipeline, Option<DraftModel>, Option<(Spill, WriterThread)>),
        shared: Arc<Shared>,
        options: ServiceOptions,
    ) -> Runner {
        let panics = shared.panics.clone();
        let mut steps = InFlightSteps::new(pipeline, panics.clone());
        let steps_in_flight = steps.most() as u32;
        let pipeline = steps.pipeline();
        let limits = pipeline.limits();
        let (alone, beside_answers) = (limits.rows_per_step, options.prompt_rows_beside_answers);
        let prompt_rows = PromptRows { alone, beside_answers };
        let mut scheduler = Scheduler::new(ScheduleLimits {
            model: ModelLimits { context: shared.context(), ..limits.clone() },
            spans: pipeline.limits().kv_layout(pipeline.spec()).spans(),
            cache: pipeline.cache(),
            prompt_rows,
            draft_rows: options.draft_rows,
            parallel: options.parallel,
            steps_in_flight,
            patience_seconds: options.patience_seconds,
            sharing: options.sharing,
            weights: options.weights,
        });
        let spill = spill.map(|(tier, writer)| {
            scheduler.memory_mut().set_tier(Box::new(tier));
            writer
        });
        let pages = StagePages::new(pipeline.stages()).map(Arc::new);
        if let Some((adapters, pages)) = options.adapters.zip(pages.clone()) {
            scheduler.memory_mut().lend_to(adapters.resident().clone(), pages, shared.context());
        }
        Runner {
            steps,
            draft,
            scheduler,
            jobs: HashMap::new(),
            shared,
            counted: Snapshot::default(),
            logits: Vec::new(),
            costs: MeasuredCosts::new(options.step_costs),
            pace: PromptPace { most: prompt_rows, seconds: options.prompt_seconds, row_seconds: 0.0 },
            lost: 0,
            panics,
            taking_in: Vec::new(),
            restarting: false,
            spill,
            pages,
        }
    }

    pub(super) fn run(mut self, commands: &Receiver<Command>) {
        let panics = self.panics.clone();
        self.publish();
        loop {
            match panics.catch(|| self.turn(commands)) {
                Ok(true) => {}
                Ok(false) => break,
                Err(_) => self.restart(),
            }
        }
        if self.spill.as_ref().is_some_and(WriterThread::keeps_records) {
            self.scheduler.memory_mut().keep_prefixes();
        }
        drop(self.spill.take());
    }

    /// Takes in what has come, and computes a step; `false` after the last job.
    fn turn(&mut self, commands: &Receiver<Command>) -> bool {
        if !self.receive(commands) {
            return false;
        }
        for id in self.scheduler.expire(self.shared.now()) {
            self.finish(id, FinishReason::Deadline);
        }
        self.step();
        self.publish();
        true
    }

    /// After a panic outside of any job and of the model: what was planned or half taken in is in doubt, and is dropped with
    /// all that is cached. Jobs whose step was being taken in fail. Where none was, any job may be the reason: each is
    /// tried once more. The others are computed again with the tokens they have.
    fn restart(&mut self) {
        self.counted.restarts += 1;
        self.restarting = true;
        self.steps.abandon();
        let taking_in = std::mem::take(&mut self.taking_in);
        let (jobs, context) = (&mut self.jobs, self.shared.context() as usize);
        jobs.values_mut().for_each(|job| job.panics += u32::from(taking_in.is_empty()));
        let is_whole = |job: &ActiveJob, tokens: &[u32]| tokens.len() == job.tokens().min(context);
        let keep = |id, tokens: &[u32]| {
            !taking_in.contains(&id) && jobs.get(&id).is_some_and(|job| job.panics < 2 && is_whole(job, tokens))
        };
        self.scheduler.restart(self.shared.now(), keep);
        let mut failed: Vec<JobId> = self.jobs.keys().copied().collect();
        failed.retain(|id| self.scheduler.tokens(*id).is_none());
        failed.sort();
        failed.into_iter().for_each(|id| self.fail(id, EngineError::Panicked));
        self.publish();
    }

    /// Takes in what has come, and waits for it when there is nothing to do; `false` after the last job.
    fn receive(&mut self, commands: &Receiver<Command>) -> bool {
        if self.shared.abandoned.load(Ordering::Relaxed) {
            let all: Vec<JobId> = self.jobs.keys().copied().collect();
            all.into_iter().for_each(|id| self.cancel(id));
        }
        if self.scheduler.is_empty() {
            match commands.recv() {
                Ok(command) => self.handle(command),
                Err(_) => return false,
            }
        }
        loop {
            match commands.try_recv() {
                Ok(command) => self.handle(command),
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => return true,
            }
        }
    }

    fn handle(&mut self, command: Command) {
        match command {
            Command::Submit(submitted) => {
                let Submitted { work, job } = *submitted;
                self.jobs.insert(work.id, job);
                self.scheduler.admit(work, self.shared.now());
            }
            Command::Cancel(id) => self.cancel(id),
            Command::ShedMemory => {
                self.scheduler.memory_mut().shed(self.pages.as_deref());
                self.publish();
            }
        }
    }

    fn cancel(&mut self, id: JobId) {
        self.scheduler.remove(id);
        self.finish(id, FinishReason::Cancelled);
    }

    /// Reports to a job that it is over.
    fn finish(&mut self, id: JobId, finish: FinishReason) {
        self.end(id, |job| job.end(finish));
    }

    /// Ends a job with its last update; if that panics, nothing more is said to it. Its receiver may also panic when it is
    /// dropped.
    fn end(&mut self, id: JobId, last: impl FnOnce(&mut ActiveJob) -> Ending) {
        if let Some(mut job) = self.jobs.remove(&id) {
            let ending = self.panics.catch(|| last(&mut job)).unwrap_or(Ending::Failed);
            self.count(&job, ending);
            // A panic in it was counted, and nothing else depends on it.
            let _ = self.panics.catch(|| drop(job));
        }
    }

    /// Does what belongs to one job alone: its sampler, its constraint, its receiver. If that panics, this job fails.
    fn attempt<T>(&mut self, id: JobId, action: impl FnOnce(&mut ActiveJob) -> T) -> Option<T> {
        let job = self.jobs.get_mut(&id)?;
        let done = self.panics.catch(|| action(job));
        done.map_err(|error| self.fail(id, error)).ok()
    }

    /// Starts as many steps as may be in flight, and takes in one that has finished.
    fn step(&mut self) {
        while self.steps.has_room() && self.start_step() {}
        let Some(FinishedStep { plan, seconds, result }) = self.steps.next() else { return };
        let begin = Instant::now();
        self.taking_in = plan.jobs.iter().map(|job| job.id).collect();
        let results = match result {
            Ok(()) => self.read(&plan),
            Err(error) => {
                self.step_failed(plan, error);
                return self.taking_in.clear();
            }
        };
        let whole_seconds = seconds + begin.elapsed().as_secs_f64();
        if plan.jobs.iter().all(|job| job.rows.len() == 1 + job.drafted as usize) {
            self.costs.record(plan.step.tokens.len(), whole_seconds);
        }
        self.scheduler.took(&plan, whole_seconds);
        self.lost = 0;
        self.counted.steps += 1;
        self.counted.step_rows += plan.step.tokens.len() as u64;
        self.counted.step_seconds += seconds;
        // Rows of a prompt that are read one by one take longer than computing them.
        let reads_prompt = |job: &JobRows| job.wanted.len() > 1 + job.drafted as usize;
        let paced = if plan.jobs.iter().any(reads_prompt) { whole_seconds } else { seconds };
        self.scheduler.set_prompt_rows(self.pace.rows(plan.step.tokens.len(), paced));
        if let Some(spill) = &self.shared.spill {
            spill.set_row_seconds(self.pace.row_seconds);
        }
        self.scheduler.commit(plan, results);
        self.taking_in.clear();
        self.restarting = false;
    }

    /// Plans a step and starts it; `false` when there is nothing to plan.
    fn start_step(&mut self) -> bool {
        self.speculate();
        let plan = self.scheduler.plan(self.shared.now());
        // Before anything of this plan runs: a preempted sequence may be in it again, from its beginning.
        for id in self.scheduler.take_released() {
            self.steps.pipeline().end_sequence(id.0);
            self.jobs.get_mut(&id).into_iter().for_each(|job| job.weights = None);
        }
        let Some(mut plan) = plan else { return false };
        let adapted = self.adapt(&mut plan);
        self.start_jobs(&plan);
        match adapted {
            Ok(()) => self.steps.start(plan),
            Err(error) => self.step_failed(plan, StageError::Plan { problem: error.to_string() }),
        }
        true
    }

    /// Gives the sequences of a plan the adapters of their jobs.
    fn adapt(&mut self, plan: &mut Plan) -> Result<(), EngineError> {
        let opened_with = self.steps.pipeline().adapter().cloned();
        for (planned, step) in plan.jobs.iter().zip(&mut plan.step.steps) {
            step.adapter = self.weights(planned)?.or_else(|| opened_with.clone());
        }
        Ok(())
    }

    /// The weights of a job's own adapter. When it begins to use them, they stay in memory for others too if room can be made.
    fn weights(&mut self, planned: &JobRows) -> Result<Option<Arc<Adapter>>, EngineError> {
        let Some(ActiveJob { adapter: Some(adapter), weights, .. }) = self.jobs.get_mut(&planned.id) else {
            return Ok(None);
        };
        adapter.touch();
        if weights.is_none() || planned.reused.is_some() {
            let active = weights.take().map_or_else(|| adapter.activate(), Ok)?;
            *weights = Some(adapter.keep(active, |bytes| self.scheduler.memory_mut().lend_for(bytes)));
        }
        Ok(weights.clone())
    }

    /// Reports to jobs that they left the queue.
    fn start_jobs(&mut self, plan: &Plan) {
        for planned in &plan.jobs {
            let (Some(reused), Some(job)) = (planned.reused, self.jobs.get(&planned.id)) else { continue };
            self.shared.queue().start(job.tenant);
            if let Some(Some(finish)) = self.attempt(planned.id, |job| job.start(reused)) {
                self.scheduler.remove(planned.id);
                self.finish(planned.id, finish);
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
        let results = plan.jobs.iter().map(|_| Advance::Again).collect();
        if let [planned] = plan.jobs.as_slice() {
            self.fail(planned.id, error);
        }
        self.scheduler.commit(plan, results);
    }

    /// A machine was lost while it computed a step: everything is computed again. Jobs that were in the step are kept
    /// apart from others, so that a job that takes down every machine is found and given up.
    fn machine_lost(&mut self, plan: Plan, problem: &str) {
        let losses = self.scheduler.suspect(&plan);
        if let (LOST_ALONE.., [planned]) = (losses, plan.jobs.as_slice()) {
            let problem = format!("{losses} machines were lost while they computed it and nothing else ({problem})");
            self.fail(planned.id, StageError::Plan { problem });
        }
        self.scheduler.lose(plan);
    }

    /// A stage has no machine, or one without its caches: everything is computed again, a few times.
    fn stage_lost(&mut self, plan: Plan, layers: &Range<u32>, problem: &str) {
        let news = plan.step.generation == self.scheduler.memory().generation();
        self.lost += u32::from(news);
        if news && self.lost >= LOST_STEPS {
            for planned in &plan.jobs {
                let (layers, problem) = (layers.clone(), problem.to_owned());
                self.fail(planned.id, StageError::Lost { layers, problem, while_computing: false });
            }
            self.lost = 0;
        }
        self.scheduler.lose(plan);
    }

    /// Rows were wrong that tokens may have come from: every job that has begun ends with an error, and nothing that is
    /// cached is used again.
    fn rows_wrong(&mut self, plan: Plan, layers: &Range<u32>, problem: &str) {
        let begun = self.jobs.iter().filter(|(_, job)| job.started.is_some());
        for id in begun.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.fail(id, StageError::Wrong { layers: layers.clone(), problem: problem.to_owned() });
        }
        self.scheduler.lose(plan);
    }

    fn fail(&mut self, id: JobId, error: impl Into<EngineError>) {
        self.scheduler.remove(id);
        self.end(id, |job| job.fail(error.into()));
    }

    /// Counts a job that ended.
    fn count(&mut self, job: &ActiveJob, ending: Ending) {
        match ending {
            Ending::Done => self.counted.finished += 1,
            Ending::Cancelled => self.counted.cancelled += 1,
            Ending::Failed => self.counted.failed += 1,
        }
        match job.started {
            Some(started) => self.shared.queue().ran(started.elapsed().as_secs_f64()),
            None => self.shared.queue().leave(job.tenant),
        }
    }

    /// What came of every job of a plan whose rows are computed.
    fn read(&mut self, plan: &Plan) -> Vec<Advance> {
        let reading =
            |_: &JobRows| Reading { tokens: Vec::new(), closed: false, ended: false, failed: false, accepted: 0 };
        let mut readings: Vec<Reading> = plan.jobs.iter().map(reading).collect();
        self.read_answers(plan, &mut readings);
        for (planned, reading) in plan.jobs.iter().zip(&mut readings) {
            self.read_embedding(plan, planned, reading);
            if let Some(job) = self.jobs.get_mut(&planned.id) {
                job.speculator.learn(planned.drafted as usize, reading.accepted);
            }
            // Nobody waits for it any more.
            reading.ended |= !self.jobs.contains_key(&planned.id);
        }
        readings.into_iter().map(Reading::result).collect()
    }

    /// Samples tokens from the rows that answers want, a bounded number of logits at a time.
    fn read_answers(&mut self, plan: &Plan, readings: &mut [Reading]) {
        let answers = |planned: &JobRows| {
            matches!(self.jobs.get(&planned.id), Some(ActiveJob { task: ActiveTask::Answer(_), .. }))
        };
        let planned = plan.jobs.iter().enumerate().filter(|(_, planned)| answers(planned));
        let wanted: Vec<(usize, u32)> =
            planned.flat_map(|(index, planned)| planned.wanted.clone().map(move |row| (index, row))).collect();
        let vocabulary = self.steps.pipeline().spec().vocabulary.max(1);
        for piece in wanted.chunks((LOGITS_AT_ONCE / vocabulary).max(1)) {
            let rows: Vec<u32> = piece.iter().map(|(_, row)| *row).collect();
            let mut logits = std::mem::take(&mut self.logits);
            let begin = Instant::now();
            let pipeline = self.steps.pipeline();
            let computed = self.panics.catch_step(StepPart::Logits, || pipeline.logits(&plan.step, &rows, &mut logits));
            self.counted.output_seconds += begin.elapsed().as_secs_f64();
            match computed {
                Ok(()) => {
                    for ((index, row), logits) in piece.iter().zip(logits.chunks_exact(vocabulary)) {
                        self.read_row(plan, (&plan.jobs[*index], *row), logits, &mut readings[*index]);
                    }
                }
                Err(error) => {
                    let first = &plan.jobs[piece[0].0];
                    piece.iter().for_each(|(index, _)| readings[*index].failed = true);
                    if plan.jobs.len() == 1 {
                        self.fail(first.id, error);
                    }
                }
            }
            self.logits = logits;
        }
    }

    /// Samples the token after one row, if all draft tokens before it were accepted; where that token is known already, only
    /// reads how likely it was.
    fn read_row(&mut self, plan: &Plan, (planned, row): (&JobRows, u32), logits: &[f32], reading: &mut Reading) {
        if reading.closed || reading.failed {
            return;
        }
        let next = (planned.position + row - planned.wanted.start) as usize + 1;
        if let Some(&known) = self.scheduler.tokens(planned.id).and_then(|tokens| tokens.get(next)) {
            self.attempt(planned.id, |job| job.score(next, known, logits));
            return;
        }
        let Some(progress) = self.attempt(planned.id, |job| job.sample(logits)) else { return };
        reading.tokens.extend(progress.token);
        self.counted.generated_tokens += u64::from(progress.token.is_some());
        let draft = (row + 1 < planned.rows.end).then(|| plan.step.tokens[row as usize + 1]);
        let accepted = draft.is_some() && draft == progress.token;
        self.counted.accepted_tokens += u64::from(accepted);
        reading.accepted += usize::from(accepted);
        reading.closed = !accepted;
        if let Some(ending) = progress.ending {
            reading.closed = true;
            reading.ended = true;
            self.end(planned.id, |_| ending);
        }
    }

    /// Adds the rows of a job to its embedding, and ends it after the last.
    fn read_embedding(&mut self, plan: &Plan, planned: &JobRows, reading: &mut Reading) {
        let Some(ActiveJob { task: ActiveTask::Embedding(embedding), prompt_tokens, .. }) =
            self.jobs.get_mut(&planned.id)
        else {
            return;
        };
        if planned.position == 0 {
            embedding.restart();
        }
        let rows: Vec<u32> = planned.wanted.clone().collect();
        let (pipeline, normed) = (self.steps.pipeline(), &mut self.logits);
        if let Err(error) = self.panics.catch_step(StepPart::Embedding, || pipeline.normed(&plan.step, &rows, normed)) {
            reading.failed = true;
            if plan.jobs.len() == 1 {
                self.fail(planned.id, error);
            }
            return;
        }
        self.logits.chunks_exact(self.steps.pipeline().spec().width).for_each(|row| embedding.add(row));
        if planned.position as usize + rows.len() == *prompt_tokens {
            reading.ended = true;
            let (row, direction) = (embedding.row(), embedding.direction());
            let pipeline = self.steps.pipeline();
            let normalised = pipeline.spec().pooling.normalised;
            match self.panics.catch_step(StepPart::Embedding, || pipeline.classify(&row)) {
                Ok(Some(said)) => self.end(planned.id, |job| job.embed(said)),
                Ok(None) => self.end(planned.id, |job| job.embed(if normalised { direction } else { row })),
                Err(error) => self.fail(planned.id, error),
            }
        }
    }

    /// Gives the scheduler draft tokens: those that constraints force or the texts suggest, as many as pay, and where none
    /// do those of the draft model.
    fn speculate(&mut self) {
        let proposals: Vec<(JobId, usize, Proposal)> =
            self.scheduler.drafting().into_iter().filter_map(|(id, most)| self.propose(id, most)).collect();
        let probabilities: Vec<&[f32]> = proposals.iter().map(|(.., proposal)| &*proposal.probabilities).collect();
        let lengths = draft_lengths(&probabilities, self.scheduler.draft_rows(), &self.costs);
        let streams = proposals.len();
        let mut requests: Vec<(JobId, usize)> = Vec::new();
        for ((id, most, mut proposal), length) in proposals.into_iter().zip(lengths) {
            proposal.tokens.truncate(length);
            if length > 0 {
                self.scheduler.set_draft(id, proposal.tokens);
            } else if let (Some(draft), Some(job)) = (&self.draft, self.jobs.get_mut(&id)) {
                let (seconds, costs) = (self.costs.of_draft_token(draft.token_seconds()), &self.costs);
                let best = |acceptance| draft_model_length(acceptance, (streams, most), seconds, costs);
                requests.push((id, job.speculator.draft_length(most, best)));
            }
        }
        requests.retain(|(_, depth)| *depth > 0);
        if !requests.is_empty() {
            self.ask_draft(&requests);
        }
    }

    /// What may come next of an answer, and how much of it there may be; `None` of a job that is no answer.
    fn propose(&mut self, id: JobId, most: usize) -> Option<(JobId, usize, Proposal)> {
        let (job, tokens) = (self.jobs.get_mut(&id)?, self.scheduler.tokens(id)?);
        let proposed = self.panics.catch(|| job.propose(tokens, most));
        let (most, proposal) = proposed.map_err(|error| self.fail(id, error)).ok()??;
        Some((id, most, proposal))
    }

    fn ask_draft(&mut self, requests: &[(JobId, usize)]) {
        let (Some(draft), scheduler, jobs) = (&mut self.draft, &self.scheduler, &mut self.jobs) else { return };
        let request =
            |&(id, depth): &(JobId, usize)| DraftRequest { id, tokens: scheduler.tokens(id).unwrap_or(&[]), depth };
        let wanted: Vec<DraftRequest<'_>> = requests.iter().map(request).collect();
        let choose = |id: JobId, logits: &[f32], position: u32| match jobs.get_mut(&id) {
            Some(ActiveJob { task: ActiveTask::Answer(answer), .. }) => answer.draft(logits, position),
            _ => None,
        };
        // Speculation is optional: a draft model that fails is not used again.
        match self.panics.catch_step(StepPart::Draft, || draft.propose(&wanted, choose)) {
            Ok(drafts) => requests.iter().zip(drafts).for_each(|((id, _), draft)| self.scheduler.set_draft(*id, draft)),
            Err(_) => self.draft = None,
        }
    }

    /// Publishes what the service is doing.
    fn publish(&self) {
        let (memory, counters) = (self.scheduler.memory(), self.scheduler.counters());
        let now = Snapshot {
            running: self.scheduler.running() as u64,
            preempted: self.scheduler.preempted() as u64,
            pages: u64::from(memory.pages(PageClass::Full).count()),
            pages_held: u64::from(memory.pages(PageClass::Full).running()),
            pages_cached: u64::from(memory.pages(PageClass::Full).cached()),
            pages_lent: u64::from(memory.pages(PageClass::Full).lent()),
            pages_taken_back: memory.taken_back(),
            window_pages: u64::from(memory.pages(PageClass::Window).count()),
            window_pages_held: u64::from(memory.pages(PageClass::Window).running()),
            window_pages_cached: u64::from(memory.pages(PageClass::Window).cached()),
            tail_pages: u64::from(memory.pages(PageClass::Tail).count()),
            tail_pages_held: u64::from(memory.pages(PageClass::Tail).running()),
            tail_pages_cached: u64::from(memory.pages(PageClass::Tail).cached()),
            prompt_tokens: counters.prompt_tokens,
            reused_tokens: counters.reused_tokens,
            recomputed_tokens: counters.recomputed_tokens,
            preemptions: counters.preemptions,
            jobs_made_way: counters.made_way,
            evictions: memory.evictions().total(),
            evicted_for_adapters: memory.evictions().for_adapters,
            evicted_as_lost: memory.evictions().forgotten,
            drafted_tokens: counters.drafted_tokens,
            restarting: self.restarting && !self.scheduler.is_empty(),
            tenants: self.scheduler.shares(),
            ..self.counted.clone()
        };
        let mut shown = self.shared.snapshot.lock().unwrap_or_else(PoisonError::into_inner);
        let mut log = self.shared.cache_log.lock().unwrap_or_else(PoisonError::into_inner);
        log.note(self.shared.now(), &shown, &now);
        *shown = now;
    }
}

impl Reading {
    fn result(self) -> Advance {
        match self {
            Reading { ended: true, tokens, .. } => Advance::Finished(tokens),
            Reading { failed: true, tokens, .. } if tokens.is_empty() => Advance::Again,
            Reading { tokens, .. } => Advance::Computed(tokens),
        }
    }
}
