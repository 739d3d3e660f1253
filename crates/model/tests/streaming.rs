//! Under a cap on memory, layers are read again in every step, and the bits stay the same.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cascadia_kernels::Pool;
use cascadia_model::{
    Hidden, Kind, LoadOptions, ModelError, ModelLimits, ModelSpec, Profile, ReservedPages, StepPlan, load,
};
use cascadia_weights::{ModelFiles, WeightPages};

const CONTEXT: u32 = 64;

fn model() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../cascadia/model/rainier-33m-q4_k_m.gguf")
}

/// The logits of three steps, and how often layers were waited for.
fn run(memory: Option<u64>, threads: usize) -> Result<(Vec<u32>, u64), ModelError> {
    let files = Arc::new(ModelFiles::open(&model())?);
    let profile = Arc::new(Profile::default());
    let limits = ModelLimits::one_sequence(&ModelSpec::from_files(&files)?, CONTEXT, 16);
    let pages = ReservedPages::new(0, limits.cache);
    let options =
        LoadOptions { memory, profile: Arc::clone(&profile), ..LoadOptions::new(limits, Arc::new(Pool::new(threads))) };
    let mut model = load(&files, &options)?;
    let (mut hidden, mut logits, mut bits) = (Hidden::default(), Vec::new(), Vec::new());
    for (start, rows) in [(0, 16), (16, 1), (17, 5)] {
        let mut plan = StepPlan::default();
        plan.add(0, start, (1..=rows).map(|token| 7 * token), pages.runs(start + rows));
        model.token_io.embed(&plan, &mut hidden).expect("the step runs");
        model.stages.iter().for_each(|stage| stage.run(&plan, &mut hidden).expect("the step runs"));
        model.token_io.logits(&plan, &hidden, &[rows - 1], &mut logits).expect("the step runs");
        bits.extend(logits.iter().map(|logit| logit.to_bits()));
    }
    let waits = profile.take().iter().filter(|row| row.1 == Kind::WaitForWeights).map(|row| row.2.calls).sum();
    Ok((bits, waits))
}

#[test]
fn streamed_layers_give_the_same_bits() {
    let (kept, waits) = run(None, 1).expect("the model loads");
    assert!(waits > 0, "every layer is entered");
    let Err(ModelError::MemoryTooSmall { memory, least, context }) = run(Some(1), 2) else {
        panic!("a byte is not enough");
    };
    assert_eq!((memory, context), (1, CONTEXT));
    assert!(matches!(run(Some(least - 1), 2), Err(ModelError::MemoryTooSmall { .. })));
    // The least memory streams every layer; more of it keeps some, much more keeps all.
    for memory in [least, least + (3 << 20), least + (8 << 20), 1 << 40] {
        for threads in [1, 2] {
            assert_eq!(
                run(Some(memory), threads).expect("the model loads").0,
                kept,
                "{memory} bytes, {threads} threads"
            );
        }
    }
}

#[test]
fn streamed_weights_are_not_locked() {
    let files = Arc::new(ModelFiles::open(&model()).expect("the model opens"));
    let limits = ModelLimits::one_sequence(&ModelSpec::from_files(&files).expect("it can be run"), CONTEXT, 16);
    let options = LoadOptions::new(limits, Arc::new(Pool::new(1)));
    let Err(ModelError::MemoryTooSmall { least, .. }) = run(Some(1), 1) else { panic!("a byte is not enough") };
    for pages in [WeightPages { populate: true, lock: false }, WeightPages { populate: false, lock: true }] {
        let streamed = LoadOptions { memory: Some(least), pages, ..options.clone() };
        assert!(matches!(load(&files, &streamed), Err(ModelError::PagesDoNotStay)), "{pages:?}");
    }
    let pages = WeightPages { populate: true, lock: false };
    assert!(load(&files, &LoadOptions { pages, ..options }).is_ok());
}

#[test]
fn the_message_says_what_would_do() {
    let Err(error) = run(Some(2_000_000), 1) else { panic!("too little") };
    let text = error.to_string();
    for part in ["0.00 GB", "context of 64 tokens", "at least", "more memory or ask for a shorter context"] {
        assert!(text.contains(part), "{text}");
    }
}
