//! The memory of all sequences: pages, the prefixes cached in them, and what is evicted first.

use cascadia_model::{CachePages, PAGE_TOKENS, PageBytes, PageClass, PageId, PageRun, PerClass, Span};

use super::pages::{Holder, Pages};
use super::prefix::{NodeId, PrefixKey, PrefixTree};
use super::tier::{Block, PageTier};

mod lending;
mod restore;

use lending::Lending;

/// Page numbers and the prefix cache. Page ids are logical: every stage keeps its own bytes for the same id.
#[derive(Debug)]
pub struct Memory {
    pages: PerClass<Pages>,
    tree: PrefixTree,
    /// Which positions pages of each class hold.
    spans: PerClass<Span>,
    generation: u64,
    evictions: Evictions,
    /// Where pages go that are given up for others.
    tier: Option<Box<dyn PageTier>>,
    /// Who uses the memory of pages that are lent.
    lending: Option<Lending>,
}

/// Cached pages that were given up, by what for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evictions {
    /// Sequences needed pages.
    pub for_sequences: u64,
    /// Adapters needed memory.
    pub for_adapters: u64,
    /// What they held was lost, or may not be used again.
    pub forgotten: u64,
}

/// What one sequence holds.
#[derive(Debug, Default)]
pub struct Holding {
    key: PrefixKey,
    generation: u64,
    /// Nodes of the tree that hold its first pages too.
    path: Vec<NodeId>,
    runs: PerClass<HeldRun>,
}

/// Consecutive pages of a sequence, of one class.
#[derive(Debug, Default)]
struct HeldRun {
    /// Pages of the sequence before the first one that is held.
    first: usize,
    pages: Vec<HeldPage>,
}

/// A page, and the node of the tree that keeps it too.
#[derive(Clone, Copy, Debug)]
struct HeldPage {
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
    /// All pages free. `spans` says which positions pages of each class hold.
    pub fn new(cache: CachePages, spans: PerClass<Span>) -> Memory {
        let held = |class| if spans[class] == Span::Nothing { 0 } else { cache.of(class) };
        Memory {
            pages: PerClass::new(|class| Pages::new(held(class))),
            tree: PrefixTree::default(),
            spans,
            generation: 0,
            evictions: Evictions::default(),
            tier: None,
            lending: None,
        }
    }

    /// Lets a tier keep pages that are given up for others.
    pub fn set_tier(&mut self, tier: Box<dyn PageTier>) {
        self.tier = Some(tier);
    }

    /// All pages free that are not lent, and nothing that was computed before is used again.
    pub fn emptied(mut self) -> Memory {
        self.tier.iter_mut().for_each(|tier| tier.forget());
        let (pages, tree) = (PerClass::new(|class| self.pages[class].emptied()), PrefixTree::new(self.tree.clock()));
        Memory { pages, tree, generation: self.generation + 1, ..self }
    }

    /// A step is planned.
    pub fn begin_plan(&mut self) {
        self.tier.iter_mut().for_each(|tier| tier.begin_plan());
        self.take_back_unneeded();
    }

    /// Nothing yet, for a sequence with this key.
    pub fn nothing(&self, key: PrefixKey) -> Holding {
        Holding { key, generation: self.generation, ..Holding::default() }
    }

    /// Holds what is cached of the beginning of `tokens`: whole pages, at most up to the last token, which is left to
    /// compute, and no further than the pages of every class reach without a gap.
    pub fn reuse(&mut self, key: PrefixKey, tokens: &[u32]) -> Holding {
        let mut holding = self.nothing(key);
        let mut path = self.tree.find(self.key(&holding), &tokens[..tokens.len().saturating_sub(1)], PAGE);
        while !path.is_empty() && !self.has_no_gap(&path) {
            path.pop();
        }
        for class in self.classes() {
            let first = self.first_read(class, path.len() * PAGE);
            holding.runs[class].first = first;
            for &node in path.iter().skip(first) {
                let Some(page) = self.tree.page(node, class) else { continue };
                self.tree.pin_page(node, class);
                self.pages[class].hold(page, Holder::Running);
                holding.runs[class].pages.push(HeldPage { page, node: Some(node) });
            }
        }
        path.iter().for_each(|node| self.tree.pin(*node));
        holding.path = path;
        holding
    }

    /// Gets pages so that positions from `computed` up to `end` can be computed; returns how far it got.
    pub fn grow(&mut self, holding: &mut Holding, computed: usize, end: usize, reach: Reach) -> usize {
        let mut reached = end.div_ceil(PAGE);
        let wanted = reached;
        for class in self.classes() {
            let run = &mut holding.runs[class];
            if run.pages.is_empty() {
                run.first = self.first_read(class, computed);
            }
            while run.end() < wanted {
                let Some(page) = self.take_page(class, holding.key, reach) else { break };
                run.pages.push(HeldPage { page, node: None });
            }
            reached = reached.min(run.end());
        }
        end.min(reached * PAGE)
    }

    /// After `computed` tokens: full pages go into the tree, and what nobody reads any more is given back. Pages from
    /// before everything was forgotten do not go there: nobody would find them.
    pub fn settle(&mut self, holding: &mut Holding, tokens: &[u32], computed: usize) {
        let found_again = if self.is_forgotten(holding) { 0 } else { computed };
        for (index, part) in tokens[..found_again].chunks_exact(PAGE).enumerate().skip(holding.path.len()) {
            let (key, parent) = (self.key(holding), holding.path.last().copied());
            let node = match self.tree.child(key, parent, part) {
                Some(node) => node,
                None => self.tree.add(key, parent, part),
            };
            self.tree.pin(node);
            holding.path.push(node);
            for class in self.classes() {
                self.settle_page(&mut holding.runs[class], class, index, node);
            }
        }
        for class in self.classes() {
            let (first, run) = (self.first_read(class, computed), &mut holding.runs[class]);
            while run.first < first && !run.pages.is_empty() {
                let oldest = run.pages.remove(0);
                run.first += 1;
                self.release_page(class, oldest);
            }
        }
    }

    /// Gives everything back that a sequence holds; full pages stay in the tree while there is room, and while
    /// they may be used again.
    pub fn release(&mut self, holding: Holding) {
        let forgotten = self.is_forgotten(&holding);
        for class in self.classes() {
            holding.runs[class].pages.iter().for_each(|page| self.release_page(class, *page));
        }
        // Last page first, so that it counts as the one used longest ago.
        for node in holding.path.into_iter().rev() {
            self.tree.unpin(node);
            if forgotten && self.tree.may_go(node) {
                self.evictions.forgotten += 1;
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
        self.tier.iter_mut().for_each(|tier| tier.forget());
        while let Some(node) = self.tree.oldest(|_, _| true) {
            self.evictions.forgotten += 1;
            self.evict(node);
        }
    }

    /// Gives up what no running sequence needs, with the memory of free pages where that can be given back: cached prefixes, and
    /// adapters that nobody uses. Nothing is kept on disk, which would take memory first.
    pub fn shed<P: PageBytes>(&mut self, bytes: Option<&P>) {
        while let Some(node) = self.tree.oldest(|_, _| true) {
            self.evict(node);
        }
        self.take_back_all();
        let Some(bytes) = bytes else { return };
        for class in self.classes() {
            for page in self.pages[class].take_written() {
                // Where that fails, the page keeps its memory until it is used again.
                let _ = bytes.give_back_page(class, page);
            }
        }
    }

    /// Lets the tier below keep everything that is cached, what was used last first.
    pub fn keep_prefixes(&mut self) {
        self.tier.iter_mut().for_each(|tier| tier.conclude());
        self.tree.by_last_use().into_iter().for_each(|node| self.spill_all(node));
    }

    /// How often everything was forgotten.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Whether a sequence with these pages could get all others up to `length` tokens, and leave a reserve.
    pub fn has_room(&self, holding: &Holding, length: usize, reserve: u32) -> bool {
        self.classes().into_iter().all(|class| {
            let wanted = match self.newest(class) {
                None => length.div_ceil(PAGE),
                // A page's worth of rows at a time is enough to get on.
                Some(span) => (span + PAGE).div_ceil(PAGE) + 1,
            };
            let needed = wanted.saturating_sub(holding.runs[class].pages.len()) as u32;
            self.available(class, holding.key) >= needed + reserve
        })
    }

    /// Pages of a class that `key` could get.
    pub fn available(&self, class: PageClass, key: PrefixKey) -> u32 {
        let pages = &self.pages[class];
        if self.newest(class).is_some() {
            return pages.count() - pages.running();
        }
        let returnable = self.returnable();
        let floor = self.floor(pages.kept() + returnable, key);
        let idle = self.tree.idle();
        let may_go = idle.map(|(owner, idle)| if owner.salt == key.salt { idle } else { idle.saturating_sub(floor) });
        pages.free() + may_go.sum::<u32>() + returnable
    }

    /// Page numbers of a class.
    pub fn pages(&self, class: PageClass) -> &Pages {
        &self.pages[class]
    }

    /// Cached pages that were given up.
    pub fn evictions(&self) -> Evictions {
        self.evictions
    }

    /// The classes that the model has.
    fn classes(&self) -> impl IntoIterator<Item = PageClass> + use<> {
        let spans = self.spans;
        PageClass::ALL.into_iter().filter(move |class| spans[*class] != Span::Nothing)
    }

    /// Newest positions that pages of a class hold; nothing if they hold all.
    fn newest(&self, class: PageClass) -> Option<usize> {
        match self.spans[class] {
            Span::Nothing | Span::All => None,
            Span::Newest(span) => Some(span as usize),
        }
    }

    /// The key in the tree. After everything was forgotten, what older sequences still leave there is never found.
    fn key(&self, holding: &Holding) -> PrefixKey {
        PrefixKey { generation: holding.generation, ..holding.key }
    }

    /// The first page that a token after `computed` others reads in layers of a class.
    fn first_read(&self, class: PageClass, computed: usize) -> usize {
        self.spans[class].oldest(computed as u32) as usize / PAGE
    }

    /// Whether every class has all pages that a token after this path reads.
    fn has_no_gap(&self, path: &[NodeId]) -> bool {
        self.classes().into_iter().all(|class| {
            let needed = &path[self.first_read(class, path.len() * PAGE).min(path.len())..];
            needed.iter().all(|node| self.tree.page(*node, class).is_some())
        })
    }

    /// Lets a node keep the page number `index` of a sequence. Where it keeps one already, another sequence computed the
    /// same page; its bits are the same, so one of them is enough.
    fn settle_page(&mut self, run: &mut HeldRun, class: PageClass, index: usize, node: NodeId) {
        let Some(held) = index.checked_sub(run.first).and_then(|at| run.pages.get_mut(at)) else { return };
        match self.tree.page(node, class) {
            Some(kept) => {
                self.pages[class].hold(kept, Holder::Running);
                self.pages[class].release(held.page, Holder::Running);
                held.page = kept;
            }
            None => {
                self.pages[class].hold(held.page, Holder::Cached);
                self.tree.keep_page(node, class, held.page);
            }
        }
        self.tree.pin_page(node, class);
        held.node = Some(node);
    }

    fn release_page(&mut self, class: PageClass, HeldPage { page, node }: HeldPage) {
        self.pages[class].release(page, Holder::Running);
        if let Some(node) = node {
            self.tree.unpin_page(node, class);
        }
    }

    /// A free page of a class, if need be one that only the tree holds, or one that is lent for something that was used even
    /// longer ago. A node goes with its full page, because that is what makes it worth keeping; a page of a window goes
    /// alone.
    fn take_page(&mut self, class: PageClass, key: PrefixKey, reach: Reach) -> Option<PageId> {
        while self.pages[class].free() == 0 {
            let floor = self.floor(self.pages[class].kept(), key);
            let may_lose =
                |owner: PrefixKey, idle| reach == Reach::Everything || owner.salt == key.salt || idle > floor;
            if self.newest(class).is_some() {
                let (node, page) = self.tree.drop_oldest_page(class, may_lose)?;
                self.spill(node, class, page);
                self.pages[class].release(page, Holder::Cached);
                self.evictions.for_sequences += 1;
                continue;
            }
            let node = self.tree.oldest(may_lose);
            let used = node.map_or(u64::MAX, |node| self.tree.used(node));
            if self.take_back(used) {
                continue;
            }
            let node = node?;
            self.spill_all(node);
            self.evictions.for_sequences += 1;
            self.evict(node);
        }
        self.pages[class].take()
    }

    /// Lets the tier below keep all that a node keeps.
    fn spill_all(&mut self, node: NodeId) {
        for class in self.classes() {
            self.tree.page(node, class).into_iter().for_each(|page| self.spill(node, class, page));
        }
    }

    /// Lets the tier below keep a page of a node, unless everything was forgotten since it was computed.
    fn spill(&mut self, node: NodeId, class: PageClass, page: PageId) {
        let Some(tier) = &mut self.tier else { return };
        let (owner, tokens) = self.tree.text(node);
        if owner.generation == self.generation {
            tier.keep(Block { owner, tokens: &tokens, class }, page);
        }
    }

    fn evict(&mut self, node: NodeId) {
        for (class, page) in self.tree.remove(node).iter() {
            if let Some(page) = *page {
                self.pages[class].release(page, Holder::Cached);
            }
        }
    }

    /// Cached pages, of so many in all, that others leave to every owner: half of a fair share.
    fn floor(&self, pages: u32, key: PrefixKey) -> u32 {
        let others = self.tree.idle().filter(|(owner, _)| owner.salt != key.salt).count() as u32;
        pages / (2 * (others + 1))
    }
}

impl Evictions {
    /// All of them.
    pub fn total(self) -> u64 {
        self.for_sequences + self.for_adapters + self.forgotten
    }
}

impl HeldRun {
    /// Pages of the sequence up to the last one that is held.
    fn end(&self) -> usize {
        self.first + self.pages.len()
    }
}

impl Holding {
    /// Tokens of its full pages, which the tree holds too.
    pub fn tokens(&self) -> usize {
        self.path.len() * PAGE
    }

    /// The pages for a step that ends at position `end`.
    pub fn runs(&self, end: usize) -> Vec<PageRun> {
        let count = end.div_ceil(PAGE);
        let held = self.runs.iter().filter(|(_, run)| !run.pages.is_empty());
        held.map(|(class, run)| {
            let pages = run.pages.iter().take(count.saturating_sub(run.first)).map(|held| held.page);
            PageRun { class, first: run.first as u32, pages: pages.collect() }
        })
        .collect()
    }
}
