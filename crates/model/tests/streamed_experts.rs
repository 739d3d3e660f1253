//! Experts that do not fit under a cap on memory: a step reads those that its rows use, and the bits stay the same.

mod harness;

use std::path::Path;
use std::sync::Arc;

use cascadia_kernels::Pool;
use cascadia_model::{
    FeedForwardSpec, Hidden, Kind, LoadOptions, ModelError, ModelLimits, ModelSpec, Profile, ReservedPages, StepPlan,
    load,
};
use cascadia_weights::{ModelFiles, Tensor};
use harness::export::{export, write_gguf};

/// Of every step, its rows, the bits of its logits and the bytes of weights that were read for it.
type Steps = Vec<(u32, Vec<u32>, u64)>;

fn run(path: &Path, memory: Option<u64>) -> Result<Steps, ModelError> {
    let files = Arc::new(ModelFiles::open(path)?);
    let profile = Arc::new(Profile::default());
    let limits = ModelLimits::one_sequence(&ModelSpec::from_files(&files)?, 64, 16);
    let cache = limits.cache;
    let options =
        LoadOptions { memory, profile: Arc::clone(&profile), ..LoadOptions::new(limits, Arc::new(Pool::new(2))) };
    let mut model = load(&files, &options)?;
    let (mut hidden, mut logits, mut steps) = (Hidden::default(), Vec::new(), Vec::new());
    for (start, rows) in [(0, 16), (16, 1), (17, 1)] {
        let mut plan = StepPlan::default();
        let pages = ReservedPages::new(0, cache).runs(start + rows);
        plan.add(0, start, (1..=rows).map(|token| 7 * token % 96), pages);
        model.token_io.embed(&plan, &mut hidden).expect("the step runs");
        model.stages.iter().for_each(|stage| stage.run(&plan, &mut hidden).expect("the step runs"));
        model.token_io.logits(&plan, &hidden, &[rows - 1], &mut logits).expect("the step runs");
        let waits = profile.take().into_iter().filter(|row| row.1 == Kind::WaitForWeights);
        steps.push((rows, logits.iter().map(|logit| logit.to_bits()).collect(), waits.map(|row| row.2.bytes).sum()));
    }
    Ok(steps)
}

#[test]
fn only_the_experts_in_use_are_read() {
    let scratch = tempfile::tempdir().expect("a temporary folder");
    for name in ["qwen3-moe", "mixtral", "gemma4-moe"] {
        let path = scratch.path().join(format!("{name}.gguf"));
        write_gguf(&path, &export(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name)));
        let kept = run(&path, None).expect("the model loads");
        assert!(kept.iter().all(|(_, _, read)| *read == 0), "{name}: everything stays");
        let Err(ModelError::MemoryTooSmall { least, .. }) = run(&path, Some(1)) else { panic!("a byte is enough") };

        let files = ModelFiles::open(&path).expect("it was written");
        let of_experts = files.tensors().iter().filter(|tensor| tensor.name().ends_with("_exps.weight"));
        let bytes: u64 = of_experts.map(Tensor::byte_len).sum();
        let spec = ModelSpec::from_files(&files).expect("it can be run");
        let experts = spec.layers.iter().find_map(|layer| match &layer.feed_forward.part {
            FeedForwardSpec::Dense(_) => None,
            FeedForwardSpec::Experts(experts) => Some(experts),
            FeedForwardSpec::DenseAndExperts(both) => Some(&both.experts.part),
        });
        let experts = experts.expect("a layer with experts");
        // Enough for two layers without experts, which is all these models have, and for the experts of one.
        let streamed = run(&path, Some(least)).expect("the model loads");
        for ((rows, bits, read), (_, expected, _)) in streamed.iter().zip(&kept) {
            assert_eq!(bits, expected, "{name}: {rows} rows");
            let most = bytes / experts.count as u64 * experts.count.min(*rows as usize * experts.used) as u64;
            assert!((1..=most).contains(read), "{name}: {rows} rows read {read} bytes, and use {most} at most");
        }
    }
}
