//! Importances: measured while a model runs, read from llama.cpp's files, used while quantising.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cascadia_engine::{Engine, EngineError, OpenOptions, Source};
use cascadia_kernels::Pool;
use cascadia_model::ActivationStats;
use cascadia_quantize::{Importance, QuantizeError, QuantizeJob, quantize};
use cascadia_weights::ModelFiles;

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name)
}

/// What a model measures on a few tokens, cut into steps of so many rows.
fn measured(model: &str, rows_per_step: u32) -> ActivationStats {
    let stats = ActivationStats::default();
    let pool = Arc::new(Pool::new(2));
    let options =
        OpenOptions { context: Some(64), rows_per_step, stats: Some(stats.clone()), ..OpenOptions::new(pool) };
    let mut session = Engine::open(Source::Path(&path(model)), &options).unwrap().into_session();
    let tokens: Vec<u32> = (0..40).map(|index| index * 13 % 90).collect();
    session.feed_each(&tokens, |_, _| Ok::<_, EngineError>(())).unwrap();
    stats
}

fn bytes_with(importance: Option<&Importance>, kind: &str) -> Result<Vec<u8>, QuantizeError> {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.gguf");
    let files = ModelFiles::open(&path("llama3-gguf/model.gguf"))?;
    let job = QuantizeJob { files: &files, out: &out, recipe: kind.parse()?, importance, pool: &Pool::new(2) };
    quantize(&job, |_| {})?;
    Ok(std::fs::read(out).unwrap())
}

#[test]
fn every_matrix_is_measured_and_steps_do_not_matter() {
    for model in ["llama3", "llama-tied", "qwen2"] {
        let whole = measured(model, 64).read();
        assert_eq!(whole, measured(model, 7).read(), "{model}");
        assert!(whole.values().all(|energy| energy.rows == 40 && energy.sums.iter().sum::<f64>() > 0.0), "{model}");
        let output = if model == "llama3" { "output.weight" } else { "token_embd.weight" };
        for name in ["blk.0.attn_q.weight", "blk.1.attn_output.weight", "blk.0.ffn_down.weight", output] {
            assert!(whole.contains_key(&(name.to_owned(), 0)), "{model}: {name}");
        }
        // Queries, keys and values meet the same activations.
        let of = |name: &str| &whole[&(format!("blk.0.{name}.weight"), 0)];
        assert_eq!(of("attn_q"), of("attn_v"));
    }
}

/// Projections into streams all meet the same embeddings, those out of them each its own stream.
#[test]
fn matrices_of_one_tensor_are_measured_apart() {
    let measured = measured("gemma3n", 16).read();
    let of = |name: &str, matrix: usize| &measured[&(format!("altup_{name}.weight"), matrix)];
    assert!(measured.values().all(|energy| energy.rows >= 40 && energy.sums.iter().sum::<f64>() > 0.0));
    assert_eq!(of("proj", 0), of("proj", 1));
    assert_ne!(of("unembd_proj", 0), of("unembd_proj", 1));
}

#[test]
fn measured_importances_change_the_numbers_and_the_result_is_the_same_every_time() {
    let importance = Importance::measured(&measured("llama3", 16), Path::new("text")).unwrap();
    let plain = bytes_with(None, "q4_0").unwrap();
    let weighted = bytes_with(Some(&importance), "q4_0").unwrap();
    assert_eq!(plain.len(), weighted.len());
    assert!(plain != weighted);
    assert!(weighted == bytes_with(Some(&importance), "q4_0").unwrap());
}

#[test]
fn both_forms_of_llama_cpp_say_the_same() {
    let old = Importance::read(&path("imatrix/importance.dat")).unwrap();
    let new = Importance::read(&path("imatrix/importance.gguf")).unwrap();
    assert_eq!(old.len(), 7);
    assert!(bytes_with(Some(&old), "q4_0").unwrap() == bytes_with(Some(&new), "q4_0").unwrap());
    assert!(bytes_with(Some(&old), "q4_0").unwrap() != bytes_with(None, "q4_0").unwrap());
}

#[test]
fn files_that_cannot_be_used_say_why() {
    let folder = tempfile::tempdir().unwrap();
    let check = |name: &str, bytes: &[u8], part: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        let message = Importance::read(&path).unwrap_err().to_string();
        assert!(message.contains(part) && message.contains(name), "{message}");
    };
    let old = std::fs::read(path("imatrix/importance.dat")).unwrap();
    check("cut.dat", &old[..200], "it ends inside the values of");
    check("text.dat", b"It was a bright cold day in April.", "no importance matrix");
    check("empty.dat", &[0; 4], "holds no importances");
    check("model.gguf", &std::fs::read(path("llama3-gguf/model.gguf")).unwrap(), "no importance matrix");
    let mut broken = old.clone();
    let name = u32::from_le_bytes([old[4], old[5], old[6], old[7]]) as usize;
    broken[8 + name + 8..8 + name + 12].copy_from_slice(&f32::NAN.to_le_bytes());
    check("nan.dat", &broken, "NaN");
    let message = Importance::read(&folder.path().join("absent.dat")).unwrap_err().to_string();
    assert!(message.contains("absent.dat"), "{message}");
}

#[test]
fn importances_of_another_model_are_refused() {
    let importance = Importance::measured(&measured("llama-tied", 16), Path::new("other.txt")).unwrap();
    let message = bytes_with(Some(&importance), "q4_0").unwrap_err().to_string();
    assert!(message.contains("other.txt") && message.contains("another model"), "{message}");
}
