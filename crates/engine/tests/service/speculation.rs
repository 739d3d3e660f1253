//! Guessing ahead changes how fast an answer comes, and nothing else.

use cascadia_engine::CacheSize;
use cascadia_engine::service::{Service, ServiceOptions, Snapshot, StepCosts};
use cascadia_model::CachePages;

use crate::harness::{Leave, Request, Setup, fixture, hear, hold, job, long, request, text};

fn setup() -> Setup {
    Setup::new(long("llama3"), 512, CachePages::full(40))
}

/// Prompts of different lengths, greedy and not, with and without penalties.
fn requests() -> Vec<Request> {
    let prompt = |seed: u32, length: u32| (0..length).map(|at| (at % 12) * 17 + seed).collect::<Vec<u32>>();
    let mut requests: Vec<Request> =
        (0..8).map(|seed| request(prompt(seed, 20 + 30 * seed), if seed % 2 == 0 { 0.0 } else { 0.5 }, 120)).collect();
    requests[3].sampling.repetition_penalty = 1.3;
    requests[4].sampling.frequency_penalty = 0.4;
    // Answers of two words repeat themselves.
    requests[6].sampling.logit_bias = vec![(7, 50.0), (8, 50.0)];
    requests[7].sampling.logit_bias = vec![(7, 50.0), (8, 50.0)];
    requests.iter_mut().for_each(|request| request.stop_tokens = Vec::new());
    requests
}

/// Runs the requests one after the other and all at once; returns what the service counted.
fn check(service: Service, alone: &[Vec<u32>]) -> Snapshot {
    let handle = service.handle();
    let submit = |request: &Request| {
        let (job, updates) = job(request, Leave::Never);
        handle.submit(job).unwrap();
        updates
    };
    for (request, alone) in requests().iter().zip(alone) {
        assert!(hear(&submit(request)).numbers() == *alone);
    }
    // All are there before the first begins, because steps are counted.
    let before = hold(&handle, &request((1..9).collect(), 0.0, 1), Leave::After(0));
    let together: Vec<_> = requests().iter().map(submit).collect();
    drop(before.release);
    for (updates, alone) in together.iter().zip(alone) {
        assert!(hear(updates).numbers() == *alone);
    }
    service.drain();
    handle.snapshot()
}

#[test]
fn prompt_lookup_changes_no_token() {
    let alone = setup().alone(&requests());
    let plain = ServiceOptions { draft_rows: 0, ..ServiceOptions::default() };
    let plain = check(Setup { options: plain, ..setup() }.start(), &alone);
    assert_eq!(plain.drafted_tokens, 0);
    // However much is computed ahead: all that may be, what pays at a price, nothing.
    for (row, draft_rows, most_steps) in [(0.0, 32, 0.85), (0.0, 5, 0.95), (0.2, 32, 0.98), (10.0, 32, 1.0)] {
        let options = ServiceOptions { draft_rows, step_costs: StepCosts::PerRow(row), ..ServiceOptions::default() };
        let drafted = check(Setup { options, ..setup() }.start(), &alone);
        let share = drafted.steps as f64 / plain.steps as f64;
        assert!(share <= most_steps, "{share}: {drafted:?} beside {plain:?}");
        assert!((drafted.accepted_tokens > 100) == (row < 1.0), "{drafted:?}");
        assert_eq!(drafted.generated_tokens, plain.generated_tokens);
    }
}

#[test]
fn measured_costs_change_no_token() {
    let alone = setup().alone(&requests());
    check(setup().start(), &alone);
}

#[test]
fn a_draft_model_changes_no_token() {
    let alone = setup().alone(&requests());
    // The model itself is always right at temperature 0 and nearly always else; another one hardly ever. What the text
    // suggests is right less often: at such a price of a row only what is likely is computed.
    for (draft, right) in [(long("llama3"), true), (fixture("qwen2"), false)] {
        let context = if right { 512 } else { 256 };
        let draft = Setup { context, rows_per_step: 40, ..Setup::new(draft, context, setup().cache) };
        let service = Service::start_with_draft(
            setup().engine(CacheSize::Pages(setup().cache)),
            draft.engine(CacheSize::Sequences(3)),
            text(),
            ServiceOptions { parallel: 4, step_costs: StepCosts::PerRow(0.5), ..ServiceOptions::default() },
        );
        let counted = check(service.unwrap(), &alone);
        assert!(counted.drafted_tokens > 0);
        assert!(!right || counted.accepted_tokens * 10 > counted.drafted_tokens * 7, "{counted:?}");
    }
}

#[test]
fn a_small_model_with_another_vocabulary_is_refused() {
    let draft = Setup::new(fixture("qwen3"), 64, setup().cache).engine(CacheSize::Sequences(1));
    let engine = setup().engine(CacheSize::Sequences(1));
    let refused = Service::start_with_draft(engine, draft, text(), ServiceOptions::default());
    assert!(refused.is_err());
}
