//! `--type`: a model that is quantised when it is opened answers as one that was quantised before.

use std::path::Path;
use std::process::Command;

use crate::program::{Done, fixture, json, run};

fn cascadia(cache: &Path, arguments: &[&str]) -> Done {
    run(Command::new(env!("CARGO_BIN_EXE_cascadia")).args(arguments).env("XDG_CACHE_HOME", cache), "")
}

#[test]
fn a_model_is_quantised_on_the_way_and_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let (cache, out) = (folder.path().join("cache"), folder.path().join("offline.gguf"));
    let (model, out) = (fixture("llama3"), out.to_str().expect("a UTF-8 path"));
    let answer = |model: &str, kind: &[&str]| {
        let arguments = ["run", model, "--raw", "-p", "A ship", "-n", "12", "--temp", "0", "--json"];
        json(&cascadia(&cache, &[&arguments, kind].concat()))["text"].clone()
    };
    assert_eq!(cascadia(&cache, &["quantize", &model, out, "--type", "q4_0"]).code, 0);
    assert!(!cache.join("cascadia").exists());
    assert_eq!(answer(&model, &["--type", "q4_0"]), answer(out, &[]));
    let kept = || -> Vec<_> {
        let folders = std::fs::read_dir(cache.join("cascadia/quantised")).expect("a folder of models");
        folders.map(|entry| entry.expect("an entry").path().join("llama3-q4_0.gguf")).collect()
    };
    let first = kept();
    assert_eq!(std::fs::read(&first[0]).expect("the kept file"), std::fs::read(out).expect("the other"));
    let bench = cascadia(&cache, &["bench", &model, "--type", "Q4_0", "--prompt", "8", "--gen", "2", "--json"]);
    assert_eq!(json(&bench)["gen"], 2);
    assert_eq!(kept(), first);
}

#[test]
fn a_type_that_does_not_exist_is_wrong_usage() {
    let folder = tempfile::tempdir().expect("a folder");
    for command in [&["run", "-p", "x"][..], &["serve", "--port", "0"]] {
        let done = cascadia(folder.path(), &[command, &["--type", "q4_kk"]].concat());
        assert_eq!(done.code, 2, "{}", done.stderr);
        assert!(done.stderr.contains("q4_kk") && done.stderr.contains("q4_k_m"), "{}", done.stderr);
    }
}
