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
#[expect(clippy::disallowed_methods, reason = "this is the one place in the binary that reads the environment")]
fn options() -> anyhow::Result<HubOptions> {
    let variable = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
    let home = match variable("HF_HOME") {
        Some(home) => PathBuf::from(home),
        None => default_home(variable("XDG_CACHE_HOME").as_deref())
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

fn default_home(cache: Option<&str>) -> Option<PathBuf> {
    let cache = match cache {
        Some(cache) => Path::new(cache).to_path_buf(),
        None => env::home_dir()?.join(".cache"),
    };
    Some(cache.join("huggingface"))
}
