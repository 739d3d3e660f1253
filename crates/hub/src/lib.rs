//! Fetches models by name from the Hugging Face hub into its usual cache.
#![forbid(unsafe_code)]

mod cache;
mod choose;
mod client;
mod download;
mod error;
mod explain;
mod hub_model;
mod os;
mod outline;
mod partial;

use std::path::PathBuf;
use std::time::Duration;

use cascadia_weights::hf_folder::shard_names;

use self::cache::Cache;
use self::choose::{Choice, choose};
use self::client::Client;
use self::download::Download;
pub use self::error::HubError;
use self::explain::{Explain, Failure};
pub use self::hub_model::HubModel;
pub use self::outline::outline;

/// The public hub.
pub const DEFAULT_ENDPOINT: &str = "https://huggingface.co";

/// How long a server may be silent.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

/// Where to fetch from and where to keep what was fetched.
#[derive(Clone, Debug)]
pub struct HubOptions {
    /// Address of the server, without a slash at the end; [`DEFAULT_ENDPOINT`] unless `HF_ENDPOINT` says otherwise.
    pub endpoint: String,
    /// Access token for models that need one; the value of `HF_TOKEN`. Only the server of `endpoint` gets to see it.
    pub token: Option<String>,
    /// How long the server may be silent before a request counts as failed; [`DEFAULT_TIMEOUT`].
    pub timeout: Duration,
    /// The cache folder that all Hugging Face tools share: `hub` inside `HF_HOME`.
    pub cache: PathBuf,
}

/// How far the download of one file has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress<'a> {
    /// The file.
    pub file: &'a str,
    /// Bytes that are on disk, those of earlier interrupted runs included.
    pub done: u64,
    /// Bytes in all.
    pub total: u64,
}

/// The local path of `model`, for [`cascadia_weights::ModelFiles::open`]; downloads what is not in the cache yet.
///
/// A model that is complete in the cache needs no network. An interrupted download continues where it stopped.
pub fn fetch(
    model: &HubModel,
    options: &HubOptions,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<PathBuf, HubError> {
    let cache = Cache::new(&options.cache, model.id());
    if let Some(path) = cached(model, &cache) {
        return Ok(path);
    }
    let explain = Explain { model, endpoint: &options.endpoint };
    let client = Client::new(options);
    let (commit, files) = list(&client, model).map_err(|failure| explain.failure(None, &failure))?;
    let choice = choose(&files, model.selection()).map_err(|problem| explain.no_choice(problem))?;

    // Files are asked for by commit, so that a change on the hub meanwhile cannot mix two versions.
    let mut download = Download { client: &client, cache: &cache, commit: &commit, explain, progress };
    let path = match choice {
        Choice::Gguf(parts) => {
            let paths = parts.iter().map(|part| download.file(part)).collect::<Result<Vec<_>, _>>()?;
            paths.into_iter().next().expect("a choice names a file")
        }
        Choice::Safetensors { small_files, index, weights } => {
            let folder = cache.snapshot(&commit);
            small_files.iter().try_for_each(|file| download.file(file).map(drop))?;
            let weights = if index { shard_names(&folder)? } else { weights };
            weights.iter().try_for_each(|file| download.file(file).map(drop))?;
            folder
        }
    };
    // Only now does the name lead to this commit: a half-fetched model is never taken for a whole one.
    cache.remember(&commit).map_err(|error| explain.failure(None, &Failure::Disk(error)))?;
    Ok(path)
}

/// The newest commit of a model and the files in it.
fn list(client: &Client<'_>, model: &HubModel) -> Result<(String, Vec<String>), Failure> {
    let answer = client.json(&client.address(&format!("api/models/{}/revision/main", model.id())))?;
    let commit = answer["sha"].as_str().unwrap_or_default();
    if !is_commit(commit) {
        return Err(Failure::Invalid(format!("its commit `{commit}` is no commit")));
    }
    let files = answer["siblings"].as_array().into_iter().flatten();
    let files = files.filter_map(|file| file["rfilename"].as_str()).map(str::to_owned);
    Ok((commit.to_owned(), files.collect()))
}

/// The path of a model that is in the cache as a whole.
fn cached(model: &HubModel, cache: &Cache) -> Option<PathBuf> {
    let commit = cache.commit()?;
    let (folder, files) = (cache.snapshot(&commit), cache.files(&commit));
    let is_there = |file: &String| folder.join(file).is_file();
    match choose(&files, model.selection()).ok()? {
        Choice::Gguf(parts) => parts.iter().all(is_there).then(|| folder.join(&parts[0])),
        Choice::Safetensors { small_files, index, weights } => {
            let weights = if index { shard_names(&folder).ok()? } else { weights };
            let whole = small_files.iter().any(|file| choose::is_vocabulary(file)) && weights.iter().all(is_there);
            whole.then_some(folder)
        }
    }
}

/// A commit becomes the name of a folder, so it must be what git says it is.
fn is_commit(text: &str) -> bool {
    text.len() == 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}
