//! The bytes of one model file, wherever they live.

use std::borrow::Cow;
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::WeightsError;
use crate::mapped::MappedFile;
use crate::os::{self, MemoryAdvice};

/// A named run of bytes: a mapped file, or the content of one in memory.
#[derive(Debug)]
pub(crate) struct FileBytes {
    path: PathBuf,
    storage: Storage,
}

#[derive(Debug)]
enum Storage {
    Mapped(MappedFile),
    Memory(Cow<'static, [u8]>),
}

impl FileBytes {
    /// Maps the regular file at `path`.
    pub(crate) fn open(path: &Path) -> Result<FileBytes, WeightsError> {
        // Asked before opening, because opening a named pipe waits for somebody to write.
        let metadata = path.metadata().map_err(WeightsError::io("open", path))?;
        let not_a_model = |problem: &str, advice| WeightsError::NotAModel {
            path: path.to_owned(),
            problem: problem.to_owned(),
            advice,
        };
        if !metadata.is_file() {
            return Err(not_a_model("is not a regular file", "give the path of a .gguf or .safetensors file"));
        }
        if metadata.len() == 0 {
            return Err(not_a_model("is empty", "the download or copy probably failed: fetch the file again"));
        }
        let file = File::open(path).map_err(WeightsError::io("open", path))?;
        let mapped = MappedFile::new(file).map_err(WeightsError::io("map", path))?;
        Ok(FileBytes { path: path.to_owned(), storage: Storage::Mapped(mapped) })
    }

    /// Bytes that are already in memory; `name` stands in for a path in messages.
    pub(crate) fn in_memory(name: impl AsRef<Path>, bytes: Cow<'static, [u8]>) -> FileBytes {
        FileBytes { path: name.as_ref().to_owned(), storage: Storage::Memory(bytes) }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.storage {
            Storage::Mapped(file) => file,
            Storage::Memory(bytes) => bytes,
        }
    }

    /// Whether this is a file on disk, which may have others beside it.
    pub(crate) fn is_mapped(&self) -> bool {
        matches!(self.storage, Storage::Mapped(_))
    }

    pub(crate) fn check_intact(&self) -> Result<(), WeightsError> {
        match &self.storage {
            Storage::Mapped(file) if !file.is_intact() => Err(WeightsError::Changed { path: self.path.clone() }),
            _ => Ok(()),
        }
    }

    /// Brings all bytes into memory; `false` where the system has no call for it.
    pub(crate) fn populate(&self) -> bool {
        match &self.storage {
            Storage::Mapped(file) => file.populate().is_ok(),
            Storage::Memory(_) => true,
        }
    }

    /// Keeps the bytes of a mapped file in memory.
    pub(crate) fn lock(&self) -> Result<(), WeightsError> {
        let Storage::Mapped(file) = &self.storage else { return Ok(()) };
        file.lock().map_err(|source| WeightsError::Lock {
            path: self.path.clone(),
            bytes: file.len() as u64,
            source,
            advice: os::lock_advice(),
        })
    }

    pub(crate) fn advise(&self, range: Range<usize>, advice: MemoryAdvice) -> Result<(), WeightsError> {
        match &self.storage {
            Storage::Mapped(file) => {
                file.advise(range, advice).map_err(WeightsError::io("advise the system about", &self.path))
            }
            Storage::Memory(_) => Ok(()),
        }
    }
}
