//! A model cut into stages computes what it computes in one piece, and is not cut where it cannot be.

use std::path::Path;
use std::sync::Arc;

use cascadia_kernels::Pool;
use cascadia_model::{
    Hidden, LoadOptions, LocalStage, ModelError, ModelLimits, ModelSpec, SequenceStep, Stage, StepPlan, WindowPages,
    load,
};
use cascadia_weights::ModelFiles;

const TOKENS: u32 = 40;

/// The hidden states of some tokens after all layers, which are cut before those of `cuts`.
fn hidden(fixture: &str, cuts: &[u32]) -> Result<Vec<f32>, ModelError> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(fixture);
    let files = Arc::new(ModelFiles::open(&path).expect("the fixture opens"));
    let options = LoadOptions::new(
        ModelLimits::one_sequence(&ModelSpec::from_files(&files)?, 64, TOKENS),
        Arc::new(Pool::new(1)),
    );
    let mut model = load(&files, &options)?;
    let bounds: Vec<u32> = [&[0], cuts, &[model.spec.layers.len() as u32]].concat();
    let stages = bounds.windows(2).map(|bounds| LocalStage::new(&files, &model.spec, bounds[0]..bounds[1], &options));
    let stages = stages.collect::<Result<Vec<_>, _>>()?;
    let window = WindowPages { first: 0, pages: vec![0] };
    let step = SequenceStep { id: 0, rows: 0..TOKENS, start: 0, pages: vec![0], window };
    let plan = StepPlan { tokens: (0..TOKENS).map(|at| at * 37 % 96).collect(), steps: vec![step], generation: 0 };
    let mut hidden = Hidden::default();
    model.token_io.embed(&plan, &mut hidden).expect("the tokens are in the vocabulary");
    stages.iter().for_each(|stage| stage.run(&plan, &mut hidden).expect("the step runs"));
    Ok(hidden.values)
}

#[test]
fn stages_compute_what_the_whole_computes() {
    for (fixture, cuts) in
        [("llama3", &[1, 2][..]), ("gemma3", &[2]), ("gemma3n", &[1, 2]), ("gemma4", &[1]), ("gemma4-keys", &[1, 2])]
    {
        let whole = hidden(fixture, &[]).expect("the fixture loads");
        let cut = hidden(fixture, cuts).expect("it can be cut there");
        assert!(whole.iter().zip(&cut).all(|(one, other)| one.to_bits() == other.to_bits()), "{fixture}");
        assert_eq!(whole.len(), cut.len(), "{fixture}");
    }
}

#[test]
fn layers_stay_with_the_cache_that_they_read() {
    for cut in 2..6 {
        let error = hidden("gemma4", &[cut]).expect_err("a later layer reads what is cached before the cut");
        let problem = error.to_string();
        assert!(problem.starts_with(&format!("layers {cut}–5 cannot be a stage of their own")), "{problem}");
        assert!(matches!(error, ModelError::Stage { owner: 1 | 2, .. }), "{problem}");
    }
}
