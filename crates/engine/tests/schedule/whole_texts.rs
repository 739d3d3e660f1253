//! Texts whose tokens see later ones: each in one step, whatever else there is, and nothing of them is kept.

use std::collections::BTreeMap;

use cascadia_engine::service::schedule::{Advance, Needs, PromptRows, ScheduleLimits, Scheduler, Work};
use cascadia_engine::service::{JobId, Priority, Tenant};
use cascadia_model::PageClass;

use crate::hash_model::{Random, limits, model};

fn work(id: u64, length: usize) -> Work {
    let needs = Needs::WholeText { second_text: Some(length as u32 / 2) };
    let tokens = vec![1; length];
    Work {
        id: JobId(id),
        tokens,
        needs,
        tenant: Tenant(id % 3),
        priority: Priority::Normal,
        deadline: None,
        adapter: None,
    }
}

#[test]
fn every_text_is_in_one_step_and_frees_its_pages() {
    for seed in 0..200 {
        let mut random = Random(seed);
        let rows = 128;
        let pages = 2 + random.below(6) as u32;
        let limits = ScheduleLimits {
            model: model(pages, rows),
            parallel: 1 + random.below(6) as u32,
            prompt_rows: PromptRows { alone: 1 + random.below(200) as u32, beside_answers: 8 },
            steps_in_flight: 1 + random.below(2) as u32,
            ..limits(pages)
        };
        let mut scheduler = Scheduler::new(limits);
        let lengths: BTreeMap<JobId, usize> =
            (0..20).map(|id| (JobId(id), 1 + random.below(rows.into()) as usize)).collect();
        lengths.iter().for_each(|(id, length)| scheduler.admit(work(id.0, *length), 0.0));
        let (mut steps, mut in_flight, mut done) = (0, Vec::new(), Vec::new());
        while done.len() < lengths.len() {
            if let Some(plan) = scheduler.plan(0.0) {
                for (job, step) in plan.jobs.iter().zip(&plan.step.steps) {
                    let length = lengths[&job.id] as u32;
                    assert_eq!((step.start, step.rows.len() as u32, job.wanted.len() as u32), (0, length, length));
                    assert_eq!(step.second_text, Some(length / 2), "seed {seed}");
                }
                steps += 1;
                in_flight.push(plan);
                if in_flight.len() < 2 && random.one_in(2) {
                    continue;
                }
            }
            assert!(
                !in_flight.is_empty(),
                "seed {seed}: nothing runs, and {} of {} are done",
                done.len(),
                lengths.len()
            );
            let plan = in_flight.remove(0);
            done.extend(plan.jobs.iter().map(|job| job.id));
            let results = plan.jobs.iter().map(|_| Advance::Finished(Vec::new())).collect();
            scheduler.commit(plan, results);
        }
        let held = scheduler.memory().pages(PageClass::Full);
        assert_eq!((held.running(), held.cached()), (0, 0), "seed {seed}: pages are kept");
        assert!(steps <= lengths.len() && scheduler.is_empty(), "seed {seed}");
    }
}

/// Short texts of one tenant wait for each other no longer than a step.
#[test]
fn short_texts_share_a_step() {
    let limits = ScheduleLimits { parallel: 8, model: model(20, 128), ..limits(20) };
    let mut scheduler = Scheduler::new(limits);
    (0..8).for_each(|id| scheduler.admit(Work { tenant: Tenant(0), ..work(id, 16) }, 0.0));
    assert_eq!(scheduler.plan(0.0).map(|plan| plan.jobs.len()), Some(8));
}
