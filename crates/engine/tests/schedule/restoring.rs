//! Pages that memory gave up come back from disk: a small pool reuses what a large one does, and the tokens are the same.

use std::ops::Range;
use std::sync::Arc;

use cascadia_engine::service::schedule::{Advance, JobRows, Needs, Plan, ScheduleLimits, Scheduler, Work};
use cascadia_engine::service::spill::{SpillHandle, SpillStatus, SpillWriter};
use cascadia_engine::service::{JobId, Priority, Tenant};
use cascadia_model::{CachePages, ModelLimits, PageClass};

use crate::disk::TestDisk;
use crate::hash_model::{SharedModel, alone, limits, model, spans};

struct Bench {
    scheduler: Scheduler,
    model: SharedModel,
    limits: ScheduleLimits,
    disk: Arc<TestDisk>,
    writer: SpillWriter,
    handle: SpillHandle,
    next: u64,
}

impl Bench {
    fn new(limits: ScheduleLimits) -> Bench {
        Bench::with_disk(limits, 1 << 30)
    }

    /// A disk that has room for so many bytes.
    fn with_disk(limits: ScheduleLimits, bytes: u64) -> Bench {
        let (model, disk) = (SharedModel::new(&limits), Arc::new(TestDisk::default()));
        let (tier, writer) = disk.tier(Arc::new(model.clone()), (bytes, 1 << 30));
        let handle = tier.handle();
        let mut scheduler = Scheduler::new(limits.clone());
        scheduler.memory_mut().set_tier(Box::new(tier));
        Bench { scheduler, model, limits, disk, writer, handle, next: 0 }
    }

    fn admit(&mut self, tenant: u64, prompt: &[u32]) -> JobId {
        let id = JobId(self.next);
        self.next += 1;
        let (needs, priority, tenant) = (Needs::NextToken, Priority::Normal, Tenant(tenant));
        self.scheduler
            .admit(Work { id, tokens: prompt.to_vec(), needs, tenant, priority, deadline: None, adapter: None }, 0.0);
        id
    }

    /// Computes a plan whose answers are wanted to go on.
    fn compute(&mut self, plan: Plan) -> Vec<(JobId, Vec<u32>)> {
        let next = self.model.run(&plan.step);
        let tokens = |job: &JobRows| -> Vec<u32> { job.wanted.clone().map(|row| next[row as usize]).collect() };
        let new: Vec<(JobId, Vec<u32>)> = plan.jobs.iter().map(|job| (job.id, tokens(job))).collect();
        let results = new.iter().map(|(_, new)| Advance::Computed(new.clone())).collect();
        self.scheduler.commit(plan, results);
        new
    }

    /// Runs a job to its end: how many tokens were cached, and the answer, which is what it is alone.
    fn run(&mut self, tenant: u64, prompt: &[u32], count: usize) -> (usize, Vec<u32>) {
        let id = self.admit(tenant, prompt);
        let (mut reused, mut answer, mut plans) = (0, Vec::new(), 0);
        while answer.len() < count {
            plans += 1;
            assert!(plans < 1000, "no end in sight");
            let Some(plan) = self.scheduler.plan(0.0) else { continue };
            reused = plan.jobs[0].reused.unwrap_or(reused);
            self.compute(plan).into_iter().for_each(|(_, new)| answer.extend(new));
            self.writer.work();
        }
        self.scheduler.remove(id);
        assert_eq!(answer, alone(prompt, count, &self.limits.spans));
        (reused, answer)
    }

    fn status(&self) -> SpillStatus {
        self.handle.status().expect("the tier is there")
    }
}

fn text(seed: u32, length: u32) -> Vec<u32> {
    (0..length).map(|at| (at * 13 + seed * 29 + at / 50) % 50).collect()
}

/// Pages of each class, where windows and tails hold so many tokens.
fn classes(pages: [u32; 3], newest: [u32; 2]) -> ScheduleLimits {
    let of = |class: PageClass| pages[class as usize];
    let spans = spans(|class| if class == PageClass::Full { 0 } else { newest[class as usize - 1] });
    let cache = CachePages::new(of);
    ScheduleLimits { spans, model: ModelLimits { cache, ..model(pages[0], 64) }, ..limits(pages[0]) }
}

/// Conversations that take turns: what each turn reuses, and pages that came back.
fn conversations(limits: ScheduleLimits, tenants: u64) -> (Vec<usize>, SpillStatus) {
    let mut bench = Bench::new(limits);
    let mut texts: Vec<Vec<u32>> = (0..6).map(|seed| text(seed, 90 + 10 * seed)).collect();
    let mut reused = Vec::new();
    for turn in 0..5 {
        for (number, tokens) in texts.iter_mut().enumerate() {
            let (cached, answer) = bench.run(number as u64 % tenants, tokens, 40);
            reused.push(cached);
            tokens.extend(answer);
            tokens.extend(text(turn + 9, 30));
        }
    }
    (reused, bench.status())
}

#[test]
fn a_small_pool_reuses_what_a_large_one_does() {
    // Windows of 100 tokens, tails of 128, both, neither.
    for newest in [[0, 0], [100, 0], [0, 128], [100, 128]] {
        let most = if newest == [0, 0] { [90, 0, 0] } else { [90, 90, 90] };
        let (whole, status) = conversations(classes(most, newest), 1);
        assert_eq!((status.restored, status.written), (0, 0), "{newest:?}: everything fits");
        let (small, status) = conversations(classes([14, 7, 8], newest), 1);
        assert_eq!(small, whole, "{newest:?}");
        assert!(status.restored > 60, "{newest:?}: {status:?}");
        assert_eq!((status.damaged, status.unreadable, status.dropped), (0, 0, 0));
        let (apart, status) = conversations(classes([14, 7, 8], newest), 6);
        assert!(status.restored > 20, "{newest:?}: {status:?}");
        assert!(apart.iter().zip(&whole).all(|(small, whole)| small <= whole), "a tenant reuses its own");
    }
}

/// Other texts, which take all pages.
fn flood(bench: &mut Bench, tenant: u64, seeds: Range<u32>) {
    seeds.for_each(|seed| _ = bench.run(tenant, &text(seed, 500), 1));
}

/// A small pool that has given up everything of a text.
fn given_up(tenant: u64, tokens: &[u32]) -> Bench {
    let mut bench = Bench::new(limits(14));
    bench.run(tenant, tokens, 1);
    flood(&mut bench, tenant, 2..12);
    bench
}

#[test]
fn tenants_meet_on_no_disk() {
    let tokens = text(1, 300);
    let mut bench = given_up(1, &tokens);
    let before = bench.status().restored;
    assert_eq!(bench.run(2, &tokens, 1).0, 0);
    assert_eq!(bench.status().restored, before);
    assert_eq!(bench.run(1, &tokens, 1).0, 256);
    assert_eq!(bench.status().restored, before + 4);
}

#[test]
fn what_was_tampered_with_is_computed_again() {
    let tokens = text(1, 300);
    let damage: [fn(&mut Vec<u8>); 3] =
        [|file| file[100] ^= 1, |file| file.truncate(200), |file| file.iter_mut().for_each(|byte| *byte = 0)];
    for damage in damage {
        let mut bench = given_up(1, &tokens);
        bench.disk.state().files.values_mut().for_each(damage);
        assert_eq!(bench.run(1, &tokens, 5).0, 0);
        assert!(bench.status().damaged >= 1);
    }
    let mut bench = given_up(1, &tokens);
    bench.disk.state().files.clear();
    assert_eq!(bench.run(1, &tokens, 5).0, 0);
    assert_eq!(bench.status().unreadable, 1, "then it is left alone for a while");
}

#[test]
fn others_continue_while_a_slow_disk_is_read() {
    let tokens = text(1, 300);
    let mut bench = given_up(1, &tokens);
    bench.disk.state().read_seconds = 0.03;
    let stream = bench.admit(1, &text(90, 10));
    let (mut answer, mut plans, mut begun) = (Vec::new(), 0, None);
    let mut advance = |bench: &mut Bench, begun: &mut Option<usize>| {
        let plan = bench.scheduler.plan(0.0).expect("there is a stream");
        *begun = begun.or(plan.jobs.iter().find(|job| job.id != stream).and_then(|job| job.reused));
        let new = bench.compute(plan);
        new.into_iter().filter(|(id, _)| *id == stream).for_each(|(_, new)| answer.extend(new));
    };
    (0..3).for_each(|_| advance(&mut bench, &mut begun));
    bench.admit(1, &tokens);
    while begun.is_none() {
        advance(&mut bench, &mut begun);
        plans += 1;
        assert!(plans < 50, "it never begins");
    }
    assert_eq!((begun, plans), (Some(256), 4), "a page a step");
    assert_eq!(answer, alone(&text(90, 10), answer.len(), &bench.limits.spans));
    assert_eq!(answer.len(), 3 + plans, "a token a step");
}

#[test]
fn reading_that_takes_longer_than_computing_is_left() {
    let tokens = text(1, 300);
    let mut bench = given_up(1, &tokens);
    bench.disk.state().read_seconds = 0.5;
    bench.handle.set_row_seconds(0.001);
    assert_eq!(bench.run(1, &tokens, 1).0, 64, "nobody knew how slow the disk is");
    flood(&mut bench, 1, 12..22);
    assert_eq!(bench.run(1, &tokens, 1).0, 0);
    flood(&mut bench, 1, 22..32);
    bench.handle.set_row_seconds(0.1);
    assert_eq!(bench.run(1, &tokens, 1).0, 256, "computing has become slower");
}

#[test]
fn what_a_lost_stage_held_is_on_no_disk() {
    let tokens = text(1, 300);
    let mut bench = given_up(1, &tokens);
    let id = bench.admit(1, &text(3, 10));
    let plan = bench.scheduler.plan(0.0).expect("there is a job");
    bench.scheduler.lose(plan);
    bench.scheduler.remove(id);
    bench.writer.work();
    assert!(bench.disk.state().files.is_empty());
    assert_eq!(bench.run(1, &tokens, 1).0, 0);
    // Nor after a panic.
    let mut bench = given_up(1, &tokens);
    bench.scheduler.restart(0.0, |_, _| true);
    bench.writer.work();
    assert!(bench.disk.state().files.is_empty());
    assert_eq!(bench.run(1, &tokens, 1).0, 0);
}

#[test]
fn what_was_used_last_is_kept_at_the_end() {
    let mut bench = Bench::with_disk(limits(40), 4 * 4096);
    let texts = [text(1, 200), text(2, 200), text(3, 100)];
    texts.iter().for_each(|tokens| _ = bench.run(1, tokens, 1));
    bench.scheduler.memory_mut().keep_prefixes();
    bench.writer.work();
    let status = bench.status();
    assert_eq!((status.records, status.written), (4, 4), "nothing takes the place of another");
    flood(&mut bench, 1, 4..20);
    for (tokens, expected) in texts.iter().zip([0, 192, 64]) {
        assert_eq!(bench.run(1, tokens, 1).0, expected);
    }
}

#[test]
fn everything_that_is_cached_is_kept_at_the_end() {
    let tokens = text(1, 300);
    let mut bench = Bench::new(classes([20, 20, 20], [100, 128]));
    bench.run(1, &tokens, 1);
    assert_eq!(bench.status().waiting_bytes, 0);
    bench.scheduler.memory_mut().keep_prefixes();
    bench.writer.work();
    // Of four whole pages, all of layers that read everything, and what the tree still has of the others.
    assert!(bench.status().written >= 4 + 2 + 2, "{:?}", bench.status());
    assert!(bench.disk.state().files.keys().filter(|name| name.ends_with("-full.kv")).count() == 4);
}
