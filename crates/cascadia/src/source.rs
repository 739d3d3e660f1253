//! Where a model is: in a file or folder, or inside the program.

use std::fs;
use std::path::{Path, PathBuf};

#[cfg(feature = "quantize")]
use cascadia_kernels::Pool;
#[cfg(feature = "quantize")]
use cascadia_quantize::{QuantizeProgress, QuantizedCache, Recipe};
use cascadia_weights::{ModelFiles, WeightsError};

use crate::Error;

/// Where a model is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelSource {
    /// A `.gguf` file, a `.safetensors` file or a Hugging Face folder on this machine.
    Path(PathBuf),
    /// The same, with a name that the path does not tell.
    Named {
        /// What people call it, such as `qwen3:4b-q4_k_m` or `org/name`.
        name: String,
        /// The file or folder.
        path: PathBuf,
    },
    /// A GGUF file inside the program.
    Embedded {
        /// The name that the file would have.
        file: &'static str,
        /// The whole file.
        gguf: &'static [u8],
        /// What people should know before they believe it.
        note: &'static str,
    },
}

impl ModelSource {
    /// What clients of a server call it: its name, or that of the file without its ending, or that of the folder.
    pub fn name(&self) -> String {
        let path = match self {
            ModelSource::Named { name, .. } => return name.clone(),
            ModelSource::Embedded { file, .. } => Path::new(file),
            ModelSource::Path(path) => path,
        };
        let path = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
        let name = if path.is_dir() { path.file_name() } else { path.file_stem() };
        name.map_or_else(|| "model".to_owned(), |name| name.to_string_lossy().into_owned())
    }

    /// What people should know before they believe what the model says, if there is anything.
    pub fn note(&self) -> Option<&'static str> {
        match self {
            ModelSource::Embedded { note, .. } => Some(note),
            ModelSource::Path(_) | ModelSource::Named { .. } => None,
        }
    }

    /// Tells it from others where its files do not: one inside the program has no time at which it was written.
    pub(crate) fn digest(&self) -> Option<String> {
        match self {
            ModelSource::Embedded { gguf, .. } => Some(blake3::hash(gguf).to_hex().to_string()),
            ModelSource::Path(_) | ModelSource::Named { .. } => None,
        }
    }

    /// Opens the files without loading the model.
    pub fn files(&self) -> Result<ModelFiles, WeightsError> {
        match self {
            ModelSource::Embedded { file, gguf, .. } => {
                ModelFiles::from_static(&format!("{file} (inside the program)"), gguf)
            }
            ModelSource::Path(path) | ModelSource::Named { path, .. } => ModelFiles::open(path),
        }
    }

    /// The same model in a smaller format, from the cache if it was quantised before.
    #[cfg(feature = "quantize")]
    pub fn quantized(
        &self,
        recipe: &Recipe,
        cache: &QuantizedCache,
        pool: &Pool,
        progress: impl FnMut(QuantizeProgress<'_>),
    ) -> Result<ModelSource, Error> {
        let path = cache.find_or_write(&self.files()?, recipe, pool, progress)?;
        Ok(match self {
            ModelSource::Named { name, .. } => ModelSource::Named { name: name.clone(), path },
            ModelSource::Path(_) | ModelSource::Embedded { .. } => ModelSource::Path(path),
        })
    }

    /// Where the files are on disk; one inside the program is written into `folder` for that.
    pub fn on_disk(&self, folder: &Path) -> Result<PathBuf, Error> {
        match self {
            ModelSource::Path(path) | ModelSource::Named { path, .. } => Ok(path.clone()),
            ModelSource::Embedded { file, gguf, .. } => {
                let path = folder.join(file);
                fs::write(&path, gguf).map_err(Error::io("write", &path))?;
                Ok(path)
            }
        }
    }
}

impl<P: AsRef<Path>> From<P> for ModelSource {
    fn from(path: P) -> ModelSource {
        ModelSource::Path(path.as_ref().to_owned())
    }
}
