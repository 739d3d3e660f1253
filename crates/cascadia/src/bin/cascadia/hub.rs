//! The models of this machine and where others come from; the only place that reads environment variables.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::Context;

use cascadia_hub::{Catalogue, DEFAULT_ENDPOINT, DEFAULT_TIMEOUT, HubOptions, Network, PYTHON, Store};
use cascadia_weights::MemoryProbe;

/// Where Ollama keeps models when it runs as a service of the system.
const OLLAMA_SERVICE: &str = "/usr/share/ollama/.ollama/models";

/// All that is stored on this machine, and the means to fetch more unless `network` or `HF_HUB_OFFLINE` says otherwise.
pub(crate) fn store(network: Network) -> anyhow::Result<Store> {
    let folder = cache_folder().context("cannot find a home folder to keep models in; set XDG_CACHE_HOME")?;
    Ok(Store {
        hub: options(network)?,
        folder: folder.join("cascadia").join("models"),
        ollama: ollama_folder(),
        python: PYTHON.into(),
        memory: MemoryProbe::at(Path::new("/")).total(),
        catalogue: catalogue()?,
    })
}

/// `HF_ENDPOINT`, `HF_TOKEN`, `HF_HOME` and `HF_HUB_OFFLINE`, with the same defaults as the hub's own tools.
fn options(network: Network) -> anyhow::Result<HubOptions> {
    let home = match variable("HF_HOME") {
        Some(home) => PathBuf::from(home),
        None => cache_folder()
            .map(|cache| cache.join("huggingface"))
            .context("cannot find a home folder to keep models in; set HF_HOME to a folder with space for them")?,
    };
    let saved_token = || std::fs::read_to_string(home.join("token")).ok().map(|token| token.trim().to_owned());
    let is_offline = variable("HF_HUB_OFFLINE")
        .is_some_and(|value| ["1", "on", "yes", "true"].iter().any(|word| value.eq_ignore_ascii_case(word)));
    Ok(HubOptions {
        endpoint: variable("HF_ENDPOINT").unwrap_or_else(|| DEFAULT_ENDPOINT.to_owned()),
        token: variable("HF_TOKEN").or_else(saved_token).filter(|token| !token.is_empty()),
        timeout: DEFAULT_TIMEOUT,
        cache: home.join("hub"),
        network: if is_offline { Network::Offline } else { network },
    })
}

/// The short names of the program, and those that the user has added.
fn catalogue() -> anyhow::Result<Catalogue> {
    let built_in = Catalogue::built_in();
    let Some(path) = config_folder().map(|folder| folder.join("cascadia").join("models.toml")) else {
        return Ok(built_in);
    };
    if !path.exists() {
        return Ok(built_in);
    }
    let reading = || format!("cannot read the catalogue {}", path.display());
    let text = std::fs::read_to_string(&path).with_context(reading)?;
    built_in.with(&text).map_err(anyhow::Error::msg).with_context(reading)
}

/// `OLLAMA_MODELS`, or where Ollama keeps them otherwise.
fn ollama_folder() -> Option<PathBuf> {
    let own = variable("OLLAMA_MODELS").map(PathBuf::from);
    let own = own.or_else(|| Some(env::home_dir()?.join(".ollama").join("models")));
    own.into_iter().chain([PathBuf::from(OLLAMA_SERVICE)]).find(|folder| folder.join("manifests").is_dir())
}

/// Where programs keep what they can make again: `XDG_CACHE_HOME`, or `.cache` in the home folder.
pub(crate) fn cache_folder() -> Option<PathBuf> {
    folder("XDG_CACHE_HOME", ".cache")
}

/// Where programs keep what they did: `XDG_STATE_HOME`, or `.local/state` in the home folder.
pub(crate) fn state_folder() -> Option<PathBuf> {
    folder("XDG_STATE_HOME", ".local/state")
}

/// Where people keep their settings: `XDG_CONFIG_HOME`, or `.config` in the home folder.
fn config_folder() -> Option<PathBuf> {
    folder("XDG_CONFIG_HOME", ".config")
}

fn folder(name: &str, usual: &str) -> Option<PathBuf> {
    match variable(name) {
        Some(folder) => Some(PathBuf::from(folder)),
        None => Some(env::home_dir()?.join(usual)),
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the one place in the binary that reads the environment")]
fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}
