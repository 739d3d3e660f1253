//! Fills a step: a row for every answer that runs, and chunks of prompts with what is left.

use std::cmp::Reverse;
use std::ops::Range;

use cascadia_model::{StageCache, StepPlan};

use super::sequence::State;
use super::{COOL_DOWN_PLANS, Needs, PLANS_PER_OLDEST, Place, PromptRows, Reach, Scheduler, WORTHWHILE_ROWS};
use crate::service::JobId;

/// A step to compute. It goes back to `commit` exactly once.
#[derive(Debug, Default)]
pub struct Plan {
    /// What the pipeline runs.
    pub step: StepPlan,
    /// Which rows belong to which job, in the order of the rows.
    pub jobs: Vec<JobRows>,
}

/// The rows of one job in a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobRows {
    /// The job.
    pub id: JobId,
    /// Its rows.
    pub rows: Range<u32>,
    /// Of those, the rows that are read.
    pub wanted: Range<u32>,
    /// Position in its sequence of the first row that is read.
    pub position: u32,
    /// Draft tokens in its last rows.
    pub drafted: u32,
    /// In its first plan, how many of its tokens were cached.
    pub reused: Option<usize>,
}

impl Scheduler {
    /// What to compute next; `None` when nothing can be.
    pub fn plan(&mut self, now: f64) -> Option<Plan> {
        self.now = now;
        self.tenants.tidy();
        self.start_waiting(now);
        self.cool_down = self.cool_down.saturating_sub(1);
        let mut plan = Plan::default();
        plan.step.generation = self.memory.generation();
        let mut ready = self.ready();
        let alone = ready.iter().copied().find(|id| self.sequences[id].runs_alone());
        // Where there is no room for one that must run alone, others continue until there is.
        if alone.is_none_or(|id| self.place(id, self.limits.model.rows_per_step as usize, &mut plan) == 0) {
            self.place_answers(&ready, &mut plan);
            self.sort_prompts(&mut ready);
            self.place_prompts(&ready, &mut plan);
        }
        (!plan.jobs.is_empty()).then_some(plan)
    }

    /// A row for every answer; where several plans are in flight, for this one's share of them.
    fn place_answers(&mut self, ready: &[JobId], plan: &mut Plan) {
        let streams = self.running.iter().filter(|id| self.sequences[id].streams()).count();
        let share = streams.div_ceil(self.limits.steps_in_flight as usize);
        for id in ready {
            // One that was preempted meanwhile is placed nowhere.
            if self.sequences[id].streams() && plan.jobs.len() < share {
                self.place(*id, 1, plan);
            }
        }
    }

    /// Chunks of prompts, in this order. Where the prompt of one tenant is finished, others wait for the next step: they
    /// would make its first token late, and a step that reads all weights for a few rows more gains little by them.
    fn place_prompts(&mut self, ready: &[JobId], plan: &mut Plan) {
        let answers = plan.step.tokens.len();
        let streams = self.running.iter().any(|id| self.sequences[id].streams());
        let PromptRows { alone, beside_answers } = self.limits.prompt_rows;
        let limit = if streams { beside_answers } else { alone };
        let mut budget = (self.limits.model.rows_per_step as usize - answers).min(limit as usize);
        let mut finished = None;
        for id in ready {
            let Some(sequence) = self.sequences.get(id).filter(|sequence| !sequence.streams()) else { continue };
            let tenant = sequence.work.tenant;
            let enough = plan.step.tokens.len() - answers >= WORTHWHILE_ROWS;
            if budget == 0 {
                break;
            }
            if enough && finished.is_some_and(|first| first != tenant) {
                continue;
            }
            let rows = self.place(*id, budget, plan);
            budget -= rows;
            if rows > 0 && plan.jobs.last().is_some_and(|job| !job.wanted.is_empty()) {
                finished = finished.or(Some(tenant));
            }
        }
    }

    /// The order in which prompts get rows: by priority, then the tenant that was served least. Now and then it is the
    /// oldest, so that a prompt that was begun is never left behind for good.
    fn sort_prompts(&mut self, ready: &mut [JobId]) {
        self.plans += 1;
        if self.plans.is_multiple_of(PLANS_PER_OLDEST) {
            return ready.sort();
        }
        ready.sort_by(|one, other| {
            let [one, other] = [one, other].map(|id| &self.sequences[id].work);
            let [one_time, other_time] = [one, other].map(|work| self.tenants.time(work.tenant));
            other.priority.cmp(&one.priority).then(one_time.total_cmp(&other_time)).then(one.id.cmp(&other.id))
        });
    }

    /// Running sequences that are in no plan, the most important first.
    fn ready(&self) -> Vec<JobId> {
        let mut ready: Vec<JobId> = self.running.clone();
        ready.retain(|id| self.sequences[id].state == State::Ready);
        ready.sort_by_key(|id| (Reverse(self.sequences[id].work.priority), *id));
        ready
    }

    /// Lets waiting jobs run while there is room for all their tokens, and a page to spare for each that runs already.
    fn start_waiting(&mut self, now: f64) {
        while self.running.len() < self.limits.parallel as usize {
            let Some(id) = self.tenants.next(now) else { break };
            let first = self.running.is_empty();
            let Some(sequence) = self.sequences.get_mut(&id) else { break };
            let holding = match sequence.work.needs {
                Needs::NextToken if self.limits.cache == StageCache::Paged => {
                    self.memory.reuse(sequence.key, &sequence.work.tokens)
                }
                Needs::NextToken | Needs::EveryRow => self.memory.nothing(sequence.key),
            };
            let length = (sequence.work.tokens.len() + 1).min(self.limits.model.context as usize);
            let reserve = self.running.len() as u32;
            if !(first || self.cool_down == 0 && self.memory.has_room(&holding, length, reserve)) {
                self.memory.release(holding);
                break;
            }
            sequence.holding = holding;
            sequence.computed = sequence.holding.tokens();
            sequence.state = State::Ready;
            self.running.push(id);
            self.tenants.start((sequence.work.tenant, sequence.work.priority), id, now);
        }
    }

    /// Puts up to `rows` tokens of a sequence into the plan, and its draft tokens; returns the rows it got.
    fn place(&mut self, id: JobId, rows: usize, plan: &mut Plan) -> usize {
        let ready = self.sequences.get(&id).filter(|sequence| sequence.state == State::Ready);
        let Some(sequence) = ready else { return 0 };
        let room = self.limits.model.rows_per_step as usize - plan.step.tokens.len();
        let rows = rows.min(sequence.remaining()).min(room);
        let known_end = sequence.computed + rows;
        let drafted = match known_end == sequence.work.tokens.len() {
            true => sequence.draft.len().min(room - rows),
            false => 0,
        };
        let end = (known_end + drafted).min(self.limits.model.context as usize);
        let end = self.make_room(id, end);
        let Some(sequence) = self.sequences.get_mut(&id) else { return 0 };
        let start = sequence.computed;
        if end <= start {
            return 0;
        }
        let tokens = &sequence.work.tokens;
        let known_end = known_end.min(end);
        sequence.draft.truncate(end - known_end);
        let computed = tokens[start..known_end].iter().chain(&sequence.draft).copied();
        let rows = plan.step.add(id.0, start as u32, computed, sequence.holding.runs(end));
        let wanted_from = match sequence.work.needs {
            Needs::EveryRow => start,
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
        sequence.state = State::InFlight;
        let (count, drafted) = (rows.len(), sequence.draft.len() as u32);
        plan.jobs.push(JobRows { id, rows, wanted, position: wanted_from as u32, drafted, reused });
        self.tenants.charge(sequence.work.tenant, count as u64);
        count
    }

    /// Gets pages for a sequence up to position `end`; returns how far they reach. Cached prefixes go first, then the
    /// least important sequences that are in no plan, and as a last resort what is cached below its owner's floor.
    fn make_room(&mut self, id: JobId, end: usize) -> usize {
        loop {
            let Some(sequence) = self.sequences.get_mut(&id) else { return 0 };
            let computed = sequence.computed;
            let reached = self.memory.grow(&mut sequence.holding, computed, end, Reach::Fair);
            if reached > computed {
                return reached;
            }
            match self.ready().last() {
                Some(&victim) if victim != id => self.preempt(victim),
                _ if self.running.len() > 1 => return reached,
                _ => {
                    let Some(sequence) = self.sequences.get_mut(&id) else { return 0 };
                    return self.memory.grow(&mut sequence.holding, computed, end, Reach::Everything);
                }
            }
        }
    }

    /// Frees the pages of a sequence and puts it back into the queue. Its tokens stay, so nothing is reported twice.
    fn preempt(&mut self, id: JobId) {
        self.counters.preemptions += 1;
        self.cool_down = COOL_DOWN_PLANS;
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
}
