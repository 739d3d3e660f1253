//! Commands that write a model replace nothing that they were not told to replace.

use std::fs;
use std::path::Path;

use crate::program::{Done, cascadia, fixture, json};

fn check_refused(done: &Done, words: &[&str]) {
    assert_eq!(done.code, 1, "{}", done.stderr);
    for word in words {
        assert!(done.stderr.contains(word), "`{word}` is not in: {}", done.stderr);
    }
}

/// Names in a folder, also hidden ones.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn quantize_replaces_files_only_by_force_and_never_its_input() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (out, model) = (path("out.gguf"), fixture("llama3"));
    fs::write(&out, "something else").unwrap();
    for kind in [&["--type", "q8_0"][..], &["--type", "q8_0", "--packed"]] {
        check_refused(&cascadia(&[&["quantize", &model, &out], kind].concat()), &["out.gguf", "--force"]);
        assert_eq!(fs::read_to_string(&out).unwrap(), "something else");
    }
    json(&cascadia(&["quantize", &model, &out, "--type", "f16", "--force", "--json"]));
    let written = fs::read(&out).unwrap();
    let aside = folder.path().join(".").join("out.gguf");
    for own in [out.as_str(), aside.to_str().unwrap()] {
        check_refused(&cascadia(&["quantize", &out, own, "--type", "q8_0", "--force"]), &["out.gguf", "read"]);
        check_refused(&cascadia(&["eval", "logits", &out, "--tokens", "1", "--out", own]), &["out.gguf", "read"]);
    }
    assert_eq!(fs::read(&out).unwrap(), written);
    json(&cascadia(&["quantize", &out, &path("packed.gguf"), "--type", "q8_0", "--packed", "--json"]));
    assert_eq!(names(folder.path()), ["out.gguf", "packed.gguf"]);
}

#[test]
fn export_replaces_another_export_only_by_force() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("shards");
    let export = |precision: &str, extra: &[&str]| {
        let command = ["export", &fixture("llama3"), "--stages", "2", "--out", out.to_str().unwrap()];
        cascadia(&[&command[..], &["--precision", precision], extra].concat())
    };
    assert_eq!((export("keep", &[]).code, export("keep", &[]).code), (0, 0), "the same again is no other");
    let manifest = fs::read(out.join("manifest.json")).unwrap();
    check_refused(&export("int4", &[]), &["token-io.gguf", "--force"]);
    assert_eq!(fs::read(out.join("manifest.json")).unwrap(), manifest);
    assert_eq!(export("int4", &["--force"]).code, 0);
    assert_ne!(fs::read(out.join("manifest.json")).unwrap(), manifest);
    assert_eq!(names(&out), ["export.json", "manifest.json", "stage-0.gguf", "stage-1.gguf", "token-io.gguf"]);
}
