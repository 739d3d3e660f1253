//! After load, a step allocates nothing.
#![expect(unsafe_code, reason = "counting allocations takes an allocator of our own")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;

use cascadia_kernels::{ActivationPrecision, Ops, Pool};
use cascadia_model::{
    CacheFormat, CachePages, Hidden, KvFormats, KvPolicy, LoadOptions, ModelLimits, PAGE_TOKENS, PageClass, PageRun,
    StepPlan, load,
};
use cascadia_weights::ModelFiles;

struct Counting;

thread_local! {
    /// Only this thread's, which does all the work of a pool of one; the test harness has threads of its own.
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promises are the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are the system allocator's.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_step_allocates_nothing() {
    if Ops::best().name() == "scalar" {
        eprintln!("not checked: the scalar kernels are a specification and may allocate");
        return;
    }
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures");
    let plain = ["llama3", "mistral", "qwen2", "gemma3n", "gemma4", "gemma4-keys", "llama3-gguf/model.gguf"];
    let experts = ["qwen2-moe", "gpt-oss", "glm4-moe", "gemma4-moe", "deepseek-v2-lite", "deepseek-v3"];
    let both = |fixture| ActivationPrecision::ALL.map(|activations| (fixture, activations));
    let policies = || [KvPolicy::new(KvFormats::Exact), KvPolicy::uniform(CacheFormat::Int4)];
    let cached = |(fixture, activations)| policies().map(|kv| (fixture, activations, kv));
    for (fixture, activations, kv) in plain.into_iter().chain(experts).flat_map(both).flat_map(cached) {
        let files = Arc::new(ModelFiles::open(&fixtures.join(fixture)).expect("the fixture opens"));
        let cache = CachePages::new(|_| 4);
        let limits = ModelLimits { activations, kv, ..ModelLimits::new(4 * PAGE_TOKENS, PAGE_TOKENS, cache) };
        let options = LoadOptions::new(limits, Arc::new(Pool::new(1)));
        let mut model = load(&files, &options).expect("the fixture loads");
        let (mut hidden, mut logits) = (Hidden::default(), Vec::new());
        // Far enough for pages to be quantised and read.
        let plans = [64, 64, 63, 1, 1].iter().scan(0, |start, &rows| {
            let run = |class| PageRun { class, first: 0, pages: vec![0, 1, 2, 3] };
            let mut plan = StepPlan::default();
            plan.add(0, *start, 1..=rows, PageClass::ALL.map(run).to_vec());
            *start += rows;
            Some(plan)
        });
        for (index, plan) in plans.collect::<Vec<_>>().iter().enumerate() {
            let before = ALLOCATIONS.get();
            model.token_io.embed(plan, &mut hidden).expect("the step runs");
            model.stages.iter().for_each(|stage| stage.run(plan, &mut hidden).expect("the step runs"));
            let last = plan.tokens.len() as u32 - 1;
            model.token_io.logits(plan, &hidden, &[last], &mut logits).expect("the step runs");
            let made = ALLOCATIONS.get() - before;
            // The first step sizes the caller's own `hidden` and `logits`.
            assert!(index == 0 || made == 0, "{fixture}, {activations}: step {index} allocated {made} times");
        }
    }
}
