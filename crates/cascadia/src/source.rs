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
    /// A GGUF file inside the program.
    Embedded {
        /// The name that the file would have.
        file: &'static str,
        /// The whole file.
        gguf: &'static [u8],
    },
}

impl ModelSource {
    /// What clients of a server call it: the name of the file without its ending, or that of the folder.
    pub fn name(&self) -> String {
        let path = match self {
            ModelSource::Embedded { file, .. } => Path::new(file),
            ModelSource::Path(path) => path,
        };
        let path = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
        let name = if path.is_dir() { path.file_name() } else { path.file_stem() };
        name.map_or_else(|| "model".to_owned(), |name| name.to_string_lossy().into_owned())
    }

    /// Opens the files without loading the model.
    pub fn files(&self) -> Result<ModelFiles, WeightsError> {
        match self {
            ModelSource::Embedded { file, gguf } => {
                ModelFiles::from_static(&format!("{file} (inside the program)"), gguf)
            }
            ModelSource::Path(path) => ModelFiles::open(path),
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
        Ok(ModelSource::Path(cache.find_or_write(&self.files()?, recipe, pool, progress)?))
    }

    /// Where the files are on disk; one inside the program is written into `folder` for that.
    pub fn on_disk(&self, folder: &Path) -> Result<PathBuf, Error> {
        match self {
            ModelSource::Path(path) => Ok(path.clone()),
            ModelSource::Embedded { file, gguf } => {
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
