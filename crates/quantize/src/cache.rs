//! Models that were quantised when they were opened, kept in a folder so that each is quantised once.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use cascadia_kernels::Pool;
use cascadia_weights::{FileKind, ModelFiles, WeightsError};

use crate::convert::model_name;
use crate::{QuantizeError, QuantizeJob, QuantizeProgress, Recipe, quantize};

/// Bytes of models that a folder keeps unless another limit is given.
const USUAL_LIMIT: u64 = 64_000_000_000;

/// Hexadecimal digits of a model's key, which name its folder.
const KEY_DIGITS: usize = 32;

/// Endings of the files beside weights that a conversion reads.
const SETTINGS: [&str; 4] = ["json", "jinja", "model", "txt"];

/// A folder of quantised models. Deleting it, or any folder in it, only costs the time to quantise again.
#[derive(Clone, Debug)]
pub struct QuantizedCache {
    folder: PathBuf,
    limit: u64,
}

impl QuantizedCache {
    /// Keeps models in a folder, which is made when the first is written.
    pub fn new(folder: impl Into<PathBuf>) -> QuantizedCache {
        QuantizedCache { folder: folder.into(), limit: USUAL_LIMIT }
    }

    /// Keeps so many bytes; beyond them the models that were written first are deleted. The last stays in any case.
    pub fn with_limit(self, bytes: u64) -> QuantizedCache {
        QuantizedCache { limit: bytes, ..self }
    }

    /// The model in the formats of a recipe: the same bytes as [`quantize`] writes, from the folder if they are there.
    ///
    /// A model is known by the names, sizes and times of its files, the recipe and the version of this program.
    pub fn find_or_write(
        &self,
        files: &ModelFiles,
        recipe: &Recipe,
        pool: &Pool,
        progress: impl FnMut(QuantizeProgress<'_>),
    ) -> Result<PathBuf, QuantizeError> {
        let own_folder = self.folder.join(key(files, recipe));
        let name = model_name(files).unwrap_or_else(|| "model".to_owned());
        let path = own_folder.join(format!("{name}-{recipe}.gguf"));
        if path.is_file() {
            return Ok(path);
        }
        fs::create_dir_all(&own_folder)
            .map_err(io_error("create", &own_folder))
            .map_err(|error| self.refusal(error))?;
        let job = QuantizeJob { files, out: &path, recipe: recipe.clone(), importance: None, pool };
        match quantize(&job, progress) {
            Ok(_) => {
                self.shrink(&own_folder);
                Ok(path)
            }
            Err(error) => {
                // Another process may have written the same model meanwhile; then its folder is not empty and stays.
                let _ = fs::remove_dir(&own_folder);
                Err(self.refusal(error))
            }
        }
    }

    /// What to do when the folder cannot be written; other errors say so themselves.
    fn refusal(&self, error: QuantizeError) -> QuantizeError {
        match error {
            QuantizeError::Weights(WeightsError::Io { action, path, source }) if path.starts_with(&self.folder) => {
                QuantizeError::Cache { folder: self.folder.clone(), action, path, source }
            }
            error => error,
        }
    }

    /// Deletes the models that were written first while there are more bytes than allowed. What cannot be deleted, as
    /// an open file on some systems, is left for the next time.
    fn shrink(&self, newest: &Path) {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let mut kept: Vec<Kept> = entries.filter_map(|entry| Kept::read(entry.path())).collect();
        kept.sort_by_key(|kept| kept.written);
        let mut bytes: u64 = kept.iter().map(|kept| kept.bytes).sum();
        for old in kept.iter().filter(|kept| kept.folder != newest) {
            if bytes > self.limit && fs::remove_dir_all(&old.folder).is_ok() {
                bytes -= old.bytes;
            }
        }
    }
}

/// The folder of one model.
struct Kept {
    folder: PathBuf,
    bytes: u64,
    written: SystemTime,
}

impl Kept {
    /// `None` for what this module has not written.
    fn read(folder: PathBuf) -> Option<Kept> {
        let name = folder.file_name()?.to_str()?;
        let ours = name.len() == KEY_DIGITS && name.bytes().all(|digit| digit.is_ascii_hexdigit());
        let files = ours.then(|| fs::read_dir(&folder).ok())??;
        let facts: Vec<fs::Metadata> = files.flatten().filter_map(|file| file.metadata().ok()).collect();
        let written = facts.iter().filter_map(|facts| facts.modified().ok()).max().unwrap_or(SystemTime::UNIX_EPOCH);
        Some(Kept { bytes: facts.iter().map(fs::Metadata::len).sum(), written, folder })
    }
}

/// What tells a quantised model from others.
fn key(files: &ModelFiles, recipe: &Recipe) -> String {
    let mut facts = format!("{} {recipe}\n", env!("CARGO_PKG_VERSION"));
    for tensor in files.tensors() {
        facts += &format!("{} {} {:?}\n", tensor.name(), tensor.dtype().name(), tensor.shape());
    }
    for path in sources(files) {
        let found = path.metadata();
        let written = found.as_ref().ok().and_then(|facts| facts.modified().ok());
        let path = path.canonicalize().unwrap_or(path);
        facts += &format!("{} {:?} {written:?}\n", path.display(), found.map(|facts| facts.len()).ok());
    }
    blake3::hash(facts.as_bytes()).to_hex()[..KEY_DIGITS].to_owned()
}

/// The files that a conversion reads.
fn sources(files: &ModelFiles) -> Vec<PathBuf> {
    let mut sources: Vec<PathBuf> = files.tensors().iter().map(|tensor| tensor.file().to_owned()).collect();
    if files.kind() == FileKind::HuggingFace {
        let folder = if files.path().is_dir() { Some(files.path()) } else { files.path().parent() };
        let beside = folder.and_then(|folder| fs::read_dir(folder).ok()).into_iter().flatten().flatten();
        let is_setting =
            |path: &PathBuf| SETTINGS.iter().any(|ending| path.extension().is_some_and(|own| own == *ending));
        sources.extend(beside.map(|entry| entry.path()).filter(is_setting));
    }
    sources.sort();
    sources.dedup();
    sources
}

fn io_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> QuantizeError {
    let path = path.to_owned();
    move |source| QuantizeError::Weights(WeightsError::Io { action, path, source })
}
