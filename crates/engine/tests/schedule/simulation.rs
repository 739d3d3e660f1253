//! Seeded arrivals, cancels, draft tokens, adapters and failures on tiny pools: no page leaks, every job ends once, with its
//! own tokens.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use cascadia_engine::service::schedule::{
    Advance, Needs, Plan, PromptRows, ResidentAdapters, ScheduleLimits, Scheduler, Weights, Work,
};
use cascadia_engine::service::spill::{SpillHandle, SpillWriter};
use cascadia_engine::service::{JobId, Priority, Tenant};
use cascadia_model::{AdapterId, CachePages, ModelLimits, PAGE_TOKENS, PageBytes, PageClass, PerClass, StageCache};

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

/// Adapters beside the cache.
struct Beside {
    resident: ResidentAdapters,
    own: u64,
    page_bytes: u64,
    /// Pages that are never lent.
    reserve: u32,
    /// Bytes of each adapter.
    sizes: Vec<u64>,
    selected: BTreeMap<JobId, AdapterId>,
    used: BTreeMap<JobId, Used>,
    /// Pages that were lent, and those that sequences took back.
    lent: u32,
    taken_back: u32,
}

/// The adapter of a job that runs.
struct Used {
    id: AdapterId,
    /// Whether it was in memory for others too when the job began.
    is_kept: bool,
    _weights: Weights,
}

struct Simulation {
    seed: u64,
    random: Random,
    scheduler: Scheduler,
    model: SharedModel,
    limits: ScheduleLimits,
    below: Option<Below>,
    beside: Option<Beside>,
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
            beside: None,
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
        simulation.scheduler.memory_mut().set_tier(Box::new(tier));
        simulation.below = Some(Below { disk, writer, handle });
        simulation
    }

    /// The same with adapters that borrow pages. Sequences are half as long as the cache at most, so the other half may be lent.
    fn with_adapters(seed: u64) -> Simulation {
        let mut simulation = Simulation::new(seed);
        let pages = simulation.limits.model.cache.of(PageClass::Full);
        let longest = pages / 2;
        simulation.limits.model.context = longest * PAGE_TOKENS;
        let mut scheduler = Scheduler::new(simulation.limits.clone());
        let (model, random) = (simulation.model.clone(), &mut simulation.random);
        let page_bytes = model.page_bytes(PageClass::Full) as u64;
        let own = page_bytes * random.below(4);
        let resident = ResidentAdapters::new(own);
        scheduler.memory_mut().lend_to(resident.clone(), Arc::new(model), longest * PAGE_TOKENS);
        let beside = Beside {
            resident,
            own,
            page_bytes,
            reserve: longest.max(pages.div_ceil(5)),
            sizes: (0..6).map(|_| 1 + random.below(3 * page_bytes)).collect(),
            selected: BTreeMap::new(),
            used: BTreeMap::new(),
            lent: 0,
            taken_back: 0,
        };
        Simulation { scheduler, beside: Some(beside), ..simulation }
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
        let adapter = self.beside.as_mut().and_then(|beside| beside.select(id, &mut self.random));
        self.scheduler.admit(Work { id, tokens: prompt, needs, tenant, priority, deadline, adapter }, self.now);
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
        let plan = self.plan_beside_adapters();
        self.scheduler.take_released().iter().for_each(|id| {
            self.lengths.remove(id);
            self.beside.iter_mut().for_each(|beside| _ = beside.used.remove(id));
        });
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
        self.adapt(&plan);
        let next = self.model.run(&plan.step);
        self.flights.push_back(Flight { plan, next });
    }

    /// Sequences take pages back from adapters, but none of what these have of their own, and none that is in use.
    fn plan_beside_adapters(&mut self) -> Option<Plan> {
        let lent = |scheduler: &Scheduler| scheduler.memory().pages(PageClass::Full).lent();
        let (bytes, before) = (self.beside.as_ref().map_or(0, |beside| beside.resident.bytes()), lent(&self.scheduler));
        let plan = self.scheduler.plan(self.now);
        let after = lent(&self.scheduler);
        if let Some(beside) = &mut self.beside {
            let left = beside.resident.bytes();
            assert!(after <= before && left <= bytes, "seed {}: a plan lends nothing", self.seed);
            assert!(bytes > beside.own || left == bytes, "seed {}: adapters lost memory of their own", self.seed);
            let is_there = |used: &Used| !used.is_kept || beside.resident.has(used.id);
            assert!(beside.used.values().all(is_there), "seed {}: an adapter in use is gone", self.seed);
            beside.taken_back += if left < bytes { before - after } else { 0 };
        }
        plan
    }

    /// Gives the jobs of a plan their adapters, as a service does.
    fn adapt(&mut self, plan: &Plan) {
        let Some(beside) = &mut self.beside else { return };
        let lent = self.scheduler.memory().pages(PageClass::Full).lent();
        for job in plan.jobs.iter().map(|planned| planned.id) {
            let Some(id) = beside.selected.get(&job).copied() else { continue };
            beside.resident.touch(id);
            if beside.used.contains_key(&job) {
                continue;
            }
            let bytes = beside.sizes[usize::from(id.0[0])];
            if !beside.resident.has(id) {
                self.scheduler.memory_mut().lend_for(bytes);
                beside.resident.make_room(bytes);
            }
            let _weights = beside.resident.keep(id, bytes, Arc::new(()));
            let is_kept = beside.resident.has(id);
            beside.used.insert(job, Used { id, is_kept, _weights });
        }
        let pages = self.scheduler.memory().pages(PageClass::Full);
        let most = beside.own + u64::from(pages.lent()) * beside.page_bytes;
        assert!(beside.resident.bytes() <= most, "seed {}: adapters take more than they have", self.seed);
        assert!(pages.kept() >= beside.reserve, "seed {}: the cache has lost its reserve", self.seed);
        beside.lent += pages.lent() - lent;
    }

    /// All adapters go, and with them everything that they borrowed; then all that is cached.
    fn end_adapters(&mut self) {
        let Some(beside) = &mut self.beside else { return };
        beside.used.clear();
        (0..beside.sizes.len() as u8).for_each(|number| beside.resident.remove(AdapterId([number; 32])));
        assert!(self.scheduler.plan(self.now).is_none(), "seed {}: nothing is left to do", self.seed);
        self.scheduler.memory_mut().forget();
        let pages = self.scheduler.memory().pages(PageClass::Full);
        assert_eq!((pages.lent(), pages.free()), (0, pages.count()), "seed {}: pages did not come back", self.seed);
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
        self.end_adapters();
        let memory = self.scheduler.memory();
        for pages in PageClass::ALL.map(|class| memory.pages(class)) {
            assert_eq!(pages.running(), 0, "seed {}: pages are still held", self.seed);
            assert_eq!(pages.free() + pages.cached(), pages.count(), "seed {}", self.seed);
        }
        self
    }
}

impl Beside {
    /// Chooses an adapter for a job, or none.
    fn select(&mut self, job: JobId, random: &mut Random) -> Option<AdapterId> {
        let number = random.below(self.sizes.len() as u64 + 1) as usize;
        let id = (number < self.sizes.len()).then_some(AdapterId([number as u8; 32]))?;
        self.selected.insert(job, id);
        Some(id)
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

#[test]
fn adapters_and_sequences_share_pages_and_change_no_token() {
    let [mut lent, mut taken_back] = [0; 2];
    for seed in 0..400 {
        let beside = Simulation::with_adapters(seed).run().beside.expect("it has adapters");
        lent += beside.lent;
        taken_back += beside.taken_back;
    }
    assert!(lent > 400 && taken_back > 100, "{lent} and {taken_back} are too few to mean anything");
}
