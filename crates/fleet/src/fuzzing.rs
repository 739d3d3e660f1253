//! What fuzz targets need of messages, plans and adapters, which others reach only over a connection.

use std::sync::Arc;

use cascadia_model::{Adapter, StepPlan};

use crate::audit::{SignedHead, parse_testimony, testimony_bytes};
use crate::membership::listener::{JoinMessage, JoinedMessage};
use crate::membership::rotation::Succession;
use crate::membership::shown_keys::ShownKeys;
use crate::wire::compress::decompress;
use crate::wire::frame::Kind;
use crate::wire::message::{Hello, MOST_MESSAGE, Offer, StageLimits, Writer, layers_computed, microseconds, reason};
use crate::wire::pages::{PagePiece, PageRequest};
use crate::wire::plan_codec::{PlanDecoder, PlanEncoder};
use crate::{MachineSpeed, PairRefusal};

/// The most bytes of a message.
pub const MESSAGE_BYTES: u32 = MOST_MESSAGE;

/// Reads the message of a frame of this kind, and writes what was read; nothing if it makes no sense. Frames that carry
/// no message have none that does.
pub fn rewrite(kind: Kind, bytes: &[u8]) -> Option<Vec<u8>> {
    match kind {
        Kind::Hello => Hello::parse(bytes).ok().map(|hello| hello.bytes()),
        Kind::Welcome => StageLimits::parse(bytes).ok().map(|limits| limits.bytes()),
        Kind::Join => JoinMessage::parse(bytes).ok().map(|join| join.bytes()),
        Kind::Joined => JoinedMessage::parse(bytes).ok().map(|joined| joined.bytes()),
        Kind::Keys => ShownKeys::parse(bytes).ok().map(|shown| shown.bytes()),
        Kind::Ready | Kind::Refused | Kind::Leaving => reason(bytes).ok().map(|text| Writer::default().text(&text).0),
        Kind::Rows => microseconds(bytes).ok().map(|time| Writer::default().number(time).0),
        Kind::Pong => MachineSpeed::parse(bytes).ok().map(|speed| speed.bytes()),
        Kind::Offer => Offer::parse(bytes).ok().map(|offer| offer.bytes()),
        Kind::Beat => {
            layers_computed(bytes).ok().map(|layers| layers.map(u64::to_le_bytes).as_slice().as_flattened().to_vec())
        }
        Kind::Head => SignedHead::parse(bytes).ok().map(|head| head.bytes()),
        Kind::Witness => parse_testimony(bytes).ok().map(|testimony| testimony_bytes(&testimony)),
        Kind::Succeed => Succession::parse(bytes).ok().map(|succession| succession.bytes()),
        Kind::Fetch => PageRequest::parse(bytes).ok().map(|request| request.bytes()),
        Kind::Page => PagePiece::parse(bytes).ok().map(|piece| piece.bytes()),
        // Of an exchange of keys, both ends know how long it is, and nothing else.
        Kind::PairStart | Kind::PairProof => None,
        Kind::PairRefused => PairRefusal::parse(bytes).ok().map(PairRefusal::bytes),
        Kind::Step | Kind::Ping | Kind::Have | Kind::Chunk | Kind::Compressed => None,
        Kind::Pending | Kind::Rotate | Kind::Succeeded | Kind::Adapter | Kind::Revoked => None,
    }
}

/// Fills a piece of a file with what was compressed; whether it can have been that.
pub fn fill_piece(compressed: &[u8], piece: &mut [u8]) -> bool {
    decompress(compressed, piece).is_some()
}

/// Both ends of a connection, as far as plans go.
pub struct PlanExchange {
    encoder: PlanEncoder,
    decoder: PlanDecoder,
}

impl PlanExchange {
    /// Nothing is known yet.
    pub fn new(sends_tokens: bool, context: u32) -> PlanExchange {
        PlanExchange { encoder: PlanEncoder::new(sends_tokens, 0..0), decoder: PlanDecoder::new(sends_tokens, context) }
    }

    /// The frames with the adapters of a plan that the other end lacks; nothing if it cannot have so many.
    pub fn adapter_frames(&mut self, plan: &StepPlan) -> Option<Vec<Vec<u8>>> {
        let mut frames = Vec::new();
        let told = self.encoder.adapters.tell(plan, |frame| {
            frames.push(frame.to_vec());
            Ok(())
        });
        told.ok().map(|_| frames)
    }

    /// Takes such a frame, of which `read` makes an adapter once it is whole; whether it makes sense.
    pub fn take_adapter(&mut self, frame: &[u8], read: impl FnOnce(&[u8]) -> Result<Arc<Adapter>, String>) -> bool {
        self.decoder.adapters.take(frame, read).is_ok()
    }

    /// The plan as it is sent, with the sequences that have ended; nothing if it cannot be sent.
    pub fn write(&mut self, plan: &StepPlan, ended: &[u64]) -> Option<Vec<u8>> {
        let mut table = Vec::new();
        self.encoder.write(plan, ended, &mut table).map(|()| table)
    }

    /// The plan in a table, with the sequences that have ended; nothing if it makes no sense.
    pub fn read(&mut self, table: &[u8], rows: u16) -> Option<(StepPlan, Vec<u64>)> {
        self.decoder.read(table, rows).ok()
    }

    /// The longest table of a step of so many rows that is received.
    pub fn most_bytes(&self, rows: u32) -> u32 {
        self.decoder.most_bytes(rows)
    }
}
