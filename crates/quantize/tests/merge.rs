//! Adapters merged into tiny models: the result computes what `peft` computes with both.

#[path = "../../model/tests/harness/mod.rs"]
mod harness;

use std::fs;
use std::path::{Path, PathBuf};

use cascadia_kernels::{Dtype, Pool};
use cascadia_model::{Adapter, AdapterFiles, AdapterPart, AdapterPrecision, ModelSpec};
use cascadia_quantize::{MergeJob, QuantizeError, QuantizeJob, QuantizeSummary, Recipe, merge, quantize};
use cascadia_weights::ModelFiles;
use harness::{TOLERANCE, WAYS, read_npy, read_tokens, relative_difference, run};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name)
}

/// The model that an adapter of the fixtures is for, whose name comes before the last dash.
fn base_of(adapter: &str) -> PathBuf {
    let folder = fixture(adapter.rsplit_once('-').expect("a model and a kind").0);
    let gguf = folder.join("model.gguf");
    if gguf.exists() { gguf } else { folder }
}

/// Merges an adapter of the fixtures into the model at `base`.
fn merge_into(base: &Path, adapter: &str, out: &Path, kind: Option<&str>) -> Result<QuantizeSummary, QuantizeError> {
    let files = ModelFiles::open(base)?;
    let spec = ModelSpec::from_files(&files)?;
    let parts = AdapterFiles::open(&fixture("adapters").join(adapter))?;
    let part = AdapterPart { files: &parts, weight: 1.0 };
    let adapter = Adapter::load(&[part], &files, &spec, AdapterPrecision::Exact)?;
    let recipe = kind.map(str::parse::<Recipe>).transpose()?;
    let mut last = (0, 1);
    let job = MergeJob { files: &files, adapter: &adapter, out, recipe, pool: &Pool::new(2) };
    let summary = merge(&job, |progress| last = (progress.done, progress.total))?;
    assert_eq!(last.0, last.1, "progress ends at the end");
    Ok(summary)
}

/// Largest difference of a model's logits from what `peft` computes with an adapter, relative to the largest logit.
fn difference(path: &Path, adapter: &str) -> f32 {
    let tokens = base_of(adapter);
    let tokens = if tokens.is_dir() { tokens } else { tokens.parent().expect("a folder").to_owned() };
    let tokens = read_tokens(&tokens.join("tokens.json"));
    let reference = read_npy(&fixture("adapters").join(adapter).join("logits.npy"));
    let logits = run(path, &tokens, WAYS[0]).split_off(tokens.len() - reference.len());
    let rows = logits.iter().zip(&reference).map(|(ours, theirs)| relative_difference(ours, theirs));
    rows.fold(0.0, f32::max)
}

fn adapters() -> Vec<String> {
    let entries = fs::read_dir(fixture("adapters")).expect("the fixtures have adapters");
    let names = entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("a name"));
    // It has biases where the model has none.
    let mut names: Vec<String> = names.filter(|name| name != "llama2-bias").collect();
    names.sort();
    assert!(names.len() > 30, "{names:?}");
    names
}

#[test]
fn merged_models_compute_what_peft_computes() {
    let folder = tempfile::tempdir().unwrap();
    for name in adapters() {
        let out = folder.path().join(format!("{name}.gguf"));
        merge_into(&base_of(&name), &name, &out, Some("f32")).unwrap_or_else(|error| panic!("{name}: {error}"));
        let worst = difference(&out, &name);
        assert!(worst <= TOLERANCE, "{name}: {worst:e}");
        // The converted model is another base for the same adapter.
        let (plain, again) = (folder.path().join("plain.gguf"), folder.path().join("again.gguf"));
        let files = ModelFiles::open(&base_of(&name)).unwrap();
        let recipe = "f32".parse().unwrap();
        let job = QuantizeJob { files: &files, out: &plain, recipe, importance: None, pool: &Pool::new(1) };
        quantize(&job, |_| {}).unwrap();
        merge_into(&plain, &name, &again, None).unwrap_or_else(|error| panic!("{name} into GGUF: {error}"));
        let worst = difference(&again, &name);
        assert!(worst <= TOLERANCE, "{name} into GGUF: {worst:e}");
    }
}

/// A merged model in another type is the merged model, quantised to it.
#[test]
fn every_type_can_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for name in ["llama3-all", "llama3-dora"] {
        merge_into(&base_of(name), name, &path("merged.gguf"), Some("f32")).unwrap();
        let files = ModelFiles::open(&path("merged.gguf")).unwrap();
        for kind in ["f16", "bf16", "q8_0", "q6_k", "q4_k_m", "int4"] {
            let (own, other) = (path(&format!("{kind}.gguf")), path(&format!("{kind}-later.gguf")));
            merge_into(&base_of(name), name, &own, Some(kind)).unwrap();
            let recipe = kind.parse().unwrap();
            let job = QuantizeJob { files: &files, out: &other, recipe, importance: None, pool: &Pool::new(1) };
            quantize(&job, |_| {}).unwrap();
            let [own, other] = [own, other].map(|path| ModelFiles::open(&path).unwrap());
            for tensor in own.tensors() {
                let later = other.tensor(tensor.name()).expect("the same tensors");
                assert_eq!(tensor.dtype(), later.dtype(), "{name} as {kind}: {}", tensor.name());
                assert!(tensor.bytes().as_ref() == later.bytes().as_ref(), "{name} as {kind}: {}", tensor.name());
            }
            fs::remove_file(own.path()).and(fs::remove_file(other.path())).unwrap();
        }
        fs::remove_file(path("merged.gguf")).unwrap();
    }
}

/// Without a type, floats stay what they are; of a quantised model, only what changes becomes floats.
#[test]
fn formats_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let dtype = |files: &ModelFiles, name: &str| files.tensor(name).unwrap_or_else(|| panic!("{name}")).dtype();
    merge_into(&fixture("granite"), "granite-all", &path("granite.gguf"), None).unwrap();
    let files = ModelFiles::open(&path("granite.gguf")).unwrap();
    assert_eq!(dtype(&files, "blk.0.attn_q.weight"), Dtype::BF16);
    assert_eq!(dtype(&files, "blk.0.attn_norm.weight"), Dtype::F32);
    assert_eq!(files.metadata().value("general.file_type").unwrap(), Some(32_u32));

    let source = ModelFiles::open(&fixture("llama3")).unwrap();
    let (out, recipe) = (path("small.gguf"), "q8_0".parse().unwrap());
    let job = QuantizeJob { files: &source, out: &out, recipe, importance: None, pool: &Pool::new(1) };
    quantize(&job, |_| {}).unwrap();
    merge_into(&out, "llama3-embeddings", &path("merged.gguf"), None).unwrap();
    let (before, after) = (ModelFiles::open(&out).unwrap(), ModelFiles::open(&path("merged.gguf")).unwrap());
    assert_eq!(before.tensors().len(), after.tensors().len());
    for tensor in before.tensors() {
        let (name, own) = (tensor.name(), after.tensor(tensor.name()).unwrap());
        let changed = ["token_embd.weight", "output.weight"].contains(&name) || name.ends_with("attn_q.weight");
        let expected = if changed && !tensor.dtype().is_float() { Dtype::F16 } else { tensor.dtype() };
        assert_eq!(own.dtype(), expected, "{name}");
        assert_eq!(own.bytes().as_ref() == tensor.bytes().as_ref(), !changed, "{name}");
    }
}

/// An embedding that was also the output matrix becomes two, of which one changes.
#[test]
fn tied_matrices_come_apart() {
    let folder = tempfile::tempdir().unwrap();
    for (name, changed, kept) in [
        ("llama-tied-embeddings", "token_embd.weight", "output.weight"),
        ("llama-tied-head", "output.weight", "token_embd.weight"),
    ] {
        let out = folder.path().join(format!("{name}.gguf"));
        merge_into(&base_of(name), name, &out, Some("f32")).unwrap();
        let (source, merged) = (ModelFiles::open(&base_of(name)).unwrap(), ModelFiles::open(&out).unwrap());
        let embedding = source.tensor("model.embed_tokens.weight").unwrap();
        let mut row = vec![0.0; embedding.shape()[1] as usize];
        let first = &embedding.bytes().as_ref()[..2 * row.len()].to_vec();
        cascadia_kernels::decode_row(embedding.dtype(), first, &mut row);
        let row: Vec<u8> = row.iter().flat_map(|value| value.to_le_bytes()).collect();
        let starts_alike = |tensor: &str| merged.tensor(tensor).unwrap().bytes().as_ref().starts_with(&row);
        assert_eq!((starts_alike(kept), starts_alike(changed)), (true, false), "{name}");
    }
}

#[test]
fn a_failure_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.gguf");
    let error =
        merge_into(&fixture("llama2"), "llama2-bias", &out, None).expect_err("there is no place for its biases");
    assert!(error.to_string().contains("blk.0.attn_") && error.to_string().contains("bias"), "{error}");
    let error = merge_into(&fixture("llama3"), "mistral-rslora", &out, None).expect_err("it is for another model");
    assert!(error.to_string().contains("lora_"), "{error}");
    assert!(merge_into(&fixture("llama3"), "llama3-all", &out, Some("q3_nonsense")).is_err());
    assert!(merge_into(&fixture("llama3"), "llama3-all", &folder.path().join("absent/out.gguf"), None).is_err());
    assert_eq!(folder.path().read_dir().unwrap().count(), 0);
}
