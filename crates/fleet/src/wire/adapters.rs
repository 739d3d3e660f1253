//! Adapters on a connection. Both ends remember some of them in numbered slots; one that a step uses comes before the step.

use std::ops::Range;
use std::sync::Arc;

use cascadia_model::{Adapter, AdapterId, StepPlan};

use crate::wire::link::LinkError;
use crate::wire::message::{Reader, Writer, broken};

/// Adapters that both ends remember.
const SLOTS: usize = 64;
/// Bytes of all of them together.
const MOST_BYTES: usize = 1 << 30;
/// Bytes of an adapter in one frame.
const PIECE: usize = 256 << 10;
/// The most bytes of such a frame.
pub(crate) const MOST_FRAME: u32 = PIECE as u32 + 8;

/// The sending end.
#[derive(Default)]
pub(crate) struct AdapterSender {
    /// The layers of the other end.
    layers: Range<u32>,
    slots: Vec<Sent>,
    steps: u64,
}

/// What the other end has in a slot.
#[derive(Default)]
struct Sent {
    id: Option<AdapterId>,
    bytes: usize,
    /// The step that used it last.
    used: u64,
}

/// The receiving end.
#[derive(Default)]
pub(crate) struct AdapterReceiver {
    slots: Vec<Option<Received>>,
    incoming: Option<Incoming>,
}

struct Received {
    adapter: Arc<Adapter>,
    bytes: usize,
}

/// An adapter of which some has come.
struct Incoming {
    slot: usize,
    total: usize,
    bytes: Vec<u8>,
}

impl AdapterSender {
    /// Nothing was sent yet to a stage of these layers.
    pub(crate) fn new(layers: Range<u32>) -> AdapterSender {
        AdapterSender { layers, ..AdapterSender::default() }
    }

    /// Calls `send` with what the other end lacks of the adapters of a plan; says whether there was something.
    pub(crate) fn tell(
        &mut self,
        plan: &StepPlan,
        mut send: impl FnMut(&[u8]) -> Result<(), LinkError>,
    ) -> Result<bool, LinkError> {
        self.steps += 1;
        let used = || plan.steps.iter().filter_map(|step| step.adapter.as_ref());
        // Those that are there first, so that they stay.
        for adapter in used() {
            if let Some(slot) = self.slot(adapter.id()) {
                self.slots[slot].used = self.steps;
            }
        }
        let mut told = false;
        for adapter in used() {
            if self.slot(adapter.id()).is_some() {
                continue;
            }
            let part = adapter.part(&self.layers);
            self.make_room(part.len(), &mut send)?;
            let slot = self.free_slot()?;
            self.slots[slot] = Sent { id: Some(adapter.id()), bytes: part.len(), used: self.steps };
            part.chunks(PIECE).try_for_each(|piece| send(&frame(slot, part.len(), piece)))?;
            told = true;
        }
        Ok(told)
    }

    /// What a plan calls the adapter of a sequence: its slot and one, nothing is zero.
    pub(crate) fn number(&self, adapter: Option<&Arc<Adapter>>) -> Option<u32> {
        match adapter {
            None => Some(0),
            Some(adapter) => self.slot(adapter.id()).map(|slot| slot as u32 + 1),
        }
    }

    fn slot(&self, id: AdapterId) -> Option<usize> {
        self.slots.iter().position(|sent| sent.id == Some(id))
    }

    /// Lets the other end forget adapters that this step does not use until so many bytes more fit.
    fn make_room(
        &mut self,
        bytes: usize,
        send: &mut impl FnMut(&[u8]) -> Result<(), LinkError>,
    ) -> Result<(), LinkError> {
        while self.slots.iter().map(|sent| sent.bytes).sum::<usize>().saturating_add(bytes) > MOST_BYTES {
            let slot = self.oldest(|sent| sent.bytes > 0)?;
            self.slots[slot] = Sent::default();
            send(&frame(slot, 0, &[]))?;
        }
        Ok(())
    }

    /// A slot that is empty, new, or the one that was not used for the longest time.
    fn free_slot(&mut self) -> Result<usize, LinkError> {
        if let Some(empty) = self.slots.iter().position(|sent| sent.id.is_none()) {
            return Ok(empty);
        }
        if self.slots.len() < SLOTS {
            self.slots.push(Sent::default());
            return Ok(self.slots.len() - 1);
        }
        self.oldest(|_| true)
    }

    fn oldest(&self, may_go: impl Fn(&Sent) -> bool) -> Result<usize, LinkError> {
        let idle = self.slots.iter().enumerate().filter(|(_, sent)| sent.used < self.steps && may_go(sent));
        let oldest = idle.min_by_key(|(_, sent)| sent.used).map(|(slot, _)| slot);
        oldest.ok_or_else(|| LinkError::Broken("the step has more adapters than it can remember".to_owned()))
    }
}

impl AdapterReceiver {
    /// Takes a piece; `read` makes an adapter of a whole one, or says what is wrong with it.
    pub(crate) fn take(
        &mut self,
        frame: &[u8],
        read: impl FnOnce(&[u8]) -> Result<Arc<Adapter>, String>,
    ) -> Result<(), LinkError> {
        let mut reader = Reader(frame);
        let (slot, total) = (reader.number()? as usize, reader.number()? as usize);
        let piece = reader.0;
        let mut incoming = match self.incoming.take() {
            None => self.begin(slot, total)?,
            Some(incoming) => incoming,
        };
        if (incoming.slot, incoming.total) != (slot, total) || incoming.bytes.len() + piece.len() > total {
            return Err(broken());
        }
        incoming.bytes.extend_from_slice(piece);
        if incoming.bytes.len() < total {
            // A frame without progress would be one of any number.
            self.incoming = Some(incoming);
            return if piece.is_empty() { Err(broken()) } else { Ok(()) };
        }
        if total > 0 {
            let adapter = read(&incoming.bytes).map_err(LinkError::Broken)?;
            self.slots[slot] = Some(Received { adapter, bytes: total });
        }
        Ok(())
    }

    /// What a plan calls by this number; `None` if there is no such thing.
    pub(crate) fn numbered(&self, number: u32) -> Option<Option<Arc<Adapter>>> {
        match number.checked_sub(1) {
            None => Some(None),
            Some(slot) => Some(Some(Arc::clone(&self.slots.get(slot as usize)?.as_ref()?.adapter))),
        }
    }

    /// Empties a slot for an adapter of so many bytes.
    fn begin(&mut self, slot: usize, total: usize) -> Result<Incoming, LinkError> {
        if slot >= SLOTS || slot > self.slots.len() {
            return Err(broken());
        }
        if slot == self.slots.len() {
            self.slots.push(None);
        }
        self.slots[slot] = None;
        let held: usize = self.slots.iter().flatten().map(|received| received.bytes).sum();
        if held.saturating_add(total) > MOST_BYTES {
            return Err(broken());
        }
        Ok(Incoming { slot, total, bytes: Vec::new() })
    }
}

fn frame(slot: usize, total: usize, piece: &[u8]) -> Vec<u8> {
    Writer::default().number(slot as u32).number(total as u32).bytes(piece).0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes frames, none of which is a whole adapter.
    fn check(frames: &[(u32, u32, usize)], works: bool) {
        let mut receiver = AdapterReceiver::default();
        let taken = frames.iter().try_for_each(|&(slot, total, length)| {
            let frame = Writer::default().number(slot).number(total).bytes(&vec![0; length]).0;
            receiver.take(&frame, |_| Err("a whole one".to_owned()))
        });
        assert_eq!(taken.is_ok(), works, "{frames:?}: {taken:?}");
    }

    #[test]
    fn pieces_come_in_order_and_within_limits() {
        check(&[(0, 10, 4), (0, 10, 4)], true);
        check(&[(0, 10, 4), (0, 10, 7)], false);
        check(&[(0, 10, 4), (1, 10, 4)], false);
        check(&[(0, 10, 4), (0, 11, 4)], false);
        check(&[(0, 10, 0)], false);
        check(&[(0, 0, 0), (0, 0, 0), (1, 0, 0)], true);
        check(&[(1, 10, 4)], false);
        check(&[(0, u32::MAX, 4)], false);
        check(&[(SLOTS as u32, 10, 4)], false);
        // Whole, and refused by the stage.
        check(&[(0, 10, 10)], false);
    }
}
