//! Latent attention: the forms that its tensors take in files, and what only some files have.

mod harness;

use std::fs;
use std::path::{Path, PathBuf};

use cascadia_kernels::quantize::quantize;
use cascadia_kernels::{Dtype, decode_row};
use cascadia_model::{ModelSpec, gguf_export};
use cascadia_weights::{MetadataValue, ModelFiles};
use tempfile::TempDir;

use harness::export::{Exported, ExportedTensor, export, write_gguf};
use harness::{WAYS, check_against, check_bits, run};

/// Heads of the fixture, and the rows of each that make its keys and values.
const HEADS: u64 = 2;
const KEY_ROWS: u32 = 32;
const VALUE_ROWS: u32 = 32;
const ROTATED: u32 = 16;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name)
}

/// A copy of a fixture with one line of its configuration changed.
fn changed(name: &str, from: &str, to: &str) -> TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let config = fs::read_to_string(fixture(name).join("config.json")).expect("the fixture has settings");
    assert!(config.contains(from), "{name} has no {from}");
    fs::write(folder.path().join("config.json"), config.replace(from, to)).expect("written");
    fs::copy(fixture(name).join("model.safetensors"), folder.path().join("model.safetensors")).expect("a copy");
    folder
}

fn spec(folder: &Path) -> ModelSpec {
    ModelSpec::from_files(&ModelFiles::open(folder).expect("the folder opens")).expect("the folder has settings")
}

#[test]
fn the_same_model_by_another_name() {
    let (one, other) = (fixture("deepseek-v3"), changed("deepseek-v3", "deepseek_v3", "kimi_k2"));
    let renamed = ModelSpec { architecture: "deepseek_v3".into(), ..spec(other.path()) };
    assert_eq!(renamed, spec(&one));
}

/// Published files have layers after the last that guess further tokens; here the last layer is made one.
#[test]
fn layers_after_the_last_are_ignored() {
    let folder = changed("deepseek-v3", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1");
    let files = ModelFiles::open(folder.path()).expect("the folder opens");
    let spec = ModelSpec::from_files(&files).expect("the folder has settings");
    assert_eq!(spec.layers.len(), 1);
    assert!(run(folder.path(), &[1, 2, 3], WAYS[0]).iter().flatten().all(|logit| logit.is_finite()));
    let export = gguf_export(&files, &spec).expect("the folder can be exported");
    assert!(export.tensors.iter().all(|tensor| !tensor.name.starts_with("blk.1.")));
}

/// Pairs that lie half a head apart are another model, which runs and has no form in GGUF.
#[test]
fn pairs_apart_are_not_exported() {
    let folder = changed("deepseek-v3", "\"model_type\"", "\"rope_interleave\": false, \"model_type\"");
    let files = ModelFiles::open(folder.path()).expect("the folder opens");
    let spec = ModelSpec::from_files(&files).expect("the folder has settings");
    let refused = gguf_export(&files, &spec).map(|_| ()).expect_err("GGUF has no form for it");
    assert!(refused.to_string().contains("rope_interleave"), "{refused}");
    let tokens = [5, 6, 7, 8];
    assert_ne!(run(folder.path(), &tokens, WAYS[0]), run(&fixture("deepseek-v3"), &tokens, WAYS[0]));
}

/// GGUF files from before the absorbed form have keys and values in one tensor, not turned.
#[test]
fn keys_and_values_in_one_tensor() {
    let (folder, scratch) = (fixture("deepseek-v3-blocks"), tempfile::tempdir().expect("a temporary folder"));
    let path = scratch.path().join("old.gguf");
    write_gguf(&path, &in_one_tensor(&folder));
    check_against(&folder, &path);
}

#[test]
fn quantised_latents_give_the_same_bits_in_every_way() {
    let (folder, scratch) = (fixture("deepseek-v3-blocks"), tempfile::tempdir().expect("a temporary folder"));
    let tokens: Vec<u32> = (0..40).map(|at| at * 37 % 96).collect();
    for (name, exported) in [("new", export(&folder)), ("old", in_one_tensor(&folder))] {
        let path = scratch.path().join(format!("{name}.gguf"));
        write_gguf(&path, &quantised(exported));
        let first = run(&path, &tokens, WAYS[0]);
        assert!(first.iter().flatten().all(|logit| logit.is_finite()), "{name}");
        check_bits(name, &path, &tokens, &first);
    }
}

/// The export of a folder as it would have been before the absorbed form.
fn in_one_tensor(folder: &Path) -> Exported {
    let mut exported = export(folder);
    exported.settings.retain(|(key, _)| !key.ends_with("_mla"));
    for (key, value) in &mut exported.settings {
        match key.rsplit('.').next() {
            Some("key_length") => *value = MetadataValue::U32(KEY_ROWS + ROTATED),
            Some("value_length") => *value = MetadataValue::U32(VALUE_ROWS),
            _ => {}
        }
    }
    let files = ModelFiles::open(folder).expect("the fixture opens");
    for tensor in exported.tensors.iter_mut().filter(|tensor| tensor.name.ends_with("attn_k_b.weight")) {
        let layer = tensor.name.split('.').nth(1).expect("the number of a layer");
        let stored = files.require(&format!("model.layers.{layer}.self_attn.kv_b_proj.weight")).expect("its tensor");
        assert_eq!(stored.shape()[0], HEADS * u64::from(KEY_ROWS + VALUE_ROWS));
        tensor.name = format!("blk.{layer}.attn_kv_b.weight");
        (tensor.shape, tensor.bytes) = (stored.shape().to_vec(), stored.bytes().as_ref().to_vec());
    }
    exported.tensors.retain(|tensor| !tensor.name.ends_with("attn_v_b.weight"));
    exported
}

/// The same model with its matrices in blocks of eight bits.
fn quantised(mut exported: Exported) -> Exported {
    let matrices = exported.tensors.iter_mut().filter(|tensor| tensor.shape.len() > 1);
    for ExportedTensor { name, dtype, shape, bytes } in matrices {
        let mut values = vec![0.0; shape.iter().product::<u64>() as usize];
        decode_row(*dtype, bytes, &mut values);
        *dtype = Dtype::Q8_0;
        *bytes = vec![0; values.len() / 32 * 34];
        quantize(*dtype, &values, None, bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    exported
}
