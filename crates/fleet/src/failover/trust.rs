//! Which machines are believed: whoever differs from one other is in doubt, whoever differs from two is wrong.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// From so many others one must differ to be the one that is wrong.
const ENOUGH: usize = 2;

/// Machines whose rows differed from those of others, and from whose.
#[derive(Default)]
pub(crate) struct Trust {
    differing: Mutex<BTreeMap<String, BTreeSet<String>>>,
    /// Those that differed from the coordinator itself.
    refuted: Mutex<BTreeSet<String>>,
}

/// What two machines that differ are.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Dispute {
    /// Those of the two that are wrong.
    pub(crate) wrong: Vec<String>,
    /// Whether they had not differed before.
    pub(crate) is_new: bool,
}

impl Trust {
    /// Two machines gave different rows for one step. What machines say that no longer belong to the fleet does not count.
    pub(crate) fn differ(&self, one: &str, other: &str, belongs: impl Fn(&str) -> bool) -> Dispute {
        let mut differing = self.hold();
        differing.values_mut().for_each(|others| others.retain(|name| belongs(name)));
        let mut add = |node: &str, from: &str| differing.entry(node.to_owned()).or_default().insert(from.to_owned());
        let is_new = add(one, other) | add(other, one);
        let wrong: Vec<String> =
            [one, other].into_iter().filter(|node| is_wrong(&differing, node)).map(str::to_owned).collect();
        // Nobody is in doubt because of those.
        for others in differing.values_mut().filter(|others| others.len() < ENOUGH) {
            others.retain(|name| !wrong.contains(name));
        }
        differing.retain(|_, others| !others.is_empty());
        Dispute { wrong, is_new }
    }

    /// Two machines gave the same rows for long enough: each is believed if the other is, and neither doubts the other.
    pub(crate) fn agree(&self, one: &str, other: &str) {
        let mut differing = self.hold();
        let [is_one_doubted, is_other_doubted] = [one, other].map(|node| differing.contains_key(node));
        for (node, with, is_with_doubted) in [(one, other, is_other_doubted), (other, one, is_one_doubted)] {
            match differing.get_mut(node) {
                Some(others) if is_with_doubted => {
                    others.remove(with);
                }
                Some(others) => others.clear(),
                None => {}
            }
        }
        differing.retain(|_, others| !others.is_empty());
    }

    /// Whether a machine differed from another that still belongs to the fleet.
    pub(crate) fn doubts(&self, node: &str, belongs: impl Fn(&str) -> bool) -> bool {
        self.hold().get(node).is_some_and(|others| others.iter().any(|name| belongs(name)))
    }

    /// A machine gave other rows than the coordinator itself, whom everybody has to believe.
    pub(crate) fn refute(&self, node: &str) {
        self.hold_refuted().insert(node.to_owned());
    }

    /// Whether a machine differed from two, or from the coordinator.
    pub(crate) fn is_wrong(&self, node: &str) -> bool {
        self.hold_refuted().contains(node) || is_wrong(&self.hold(), node)
    }

    /// Leaves a machine to whoever else remembers what it did.
    pub(crate) fn forget(&self, node: &str) {
        self.hold().remove(node);
        self.hold_refuted().remove(node);
    }

    /// Everyone who differed from somebody.
    pub(crate) fn names(&self) -> Vec<String> {
        self.hold().keys().cloned().collect()
    }

    fn hold(&self) -> MutexGuard<'_, BTreeMap<String, BTreeSet<String>>> {
        // Nothing in there can be left half done.
        self.differing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hold_refuted(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.refuted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_wrong(differing: &BTreeMap<String, BTreeSet<String>>, node: &str) -> bool {
    differing.get(node).is_some_and(|others| others.len() >= ENOUGH)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Machines are letters.
    fn check(differ: &[&str], expected_wrong: &str, expected_doubted: &str) -> Trust {
        let (trust, mut wrong) = (Trust::default(), Vec::new());
        for pair in differ {
            let (one, other) = pair.split_at(1);
            wrong.extend(trust.differ(one, other, |_| true).wrong);
        }
        assert_eq!(wrong.concat(), expected_wrong, "{differ:?}");
        let doubted: Vec<String> = trust.names().into_iter().filter(|name| !wrong.contains(name)).collect();
        assert_eq!(doubted.concat(), expected_doubted, "{differ:?}");
        trust
    }

    #[test]
    fn who_differs_from_two_is_wrong() {
        check(&["ab"], "", "ab");
        check(&["ab", "ba", "ab"], "", "ab");
        check(&["ab", "ca"], "a", "");
        check(&["ab", "cd"], "", "abcd");
        // Once a is wrong, what it said of b counts for nothing: b needs two others again.
        check(&["ab", "ac", "bd"], "a", "bd");
        check(&["ab", "ac", "bd", "bc"], "ab", "");
        check(&["ab", "cd", "ad"], "ad", "");
    }

    #[test]
    fn who_agrees_or_is_gone_counts_no_more() {
        let trust = check(&["ab"], "", "ab");
        trust.agree("a", "c");
        assert!(!trust.doubts("a", |_| true) && trust.doubts("b", |_| true), "c is believed, b differs from a still");
        trust.agree("c", "b");
        assert_eq!(trust.names(), [""; 0]);
        let trust = check(&["ab"], "", "ab");
        trust.agree("a", "b");
        assert_eq!(trust.names(), [""; 0]);
        let trust = check(&["ab", "ad"], "a", "");
        assert!(trust.is_wrong("a"));
        let trust = check(&["ab"], "", "ab");
        assert!(!trust.doubts("a", |name| name != "b"));
        assert_eq!(trust.differ("a", "c", |name| name != "b"), Dispute { wrong: Vec::new(), is_new: true });
    }
}
