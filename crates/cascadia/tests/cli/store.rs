//! Models by name: through the whole program against a hub on a local port.

use std::fs;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::hub_server::{HubServer, Repository};
use crate::program::{Done, fixture, json, run};

/// Port 1 of this machine: nobody listens there.
const NOWHERE: &str = "http://127.0.0.1:1";

/// A machine on which nothing is stored, whose catalogue has one model of one file.
fn machine() -> TempDir {
    let home = tempfile::tempdir().unwrap();
    fs::create_dir_all(home.path().join("config/cascadia")).unwrap();
    let catalogue = r#"
        [models."tiny:1b"]
        licence = "Apache-2.0"
        quantizations = ["F32"]
        sources = [{ hub = "org/name" }]
    "#;
    fs::write(home.path().join("config/cascadia/models.toml"), catalogue).unwrap();
    home
}

fn hub() -> HubServer {
    let file = fs::read(fixture("llama3-gguf/model.gguf")).unwrap();
    HubServer::start(Repository { files: [("m-F32.gguf", file)].into(), ..Repository::default() })
}

fn ask(home: &TempDir, endpoint: &str, arguments: &[&str]) -> Done {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cascadia"));
    command.args(arguments).env("HF_ENDPOINT", endpoint).env_remove("HF_HUB_OFFLINE");
    for (name, folder) in
        [("HF_HOME", "hf"), ("XDG_CACHE_HOME", "cache"), ("XDG_CONFIG_HOME", "config"), ("OLLAMA_MODELS", "ollama")]
    {
        command.env(name, home.path().join(folder));
    }
    run(&mut command, "")
}

fn told(done: &Done, code: i32, parts: &[&str]) {
    assert_eq!(done.code, code, "{}", done.stderr);
    let all = format!("{}{}", done.stdout, done.stderr);
    parts.iter().for_each(|part| assert!(all.contains(part), "{part:?} is not in: {all}"));
}

#[test]
fn a_short_name_is_fetched_listed_shown_run_and_deleted() {
    let (home, server) = (machine(), hub());
    told(&ask(&home, NOWHERE, &["list"]), 0, &["No models are stored", "cascadia pull smollm2"]);
    told(&ask(&home, NOWHERE, &["show", "tiny"]), 0, &["tiny:1b-f32", "stored        no", "hub org/name:F32"]);
    told(
        &ask(&home, &server.endpoint, &["pull", "tiny"]),
        0,
        &["tiny:1b-f32", "is stored now", "cascadia run tiny:1b-f32"],
    );
    told(&ask(&home, NOWHERE, &["pull", "tiny"]), 0, &["is stored already, and whole"]);
    told(&ask(&home, NOWHERE, &["list"]), 0, &["NAME", "tiny:1b-f32", "GGUF F32", "hub org/name", "just now"]);
    let listed = json(&ask(&home, NOWHERE, &["list", "--json"]));
    let path = listed["models"][0]["path"].as_str().unwrap().to_owned();
    assert_eq!(
        (&listed["models"][0]["name"], fs::metadata(&path).unwrap().is_file()),
        (&Value::from("tiny:1b-f32"), true)
    );
    let shown = ask(&home, NOWHERE, &["show", "tiny"]);
    told(
        &shown,
        0,
        &["architecture  llama", "licence       Apache-2.0", "quantisation  F32", "template", "with a context of"],
    );
    assert!((9..=12).contains(&shown.stdout.lines().count()), "{}", shown.stdout);

    // The prompt may follow the model, in one word or in several.
    let answer = |arguments: &[&str]| {
        json(&ask(&home, NOWHERE, &[arguments, &["--raw", "-n", "4", "--temp", "0", "--json"]].concat()))
    };
    let one = answer(&["run", "tiny", "Hello there"]);
    assert_eq!(
        (&one["model"], &one["note"], &one["tokens"]),
        (&Value::from("tiny:1b-f32"), &Value::Null, &Value::from(4))
    );
    assert_eq!(answer(&["run", "tiny", "Hello", "there"])["text"], one["text"]);
    assert_eq!(answer(&["run", "tiny", "-p", "Hello there", "--offline"])["text"], one["text"]);
    told(&ask(&home, NOWHERE, &["run", "tiny", "Hello", "-p", "there"]), 2, &["cannot be used with"]);

    told(&ask(&home, NOWHERE, &["rm", "tiny"]), 2, &["cache of all Hugging Face tools", "--force"]);
    told(&ask(&home, NOWHERE, &["rm", "tiny", "--force"]), 0, &["was deleted"]);
    assert!(!fs::exists(path).unwrap());
    told(&ask(&home, NOWHERE, &["rm", "tiny", "--force"]), 1, &["is not stored", "cascadia list"]);
}

#[test]
fn the_built_in_model_stands_in_where_nobody_answers() {
    let home = machine();
    let done = ask(&home, NOWHERE, &["run", "tiny", "Hello", "-n", "4", "--seed", "1"]);
    told(
        &done,
        0,
        &["tiny:1b-f32 cannot be fetched now: no answer from http://127.0.0.1:1", "toy", "cascadia run smollm2"],
    );
    assert_eq!(done.stderr.lines().count(), 3, "{}", done.stderr);
    let object = json(&ask(&home, NOWHERE, &["run", "tiny", "Hello", "-n", "4", "--json"]));
    assert_eq!(object["model"], "rainier-33m-q4_k_m");
    assert!(object["note"].as_str().is_some_and(|note| note.contains("toy")));

    // Not where somebody answers, for a model that was named in full, without a network, or for other commands.
    let refusing = HubServer::start(Repository { status: Some(404), ..Repository::default() });
    told(&ask(&home, &refusing.endpoint, &["run", "tiny", "Hello"]), 1, &["no such model or file"]);
    told(&ask(&home, NOWHERE, &["run", "org/name", "Hello"]), 1, &["cannot fetch `org/name`"]);
    told(
        &ask(&home, NOWHERE, &["run", "tiny", "Hello", "--offline"]),
        1,
        &["is not stored", "cascadia pull tiny:1b-f32"],
    );
    told(&ask(&home, NOWHERE, &["pull", "tiny"]), 1, &["cannot fetch `tiny:1b-f32`"]);
    told(&ask(&home, NOWHERE, &["inspect", "tiny"]), 1, &["cannot fetch"]);
}

#[test]
fn names_that_do_not_exist_are_explained() {
    let home = machine();
    told(
        &ask(&home, NOWHERE, &["run", "tinny", "Hello"]),
        1,
        &["no model is called `tinny` (did you mean tiny?)", "list --catalogue"],
    );
    told(&ask(&home, NOWHERE, &["run", "smolm2", "Hello"]), 1, &["did you mean smollm2"]);
    told(&ask(&home, NOWHERE, &["run", "missing.gguf", "Hello"]), 1, &["there is no file or folder `missing.gguf`"]);
    told(
        &ask(&home, NOWHERE, &["list", "--catalogue"]),
        0,
        &["tiny:1b-f32", "qwen3:4b-", "llama3.2:1b-", "Apache-2.0"],
    );
    fs::write(home.path().join("config/cascadia/models.toml"), "[models.\"tiny\"]").unwrap();
    told(&ask(&home, NOWHERE, &["list"]), 1, &["models.toml", "missing field `sources`"]);
}

#[test]
fn a_server_says_what_it_has_loaded() {
    let answers = vec![("/api/ps", r#"{"models": [{"name": "tiny:1b", "size": 98000000, "context_length": 4096}]}"#)];
    let server = HubServer::start(Repository { answers, ..Repository::default() });
    let done = ask(&machine(), NOWHERE, &["ps", "--url", &server.endpoint, "--key", "secret"]);
    told(&done, 0, &["NAME", "tiny:1b", "98 MB", "4096"]);
    assert_eq!(server.requests()[0].authorization.as_deref(), Some("Bearer secret"));
    told(
        &ask(&machine(), NOWHERE, &["ps", "--url", NOWHERE]),
        1,
        &["no answer from http://127.0.0.1:1", "cascadia serve"],
    );
}
