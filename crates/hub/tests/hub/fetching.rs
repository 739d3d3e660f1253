//! Fetching models from a hub that the test itself runs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cascadia_hub::{DEFAULT_TIMEOUT, HubModel, HubOptions, Network, fetch};
use cascadia_weights::{FileKind, ModelFiles};
use tempfile::TempDir;

use crate::hub_server::{COMMIT, HubServer, Repository};
use crate::raw_gguf::RawGguf;
use crate::raw_safetensors::RawSafetensors;

/// A run of `fetch`: its result and the last report on each file.
pub(crate) struct Fetched {
    pub(crate) path: Result<PathBuf, String>,
    pub(crate) reports: BTreeMap<String, (u64, u64)>,
}

pub(crate) fn run(name: &str, endpoint: &str, cache: &Path) -> Fetched {
    run_with(DEFAULT_TIMEOUT, name, endpoint, cache)
}

pub(crate) fn run_with(timeout: Duration, name: &str, endpoint: &str, cache: &Path) -> Fetched {
    let (endpoint, token, cache) = (endpoint.to_owned(), Some("secret".to_owned()), cache.to_owned());
    let options = HubOptions { endpoint, token, timeout, cache, network: Network::Online };
    let mut reports = BTreeMap::new();
    let path = fetch(&HubModel::parse(name).unwrap(), &options, &mut |progress| {
        reports.insert(progress.file.to_owned(), (progress.done, progress.total));
    });
    Fetched { path: path.map_err(|error| error.to_string()), reports }
}

pub(crate) fn sharded() -> Repository {
    let shard = RawSafetensors::seed().bytes();
    let index = r#"{"weight_map":{"a":"model-1.safetensors","b":"model-1.safetensors","ids":"model-1.safetensors","mask":"model-1.safetensors"}}"#;
    let files = [
        ("README.md", b"hello".to_vec()),
        ("config.json", b"{}".to_vec()),
        ("tokenizer.json", b"{\"a\":1}".to_vec()),
        ("model.safetensors.index.json", index.into()),
        ("model-1.safetensors", shard),
    ];
    Repository { files: files.into(), ..Repository::default() }
}

pub(crate) fn quantized() -> Repository {
    let big = RawGguf::new().tensor("w", &[64, 1000], 0, 0).data(256_000);
    let files = [("m-Q4_K_M.gguf", big.bytes()), ("m-Q8_0.gguf", RawGguf::seed().bytes())];
    Repository { files: files.into(), ..Repository::default() }
}

#[test]
fn a_sharded_model_is_fetched_once() {
    let (server, cache) = (HubServer::start(sharded()), TempDir::new().unwrap());
    let first = run("org/name", &server.endpoint, cache.path());
    let path = first.path.unwrap();
    assert_eq!(path, cache.path().join("models--org--name/snapshots").join(COMMIT));
    let files = ModelFiles::open(&path).unwrap();
    assert_eq!(files.kind(), FileKind::HuggingFace);
    assert_eq!(files.text("tokenizer.json").unwrap().as_deref(), Some("{\"a\":1}"));
    assert!(!path.join("README.md").exists());
    let size = RawSafetensors::seed().bytes().len() as u64;
    assert_eq!(first.reports["model-1.safetensors"], (size, size));
    assert!(server.requests().iter().all(|request| request.authorization.as_deref() == Some("Bearer secret")));

    let asked = server.requests().len();
    let second = run("org/name", &server.endpoint, cache.path());
    assert_eq!((second.path, second.reports.len()), (Ok(path), 0));
    assert_eq!(server.requests().len(), asked, "a model in the cache needs no network");
}

#[test]
fn gguf_files_are_chosen_by_name_or_rank() {
    let (server, cache) = (HubServer::start(quantized()), TempDir::new().unwrap());
    let check = |name: &str, file: &str| {
        let path = run(name, &server.endpoint, cache.path()).path.unwrap();
        assert_eq!(path.file_name().unwrap(), file);
        assert_eq!(ModelFiles::open(&path).unwrap().kind(), FileKind::Gguf);
    };
    check("org/name:q8_0", "m-Q8_0.gguf");
    check("org/name/m-Q4_K_M.gguf", "m-Q4_K_M.gguf");
    check("org/name", "m-Q4_K_M.gguf");
    let message = run("org/name:Q2_K", &server.endpoint, cache.path()).path.unwrap_err();
    assert!(
        message.contains("`org/name:Q2_K`") && message.contains("there are m-Q4_K_M.gguf, m-Q8_0.gguf"),
        "{message}"
    );
}

/// A transfer that breaks is continued at once, at the byte where it broke.
#[test]
fn a_broken_transfer_continues() {
    let cuts = Some(("m-Q4_K_M.gguf", vec![100_000]));
    let (server, cache) = (HubServer::start(Repository { cuts, ..quantized() }), TempDir::new().unwrap());
    let fetched = run("org/name", &server.endpoint, cache.path());
    let path = fetched.path.unwrap();
    assert_eq!(server.ranges_of("m-Q4_K_M.gguf"), ["bytes=0-", "bytes=100000-"]);
    assert_eq!(std::fs::read(path).unwrap(), quantized().files["m-Q4_K_M.gguf"]);
    let total = quantized().files["m-Q4_K_M.gguf"].len() as u64;
    assert_eq!(fetched.reports["m-Q4_K_M.gguf"], (total, total));
}

/// A run that was given up leaves no model, and the next run needs only the rest.
#[test]
fn a_later_run_continues_an_earlier_one() {
    let cuts = Some(("m-Q4_K_M.gguf", vec![60_000, 0, 0, 0, 0]));
    let (server, cache) = (HubServer::start(Repository { cuts, ..quantized() }), TempDir::new().unwrap());
    let message = run("org/name", &server.endpoint, cache.path()).path.unwrap_err();
    assert!(
        message.contains("for `m-Q4_K_M.gguf`") && message.contains("run the command again to continue"),
        "{message}"
    );
    let path = run("org/name", &server.endpoint, cache.path()).path.unwrap();
    assert_eq!(server.ranges_of("m-Q4_K_M.gguf").last().unwrap(), "bytes=60000-");
    assert_eq!(std::fs::read(path).unwrap(), quantized().files["m-Q4_K_M.gguf"]);
}

#[test]
fn refusals_say_what_to_do() {
    for (status, parts) in [
        (401, ["status 401", "set HF_TOKEN"]),
        (403, ["status 403", "accept the model's licence"]),
        (404, ["status 404", "check the spelling of the name"]),
        (503, ["status 503", "try again in a few minutes"]),
    ] {
        let server = HubServer::start(Repository { status: Some(status), ..quantized() });
        let message = run("org/name", &server.endpoint, TempDir::new().unwrap().path()).path.unwrap_err();
        assert!(message.starts_with(&format!("cannot fetch `org/name` from {}", server.endpoint)), "{message}");
        parts.iter().for_each(|part| assert!(message.contains(part), "{part:?} is not in: {message}"));
    }
    // Port 1 of this machine: nobody listens there.
    let message = run("org/name", "http://127.0.0.1:1", TempDir::new().unwrap().path()).path.unwrap_err();
    assert!(message.contains("check the network connection"), "{message}");
    let message = run("org/name", "no address", TempDir::new().unwrap().path()).path.unwrap_err();
    assert!(message.contains("HF_ENDPOINT"), "{message}");
}

#[test]
fn servers_that_make_no_sense_are_not_believed() {
    let check = |repository: Repository, part: &str| {
        let (server, cache) = (HubServer::start(repository), TempDir::new().unwrap());
        let message = run("org/name", &server.endpoint, cache.path()).path.unwrap_err();
        assert!(message.contains(part), "{message}");
        assert!(!cache.path().join("models--org--name/refs/main").exists());
    };
    check(Repository { commit: Some("../../evil"), ..quantized() }, "is no commit");
    check(Repository { commit: Some("ffffffffffffffffffffffffffffffffffffffff"), ..quantized() }, "another commit");
    check(Repository { circles: true, ..quantized() }, "redirects more than 8 times");
    check(Repository { files: [("model.bin", vec![1])].into(), ..Repository::default() }, "neither safetensors");
}
