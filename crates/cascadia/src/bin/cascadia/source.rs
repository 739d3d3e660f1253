//! Finds a model by the name a user gives: a path, a name of the catalogue, or `org/name` on the hub.

use std::path::Path;

use anyhow::{Context, bail};
use cascadia::{EMBEDDED_MODEL, ModelSource, Threads};
use cascadia_hub::{HubError, HubModel, Network, StoredModel};
use cascadia_quantize::{QuantizedCache, Recipe};

use crate::hub;
use crate::machine::cache_folder;
use crate::output::remark;
use crate::progress::Progress;

/// Finds the model `name` stands for, fetching it where it is not stored.
pub(crate) fn find(name: &str) -> anyhow::Result<ModelSource> {
    find_by(name, Network::Online)
}

/// The same, or the model inside the program when there is no name.
pub(crate) fn find_or_embedded(name: Option<&str>) -> anyhow::Result<ModelSource> {
    find_or_embedded_by(name, Network::Online)
}

/// The same with the network that the flags allow.
pub(crate) fn find_or_embedded_by(name: Option<&str>, network: Network) -> anyhow::Result<ModelSource> {
    name.map_or(Ok(EMBEDDED_MODEL), |name| find_by(name, network))
}

/// The same, where a first attempt shall not fail: the model inside the program stands in for one with a short name
/// that is not stored while none of its sources can be reached.
pub(crate) fn find_or_stand_in(name: Option<&str>, network: Network) -> anyhow::Result<ModelSource> {
    find_or_embedded_by(name, network).or_else(|error| match error.downcast_ref::<HubError>() {
        Some(HubError::Sources { model, problems }) if problems.iter().all(HubError::is_unreachable) => {
            let endpoints: Vec<&str> = problems.iter().filter_map(HubError::endpoint).collect();
            remark(&format!(
                "{model} cannot be fetched now: no answer from {}. The built-in model stands in for it.",
                endpoints.join(", nor from ")
            ));
            Ok(EMBEDDED_MODEL)
        }
        _ => Err(error),
    })
}

/// Like [`find`], with the network that the flags allow.
fn find_by(name: &str, network: Network) -> anyhow::Result<ModelSource> {
    if Path::new(name).exists() {
        return Ok(Path::new(name).into());
    }
    if is_path(name) {
        bail!("there is no file or folder `{name}`");
    }
    let store = hub::store(network)?;
    let bar = Progress::bytes("fetching");
    let model = store.get(name, &mut |step| bar.transfer(step));
    let model = model.with_context(|| format!("there is no file or folder `{name}` here"))?;
    Ok(named(model))
}

/// A stored model under the name that people know.
fn named(StoredModel { name, path, .. }: StoredModel) -> ModelSource {
    ModelSource::Named { name, path }
}

/// Whether a name can only be that of a file: nothing that could be fetched ends or begins like this.
fn is_path(name: &str) -> bool {
    let is_model_file = [".gguf", ".safetensors"].iter().any(|ending| name.to_ascii_lowercase().ends_with(ending));
    let is_rooted = ["/", "./", "../", "~"].iter().any(|start| name.starts_with(start));
    is_rooted || name.ends_with('/') || (is_model_file && HubModel::parse(name).is_none())
}

/// The model in the format of `--type`, if that was given: quantised now, or found where it was kept.
pub(crate) fn in_format(source: ModelSource, kind: Option<&str>, threads: Threads) -> anyhow::Result<ModelSource> {
    let Some(kind) = kind else { return Ok(source) };
    let recipe: Recipe = kind.parse()?;
    let folder = cache_folder().context("there is no home folder to keep the quantised model in")?;
    let bar = Progress::new("quantising");
    let cache = QuantizedCache::new(folder.join("quantised"));
    Ok(source.quantized(&recipe, &cache, &threads.pool(), |step| bar.show(step))?)
}

/// Finds a model of which only names and shapes are needed: of one that is not stored, `folder` gets the settings and the
/// headers of its files, and no weights are fetched.
pub(crate) fn outline(name: &str, folder: &Path) -> anyhow::Result<ModelSource> {
    if Path::new(name).exists() || is_path(name) {
        return find(name);
    }
    let path = hub::store(Network::Online)?.outline(name, folder)?;
    Ok(ModelSource::Named { name: name.to_owned(), path })
}

#[cfg(test)]
mod tests {
    use super::is_path;

    #[test]
    fn names_of_files_are_not_looked_for_elsewhere() {
        for path in ["model.gguf", "/a/b", "./a", "../a/b", "~/m", "folder/", "a/b/c/m.gguf", "x.SAFETENSORS"] {
            assert!(is_path(path), "{path}");
        }
        for name in ["smollm2", "qwen3:4b-q4_k_m", "org/name", "org/name:Q4_K_M", "org/name/m.gguf", "hf.co/org/name"] {
            assert!(!is_path(name), "{name}");
        }
    }
}
