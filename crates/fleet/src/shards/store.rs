//! The files of a worker: named by their content, taken in pieces, there as a whole or not at all.

use std::fs::{self, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::json_file::sync_folder;
use crate::shards::push::{CHUNK, chunk_bounds};
use crate::wire::compress::decompress;
use crate::wire::frame::{Bounds, Frame, Kind, Outgoing, Wait, receive};
use crate::wire::link::{Link, LinkError};
use crate::wire::message::{Offer, refuse};
use crate::wire::verbs::Expecting;
use crate::{Digest, FleetError, os};

/// How long a piece may take to come.
const PATIENCE: Duration = Duration::from_secs(60);
/// What is left free for the owner of the machine.
const RESERVE: u64 = 64 << 20;

/// A folder of files that are called by their digests.
pub struct Store {
    folder: PathBuf,
    /// The most bytes in it.
    quota: u64,
}

impl Store {
    /// The store in a folder, which is made if it is not there.
    pub fn open(folder: &Path, quota: u64) -> Result<Store, FleetError> {
        fs::create_dir_all(folder).map_err(FleetError::io("make the folder", folder))?;
        Ok(Store { folder: folder.to_owned(), quota })
    }

    /// Where the file with this content is, or would be.
    pub fn path(&self, digest: Digest) -> PathBuf {
        self.folder.join(digest.to_string())
    }

    /// Whether the file with this content is here. One that is damaged is removed: it can only be sent again.
    pub fn has(&self, digest: Digest) -> Result<bool, LinkError> {
        let path = self.path(digest);
        if !path.exists() {
            return Ok(false);
        }
        let broken = |error: FleetError| LinkError::Broken(error.to_string());
        if Digest::of_file(&path).map_err(broken)?.0 == digest {
            return Ok(true);
        }
        self.remove(digest).map(|()| false).map_err(broken)
    }

    /// Removes the file that was called by this digest and is damaged.
    pub(crate) fn remove(&self, digest: Digest) -> Result<(), FleetError> {
        let path = self.path(digest);
        fs::remove_file(&path).map_err(FleetError::io("remove the damaged", &path))
    }

    fn partial(&self, digest: Digest) -> PathBuf {
        self.folder.join(format!("{digest}.part"))
    }

    /// Takes the file that was offered, from where an earlier attempt ended, and says that it is here once `open` has
    /// made something of it. For its sake, files may go that are not to be kept.
    pub fn take<T>(
        &self,
        link: &mut dyn Link,
        offer: &Offer,
        keep: &[Digest],
        open: impl FnOnce(&Path) -> Result<T, String>,
    ) -> Result<T, LinkError> {
        let path = self.path(offer.digest);
        let here = match self.has(offer.digest) {
            Ok(here) => here,
            Err(error) => return Err(refuse(link, error.to_string())),
        };
        if !here {
            if let Err(problem) = self.make_room(offer, keep) {
                return Err(refuse(link, problem));
            }
            match self.receive(link, offer).and_then(|()| self.finish(offer)) {
                Ok(()) => {}
                Err(Failure::Link(LinkError::Broken(problem))) => return Err(refuse(link, problem)),
                Err(Failure::Link(error)) => return Err(error),
                Err(Failure::Disk(error)) => return Err(refuse(link, self.give_up(offer, &error))),
            }
        }
        match open(&path) {
            Ok(opened) => have(link, offer.bytes).map(|()| opened),
            Err(problem) => Err(refuse(link, problem)),
        }
    }

    /// Removes as many files as it takes that are not to be kept, the oldest first, until there is room for one more.
    /// If there would be none without all of them, they stay, and the error says why.
    fn make_room(&self, offer: &Offer, keep: &[Digest]) -> Result<(), String> {
        let kept: Vec<String> = keep.iter().chain([&offer.digest]).map(Digest::to_string).collect();
        let files = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let unused = files.filter(|file| !kept.iter().any(|kept| file.file_name().to_string_lossy().starts_with(kept)));
        let dated = unused.filter_map(|file| {
            let metadata = file.metadata().ok()?;
            Some((metadata.modified().ok()?, file.path(), metadata.len()))
        });
        let mut unused: Vec<_> = dated.collect();
        unused.sort();
        let (mut freed, mut unused, mut going) = (0, unused.into_iter(), Vec::new());
        while let Err(problem) = self.check_room(offer, freed) {
            let (_, path, bytes) = unused.next().ok_or(problem)?;
            freed += bytes;
            going.push(path);
        }
        // One that stays counts when it is asked again whether there is room.
        going.iter().for_each(|path| drop(fs::remove_file(path)));
        self.check_room(offer, 0)
    }

    /// Says why a file cannot be taken, even once so many bytes of others are freed.
    fn check_room(&self, offer: &Offer, freed: u64) -> Result<(), String> {
        let held = self.held(offer.digest).saturating_sub(freed);
        if held.saturating_add(offer.bytes) > self.quota {
            let (needs, quota) = (offer.bytes, self.quota);
            return Err(format!("{needs} bytes beside {held} are more than the {quota} its owner allows"));
        }
        match os::free_bytes(&self.folder).map(|free| free.saturating_add(freed)) {
            Some(free) if self.lacking(offer).saturating_add(RESERVE) > free => {
                let bytes = offer.bytes;
                Err(format!("{bytes} bytes, and {RESERVE} for its owner, do not fit onto a disk with {free} free"))
            }
            _ => Ok(()),
        }
    }

    /// Bytes of a file that an earlier attempt has not brought.
    fn lacking(&self, offer: &Offer) -> u64 {
        let came = fs::metadata(self.partial(offer.digest)).map_or(0, |metadata| metadata.len());
        offer.bytes.saturating_sub(came)
    }

    /// Says why a file cannot be stored. What came of it goes, so that it is not what fills the disk.
    fn give_up(&self, offer: &Offer, error: &io::Error) -> String {
        // Where that fails too, the next attempt begins with what is there.
        let _ = fs::remove_file(self.partial(offer.digest));
        let free = os::free_bytes(&self.folder).map_or_else(String::new, |free| format!(", with {free} free"));
        format!("its {} bytes cannot be stored{free}: {error}; push again when the disk is well", offer.bytes)
    }

    /// Bytes of all files but those of one content.
    fn held(&self, except: Digest) -> u64 {
        let except = except.to_string();
        let files = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let others = files.filter(|file| !file.file_name().to_string_lossy().starts_with(&except));
        others.filter_map(|file| file.metadata().ok()).map(|metadata| metadata.len()).sum()
    }

    fn receive(&self, link: &mut dyn Link, offer: &Offer) -> Result<(), Failure> {
        let path = self.partial(offer.digest);
        let mut file = OpenOptions::new().write(true).create(true).truncate(false).open(&path)?;
        let length = file.metadata()?.len();
        // The last piece may have been cut short.
        let mut done = length.min(offer.bytes) / CHUNK as u64 * CHUNK as u64;
        if length > done {
            file.set_len(done)?;
        }
        file.seek(SeekFrom::Start(done))?;
        have(link, done)?;
        let (mut frame, mut piece) = (Frame::default(), Vec::new());
        while done < offer.bytes {
            receive(link, &chunk_bounds(), &mut frame, Wait::For(PATIENCE))?;
            let (digest, came) = frame.table().split_at_checked(32).ok_or_else(damaged)?;
            let expected = (offer.bytes - done).min(CHUNK as u64);
            piece.resize(expected as usize, 0);
            let right = match frame.header.kind {
                Kind::Chunk if came.len() == piece.len() => {
                    piece.copy_from_slice(came);
                    true
                }
                Kind::Compressed => decompress(came, &mut piece).is_some(),
                _ => false,
            };
            if !right || Digest::of(&piece).0 != *digest {
                return Err(damaged().into());
            }
            file.write_all(&piece)?;
            done += expected;
        }
        Ok(file.sync_all()?)
    }

    /// Gives a file that has all its bytes its name, if that is its content's.
    fn finish(&self, offer: &Offer) -> Result<(), Failure> {
        let (partial, path) = (self.partial(offer.digest), self.path(offer.digest));
        let found = Digest::of_file(&partial).map_err(|error| LinkError::Broken(error.to_string()))?;
        if found != (offer.digest, offer.bytes) {
            fs::remove_file(&partial)?;
            return Err(damaged().into());
        }
        let mut permissions = fs::metadata(&partial)?.permissions();
        permissions.set_readonly(true);
        fs::set_permissions(&partial, permissions)?;
        fs::rename(&partial, &path)?;
        sync_folder(&self.folder);
        Ok(())
    }
}

/// Why a file did not come to be here.
enum Failure {
    Link(LinkError),
    Disk(io::Error),
}

impl From<LinkError> for Failure {
    fn from(error: LinkError) -> Failure {
        Failure::Link(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::Disk(error)
    }
}

/// Tells the coordinator how much is here.
fn have(link: &mut dyn Link, bytes: u64) -> Result<(), LinkError> {
    Outgoing::message(Kind::Have, &bytes.to_le_bytes()).send(link, &mut Vec::new()).map(|_| ())
}

/// Bounds of a message that says how much a worker has, or why it takes nothing.
pub(crate) fn answer_bounds() -> Bounds {
    Bounds::table(Expecting::Receipt, crate::wire::message::MOST_MESSAGE)
}

fn damaged() -> LinkError {
    LinkError::Broken("a piece of the file came damaged; push it again".to_owned())
}
