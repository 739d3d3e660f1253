//! Fetches models from the Hugging Face hub; the only place that reads environment variables.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::Context;
use cascadia_hub::{
    DEFAULT_ENDPOINT, DEFAULT_TIMEOUT, HubModel, HubOptions, Progress as Transfer, fetch as fetch_model,
    outline as outline_model,
};

use crate::progress::Progress;

/// The local path of a model, downloaded unless the cache that all Hugging Face tools share has it.
pub(crate) fn fetch(model: &HubModel) -> anyhow::Result<PathBuf> {
    let options = options()?;
    let bar = Progress::bytes("fetching");
    let path = fetch_model(model, &options, &mut |Transfer { file, done, total }| {
        bar.label(file);
        bar.set(done, total);
    })?;
    Ok(path)
}

/// The local path of a model that has names and shapes but may have no numbers, which takes no time to fetch.
pub(crate) fn outline(model: &HubModel, folder: &Path) -> anyhow::Result<PathBuf> {
    Ok(outline_model(model, &options()?, folder)?)
}

/// `HF_ENDPOINT`, `HF_TOKEN` and `HF_HOME`, with the same defaults as the hub's own tools.
fn options() -> anyhow::Result<HubOptions> {
    let home = match variable("HF_HOME") {
        Some(home) => PathBuf::from(home),
        None => cache_folder()
            .map(|cache| cache.join("huggingface"))
            .context("cannot find a home folder to keep models in; set HF_HOME to a folder with space for them")?,
    };
    let saved_token = || std::fs::read_to_string(home.join("token")).ok().map(|token| token.trim().to_owned());
    Ok(HubOptions {
        endpoint: variable("HF_ENDPOINT").unwrap_or_else(|| DEFAULT_ENDPOINT.to_owned()),
        token: variable("HF_TOKEN").or_else(saved_token).filter(|token| !token.is_empty()),
        timeout: DEFAULT_TIMEOUT,
        cache: home.join("hub"),
    })
}

/// Where programs keep what they can make again: `XDG_CACHE_HOME`, or `.cache` in the home folder.
pub(crate) fn cache_folder() -> Option<PathBuf> {
    match variable("XDG_CACHE_HOME") {
        Some(folder) => Some(PathBuf::from(folder)),
        None => Some(env::home_dir()?.join(".cache")),
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the one place in the binary that reads the environment")]
fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}
