//! Wrong usage and broken files: the exit code, and a message that suggestions.

use std::fs;

use crate::program::{Done, cascadia, fixture};

/// The run failed with this code, said all of these words on standard error, and printed nothing.
fn check(done: &Done, code: i32, words: &[&str]) {
    assert_eq!(done.code, code, "{}", done.stderr);
    assert!(done.stdout.is_empty(), "{}", done.stdout);
    for word in words {
        assert!(done.stderr.contains(word), "`{word}` is not in: {}", done.stderr);
    }
    assert!(!done.stderr.contains("panicked") && !done.stderr.contains("RUST_BACKTRACE"), "{}", done.stderr);
}

#[test]
fn wrong_usage_exits_with_two() {
    let model = fixture("llama3");
    let cases: [(&[&str], &[&str]); 12] = [
        (&["run", "--nonsense"], &["--nonsense"]),
        (&["nonsense"], &["nonsense"]),
        (&["inspect"], &["MODEL"]),
        (&["run", &model, "-p", "x", "--temp", "-1"], &["temperature", "-1"]),
        (&["run", &model, "-p", "x", "--temp", "nan"], &["temperature", "NaN"]),
        (&["run", &model, "-p", "x", "--top-p", "0"], &["top_p", "above 0"]),
        (&["run", &model, "-p", "x", "--min-p", "2"], &["min_p"]),
        (&["run", &model, "-p", ""], &["prompt", "empty"]),
        (&["run", &model, "--raw", "--system", "x", "-p", "x"], &["--system"]),
        (&["run", &model, "-p", "x", "--ctx", "1000"], &["context", "1000", "256"]),
        (&["eval", "logits", &model, "--tokens", "1,x", "--out", "a.npy"], &["--tokens", "x"]),
        (&["quantize", &model, "out.gguf", "--type", "nonsense"], &["nonsense", "q8_0"]),
    ];
    for (arguments, words) in cases {
        check(&cascadia(arguments), 2, words);
    }
    assert_eq!(cascadia(&[]).code, 2);
}

#[test]
fn files_that_are_no_models_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("empty.gguf"), "").unwrap();
    fs::write(path("text.gguf"), "this is no model at all, only some text").unwrap();
    fs::create_dir(path("folder")).unwrap();
    let whole = fs::read(fixture("llama3-gguf/model.gguf")).unwrap();
    for (name, length) in [("header.gguf", 300), ("half.gguf", whole.len() / 2), ("almost.gguf", whole.len() - 1)] {
        fs::write(path(name), &whole[..length]).unwrap();
    }
    let names = ["absent.gguf", "empty.gguf", "text.gguf", "folder", "header.gguf", "half.gguf", "almost.gguf"];
    let text = fixture("README.md");
    for name in names {
        let model = path(name);
        check(&cascadia(&["run", &model, "-p", "x"]), 1, &[name]);
        check(&cascadia(&["inspect", &model, "--json"]), 1, &[name]);
        check(&cascadia(&["bench", &model]), 1, &[name]);
        check(&cascadia(&["eval", "perplexity", &model, "--text", &text]), 1, &[name]);
        check(&cascadia(&["eval", "logits", &model, "--tokens", "1", "--out", &path("out.npy")]), 1, &[name]);
        check(&cascadia(&["quantize", &model, &path("out.gguf"), "--type", "q8_0"]), 1, &[name]);
    }
    assert!(!folder.path().join("out.npy").exists() && !folder.path().join("out.gguf").exists());
}

#[test]
fn what_a_command_lacks_is_named() {
    let model = fixture("llama3");
    check(&cascadia(&["eval", "perplexity", &model, "--text", "absent.txt"]), 1, &["absent.txt"]);
    let bare = fixture("llama2");
    check(&cascadia(&["run", &bare, "-p", "x"]), 1, &["llama2", "tokenizer.json"]);
    check(&cascadia(&["eval", "logits", &model, "--tokens", "1,999", "--out", "absent/a.npy"]), 1, &["999", "288"]);
    check(&cascadia(&["eval", "logits", &model, "--tokens", "1", "--out", "absent/a.npy"]), 1, &["absent/a.npy"]);
    let long = "word ".repeat(500);
    check(&cascadia(&["run", &model, "-p", &long]), 1, &["256", "context"]);
}
