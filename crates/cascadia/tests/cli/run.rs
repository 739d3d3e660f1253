//! `cascadia run`: text from the embedded model, the same text every time.

use std::io::Read;
use std::process::{Command, Stdio};

use crate::program::{cascadia, fixture, json, run};

#[test]
fn the_model_inside_the_program_writes_text() {
    let done = cascadia(&["run", "-p", "Tell me about a harbour at night.", "-n", "24", "--seed", "3"]);
    assert_eq!(done.code, 0, "{}", done.stderr);
    assert!(done.stdout.split_whitespace().count() >= 5, "{}", done.stdout);
    assert!(done.stderr.contains("tok/s") && done.stderr.contains("seed 3"), "{}", done.stderr);
    assert!(done.stderr.contains("toy") && done.stderr.contains("cascadia run smollm2"), "{}", done.stderr);
    assert_eq!(done.stderr.lines().count(), 2, "{}", done.stderr);
}

#[test]
fn json_is_one_object_with_every_field() {
    let done = cascadia(&["run", "-p", "Hello", "-n", "8", "--seed", "5", "--json"]);
    assert!(done.stderr.is_empty(), "{}", done.stderr);
    let object = json(&done);
    assert!(object["text"].as_str().is_some_and(|text| !text.is_empty()));
    assert_eq!(object["seed"], 5);
    assert!(object["tokens"].as_u64().is_some_and(|tokens| (1..=8).contains(&tokens)));
    assert!(["stop", "length"].contains(&object["finish_reason"].as_str().unwrap()));
    for field in ["prompt_tokens", "prefill_tok_s", "decode_tok_s"] {
        assert!(object[field].as_f64().is_some_and(|number| number > 0.0), "{field}: {object}");
    }
}

#[test]
fn the_same_seed_gives_the_same_text_on_any_number_of_threads() {
    let text = |seed: &str, threads: &str| {
        let done = cascadia(&["run", "-p", "The sea", "-n", "32", "--seed", seed, "--threads", threads, "--json"]);
        json(&done)["text"].as_str().unwrap().to_owned()
    };
    let first = text("1", "1");
    assert_eq!(text("1", "1"), first);
    assert_eq!(text("1", "2"), first);
    assert_eq!(text("1", "5"), first);
    assert_ne!(text("2", "1"), first);
}

#[test]
fn greedy_needs_no_seed() {
    let text = || json(&cascadia(&["run", "--raw", "-p", "Once upon", "-n", "12", "--temp", "0", "--json"]));
    assert_eq!(text()["text"], text()["text"]);
}

#[test]
fn standard_input_is_the_prompt_when_it_is_no_terminal() {
    let program = || Command::new(env!("CARGO_BIN_EXE_cascadia"));
    let arguments = ["run", "-n", "8", "--seed", "1", "--json"];
    let piped = json(&run(program().args(arguments), "The sea\n"));
    let given = json(&run(program().args(arguments).args(["-p", "The sea"]), ""));
    assert_eq!(piped["text"], given["text"]);
    let nothing = run(program().args(arguments), "");
    assert_eq!(nothing.code, 2, "{}", nothing.stderr);
    assert!(nothing.stderr.contains("prompt"), "{}", nothing.stderr);
}

#[test]
fn system_raw_and_stop_change_the_answer() {
    let text = |more: &[&str]| {
        let arguments = [&["run", "-p", "Tell me of the sea", "-n", "24", "--temp", "0", "--json"], more].concat();
        json(&cascadia(&arguments))
    };
    let plain = text(&[]);
    assert_ne!(text(&["--system", "You are a lighthouse."])["prompt_tokens"], plain["prompt_tokens"]);
    assert_ne!(text(&["--raw"])["prompt_tokens"], plain["prompt_tokens"]);
    let answer = plain["text"].as_str().unwrap();
    let stop: String = answer.chars().skip(10).take(3).collect();
    let stopped = text(&["--stop", &stop]);
    assert_eq!(stopped["text"].as_str(), answer.split(&stop).next());
    assert_eq!(stopped["finish_reason"], "stop");
}

#[test]
fn a_reader_that_leaves_early_is_no_failure() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_cascadia"))
        .args(["inspect", &fixture("llama3-gguf/model.gguf")])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut complaint = String::new();
    child.stderr.take().unwrap().read_to_string(&mut complaint).unwrap();
    assert!(child.wait().unwrap().success(), "{complaint}");
    assert!(complaint.is_empty(), "{complaint}");
}

#[test]
fn shells_and_manuals_know_all_commands() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let done = cascadia(&["completions", shell]);
        assert!(done.code == 0 && done.stdout.contains("keep-alive"), "{shell}: {}", done.stderr);
    }
    let folder = tempfile::tempdir().expect("a folder");
    let pages = folder.path().join("man1");
    let done = cascadia(&["man", pages.to_str().expect("a UTF-8 path")]);
    assert_eq!(done.code, 0, "{}", done.stderr);
    for page in ["cascadia.1", "cascadia-serve.1", "cascadia-keys-new.1"] {
        let text = std::fs::read_to_string(pages.join(page)).expect(page);
        assert!(text.contains(".SH NAME"), "{page}");
    }
}

#[test]
fn more_threads_than_processors_are_remarked() {
    let done = cascadia(&["run", "-p", "Hello", "-n", "1", "--threads", "500"]);
    assert!(done.code == 0 && done.stderr.contains("--threads 500 is more than the"), "{}", done.stderr);
}
