//! When to try again what did not pay: after ever longer pauses.

const FIRST: u32 = 16;
const LONGEST: u32 = 512;

/// Steps to wait, and how long the last wait was.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pauses {
    left: u32,
    last: u32,
}

impl Pauses {
    /// What `best` says, and zero during a pause. A pause begins where `best` is zero; after it, one is tried.
    pub(super) fn next(&mut self, best: impl FnOnce() -> usize) -> usize {
        if self.left > 0 {
            self.left -= 1;
            return usize::from(self.left == 0);
        }
        let best = best();
        if best > 0 {
            self.last = 0;
        } else {
            self.last = (2 * self.last).clamp(FIRST, LONGEST);
            self.left = self.last;
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_never_pays_is_tried_ever_less() {
        let mut pauses = Pauses::default();
        let tried: Vec<usize> = (0..2000).filter(|_| pauses.next(|| 0) > 0).collect();
        assert!(tried.len() < 10 && tried.len() > 5, "{tried:?}");
        // As soon as it pays, there are no pauses.
        let mut pauses = Pauses::default();
        assert_eq!((0..20).map(|_| pauses.next(|| 3)).sum::<usize>(), 60);
    }
}
