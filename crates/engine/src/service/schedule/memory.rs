//! The memory of all sequences: pages, the prefixes that stay in them, and who must give way to whom.

use cascadia_model::{CachePages, PAGE_TOKENS, PageId, WindowPages};

use super::pages::{Holder, Pages};
use super::prefix::{NodeId, PrefixKey, PrefixTree, Removed};

/// Page numbers and the prefix cache. Page ids are logical: every stage keeps its own bytes for the same id.
#[derive(Debug)]
pub struct Memory {
    pages: Pages,
    windows: Pages,
    tree: PrefixTree,
    /// Positions that layers with a window read; zero where there are none.
    window: usize,
    generation: u64,
    evictions: u64,
}

/// What one sequence holds.
#[derive(Debug, Default)]
pub struct Holding {
    key: PrefixKey,
    generation: u64,
    /// Pages of the sequence, from its beginning.
    pages: Vec<PageId>,
    /// Nodes of the tree that hold the first of those pages too.
    path: Vec<NodeId>,
    /// Pages before the first one that is held for the window.
    window_first: usize,
    window: Vec<WindowPage>,
}

/// A page of layers with a window, and the node that keeps it too.
#[derive(Clone, Copy, Debug)]
struct WindowPage {
    page: PageId,
    node: Option<NodeId>,
}

/// How far a sequence may go to get pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Every owner of prefixes keeps a floor, so that a flood of one does not take all of another's.
    Fair,
    /// Everything that is cached may go: nothing else can run.
    Everything,
}

const PAGE: usize = PAGE_TOKENS as usize;

impl Memory {
    /// All pages free. `window` is how many positions layers with a window read, zero without any.
    pub fn new(cache: CachePages, window: u32) -> Memory {
        Memory {
            pages: Pages::new(cache.pages),
            windows: Pages::new(if window == 0 { 0 } else { cache.window }),
            tree: PrefixTree::default(),
            window: window as usize,
            generation: 0,
            evictions: 0,
        }
    }

    /// Nothing yet, for a sequence with this key.
    pub fn nothing(&self, key: PrefixKey) -> Holding {
        Holding { key, generation: self.generation, ..Holding::default() }
    }

    /// Holds what is cached of the beginning of `tokens`: whole pages, at most up to the last token, which is left to
    /// compute, and no further than the pages for windows reach without a gap.
    pub fn reuse(&mut self, key: PrefixKey, tokens: &[u32]) -> Holding {
        let mut holding = self.nothing(key);
        let mut path = self.tree.find(self.key(&holding), &tokens[..tokens.len().saturating_sub(1)], PAGE);
        while !path.is_empty() && !self.window_is_whole(&path) {
            path.pop();
        }
        holding.window_first = self.window_start(path.len() * PAGE);
        for (index, &node) in path.iter().enumerate() {
            let page = self.tree.page(node);
            self.tree.pin(node);
            self.pages.hold(page, Holder::Running);
            holding.pages.push(page);
            if let Some(page) = self.tree.window(node).filter(|_| index >= holding.window_first) {
                self.tree.pin_window(node);
                self.windows.hold(page, Holder::Running);
                holding.window.push(WindowPage { page, node: Some(node) });
            }
        }
        holding.path = path;
        holding
    }

    /// Gets pages so that positions from `computed` up to `end` can be computed; returns how far it got.
    pub fn grow(&mut self, holding: &mut Holding, computed: usize, end: usize, reach: Reach) -> usize {
        let wanted = end.div_ceil(PAGE);
        while holding.pages.len() < wanted {
            let Some(page) = self.take_page(holding.key, reach) else { break };
            holding.pages.push(page);
        }
        let mut whole = holding.pages.len();
        if self.window > 0 {
            if holding.window.is_empty() {
                holding.window_first = self.window_start(computed);
            }
            while holding.window_first + holding.window.len() < wanted {
                let Some(page) = self.take_window_page() else { break };
                holding.window.push(WindowPage { page, node: None });
            }
            whole = whole.min(holding.window_first + holding.window.len());
        }
        end.min(whole * PAGE)
    }

    /// After `computed` tokens: full pages go into the tree, and what no window needs any more is given back. Pages
    /// from before everything was forgotten do not go there: nobody would find them.
    pub fn settle(&mut self, holding: &mut Holding, tokens: &[u32], computed: usize) {
        let found_again = if self.is_forgotten(holding) { 0 } else { computed };
        for (index, part) in tokens[..found_again].chunks_exact(PAGE).enumerate().skip(holding.path.len()) {
            let (key, parent, own) = (self.key(holding), holding.path.last().copied(), holding.pages[index]);
            let node = match self.tree.child(key, parent, part) {
                Some(node) => {
                    // Another sequence computed the same page; its bits are the same, so one of them is enough.
                    let page = self.tree.page(node);
                    self.pages.hold(page, Holder::Running);
                    self.pages.release(own, Holder::Running);
                    holding.pages[index] = page;
                    node
                }
                None => {
                    self.pages.hold(own, Holder::Cached);
                    self.tree.add(key, parent, part, own)
                }
            };
            self.tree.pin(node);
            holding.path.push(node);
            self.settle_window(holding, index, node);
        }
        let first = self.window_start(computed);
        while holding.window_first < first && !holding.window.is_empty() {
            let oldest = holding.window.remove(0);
            self.release_window(oldest);
            holding.window_first += 1;
        }
    }

    /// Gives everything back that a sequence holds; full pages stay in the tree while there is room, and while
    /// they may be used again.
    pub fn release(&mut self, holding: Holding) {
        let forgotten = self.is_forgotten(&holding);
        holding.window.into_iter().for_each(|window| self.release_window(window));
        holding.pages.iter().for_each(|page| self.pages.release(*page, Holder::Running));
        // Last page first, so that it counts as the one used longest ago.
        for node in holding.path.into_iter().rev() {
            self.tree.unpin(node);
            if forgotten && self.tree.may_go(node) {
                self.evict(node);
            }
        }
    }

    /// Whether everything was forgotten since the sequence began to hold this.
    fn is_forgotten(&self, holding: &Holding) -> bool {
        holding.generation < self.generation
    }

    /// Nothing that is cached may be used again.
    pub fn forget(&mut self) {
        self.generation += 1;
        while let Some(node) = self.tree.oldest(|_, _| true) {
            self.evict(node);
        }
    }

    /// How often everything was forgotten.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Whether a sequence with these pages could get all others up to `length` tokens, and leave a reserve.
    pub fn has_room(&self, holding: &Holding, length: usize, reserve: u32) -> bool {
        let needed = length.div_ceil(PAGE).saturating_sub(holding.pages.len()) as u32;
        // A page's worth of rows at a time is enough to get on.
        let windows = ((self.window + PAGE).div_ceil(PAGE) + 1).saturating_sub(holding.window.len()) as u32;
        self.available(holding.key) >= needed + reserve
            && (self.window == 0 || self.windows_available() >= windows + reserve)
    }

    /// Pages that `key` could get.
    pub fn available(&self, key: PrefixKey) -> u32 {
        let floor = self.floor(key);
        let idle = self.tree.idle();
        let may_go = idle.map(|(owner, idle)| if owner.salt == key.salt { idle } else { idle.saturating_sub(floor) });
        self.pages.free() + may_go.sum::<u32>()
    }

    /// Pages for windows that anyone could get.
    pub fn windows_available(&self) -> u32 {
        self.windows.count() - self.windows.running()
    }

    /// Page numbers of layers that read everything.
    pub fn pages(&self) -> &Pages {
        &self.pages
    }

    /// Page numbers of layers that read a window.
    pub fn windows(&self) -> &Pages {
        &self.windows
    }

    /// Cached pages that were given up for new ones.
    pub fn evictions(&self) -> u64 {
        self.evictions
    }

    /// The key in the tree. After everything was forgotten, what older sequences still leave there is never found.
    fn key(&self, holding: &Holding) -> PrefixKey {
        PrefixKey { generation: holding.generation, ..holding.key }
    }

    /// First page that a token after `computed` others reads in layers with a window.
    fn window_start(&self, computed: usize) -> usize {
        if self.window == 0 { 0 } else { (computed + 1).saturating_sub(self.window) / PAGE }
    }

    fn window_is_whole(&self, path: &[NodeId]) -> bool {
        let needed = &path[self.window_start(path.len() * PAGE).min(path.len())..];
        self.window == 0 || needed.iter().all(|node| self.tree.window(*node).is_some())
    }

    fn settle_window(&mut self, holding: &mut Holding, index: usize, node: NodeId) {
        let Some(slot) = index.checked_sub(holding.window_first).and_then(|at| holding.window.get_mut(at)) else {
            return;
        };
        if self.tree.window(node).is_none() {
            self.windows.hold(slot.page, Holder::Cached);
            self.tree.keep_window(node, slot.page);
            self.tree.pin_window(node);
            slot.node = Some(node);
        }
    }

    fn release_window(&mut self, WindowPage { page, node }: WindowPage) {
        self.windows.release(page, Holder::Running);
        if let Some(node) = node {
            self.tree.unpin_window(node);
        }
    }

    fn take_page(&mut self, key: PrefixKey, reach: Reach) -> Option<PageId> {
        while self.pages.free() == 0 {
            let floor = self.floor(key);
            let may_lose =
                |owner: PrefixKey, idle| reach == Reach::Everything || owner.salt == key.salt || idle > floor;
            let node = self.tree.oldest(may_lose)?;
            self.evict(node);
        }
        self.pages.take()
    }

    fn take_window_page(&mut self) -> Option<PageId> {
        while self.windows.free() == 0 {
            let node = self.tree.oldest_window()?;
            let page = self.tree.drop_window(node)?;
            self.windows.release(page, Holder::Cached);
            self.evictions += 1;
        }
        self.windows.take()
    }

    fn evict(&mut self, node: NodeId) {
        let Removed { page, window } = self.tree.remove(node);
        self.pages.release(page, Holder::Cached);
        if let Some(window) = window {
            self.windows.release(window, Holder::Cached);
        }
        self.evictions += 1;
    }

    /// Cached pages that others leave to every owner: half of a fair share.
    fn floor(&self, key: PrefixKey) -> u32 {
        let others = self.tree.idle().filter(|(owner, _)| owner.salt != key.salt).count() as u32;
        self.pages.count() / (2 * (others + 1))
    }
}

impl Holding {
    /// Tokens of its full pages, which the tree holds too.
    pub fn tokens(&self) -> usize {
        self.path.len() * PAGE
    }

    /// The pages for a step that ends at position `end`.
    pub fn places(&self, end: usize) -> (Vec<PageId>, WindowPages) {
        let count = end.div_ceil(PAGE);
        let windows = self.window.iter().take(count.saturating_sub(self.window_first)).map(|window| window.page);
        (self.pages[..count].to_vec(), WindowPages { first: self.window_first as u32, pages: windows.collect() })
    }
}
