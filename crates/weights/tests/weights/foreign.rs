//! Files made by other people's programs; `tests/data/make.py` made them.

use std::path::{Path, PathBuf};

use cascadia_weights::{FileKind, ModelFiles, StringArray};
use serde_json::Value;

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// Every tensor of `name` is exactly what `expected.json` says, and there are no others.
fn check_tensors(name: &str) -> ModelFiles {
    let files = ModelFiles::open(&data(name)).unwrap();
    let text = std::fs::read_to_string(data("expected.json")).unwrap();
    let expected: Value = serde_json::from_str(&text).unwrap();
    let expected = expected[name].as_object().unwrap();
    assert_eq!(files.tensors().len(), expected.len());
    for (tensor_name, tensor) in expected {
        let found = files.require(tensor_name).unwrap();
        assert_eq!(found.dtype().name(), tensor["dtype"], "{tensor_name}");
        assert_eq!(Value::from(found.shape()), tensor["shape"], "{tensor_name}");
        let hex: String = found.bytes().as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, tensor["bytes"].as_str().unwrap(), "{tensor_name}");
    }
    files
}

#[test]
fn gguf_by_gguf_py() {
    let files = check_tensors("foreign.gguf");
    let metadata = files.metadata();
    assert_eq!(files.kind(), FileKind::Gguf);
    assert_eq!(metadata.require::<&str>("general.architecture").unwrap(), "llama");
    assert_eq!(metadata.require::<u32>("llama.block_count").unwrap(), 2);
    assert_eq!(metadata.require::<f32>("llama.attention.layer_norm_rms_epsilon").unwrap(), 1e-5);
    assert!(metadata.require::<bool>("tokenizer.ggml.add_bos_token").unwrap());
    let tokens = metadata.require::<&StringArray>("tokenizer.ggml.tokens").unwrap();
    assert_eq!((tokens.len(), tokens.get(1), tokens.get(202)), (203, Some(&b"\xff\xfe"[..]), Some(&b"token199"[..])));
    assert_eq!(metadata.require::<Vec<f32>>("tokenizer.ggml.scores").unwrap()[3], 1.5);
    assert_eq!(metadata.require::<Vec<i32>>("tokenizer.ggml.token_type").unwrap()[..3], [3, 6, 1]);
    assert_eq!(metadata.require::<Vec<&str>>("tokenizer.ggml.merges").unwrap(), ["t o", "k e", "n n"]);
}

/// The folder as a whole and each part of it are the same model.
#[test]
fn parts_by_gguf_py() {
    let whole = check_tensors("split");
    assert_eq!(whole.metadata().require::<u32>("llama.block_count").unwrap(), 5);
    let names = |files: &ModelFiles| files.tensors().iter().map(|tensor| tensor.name().to_owned()).collect::<Vec<_>>();
    for number in 1..=3 {
        let part = ModelFiles::open(&data(&format!("split/tiny-0000{number}-of-00003.gguf"))).unwrap();
        assert_eq!((names(&part), part.metadata().entries()), (names(&whole), whole.metadata().entries()));
    }
}

#[test]
fn shards_by_the_python_package() {
    let files = check_tensors("sharded");
    assert_eq!(files.kind(), FileKind::HuggingFace);
    assert_eq!(files.json("config.json").unwrap().unwrap()["hidden_size"], 8);
    assert!(files.require("model.mask").unwrap_err().to_string().contains("is stored as BOOL"));
    let shards: Vec<_> = files.tensors().iter().map(|tensor| tensor.file().file_name().unwrap()).collect();
    assert!(shards.is_sorted(), "{shards:?}");
}
