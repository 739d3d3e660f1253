//! Prompt lookup: draft tokens from the text itself, what followed the last time it ended like this.

use std::collections::HashMap;

/// Tokens that must be alike.
const ALIKE: usize = 3;

/// Where every run of tokens last ended; grows with the text, so nothing is searched.
#[derive(Debug, Default)]
pub(in crate::service) struct Lookup {
    ends: HashMap<[u32; ALIKE], usize>,
    known: usize,
}

impl Lookup {
    /// Takes in what is new of a text that only grows. The newest run waits until something follows it.
    pub(super) fn extend(&mut self, tokens: &[u32]) {
        for end in self.known.max(ALIKE)..tokens.len() {
            if let Some(run) = tokens[..end].last_chunk::<ALIKE>() {
                self.ends.insert(*run, end);
            }
        }
        self.known = self.known.max(tokens.len());
    }

    /// Up to `most` tokens that came after an earlier run like the last one.
    pub(super) fn after(&self, tokens: &[u32], most: usize) -> Vec<u32> {
        let end = tokens.last_chunk::<ALIKE>().and_then(|run| self.ends.get(run));
        end.map_or(Vec::new(), |end| tokens[*end..].iter().copied().take(most).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_followed_the_last_time() {
        let check = |tokens: &[u32], expected: &[u32]| {
            let mut lookup = Lookup::default();
            // In pieces or at once, the same is found.
            (0..=tokens.len()).for_each(|end| lookup.extend(&tokens[..end]));
            assert_eq!(lookup.after(tokens, 4), expected, "{tokens:?}");
            let mut lookup = Lookup::default();
            lookup.extend(tokens);
            assert_eq!(lookup.after(tokens, 4), expected, "{tokens:?}");
        };
        check(&[], &[]);
        check(&[1, 2, 3], &[]);
        check(&[1, 2, 3, 9, 8, 1, 2, 3], &[9, 8, 1, 2]);
        check(&[1, 2, 3, 9, 1, 2, 3, 7, 1, 2, 3], &[7, 1, 2, 3]);
        check(&[5, 5, 5, 5], &[5]);
        check(&[1, 2, 3, 9, 2, 3], &[]);
    }
}
