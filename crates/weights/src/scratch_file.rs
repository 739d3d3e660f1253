//! Files on their way to a name: they go away with their process, however it ends.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use tempfile::{Builder, NamedTempFile};

use crate::{WeightsError, os};

/// How hidden names begin.
const PREFIX: &str = ".cascadia-";
/// How the name of the data ends.
const DATA: &str = "partial";
/// How the name of the file ends that shows that somebody still works on the data.
const LOCK: &str = "lock";
/// How often a name is reserved anew, each time because another process took it for an old one in that very moment.
const TRIES: usize = 8;

/// A hidden name beside a file. What is written under it is removed when this value is dropped, and if the process is
/// killed before that, by the next one that writes into the same folder.
///
/// An empty file of the same name is locked for as long as this value lives. The system ends the lock with the process,
/// and only who has the lock may remove the data.
#[derive(Debug)]
pub struct ScratchFile {
    path: PathBuf,
    /// Removed after the data.
    _lock: NamedTempFile,
}

impl ScratchFile {
    /// Reserves a name beside `path`, and removes what killed processes have left there.
    pub fn beside(path: &Path) -> Result<ScratchFile, WeightsError> {
        let folder = folder_of(path);
        remove_stale(folder);
        for _ in 0..TRIES {
            let lock = Builder::new().prefix(PREFIX).suffix(&format!(".{LOCK}")).tempfile_in(folder);
            let lock = lock.map_err(WeightsError::io("create a file in", folder))?;
            // Where files cannot be locked, nobody else can take the lock and remove the data either.
            let is_taken = matches!(lock.as_file().try_lock(), Err(TryLockError::WouldBlock));
            if !is_taken && lock.path().exists() {
                return Ok(ScratchFile { path: lock.path().with_extension(DATA), _lock: lock });
            }
        }
        let problem = "other processes remove new files there; try again".to_owned();
        Err(WeightsError::Write { path: path.to_owned(), problem })
    }

    /// Where to write.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ScratchFile {
    fn drop(&mut self) {
        // It may never have been written, or has another name by now.
        let _ = fs::remove_file(&self.path);
    }
}

/// Removes files in a folder whose process has ended. What cannot be removed is left for the next time.
fn remove_stale(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_ours = entry.file_name().to_string_lossy().starts_with(PREFIX);
        if !is_ours || path.extension().is_none_or(|ending| ending != LOCK) {
            continue;
        }
        if let Ok(lock) = File::open(&path)
            && lock.try_lock().is_ok()
        {
            let _ = fs::remove_file(path.with_extension(DATA));
            let _ = fs::remove_file(&path);
        }
    }
}

/// A file that gets its name when it is complete.
pub(crate) struct Unfinished {
    file: File,
    /// Its name meanwhile; none where the system has files without one, of which a killed process leaves nothing.
    scratch: Option<ScratchFile>,
}

impl Unfinished {
    /// An empty file in the folder of `path`.
    pub(crate) fn create(path: &Path) -> Result<Unfinished, WeightsError> {
        let folder = folder_of(path);
        if let Ok(file) = os::nameless_file(folder) {
            remove_stale(folder);
            return Ok(Unfinished { file, scratch: None });
        }
        let scratch = ScratchFile::beside(path)?;
        let file = File::create(scratch.path()).map_err(WeightsError::io("create", scratch.path()))?;
        Ok(Unfinished { file, scratch: Some(scratch) })
    }

    /// Where its content goes.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Puts it in the place of what is at `path`, once it is on the disk.
    pub(crate) fn finish(self, path: &Path) -> Result<(), WeightsError> {
        let (failed, folder) = (|| WeightsError::io("write", path), folder_of(path));
        self.file.sync_all().map_err(failed())?;
        let scratch = match self.scratch {
            Some(scratch) => scratch,
            None => {
                let scratch = ScratchFile::beside(path)?;
                os::name_file(&self.file, scratch.path()).map_err(failed())?;
                scratch
            }
        };
        fs::rename(scratch.path(), path).map_err(failed())?;
        os::sync_folder(folder).map_err(WeightsError::io("write", folder))
    }
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap().flatten();
        let mut names: Vec<String> = entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn what_killed_processes_left_is_removed_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str| fs::write(folder.path().join(name), "x").unwrap();
        // The system has ended the locks of a killed process.
        [".cascadia-dead.lock", ".cascadia-dead.partial", ".cascadia-empty.lock"].into_iter().for_each(put);
        let others = [".cascadia-old", ".cascadia-other.partial", ".other.lock", "model.gguf"];
        others.into_iter().for_each(put);
        let out = folder.path().join("out.gguf");
        let alive = ScratchFile::beside(&out).unwrap();
        fs::write(alive.path(), "being written").unwrap();
        let second = ScratchFile::beside(&out).unwrap();
        assert_eq!(fs::read(alive.path()).unwrap(), b"being written");
        assert_ne!(alive.path(), second.path());
        drop((alive, second));
        assert_eq!(names(folder.path()), others);
    }

    #[test]
    fn an_unfinished_file_has_no_name_or_a_locked_one() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("out.gguf");
        let unfinished = Unfinished::create(&out).unwrap();
        // A process that is killed here leaves nothing, or what the next one may remove.
        match unfinished.scratch {
            None => assert!(names(folder.path()).is_empty(), "{:?}", names(folder.path())),
            Some(_) => assert!(names(folder.path()).iter().any(|name| name.ends_with(".lock"))),
        }
        std::io::Write::write_all(&mut unfinished.file(), b"content").unwrap();
        fs::write(&out, "an older one").unwrap();
        unfinished.finish(&out).unwrap();
        assert_eq!((fs::read(&out).unwrap().as_slice(), names(folder.path()).len()), (&b"content"[..], 1));
        drop(Unfinished::create(&out).unwrap());
        assert_eq!(names(folder.path()), ["out.gguf"]);
    }

    #[cfg(unix)]
    #[test]
    fn a_finished_file_has_the_usual_mode() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let (out, usual) = (folder.path().join("out.gguf"), folder.path().join("usual"));
        fs::write(&usual, "").unwrap();
        Unfinished::create(&out).unwrap().finish(&out).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode(&out), mode(&usual));
    }
}
