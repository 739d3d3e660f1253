//! Seeded arrivals, cancels, draft tokens and failures on tiny pools: no page leaks, every job ends once, with its own tokens.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use cascadia_engine::service::schedule::{Advance, Needs, Plan, PromptRows, ScheduleLimits, Scheduler, Work};
use cascadia_engine::service::spill::{SpillHandle, SpillWriter};
use cascadia_engine::service::{JobId, Priority, Tenant};
use cascadia_model::{CachePages, ModelLimits, PAGE_TOKENS, PageClass, PerClass, StageCache};

use crate::disk::{Operation, TestDisk};
use crate::hash_model::{Random, SharedModel, VOCABULARY, alone, limits, model, spans};

/// A job with what it should become.
struct Expected {
    prompt: Vec<u32>,
    answer: Vec<u32>,
    got: Vec<u32>,
    ended: bool,
}

/// A plan on its way, with the token that follows each of its rows.
struct Flight {
    plan: Plan,
    next: Vec<u32>,
}

/// A disk below the cache.
struct Below {
    disk: Arc<TestDisk>,
    writer: SpillWriter,
    handle: SpillHandle,
}

struct Simulation {
    seed: u64,
    random: Random,
    scheduler: Scheduler,
    model: SharedModel,
    limits: ScheduleLimits,
    below: Option<Below>,
    jobs: BTreeMap<JobId, Expected>,
    /// Positions of each sequence that stages hold, since it last ended.
    lengths: BTreeMap<JobId, u32>,
    flights: VecDeque<Flight>,
    now: f64,
}

impl Simulation {
    fn new(seed: u64) -> Simulation {
        let mut random = Random(seed);
        let pages = 3 + random.below(14) as u32;
        // Windows, and tails of quantised caches: either, both or neither.
        let newest = PerClass::new(|_| if random.one_in(3) { 20 + random.below(120) as u32 } else { 0 });
        let newest_pages = PerClass::new(|class| match newest[class] {
            0 => 0,
            span => (span + PAGE_TOKENS).div_ceil(PAGE_TOKENS) + 1 + random.below(8) as u32,
        });
        let rows_per_step = 6 + random.below(150) as u32;
        let limits = ScheduleLimits {
            model: ModelLimits {
                cache: CachePages::new(|class| if class == PageClass::Full { pages } else { newest_pages[class] }),
                ..model(pages, rows_per_step)
            },
            spans: spans(|class| newest[class]),
            cache: if seed % 4 == 3 { StageCache::PerSequence } else { StageCache::Paged },
            steps_in_flight: 1 + random.below(3) as u32,
            prompt_rows: PromptRows {
                alone: 1 + random.below(400) as u32,
                beside_answers: 1 + random.below(64) as u32,
            },
            draft_rows: random.below(10) as u32,
            parallel: 1 + random.below(6) as u32,
            patience_seconds: 20.0,
            ..limits(pages)
        };
        Simulation {
            seed,
            scheduler: Scheduler::new(limits.clone()),
            model: SharedModel::new(&limits),
            limits,
            below: None,
            jobs: BTreeMap::new(),
            lengths: BTreeMap::new(),
            flights: VecDeque::new(),
            now: 0.0,
            random,
        }
    }

    /// The same with a disk that has room for a few pages or for many.
    fn with_disk(seed: u64) -> Simulation {
        let mut simulation = Simulation::new(seed);
        let disk = Arc::new(TestDisk::default());
        let bytes = (4096 * (4 + simulation.random.below(60)), 4096 * (1 + simulation.random.below(20)));
        let (tier, writer) = disk.tier(Arc::new(simulation.model.clone()), bytes);
        let handle = tier.handle();
        simulation.scheduler.set_tier(Box::new(tier));
        simulation.below = Some(Below { disk, writer, handle });
        simulation
    }

    /// What may happen to a disk between two steps: files are written or not, changed, removed; anything may fail.
    fn disturb(&mut self) {
        let (Some(below), random) = (&self.below, &mut self.random) else { return };
        if random.one_in(2) {
            below.writer.work();
        }
        let mut state = below.disk.state();
        state.now += random.below(100) as f64 / 100.0;
        state.read_seconds = random.below(30) as f64 / 1000.0;
        if random.one_in(20) {
            let operations = [Operation::Write, Operation::Read, Operation::Remove];
            state.failing = operations.into_iter().filter(|_| random.one_in(4)).collect();
        }
        if state.files.is_empty() || !random.one_in(10) {
            return;
        }
        let files = state.files.len() as u64;
        let [one, other] = [random.below(files), random.below(files)];
        let name = |at: u64| state.files.keys().nth(at as usize).expect("a file").clone();
        let (one, other) = (name(one), name(other));
        match random.below(4) {
            0 => drop(state.files.remove(&one)),
            1 => state.files.get_mut(&one).expect("a file").truncate(random.below(500) as usize),
            2 => {
                let file = state.files.get_mut(&one).expect("a file");
                let at = random.below(file.len() as u64) as usize;
                if let Some(byte) = file.get_mut(at) {
                    *byte ^= 1;
                }
            }
            _ => {
                let file = state.files[&other].clone();
                state.files.insert(one, file);
            }
        }
    }

    fn arrive(&mut self) {
        let context = u64::from(self.limits.model.context);
        let tenant = Tenant(self.random.below(3));
        let earlier = self.random.below(self.jobs.len() as u64 + 1);
        // A new text, a text that begins like many others, or one that continues an earlier conversation.
        let mut prompt = match self.jobs.get(&JobId(earlier)) {
            Some(job) if self.random.one_in(3) => [job.prompt.clone(), job.got.clone()].concat(),
            _ if self.random.one_in(2) => (0..150).map(|at| at * 7 % VOCABULARY as u32).collect(),
            _ => Vec::new(),
        };
        let longest = if self.random.one_in(4) { context } else { 40 };
        let tail = 1 + self.random.below(longest);
        prompt.extend((0..tail).map(|_| self.random.below(VOCABULARY) as u32));
        prompt.truncate(context as usize);
        let room = 1 + context as usize - prompt.len();
        let count = (1 + self.random.below(50) as usize).min(room);
        let id = JobId(self.jobs.len() as u64);
        let priority = [Priority::Low, Priority::Normal, Priority::High][self.random.below(3) as usize];
        let deadline = self.random.one_in(12).then(|| self.now + self.random.below(60) as f64);
        let answer = alone(&prompt, count, &self.limits.spans);
        self.jobs.insert(id, Expected { prompt: prompt.clone(), answer, got: Vec::new(), ended: false });
        let needs = Needs::NextToken;
        self.scheduler.admit(Work { id, tokens: prompt, needs, tenant, priority, deadline, adapter: None }, self.now);
    }

    fn end(&mut self, id: JobId) {
        let job = self.jobs.get_mut(&id).expect("it is a job");
        assert!(!job.ended, "seed {}: {id:?} ended twice", self.seed);
        job.ended = true;
        assert!(job.answer.starts_with(&job.got), "seed {}: {id:?} has other tokens", self.seed);
    }

    /// Guesses for some of those that could use them: right, wrong, or right for a while.
    fn draft(&mut self) {
        let drafting = self.scheduler.drafting();
        let each = self.scheduler.draft_rows() / drafting.len().max(1);
        for (id, most) in drafting {
            let most = most.min(each);
            let job = &self.jobs[&id];
            let rest = &job.answer[job.got.len()..];
            let right = self.random.below(most as u64 + 1) as usize;
            let mut draft: Vec<u32> = rest.iter().copied().take(right).collect();
            draft.resize_with(most, || self.random.below(VOCABULARY) as u32);
            if !self.random.one_in(3) {
                self.scheduler.set_draft(id, draft);
            }
        }
    }

    fn plan(&mut self) {
        self.draft();
        let plan = self.scheduler.plan(self.now);
        self.scheduler.take_released().iter().for_each(|id| _ = self.lengths.remove(id));
        let Some(plan) = plan else {
            // With a disk, all may wait for pages to come back.
            let waits = !self.flights.is_empty() || self.below.is_some();
            assert!(self.scheduler.is_empty() || waits, "seed {}: stuck", self.seed);
            return;
        };
        assert!(plan.step.tokens.len() <= self.limits.model.rows_per_step as usize, "seed {}", self.seed);
        for planned in &plan.jobs {
            let twice = |flight: &Flight| flight.plan.jobs.iter().any(|other| other.id == planned.id);
            assert!(!self.flights.iter().any(twice), "seed {}: {:?} is in two plans", self.seed, planned.id);
        }
        for step in plan.step.steps.iter().filter(|_| self.limits.cache == StageCache::PerSequence) {
            // A stage that keeps a state per sequence can neither skip rows nor go back.
            let length = self.lengths.insert(JobId(step.id), step.end()).unwrap_or(0);
            assert_eq!(step.start, length, "seed {}: rows of sequence {}", self.seed, step.id);
        }
        let next = self.model.run(&plan.step);
        self.flights.push_back(Flight { plan, next });
    }

    fn land(&mut self) {
        let Some(Flight { plan, next }) = self.flights.pop_front() else { return };
        self.scheduler.took(&plan, self.random.below(4) as f64 / 2.0);
        // Steps that were in flight with one that was lost may have finished, or meet the same loss.
        let older = plan.step.generation < self.scheduler.memory().generation();
        if older && self.random.one_in(2) {
            return self.scheduler.lose(plan);
        }
        if !older && self.random.one_in(40) {
            // Nothing of a lost stage may be used again.
            self.model.reset(&self.limits);
            return self.scheduler.lose(plan);
        }
        if self.random.one_in(30) {
            let results = plan.jobs.iter().map(|_| Advance::Again).collect();
            return self.scheduler.commit(plan, results);
        }
        let mut results = Vec::new();
        for planned in &plan.jobs {
            let job = self.jobs.get_mut(&planned.id).expect("it is a job");
            let mut new = Vec::new();
            for row in planned.wanted.clone().take_while(|_| !job.ended) {
                let token = next[row as usize];
                new.push(token);
                job.got.push(token);
                let draft = plan.step.tokens.get(row as usize + 1).filter(|_| row + 1 < planned.rows.end);
                if draft != Some(&token) || job.got.len() == job.answer.len() {
                    break;
                }
            }
            let done = job.got.len() == job.answer.len() && !job.ended;
            if done {
                self.end(planned.id);
            }
            let gone = self.jobs[&planned.id].ended;
            results.push(if gone { Advance::Finished(new) } else { Advance::Computed(new) });
        }
        self.scheduler.commit(plan, results);
    }

    fn run(mut self) -> Simulation {
        let (total, most) = (20 + self.random.below(20), 1 + self.random.below(2) as usize);
        let mut turns = 0;
        while (self.jobs.len() as u64) < total || !self.scheduler.is_empty() {
            turns += 1;
            assert!(turns < 40_000, "seed {}: no end in sight", self.seed);
            self.now += 1.0;
            if (self.jobs.len() as u64) < total && self.random.one_in(4) {
                self.arrive();
            }
            if self.random.one_in(25) && !self.jobs.is_empty() {
                let id = JobId(self.random.below(self.jobs.len() as u64));
                if !self.jobs[&id].ended {
                    self.end(id);
                    self.scheduler.remove(id);
                }
            }
            for id in self.scheduler.expire(self.now) {
                self.end(id);
            }
            self.plan();
            self.disturb();
            if self.flights.len() >= most || self.random.one_in(2) {
                self.land();
            }
        }
        assert!(self.jobs.values().all(|job| job.ended), "seed {}: a job has no end", self.seed);
        let memory = self.scheduler.memory();
        for pages in PageClass::ALL.map(|class| memory.pages(class)) {
            assert_eq!(pages.running(), 0, "seed {}: pages are still held", self.seed);
            assert_eq!(pages.free() + pages.cached(), pages.count(), "seed {}", self.seed);
        }
        self
    }
}

#[test]
fn nothing_leaks_and_every_job_ends_with_its_own_tokens() {
    let preemptions: u64 = (0..400).map(|seed| Simulation::new(seed).run().scheduler.counters().preemptions).sum();
    assert!(preemptions > 1000, "{preemptions} are too few to mean anything");
}

#[test]
fn a_disk_that_fails_and_lies_changes_no_token() {
    let mut totals = [0; 4];
    for seed in 0..400 {
        let simulation = Simulation::with_disk(seed).run();
        let below = simulation.below.expect("it has a disk");
        let status = below.handle.status().expect("the tier is there");
        assert!(status.bytes <= status.most_bytes, "seed {seed}");
        let counts = [status.restored, status.dropped, status.damaged, status.unreadable];
        totals.iter_mut().zip(counts).for_each(|(total, count)| *total += count);
    }
    assert!(totals.iter().all(|total| *total > 100), "{totals:?} are too few to mean anything");
}
