//! `--kernels`: what is measured once is shown, and commands that multiply no weights do not accept it.

use std::path::Path;
use std::process::Command;

use crate::live::MODEL;
use crate::program::{Done, json, run};

fn cascadia(cache: &Path, arguments: &[&str]) -> Done {
    run(Command::new(env!("CARGO_BIN_EXE_cascadia")).args(arguments).env("XDG_CACHE_HOME", cache), "")
}

#[test]
fn inspect_shows_what_was_measured() {
    let folder = tempfile::tempdir().expect("a folder");
    let (cache, model) = (folder.path().join("cache"), folder.path().join("model.gguf"));
    let model = model.to_str().expect("a UTF-8 path");
    assert_eq!(cascadia(&cache, &["quantize", MODEL, model, "--type", "q8_0"]).code, 0);
    let kernels = || json(&cascadia(&cache, &["inspect", model, "--json"]))["kernels"].clone();
    let kind = "Q8_0 1536x512 rows";
    assert_eq!(kernels()[kind], serde_json::json!([]));
    let short = cascadia(&cache, &["inspect", model]).stdout;
    assert!(short.lines().count() <= 10 && short.contains("Q8_0 (") && short.contains("runs here      yes"), "{short}");
    let report = cascadia(&cache, &["inspect", model, "--verbose"]).stdout;
    assert!(report.contains(kind) && report.contains("not measured on this machine yet"), "{report}");
    assert!(!cache.join("cascadia").exists(), "inspect measures nothing");

    let arguments = ["run", model, "--raw", "-p", "A ship", "-n", "1", "--seed", "1", "--threads", "2"];
    assert_eq!(cascadia(&cache, &arguments).code, 0);
    let measured = kernels()[kind].clone();
    assert_eq!((measured[0]["threads"].as_u64(), measured.as_array().map(Vec::len)), (Some(2), Some(1)), "{measured}");
    let report = cascadia(&cache, &["inspect", model, "-v"]).stdout;
    let shown = format!("{} (2 threads, ", measured[0]["reading"].as_str().expect("a way"));
    assert!(report.contains(&shown), "{shown} {report}");
}

#[test]
fn commands_without_a_choice_do_not_offer_one() {
    for command in [&["quantize"], &["export"], &["plan"], ["bench", "machine"].as_slice()] {
        let help = cascadia(Path::new(""), &[command, &["--help"]].concat()).stdout;
        assert!(help.contains("--threads") && !help.contains("--kernels"), "{help}");
    }
    for command in [&["run"], &["serve"], &["bench"], ["worker", "start"].as_slice()] {
        let help = cascadia(Path::new(""), &[command, &["--help"]].concat()).stdout;
        assert!(help.contains("--threads") && help.contains("--kernels"), "{help}");
    }
}
