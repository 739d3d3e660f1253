//! Brings back pages that were given up and that the tier below keeps.

use cascadia_model::{PageClass, PerClass};

use super::super::pages::Holder;
use super::super::prefix::{NodeId, PrefixKey};
use super::super::tier::{Block, Fetched};
use super::{Memory, PAGE, Reach};

/// Nodes and pages that stay while others are brought back.
#[derive(Default)]
struct Pinned {
    path: Vec<NodeId>,
    pages: Vec<(NodeId, PageClass)>,
}

/// The pages of a beginning, and those of them that have to be read.
struct Missing {
    /// Pages of the beginning.
    length: usize,
    /// Class and number of each page to read: of one class after the other, in the order of the text.
    pages: Vec<(PageClass, usize)>,
    /// Pages of the text that need not be computed if all are read.
    gained: usize,
}

impl Memory {
    /// Brings back pages of the beginning of `tokens`, as far as the tier below keeps them and reading pays, so that
    /// [`Memory::reuse`] finds them. Reads `reads` pages at most, which are taken off. `true` where more may follow in the
    /// next plan.
    pub fn restore(&mut self, key: PrefixKey, tokens: &[u32], reads: &mut usize) -> bool {
        let owner = PrefixKey { generation: self.generation, ..key };
        let tokens = &tokens[..tokens.len().saturating_sub(1) / PAGE * PAGE];
        let Some(tier) = self.tier.as_mut().filter(|_| *reads > 0) else { return false };
        let path = self.tree.find(owner, tokens, PAGE);
        let kept = tier.find(owner, tokens, path.len());
        let Some(missing) = self.missing(&path, &kept) else { return false };
        let mut counts = PerClass::default();
        missing.pages.iter().for_each(|(class, _)| counts[*class] += 1);
        if !self.tier.as_mut().is_some_and(|tier| tier.pays(&counts, missing.gained * PAGE)) {
            return false;
        }
        let mut pinned = self.pin(path, missing.length);
        let mut more = false;
        for (class, index) in missing.pages {
            let block = Block { owner, tokens: &tokens[..(index + 1) * PAGE], class };
            let fetched = if *reads > 0 { self.read(block, &mut pinned) } else { None };
            *reads -= usize::from(matches!(fetched, Some(Fetched::Filled | Fetched::Missing)));
            if fetched != Some(Fetched::Filled) {
                // Without one of them, less may still be there.
                more = fetched.is_some();
                break;
            }
        }
        self.unpin(pinned);
        more
    }

    /// What has to be read for the longest beginning that the cache and the tier have together; nothing where that is no
    /// longer than what the cache has.
    fn missing(&self, path: &[NodeId], kept: &[PerClass<bool>]) -> Option<Missing> {
        let held = |class, page: usize| path.get(page).is_some_and(|node| self.tree.page(*node, class).is_some());
        let is_kept = |class, page: usize| kept.get(page).is_some_and(|kept| kept[class]);
        let read = |class, length: usize| self.first_read(class, length * PAGE)..length;
        let has_all = |length: usize| {
            let mut classes = self.classes().into_iter();
            classes.all(|class| read(class, length).all(|page| held(class, page) || is_kept(class, page)))
        };
        let usable = (0..=path.len()).rev().find(|length| self.has_no_gap(&path[..*length]))?;
        let reach = (path.len()..kept.len()).find(|page| !is_kept(PageClass::Full, *page)).unwrap_or(kept.len());
        let length = (usable + 1..=reach).rev().find(|length| has_all(*length))?;
        let pages = self.classes().into_iter().flat_map(|class| read(class, length).map(move |page| (class, page)));
        let pages = pages.filter(|(class, page)| !held(*class, *page)).collect();
        Some(Missing { length, pages, gained: length - usable })
    }

    /// Reads one page back into a free one, which its node keeps; `None` where no page is free.
    fn read(&mut self, block: Block<'_>, pinned: &mut Pinned) -> Option<Fetched> {
        let Block { owner, tokens, class } = block;
        let page = self.take_page(class, owner, Reach::Fair)?;
        let fetched = self.tier.as_mut().map_or(Fetched::Missing, |tier| tier.fetch(block, page));
        if fetched == Fetched::Filled {
            let index = tokens.len() / PAGE - 1;
            if index == pinned.path.len() {
                let node = self.tree.add(owner, pinned.path.last().copied(), &tokens[index * PAGE..]);
                self.tree.pin(node);
                pinned.path.push(node);
            }
            let node = pinned.path[index];
            self.pages[class].hold(page, Holder::Cached);
            self.tree.keep_page(node, class, page);
            self.tree.pin_page(node, class);
            pinned.pages.push((node, class));
        }
        self.pages[class].release(page, Holder::Running);
        Some(fetched)
    }

    /// Holds what is in memory of the first `length` pages.
    fn pin(&mut self, path: Vec<NodeId>, length: usize) -> Pinned {
        let mut pinned = Pinned { path, pages: Vec::new() };
        pinned.path.iter().for_each(|node| self.tree.pin(*node));
        for class in self.classes() {
            for &node in pinned.path.iter().take(length).skip(self.first_read(class, length * PAGE)) {
                if self.tree.page(node, class).is_some() {
                    self.tree.pin_page(node, class);
                    pinned.pages.push((node, class));
                }
            }
        }
        pinned
    }

    fn unpin(&mut self, Pinned { path, pages }: Pinned) {
        pages.into_iter().for_each(|(node, class)| self.tree.unpin_page(node, class));
        // Last page first, so that it counts as the one used longest ago.
        path.into_iter().rev().for_each(|node| self.tree.unpin(node));
    }
}
