//! The state machine itself: `admit` takes a job in, `plan` says what to compute in the next step, `commit` says what came
//! of it.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use cascadia_model::StageCache;

use super::limits::{PromptRows, ScheduleCounters, ScheduleLimits, Sharing};
use super::memory::{Memory, Reach};
use super::plan::{Advance, JobRows, Plan};
use super::prefix::PrefixKey;
use super::restraint::{Restraint, divide};
use super::sequence::{Needs, Sequence, State, Work};
use super::tenants::{Place, TenantShare, Tenants, Yielding};
use crate::service::JobId;

/// Plans between a preemption and the next start of its tenant, so that a preempted sequence does not come back at once
/// and push out another, or is pushed out again by the next short request.
const COOL_DOWN_PLANS: u32 = 16;

/// Every so many plans, rows of prompts go to the oldest that runs, whoever's it is.
const PLANS_PER_OLDEST: u64 = 8;

/// Steps of those who took too much are not made shorter than this for others that may come: a prompt would pay for reading
/// the weights too often.
const LEAST_ROWS: u32 = 24;

/// With fewer rows of prompts than this, a step costs hardly less than with this many.
const WORTHWHILE_ROWS: usize = 16;

/// All sequences, those that wait and those that run.
#[derive(Debug)]
pub struct Scheduler {
    limits: ScheduleLimits,
    sequences: BTreeMap<JobId, Sequence>,
    running: Vec<JobId>,
    tenants: Tenants,
    memory: Memory,
    counters: ScheduleCounters,
    /// Sequences whose cache is no longer held since somebody last asked.
    released: Vec<JobId>,
    now: f64,
    plans: u64,
    restraint: Restraint,
}

impl Scheduler {
    /// Nothing to do.
    pub fn new(mut limits: ScheduleLimits) -> Scheduler {
        limits.model.rows_per_step = limits.model.rows_per_step.max(1);
        limits.parallel = limits.parallel.clamp(1, limits.model.rows_per_step);
        limits.steps_in_flight = limits.steps_in_flight.max(1);
        limits.draft_rows = match limits.cache {
            StageCache::Paged => limits.draft_rows.min(limits.model.rows_per_step - limits.parallel),
            StageCache::PerSequence => 0,
        };
        limits.prompt_rows = limits.prompt_rows.at_least_one();
        Scheduler {
            sequences: BTreeMap::new(),
            running: Vec::new(),
            tenants: Tenants::new(limits.weights.clone(), limits.patience_seconds),
            memory: Memory::new(limits.model.cache, limits.spans),
            counters: ScheduleCounters::default(),
            released: Vec::new(),
            now: 0.0,
            plans: 0,
            restraint: Restraint::default(),
            limits,
        }
    }

    /// Takes a job in. Its tokens must fit into the context, and the context into the pages.
    pub fn admit(&mut self, work: Work, now: f64) {
        let salt = match self.limits.sharing {
            Sharing::WithinTenant => work.tenant.0,
            Sharing::Everyone => 0,
        };
        self.tenants.wait((work.tenant, work.priority), work.id, (Place::Back, now));
        let key = PrefixKey { salt, adapter: work.adapter, ..PrefixKey::default() };
        self.sequences.insert(work.id, Sequence::new(work, key));
    }

    /// Forgets a job. If it is in a plan, its pages are freed when that is committed.
    pub fn remove(&mut self, id: JobId) {
        let Some(sequence) = self.sequences.get_mut(&id) else { return };
        if sequence.state == State::InFlight {
            sequence.ending = true;
            return;
        }
        let Some(sequence) = self.sequences.remove(&id) else { return };
        let tenant = sequence.work.tenant;
        match sequence.state {
            State::Waiting => self.tenants.remove(tenant, id),
            State::Ready | State::InFlight => {
                self.running.retain(|running| *running != id);
                self.tenants.end(tenant);
            }
        }
        self.memory.release(sequence.holding);
        self.released.push(id);
    }

    /// Sequences whose cache was released since this was last asked: those that ended, and those that begin again.
    pub fn take_released(&mut self) -> Vec<JobId> {
        std::mem::take(&mut self.released)
    }

    /// Forgets the jobs whose time is over, and names them.
    pub fn expire(&mut self, now: f64) -> Vec<JobId> {
        let late = self
            .sequences
            .values()
            .filter(|sequence| !sequence.ending && sequence.work.deadline.is_some_and(|deadline| deadline <= now));
        let late: Vec<JobId> = late.map(|sequence| sequence.work.id).collect();
        late.iter().for_each(|id| self.remove(*id));
        late
    }

    /// Sequences whose next step continues an answer, with how many draft tokens each may have. All of them together may
    /// have [`Self::draft_rows`].
    pub fn drafting(&self) -> Vec<(JobId, usize)> {
        let ready =
            |sequence: &&Sequence| sequence.state == State::Ready && sequence.streams() && !sequence.runs_alone();
        let running = self.running.iter().filter_map(|id| self.sequences.get(id));
        let streams: Vec<&Sequence> = running.filter(ready).collect();
        let room =
            |sequence: &Sequence| (self.limits.model.context as usize).saturating_sub(sequence.work.tokens.len());
        streams.iter().map(|sequence| (sequence.work.id, self.draft_rows().min(room(sequence)))).collect()
    }

    /// The most draft tokens of a step.
    pub fn draft_rows(&self) -> usize {
        self.limits.draft_rows as usize
    }

    /// Gives a sequence draft tokens; its next plan has rows for them too.
    pub fn set_draft(&mut self, id: JobId, draft: Vec<u32>) {
        if let Some(sequence) = self.sequences.get_mut(&id).filter(|sequence| sequence.state == State::Ready) {
            sequence.draft = draft;
        }
    }

    /// What to compute next; `None` when nothing can be.
    pub fn plan(&mut self, now: f64) -> Option<Plan> {
        self.now = now;
        self.plans += 1;
        self.tenants.tidy(now);
        self.memory.begin_plan();
        self.start_waiting(now);
        let mut plan = Plan::default();
        plan.step.generation = self.memory.generation();
        let ready = self.ready();
        let alone = ready.iter().copied().find(|id| self.sequences[id].runs_alone());
        // Where there is no room for one that must run alone, others continue until there is.
        if alone.is_none_or(|id| self.place(id, self.limits.model.rows_per_step as usize, &mut plan) == 0) {
            let (first, restrained) = divide(ready, &self.sequences, &self.tenants);
            self.place_all(first, usize::MAX, &mut plan);
            self.place_restrained(restrained, &mut plan);
        }
        (!plan.jobs.is_empty()).then_some(plan)
    }

    /// A few rows of tenants that took too much beside answers of others, and none beside a prompt of others, which makes the
    /// step long already.
    fn place_restrained(&mut self, restrained: Vec<JobId>, plan: &mut Plan) {
        if plan.jobs.is_empty() {
            return self.place_all(restrained, usize::MAX, plan);
        }
        if restrained.is_empty() || !plan.jobs.iter().all(|job| self.sequences[&job.id].streams()) {
            return;
        }
        let took_too_much = |job: &JobRows| self.tenants.took_too_much(self.sequences[&job.id].work.tenant);
        let even = plan.jobs.iter().any(took_too_much);
        let (most, before) = (self.restraint.rows(even), plan.step.tokens.len());
        self.place_all(restrained, most, plan);
        let rows = plan.step.tokens.len() - before;
        self.restraint.spend(rows);
        plan.restrained = Some(rows);
    }

    /// Answers, then prompts, with `most` rows together.
    fn place_all(&mut self, mut ready: Vec<JobId>, most: usize, plan: &mut Plan) {
        let answers = self.place_answers(&ready, most, plan);
        self.sort_prompts(&mut ready);
        self.place_prompts(&ready, most - answers, plan);
    }

    /// A row for every answer; where several plans are in flight, for this one's share of them. Returns the rows they got.
    fn place_answers(&mut self, ready: &[JobId], most: usize, plan: &mut Plan) -> usize {
        let streams = |id: &JobId| self.sequences[id].streams();
        let share = self.running.iter().filter(|id| streams(id)).count().div_ceil(self.limits.steps_in_flight as usize);
        let mut answers = plan.jobs.iter().filter(|job| streams(&job.id)).count();
        let mut left = most;
        for id in ready {
            // One that was preempted meanwhile is placed nowhere.
            let Some(sequence) = self.sequences.get_mut(id).filter(|sequence| sequence.streams()) else { continue };
            if answers >= share || left == 0 {
                break;
            }
            sequence.draft.truncate(left - 1);
            left -= self.place(*id, 1, plan);
            answers += 1;
        }
        most - left
    }

    /// Chunks of prompts, in this order, with `most` rows together. Where the prompt of one tenant is finished, others wait for
    /// the next step: they would make its first token late, and a step that reads all weights for a few rows more gains
    /// little by them.
    fn place_prompts(&mut self, ready: &[JobId], most: usize, plan: &mut Plan) {
        let answers = plan.step.tokens.len();
        let streams = self.running.iter().any(|id| self.sequences[id].streams());
        let PromptRows { alone, beside_answers } = self.limits.prompt_rows;
        let limit = if streams { beside_answers } else { alone };
        // Others were there a moment ago, and would have to wait for the end of this step.
        let limit = match ready.iter().all(|id| self.tenants.took_too_much(self.sequences[id].work.tenant)) {
            true => limit.div_ceil(2).max(limit.min(LEAST_ROWS)),
            false => limit,
        };
        let mut budget = (self.limits.model.rows_per_step as usize - answers).min(limit as usize).min(most);
        let mut finished = None;
        for id in ready {
            let Some(sequence) = self.sequences.get(id).filter(|sequence| !sequence.streams()) else { continue };
            let tenant = sequence.work.tenant;
            let most = match finished {
                Some(first) if first != tenant => WORTHWHILE_ROWS.saturating_sub(plan.step.tokens.len() - answers),
                _ => budget,
            };
            let rows = match most.min(budget) {
                0 => continue,
                most => self.place(*id, most, plan),
            };
            budget = budget.saturating_sub(rows);
            if rows > 0 && plan.jobs.last().is_some_and(|job| !job.wanted.is_empty()) {
                finished = finished.or(Some(tenant));
            }
        }
    }

    /// The order in which prompts get rows: by priority, then the tenant that was served least. Now and then it is the
    /// oldest, so that a prompt that was begun is never left behind for good.
    fn sort_prompts(&self, ready: &mut [JobId]) {
        if self.plans.is_multiple_of(PLANS_PER_OLDEST) {
            return ready.sort();
        }
        ready.sort_by(|one, other| {
            let [one, other] = [one, other].map(|id| &self.sequences[id].work);
            let [one_served, other_served] = [one, other].map(|work| self.tenants.served(work.tenant));
            other.priority.cmp(&one.priority).then(one_served.compare(&other_served)).then(one.id.cmp(&other.id))
        });
    }

    /// Running sequences that are in no plan, the most important first.
    fn ready(&self) -> Vec<JobId> {
        let mut ready: Vec<JobId> = self.running.clone();
        ready.retain(|id| self.sequences[id].state == State::Ready);
        ready.sort_by_key(|id| (Reverse(self.sequences[id].work.priority), *id));
        ready
    }

    /// Lets waiting jobs run while there is room, or while others that run more than their share make room.
    fn start_waiting(&mut self, now: f64) {
        while let Some(id) = self.tenants.next(now) {
            if !self.start(id, now) && !self.put_back_for(id) {
                break;
            }
        }
    }

    /// Lets a job run if there is a place, room for all its tokens, and a page to spare for each that runs already.
    fn start(&mut self, id: JobId, now: f64) -> bool {
        let running = self.running.len() as u32;
        let Some(sequence) = self.sequences.get_mut(&id).filter(|_| running < self.limits.parallel) else {
            return false;
        };
        let reuses = self.limits.cache == StageCache::Paged && sequence.work.needs == Needs::NextToken;
        let holding = match reuses {
            true => self.memory.reuse(sequence.key, &sequence.work.tokens),
            false => self.memory.nothing(sequence.key),
        };
        let length = (sequence.work.tokens.len() + 1).min(self.limits.model.context as usize);
        if running > 0 && !self.memory.has_room(&holding, length, running) {
            self.memory.release(holding);
            return false;
        }
        sequence.start(holding);
        if reuses {
            sequence.allow_reads();
        }
        self.running.push(id);
        self.tenants.start((sequence.work.tenant, sequence.work.priority), id, now);
        true
    }

    /// Puts back a sequence of the tenant that was served most, of those whose shares allow it: the one that loses least
    /// by it, and of those the youngest. `false` where there is none; nothing makes way for a job that is less urgent.
    fn put_back_for(&mut self, id: JobId) -> bool {
        let Some(waiting) = self.sequences.get(&id).map(|sequence| &sequence.work) else { return false };
        let yields = |id: &JobId| {
            let sequence = &self.sequences[id];
            sequence.work.priority <= waiting.priority
                && match self.tenants.yielding(sequence.work.tenant, waiting.tenant) {
                    Yielding::Now => true,
                    Yielding::AfterTurn => sequence.had_turn(),
                    Yielding::Never => false,
                }
        };
        let served = |id: &JobId| self.tenants.served(self.sequences[id].work.tenant);
        let loss = |id: &JobId| self.computed_again(&self.sequences[id]);
        let compare = |one: &JobId, other: &JobId| {
            let losses = loss(other).cmp(&loss(one));
            served(one).compare(&served(other)).then(losses).then(one.cmp(other))
        };
        let Some(victim) = self.ready().into_iter().filter(yields).max_by(compare) else { return false };
        self.preempt(victim);
        self.counters.made_way += 1;
        true
    }

    /// Tokens of a sequence that would be computed again if it were put back.
    fn computed_again(&self, sequence: &Sequence) -> usize {
        match (self.limits.cache, sequence.work.needs) {
            (StageCache::Paged, Needs::NextToken) => sequence.computed - sequence.holding.tokens(),
            _ => sequence.computed,
        }
    }

    /// Brings back more of the beginning of a sequence that is kept below the cache.
    fn restore(&mut self, id: JobId) {
        let restores = |sequence: &&mut Sequence| sequence.state == State::Ready && sequence.restoring;
        let Some(sequence) = self.sequences.get_mut(&id).filter(restores) else { return };
        let (key, tokens, reads) = (sequence.key, &sequence.work.tokens, sequence.reads);
        sequence.restoring = self.memory.restore(key, tokens, &mut sequence.reads);
        if sequence.reads < reads {
            let holding = self.memory.reuse(key, tokens);
            self.memory.release(std::mem::take(&mut sequence.holding));
            sequence.start(holding);
        }
    }

    /// Puts up to `rows` tokens of a sequence into the plan, and its draft tokens; returns the rows it got.
    fn place(&mut self, id: JobId, rows: usize, plan: &mut Plan) -> usize {
        self.restore(id);
        let ready = |sequence: &&Sequence| sequence.state == State::Ready && !sequence.restoring;
        let Some(sequence) = self.sequences.get(&id).filter(ready) else { return 0 };
        let room = self.limits.model.rows_per_step as usize - plan.step.tokens.len();
        let rows = sequence.rows_in(&plan.step, rows, room);
        if rows == 0 {
            return 0;
        }
        let known_end = sequence.computed + rows;
        let drafted = match known_end == sequence.work.tokens.len() {
            true => sequence.draft.len().min(room - rows),
            false => 0,
        };
        let end = (known_end + drafted).min(self.limits.model.context as usize);
        let end = self.make_room(id, end);
        let Some(sequence) = self.sequences.get_mut(&id) else { return 0 };
        let start = sequence.computed;
        if end <= start || (sequence.work.needs.is_whole_text() && end < known_end) {
            return 0;
        }
        let tokens = &sequence.work.tokens;
        let known_end = known_end.min(end);
        sequence.draft.truncate(end - known_end);
        let computed = tokens[start..known_end].iter().chain(&sequence.draft).copied();
        let rows = plan.step.add(id.0, start as u32, computed, sequence.holding.runs(end));
        plan.step.begin_second_text(sequence.work.needs.second_text());
        let wanted_from = match sequence.work.needs {
            Needs::EveryRow | Needs::WholeText { .. } => start,
            Needs::NextToken if known_end == tokens.len() => known_end - 1,
            Needs::NextToken => end,
        };
        let wanted = rows.start + (wanted_from - start) as u32..rows.end;
        let reused = (!sequence.begun).then_some(start);
        self.counters.recomputed_tokens += known_end.min(sequence.reached).saturating_sub(start) as u64;
        self.counters.prompt_tokens +=
            known_end.min(sequence.prompt).saturating_sub(start.max(sequence.reached)) as u64;
        self.counters.reused_tokens += reused.unwrap_or(0) as u64;
        self.counters.drafted_tokens += sequence.draft.len() as u64;
        sequence.begun = true;
        sequence.planned = self.plans;
        sequence.state = State::InFlight;
        let (count, drafted) = (rows.len(), sequence.draft.len() as u32);
        plan.jobs.push(JobRows { id, rows, wanted, position: wanted_from as u32, drafted, reused });
        self.tenants.charge(sequence.work.tenant, count as u64);
        count
    }

    /// Gets pages for a sequence up to position `end`; returns how far they reach. Cached prefixes go first, then
    /// sequences that are in no plan, and as a last resort what is cached below its owner's floor.
    fn make_room(&mut self, id: JobId, end: usize) -> usize {
        loop {
            let Some(sequence) = self.sequences.get_mut(&id) else { return 0 };
            let computed = sequence.computed;
            let least = if sequence.work.needs.is_whole_text() { end } else { computed + 1 };
            let reached = self.memory.grow(&mut sequence.holding, computed, end, Reach::Fair);
            if reached >= least {
                return reached;
            }
            match self.least_important() {
                Some(victim) if victim != id => self.preempt(victim),
                _ if self.running.len() > 1 => return reached,
                _ => {
                    let Some(sequence) = self.sequences.get_mut(&id) else { return 0 };
                    return self.memory.grow(&mut sequence.holding, computed, end, Reach::Everything);
                }
            }
        }
    }

    /// Of the running sequences that are in no plan, the least urgent; of those, the youngest of the tenant that runs most.
    fn least_important(&self) -> Option<JobId> {
        let order = |id: &JobId| {
            let work = &self.sequences[id].work;
            (Reverse(work.priority), self.tenants.running_per_weight(work.tenant), *id)
        };
        let compare = |one: &JobId, other: &JobId| {
            let ((one_urgency, one_running, one), (other_urgency, other_running, other)) = (order(one), order(other));
            one_urgency.cmp(&other_urgency).then(one_running.total_cmp(&other_running)).then(one.cmp(&other))
        };
        self.ready().into_iter().max_by(compare)
    }

    /// Frees the pages of a sequence and puts it back into the queue. Its tokens stay, so nothing is reported twice.
    fn preempt(&mut self, id: JobId) {
        self.counters.preemptions += 1;
        if let Some(sequence) = self.sequences.get(&id) {
            self.tenants.rest(sequence.work.tenant, COOL_DOWN_PLANS);
        }
        self.requeue(id);
    }

    /// Puts a sequence that is in no plan back to the front of its queue.
    pub(super) fn requeue(&mut self, id: JobId) {
        let Some(sequence) = self.sequences.get_mut(&id) else { return };
        let holding = std::mem::take(&mut sequence.holding);
        sequence.computed = 0;
        sequence.state = State::Waiting;
        sequence.draft.clear();
        let owner = (sequence.work.tenant, sequence.work.priority);
        self.tenants.stop(owner.0);
        self.tenants.wait(owner, id, (Place::Front, self.now));
        self.running.retain(|running| *running != id);
        self.memory.release(holding);
        self.released.push(id);
    }

    /// A plan that is not committed took so many seconds. Tenants that take more than their share have to wait for others.
    pub fn took(&mut self, plan: &Plan, seconds: f64) {
        if let Some(rows) = plan.restrained {
            self.restraint.learn(rows, seconds);
        }
        let each = seconds / (plan.step.tokens.len().max(1) * self.limits.steps_in_flight as usize) as f64;
        for job in &plan.jobs {
            let Some(sequence) = self.sequences.get(&job.id) else { continue };
            self.tenants.took(sequence.work.tenant, each * job.rows.len() as f64);
        }
    }

    /// Takes in the results of a plan, one for each of its jobs in order.
    pub fn commit(&mut self, plan: Plan, results: Vec<Advance>) {
        assert_eq!(plan.jobs.len(), results.len(), "every job has a result");
        for (job, advance) in plan.jobs.iter().zip(results) {
            self.settle(job.id, job.rows.len(), &advance);
        }
    }

    /// A machine was lost while it computed this plan: each job in it may be why, and has steps of its own when it
    /// happens again. Says how often a job was lost in a step that it had for itself; zero of several.
    pub fn suspect(&mut self, plan: &Plan) -> u32 {
        for job in &plan.jobs {
            let Some(sequence) = self.sequences.get_mut(&job.id) else { continue };
            sequence.suspect_next(job.rows.len());
            // The first two losses made it suspect; those of its own steps follow.
            sequence.lost_alone += u32::from(plan.jobs.len() == 1 && sequence.losses > 2);
        }
        let [job] = plan.jobs.as_slice() else { return 0 };
        self.sequences.get(&job.id).map_or(0, |sequence| sequence.lost_alone)
    }

    /// The caches of a stage are gone: the plan was not computed, and everything that ran must be computed again. Plans
    /// that were in flight with this one and meet the same loss change nothing but their own sequences.
    pub fn lose(&mut self, plan: Plan) {
        for job in &plan.jobs {
            if let Some(sequence) = self.sequences.get_mut(&job.id) {
                sequence.state = State::Ready;
                sequence.draft.clear();
                sequence.lost = false;
            }
        }
        let known = plan.step.generation < self.memory.generation();
        let affected: Vec<JobId> =
            if known { plan.jobs.iter().map(|job| job.id).collect() } else { self.running.clone() };
        // Each goes to the front of its queue, so that the first of them is there in the end.
        for id in affected.into_iter().rev() {
            match self.sequences.get_mut(&id) {
                Some(sequence) if sequence.state == State::InFlight => sequence.lost = true,
                Some(sequence) if sequence.ending => self.remove(id),
                Some(_) => self.requeue(id),
                None => {}
            }
        }
        if !known {
            self.memory.forget();
        }
    }

    fn settle(&mut self, id: JobId, rows: usize, advance: &Advance) {
        let Some(sequence) = self.sequences.get_mut(&id) else { return };
        sequence.state = State::Ready;
        let start = sequence.computed;
        let ends = match advance {
            Advance::Computed(tokens) | Advance::Finished(tokens) => {
                sequence.advance(start, rows - sequence.draft.len(), tokens);
                if !sequence.work.needs.is_whole_text() {
                    self.memory.settle(&mut sequence.holding, &sequence.work.tokens, sequence.computed);
                }
                sequence.alone = false;
                matches!(advance, Advance::Finished(_))
            }
            Advance::Again => {
                sequence.alone = true;
                false
            }
        };
        sequence.draft.clear();
        let lost = std::mem::take(&mut sequence.lost);
        if ends || sequence.ending {
            sequence.ending = false;
            self.remove(id);
        } else if lost || (*advance == Advance::Again && self.limits.cache == StageCache::PerSequence) {
            self.requeue(id);
        }
    }

    /// Begins again with empty caches, after a panic that may have left anything half changed. Jobs of which `keep` says so,
    /// by their tokens, wait to be computed again; the others are forgotten.
    pub fn restart(&mut self, now: f64, keep: impl Fn(JobId, &[u32]) -> bool) {
        let old = std::mem::replace(self, Scheduler::new(self.limits.clone()));
        self.memory = old.memory.emptied();
        self.counters = old.counters;
        self.released = old.released;
        self.released.extend(old.sequences.keys());
        let kept =
            old.sequences.into_iter().filter(|(id, sequence)| !sequence.ending && keep(*id, &sequence.work.tokens));
        for (id, sequence) in kept {
            self.tenants.wait((sequence.work.tenant, sequence.work.priority), id, (Place::Back, now));
            self.sequences.insert(id, sequence.restarted());
        }
    }

    /// Changes how many rows of prompts a step may have.
    pub fn set_prompt_rows(&mut self, rows: PromptRows) {
        self.limits.prompt_rows = rows.at_least_one();
    }

    /// The tokens of a job, prompt and answer.
    pub fn tokens(&self, id: JobId) -> Option<&[u32]> {
        self.sequences.get(&id).map(|sequence| sequence.work.tokens.as_slice())
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.sequences.is_empty()
    }

    /// Jobs that were preempted, and wait again.
    pub fn preempted(&self) -> usize {
        let again = |sequence: &&Sequence| sequence.state == State::Waiting && sequence.begun;
        self.sequences.values().filter(again).count()
    }

    /// Jobs that run.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Pages and their holders.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// The same, for what lives below the cache and beside it.
    pub fn memory_mut(&mut self) -> &mut Memory {
        &mut self.memory
    }

    /// What it has done so far.
    pub fn counters(&self) -> ScheduleCounters {
        self.counters
    }

    /// What every tenant has and was given.
    pub fn shares(&self) -> Vec<TenantShare> {
        self.tenants.shares()
    }
}
