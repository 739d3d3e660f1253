//! Who may run: a tenant that fills every place makes way for others within a step, and nobody's work is lost by it.

use std::collections::BTreeMap;

use cascadia_engine::service::schedule::{Advance, Needs, Plan, PromptRows, ScheduleLimits, Scheduler, Work};
use cascadia_engine::service::{JobId, Priority, Tenant};
use cascadia_model::StageCache;

use crate::hash_model::{limits, model};

const FLOOD: Tenant = Tenant(1);
const OTHER: Tenant = Tenant(2);

/// A scheduler, and how much of every job was computed.
struct Machine {
    scheduler: Scheduler,
    /// Tokens that each job still wants.
    left: BTreeMap<JobId, usize>,
    tenants: BTreeMap<JobId, Tenant>,
    /// How far each job has got.
    reached: BTreeMap<JobId, u32>,
    in_flight: Vec<Plan>,
    steps_in_flight: usize,
    now: f64,
}

impl Machine {
    fn new(limits: ScheduleLimits) -> Machine {
        Machine {
            steps_in_flight: limits.steps_in_flight as usize,
            scheduler: Scheduler::new(limits),
            left: BTreeMap::new(),
            tenants: BTreeMap::new(),
            reached: BTreeMap::new(),
            in_flight: Vec::new(),
            now: 0.0,
        }
    }

    fn submit(&mut self, tenant: Tenant, prompt: usize, answer: usize) -> JobId {
        self.submit_as(tenant, Priority::Normal, prompt, answer)
    }

    fn submit_as(&mut self, tenant: Tenant, priority: Priority, prompt: usize, answer: usize) -> JobId {
        let id = JobId(self.left.len() as u64);
        self.left.insert(id, answer);
        self.tenants.insert(id, tenant);
        // No two prompts begin alike, so that nothing is cached by chance.
        let tokens = (0..prompt).map(|at| (id.0 as usize * 31 + at) as u32).collect();
        let work = Work { id, tokens, needs: Needs::NextToken, tenant, priority, deadline: None, adapter: None };
        self.scheduler.admit(work, self.now);
        id
    }

    /// Starts as many steps as may be in flight and ends the first; returns the jobs that got a token.
    fn step(&mut self) -> Vec<JobId> {
        self.step_rows().0
    }

    /// The same, with the rows of the step that ended. A step takes a millisecond, and half of one for each row.
    fn step_rows(&mut self) -> (Vec<JobId>, usize) {
        while self.in_flight.len() < self.steps_in_flight {
            let Some(plan) = self.scheduler.plan(self.now) else { break };
            self.in_flight.push(plan);
        }
        let plan = self.in_flight.remove(0);
        let rows = plan.step.tokens.len();
        let seconds = 0.001 + 0.0005 * rows as f64;
        self.now += seconds;
        self.scheduler.took(&plan, seconds);
        for (job, step) in plan.jobs.iter().zip(&plan.step.steps) {
            let reached = self.reached.entry(job.id).or_default();
            *reached = step.end().max(*reached);
        }
        let mut told = Vec::new();
        let results = plan.jobs.iter().map(|job| {
            let left = self.left.get_mut(&job.id).expect("it is a job");
            *left -= job.wanted.len();
            told.extend(job.wanted.clone().map(|_| job.id));
            match *left {
                0 => Advance::Finished(vec![0; job.wanted.len()]),
                _ => Advance::Computed(vec![0; job.wanted.len()]),
            }
        });
        let results = results.collect();
        self.scheduler.commit(plan, results);
        (told, rows)
    }

    /// Steps until a job has its first token.
    fn steps_until_token(&mut self, id: JobId) -> usize {
        1 + (0..5000).take_while(|_| !self.step().contains(&id)).count()
    }

    /// Tokens computed for a tenant, each counted once however often it was computed.
    fn served(&self, tenant: Tenant) -> u32 {
        let own = self.reached.iter().filter(|(id, _)| self.tenants[*id] == tenant);
        own.map(|(_, reached)| *reached).sum()
    }
}

fn eight_places(pages: u32) -> ScheduleLimits {
    ScheduleLimits { parallel: 8, model: model(pages, 128), ..limits(pages) }
}

#[test]
fn one_token_comes_within_two_steps_of_any_flood() {
    let roomy = || eight_places(400);
    let two_in_flight = ScheduleLimits { steps_in_flight: 2, ..roomy() };
    let per_sequence = ScheduleLimits { cache: StageCache::PerSequence, ..roomy() };
    let one_place = ScheduleLimits { parallel: 1, ..roomy() };
    // Limits, jobs of the flood with their prompt and answer, and steps before another tenant comes.
    let floods = [
        ("eight long answers", roomy(), (8, 10, 900), 300),
        ("eight long answers that have just begun", roomy(), (8, 10, 900), 1),
        ("many waiting jobs", roomy(), (60, 10, 900), 50),
        ("long prompts", roomy(), (20, 3000, 5), 40),
        ("all pages taken", eight_places(40), (8, 200, 900), 100),
        ("several steps in flight", two_in_flight, (8, 10, 900), 300),
        ("a state per sequence", per_sequence, (8, 10, 900), 300),
        ("one place", one_place, (8, 10, 900), 300),
    ];
    for (name, limits, (jobs, prompt, answer), before) in floods {
        let in_flight = limits.steps_in_flight as usize;
        let mut machine = Machine::new(limits);
        (0..jobs).for_each(|_| _ = machine.submit(FLOOD, prompt, answer));
        (0..before).for_each(|_| _ = machine.step());
        let short = machine.submit(OTHER, 12, 1);
        let steps = machine.steps_until_token(short);
        // One for its own prefill, and those that were in flight when it came.
        assert!(steps <= 2 + in_flight, "{name}: {steps} steps");
    }
}

#[test]
fn a_conversation_under_a_flood_finds_its_place_every_time() {
    let mut machine = Machine::new(eight_places(400));
    (0..40).for_each(|_| _ = machine.submit(FLOOD, 10, 900));
    (0..100).for_each(|_| _ = machine.step());
    for turn in 0..30 {
        let short = machine.submit(OTHER, 12, 3);
        let steps = machine.steps_until_token(short);
        assert!(steps <= 3, "turn {turn}: {steps} steps");
        (0..5).for_each(|_| _ = machine.step());
    }
    let again = machine.scheduler.counters().recomputed_tokens;
    assert!(again < machine.served(FLOOD).into() && again < 30 * 64, "{again} tokens were computed again");
}

/// Jobs of some tenants, by prompt and answer, of which each always has several waiting.
fn keep_busy(machine: &mut Machine, shapes: &[(Tenant, (usize, usize))]) {
    for (tenant, (prompt, answer)) in shapes {
        let share = machine.scheduler.shares().into_iter().find(|share| share.tenant == *tenant);
        let missing = 8 - share.map_or(0, |share| share.waiting).min(8);
        (0..missing).for_each(|_| _ = machine.submit(*tenant, *prompt, *answer));
    }
}

#[test]
fn mixed_long_and_short_answers_are_served_alike() {
    let shapes = [(10, 900), (40, 3), (200, 40), (600, 1), (5, 120)];
    let shapes: Vec<_> = (0..).map(Tenant).zip(shapes).collect();
    // Soon after the others come, and in the long run.
    for (parallel, steps) in [3, 8, 16].into_iter().flat_map(|parallel| [700, 6000].map(|steps| (parallel, steps))) {
        let mut machine = Machine::new(ScheduleLimits { parallel, ..eight_places(400) });
        for _ in 0..50 {
            keep_busy(&mut machine, &shapes[..1]);
            machine.step();
        }
        let before = machine.served(shapes[0].0);
        for _ in 0..steps {
            keep_busy(&mut machine, &shapes);
            machine.step();
        }
        let mut served: Vec<f64> = shapes.iter().map(|(tenant, _)| machine.served(*tenant).into()).collect();
        served[0] -= f64::from(before);
        let sum: f64 = served.iter().sum();
        let jain = sum * sum / (served.len() as f64 * served.iter().map(|rows| rows * rows).sum::<f64>());
        assert!(jain >= 0.95, "{parallel} places, {steps} steps: {jain:.3} {served:?}");
        let again = machine.scheduler.counters().recomputed_tokens as f64;
        assert!(again < 0.1 * sum, "{parallel} places, {steps} steps: {again} tokens computed again of {sum}");
    }
}

#[test]
fn weights_decide_how_many_places_make_way() {
    let weights = [(OTHER, 3)].into();
    let mut machine = Machine::new(ScheduleLimits { weights, ..eight_places(400) });
    (0..20).for_each(|_| _ = machine.submit(FLOOD, 10, 900));
    (0..20).for_each(|_| _ = machine.step());
    (0..20).for_each(|_| _ = machine.submit(OTHER, 10, 900));
    machine.step();
    let running: Vec<u64> = machine.scheduler.shares().iter().map(|share| share.running).collect();
    assert_eq!(running, [2, 6]);
}

#[test]
fn nothing_makes_way_for_a_less_urgent_job() {
    let mut machine = Machine::new(eight_places(400));
    (0..8).for_each(|_| _ = machine.submit(FLOOD, 10, 100));
    (0..10).for_each(|_| _ = machine.step());
    let low = machine.submit_as(OTHER, Priority::Low, 10, 1);
    assert!(machine.steps_until_token(low) > 80);
    assert_eq!(machine.scheduler.counters().preemptions, 0);
}

#[test]
fn tenants_take_turns_on_one_place_and_all_get_on() {
    for cache in [StageCache::Paged, StageCache::PerSequence] {
        let mut machine = Machine::new(ScheduleLimits { parallel: 1, cache, ..eight_places(60) });
        let jobs = [0, 1, 2].map(|tenant| machine.submit(Tenant(tenant), 100, 1500));
        (0..1500).for_each(|_| _ = machine.step());
        assert!(jobs.iter().all(|id| machine.left[id] < 1250), "{cache:?}: {:?}", machine.left);
        let mut steps = 0;
        while steps < 6000 && !machine.scheduler.is_empty() {
            machine.step();
            steps += 1;
        }
        assert!(machine.left.values().all(|left| *left == 0), "{cache:?}: {:?}", machine.left);
    }
}

#[test]
fn a_short_prompt_is_not_filled_up_with_those_of_a_flood() {
    let prompt_rows = PromptRows { alone: 128, beside_answers: 128 };
    let mut machine = Machine::new(ScheduleLimits { prompt_rows, ..eight_places(400) });
    (0..4).for_each(|_| _ = machine.submit(FLOOD, 2000, 5));
    (0..2).for_each(|_| _ = machine.step());
    let short = machine.submit(OTHER, 6, 1);
    let plan = machine.scheduler.plan(machine.now).expect("there are jobs");
    assert!(plan.jobs.iter().any(|job| job.id == short && !job.wanted.is_empty()));
    assert_eq!(plan.step.tokens.len(), 16, "a step of sixteen rows costs hardly more than one of six");
}

#[test]
fn a_flood_does_not_make_the_steps_of_others_long() {
    // Jobs of the flood with their prompt and answer.
    let floods = [("long answers", (16, 10, 3000)), ("long prompts", (60, 1500, 5)), ("both", (30, 800, 200))];
    for (name, (jobs, prompt, answer)) in floods {
        let mut machine = Machine::new(eight_places(400));
        (0..jobs).for_each(|_| _ = machine.submit(FLOOD, prompt, answer));
        while machine.now < 2.0 {
            machine.step();
        }
        let steady = machine.submit(OTHER, 12, 401);
        machine.steps_until_token(steady);
        let (begin, before) = (machine.now, machine.served(FLOOD));
        let mut most = 0;
        while machine.left[&steady] > 0 {
            let (told, rows) = machine.step_rows();
            assert!(told.contains(&steady), "{name}");
            most = most.max(rows);
        }
        // Alone, each of the 400 steps would take 1.5 ms.
        let longer = (machine.now - begin) / (400.0 * 0.0015);
        assert!((1.15..2.0).contains(&longer) && most < 8, "{name}: {longer} times as long, {most} rows");
        // The flood gets on all the while, and has everything once nobody else is there.
        assert!(machine.served(FLOOD) - before > 200, "{name}");
        let (_, rows) = machine.step_rows();
        assert!(rows >= 8, "{name}: {rows} rows once nobody else is there");
    }
}

#[test]
fn who_takes_little_is_not_restrained() {
    let mut machine = Machine::new(eight_places(400));
    machine.submit(FLOOD, 10, 5000);
    (0..500).for_each(|_| _ = machine.step());
    for _ in 0..10 {
        let short = machine.submit(OTHER, 30, 1);
        assert!(machine.steps_until_token(short) <= 2, "its prompt fits into one step");
        (0..200).for_each(|_| _ = machine.step());
    }
}

#[test]
fn two_requests_at_once_both_find_a_place_in_a_flood() {
    let mut machine = Machine::new(eight_places(400));
    (0..40).for_each(|_| _ = machine.submit(FLOOD, 10, 900));
    while machine.now < 2.0 {
        machine.step();
    }
    // What the first one is served does not make it wait for those who were served far more.
    let first = machine.submit(OTHER, 60, 40);
    assert!(machine.steps_until_token(first) <= 4);
    let second = machine.submit(OTHER, 60, 40);
    let steps = machine.steps_until_token(second);
    assert!(steps <= 4, "{steps} steps");
}
