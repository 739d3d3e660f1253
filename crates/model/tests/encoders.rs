//! Encoders: last hidden states against those that `transformers` computed with the same files (see `fixtures/encoders.py`).

mod harness;

use std::path::Path;
use std::sync::Arc;

use cascadia_kernels::Pool;
use cascadia_model::{
    Hidden, LoadOptions, ModelLimits, ModelSpec, PooledRows, PoolingSpec, ReservedPages, StepPlan, load,
};
use cascadia_weights::ModelFiles;

use harness::check_encoder;

#[test]
fn bert() {
    check_encoder("bert");
    check_encoder("bert-rank");
}

#[test]
fn xlm_roberta() {
    check_encoder("xlm-r");
    check_encoder("xlm-r-rank");
}

#[test]
fn nomic() {
    check_encoder("nomic");
}

#[test]
fn modernbert() {
    check_encoder("modernbert");
    check_encoder("modernbert-rank");
}

fn files(fixture: &str) -> Arc<ModelFiles> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/encoders").join(fixture);
    Arc::new(ModelFiles::open(&path).expect("the fixture"))
}

#[test]
fn what_lies_beside_the_weights_says_how_texts_become_rows() {
    let pooling = |fixture: &str| ModelSpec::from_files(&files(fixture)).expect("a specification").pooling;
    let (mean, first) = (PooledRows::Mean, PooledRows::First);
    let expected = |rows, normalised, most| PoolingSpec { rows, normalised, most_tokens: Some(most), classifier: None };
    assert_eq!(pooling("bert"), expected(mean, true, 48));
    assert_eq!(pooling("xlm-r"), expected(first, false, 96));
    assert_eq!(pooling("modernbert-rank").rows, mean);
    let ranks = pooling("bert-rank");
    assert_eq!((ranks.rows, ranks.classifier.map(|classifier| classifier.outputs)), (first, Some(1)));
}

/// A text is computed whole or not at all, and no logits come of it.
#[test]
fn an_encoder_continues_no_text_and_writes_none() {
    let files = files("bert");
    let spec = ModelSpec::from_files(&files).expect("a specification");
    let limits = ModelLimits::one_sequence(&spec, 96, 96);
    let options = LoadOptions::new(limits.clone(), Arc::new(Pool::new(1)));
    let mut model = load(&files, &options).expect("it loads");
    let pages = ReservedPages::new(0, ReservedPages::per_sequence(&limits.kv_layout(&spec), 96, 96));
    let mut run = |start: u32| {
        let mut plan = StepPlan::default();
        plan.add(0, start, [5, 6, 7], pages.runs(start + 3));
        let mut hidden = Hidden::default();
        model.token_io.embed(&plan, &mut hidden).expect("tokens of the vocabulary");
        let ran = model.stages[0].run(&plan, &mut hidden);
        let logits = model.token_io.logits(&plan, &hidden, &[0], &mut Vec::new());
        (ran.map_err(|error| error.to_string()), logits.map_err(|error| error.to_string()))
    };
    let (ran, logits) = run(0);
    assert_eq!(ran, Ok(()));
    assert!(logits.unwrap_err().contains("makes embeddings and no text"));
    assert!(run(3).0.unwrap_err().contains("must be computed whole"));
}
