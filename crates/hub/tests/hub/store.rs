//! Models by name: from whichever source works, found again, checked and deleted.

use std::fs;
use std::path::{Path, PathBuf};

use cascadia_hub::{Catalogue, DEFAULT_TIMEOUT, HubError, HubOptions, Network, Place, Pulled, Store, StoredModel};
use tempfile::TempDir;

use crate::fetching::{quantized, sharded};
use crate::hub_server::{HubServer, Repository};
use crate::raw_gguf::RawGguf;

/// Port 1 of this machine: nobody listens there.
pub(crate) const NOWHERE: &str = "http://127.0.0.1:1";

/// A machine with folders of its own.
pub(crate) struct Machine {
    pub(crate) folder: TempDir,
    pub(crate) store: Store,
}

impl Machine {
    pub(crate) fn new(endpoint: &str) -> Machine {
        let folder = TempDir::new().unwrap();
        let at = |name: &str| folder.path().join(name);
        let hub = HubOptions {
            endpoint: endpoint.to_owned(),
            token: None,
            timeout: DEFAULT_TIMEOUT,
            cache: at("hub"),
            network: Network::Online,
        };
        let (ollama, python) = (Some(at("ollama")), at("python-that-does-not-exist"));
        let store =
            Store { hub, folder: at("models"), ollama, python, memory: Some(16_000_000_000), catalogue: catalogue() };
        Machine { folder, store }
    }

    pub(crate) fn pull(&self, name: &str) -> Result<(StoredModel, Pulled), String> {
        self.store.pull(name, &mut |_| ()).map_err(|error| error.to_string())
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.store.list().into_iter().map(|model| model.name).collect()
    }

    fn find(&self, name: &str) -> Option<StoredModel> {
        self.store.find(name).unwrap()
    }

    /// The same machine without a network.
    fn offline(&self) -> Store {
        let hub = HubOptions { network: Network::Offline, endpoint: NOWHERE.to_owned(), ..self.store.hub.clone() };
        Store { hub, ..self.store.clone() }
    }
}

fn catalogue() -> Catalogue {
    let text = r#"
        [models."tiny:1b"]
        parameters = 1
        quantizations = ["Q4_K_M", "Q8_0"]
        sources = [{ hub = "org/name" }]
        [models."folder:1b"]
        quantizations = []
        sources = [{ hub = "org/name" }]
    "#;
    Catalogue::default().with(text).unwrap()
}

/// Makes Ollama's files for a model, and returns the blob.
fn ollama_model(folder: &Path, manifest: &str, content: &[u8]) -> PathBuf {
    let digest: String =
        ring::digest::digest(&ring::digest::SHA256, content).as_ref().iter().map(|b| format!("{b:02x}")).collect();
    let (manifest, blob) = (folder.join("manifests").join(manifest), folder.join(format!("blobs/sha256-{digest}")));
    [&manifest, &blob].into_iter().for_each(|path| fs::create_dir_all(path.parent().unwrap()).unwrap());
    let layer = |kind: &str| serde_json::json!({ "mediaType": format!("application/vnd.ollama.image.{kind}"), "digest": format!("sha256:{digest}") });
    let text = serde_json::json!({ "schemaVersion": 2, "layers": [layer("template"), layer("model")] });
    fs::write(manifest, text.to_string()).unwrap();
    fs::write(&blob, content).unwrap();
    blob
}

#[test]
fn short_names_are_fetched_once_and_found_by_all_their_names() {
    let server = HubServer::start(quantized());
    let machine = Machine::new(&server.endpoint);
    assert_eq!(machine.find("tiny"), None);
    let (model, pulled) = machine.pull("tiny").unwrap();
    assert_eq!((model.name.as_str(), pulled), ("tiny:1b-q4_k_m", Pulled::Fetched));
    assert_eq!(model.place, Place::HubCache("org/name".to_owned()));
    assert_eq!(fs::read(&model.path).unwrap(), quantized().files["m-Q4_K_M.gguf"]);
    let asked = server.requests().len();
    for name in [
        "tiny",
        "tiny:1b",
        "TINY:1B-Q4_K_M",
        "tiny:1b-instruct-q4_K_M",
        "tiny:latest",
        "org/name",
        "hf.co/org/name:Q4_K_M",
    ] {
        assert_eq!(machine.find(name).unwrap().path, model.path, "{name}");
        assert_eq!(machine.offline().get(name, &mut |_| ()).unwrap().path, model.path, "{name}");
    }
    assert_eq!(machine.find("org/name:Q4_K_M").unwrap().name, "org/name:Q4_K_M");
    assert_eq!(machine.pull("tiny").unwrap(), (model, Pulled::Whole));
    assert_eq!(server.requests().len(), asked, "what is stored needs no network");
    assert_eq!(machine.find("tiny:1b-q8_0"), None);
}

#[test]
fn any_stored_size_will_do_where_the_name_leaves_it_open_but_a_pull_wants_the_best() {
    let server = HubServer::start(quantized());
    let machine = Machine::new(&server.endpoint);
    let (eight, _) = machine.pull("tiny:1b-q8_0").unwrap();
    assert_eq!(machine.find("tiny"), Some(eight));
    assert_eq!(machine.pull("tiny").unwrap().0.name, "tiny:1b-q4_k_m");
    assert_eq!(machine.find("tiny").unwrap().name, "tiny:1b-q4_k_m");
    // A machine with little memory prefers what is small.
    let small = Store { memory: Some(1_000_000_000), ..machine.store.clone() };
    assert_eq!(small.offer("tiny").unwrap().name, "tiny:1b-q4_k_m");
    assert_eq!(small.offer("tiny:q8_0").unwrap().sources, ["hub org/name:Q8_0"]);
}

#[test]
fn everything_is_listed_by_the_name_that_runs_it() {
    let server = HubServer::start(quantized());
    let machine = Machine::new(&server.endpoint);
    machine.pull("tiny").unwrap();
    machine.pull("org/name:Q8_0").unwrap();
    ollama_model(&machine.folder.path().join("ollama"), "registry.ollama.ai/library/llama3.2/3b", b"GGUF 1");
    assert_eq!(machine.names(), ["tiny:1b-q4_k_m", "tiny:1b-q8_0", "llama3.2:3b"]);
    for model in machine.store.list() {
        assert_eq!(machine.find(&model.name).unwrap().path, model.path);
        assert!(model.bytes() > 0 && model.modified().is_some());
    }
    let server = HubServer::start(sharded());
    let machine = Machine::new(&server.endpoint);
    machine.pull("folder").unwrap();
    assert_eq!(machine.names(), ["folder:1b"]);
    assert_eq!(machine.find("org/name").unwrap().path, machine.find("folder").unwrap().path);
    // One whose weights are missing is no model.
    fs::remove_file(machine.find("folder").unwrap().path.join("model-1.safetensors")).unwrap();
    assert!(machine.names().is_empty());
}

#[test]
fn outlines_of_short_names_fetch_no_weights() {
    let server = HubServer::start(quantized());
    let machine = Machine::new(&server.endpoint);
    let outline = machine.store.outline("tiny", machine.folder.path()).unwrap();
    assert_eq!(cascadia_weights::ModelFiles::open(&outline).unwrap().tensors().len(), 1);
    assert!(machine.names().is_empty() && outline.ends_with("m-Q4_K_M.gguf"));
    let stored = machine.pull("tiny").unwrap().0;
    assert_eq!(machine.store.outline("tiny", machine.folder.path()).unwrap(), stored.path);
}

#[test]
fn offline_is_said_with_what_to_do() {
    let machine = Machine::new(NOWHERE);
    for name in ["tiny", "org/name"] {
        let message = machine.offline().get(name, &mut |_| ()).unwrap_err().to_string();
        assert!(message.contains("is not stored") && message.contains("cascadia pull "), "{message}");
    }
    let error = machine.store.get("tiny", &mut |_| ()).unwrap_err();
    assert!(error.is_unreachable() && error.to_string().contains("tiny:1b-q4_k_m"), "{error}");
    let refusing = HubServer::start(Repository { status: Some(404), ..quantized() });
    let error = Machine::new(&refusing.endpoint).store.get("tiny", &mut |_| ()).unwrap_err();
    assert!(!error.is_unreachable(), "{error}");
    let error = machine.store.get("tini", &mut |_| ()).unwrap_err();
    assert!(error.to_string().contains("did you mean tiny?"), "{error}");
}

/// The content is called by its digest, and a link says which it is.
#[cfg(unix)]
#[test]
fn damage_is_found_and_repaired() {
    let tag = |file: &str| {
        ring::digest::digest(&ring::digest::SHA256, &quantized().files[file])
            .as_ref()
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect()
    };
    let storage = HubServer::start(quantized());
    let hub =
        HubServer::start(Repository { storage: Some((storage.endpoint.clone(), tag("m-Q4_K_M.gguf"))), ..quantized() });
    let machine = Machine::new(&hub.endpoint);
    let (model, _) = machine.pull("tiny").unwrap();
    let mut content = fs::read(&model.path).unwrap();
    content[5000] ^= 1;
    fs::write(model.path.canonicalize().unwrap(), content).unwrap();
    assert_eq!(machine.pull("tiny").unwrap(), (model.clone(), Pulled::Repaired));
    assert_eq!(fs::read(&model.path).unwrap(), quantized().files["m-Q4_K_M.gguf"]);
    assert_eq!(machine.pull("tiny").unwrap().1, Pulled::Whole);
}

#[test]
fn what_is_deleted_takes_its_content_along_and_nothing_else() {
    let server = HubServer::start(quantized());
    let machine = Machine::new(&server.endpoint);
    let four = machine.pull("tiny:1b-q4_k_m").unwrap().0;
    let eight = machine.pull("tiny:1b-q8_0").unwrap().0;
    let content = four.path.canonicalize().unwrap();
    machine.store.remove(&four).unwrap();
    assert!(!content.exists() && !four.path.exists() && eight.path.exists());
    machine.store.remove(&eight).unwrap();
    assert!(!machine.folder.path().join("hub/models--org--name").exists(), "nothing is left of the repository");
    assert!(machine.names().is_empty());
}

/// A link that somebody made to a file of their own: the file is theirs.
#[cfg(unix)]
#[test]
fn content_outside_the_cache_is_not_deleted() {
    use crate::hub_server::COMMIT;

    let machine = Machine::new(NOWHERE);
    let repository = machine.folder.path().join("hub/models--org--name");
    let (snapshot, own) = (repository.join("snapshots").join(COMMIT), machine.folder.path().join("own.gguf"));
    [snapshot.clone(), repository.join("blobs"), repository.join("refs")]
        .into_iter()
        .for_each(|folder| fs::create_dir_all(folder).unwrap());
    fs::write(repository.join("refs/main"), COMMIT).unwrap();
    fs::write(&own, RawGguf::seed().bytes()).unwrap();
    std::os::unix::fs::symlink(&own, snapshot.join("m-Q8_0.gguf")).unwrap();
    machine.store.remove(&machine.find("tiny:1b-q8_0").unwrap()).unwrap();
    assert!(own.exists() && !snapshot.exists());
}

#[test]
fn models_of_ollama_are_used_where_they_are() {
    let machine = Machine::new(NOWHERE);
    let folder = machine.folder.path().join("ollama");
    let seed = RawGguf::seed().bytes();
    let blob = ollama_model(&folder, "registry.ollama.ai/library/llama3.2/latest", &seed);
    ollama_model(&folder, "registry.ollama.ai/anna/llama3.2/1b", b"GGUF 1");
    ollama_model(&folder, "hf.co/org/other/Q4_K_M", b"GGUF 2");
    ollama_model(&folder, "registry.ollama.ai/library/tiny/1b", b"GGUF 3");
    let names = ["hf.co/org/other:Q4_K_M", "anna/llama3.2:1b", "llama3.2:latest", "tiny:1b"];
    assert_eq!(machine.names(), names);
    for name in names.into_iter().chain(["llama3.2", "LLAMA3.2"]) {
        let model = machine.find(name).unwrap_or_else(|| panic!("{name}"));
        assert_eq!(model.place, Place::Ollama, "{name}");
    }
    let model = machine.find("llama3.2").unwrap();
    assert_eq!(model.path, blob);
    assert_eq!(cascadia_weights::ModelFiles::open(&model.path).unwrap().kind(), cascadia_weights::FileKind::Gguf);
    let refused = machine.store.remove(&model).unwrap_err();
    assert!(matches!(refused, HubError::NotOurs { .. }) && refused.to_string().contains("ollama rm llama3.2:latest"));
    assert!(blob.exists());
    // Manifests that make no sense, or lead out of the folder, stand for nothing.
    let manifests = folder.join("manifests/registry.ollama.ai/library/bad");
    fs::create_dir_all(&manifests).unwrap();
    let layer = |digest: &str| {
        format!(r#"{{"layers": [{{"mediaType": "application/vnd.ollama.image.model", "digest": "{digest}"}}]}}"#)
    };
    let texts = [
        "",
        "[]",
        "{\"layers\": 3}",
        &layer("sha256:../../etc"),
        &layer("12"),
        &layer(&format!("sha256:{}", "0".repeat(64))),
    ];
    texts.iter().enumerate().for_each(|(tag, text)| fs::write(manifests.join(tag.to_string()), text).unwrap());
    assert_eq!(machine.names(), names);
}
