//! Finds a model by the name a user gives: a path, or `org/name` on the hub.

use std::path::Path;

use anyhow::{Context, bail};
use cascadia::{EMBEDDED_MODEL, ModelSource, Threads};
use cascadia_hub::HubModel;
use cascadia_quantize::{QuantizedCache, Recipe};

use crate::hub;
use crate::machine::cache_folder;
use crate::progress::Progress;

/// Finds the model `name` stands for, fetching it from the hub when it is `org/name`.
pub(crate) fn find(name: &str) -> anyhow::Result<ModelSource> {
    let path = Path::new(name);
    if path.exists() {
        return Ok(path.into());
    }
    if let Some(model) = HubModel::parse(name) {
        return hub::fetch(&model)
            .map(ModelSource::Path)
            .with_context(|| format!("there is no file or folder `{name}` here, so it was looked for on the hub"));
    }
    bail!(
        "there is no file or folder `{name}`; give a .gguf file, a model folder, or org/name to fetch from the \
         Hugging Face hub"
    );
}

/// The same, or the model inside the program when there is no name.
pub(crate) fn find_or_embedded(name: Option<&str>) -> anyhow::Result<ModelSource> {
    name.map_or(Ok(EMBEDDED_MODEL), find)
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

/// Finds a model of which only names and shapes are needed: of one on the hub, `folder` gets the settings and the
/// headers of its files, and no weights are fetched.
pub(crate) fn outline(name: &str, folder: &Path) -> anyhow::Result<ModelSource> {
    match HubModel::parse(name).filter(|_| !Path::new(name).exists()) {
        Some(model) => Ok(ModelSource::Path(hub::outline(&model, folder)?)),
        None => find(name),
    }
}
