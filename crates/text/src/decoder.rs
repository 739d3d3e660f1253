//! Incremental decoding that only ever emits whole characters.

use std::sync::Arc;

use crate::Tokenizer;
use crate::pieces::Leading;

/// Control tokens that a [`StreamDecoder`] does not drop. Made once for a model; clones are cheap.
#[derive(Debug, Clone, Default)]
pub struct KeptTokens(Arc<[u32]>);

impl KeptTokens {
    /// The control tokens of which these markers are made.
    pub fn new(tokenizer: &Tokenizer, markers: &[&str]) -> KeptTokens {
        let is_part = |id: &u32| {
            let name = tokenizer.token_bytes(*id).and_then(|bytes| std::str::from_utf8(bytes).ok()).unwrap_or_default();
            name.len() > 2 && markers.iter().any(|marker| marker.contains(name))
        };
        let hidden = |id: &u32| tokenizer.pieces().is_hidden(*id);
        KeptTokens(tokenizer.reserved_tokens().into_iter().filter(hidden).filter(is_part).collect())
    }
}

/// Turns a stream of token ids into text.
///
/// Everything it emits, followed by [`finish`](StreamDecoder::finish), equals the lossy UTF-8 decoding of
/// [`Tokenizer::decode`] on the whole sequence: half a character waits for its other half, and bytes which can never
/// become a character turn into U+FFFD.
#[derive(Debug, Clone)]
pub struct StreamDecoder {
    tokenizer: Tokenizer,
    kept: KeptTokens,
    leading: Leading,
    pending: Vec<u8>,
}

impl StreamDecoder {
    /// Starts a new stream.
    pub fn new(tokenizer: &Tokenizer) -> StreamDecoder {
        StreamDecoder::keeping(tokenizer, &KeptTokens::default())
    }

    /// Starts a new stream in which some control tokens appear by their names: for an
    /// [`AnswerParser`](crate::AnswerParser), which takes them out again.
    pub fn keeping(tokenizer: &Tokenizer, kept: &KeptTokens) -> StreamDecoder {
        let (leading, kept) = (tokenizer.pieces().leading(), kept.clone());
        StreamDecoder { tokenizer: tokenizer.clone(), kept, leading, pending: Vec::new() }
    }

    /// Takes one token and returns the text it completes, possibly none. Special and unknown ids add nothing.
    pub fn push(&mut self, id: u32) -> String {
        if self.kept.0.binary_search(&id).is_ok() {
            let before = self.finish();
            let name = self.tokenizer.token_bytes(id).unwrap_or_default();
            return before + &String::from_utf8_lossy(name);
        }
        self.tokenizer.pieces().append(id, &mut self.leading, &mut self.pending);
        self.take_whole_characters()
    }

    /// Ends the stream: a character that never became whole is returned as U+FFFD.
    pub fn finish(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.pending)).into_owned()
    }

    /// Moves everything out of `pending` except a suffix that may still grow into a character.
    fn take_whole_characters(&mut self) -> String {
        let mut text = String::with_capacity(self.pending.len());
        let mut taken = 0;
        for chunk in self.pending.utf8_chunks() {
            text.push_str(chunk.valid());
            taken += chunk.valid().len();
            let is_last = taken + chunk.invalid().len() == self.pending.len();
            if chunk.invalid().is_empty() || (is_last && may_grow(chunk.invalid())) {
                break;
            }
            text.push(char::REPLACEMENT_CHARACTER);
            taken += chunk.invalid().len();
        }
        self.pending.drain(..taken);
        text
    }
}

/// Whether more bytes could complete this beginning of a character.
fn may_grow(bytes: &[u8]) -> bool {
    matches!(std::str::from_utf8(bytes), Err(error) if error.error_len().is_none())
}
