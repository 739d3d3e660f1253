//! Conversion of tiny models to GGUF and back into the forward pass.

#[path = "../../engine/tests/fixture/mod.rs"]
mod fixture;

use std::path::Path;

use cascadia_engine::{Engine, EngineError};
use cascadia_kernels::{Dtype, Pool};
use cascadia_quantize::{QuantizeError, QuantizeJob, QuantizeSummary, quantize};
use cascadia_text::SpecialTokens;
use cascadia_weights::ModelFiles;
use fixture::{Limits, open, path};

fn convert(source: &Path, out: &Path, kind: &str) -> Result<QuantizeSummary, QuantizeError> {
    let files = ModelFiles::open(source)?;
    let mut last = (0, 1);
    let job = QuantizeJob { files: &files, out, recipe: kind.parse()?, importance: None, pool: &Pool::new(2) };
    let summary = quantize(&job, |progress| last = (progress.done, progress.total))?;
    assert_eq!(last.0, last.1, "progress ends at the end");
    Ok(summary)
}

fn logits(engine: Engine) -> Vec<f32> {
    let tokens: Vec<u32> = (0..50).map(|index| index * 13 % 90).collect();
    let mut all = Vec::new();
    let collect = |_, row: &[f32]| {
        all.extend_from_slice(row);
        Ok::<_, EngineError>(())
    };
    engine.into_session().feed_each(&tokens, collect).unwrap();
    all
}

/// Largest difference relative to the largest logit.
fn difference(left: &[f32], right: &[f32]) -> f32 {
    assert_eq!(left.len(), right.len());
    let largest = left.iter().fold(0f32, |largest, value| largest.max(value.abs()));
    left.iter().zip(right).fold(0f32, |worst, (a, b)| worst.max((a - b).abs())) / largest
}

/// Fixtures in Hugging Face's form.
fn folders() -> Vec<String> {
    let entries = std::fs::read_dir(path("")).unwrap().map(Result::unwrap);
    let folders = entries.filter(|entry| entry.path().join("config.json").exists());
    let mut names: Vec<String> = folders.map(|entry| entry.file_name().into_string().unwrap()).collect();
    names.sort();
    assert!(names.len() > 20, "{names:?}");
    names
}

#[test]
fn every_folder_computes_the_same_after_conversion() {
    let folder = tempfile::tempdir().unwrap();
    for name in folders() {
        let (name, out) = (name.as_str(), folder.path().join(format!("{name}.gguf")));
        convert(&path(name), &out, "f32").unwrap_or_else(|error| panic!("{name}: {error}"));
        let limits = Limits { context: 96, ..Limits::default() };
        let original = logits(open(&path(name), limits));
        let converted = logits(open(&out, limits));
        let worst = difference(&original, &converted);
        // Stored in blocks, weights meet activations of 8 bits; as floats they do not.
        let limit = if name.ends_with("mxfp4") { 0.05 } else { 2e-5 };
        assert!(worst < limit, "{name}: {worst}");
    }
}

/// Formats with and without minima, in blocks of 32; rows that do not fill blocks stay floats.
#[test]
fn every_folder_runs_quantised_with_the_same_bits_in_any_steps() {
    let folder = tempfile::tempdir().unwrap();
    for name in folders() {
        for kind in ["q8_0", "q4_0"] {
            let (name, out) = (name.as_str(), folder.path().join(format!("{name}-{kind}.gguf")));
            convert(&path(name), &out, kind).unwrap_or_else(|error| panic!("{name}: {error}"));
            let whole = logits(open(&out, Limits { context: 96, rows_per_step: 50, threads: 2 }));
            let pieces = logits(open(&out, Limits { context: 96, rows_per_step: 1, threads: 1 }));
            assert!(whole.iter().all(|logit| logit.is_finite()), "{name} {kind}");
            assert!(whole.iter().zip(&pieces).all(|(a, b)| a.to_bits() == b.to_bits()), "{name} {kind}");
        }
    }
}

#[test]
fn our_conversion_says_the_same_as_the_reference_conversion() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["llama3", "qwen2"] {
        let out = folder.path().join(format!("{name}.gguf"));
        convert(&path(name), &out, "f32").unwrap();
        let (ours, reference) = (ModelFiles::open(&out).unwrap(), path(&format!("{name}-gguf/model.gguf")));
        let reference = ModelFiles::open(&reference).unwrap();
        let free = ["general.name", "general.file_type", "general.quantization_version", "general.alignment"];
        for (key, value) in reference.metadata().entries() {
            if !free.contains(&key.as_str()) && !key.starts_with("general.") {
                assert_eq!(ours.metadata().get(key), Some(value), "{name}: {key}");
            }
        }
        for tensor in reference.tensors() {
            let own = ours.tensor(tensor.name()).unwrap_or_else(|| panic!("{name} lacks {}", tensor.name()));
            assert_eq!(own.shape(), tensor.shape());
            if tensor.dtype() == own.dtype() && tensor.name() != "rope_freqs.weight" {
                assert!(own.bytes().as_ref() == tensor.bytes().as_ref(), "{name}: {}", tensor.name());
            }
        }
        assert_eq!(ours.tensors().len(), reference.tensors().len());
    }
}

#[test]
fn the_tokenizer_survives() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["llama3", "qwen2"] {
        let out = folder.path().join(format!("{name}.gguf"));
        convert(&path(name), &out, "f16").unwrap();
        let original = open(&path(name), Limits::default()).text().unwrap();
        let converted = open(&out, Limits::default()).text().unwrap();
        assert_eq!(original.special(), converted.special());
        for text in ["Hello there, it's 12345!", " \n\n  x<|end|>y", "\u{1f680} naïve"] {
            for special in [SpecialTokens::Parse, SpecialTokens::Plain] {
                let (left, right) = (original.tokenizer(), converted.tokenizer());
                assert_eq!(left.encode(text, special).unwrap(), right.encode(text, special).unwrap(), "{text}");
            }
        }
    }
}

#[test]
fn gguf_can_be_converted_again() {
    let folder = tempfile::tempdir().unwrap();
    let source = path("llama3-gguf/model.gguf");
    let (same, small) = (folder.path().join("same.gguf"), folder.path().join("small.gguf"));
    let summary = convert(&source, &same, "f32").unwrap();
    assert_eq!(summary.bytes_before, summary.bytes_after);
    let (before, after) = (ModelFiles::open(&source).unwrap(), ModelFiles::open(&same).unwrap());
    for tensor in before.tensors() {
        assert!(after.tensor(tensor.name()).unwrap().bytes().as_ref() == tensor.bytes().as_ref());
    }
    let summary = convert(&source, &small, "q8_0").unwrap();
    assert!(summary.bytes_after < summary.bytes_before / 3);
    let after = ModelFiles::open(&small).unwrap();
    assert_eq!(after.tensor("blk.0.attn_q.weight").unwrap().dtype(), Dtype::Q8_0);
    assert_eq!(after.tensor("blk.0.attn_norm.weight").unwrap().dtype(), Dtype::F32);
    let worst = difference(&logits(open(&source, Limits::default())), &logits(open(&small, Limits::default())));
    // Random weights magnify every rounding; a wrong scale or order would be far beyond this.
    assert!(worst > 0.0 && worst < 0.3, "{worst}");
}

#[test]
fn a_failure_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    assert!(convert(&path("llama3"), &folder.path().join("out.gguf"), "q3_nonsense").is_err());
    assert!(convert(&path("llama3"), &folder.path().join("absent/out.gguf"), "f16").is_err());
    assert!(convert(&path("absent"), &folder.path().join("out.gguf"), "f16").is_err());
    assert_eq!(folder.path().read_dir().unwrap().count(), 0);
}
