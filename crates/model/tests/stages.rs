//! A model cut into stages computes what it computes in one piece, and is not cut where it cannot be.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cascadia_kernels::Pool;
use cascadia_model::{
    CachePages, Hidden, KvFormat, KvFormats, KvLayout, KvPolicy, LoadOptions, LocalStage, ModelError, ModelLimits,
    ModelSpec, PAGE_TOKENS, PageBytes, PageClass, PageRows, ReservedPages, Stage, StepPlan, load,
};
use cascadia_weights::ModelFiles;

const TOKENS: u32 = 40;
/// The last of so many tokens read two sealed pages where the tail is 32 tokens.
const SEALED_TOKENS: u32 = 200;

fn open(fixture: &str) -> Arc<ModelFiles> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(fixture);
    Arc::new(ModelFiles::open(&path).expect("the fixture opens"))
}

/// The hidden states of some tokens after all layers, which are cut before those of `cuts`.
fn hidden(fixture: &str, cuts: &[u32]) -> Result<Vec<f32>, ModelError> {
    hidden_with(fixture, cuts, TOKENS, &KvPolicy::default())
}

/// The same of so many tokens, with a cache of this policy.
fn hidden_with(fixture: &str, cuts: &[u32], tokens: u32, kv: &KvPolicy) -> Result<Vec<f32>, ModelError> {
    let files = open(fixture);
    let pages = CachePages::new(|_| tokens.div_ceil(PAGE_TOKENS));
    let limits = ModelLimits { kv: kv.clone(), ..ModelLimits::new(tokens, tokens, pages) };
    let options = LoadOptions::new(limits, Arc::new(Pool::new(1)));
    let mut model = load(&files, &options)?;
    let bounds: Vec<u32> = [&[0], cuts, &[model.spec.layers.len() as u32]].concat();
    let stages = bounds.windows(2).map(|bounds| LocalStage::new(&files, &model.spec, bounds[0]..bounds[1], &options));
    let stages = stages.collect::<Result<Vec<_>, _>>()?;
    let mut plan = StepPlan::default();
    plan.add(0, 0, (0..tokens).map(|at| at * 37 % 96), ReservedPages::new(0, pages).runs(tokens));
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

/// Wherever a model is cut, each stage seals the pages of its own layers, in their formats.
#[test]
fn stages_read_the_sealed_pages_of_the_whole() {
    let formats =
        |names: &[&str]| names.iter().map(|name| KvFormat::from_name(name).expect("a known format")).collect();
    let policies = [&["int8/int4"][..], &["int4"], &["int8/int4", "f16", "int3", "int4"]].map(formats);
    for (fixture, cuts) in
        [("llama3", &[&[1][..], &[2], &[1, 2]][..]), ("gemma3", &[&[1], &[2], &[3], &[1, 2, 3]]), ("gemma4", &[&[1]])]
    {
        let run = |cuts: &[u32], formats| {
            hidden_with(fixture, cuts, SEALED_TOKENS, &KvPolicy { formats, tail: 32, from: 0 })
                .expect("it can be cut there")
        };
        let unsealed = run(&[], KvFormats::Exact);
        for formats in policies.clone().map(KvFormats::PerLayer) {
            let whole = run(&[], formats.clone());
            assert!(whole != unsealed, "{fixture} {formats:?}: no sealed page was read");
            for cuts in cuts {
                let cut = run(cuts, formats.clone());
                assert!(
                    whole.iter().map(|number| number.to_bits()).eq(cut.iter().map(|number| number.to_bits())),
                    "{fixture} {formats:?} {cuts:?}"
                );
            }
        }
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

/// Copies what a sequence has in its pages from one position to another, page by page.
fn copy_tokens((from, to): (&LocalStage, &LocalStage), pages: ReservedPages, (start, end): (u32, u32)) {
    let within = |position: u32, page: u32| position.saturating_sub(page * PAGE_TOKENS).min(PAGE_TOKENS);
    for run in pages.runs(end) {
        for (page, at) in run.pages.iter().zip(run.first..) {
            let tokens = within(start, at)..within(end, at);
            if !tokens.is_empty() {
                let copy = from.copy_rows(run.class, *page, &tokens).expect("the page is there");
                assert_eq!(copy.len(), to.row_bytes(run.class, &tokens));
                to.fill_rows(run.class, *page, &tokens, &copy).expect("the stages are alike");
            }
        }
    }
}

/// Two machines compute a sequence of which the second lacks the beginning. What was there is copied, both go on, so that the
/// second computes nonsense; once what came meanwhile is copied as well, both give the same bits for ever.
#[test]
fn a_sequence_is_copied_while_it_goes_on() {
    const END: u32 = 4 * PAGE_TOKENS;
    for fixture in ["llama3", "gemma3", "deepseek-v2-lite", "gemma3n", "gemma4-keys", "llama3-gguf/model.gguf"] {
        for (policy, from) in [("exact", 0), ("fp8", 0), ("int8", 0), ("int8/int4", 100), ("f16/int4", 0), ("int4", 0)]
        {
            let files = open(fixture);
            let spec = ModelSpec::from_files(&files).expect("the fixture has an architecture");
            let policy = KvPolicy { tail: 32, from, ..KvPolicy::named(policy).expect("a known policy") };
            let own = ReservedPages::per_sequence(&KvLayout::whole(&spec, &policy), END, 16);
            let limits = ModelLimits { kv: policy.clone(), ..ModelLimits::new(END, 16, own) };
            let options = LoadOptions::new(limits, Arc::new(Pool::new(1)));
            let mut model = load(&files, &options).expect("the fixture loads");
            let stage =
                || LocalStage::new(&files, &spec, 0..spec.layers.len() as u32, &options).expect("a whole stage");
            let ([first, late], pages) = ([stage(), stage()], ReservedPages::new(0, own));
            let mut run = |stage: &LocalStage, start: u32, end: u32| {
                let (mut plan, mut hidden) = (StepPlan::default(), Hidden::default());
                plan.add(0, start, (start..end).map(|at| at * 37 % 96), pages.runs(end));
                model.token_io.embed(&plan, &mut hidden).expect("the tokens are in the vocabulary");
                stage.run(&plan, &mut hidden).expect("the step runs");
                hidden.values.iter().map(|number| number.to_bits()).collect::<Vec<_>>()
            };
            (0..100).step_by(10).for_each(|at| drop(run(&first, at, at + 10)));
            copy_tokens((&first, &late), pages, (0, 90));
            // A page is filled and quantised in between.
            for at in (100..140).step_by(5) {
                let [one, other] = [&first, &late].map(|stage| run(stage, at, at + 5));
                assert_ne!(one, other, "{fixture} {policy:?}: tokens 90 to 99 are missing");
            }
            copy_tokens((&first, &late), pages, (90, 140));
            for at in (140..END).step_by(4) {
                let [one, other] = [&first, &late].map(|stage| run(stage, at, at + 4));
                assert_eq!(one, other, "{fixture} {policy:?} at {at}");
            }
            let (beyond, whole) = (own.of(PageClass::Full), 0..PAGE_TOKENS);
            let bytes = vec![0; late.row_bytes(PageClass::Full, &whole)];
            let fill = |page, bytes: &[u8]| late.fill_rows(PageClass::Full, page, &whole, bytes);
            assert!(fill(0, &bytes[1..]).is_err() && fill(beyond, &bytes).is_err(), "{fixture}: a page has a size");
            assert!(first.copy_rows(PageClass::Full, beyond, &whole).is_err(), "{fixture}: there is no such page");
        }
    }
}
