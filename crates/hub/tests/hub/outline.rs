//! A model on the hub can be looked at without its weights.

use cascadia_hub::{DEFAULT_TIMEOUT, HubModel, HubOptions, Network, outline};
use cascadia_weights::{ModelFiles, Tensor};
use tempfile::TempDir;

use crate::fetching::{quantized, run, sharded};
use crate::hub_server::{HubServer, Repository};
use crate::raw_gguf::{RawGguf, string};

/// Names, formats and shapes.
fn described(files: &ModelFiles) -> Vec<String> {
    let describe = |tensor: &Tensor| format!("{} {:?} {:?}", tensor.name(), tensor.dtype(), tensor.shape());
    files.tensors().iter().map(describe).collect()
}

fn check(name: &str, repository: Repository) {
    let server = HubServer::start(repository);
    let (cache, folder) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let options = HubOptions {
        endpoint: server.endpoint.clone(),
        token: None,
        timeout: DEFAULT_TIMEOUT,
        cache: cache.path().join("hub"),
        network: Network::Online,
    };
    let model = HubModel::parse(name).unwrap();
    let path = outline(&model, &options, folder.path()).unwrap();
    assert!(!options.cache.exists(), "{name}: nothing is kept");
    let outlined = described(&ModelFiles::open(&path).unwrap());
    let fetched = run(name, &server.endpoint, &options.cache).path.unwrap();
    assert_eq!(outlined, described(&ModelFiles::open(&fetched).unwrap()), "{name}");
    assert_eq!(outline(&model, &options, folder.path()).unwrap(), fetched, "{name}: what is there is used");
}

#[test]
fn names_and_shapes_come_without_weights() {
    check("org/name", sharded());
    check("org/name:Q4_K_M", quantized());
    // A header longer than what is asked for first, and cut in the middle of a list and of a text.
    for text in [1 << 20, (1 << 20) - 90] {
        let long = RawGguf::new().key("long", 8, &string(&vec![b'x'; text]));
        let long = long.key("short", 8, &string(b"y")).tensor("w", &[64, 100_000], 0, 0).data(25_600_000);
        check("org/name", Repository { files: [("m.gguf", long.bytes())].into(), ..Repository::default() });
    }
}
