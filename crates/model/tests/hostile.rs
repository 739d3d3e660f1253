//! Files that contradict themselves: an error that names the file and the field, or a model that runs; never a panic.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cascadia_kernels::Pool;
use cascadia_model::{
    CachePages, Hidden, LoadOptions, ModelError, ModelLimits, ModelSpec, ReservedPages, StepPlan, load,
};
use cascadia_weights::gguf::write::{Outline, TensorEntry, write};
use cascadia_weights::{MetadataValue, ModelFiles, WeightsError};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name)
}

/// Loads what lies at `path` and runs one step of it.
fn run(path: &Path) -> Result<(), ModelError> {
    let files = Arc::new(ModelFiles::open(path)?);
    let options =
        LoadOptions::new(ModelLimits::one_sequence(&ModelSpec::from_files(&files)?, 64, 4), Arc::new(Pool::new(1)));
    let mut model = load(&files, &options)?;
    let mut plan = StepPlan::default();
    plan.add(0, 0, [0, 1], ReservedPages::new(0, CachePages::full(1).with_window(1)).runs(2));
    let mut hidden = Hidden::default();
    model.token_io.embed(&plan, &mut hidden).expect("two tokens that every fixture has");
    model.stages.iter().for_each(|stage| stage.run(&plan, &mut hidden).expect("a step inside the limits"));
    model.token_io.logits(&plan, &hidden, &[0, 1], &mut Vec::new()).expect("both rows");
    Ok(())
}

/// The parts of a GGUF file, to be changed and written again.
struct Parts {
    source: ModelFiles,
    metadata: Vec<(String, MetadataValue)>,
    tensors: Vec<TensorEntry>,
}

impl Parts {
    fn read() -> Parts {
        let source = ModelFiles::open(&fixture("llama3-gguf/model.gguf")).expect("the fixture opens");
        let metadata = source.metadata().entries().to_vec();
        let entry = |tensor: &cascadia_weights::Tensor| TensorEntry {
            name: tensor.name().to_owned(),
            dtype: tensor.dtype(),
            shape: tensor.shape().to_vec(),
        };
        let tensors = source.tensors().iter().map(entry).collect();
        Parts { source, metadata, tensors }
    }

    /// Writes the parts and runs the result; an error must name the file and one of `fields`.
    fn check(&self, fields: &[&str]) -> Result<(), ModelError> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("changed.gguf");
        let outline = Outline { metadata: &self.metadata, tensors: &self.tensors };
        write::<WeightsError, _>(&path, outline, |index, sink| {
            let bytes = self.source.require(&self.tensors[index].name)?.bytes();
            let wanted = sink.left() as usize;
            sink.write(&bytes.as_ref()[..wanted.min(bytes.as_ref().len())])?;
            sink.write(&vec![0; sink.left() as usize])
        })
        .expect("the file is written");
        let outcome = run(&path);
        if let Err(error) = &outcome {
            let message = error.to_string();
            assert!(message.contains("changed.gguf"), "no file in: {message}");
            assert!(fields.iter().any(|field| message.contains(field)), "none of {fields:?} in: {message}");
        }
        outcome
    }
}

#[test]
fn the_unchanged_parts_run() {
    Parts::read().check(&[]).expect("nothing was changed");
}

#[test]
fn missing_tensors_are_named() {
    let complete = Parts::read();
    for index in 0..complete.tensors.len() {
        let mut parts = Parts::read();
        let gone = parts.tensors.remove(index).name;
        // Without an output matrix a model is tied, without divisors its positions are not scaled.
        let optional = ["output.weight", "rope_freqs.weight"].contains(&gone.as_str());
        assert_eq!(parts.check(&[&gone]).is_ok(), optional, "{gone}");
    }
}

#[test]
fn wrong_shapes_are_named() {
    let complete = Parts::read();
    for index in 0..complete.tensors.len() {
        let wrong: [fn(&mut Vec<u64>); 4] =
            [|shape| shape[0] -= 1, |shape| shape[0] += 1, |shape| shape.push(1), |shape| shape.insert(0, 1)];
        for change in wrong {
            let mut parts = Parts::read();
            change(&mut parts.tensors[index].shape);
            let name = parts.tensors[index].name.clone();
            // A vocabulary of another size is only noticed where it meets the other end.
            assert!(parts.check(&[&name, "output.weight"]).is_err(), "{name} {:?}", parts.tensors[index].shape);
        }
    }
}

#[test]
fn absurd_settings_are_named() {
    let values = [
        MetadataValue::U32(0),
        MetadataValue::U32(1),
        MetadataValue::U32(3),
        MetadataValue::U32(u32::MAX),
        MetadataValue::U64(u64::MAX),
        MetadataValue::I32(-1),
        MetadataValue::F32(f32::NAN),
        MetadataValue::F32(-1.0),
        MetadataValue::F32(f32::INFINITY),
        MetadataValue::F32(0.0),
        MetadataValue::Bool(true),
        MetadataValue::String((*b"thirty-two").into()),
    ];
    let complete = Parts::read();
    let keys: Vec<String> = complete.metadata.iter().map(|(key, _)| key.clone()).collect();
    let mut refused = 0;
    for (index, key) in
        keys.iter().enumerate().filter(|(_, key)| key.starts_with("llama.") || key.starts_with("general."))
    {
        for value in values.iter().cloned().map(Some).chain([None]) {
            let mut parts = Parts::read();
            match value {
                Some(value) => parts.metadata[index].1 = value,
                None => drop(parts.metadata.remove(index)),
            }
            // A count that contradicts the tensors shows up as a shape or as a tensor that is not there.
            refused += usize::from(parts.check(&[key, "tensor `", "architecture", "changed.gguf: setting `"]).is_err());
        }
    }
    assert!(refused > 60, "only {refused} absurd settings were refused");
}

#[test]
fn absurd_configurations_are_named() {
    for name in ["llama2", "deepseek-v3", "gemma3n", "gemma4", "gemma4-moe"] {
        check_configurations(name);
    }
}

fn check_configurations(name: &str) {
    let config = fs::read_to_string(fixture(&format!("{name}/config.json"))).expect("the fixture");
    let original: serde_json::Value = serde_json::from_str(&config).expect("JSON");
    let values = [
        serde_json::json!(null),
        serde_json::json!(0),
        serde_json::json!(-1),
        serde_json::json!(3),
        serde_json::json!(1e300),
        serde_json::json!(u64::MAX),
        serde_json::json!("text"),
        serde_json::json!([1, 2]),
        serde_json::json!({"rope_type": "unheard-of", "factor": 0}),
        serde_json::json!({"rope_type": "llama3", "factor": "four"}),
        serde_json::json!({"rope_type": "yarn", "factor": 1e30, "original_max_position_embeddings": 1e30}),
        serde_json::json!({"rope_type": "yarn", "factor": 1e-30, "original_max_position_embeddings": 1}),
        serde_json::json!({"rope_type": "dynamic", "factor": 1e30}),
        serde_json::json!({"rope_type": "longrope", "short_factor": [1, 2], "long_factor": [0]}),
        serde_json::json!({"full_attention": {"rope_type": "proportional", "partial_rotary_factor": 1e300}}),
        serde_json::json!({"2": {"head_dim": u64::MAX, "num_key_value_heads": 0}}),
        serde_json::json!(true),
    ];
    let folder = tempfile::tempdir().expect("a temporary folder");
    let weights = fixture(&format!("{name}/model.safetensors"));
    fs::copy(weights, folder.path().join("model.safetensors")).expect("a copy");
    let check = |config: &serde_json::Value, key: &str| {
        fs::write(folder.path().join("config.json"), config.to_string()).expect("written");
        let outcome = run(folder.path());
        if let Err(error) = &outcome {
            let message = error.to_string();
            let place = folder.path().file_name().expect("a name").to_string_lossy().into_owned();
            assert!(message.contains(&place), "no folder in: {message}");
            let fields = [key, "tensor `", "architecture", "num_", "rope_", "group", "layer_types"];
            let named = fields.iter().any(|field| message.contains(field));
            assert!(named, "{key} is not in: {message}");
        }
        outcome.is_ok()
    };
    assert!(check(&original, ""));
    let mut keys: Vec<String> = original.as_object().expect("an object").keys().cloned().collect();
    keys.extend(
        ["rope_scaling", "rope_parameters", "per_layer_config", "sliding_window", "head_dim"].map(str::to_owned),
    );
    for key in &keys {
        for value in &values {
            let mut config = original.clone();
            config[key] = value.clone();
            check(&config, key);
        }
    }
    for whole in ["", "[]", "null", "{", "{\"model_type\": 7}"] {
        fs::write(folder.path().join("config.json"), whole).expect("written");
        assert!(run(folder.path()).is_err(), "config.json: {whole}");
    }
}
