//! Sends a file to a worker: only what it lacks, in pieces that it checks, in fewer bytes where that pays.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::time::Duration;

use crate::shards::store::answer_bounds;
use crate::wire::compress::compress;
use crate::wire::frame::{Bounds, Frame, Kind, Outgoing, Wait, receive};
use crate::wire::link::{Link, LinkError};
use crate::wire::message::{Offer, reason};
use crate::wire::verbs::Expecting;
use crate::workers::pending::PendingWorker;
use crate::{Digest, FleetError, Shard, SignedManifest};

/// Bytes of a piece.
pub(crate) const CHUNK: usize = 1 << 20;
/// How long a worker may take to look what it has, and to check a whole file.
const PATIENCE: Duration = Duration::from_secs(600);

/// Bounds of a piece with its digest before it.
pub(crate) fn chunk_bounds() -> Bounds {
    Bounds::table(Expecting::File, 32 + CHUNK as u32)
}

/// A shard in the folder of an export, and what it is offered under.
#[derive(Clone, Copy)]
pub struct SignedShard<'a> {
    /// The folder.
    pub folder: &'a Path,
    /// The shard.
    pub shard: &'a Shard,
    /// The signature of this push.
    pub signed: &'a SignedManifest,
}

impl PendingWorker {
    /// Sends it a shard; `progress` hears how many of its bytes are there.
    pub fn send(&mut self, shard: SignedShard<'_>, mut progress: impl FnMut(u64)) -> Result<(), FleetError> {
        let (PendingWorker { node, link, .. }, SignedShard { folder, shard, signed }) = (self, shard);
        let path = folder.join(&shard.file);
        let mut file = File::open(&path).map_err(FleetError::io("open", &path))?;
        let refuse = |problem: String| FleetError::Push { node: node.clone(), file: shard.file.clone(), problem };
        let failed = |error: LinkError| refuse(error.to_string());
        let (mut frame, mut buffer) = (Frame::default(), Vec::new());
        let offer = Offer { digest: shard.digest, bytes: shard.bytes, signed: signed.clone() };
        Outgoing::message(Kind::Offer, &offer.bytes()).send(&mut **link, &mut buffer).map_err(failed)?;
        let mut done = held(&mut **link, &mut frame).map_err(failed)?;
        file.seek(SeekFrom::Start(done)).map_err(FleetError::io("read", &path))?;
        let mut piece = vec![0; CHUNK];
        let mut message = Vec::new();
        while done < shard.bytes {
            let count = (shard.bytes - done).min(CHUNK as u64) as usize;
            file.read_exact(&mut piece[..count]).map_err(FleetError::io("read", &path))?;
            message.clear();
            message.extend_from_slice(&Digest::of(&piece[..count]).0);
            let kind = match compress(&piece[..count], &mut message) {
                true => Kind::Compressed,
                false => {
                    message.extend_from_slice(&piece[..count]);
                    Kind::Chunk
                }
            };
            match Outgoing::message(kind, &message).send(&mut **link, &mut buffer) {
                Ok(_) => {}
                // It may have said why before it hung up.
                Err(LinkError::Closed) => {
                    return Err(failed(held(&mut **link, &mut frame).err().unwrap_or(LinkError::Closed)));
                }
                Err(error) => return Err(failed(error)),
            }
            done += count as u64;
            progress(done);
            if done == shard.bytes {
                done = held(&mut **link, &mut frame).map_err(failed)?;
            }
        }
        progress(done);
        match done == shard.bytes {
            true => Ok(()),
            false => Err(refuse(format!("it says that it holds {done} bytes of {}", shard.bytes))),
        }
    }
}

/// How much of the file the worker has.
fn held(link: &mut dyn Link, frame: &mut Frame) -> Result<u64, LinkError> {
    receive(link, &answer_bounds(), frame, Wait::For(PATIENCE))?;
    match frame.header.kind {
        Kind::Have => {
            let bytes = frame.table().try_into().map_err(|_| LinkError::Broken("it answered nonsense".to_owned()))?;
            Ok(u64::from_le_bytes(bytes))
        }
        Kind::Refused => Err(LinkError::Broken(reason(frame.table())?)),
        kind => Err(LinkError::Broken(format!("it answered {kind:?}"))),
    }
}
