//! The folder that holds the records, or what stands for it in a test.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use zeroize::Zeroizing;

use super::cipher::{MAGIC, Secret};
use super::record::RecordId;
use crate::{EngineError, os};

/// Held while a server uses the folder.
const LOCK_FILE: &str = "cascadia-spill.lock";
/// The secret of records that survive a restart.
const SECRET_FILE: &str = "cascadia-spill.key";

/// Files by name.
pub trait Disk: Send + Sync {
    /// Writes a whole file; what is left of it after an error is removed by the caller.
    fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()>;
    /// Reads a whole file of so many bytes; of a longer one, a byte more.
    fn read(&self, name: &str, bytes: usize) -> io::Result<Vec<u8>>;
    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;
}

/// A folder that one process at a time spills to. It may hold other files too.
pub struct Folder {
    path: PathBuf,
    _lock: File,
}

/// A record that an earlier process left.
pub(super) struct StoredRecord {
    pub(super) id: RecordId,
    pub(super) bytes: u64,
}

impl Folder {
    /// Makes the folder if necessary, and locks it.
    pub fn open(path: &Path) -> Result<Folder, EngineError> {
        let failed = |problem: String| EngineError::Spill { folder: path.to_owned(), problem };
        let unusable = |error: io::Error| failed(format!("{error}; pass a folder that can be written"));
        os::private_folder(path).map_err(unusable)?;
        let lock = os::private_file().create(true).truncate(false).open(path.join(LOCK_FILE)).map_err(unusable)?;
        match lock.try_lock() {
            Ok(()) => Ok(Folder { path: path.to_owned(), _lock: lock }),
            Err(fs::TryLockError::WouldBlock) => {
                Err(failed("another server uses it; give each server a folder of its own".to_owned()))
            }
            Err(fs::TryLockError::Error(error)) => Err(unusable(error)),
        }
    }

    /// The secret of an earlier process with the records that it opens, those written longest ago first; or a new secret and
    /// no records. Records that no secret opens are removed.
    pub(super) fn begin(&self, keep: bool) -> Result<(Secret, Vec<StoredRecord>), EngineError> {
        let failed = |problem: String| EngineError::Spill { folder: self.path.clone(), problem };
        if let Some(secret) = self.read_secret().filter(|_| keep) {
            return Ok((secret, self.stored()));
        }
        for record in self.stored() {
            let name = record.id.file_name();
            self.remove(&name).map_err(|error| failed(format!("cannot remove the old record {name}: {error}")))?;
        }
        // There may be none.
        let _ = self.remove(SECRET_FILE);
        let secret = Secret::random().ok_or_else(|| failed("the system has no random numbers".to_owned()))?;
        if keep {
            let written = self.write_secret(&secret);
            written.map_err(|error| failed(format!("cannot write {SECRET_FILE}: {error}")))?;
        }
        Ok((secret, Vec::new()))
    }

    fn read_secret(&self) -> Option<Secret> {
        let mut bytes = Zeroizing::new([0; 40]);
        let mut file = File::open(self.path.join(SECRET_FILE)).ok()?;
        file.read_exact(bytes.as_mut()).ok()?;
        let kept: &[u8; 32] = bytes.strip_prefix(&MAGIC)?.try_into().ok()?;
        let mut secret = Zeroizing::new([0; 32]);
        secret.copy_from_slice(kept);
        Some(Secret(secret))
    }

    fn write_secret(&self, secret: &Secret) -> io::Result<()> {
        let mut file = os::private_file().create_new(true).open(self.path.join(SECRET_FILE))?;
        file.write_all(&MAGIC)?;
        file.write_all(secret.0.as_ref())?;
        file.sync_all()
    }

    /// Files that are records by name and by how they begin, those written longest ago first.
    fn stored(&self) -> Vec<StoredRecord> {
        let entries = fs::read_dir(&self.path).into_iter().flatten().flatten();
        let stored = |entry: fs::DirEntry| {
            let id = RecordId::from_file_name(entry.file_name().to_str()?)?;
            let metadata = entry.metadata().ok().filter(|metadata| metadata.is_file())?;
            let mut begin = Vec::new();
            File::open(entry.path()).ok()?.take(MAGIC.len() as u64).read_to_end(&mut begin).ok()?;
            let modified = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            // One that was cut off may have no more than a part of it.
            MAGIC.starts_with(&begin).then_some((modified, StoredRecord { id, bytes: metadata.len() }))
        };
        let mut stored: Vec<(SystemTime, StoredRecord)> = entries.filter_map(stored).collect();
        stored.sort_by_key(|(modified, record)| (*modified, record.id));
        stored.into_iter().map(|(_, record)| record).collect()
    }
}

impl Disk for Folder {
    fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let mut file = os::private_file().create(true).truncate(true).open(self.path.join(name))?;
        file.write_all(bytes)
    }

    fn read(&self, name: &str, bytes: usize) -> io::Result<Vec<u8>> {
        let mut read = Vec::with_capacity(bytes + 1);
        File::open(self.path.join(name))?.take(bytes as u64 + 1).read_to_end(&mut read)?;
        Ok(read)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }
}

#[cfg(test)]
mod tests {
    use cascadia_model::PageClass;

    use super::*;

    fn name(number: u8) -> String {
        RecordId { name: [number; 32], class: PageClass::Full }.file_name()
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn what_an_earlier_process_left_is_removed_and_nothing_else() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("a/b");
        let folder = Folder::open(&path).unwrap();
        fs::write(path.join(name(1)), [&MAGIC[..], &[0; 50]].concat()).unwrap();
        fs::write(path.join(name(2)), &MAGIC[..3]).unwrap();
        fs::write(path.join(name(3)), "not ours").unwrap();
        fs::write(path.join("notes.txt"), MAGIC).unwrap();
        fs::create_dir(path.join(name(4))).unwrap();
        assert!(folder.begin(false).unwrap().1.is_empty());
        let mut left = vec![name(3), name(4), "cascadia-spill.lock".to_owned(), "notes.txt".to_owned()];
        left.sort();
        assert_eq!(names(&path), left);
    }

    #[test]
    fn a_folder_has_one_server() {
        let path = tempfile::tempdir().unwrap();
        let first = Folder::open(path.path()).unwrap();
        let error = Folder::open(path.path()).err().expect("it is in use").to_string();
        assert!(error.contains("another server uses it"), "{error}");
        drop(first);
        Folder::open(path.path()).unwrap();
        let file = path.path().join("file");
        fs::write(&file, "").unwrap();
        let error = Folder::open(&file).err().expect("it is a file").to_string();
        assert!(error.contains("file") && error.contains("pass a folder"), "{error}");
    }

    #[cfg(unix)]
    #[test]
    fn others_may_not_read_it() {
        use std::os::unix::fs::PermissionsExt;
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("spill");
        let folder = Folder::open(&path).unwrap();
        folder.begin(true).unwrap();
        folder.write(&name(1), &MAGIC).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o700);
        for file in names(&path) {
            assert_eq!(mode(&path.join(&file)), 0o600, "{file}");
        }
    }

    #[test]
    fn records_survive_with_their_secret() {
        let path = tempfile::tempdir().unwrap();
        let folder = Folder::open(path.path()).unwrap();
        let secret = folder.begin(true).unwrap().0;
        folder.write(&name(1), &MAGIC).unwrap();
        let (again, stored) = folder.begin(true).unwrap();
        assert_eq!((&*again.0, stored.len(), stored[0].bytes), (&*secret.0, 1, 8));
        fs::write(path.path().join(SECRET_FILE), "damaged").unwrap();
        let (other, stored) = folder.begin(true).unwrap();
        assert!(*other.0 != *secret.0 && stored.is_empty(), "nothing opens them");
        folder.write(&name(1), &MAGIC).unwrap();
        let (third, stored) = folder.begin(false).unwrap();
        assert!(*third.0 != *other.0 && stored.is_empty(), "nobody wants them");
        assert_eq!(names(path.path()), [LOCK_FILE]);
    }
}
