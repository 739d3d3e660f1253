//! Long runs in small caches: memory stays where it is, and no token changes. By hand, because they take minutes:
//! `cargo test --release -p cascadia-engine --test service -- --ignored --nocapture --test-threads 1
//! soak`.

use std::fs;

use cascadia_model::{CacheFormat, CachePages, KvPolicy, PAGE_TOKENS, PageClass};

use crate::harness::{Leave, Request, Setup, hear, job, made_for, rainier, request};

/// Bytes of this process that are in memory; nothing where the system does not say.
fn resident() -> Option<u64> {
    let pages: u64 = fs::read_to_string("/proc/self/statm").ok()?.split(' ').nth(1)?.parse().ok()?;
    Some(pages * 4096)
}

/// Says by how much memory grew, and fails if that is more than `most` bytes.
fn check_growth(before: Option<u64>, most: u64) {
    let Some((before, after)) = before.zip(resident()) else { return };
    eprintln!("memory: {:.1} MB, then {:.1} MB", before as f64 / 1e6, after as f64 / 1e6);
    assert!(after <= before + most, "{before} bytes became {after}");
}

#[test]
#[ignore = "takes minutes"]
fn soak_of_a_hundred_thousand_tokens_in_a_cache_for_eight_thousand() {
    const USERS: usize = 24;
    const LONGEST: usize = 900;
    let pages = |full: u32| CachePages::new(|class| if class == PageClass::Full { full } else { 8 * full / 10 });
    let pages = pages(8000 / PAGE_TOKENS);
    let setup = Setup { kv: KvPolicy::uniform(CacheFormat::Int4), ..Setup::new(rainier(), 1024, pages) };
    let small = setup.start();
    let mut conversations = vec![Vec::<u32>::new(); USERS];
    let (mut before, mut random, mut turns) = (None, 1u32, 0);
    while small.handle().snapshot().step_rows < 100_000 {
        for conversation in &mut conversations {
            if conversation.len() > LONGEST {
                conversation.clear();
            }
            conversation.extend((0..24).map(|_| {
                random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                random >> 20
            }));
        }
        let requests: Vec<Request> = conversations.iter().map(|prompt| request(prompt.clone(), 0.8, 12)).collect();
        let jobs = requests.iter().map(|request| {
            let (job, updates) = job(request, Leave::Never);
            small.handle().submit(job).unwrap();
            updates
        });
        let answers: Vec<Vec<u32>> = jobs.collect::<Vec<_>>().iter().map(|updates| hear(updates).numbers()).collect();
        assert_eq!(answers, setup.alone(&requests), "turn {turns}");
        conversations.iter_mut().zip(answers).for_each(|(conversation, answer)| conversation.extend(answer));
        turns += 1;
        if before.is_none() && small.handle().snapshot().step_rows > 20_000 {
            before = resident();
        }
    }
    let found = small.handle().snapshot();
    eprintln!(
        "{} tokens computed in {turns} turns: {} evictions, {} preemptions, {} tokens computed again, {} reused",
        found.step_rows, found.evictions, found.preemptions, found.recomputed_tokens, found.reused_tokens
    );
    assert!(found.evictions > 0 && found.failed == 0 && found.panics == 0, "{found:?}");
    check_growth(before, 16 << 20);
}

#[test]
#[ignore = "takes minutes"]
fn soak_of_a_million_tokens_in_a_window() {
    const TOKENS: u32 = 1_000_000;
    let setup = Setup { rows_per_step: 512, ..Setup::new(made_for("mistral", TOKENS), TOKENS, CachePages::full(1)) };
    let mut session = setup.session();
    let mut before = None;
    for step in 0..TOKENS / 500 {
        let tokens: Vec<u32> = (0..500).map(|at: u32| (step * 500 + at).wrapping_mul(2_654_435_761) >> 27).collect();
        let logits = session.feed(&tokens).unwrap();
        assert!(logits.iter().all(|logit| logit.is_finite()), "step {step}");
        if step == TOKENS / 5000 {
            before = resident();
        }
    }
    // The tokens themselves are remembered, four bytes each.
    check_growth(before, 4 * u64::from(TOKENS) * 2 + (4 << 20));
}
