//! Finds a model by the name a user gives: a path, `org/name` on the hub, or the one inside the program.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use cascadia_engine::Source;
use cascadia_hub::HubModel;
use cascadia_weights::ModelFiles;

use crate::hub;

/// The model that comes with the program.
const EMBEDDED: &[u8] = include_bytes!("../../../model/rainier-33m-q4_k_m.gguf");
const EMBEDDED_FILE: &str = "rainier-33m-q4_k_m.gguf";
const EMBEDDED_NAME: &str = "rainier-33m-q4_k_m.gguf (inside the program)";

/// Where a model is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Located {
    /// Inside the program.
    Embedded,
    /// On this machine.
    Path(PathBuf),
}

impl Located {
    /// Finds the model `name` stands for, fetching it from the hub when it is `org/name`.
    pub(crate) fn find(name: &str) -> anyhow::Result<Located> {
        let path = Path::new(name);
        if path.exists() {
            return Ok(Located::Path(path.to_path_buf()));
        }
        if let Some(model) = HubModel::parse(name) {
            return hub::fetch(&model)
                .map(Located::Path)
                .with_context(|| format!("there is no file or folder `{name}` here, so it was looked for on the hub"));
        }
        bail!(
            "there is no file or folder `{name}`; give a .gguf file, a model folder, or org/name to fetch from the \
             Hugging Face hub"
        );
    }

    /// Finds a model of which only names and shapes are needed: of one on the hub, `folder` gets the settings and the
    /// headers of its files, and no weights are fetched.
    pub(crate) fn outline(name: &str, folder: &Path) -> anyhow::Result<Located> {
        match HubModel::parse(name).filter(|_| !Path::new(name).exists()) {
            Some(model) => Ok(Located::Path(hub::outline(&model, folder)?)),
            None => Located::find(name),
        }
    }

    /// What clients of a server call it: the name of the file without its ending, or that of the folder.
    pub(crate) fn name(&self) -> String {
        let path = match self {
            Located::Embedded => Path::new(EMBEDDED_FILE),
            Located::Path(path) => path,
        };
        let path = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
        let name = if path.is_dir() { path.file_name() } else { path.file_stem() };
        name.map_or_else(|| "model".to_owned(), |name| name.to_string_lossy().into_owned())
    }

    /// Where the files are; those inside the program are written into `folder` for that.
    pub(crate) fn on_disk(self, folder: &Path) -> anyhow::Result<PathBuf> {
        let Located::Path(path) = self else {
            let path = folder.join(EMBEDDED_FILE);
            fs::write(&path, EMBEDDED).with_context(|| format!("cannot write {}", path.display()))?;
            return Ok(path);
        };
        Ok(path)
    }

    /// Opens the files.
    pub(crate) fn files(&self) -> anyhow::Result<ModelFiles> {
        let source = match self {
            Located::Embedded => Source::Embedded { name: EMBEDDED_NAME, gguf: EMBEDDED },
            Located::Path(path) => Source::Path(path),
        };
        Ok(source.files()?)
    }
}
