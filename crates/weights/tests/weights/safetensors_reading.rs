//! Safetensors files and folders as they should be.

use cascadia_kernels::Dtype;
use cascadia_weights::{FileKind, ModelFiles};
use tempfile::TempDir;

use crate::raw_safetensors::RawSafetensors;

#[test]
fn tensors_are_sorted_by_position_and_the_unusable_are_explained() {
    let files = RawSafetensors::seed().open().unwrap();
    assert_eq!(files.kind(), FileKind::HuggingFace);
    let names: Vec<&str> = files.tensors().iter().map(|tensor| tensor.name()).collect();
    assert_eq!(names, ["a", "b"]);
    let b = files.require("b").unwrap();
    assert_eq!((b.dtype(), b.shape(), b.byte_len()), (Dtype::BF16, &[3][..], 6));
    assert_eq!(b.bytes().as_ref(), (16..22).collect::<Vec<u8>>());
    assert!(files.tensor("ids").is_none());
    let message = files.require("ids").unwrap_err().to_string();
    assert_eq!(
        message,
        "test.safetensors: tensor `ids`: is stored as I64, which cannot be computed with; convert it to F32, F16 or BF16"
    );
    assert!(files.metadata().entries().is_empty());
}

#[test]
fn scalars_have_no_dimensions_and_empty_tensors_are_set_aside() {
    let header = concat!(
        r#"{"scalar":{"dtype":"F32","shape":[],"data_offsets":[0,4]},"#,
        r#""empty":{"dtype":"F32","shape":[0,3],"data_offsets":[4,4]}}"#
    );
    let files = RawSafetensors::new(header, 4).open().unwrap();
    assert_eq!(files.require("scalar").unwrap().shape(), &[] as &[u64]);
    assert!(files.require("empty").unwrap_err().to_string().contains("has no elements (shape [0, 3])"));
}

#[test]
fn missing_tensors_come_with_close_names() {
    let header = r#"{"model.layers.0.mlp.up_proj.weight":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#;
    let files = RawSafetensors::new(header, 4).open().unwrap();
    let message = files.require("model.layers.0.mlp.up_proj.bias").unwrap_err().to_string();
    assert!(message.contains("`model.layers.0.mlp.up_proj.bias` is missing"), "{message}");
    assert!(message.contains("(close names: model.layers.0.mlp.up_proj.weight)"), "{message}");
    assert!(!files.require("rope.freqs").unwrap_err().to_string().contains("close names"));
}

#[test]
fn one_file_finds_what_lies_beside_it() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("model.safetensors");
    std::fs::write(&path, RawSafetensors::seed().bytes()).unwrap();
    std::fs::write(folder.path().join("config.json"), r#"{"model_type":"llama"}"#).unwrap();
    std::fs::write(folder.path().join("chat_template.jinja"), "{{ messages }}").unwrap();
    for path in [path.as_path(), folder.path()] {
        let files = ModelFiles::open(path).unwrap();
        assert_eq!(files.json("config.json").unwrap().unwrap()["model_type"], "llama");
        assert_eq!(files.text("chat_template.jinja").unwrap().as_deref(), Some("{{ messages }}"));
        assert_eq!(files.text("tokenizer.json").unwrap(), None);
        files.check_intact().unwrap();
    }
}
