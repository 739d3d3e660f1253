//! A model cut into stages computes what it computes in one piece, and is not cut where it cannot be.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cascadia_kernels::Pool;
use cascadia_model::{
    CachePages, Hidden, LoadOptions, LocalStage, ModelError, ModelLimits, ModelSpec, PAGE_TOKENS, PageBytes, PageClass,
    ReservedPages, Stage, StepPlan, load,
};
use cascadia_weights::ModelFiles;

const TOKENS: u32 = 40;

fn open(fixture: &str) -> Arc<ModelFiles> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(fixture);
    Arc::new(ModelFiles::open(&path).expect("the fixture opens"))
}

/// The hidden states of some tokens after all layers, which are cut before those of `cuts`.
fn hidden(fixture: &str, cuts: &[u32]) -> Result<Vec<f32>, ModelError> {
    let files = open(fixture);
    let limits = ModelLimits::one_sequence(&ModelSpec::from_files(&files)?, 64, TOKENS);
    let options = LoadOptions::new(limits, Arc::new(Pool::new(1)));
    let mut model = load(&files, &options)?;
    let bounds: Vec<u32> = [&[0], cuts, &[model.spec.layers.len() as u32]].concat();
    let stages = bounds.windows(2).map(|bounds| LocalStage::new(&files, &model.spec, bounds[0]..bounds[1], &options));
    let stages = stages.collect::<Result<Vec<_>, _>>()?;
    let mut plan = StepPlan::default();
    let pages = ReservedPages::new(0, CachePages::full(1).with_window(1));
    plan.add(0, 0, (0..TOKENS).map(|at| at * 37 % 96), pages.runs(TOKENS));
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

#[test]
fn a_step_that_panics_does_not_harm_the_next() {
    for fixture in ["llama3", "gemma3n", "gemma4-moe", "gpt-oss", "deepseek-v2-lite"] {
        let files = open(fixture);
        let spec = ModelSpec::from_files(&files).expect("the fixture has an architecture");
        let pool = Arc::new(Pool::new(2));
        let options = LoadOptions::new(ModelLimits::one_sequence(&spec, 64, TOKENS), Arc::clone(&pool));
        let mut model = load(&files, &options).expect("the fixture loads");
        let mut plan = StepPlan::default();
        let pages = ReservedPages::new(0, CachePages::full(1).with_window(1));
        plan.add(0, 0, (0..TOKENS).map(|at| at * 37 % 96), pages.runs(TOKENS));
        let mut hidden = Hidden::default();
        model.token_io.embed(&plan, &mut hidden).expect("the tokens are in the vocabulary");
        let stage = LocalStage::new(&files, &spec, 0..spec.layers.len() as u32, &options).expect("a whole stage");
        let run = || {
            let mut hidden = hidden.clone();
            stage.run(&plan, &mut hidden).expect("the step runs");
            hidden.values.iter().map(|number| number.to_bits()).collect::<Vec<_>>()
        };
        let before = run();
        // A pool does one thing at a time: used from within itself it panics, in the first projection of the step.
        let panicked = AtomicBool::new(false);
        pool.run(2, &|_, task| {
            if task == 0 {
                let ran = catch_unwind(AssertUnwindSafe(run));
                panicked.store(ran.is_err(), Ordering::Relaxed);
            }
        });
        assert!(panicked.into_inner(), "{fixture}: the test wants this panic");
        assert!(run() == before, "{fixture}");
    }
}

/// Pages are copied to other ids of another stage of the same layers and given back at the first; the sequence goes on
/// there with the same bits.
#[test]
fn a_sequence_moves_page_by_page() {
    for fixture in ["llama3", "gemma3", "deepseek-v2-lite", "llama3-gguf/model.gguf"] {
        let files = open(fixture);
        let limits = ModelLimits::new(3 * PAGE_TOKENS, PAGE_TOKENS, CachePages::full(6).with_window(6));
        let options = LoadOptions::new(limits, Arc::new(Pool::new(1)));
        let mut model = load(&files, &options).expect("the fixture loads");
        let stage = || {
            LocalStage::new(&files, &model.spec, 0..model.spec.layers.len() as u32, &options).expect("a whole stage")
        };
        let [first, second] = [stage(), stage()];
        let per_part = CachePages::full(3).with_window(3);
        let mut run = |stage: &LocalStage, part: u32, start: u32, rows: u32| {
            let (mut plan, mut hidden) = (StepPlan::default(), Hidden::default());
            let tokens = (start..start + rows).map(|at| at * 37 % 96);
            plan.add(0, start, tokens, ReservedPages::new(part, per_part).runs(start + rows));
            model.token_io.embed(&plan, &mut hidden).expect("the tokens are in the vocabulary");
            stage.run(&plan, &mut hidden).expect("the step runs");
            hidden.values.iter().map(|number| number.to_bits()).collect::<Vec<_>>()
        };
        run(&first, 0, 0, PAGE_TOKENS);
        run(&first, 0, PAGE_TOKENS, 20);
        for class in PageClass::ALL {
            for page in 0..2 {
                let copy = first.copy_page(class, page);
                second.fill_page(class, 3 + page, &copy).expect("the stages are alike");
            }
            assert!(second.fill_page(class, 0, &[1]).is_err(), "a page has a size");
        }
        let expected = run(&first, 0, PAGE_TOKENS + 20, 3);
        assert_eq!(run(&second, 1, PAGE_TOKENS + 20, 3), expected, "{fixture}: moved");
        for class in PageClass::ALL {
            (0..3).for_each(|page| first.give_back_page(class, page).expect("pages can be given back"));
            assert!(first.copy_page(class, 0).iter().all(|byte| *byte == 0), "{fixture}: a page that was given back");
        }
        assert_ne!(run(&first, 0, PAGE_TOKENS + 20, 3), expected, "{fixture}: what was given back is gone");
        run(&first, 0, 0, PAGE_TOKENS);
        run(&first, 0, PAGE_TOKENS, 20);
        assert_eq!(run(&first, 0, PAGE_TOKENS + 20, 3), expected, "{fixture}: written again");
    }
}
