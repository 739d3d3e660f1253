//! The bytes behind each token id: the table from which all decoding is done.

use crate::{MAX_TOKENS, TextError};

/// What happens to the space that many tokenizers put in front of a text.
///
/// Also the state of one decoding run: after the first text it becomes [`Leading::Keep`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Leading {
    /// Nothing is removed.
    #[default]
    Keep,
    /// One space is removed from the front of the text.
    StripOne,
    /// All spaces of the first token are removed, as the `Metaspace` decoder of the `tokenizers` crate does.
    StripFirstToken,
}

/// Whether a token shows up in decoded text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Visibility {
    Shown,
    Hidden,
}

/// All token bytes in one allocation, by id.
pub(crate) struct Pieces {
    bytes: Vec<u8>,
    slots: Vec<Option<Slot>>,
    leading: Leading,
}

#[derive(Clone, Copy)]
struct Slot {
    start: u32,
    length: u32,
    visibility: Visibility,
}

impl Pieces {
    pub(crate) fn new(leading: Leading) -> Pieces {
        Pieces { bytes: Vec::new(), slots: Vec::new(), leading }
    }

    /// Sets the bytes of a token; a second call for the same id replaces the first.
    pub(crate) fn set(&mut self, id: u32, bytes: &[u8], visibility: Visibility) -> Result<(), TextError> {
        let index = id as usize;
        if index >= MAX_TOKENS {
            let (what, size) = ("the vocabulary", index.saturating_add(1));
            return Err(TextError::TooLarge { what, size, limit: MAX_TOKENS, unit: "tokens" });
        }
        let (Ok(start), Ok(length)) = (u32::try_from(self.bytes.len()), u32::try_from(bytes.len())) else {
            let (what, limit) = ("the text of all tokens", u32::MAX as usize);
            return Err(TextError::TooLarge { what, size: self.bytes.len(), limit, unit: "bytes" });
        };
        if self.slots.len() <= index {
            self.slots.resize(index + 1, None);
        }
        self.bytes.extend_from_slice(bytes);
        self.slots[index] = Some(Slot { start, length, visibility });
        Ok(())
    }

    /// One more than the largest id.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn leading(&self) -> Leading {
        self.leading
    }

    pub(crate) fn contains(&self, id: u32) -> bool {
        self.slot(id).is_some()
    }

    /// The bytes of a token, hidden ones included.
    pub(crate) fn bytes(&self, id: u32) -> Option<&[u8]> {
        self.slot(id).map(|slot| self.slice(slot))
    }

    /// Whether a token adds nothing to decoded text.
    pub(crate) fn is_hidden(&self, id: u32) -> bool {
        self.slot(id).is_some_and(|slot| slot.visibility == Visibility::Hidden)
    }

    /// Appends what a token adds to decoded text: nothing for hidden and unknown ids.
    pub(crate) fn append(&self, id: u32, leading: &mut Leading, out: &mut Vec<u8>) {
        let Some(slot) = self.slot(id).filter(|slot| slot.visibility == Visibility::Shown) else { return };
        let bytes = self.slice(slot);
        match *leading {
            Leading::Keep => out.extend_from_slice(bytes),
            Leading::StripFirstToken => {
                out.extend(bytes.iter().filter(|&&byte| byte != b' '));
                *leading = Leading::Keep;
            }
            Leading::StripOne if bytes.is_empty() => {}
            Leading::StripOne => {
                out.extend_from_slice(bytes.strip_prefix(b" ").unwrap_or(bytes));
                *leading = Leading::Keep;
            }
        }
    }

    fn slot(&self, id: u32) -> Option<Slot> {
        *self.slots.get(id as usize)?
    }

    fn slice(&self, slot: Slot) -> &[u8] {
        &self.bytes[slot.start as usize..][..slot.length as usize]
    }
}
