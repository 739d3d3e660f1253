//! A file that is still arriving.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use ring::digest::{Context, SHA256};

use crate::digest::{digest_rest, hexadecimal};
use crate::explain::Failure;

/// What has arrived of a file, also in earlier runs. Only one program at a time can hold it.
pub(crate) struct Partial {
    path: PathBuf,
    file: File,
    length: u64,
    digest: Context,
}

impl Partial {
    /// Opens the partial file at `path`, which need not exist.
    pub(crate) fn open(path: &Path) -> Result<Partial, Failure> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(Failure::Disk)?;
        }
        let options = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let file = options.map_err(Failure::Disk)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(Failure::Busy),
            Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => {}
            Err(TryLockError::Error(error)) => return Err(Failure::Disk(error)),
        }
        let mut partial = Partial { path: path.to_owned(), file, length: 0, digest: Context::new(&SHA256) };
        partial.digest_what_is_there().map_err(Failure::Disk)?;
        Ok(partial)
    }

    /// Bytes that are there.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    pub(crate) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.digest.update(bytes);
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// Forgets everything.
    pub(crate) fn restart(&mut self) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.seek(SeekFrom::Start(0))?;
        (self.length, self.digest) = (0, Context::new(&SHA256));
        Ok(())
    }

    /// Gives the whole file its final name, if it has this SHA-256; otherwise forgets everything.
    pub(crate) fn finish(mut self, path: &Path, sha256: Option<&str>) -> Result<(), Failure> {
        let arrived = hexadecimal(self.digest.clone());
        if let Some(expected) = sha256.filter(|expected| !arrived.eq_ignore_ascii_case(expected)) {
            self.restart().map_err(Failure::Disk)?;
            return Err(Failure::Invalid(format!("what arrived has SHA-256 {arrived} instead of {expected}")));
        }
        let sync_and_rename = || {
            self.file.sync_all()?;
            std::fs::rename(&self.path, path)
        };
        sync_and_rename().map_err(Failure::Disk)
    }

    /// Reads to the end, where writing continues.
    fn digest_what_is_there(&mut self) -> io::Result<()> {
        self.length = digest_rest(&mut self.file, &mut self.digest, |_| ())?;
        Ok(())
    }
}
