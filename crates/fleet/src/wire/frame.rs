//! Frames: twenty bytes that say what follows, then exactly as much as both ends know it must be.

use std::time::{Duration, Instant};

use crate::wire::link::{Link, LinkError};
use crate::wire::verbs::Expecting;

/// Bytes before the payload of a frame.
pub const HEADER_BYTES: usize = 20;
/// The version of everything on the wire.
pub const WIRE_VERSION: u8 = 9;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A worker says who it is and what it holds.
    Hello = 1,
    /// The coordinator says what to load.
    Welcome = 2,
    /// The worker has loaded it; the table names the class of its numerics.
    Ready = 3,
    /// Something cannot be done, and why.
    Refused = 4,
    /// Compute these rows.
    Step = 5,
    /// They are computed; the table says in how many microseconds.
    Rows = 6,
    /// Is anybody there?
    Ping = 7,
    /// Yes.
    Pong = 8,
    /// A machine asks to become a member.
    Join = 9,
    /// It is one.
    Joined = 10,
    /// A file that the worker should have.
    Offer = 11,
    /// How much of it the worker has.
    Have = 12,
    /// A piece of it.
    Chunk = 13,
    /// A worker that is busy is still there. Not a [`Kind::Pong`]: who asks wants to hear from it now, and heartbeats
    /// that nobody has read yet may be old.
    Beat = 14,
    /// How far the coordinator's audit log goes, signed.
    Head = 15,
    /// The worker has seen and remembered it, or says why it does not sign.
    Witness = 16,
    /// The worker goes, because its owner needs the machine; the table says why.
    Leaving = 17,
    /// A [`Kind::Chunk`] in fewer bytes.
    Compressed = 18,
    /// The machine that wants to join has to be approved by people, who compare codes.
    Pending = 19,
    /// Whether a worker should have a new key.
    Rotate = 20,
    /// The new key of a worker, signed with the old one.
    Succeed = 21,
    /// The coordinator has remembered it.
    Succeeded = 22,
    /// The keys that the fleet has had, each signed with the ones before.
    Keys = 23,
    /// A piece of an adapter that the next steps use.
    Adapter = 24,
    /// What does a page of the KV cache hold?
    Fetch = 25,
    /// A piece of what it holds: the answer to a [`Kind::Fetch`], or to be put into the same page.
    Page = 26,
    /// The first message of either end that exchanges a key by a pairing code.
    PairStart = 27,
    /// That this end has the same key.
    PairProof = 28,
    /// The coordinator exchanges no key, and why.
    PairRefused = 29,
    /// The machine was a member, and was revoked.
    Revoked = 30,
}

/// All of them.
pub const KINDS: [Kind; 30] = [
    Kind::Hello,
    Kind::Welcome,
    Kind::Ready,
    Kind::Refused,
    Kind::Step,
    Kind::Rows,
    Kind::Ping,
    Kind::Pong,
    Kind::Join,
    Kind::Joined,
    Kind::Offer,
    Kind::Have,
    Kind::Chunk,
    Kind::Beat,
    Kind::Head,
    Kind::Witness,
    Kind::Leaving,
    Kind::Compressed,
    Kind::Pending,
    Kind::Rotate,
    Kind::Succeed,
    Kind::Succeeded,
    Kind::Keys,
    Kind::Adapter,
    Kind::Fetch,
    Kind::Page,
    Kind::PairStart,
    Kind::PairProof,
    Kind::PairRefused,
    Kind::Revoked,
];

/// What stands before a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What the frame is.
    pub kind: Kind,
    /// Rows of hidden states in its payload.
    pub rows: u16,
    /// Bytes of its payload before them.
    pub table: u32,
    /// Which connection it belongs to: replies of an earlier one are never taken for new ones.
    pub epoch: u32,
    /// Which step of that connection.
    pub step: u32,
}

/// What may come, and the most that it may hold, known before it comes.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// What is waited for.
    pub hearing: Expecting,
    /// Rows of hidden states.
    pub rows: u32,
    /// Bytes of a row; it has exactly so many.
    pub row_bytes: usize,
    /// Bytes before the rows.
    pub table: u32,
}

impl Bounds {
    /// A frame without hidden states.
    pub fn table(hearing: Expecting, bytes: u32) -> Bounds {
        Bounds { hearing, rows: 0, row_bytes: 0, table: bytes }
    }
}

/// A frame that has come. Its buffer is used again.
#[derive(Debug)]
pub struct Frame {
    /// What it is.
    pub header: Header,
    /// The table, then the rows.
    payload: Vec<u8>,
}

impl Default for Frame {
    fn default() -> Frame {
        let header = Header { kind: Kind::Ping, rows: 0, table: 0, epoch: 0, step: 0 };
        Frame { header, payload: Vec::new() }
    }
}

impl Frame {
    /// What stands before the rows.
    pub fn table(&self) -> &[u8] {
        &self.payload[..self.header.table as usize]
    }

    /// The rows.
    pub fn rows(&self) -> &[u8] {
        &self.payload[self.header.table as usize..]
    }
}

impl Header {
    /// The header as it is sent, for this payload.
    fn bytes(&self, payload: [&[u8]; 2]) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0] = self.kind as u8;
        bytes[1] = WIRE_VERSION;
        bytes[2..4].copy_from_slice(&self.rows.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.table.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.epoch.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.step.to_le_bytes());
        let checksum = checksum(&bytes[..16], payload);
        bytes[16..].copy_from_slice(&checksum);
        bytes
    }

    /// Reads a header; its checksum is compared once the payload is there.
    fn parse(bytes: &[u8; HEADER_BYTES]) -> Result<Header, LinkError> {
        if bytes[1] != WIRE_VERSION {
            let problem = format!("it speaks version {} of the protocol, this is {WIRE_VERSION}", bytes[1]);
            return Err(LinkError::Broken(problem));
        }
        let kind = KINDS.into_iter().find(|kind| *kind as u8 == bytes[0]);
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        Ok(Header {
            kind: kind.ok_or_else(|| LinkError::Broken(format!("it sent a frame of kind {}", bytes[0])))?,
            rows: u16::from_le_bytes([bytes[2], bytes[3]]),
            table: word(4),
            epoch: word(8),
            step: word(12),
        })
    }

    /// Bytes that follow, if they may.
    fn payload(&self, bounds: &Bounds) -> Result<usize, LinkError> {
        let fits = u32::from(self.rows) <= bounds.rows && self.table <= bounds.table;
        let rows = usize::from(self.rows).checked_mul(bounds.row_bytes);
        let length = rows.and_then(|rows| rows.checked_add(self.table as usize)).filter(|_| fits);
        let problem = || format!("it announced {} rows and {} bytes, which cannot be", self.rows, self.table);
        length.ok_or_else(|| LinkError::Broken(problem()))
    }
}

fn checksum(header: &[u8], payload: [&[u8]; 2]) -> [u8; 4] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(header);
    for part in payload {
        hasher.update(part);
    }
    let [a, b, c, d, ..] = *hasher.finalize().as_bytes();
    [a, b, c, d]
}

/// A frame that is going to be sent.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// What it is.
    pub kind: Kind,
    /// Which connection.
    pub epoch: u32,
    /// Which step.
    pub step: u32,
    /// What stands before the rows.
    pub table: &'a [u8],
    /// How many rows.
    pub rows: u16,
    /// The rows.
    pub row_bytes: &'a [u8],
}

impl<'a> Outgoing<'a> {
    /// A frame without hidden states.
    pub fn message(kind: Kind, table: &'a [u8]) -> Outgoing<'a> {
        Outgoing { kind, epoch: 0, step: 0, table, rows: 0, row_bytes: &[] }
    }

    /// Sends the frame in one piece, using `buffer` for it; says how many bytes that were.
    pub fn send(&self, link: &mut dyn Link, buffer: &mut Vec<u8>) -> Result<usize, LinkError> {
        let table = u32::try_from(self.table.len());
        let table = table.map_err(|_| LinkError::Broken("a step is too large for a frame".to_owned()))?;
        let header = Header { kind: self.kind, rows: self.rows, table, epoch: self.epoch, step: self.step };
        buffer.clear();
        buffer.extend_from_slice(&header.bytes([self.table, self.row_bytes]));
        buffer.extend_from_slice(self.table);
        buffer.extend_from_slice(self.row_bytes);
        link.write(buffer).map(|()| buffer.len())
    }
}

/// How long to wait for a frame, by the clock of its link.
#[derive(Clone, Copy, Debug)]
pub enum Wait {
    /// So long from now on.
    For(Duration),
    /// Until some time, which may be the same for several frames.
    Until {
        /// When all of the frame has come.
        end: Instant,
        /// The longest time in which nothing of it comes.
        silence: Duration,
    },
}

/// Fills all of `out` before `end`.
fn fill(link: &mut dyn Link, mut out: &mut [u8], (end, silence): (Instant, Duration)) -> Result<(), LinkError> {
    while !out.is_empty() {
        let deadline = end.min(link.clock().now() + silence);
        let count = link.read(out, deadline)?;
        out = &mut out[count..];
    }
    Ok(())
}

/// Waits for a frame within `bounds`; one that may not come now is refused. Memory follows the bounds, never what the
/// peer announces beyond them.
pub fn receive(link: &mut dyn Link, bounds: &Bounds, frame: &mut Frame, wait: Wait) -> Result<(), LinkError> {
    let wait = match wait {
        Wait::For(time) => (link.clock().now() + time, time),
        Wait::Until { end, silence } => (end, silence),
    };
    let mut bytes = [0; HEADER_BYTES];
    fill(link, &mut bytes, wait)?;
    frame.header = Header::parse(&bytes)?;
    bounds.hearing.allows(frame.header.kind).map_err(LinkError::Broken)?;
    frame.payload.resize(frame.header.payload(bounds)?, 0);
    fill(link, &mut frame.payload, wait)?;
    match checksum(&bytes[..16], [&frame.payload, &[]]) == bytes[16..] {
        true => Ok(()),
        false => Err(LinkError::Broken("what it sent was damaged on the way".to_owned())),
    }
}
