//! `org/name`: through the whole program against a hub on a local port.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::hub_server::{HubServer, Repository};
use crate::program::{Done, fixture, json, run};

fn repository() -> Repository {
    let files = ["config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"];
    let read = |name| (name, fs::read(Path::new(&fixture("qwen2")).join(name)).unwrap());
    Repository { files: files.into_iter().map(read).collect::<BTreeMap<_, _>>(), ..Repository::default() }
}

fn ask(server: &HubServer, home: &Path, model: &str) -> Done {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cascadia"));
    command.args(["run", model, "--raw", "-p", "Hello", "-n", "4", "--seed", "1", "--json"]);
    command.env("HF_ENDPOINT", &server.endpoint).env("HF_HOME", home).env("HF_TOKEN", "secret");
    run(&mut command, "")
}

#[test]
fn a_model_is_fetched_once_and_then_used_from_the_cache() {
    let (server, home) = (HubServer::start(repository()), tempfile::tempdir().unwrap());
    let first = json(&ask(&server, home.path(), "org/name"));
    assert_eq!(first["tokens"], 4);
    assert!(server.requests().iter().all(|request| request.authorization.as_deref() == Some("Bearer secret")));
    assert_eq!(server.ranges_of("config.json").len(), 1);
    assert!(home.path().join("hub/models--org--name").is_dir());
    let asked = server.requests().len();
    let second = json(&ask(&server, home.path(), "org/name"));
    assert_eq!(second["text"], first["text"]);
    assert_eq!(server.requests().len(), asked, "the second run needs no network");
}

#[test]
fn a_hub_that_refuses_is_explained() {
    for (status, word) in [(401, "org/name"), (404, "org/name"), (500, "org/name")] {
        let server = HubServer::start(Repository { status: Some(status), ..repository() });
        let done = ask(&server, tempfile::tempdir().unwrap().path(), "org/name");
        assert_eq!(done.code, 1, "{}", done.stderr);
        assert!(done.stderr.contains(word) && done.stderr.contains(&server.endpoint), "{}", done.stderr);
        assert!(done.stdout.is_empty());
    }
}

#[test]
fn a_plan_needs_no_weights() {
    let (server, home) = (HubServer::start(repository()), tempfile::tempdir().unwrap());
    let plan = |model: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cascadia"));
        command.args(["plan", model, "--home"]).arg(home.path());
        command.args(["--nodes", "16G@20G", "--threads", "1", "--json"]);
        command.env("HF_ENDPOINT", &server.endpoint).env("HF_HOME", home.path());
        json(&run(&mut command, ""))["plan"]["stages"].clone()
    };
    let (far, near) = (plan("org/name"), plan(&fixture("qwen2")));
    assert_eq!((&far[0]["bytes"], &far[0]["layers"]), (&near[0]["bytes"], &near[0]["layers"]));
    assert!(!home.path().join("hub").exists(), "nothing is kept of a model that was only planned");
}
