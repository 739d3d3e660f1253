//! Packing a model: another order of the same numbers.

#[path = "../../engine/tests/fixture/mod.rs"]
mod fixture;

use std::path::Path;

use cascadia_engine::{EngineError, Session};
use cascadia_kernels::{Layout, Pool};
use cascadia_quantize::{PackJob, QuantizeError, QuantizeJob, QuantizeSummary, pack, quantize};
use cascadia_weights::ModelFiles;
use fixture::{Limits, open, path};

fn convert(source: &Path, out: &Path, kind: &str) -> Result<QuantizeSummary, QuantizeError> {
    let job = QuantizeJob {
        files: &ModelFiles::open(source)?,
        out,
        recipe: kind.parse()?,
        importance: None,
        pool: &Pool::new(2),
    };
    quantize(&job, |_| ())
}

fn packed(source: &Path, out: &Path) -> Result<QuantizeSummary, QuantizeError> {
    let mut last = (0, 1);
    let job = PackJob { files: &ModelFiles::open(source)?, out, pool: &Pool::new(2) };
    let summary = pack(&job, |progress| last = (progress.done, progress.total))?;
    assert_eq!(last.0, last.1, "progress ends at the end");
    Ok(summary)
}

fn logits(mut session: Session) -> Vec<u32> {
    let tokens: Vec<u32> = (0..50).map(|index| index * 13 % 130).collect();
    let mut all = Vec::new();
    let collect = |_, row: &[f32]| {
        all.extend(row.iter().map(|logit| logit.to_bits()));
        Ok::<_, EngineError>(())
    };
    session.feed_each(&tokens, collect).unwrap();
    all
}

#[test]
fn a_packed_model_says_the_same_to_the_bit() {
    let folder = tempfile::tempdir().unwrap();
    let (rows, interleaved) = (folder.path().join("rows.gguf"), folder.path().join("interleaved.gguf"));
    for (name, kind) in [("llama3", "q8_0"), ("qwen2", "q4_0"), ("qwen2-untied", "q8_0")] {
        convert(&path(name), &rows, kind).unwrap();
        let summary = packed(&rows, &interleaved).unwrap();
        let growth = summary.bytes_after - summary.bytes_before;
        assert!(growth < summary.bytes_before / 20, "{name}: {growth} bytes more");
        let files = ModelFiles::open(&interleaved).unwrap();
        assert!(files.tensors().iter().any(|tensor| tensor.layout() == Layout::Interleaved), "{name} {kind}");
        let expected = logits(open(&rows, Limits::default()).into_session());
        assert!(expected == logits(open(&interleaved, Limits::default()).into_session()), "{name} {kind}");
    }
}

#[test]
fn what_cannot_be_packed_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let (rows, interleaved) = (folder.path().join("rows.gguf"), folder.path().join("interleaved.gguf"));
    let no_gguf = packed(&path("llama3"), &interleaved).unwrap_err().to_string();
    assert!(no_gguf.contains("no GGUF file") && no_gguf.contains("--type"), "{no_gguf}");
    convert(&path("llama3"), &rows, "q8_0").unwrap();
    packed(&rows, &interleaved).unwrap();
    for again in [packed(&interleaved, &rows), convert(&interleaved, &rows, "q8_0")] {
        let message = again.unwrap_err().to_string();
        assert!(message.contains("packed already") && message.contains("made from"), "{message}");
    }
}
