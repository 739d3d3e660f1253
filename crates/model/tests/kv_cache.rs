//! Quantised caches: the same bits however a sequence is cut into steps, and close to what an exact cache gives.

mod harness;

use std::path::{Path, PathBuf};

use cascadia_model::{CacheFormat, KvFormat, KvLayout, KvPolicy, ModelSpec, PAGE_TOKENS, PageClass};
use cascadia_weights::ModelFiles;
use harness::{CachedAs, WAYS, check_cached_bits, relative_difference, run};

/// Long enough that several pages leave the tail.
const TOKENS: u32 = 256;

/// Every kind of cache: plain, windows, latent, shared between layers, heads of several sizes.
const FIXTURES: [&str; 6] =
    ["llama3", "llama3-gguf/model.gguf", "gemma3", "deepseek-v2-lite", "gemma3n", "gemma4-keys"];

fn path(fixture: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(fixture)
}

fn tokens() -> Vec<u32> {
    (0..TOKENS).map(|index| index.wrapping_mul(2_654_435_761) >> 27).collect()
}

/// By how much the logits of every token differ from those with an exact cache, which are the same in every way.
fn differences(fixture: &str, exact: &[Vec<f32>], cached: CachedAs) -> Vec<f32> {
    let logits = check_cached_bits(&format!("{fixture} with {cached:?}"), &path(fixture), &tokens(), cached);
    exact.iter().zip(&logits).map(|(exact, logits)| relative_difference(logits, exact)).collect()
}

fn check(fixture: &str) {
    let exact = run(&path(fixture), &tokens(), WAYS[0]);
    let mut errors = Vec::new();
    for name in ["int8", "f16/int4", "int4", "int3", "int2"] {
        let format = KvFormat::from_name(name).expect("a known format");
        let differences = differences(fixture, &exact, CachedAs { format, tail: KvPolicy::TAIL, from: 0 });
        // Up to here every token sees the tail alone.
        assert!(
            differences[..191].iter().all(|difference| *difference == 0.0),
            "{fixture} {name}: the tail is not exact"
        );
        errors.push(differences[191..].iter().sum::<f32>() / (differences.len() - 191) as f32);
        assert!(errors.last().is_some_and(|error| *error > 0.0), "{fixture} {name}: nothing was quantised");
    }
    // Shown by `cargo test -- --nocapture`. Random weights attend far more sharply than trained ones.
    eprintln!("{fixture}: mean differences {errors:?}");
    assert!(errors[0] < 0.02 && 4.0 * errors[0] < errors[2], "{fixture}: {errors:?}");
    assert!(errors[2] < errors[3] && errors[3] < errors[4], "{fixture}: {errors:?}");
}

#[test]
fn quantised_caches_give_the_same_bits_in_every_way() {
    FIXTURES.into_iter().for_each(check);
}

#[test]
fn narrow_floats_give_the_same_bits_in_every_way() {
    for fixture in ["llama3", "gemma3", "deepseek-v2-lite"] {
        let exact = run(&path(fixture), &tokens(), WAYS[0]);
        let errors = ["bf16", "fp8", "fp8/int8"].map(|name| {
            let format = KvFormat::from_name(name).expect("a known format");
            let differences = differences(fixture, &exact, CachedAs { format, tail: KvPolicy::TAIL, from: 0 });
            differences.iter().sum::<f32>() / differences.len() as f32
        });
        eprintln!("{fixture}: mean differences {errors:?}");
        assert!(errors[0] > 0.0 && errors[0] < 0.03 && errors[0] < errors[1] && errors[2] > 0.0, "{errors:?}");
    }
}

/// Of a latent cache, floats are one row per token; keys and values lie apart where they are integers, or not alike.
#[test]
fn latent_rows_are_stored_once() {
    let files = ModelFiles::open(&path("deepseek-v2-lite")).expect("the fixture opens");
    let spec = ModelSpec::from_files(&files).expect("the fixture has settings");
    // Twenty latent numbers, and eight rotated ones that only keys have.
    let (key, value): (u64, u64) = (28, 20);
    let numbers = [
        ("auto", 4 * key, 0),
        ("f32", 4 * key, 0),
        ("f16", 2 * key, 0),
        ("bf16", 2 * key, 0),
        ("fp8", key, 0),
        ("f16/bf16", 2 * (key + value), 0),
        // With what a page has besides, in whole cache lines: 2,048 bytes of keys and 2,176 of values.
        ("int8", 66, 4 * key),
    ];
    for (name, stored, tail) in numbers {
        let layout = KvLayout::whole(&spec, &KvPolicy::named(name).expect("a known policy"));
        let per_token = |class| layout.page_bytes(class) / u64::from(PAGE_TOKENS) / spec.layers.len() as u64;
        assert_eq!([per_token(PageClass::Full), per_token(PageClass::Tail)], [stored, tail], "{name}");
    }
}

#[test]
fn a_policy_says_what_stays_as_it_was_computed() {
    let exact = run(&path("llama3"), &tokens(), WAYS[0]);
    let format = KvFormat::both(CacheFormat::Int4);
    // The first token that sees a page which has left the tail, or the first that may.
    for (tail, from, first) in [(32, 0, 95), (1, 0, 64), (100, 0, 163), (32, 200, 200), (32, 100, 100)] {
        let differences = differences("llama3", &exact, CachedAs { format, tail, from });
        let found = differences.iter().position(|difference| *difference > 0.0);
        assert_eq!(found, Some(first), "a tail of {tail} from {from}");
    }
}
