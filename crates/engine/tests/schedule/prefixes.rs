//! What is reused of earlier texts, and by whom.

use cascadia_engine::service::schedule::{Advance, Needs, ScheduleLimits, Scheduler, Sharing, Work};
use cascadia_engine::service::{JobId, Priority, Tenant};
use cascadia_model::{CachePages, ModelLimits, PAGE_TOKENS, PageClass, PerClass, Span};

use crate::hash_model::{HashModel, alone, limits, model, spans};

struct Bench {
    scheduler: Scheduler,
    model: HashModel,
    spans: PerClass<Span>,
    next: u64,
}

impl Bench {
    fn new(limits: ScheduleLimits) -> Bench {
        let (model, spans) = (HashModel::new(&limits), limits.spans);
        Bench { scheduler: Scheduler::new(limits), model, spans, next: 0 }
    }

    /// Runs a job to its end: how many tokens were cached, and the answer, which is what it is alone.
    fn run(&mut self, tenant: u64, prompt: &[u32], count: usize) -> (usize, Vec<u32>) {
        let id = JobId(self.next);
        self.next += 1;
        let (needs, priority, tenant) = (Needs::NextToken, Priority::Normal, Tenant(tenant));
        self.scheduler
            .admit(Work { id, tokens: prompt.to_vec(), needs, tenant, priority, deadline: None, adapter: None }, 0.0);
        let (mut reused, mut answer) = (0, Vec::new());
        while let Some(plan) = self.scheduler.plan(0.0) {
            let next = self.model.run(&plan.step);
            let planned = &plan.jobs[0];
            reused = planned.reused.unwrap_or(reused);
            let new: Vec<u32> = planned.wanted.clone().map(|row| next[row as usize]).collect();
            answer.extend_from_slice(&new);
            let result = if answer.len() == count { Advance::Finished(new) } else { Advance::Computed(new) };
            self.scheduler.commit(plan, vec![result]);
        }
        assert_eq!(answer, alone(prompt, count, &self.spans));
        (reused, answer)
    }
}

fn text(seed: u32, length: u32) -> Vec<u32> {
    (0..length).map(|at| (at * 13 + seed * 29 + at / 50) % 50).collect()
}

#[test]
fn a_conversation_reuses_all_earlier_turns() {
    let mut bench = Bench::new(limits(40));
    let mut tokens = text(1, 100);
    for turn in 0..5 {
        let before = tokens.len();
        let (reused, answer) = bench.run(1, &tokens, 70);
        // Everything that filled a page in the turns before, answers included.
        let expected = if turn == 0 { 0 } else { (before - 31) / 64 * 64 };
        assert_eq!(reused, expected, "turn {turn}");
        tokens.extend(answer);
        tokens.extend(text(turn + 7, 30));
    }
}

#[test]
fn tenants_meet_only_where_that_is_allowed() {
    for (sharing, expected) in [(Sharing::WithinTenant, 0), (Sharing::Everyone, 192)] {
        let mut bench = Bench::new(ScheduleLimits { sharing, ..limits(40) });
        assert_eq!(bench.run(1, &text(1, 200), 3).0, 0);
        assert_eq!(bench.run(1, &text(1, 200), 3).0, 192);
        assert_eq!(bench.run(2, &text(1, 200), 3).0, expected);
    }
}

#[test]
fn a_text_that_differs_anywhere_is_another_text() {
    let mut bench = Bench::new(limits(40));
    let original = text(1, 200);
    bench.run(1, &original, 1);
    for (changed, expected) in [(0, 0), (63, 0), (64, 64), (127, 64), (128, 128), (191, 128), (199, 192)] {
        let mut other = original.clone();
        other[changed] = (other[changed] + 1) % 50;
        assert_eq!(bench.run(1, &other, 1).0, expected, "changed at {changed}");
    }
    // The last token is always computed: its logits are what the answer begins with.
    assert_eq!(bench.run(1, &original[..128], 1).0, 64);
    assert_eq!(bench.run(1, &original[..129], 1).0, 128);
}

#[test]
fn a_prefix_is_usable_as_far_as_pages_of_its_newest_tokens_reach() {
    [PageClass::Window, PageClass::Tail].into_iter().for_each(check_newest);
}

fn check_newest(newest: PageClass) {
    let with_windows = |pages| {
        let cache = CachePages::full(40);
        let cache = CachePages::new(|class| if class == newest { pages } else { cache.of(class) });
        let spans = spans(|class| if class == newest { 100 } else { 0 });
        ScheduleLimits { spans, model: ModelLimits { cache, ..model(40, 64) }, ..limits(40) }
    };
    let small = with_windows(5);
    let mut bench = Bench::new(small.clone());
    bench.run(1, &text(1, 300), 1);
    // A window of 100 needs the last two full pages; with five pages for windows only the newest are left.
    assert_eq!(bench.run(1, &text(1, 300), 1).0, 256);
    bench.run(1, &text(2, 500), 1);
    assert_eq!(bench.run(1, &text(1, 300), 1).0, 0, "windows of its own took the place");
    // Others leave a tenant half of its fair share, here three pages; the end of a text goes before its beginning.
    let mut bench = Bench::new(with_windows(12));
    bench.run(1, &text(1, 300), 1);
    bench.run(2, &text(2, 1500), 1);
    assert_eq!(bench.run(1, &text(1, 300), 1).0, 192, "the other's windows took more than their share");
    let mut bench = Bench::new(with_windows(40));
    bench.run(1, &text(1, 300), 1);
    bench.run(2, &text(2, 500), 1);
    assert_eq!(bench.run(1, &text(1, 300), 1).0, 256);
    assert_eq!(bench.run(1, &text(1, 200), 1).0, 192);
}

#[test]
fn a_flood_leaves_every_tenant_its_floor() {
    let mut bench = Bench::new(limits(24));
    let quiet = text(1, 4 * PAGE_TOKENS + 1);
    bench.run(1, &quiet, 1);
    for seed in 2..60 {
        bench.run(2, &text(seed, 300), 2);
    }
    assert!(bench.scheduler.memory().evictions().for_sequences > 100);
    assert_eq!(bench.run(1, &quiet, 1).0, 256, "four pages are less than half of a fair share of 24");
    // What exceeds the floor goes, last page first.
    let long = text(99, 15 * PAGE_TOKENS + 1);
    bench.run(1, &long, 1);
    for seed in 2..60 {
        bench.run(2, &text(seed, 300), 2);
    }
    assert_eq!(bench.run(1, &long, 1).0, 6 * 64);
}

#[test]
fn what_a_lost_stage_held_is_never_found() {
    let mut bench = Bench::new(limits(40));
    bench.run(1, &text(1, 200), 1);
    let (needs, priority) = (Needs::NextToken, Priority::Normal);
    let work = Work {
        id: JobId(100),
        tokens: text(1, 300),
        needs,
        tenant: Tenant(1),
        priority,
        deadline: None,
        adapter: None,
    };
    bench.scheduler.admit(work, 0.0);
    let plan = bench.scheduler.plan(0.0).expect("there is a job");
    assert_eq!(plan.jobs[0].reused, Some(192));
    bench.scheduler.lose(plan);
    bench.scheduler.remove(JobId(100));
    assert_eq!(bench.run(1, &text(1, 200), 1).0, 0);
}

#[test]
fn what_came_through_after_a_loss_is_not_kept() {
    let mut bench = Bench::new(ScheduleLimits { model: model(40, 64), ..limits(40) });
    bench.run(1, &text(1, 200), 1);
    let (needs, priority) = (Needs::NextToken, Priority::Normal);
    for (id, tokens) in [(100, text(1, 300)), (101, text(2, 300)), (102, text(3, 300))] {
        let work = Work { id: JobId(id), tokens, needs, tenant: Tenant(1), priority, deadline: None, adapter: None };
        bench.scheduler.admit(work, 0.0);
    }
    // One continues from cached pages, one fills a page of its own, and a third meets the loss.
    let plans = [0, 1, 2].map(|_| bench.scheduler.plan(0.0).expect("there is a job"));
    let [reusing, filling, lost] = plans;
    assert_eq!((reusing.jobs[0].reused, filling.jobs[0].rows.len()), (Some(192), 64));
    bench.scheduler.lose(lost);
    for plan in [reusing, filling] {
        bench.scheduler.commit(plan, vec![Advance::Computed(Vec::new())]);
    }
    for id in 100..103 {
        bench.scheduler.remove(JobId(id));
    }
    assert_eq!(bench.scheduler.memory().pages(PageClass::Full).free(), 40);
}
