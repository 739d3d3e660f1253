//! Fetching a model from the hub, unless the cache has it.

use std::path::PathBuf;

use cascadia_weights::hf_folder::shard_names;

use crate::cache::Cache;
use crate::choose::{Choice, choose, is_vocabulary};
use crate::client::Client;
use crate::download::Download;
use crate::explain::{Explain, Failure};
use crate::{HubError, HubModel, HubOptions, Progress};

/// The local path of `model`, for [`cascadia_weights::ModelFiles::open`]; downloads what is not in the cache yet.
///
/// A model that is complete in the cache needs no network. An interrupted download continues where it stopped.
pub fn fetch(
    model: &HubModel,
    options: &HubOptions,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<PathBuf, HubError> {
    fetch_known(model, None, options, progress)
}

/// The same for a model whose one file must have this SHA-256, if one is given.
pub(crate) fn fetch_known(
    model: &HubModel,
    sha256: Option<&str>,
    options: &HubOptions,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<PathBuf, HubError> {
    let cache = Cache::new(&options.cache, model.id());
    if let Some(path) = cached(model, &cache) {
        return Ok(path);
    }
    options.check_online(model)?;
    let explain = Explain { model, endpoint: &options.endpoint };
    let client = Client::new(options);
    let (commit, files) = list(&client, model).map_err(|failure| explain.failure(None, &failure))?;
    let choice = choose(&files, model.selection()).map_err(|problem| explain.no_choice(problem))?;

    // Files are asked for by commit, so that a change on the hub meanwhile cannot mix two versions.
    let mut download = Download { client: &client, cache: &cache, commit: &commit, sha256, explain, progress };
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
pub(crate) fn list(client: &Client<'_>, model: &HubModel) -> Result<(String, Vec<String>), Failure> {
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
pub(crate) fn cached(model: &HubModel, cache: &Cache) -> Option<PathBuf> {
    let commit = cache.commit()?;
    let (folder, files) = (cache.snapshot(&commit), cache.files(&commit));
    let is_there = |file: &String| folder.join(file).is_file();
    match choose(&files, model.selection()).ok()? {
        Choice::Gguf(parts) => parts.iter().all(is_there).then(|| folder.join(&parts[0])),
        Choice::Safetensors { small_files, index, weights } => {
            let weights = if index { shard_names(&folder).ok()? } else { weights };
            let whole = small_files.iter().any(|file| is_vocabulary(file)) && weights.iter().all(is_there);
            whole.then_some(folder)
        }
    }
}

/// A commit becomes the name of a folder, so it must be what git says it is.
pub(crate) fn is_commit(text: &str) -> bool {
    text.len() == 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}
