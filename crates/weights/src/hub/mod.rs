//! Fetching models by name from the Hugging Face hub into its usual cache.

mod choose;
mod download;
mod explain;
mod hub_model;

use std::path::{Path, PathBuf};

use hf_hub::api::sync::{Api, ApiBuilder};
use hf_hub::{Cache, Repo, RepoType};

use self::choose::{Choice, choose};
use self::download::Download;
pub use self::hub_model::HubModel;
use crate::WeightsError;
use crate::hf_folder::read_json;
use crate::safetensors::{INDEX_FILE, shards_of};

/// The public hub.
pub const DEFAULT_ENDPOINT: &str = "https://huggingface.co";

/// Where to fetch from and where to keep what was fetched.
#[derive(Clone, Debug)]
pub struct HubOptions {
    /// Address of the server, without a slash at the end; [`DEFAULT_ENDPOINT`] unless `HF_ENDPOINT` says otherwise.
    pub endpoint: String,
    /// Access token for models that need one; the value of `HF_TOKEN`.
    pub token: Option<String>,
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

/// The local path of `model`, for [`crate::ModelFiles::open`]; downloads what is not in the cache yet.
///
/// A model that is complete in the cache needs no network. An interrupted download continues where it stopped.
pub fn fetch(
    model: &HubModel,
    options: &HubOptions,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<PathBuf, WeightsError> {
    let cache = Cache::new(options.cache.clone());
    if let Some(path) = cached(model, &cache) {
        return Ok(path);
    }
    let explain = explain::Explain { model, endpoint: &options.endpoint };
    let api = connect(&cache, options).map_err(|error| explain.failure(None, &error))?;
    let info = api.model(model.id().to_owned()).info().map_err(|error| explain.failure(None, &error))?;
    if !is_commit(&info.sha) {
        return Err(explain.nonsense(format!("its commit `{}` is no commit", info.sha)));
    }
    let files: Vec<String> = info.siblings.into_iter().map(|sibling| sibling.rfilename).collect();
    let choice = choose(&files, model.selection()).map_err(|problem| explain.no_choice(problem))?;

    // Files are asked for by commit, so that a change on the hub meanwhile cannot mix two versions.
    let repository = Repo::with_revision(model.id().to_owned(), RepoType::Model, info.sha.clone());
    let folder = cache.repo(repository.clone()).pointer_path(&info.sha);
    let mut download = Download { api: &api, cache: &cache, repository, commit: &info.sha, explain, progress };
    let path = match choice {
        Choice::Gguf(file) => download.file(&file)?,
        Choice::Safetensors { small_files, index, weights } => {
            small_files.iter().try_for_each(|file| download.file(file).map(drop))?;
            let weights = if index { shard_names(&folder)? } else { weights };
            weights.iter().try_for_each(|file| download.file(file).map(drop))?;
            folder
        }
    };
    // Only now does the name lead to this commit: a half-fetched model is never taken for a whole one.
    cache.model(model.id().to_owned()).create_ref(&info.sha).map_err(WeightsError::io("write", &options.cache))?;
    Ok(path)
}

fn connect(cache: &Cache, options: &HubOptions) -> Result<Api, hf_hub::api::sync::ApiError> {
    ApiBuilder::from_cache(cache.clone())
        .with_endpoint(options.endpoint.trim_end_matches('/').to_owned())
        .with_token(options.token.clone())
        .with_user_agent("cascadia", env!("CARGO_PKG_VERSION"))
        .build()
}

/// The path of a model that is in the cache as a whole.
fn cached(model: &HubModel, cache: &Cache) -> Option<PathBuf> {
    let repository = Repo::new(model.id().to_owned(), RepoType::Model);
    let reference = cache.path().join(repository.folder_name()).join("refs").join(repository.revision());
    let commit = std::fs::read_to_string(reference).ok()?;
    let folder = is_commit(&commit).then(|| cache.repo(repository).pointer_path(&commit))?;
    let entries = folder.read_dir().ok()?;
    let files: Vec<String> = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    let is_there = |file: &String| folder.join(file).is_file();
    match choose(&files, model.selection()).ok()? {
        Choice::Gguf(file) => is_there(&file).then(|| folder.join(file)),
        Choice::Safetensors { small_files, index, weights } => {
            let weights = if index { shard_names(&folder).ok()? } else { weights };
            let whole = small_files.iter().any(|file| choose::is_vocabulary(file)) && weights.iter().all(is_there);
            whole.then_some(folder)
        }
    }
}

/// The files that the index in `folder` lists.
fn shard_names(folder: &Path) -> Result<Vec<String>, WeightsError> {
    let path = folder.join(INDEX_FILE);
    let index = read_json(folder, INDEX_FILE)?.unwrap_or_default();
    Ok(shards_of(&path, &index)?.into_keys().map(str::to_owned).collect())
}

/// A commit becomes the name of a folder, so it must be what git says it is.
fn is_commit(text: &str) -> bool {
    text.len() == 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}
