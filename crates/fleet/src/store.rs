//! The files of a worker: named by their content, taken in pieces, there as a whole or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::dock::refuse;
use crate::frame::{Bounds, Frame, Kind, Outgoing, Wait, receive};
use crate::link::{Link, LinkError};
use crate::message::Offer;
use crate::push::{CHUNK, chunk_bounds};
use crate::squeeze::stretch;
use crate::verbs::Hearing;
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
        match Digest::of_file(&path) {
            Ok((found, _)) if found == digest => Ok(true),
            _ => fs::remove_file(&path).map(|()| false).map_err(stored),
        }
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
        if !self.has(offer.digest)? {
            self.make_room(offer, keep);
            if let Err(problem) = self.check_room(offer) {
                return Err(refuse(link, problem));
            }
            match self.receive(link, offer).and_then(|()| self.finish(offer)) {
                Ok(()) => {}
                Err(LinkError::Broken(problem)) => return Err(refuse(link, problem)),
                Err(error) => return Err(error),
            }
        }
        match open(&path) {
            Ok(opened) => have(link, offer.bytes).map(|()| opened),
            Err(problem) => Err(refuse(link, problem)),
        }
    }

    /// Removes files that are not to be kept, the oldest first, until there is room for one more.
    fn make_room(&self, offer: &Offer, keep: &[Digest]) {
        let kept: Vec<String> = keep.iter().chain([&offer.digest]).map(Digest::to_string).collect();
        let files = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let unused = files.filter(|file| !kept.iter().any(|kept| file.file_name().to_string_lossy().starts_with(kept)));
        let dated = unused.filter_map(|file| Some((file.metadata().ok()?.modified().ok()?, file.path())));
        let mut unused: Vec<_> = dated.collect();
        unused.sort();
        for (_, path) in unused {
            if self.check_room(offer).is_ok() {
                return;
            }
            // One that stays counts when it is asked again whether there is room.
            let _ = fs::remove_file(path);
        }
    }

    /// Says why a file cannot be taken.
    fn check_room(&self, offer: &Offer) -> Result<(), String> {
        let held = self.held(offer.digest);
        if held.saturating_add(offer.bytes) > self.quota {
            let (needs, quota) = (offer.bytes, self.quota);
            return Err(format!("{needs} bytes beside {held} are more than the {quota} its owner allows"));
        }
        match os::free_bytes(&self.folder) {
            Some(free) if offer.bytes.saturating_add(RESERVE) > free => {
                Err(format!("{} bytes do not fit onto a disk with {free} free", offer.bytes))
            }
            _ => Ok(()),
        }
    }

    /// Bytes of all files but those of one content.
    fn held(&self, except: Digest) -> u64 {
        let except = except.to_string();
        let files = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let others = files.filter(|file| !file.file_name().to_string_lossy().starts_with(&except));
        others.filter_map(|file| file.metadata().ok()).map(|metadata| metadata.len()).sum()
    }

    fn receive(&self, link: &mut dyn Link, offer: &Offer) -> Result<(), LinkError> {
        let path = self.partial(offer.digest);
        let mut file = OpenOptions::new().write(true).create(true).truncate(false).open(&path).map_err(stored)?;
        let length = file.metadata().map_err(stored)?.len().min(offer.bytes);
        // The last piece may have been cut short.
        let mut done = length / CHUNK as u64 * CHUNK as u64;
        file.set_len(done).and_then(|()| file.seek(SeekFrom::Start(done))).map_err(stored)?;
        have(link, done)?;
        let (mut frame, mut piece) = (Frame::default(), Vec::new());
        while done < offer.bytes {
            receive(link, &chunk_bounds(), &mut frame, Wait::of(PATIENCE))?;
            let (digest, came) = frame.table().split_at_checked(32).ok_or_else(damaged)?;
            let expected = (offer.bytes - done).min(CHUNK as u64);
            piece.resize(expected as usize, 0);
            let right = match frame.header.kind {
                Kind::Chunk if came.len() == piece.len() => {
                    piece.copy_from_slice(came);
                    true
                }
                Kind::Squeezed => stretch(came, &mut piece).is_some(),
                _ => false,
            };
            if !right || Digest::of(&piece).0 != *digest {
                return Err(damaged());
            }
            file.write_all(&piece).map_err(stored)?;
            done += expected;
        }
        file.sync_all().map_err(stored)
    }

    /// Gives a file that has all its bytes its name, if that is its content's.
    fn finish(&self, offer: &Offer) -> Result<(), LinkError> {
        let (partial, path) = (self.partial(offer.digest), self.path(offer.digest));
        let found = Digest::of_file(&partial).map_err(|error| LinkError::Broken(error.to_string()))?;
        if found != (offer.digest, offer.bytes) {
            fs::remove_file(&partial).map_err(stored)?;
            return Err(damaged());
        }
        let mut permissions = fs::metadata(&partial).map_err(stored)?.permissions();
        permissions.set_readonly(true);
        fs::set_permissions(&partial, permissions).map_err(stored)?;
        fs::rename(&partial, &path).map_err(stored)?;
        // The name is kept too when the power goes.
        File::open(&self.folder).and_then(|folder| folder.sync_all()).or(Ok(()))
    }
}

/// Tells the coordinator how much is here.
fn have(link: &mut dyn Link, bytes: u64) -> Result<(), LinkError> {
    Outgoing::message(Kind::Have, &bytes.to_le_bytes()).send(link, &mut Vec::new()).map(|_| ())
}

/// Bounds of a message that says how much a worker has, or why it takes nothing.
pub(crate) fn answer_bounds() -> Bounds {
    Bounds::table(Hearing::Receipt, crate::message::MOST_MESSAGE)
}

fn stored(error: std::io::Error) -> LinkError {
    LinkError::Broken(format!("the file cannot be stored: {error}"))
}

fn damaged() -> LinkError {
    LinkError::Broken("a piece of the file came damaged; push it again".to_owned())
}
