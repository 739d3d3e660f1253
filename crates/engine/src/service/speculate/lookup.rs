//! Prompt lookup: finds where the text ended like this before, so that what followed there can be proposed again.

use std::collections::HashMap;

/// Tokens that must be alike.
const ALIKE: usize = 2;
/// More tokens alike than this say nothing more.
const LONGEST: usize = 32;
/// Earlier places that are compared, the latest first.
const COMPARED: usize = 64;

/// Where every pair of tokens ended; grows with the text, so nothing is searched.
#[derive(Debug, Default)]
pub(super) struct Lookup {
    last: HashMap<[u32; ALIKE], usize>,
    /// For every place, the one before it that ends with the same pair; zero where there is none.
    earlier: Vec<usize>,
}

/// An earlier place in a text that ends like the text itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The token that followed there.
    pub(super) next: usize,
    /// How many tokens before it are those that the text ends with.
    pub(super) alike: usize,
}

impl Lookup {
    /// Takes in what is new of a text that only grows. The newest pair waits until something follows it.
    pub(super) fn extend(&mut self, tokens: &[u32]) {
        for end in self.earlier.len()..tokens.len() {
            let pair = tokens[..end].last_chunk::<ALIKE>();
            self.earlier.push(pair.and_then(|pair| self.last.insert(*pair, end)).unwrap_or(0));
        }
    }

    /// The place where most of the last tokens are alike, the latest of several.
    pub(super) fn find(&self, tokens: &[u32]) -> Option<Place> {
        let latest = tokens.last_chunk::<ALIKE>().and_then(|pair| self.last.get(pair));
        let places = std::iter::successors(latest.copied(), |end| Some(self.earlier[*end]).filter(|end| *end > 0));
        let mut best: Option<Place> = None;
        for place in places.take(COMPARED).map(|next| Place::new(tokens, next)) {
            if best.is_none_or(|best| place.alike > best.alike) {
                best = Some(place);
            }
            if place.alike == LONGEST {
                break;
            }
        }
        best
    }
}

impl Place {
    /// The place before token `next`, beside the end of the text.
    pub(super) fn new(tokens: &[u32], next: usize) -> Place {
        let pairs = tokens[..next].iter().rev().zip(tokens.iter().rev());
        Place { next, alike: pairs.take(LONGEST).take_while(|(one, other)| one == other).count() }
    }

    /// What follows when the text, which was `length` long, goes on as it did here: where this reaches the end of the
    /// text, it repeats itself.
    pub(super) fn token(self, tokens: &[u32], length: usize, ahead: usize) -> u32 {
        tokens[self.next + ahead % (length - self.next)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_where_most_is_alike() {
        let check = |tokens: &[u32], expected: Option<(usize, [u32; 4])>| {
            let mut pieces = Lookup::default();
            (0..=tokens.len()).for_each(|end| pieces.extend(&tokens[..end]));
            let mut whole = Lookup::default();
            whole.extend(tokens);
            for lookup in [pieces, whole] {
                let found = lookup.find(tokens);
                let follows = |place: Place| [0, 1, 2, 3].map(|ahead| place.token(tokens, tokens.len(), ahead));
                assert_eq!(found.map(|place| (place.alike, follows(place))), expected, "{tokens:?}");
            }
        };
        check(&[], None);
        check(&[1, 2], None);
        check(&[1, 2, 3], None);
        check(&[1, 2, 3, 9, 8, 1, 2, 3], Some((3, [9, 8, 1, 2])));
        // The latest of places that are equally alike, and an earlier one where more is alike.
        check(&[1, 2, 9, 1, 2, 7, 1, 2], Some((2, [7, 1, 2, 7])));
        check(&[4, 1, 2, 9, 5, 1, 2, 7, 4, 1, 2], Some((3, [9, 5, 1, 2])));
        check(&[5, 5, 5], Some((2, [5, 5, 5, 5])));
        check(&[1, 2, 3, 9, 3, 1], None);
    }

    #[test]
    fn a_text_that_repeats_itself_goes_on_like_that() {
        let tokens: Vec<u32> = [1, 2, 3].repeat(20);
        let mut lookup = Lookup::default();
        lookup.extend(&tokens);
        let place = lookup.find(&tokens).unwrap();
        assert_eq!(place.alike, LONGEST);
        assert_eq!([0, 1, 2, 3, 4].map(|ahead| place.token(&tokens, tokens.len(), ahead)), [1, 2, 3, 1, 2]);
    }
}
