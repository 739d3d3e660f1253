//! Quantised caches: the same bits however a sequence is cut into steps, and close to what an exact cache gives.

mod harness;

use std::path::Path;

use cascadia_model::{CacheFormat, KvFormat};
use harness::{WAYS, check_cached_bits, relative_difference, run};

/// Long enough that several pages leave the tail.
const TOKENS: u32 = 256;

/// Every kind of cache: plain, windows, latent, shared between layers, heads of several sizes.
const FIXTURES: [&str; 6] =
    ["llama3", "llama3-gguf/model.gguf", "gemma3", "deepseek-v2-lite", "gemma3n", "gemma4-keys"];

fn check(fixture: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(fixture);
    let tokens: Vec<u32> = (0..TOKENS).map(|index| index.wrapping_mul(2_654_435_761) >> 27).collect();
    let exact = run(&path, &tokens, WAYS[0]);
    let mut errors = Vec::new();
    for (keys, values) in [
        (CacheFormat::Int8, CacheFormat::Int8),
        (CacheFormat::F16, CacheFormat::Int4),
        (CacheFormat::Int4, CacheFormat::Int4),
    ] {
        let what = format!("{fixture} with {keys:?} keys and {values:?} values");
        let logits = check_cached_bits(&what, &path, &tokens, KvFormat { keys, values });
        let differences = exact.iter().zip(&logits).map(|(exact, logits)| relative_difference(logits, exact));
        let differences: Vec<f32> = differences.collect();
        // Up to here every token sees the tail alone.
        assert!(differences[..191].iter().all(|difference| *difference == 0.0), "{what}: the tail is not exact");
        errors.push(differences[191..].iter().sum::<f32>() / (differences.len() - 191) as f32);
        assert!(errors.last().is_some_and(|error| *error > 0.0), "{what}: nothing was quantised");
    }
    // Shown by `cargo test -- --nocapture`. Random weights attend far more sharply than trained ones.
    eprintln!("{fixture}: mean differences {errors:?}");
    assert!(errors[0] < 0.02 && 4.0 * errors[0] < errors[2], "{fixture}: {errors:?}");
}

#[test]
fn quantised_caches_give_the_same_bits_in_every_way() {
    FIXTURES.into_iter().for_each(check);
}
