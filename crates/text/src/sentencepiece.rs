//! SentencePiece's BPE: the pair with the best score merges first, and no list of merges is needed.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};

use crate::added::{AddedToken, AddedTokens, Part};
use crate::guard::StandIns;
use crate::{SpecialTokens, TextError};

/// What SentencePiece writes for a space.
pub(crate) const SPACE: &str = "▁";

/// A SentencePiece BPE model.
pub(crate) struct SentencePiece {
    pub(crate) table: PieceTable,
    /// Stands for characters which neither a piece nor bytes can spell.
    pub(crate) unknown: Option<u32>,
    pub(crate) add_space_prefix: bool,
    /// Cut out of the text as given; each stretch between them is encoded on its own.
    pub(crate) control: AddedTokens,
    /// Found in the text with its spaces replaced, and never merged with their neighbours.
    pub(crate) user_defined: AddedTokens,
}

/// The pieces that merging may produce.
#[derive(Default)]
pub(crate) struct PieceTable {
    pieces: HashMap<Box<str>, Piece>,
    longest: usize,
    bytes: HashMap<u8, u32>,
}

/// What is known about one piece.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Piece {
    pub(crate) id: u32,
    pub(crate) score: f32,
    /// May occur while merging but not in the result, where it is taken apart again.
    pub(crate) unused: bool,
}

impl PieceTable {
    /// Adds a piece; of several with the same text the first one counts.
    pub(crate) fn add(&mut self, text: &str, piece: Piece) {
        if !text.is_empty() {
            self.longest = self.longest.max(text.len());
            // Adding zero turns -0.0 into 0.0, so that equal scores compare as equal.
            self.pieces.entry(text.into()).or_insert(Piece { score: piece.score + 0.0, ..piece });
        }
    }

    /// Adds the token of a byte, used for characters that are not in the vocabulary.
    pub(crate) fn add_byte(&mut self, byte: u8, id: u32) {
        self.bytes.entry(byte).or_insert(id);
    }

    /// Bytes of the longest piece.
    pub(crate) fn longest(&self) -> usize {
        self.longest
    }

    /// All pieces with their text.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = (&str, Piece)> {
        self.pieces.iter().map(|(text, piece)| (&**text, *piece))
    }

    /// Whether no character is unknown, because all bytes have tokens.
    pub(crate) fn spells_every_byte(&self) -> bool {
        self.bytes.len() == 1 + usize::from(u8::MAX)
    }

    fn get(&self, text: &str) -> Option<Piece> {
        if text.len() > self.longest { None } else { self.pieces.get(text).copied() }
    }
}

impl SentencePiece {
    /// Ids of a text; stand-ins become what they stand for once control tokens have been cut out.
    pub(crate) fn encode(
        &self,
        text: &str,
        special: SpecialTokens,
        stand_ins: &StandIns,
    ) -> Result<Vec<u32>, TextError> {
        let prefix = if self.add_space_prefix { SPACE } else { "" };
        self.encode_after(prefix, text, (special, stand_ins))
    }

    /// The same of a text that continues another one.
    pub(crate) fn encode_rest(
        &self,
        text: &str,
        special: SpecialTokens,
        stand_ins: &StandIns,
    ) -> Result<Vec<u32>, TextError> {
        self.encode_after("", text, (special, stand_ins))
    }

    fn encode_after(
        &self,
        mut prefix: &str,
        text: &str,
        (special, stand_ins): (SpecialTokens, &StandIns),
    ) -> Result<Vec<u32>, TextError> {
        let mut ids = Vec::with_capacity(text.len() / 3);
        for part in self.control.split(text, special) {
            match part.token {
                Some(id) => ids.push(id),
                None => {
                    let segments = self.segments((prefix, &text[part.start..part.end]), special, stand_ins);
                    self.encode_segments(&segments, &mut ids)?;
                }
            }
            // Every stretch between control tokens begins anew.
            prefix = if self.add_space_prefix { SPACE } else { "" };
        }
        Ok(ids)
    }

    /// Every token that is matched by its name.
    pub(crate) fn named_tokens(&self) -> impl Iterator<Item = &AddedToken> {
        self.control.iter().chain(self.user_defined.iter())
    }

    pub(crate) fn token_id(&self, name: &str) -> Option<u32> {
        let byte = || self.table.bytes.get(&crate::vocabulary::byte_of_token(name)?).copied();
        let piece = || self.table.get(name).map(|piece| piece.id);
        self.control.id(name).or_else(|| self.user_defined.id(name)).or_else(piece).or_else(byte)
    }

    /// A stretch between control tokens, cut at the user-defined tokens in it, each with its id.
    fn segments(
        &self,
        (prefix, text): (&str, &str),
        special: SpecialTokens,
        stand_ins: &StandIns,
    ) -> Vec<(String, Option<u32>)> {
        let text = format!("{prefix}{}", text.replace(' ', SPACE));
        let slice = |text: &str, part: &Part| text[part.start..part.end].to_owned();
        let parts = self.user_defined.split(&text, special).into_iter();
        let segments = parts.flat_map(|part| match part.token {
            Some(_) => vec![(slice(&text, &part), part.token)],
            None if stand_ins.pairs().is_empty() => vec![(slice(&text, &part), None)],
            None => {
                let shown = stand_ins.reveal(&text[part.start..part.end]);
                let parts = self.user_defined.split(&shown, SpecialTokens::Plain).into_iter();
                parts.map(|part| (slice(&shown, &part), part.token)).collect()
            }
        });
        segments.collect()
    }

    fn encode_segments(&self, segments: &[(String, Option<u32>)], ids: &mut Vec<u32>) -> Result<(), TextError> {
        let text: String = segments.iter().map(|(text, _)| text.as_str()).collect();
        let mut merging = Merging::new(&text, &self.table);
        let mut start = 0;
        for (text, token) in segments {
            let range = start..start + text.len();
            start = range.end;
            match token {
                Some(id) => merging.push_frozen(range, *id),
                None => merging.push_characters(range),
            }
        }
        merging.run();
        self.collect(&merging, ids)
    }

    /// Reads the ids off the merged symbols.
    fn collect(&self, merging: &Merging<'_>, ids: &mut Vec<u32>) -> Result<(), TextError> {
        let mut after_unknown = false;
        for symbol in merging.symbols.iter().filter(|symbol| symbol.end > symbol.start) {
            let before = ids.len();
            let was_unknown = std::mem::replace(&mut after_unknown, false);
            match symbol.frozen {
                Some(id) => ids.push(id),
                None => merging.take_apart(&merging.text[symbol.start..symbol.end], ids),
            }
            if ids.len() > before {
                continue;
            }
            // What remains is a single character that is no piece. A run of those is one unknown token.
            let character = &merging.text[symbol.start..symbol.end];
            ids.extend(character.bytes().map_while(|byte| self.table.bytes.get(&byte)));
            if ids.len() == before + character.len() {
                continue;
            }
            ids.truncate(before);
            after_unknown = true;
            match self.unknown {
                Some(id) if !was_unknown => ids.push(id),
                Some(_) => {}
                None => {
                    let reason =
                        format!("the vocabulary has no token for {character:?}, for its bytes or for unknowns");
                    return Err(TextError::Encode { bytes: merging.text.len(), reason });
                }
            }
        }
        Ok(())
    }
}

/// A text in the course of being merged.
struct Merging<'a> {
    text: &'a str,
    table: &'a PieceTable,
    symbols: Vec<Symbol>,
    queue: BinaryHeap<Candidate>,
    /// How unused pieces came about: the length of their left half.
    halves: HashMap<&'a str, usize>,
}

/// A stretch of the text; an empty one has been merged into its left neighbour.
struct Symbol {
    start: usize,
    end: usize,
    previous: Option<usize>,
    next: Option<usize>,
    frozen: Option<u32>,
}

/// A pair of neighbours that together are a piece.
struct Candidate {
    score: f32,
    left: usize,
    right: usize,
    /// Where the merged piece ends: tells candidates from before and after another merge apart.
    start: usize,
    end: usize,
}

impl<'a> Merging<'a> {
    fn new(text: &'a str, table: &'a PieceTable) -> Merging<'a> {
        let symbols = Vec::with_capacity(text.len());
        Merging { text, table, symbols, queue: BinaryHeap::new(), halves: HashMap::new() }
    }

    fn push_characters(&mut self, range: std::ops::Range<usize>) {
        for (offset, character) in self.text[range.clone()].char_indices() {
            let start = range.start + offset;
            self.push(start, start + character.len_utf8(), None);
        }
    }

    fn push_frozen(&mut self, range: std::ops::Range<usize>, id: u32) {
        self.push(range.start, range.end, Some(id));
    }

    fn push(&mut self, start: usize, end: usize, frozen: Option<u32>) {
        let index = self.symbols.len();
        let previous = index.checked_sub(1);
        if let Some(previous) = previous {
            self.symbols[previous].next = Some(index);
        }
        self.symbols.push(Symbol { start, end, previous, next: None, frozen });
    }

    fn run(&mut self) {
        for right in 1..self.symbols.len() {
            self.consider(right - 1, right);
        }
        while let Some(best) = self.queue.pop() {
            let (left, right) = (&self.symbols[best.left], &self.symbols[best.right]);
            let is_current = left.start == best.start
                && left.end == right.start
                && right.end == best.end
                && left.end > left.start
                && right.end > right.start;
            if is_current {
                self.merge(best.left, best.right);
            }
        }
    }

    fn merge(&mut self, left: usize, right: usize) {
        let (end, next) = (self.symbols[right].end, self.symbols[right].next);
        self.symbols[left].end = end;
        self.symbols[left].next = next;
        self.symbols[right].start = end;
        if let Some(next) = next {
            self.symbols[next].previous = Some(left);
            self.consider(left, next);
        }
        if let Some(previous) = self.symbols[left].previous {
            self.consider(previous, left);
        }
    }

    /// Queues a pair of neighbours if it is a piece.
    fn consider(&mut self, left: usize, right: usize) {
        let (first, second) = (&self.symbols[left], &self.symbols[right]);
        if first.frozen.is_some() || second.frozen.is_some() {
            return;
        }
        let text = &self.text[first.start..second.end];
        let Some(piece) = self.table.get(text) else { return };
        if piece.unused {
            self.halves.insert(text, first.end - first.start);
        }
        self.queue.push(Candidate { score: piece.score, left, right, start: first.start, end: second.end });
    }

    /// Appends the id of a piece, or those of the used pieces that an unused one was merged from; nothing if it is
    /// no piece at all.
    fn take_apart(&self, text: &'a str, ids: &mut Vec<u32>) {
        let mut stack = vec![text];
        while let Some(text) = stack.pop() {
            match (self.table.get(text), self.halves.get(text)) {
                (Some(Piece { unused: true, .. }), Some(&middle)) => {
                    stack.push(&text[middle..]);
                    stack.push(&text[..middle]);
                }
                (Some(piece), _) => ids.push(piece.id),
                (None, _) => {}
            }
        }
    }
}

impl Ord for Candidate {
    /// The best score first; of equal ones, the leftmost.
    fn cmp(&self, other: &Candidate) -> Ordering {
        self.score.total_cmp(&other.score).then_with(|| other.left.cmp(&self.left))
    }
}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Candidate) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Candidate {
    fn eq(&self, other: &Candidate) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Candidate {}
