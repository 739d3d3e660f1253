//! Mixed requests on a pool that is too small give exactly the tokens that each gives alone.

use cascadia_engine::FinishReason;
use cascadia_engine::service::{ServiceOptions, Snapshot, StepCosts, Tenant};
use cascadia_model::{CacheFormat, CachePages, KvFormat, KvFormats, KvPolicy, PageClass};

use crate::harness::{Leave, Request, Setup, hear, hold, job, long, rainier, request};

/// Some requests: every fourth begins with a text they share, half are greedy, half leave early.
struct Mix {
    requests: Vec<Request>,
    leave: Vec<Leave>,
}

fn mix(count: usize, longest: u32, answer: u32, vocabulary: u32) -> Mix {
    let mut state = 1_u32;
    let mut random = |end: u32| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) % end
    };
    let shared: Vec<u32> = (0..longest / 3).map(|_| random(vocabulary)).collect();
    let mut mix = Mix { requests: Vec::new(), leave: Vec::new() };
    for index in 0..count {
        // Mostly short, some long, as users are.
        let length = if index < 2 { longest } else { 8 + random(longest - 8) * (1 + random(8)) / 16 };
        let mut prompt: Vec<u32> = if index % 4 == 0 { shared.clone() } else { Vec::new() };
        prompt.extend((0..length).map(|_| random(vocabulary)));
        prompt.truncate(longest as usize);
        let temperature = if index % 2 == 0 { 0.0 } else { 0.8 };
        let mut request = request(prompt, temperature, 1 + random(answer));
        if index % 3 == 1 {
            // An answer of two words repeats itself, so that draft tokens are accepted.
            request.sampling.logit_bias = vec![(7, 50.0), (8, 50.0)];
        }
        mix.requests.push(request);
        mix.leave.push(if random(2) == 0 { Leave::After(1 + random(answer) as usize) } else { Leave::Never });
    }
    mix
}

/// Runs the mix on a service; returns what that did.
fn check(setup: &Setup, mix: &Mix, alone: &[Vec<u32>]) -> Snapshot {
    let service = setup.start();
    let handle = service.handle();
    // All are there before the first begins: otherwise a slow thread here decides how many compete.
    let before = hold(&handle, &request((1..9).collect(), 0.0, 1), Leave::After(0));
    let submit = |(index, request): (usize, &Request)| {
        let (mut job, updates) = job(request, mix.leave[index]);
        job.tenant = Tenant(index as u64 % 3);
        handle.submit(job).unwrap();
        updates
    };
    let all: Vec<_> = mix.requests.iter().enumerate().map(submit).collect();
    drop(before.release);
    for (index, updates) in all.iter().enumerate() {
        let heard = hear(updates);
        let (whole, outcome) = (&alone[index], heard.outcome.as_ref().expect("it has an answer"));
        let expected = match mix.leave[index] {
            Leave::After(count) if count <= whole.len() => {
                assert_eq!(outcome.finish, FinishReason::Cancelled, "job {index}");
                &whole[..count]
            }
            _ => whole,
        };
        assert!(heard.numbers() == expected, "job {index} of {} tokens differs", mix.requests[index].prompt.len());
        assert_eq!(outcome.tokens, expected.len());
        assert!(updates.try_recv().is_err(), "nothing follows the end of job {index}");
    }
    service.drain();
    let snapshot = handle.snapshot();
    assert_eq!((snapshot.waiting, snapshot.failed, snapshot.refused), (0, 0, 0));
    // And the one before them.
    assert_eq!(snapshot.finished + snapshot.cancelled, mix.requests.len() as u64 + 1);
    snapshot
}

fn check_ways(model: &str, cache: CachePages, kv: KvPolicy) {
    let mix = mix(64, 2000, 90, 96);
    let setup = Setup { kv, ..Setup::new(long(model), 2048, cache) };
    let alone = setup.alone(&mix.requests);
    let ways = [(2, 128, 64, 8), (1, 64, 7, 0), (2, 33, 200, 16)];
    for (threads, rows_per_step, prompt_rows_beside_answers, draft_rows) in ways {
        // How fast this machine is must not decide which jobs are preempted, nor what is computed ahead.
        let (prompt_seconds, patience_seconds) = (1e9, 1e9);
        let rows = ServiceOptions { prompt_rows_beside_answers, draft_rows, ..ServiceOptions::default() };
        let step_costs = StepCosts::PerRow(0.05);
        let options = ServiceOptions { prompt_seconds, patience_seconds, step_costs, ..rows };
        let setup = Setup { threads, rows_per_step, options, ..setup.clone() };
        let Snapshot { preemptions, accepted_tokens, .. } = check(&setup, &mix, &alone);
        assert!(preemptions >= 22, "only {preemptions} preemptions with {rows_per_step} rows");
        assert_eq!(
            draft_rows > 0,
            accepted_tokens > 0,
            "{accepted_tokens} draft tokens accepted, {draft_rows} at once"
        );
    }
}

#[test]
fn a_small_pool_changes_no_token() {
    check_ways("llama3", CachePages::full(34), KvPolicy::new(KvFormats::Exact));
}

#[test]
fn windows_change_no_token() {
    check_ways("gemma3", CachePages::full(34).with_window(12), KvPolicy::new(KvFormats::Exact));
}

#[test]
fn quantised_caches_change_no_token() {
    let pages = |class| if class == PageClass::Full { 34 } else { 14 };
    let (keys, values) = (CacheFormat::Int8, CacheFormat::Int4);
    let layers = [KvFormat { keys, values }, KvFormat::both(CacheFormat::Int3), KvFormat::both(CacheFormat::F32)];
    let policies = [
        KvPolicy::uniform(CacheFormat::Int8),
        KvPolicy::uniform(CacheFormat::Int4),
        KvPolicy { tail: 32, from: 0, formats: KvFormats::PerLayer(layers.to_vec()) },
        KvPolicy { tail: 64, from: 200, ..KvPolicy::uniform(CacheFormat::Int2) },
    ];
    policies.into_iter().for_each(|policy| check_ways("gemma3", CachePages::new(pages), policy));
}

#[test]
fn quantised_kernels_change_no_token() {
    let mix = mix(16, 200, 24, 4000);
    let setup = Setup::new(rainier(), 512, CachePages::full(9));
    let alone = setup.alone(&mix.requests);
    for (threads, rows_per_step) in [(2, 96), (1, 40)] {
        check(&Setup { threads, rows_per_step, ..setup.clone() }, &mix, &alone);
    }
}
