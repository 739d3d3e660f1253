//! Whose turn it is: priorities, shares of tenants, patience, and bounded work beside answers.

use std::collections::BTreeMap;

use cascadia_engine::service::schedule::{Advance, Needs, Plan, PromptRows, ScheduleLimits, Scheduler, Work};
use cascadia_engine::service::{JobId, Priority, Tenant};
use cascadia_model::{ModelLimits, PageClass};

use crate::hash_model::{limits, model};

fn work(id: u64, tenant: u64, length: usize) -> Work {
    let (needs, priority) = (Needs::NextToken, Priority::Normal);
    Work {
        id: JobId(id),
        tokens: vec![id as u32 % 50; length],
        needs,
        tenant: Tenant(tenant),
        priority,
        deadline: None,
        adapter: None,
    }
}

/// Commits a plan: every wanted row gives a token, and jobs end after as many as `lengths` says.
fn commit(scheduler: &mut Scheduler, plan: Plan, left: &mut BTreeMap<JobId, usize>) -> Vec<JobId> {
    let mut ended = Vec::new();
    let results = plan.jobs.iter().map(|planned| {
        let new = vec![0; planned.wanted.len()];
        let left = left.entry(planned.id).or_insert(1);
        *left = left.saturating_sub(new.len());
        if *left == 0 {
            ended.push(planned.id);
            Advance::Finished(new)
        } else {
            Advance::Computed(new)
        }
    });
    let results = results.collect();
    scheduler.commit(plan, results);
    ended
}

/// The order in which jobs of one token end, when one runs at a time.
fn order(limits: ScheduleLimits, jobs: Vec<(Work, f64)>, seconds_per_plan: f64) -> Vec<u64> {
    let mut scheduler = Scheduler::new(ScheduleLimits {
        parallel: 1,
        model: ModelLimits { rows_per_step: 64, ..limits.model },
        ..limits
    });
    jobs.into_iter().for_each(|(work, now)| scheduler.admit(work, now));
    let (mut ended, mut now) = (Vec::new(), 0.0);
    while let Some(plan) = scheduler.plan(now) {
        now += seconds_per_plan;
        ended.extend(commit(&mut scheduler, plan, &mut BTreeMap::new()).into_iter().map(|id| id.0));
    }
    ended
}

#[test]
fn tenants_take_turns_by_what_they_were_served() {
    // The first tenant's jobs are three times as long, so the second gets three for each.
    let mut jobs: Vec<(Work, f64)> = (0..4).map(|id| (work(id, 1, 30), 0.0)).collect();
    jobs.extend((4..12).map(|id| (work(id, 2, 10), 0.0)));
    let even = order(limits(10), jobs.clone(), 0.0);
    assert_eq!(even, [0, 4, 5, 6, 1, 7, 8, 9, 2, 10, 11, 3]);
    let weights = [(Tenant(1), 3)].into();
    let weighted = order(ScheduleLimits { weights, ..limits(10) }, jobs, 0.0);
    assert_eq!(weighted[..6], [0, 4, 1, 5, 2, 6]);
}

#[test]
fn being_away_saves_nothing_up() {
    let mut scheduler = Scheduler::new(ScheduleLimits { parallel: 1, ..limits(10) });
    let mut left = BTreeMap::new();
    let mut run = |scheduler: &mut Scheduler, plans: usize| -> Vec<u64> {
        let mut ended = Vec::new();
        for _ in 0..plans {
            let plan = scheduler.plan(0.0).expect("there are jobs");
            ended.extend(commit(scheduler, plan, &mut left).into_iter().map(|id| id.0));
        }
        ended
    };
    (0..20).for_each(|id| scheduler.admit(work(id, 1, 10), 0.0));
    assert_eq!(run(&mut scheduler, 10).len(), 10);
    // The second tenant comes late: from now on they take turns, it does not make up for the past.
    (20..30).for_each(|id| scheduler.admit(work(id, 2, 10), 0.0));
    let ended = run(&mut scheduler, 10);
    assert_eq!(ended.iter().filter(|id| **id >= 20).count(), 5, "{ended:?}");
}

#[test]
fn the_urgent_come_first_until_others_have_waited_long_enough() {
    let urgent = |id, priority| Work { priority, ..work(id, 1, 10) };
    let mut jobs = vec![(urgent(0, Priority::Low), 0.0), (urgent(1, Priority::Normal), 0.0)];
    jobs.extend((2..40).map(|id| (urgent(id, Priority::High), 0.0)));
    let patient = order(limits(10), jobs.clone(), 1.0);
    assert_eq!(patient[38..], [1, 0]);
    let impatient = order(ScheduleLimits { patience_seconds: 10.0, ..limits(10) }, jobs, 1.0);
    let at = |id| impatient.iter().position(|ended| *ended == id).expect("it ended");
    assert!(at(1) < 13 && at(0) < 23, "{impatient:?}");
}

#[test]
fn prompts_beside_answers_are_computed_in_small_parts() {
    let prompt_rows = PromptRows { alone: 256, beside_answers: 20 };
    let limits = ScheduleLimits { model: model(20, 512), prompt_rows, ..limits(20) };
    let mut scheduler = Scheduler::new(limits);
    let mut left: BTreeMap<JobId, usize> = [(JobId(0), 30)].into();
    scheduler.admit(work(0, 1, 500), 0.0);
    let rows = |scheduler: &mut Scheduler, left: &mut BTreeMap<JobId, usize>| -> usize {
        let plan = scheduler.plan(0.0).expect("there are jobs");
        let rows = plan.step.tokens.len();
        commit(scheduler, plan, left);
        rows
    };
    assert_eq!([rows(&mut scheduler, &mut left), rows(&mut scheduler, &mut left)], [256, 244]);
    scheduler.admit(work(1, 2, 100), 0.0);
    let steps: Vec<usize> = (0..6).map(|_| rows(&mut scheduler, &mut left)).collect();
    assert_eq!(steps, [21, 21, 21, 21, 21, 1]);
}

#[test]
fn the_late_are_named_once() {
    let mut scheduler = Scheduler::new(limits(10));
    scheduler.admit(Work { deadline: Some(5.0), ..work(0, 1, 10) }, 0.0);
    scheduler.admit(Work { deadline: Some(6.0), ..work(1, 1, 10) }, 0.0);
    let plan = scheduler.plan(0.0).expect("there are jobs");
    assert_eq!(scheduler.expire(4.9), []);
    // It is in a plan: named now, gone when that comes back.
    assert_eq!(scheduler.expire(5.0), [JobId(0)]);
    assert_eq!(scheduler.expire(5.5), []);
    assert!(scheduler.memory().pages(PageClass::Full).running() > 0);
    commit(&mut scheduler, plan, &mut [(JobId(1), 9)].into());
    assert_eq!(scheduler.expire(6.0), [JobId(1)]);
    assert!(scheduler.is_empty() && scheduler.memory().pages(PageClass::Full).running() == 0);
}

#[test]
fn old_jobs_of_one_tenant_do_not_overtake_those_of_others() {
    let mut jobs: Vec<(Work, f64)> = (0..20).map(|id| (work(id, 1, 10), 0.0)).collect();
    jobs.extend((20..30).map(|id| (work(id, 2, 10), 95.0)));
    let ended = order(ScheduleLimits { patience_seconds: 10.0, ..limits(10) }, jobs, 5.0);
    assert_eq!(ended[..20].iter().filter(|id| **id >= 20).count(), 10, "{ended:?}");
}

#[test]
fn a_prompt_that_is_finished_is_not_made_late_by_those_of_others() {
    let mut scheduler = Scheduler::new(ScheduleLimits { model: model(20, 256), ..limits(20) });
    [work(0, 1, 20), work(1, 2, 200), work(2, 1, 30)].into_iter().for_each(|work| scheduler.admit(work, 0.0));
    let steps: Vec<Vec<u64>> = (0..2)
        .map(|_| {
            let plan = scheduler.plan(0.0).expect("there are jobs");
            let ids = plan.jobs.iter().map(|planned| planned.id.0).collect();
            commit(&mut scheduler, plan, &mut BTreeMap::new());
            ids
        })
        .collect();
    assert_eq!(steps, [[0, 2].to_vec(), [1].to_vec()]);
}
