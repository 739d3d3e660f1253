//! Paths that lead to models, and what is said about those that do not.

use std::path::Path;

use cascadia_weights::{FileKind, MemoryAdvice, ModelFiles};
use tempfile::TempDir;

use crate::raw_gguf::RawGguf;
use crate::raw_safetensors::RawSafetensors;

fn folder(files: &[(&str, &[u8])]) -> TempDir {
    let folder = TempDir::new().unwrap();
    files.iter().for_each(|(name, bytes)| std::fs::write(folder.path().join(name), bytes).unwrap());
    folder
}

fn check_error(path: &Path, parts: &[&str]) {
    let message = ModelFiles::open(path).expect_err(&format!("expected {parts:?}")).to_string();
    assert!(message.contains(&path.display().to_string()), "{message}");
    parts.iter().for_each(|part| assert!(message.contains(part), "{part:?} is not in: {message}"));
}

#[test]
fn what_is_no_model_is_told_apart() {
    let gguf = RawGguf::seed().bytes();
    let safetensors = RawSafetensors::seed().bytes();
    let stray =
        folder(&[("empty.gguf", b""), ("text.gguf", b"hello, world"), ("x-00001-of-00002.safetensors", &safetensors)]);
    check_error(&stray.path().join("nowhere"), &["does not exist", "org/name"]);
    check_error(&stray.path().join("empty.gguf"), &["is empty", "fetch the file again"]);
    check_error(&stray.path().join("text.gguf"), &["neither GGUF nor safetensors", "give a .gguf"]);
    check_error(&stray.path().join("x-00001-of-00002.safetensors"), &["one shard", "give the folder"]);
    check_error(stray.path(), &["holds 2 .gguf files", "give the path of one"]);
    check_error(folder(&[]).path(), &["holds no model", "give the folder of a downloaded model"]);
    check_error(folder(&[("config.json", b"{}")]).path(), &["holds no model"]);
    check_error(folder(&[("pytorch_model.bin", b"x")]).path(), &["PyTorch weights", "safetensors version"]);
    check_error(folder(&[("model.safetensors", &safetensors)]).path(), &["no config.json", "download config.json"]);
    let only = folder(&[("only.gguf", &gguf), ("README.md", b"hi")]);
    let files = ModelFiles::open(only.path()).unwrap();
    assert_eq!((files.kind(), files.path()), (FileKind::Gguf, only.path().join("only.gguf").as_path()));
}

/// Opening a pipe would wait for ever; it is refused without being opened.
#[cfg(unix)]
#[test]
fn a_pipe_is_no_model() {
    let folder = folder(&[("model.safetensors", &RawSafetensors::seed().bytes())]);
    let pipe = |name: &str| {
        let path = folder.path().join(name);
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        path
    };
    check_error(&pipe("pipe.gguf"), &["is not a regular file", "give the path of a .gguf"]);
    pipe("config.json");
    let message = ModelFiles::open(folder.path()).unwrap_err().to_string();
    assert!(message.contains("config.json: type: is not a regular file"), "{message}");
}

#[test]
fn a_mapped_file_and_its_bytes_are_the_same_model() {
    let bytes: &'static [u8] = RawGguf::seed().bytes().leak();
    let folder = folder(&[("model.gguf", bytes)]);
    let mapped = ModelFiles::open(&folder.path().join("model.gguf")).unwrap();
    let embedded = ModelFiles::from_static("embedded", bytes).unwrap();
    assert_eq!(embedded.path(), Path::new("embedded"));
    assert_eq!(mapped.metadata().entries(), embedded.metadata().entries());
    for (left, right) in mapped.tensors().iter().zip(embedded.tensors()) {
        assert_eq!((left.name(), left.dtype(), left.shape()), (right.name(), right.dtype(), right.shape()));
        assert_eq!(left.bytes().as_ref(), right.bytes().as_ref());
    }
    for advice in [MemoryAdvice::WillNeed, MemoryAdvice::Sequential, MemoryAdvice::Random] {
        mapped.advise(advice).unwrap();
        embedded.advise(advice).unwrap();
    }
    assert_eq!(embedded.json("config.json").unwrap(), None);
}

#[test]
fn bytes_outlive_the_model_they_come_from() {
    let folder = folder(&[("model.gguf", &RawGguf::seed().bytes())]);
    let files = ModelFiles::open(folder.path()).unwrap();
    let bytes = files.require("output.weight").unwrap().bytes();
    drop(files);
    assert_eq!(std::thread::spawn(move || bytes.as_ref()[0]).join().unwrap(), 32);
}
