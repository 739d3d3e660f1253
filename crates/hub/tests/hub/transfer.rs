//! What happens to files, tokens and the cache while a model is fetched.

use std::fs::File;
use std::time::Duration;

use cascadia_weights::ModelFiles;
use tempfile::TempDir;

use crate::fetching::{quantized, run, run_with};
use crate::hub_server::{HubServer, Repository};
use crate::raw_gguf::RawGguf;

const FILE: &str = "m-Q4_K_M.gguf";

/// A hub that keeps the file on another server and tags it with its SHA-256.
fn stored_at(server: &HubServer) -> Repository {
    let digest = ring::digest::digest(&ring::digest::SHA256, &quantized().files[FILE]);
    let tag = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    Repository { storage: Some((server.endpoint.clone(), tag)), ..quantized() }
}

/// Large files lie on another server, which has no business with the token.
#[test]
fn the_token_goes_to_the_hub_only() {
    let storage = HubServer::start(quantized());
    let hub = HubServer::start(stored_at(&storage));
    let cache = TempDir::new().unwrap();
    let path = run("org/name", &hub.endpoint, cache.path()).path.unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), quantized().files[FILE]);
    let tokens =
        |server: &HubServer| server.requests().into_iter().map(|request| request.authorization).collect::<Vec<_>>();
    assert!(tokens(&hub).iter().all(|token| token.as_deref() == Some("Bearer secret")));
    assert_eq!(tokens(&storage), [None]);
    // The blob is called by its SHA-256, and nothing is left beside it.
    let blobs = cache.path().join("models--org--name/blobs");
    let names: Vec<_> =
        blobs.read_dir().unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(names.len(), 1, "{names:?}");
    assert_eq!(names[0].len(), 64);
    // Where nobody may make symbolic links, it has two names.
    if cfg!(unix) {
        assert_eq!(blobs.join(&names[0]).canonicalize().unwrap(), path.canonicalize().unwrap());
    }
}

#[test]
fn content_that_is_not_what_the_tag_says_is_thrown_away() {
    let length = quantized().files[FILE].len();
    let storage = HubServer::start(Repository { damage: Some(vec![7; length].leak()), ..quantized() });
    let hub = HubServer::start(stored_at(&storage));
    let cache = TempDir::new().unwrap();
    let message = run("org/name", &hub.endpoint, cache.path()).path.unwrap_err();
    assert!(message.contains("what arrived has SHA-256") && message.contains(FILE), "{message}");
    let whole = HubServer::start(quantized());
    let hub = HubServer::start(stored_at(&whole));
    run("org/name", &hub.endpoint, cache.path()).path.unwrap();
    assert_eq!(whole.ranges_of(FILE), ["bytes=0-"], "nothing of the damaged file was kept");
}

/// A server that sends everything again, and one that sends too much.
#[test]
fn lengths_are_compared() {
    let (ignores_range, cuts) = (Some(FILE), Some((FILE, vec![100_000])));
    let (server, cache) =
        (HubServer::start(Repository { ignores_range, cuts, ..quantized() }), TempDir::new().unwrap());
    let path = run("org/name", &server.endpoint, cache.path()).path.unwrap();
    assert_eq!(std::fs::read(path).unwrap(), quantized().files[FILE]);
    let length = quantized().files[FILE].len();
    let storage = HubServer::start(Repository { damage: Some(vec![7; length + 1].leak()), ..quantized() });
    let hub = HubServer::start(stored_at(&storage));
    let message = run("org/name", &hub.endpoint, TempDir::new().unwrap().path()).path.unwrap_err();
    assert!(message.contains(&format!("more than the {length} bytes")), "{message}");
}

/// A server that falls silent is left, and the file continued where it was.
#[test]
fn silence_is_not_waited_out() {
    let stalls = Some((FILE, 1));
    let (server, cache) = (HubServer::start(Repository { stalls, ..quantized() }), TempDir::new().unwrap());
    // Short for a test, long for a server on the same machine.
    let timeout = Duration::from_secs(5);
    let path = run_with(timeout, "org/name", &server.endpoint, cache.path()).path.unwrap();
    assert_eq!(std::fs::read(path).unwrap(), quantized().files[FILE]);
    let half = quantized().files[FILE].len() / 2;
    assert_eq!(server.ranges_of(FILE), ["bytes=0-".to_owned(), format!("bytes={half}-")]);
}

#[test]
fn all_parts_of_a_split_model_are_fetched() {
    let part = |number: u16| {
        let keys = RawGguf::new().key("split.no", 2, &number.to_le_bytes()).key("split.count", 2, &2u16.to_le_bytes());
        let keys = keys.key("split.tensors.count", 5, &2i32.to_le_bytes());
        keys.tensor(&format!("w{number}"), &[8], 0, 0).data(32).bytes()
    };
    let files = [("Q4_0/m-00001-of-00002.gguf", part(0)), ("Q4_0/m-00002-of-00002.gguf", part(1))];
    let (server, cache) =
        (HubServer::start(Repository { files: files.into(), ..Repository::default() }), TempDir::new().unwrap());
    for expected_requests in [5, 5] {
        let path = run("org/name:Q4_0", &server.endpoint, cache.path()).path.unwrap();
        assert_eq!(ModelFiles::open(&path).unwrap().tensors().len(), 2);
        assert_eq!(server.requests().len(), expected_requests, "a list, two questions, two files; then none");
    }
}

/// What other tools have put into the cache is used without asking anybody, wherever the cache was moved.
#[cfg(unix)]
#[test]
fn a_cache_that_others_filled_is_used() {
    use std::path::Path;

    use crate::hub_server::COMMIT;

    let cache = TempDir::new().unwrap();
    let repository = cache.path().join("models--org--name");
    let snapshot = repository.join("snapshots").join(COMMIT);
    for folder in ["blobs", "refs"] {
        std::fs::create_dir_all(repository.join(folder)).unwrap();
    }
    std::fs::create_dir_all(&snapshot).unwrap();
    std::fs::write(repository.join("refs/main"), COMMIT).unwrap();
    std::fs::write(repository.join("blobs/abc"), RawGguf::seed().bytes()).unwrap();
    std::os::unix::fs::symlink(Path::new("../../blobs/abc"), snapshot.join("m-Q8_0.gguf")).unwrap();
    assert_eq!(run("org/name", "http://127.0.0.1:1", cache.path()).path, Ok(snapshot.join("m-Q8_0.gguf")));

    // And ours looks the same: a relative link.
    let (server, cache) = (HubServer::start(quantized()), TempDir::new().unwrap());
    let path = run("org/name", &server.endpoint, cache.path()).path.unwrap();
    assert_eq!(std::fs::read_link(path).unwrap(), Path::new("../../blobs/tag-m-Q4_K_M.gguf"));
}

#[test]
fn a_file_that_another_program_fetches_is_left_to_it() {
    let (server, cache) = (HubServer::start(quantized()), TempDir::new().unwrap());
    let blobs = cache.path().join("models--org--name/blobs");
    std::fs::create_dir_all(&blobs).unwrap();
    let partial = File::create(blobs.join("tag-m-Q4_K_M.gguf.incomplete")).unwrap();
    partial.lock().unwrap();
    let message = run("org/name", &server.endpoint, cache.path()).path.unwrap_err();
    assert!(message.contains("another program is downloading it"), "{message}");
    drop(partial);
    run("org/name", &server.endpoint, cache.path()).path.unwrap();
}
