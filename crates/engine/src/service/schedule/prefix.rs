//! Which pages hold the beginning of which text: a tree with one full page per node.
//!
//! A node is found by walking from the root of its owner and comparing all tokens of every page on the way, so nothing
//! that a client sends can make two texts look alike: there is no hash to forge.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cascadia_model::{AdapterId, PageClass, PageId, PerClass};

use super::use_clock::UseClock;

/// What cached keys and values depend on besides tokens. Texts of different keys never meet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PrefixKey {
    /// Whose text it is; the same for all tenants where they share prefixes.
    pub salt: u64,
    /// The adapter that computed it, by its content.
    pub adapter: Option<AdapterId>,
    /// Counts how often all caches were lost; what was computed before is never found after.
    pub generation: u64,
}

/// Index of a node.
pub type NodeId = u32;

/// The tree. It names pages and does not count their holders: see [`Memory`](super::Memory).
#[derive(Debug, Default)]
pub struct PrefixTree {
    nodes: Vec<Option<Node>>,
    unused: Vec<NodeId>,
    roots: BTreeMap<PrefixKey, Children>,
    owners: BTreeMap<PrefixKey, Owner>,
    clock: UseClock,
}

type Children = BTreeMap<Arc<[u32]>, NodeId>;

/// A full page of some text.
#[derive(Debug)]
struct Node {
    key: PrefixKey,
    parent: Option<NodeId>,
    tokens: Arc<[u32]>,
    children: Children,
    pages: PerClass<Option<PageId>>,
    used: u64,
    /// Running sequences that go through this node.
    pins: u32,
    /// Running sequences that hold its page of a class.
    page_pins: PerClass<u32>,
}

/// What is kept for one key.
#[derive(Debug, Default)]
struct Owner {
    /// Nodes that no running sequence goes through.
    idle: u32,
    /// Of those, the ones without children, by last use: they can go.
    leaves: BTreeSet<(u64, NodeId)>,
    /// Nodes with a page of a class that no running sequence holds, by last use.
    idle_pages: PerClass<BTreeSet<(u64, NodeId)>>,
}

impl PrefixTree {
    /// Nothing yet; this clock counts uses.
    pub fn new(clock: UseClock) -> PrefixTree {
        PrefixTree { clock, ..PrefixTree::default() }
    }

    /// What counts uses.
    pub fn clock(&self) -> UseClock {
        self.clock.clone()
    }

    /// The nodes of the longest known beginning of `tokens`, of whole pages of `page_tokens`.
    pub fn find(&self, key: PrefixKey, tokens: &[u32], page_tokens: usize) -> Vec<NodeId> {
        let mut path = Vec::new();
        for part in tokens.chunks_exact(page_tokens) {
            match self.child(key, path.last().copied(), part) {
                Some(node) => path.push(node),
                None => break,
            }
        }
        path
    }

    /// The node that follows `parent` with these tokens.
    pub fn child(&self, key: PrefixKey, parent: Option<NodeId>, tokens: &[u32]) -> Option<NodeId> {
        let children = match parent {
            Some(parent) => &self.node(parent).children,
            None => self.roots.get(&key)?,
        };
        children.get(tokens).copied()
    }

    /// Adds a node after `parent`; it keeps no page yet, and nobody runs through it.
    pub fn add(&mut self, key: PrefixKey, parent: Option<NodeId>, tokens: &[u32]) -> NodeId {
        let tokens: Arc<[u32]> = tokens.into();
        let id = self.unused.pop().unwrap_or(self.nodes.len() as NodeId);
        let siblings = match parent {
            Some(parent) => &mut self.node_mut(parent).children,
            None => self.roots.entry(key).or_default(),
        };
        siblings.insert(Arc::clone(&tokens), id);
        if let Some(parent) = parent {
            self.refresh(parent, |_| {});
        }
        let used = self.clock.tick();
        let node = Node {
            key,
            parent,
            tokens,
            children: Children::new(),
            pages: PerClass::default(),
            used,
            pins: 0,
            page_pins: PerClass::default(),
        };
        match self.nodes.get_mut(id as usize) {
            Some(slot) => *slot = Some(node),
            None => self.nodes.push(Some(node)),
        }
        let owner = self.owners.entry(key).or_default();
        owner.idle += 1;
        owner.leaves.insert((used, id));
        id
    }

    /// A running sequence goes through the node from now on.
    pub fn pin(&mut self, id: NodeId) {
        let now = self.clock.tick();
        self.refresh(id, |node| (node.pins, node.used) = (node.pins + 1, now));
    }

    /// It does no longer.
    pub fn unpin(&mut self, id: NodeId) {
        let now = self.clock.tick();
        self.refresh(id, |node| (node.pins, node.used) = (node.pins - 1, now));
    }

    /// A running sequence holds the node's page of a class from now on.
    pub fn pin_page(&mut self, id: NodeId, class: PageClass) {
        self.refresh(id, |node| node.page_pins[class] += 1);
    }

    /// It does no longer.
    pub fn unpin_page(&mut self, id: NodeId, class: PageClass) {
        self.refresh(id, |node| node.page_pins[class] -= 1);
    }

    /// Keeps a page with a node that has none of its class.
    pub fn keep_page(&mut self, id: NodeId, class: PageClass, page: PageId) {
        self.refresh(id, |node| node.pages[class] = Some(page));
    }

    /// The page of a class that a node keeps.
    pub fn page(&self, id: NodeId, class: PageClass) -> Option<PageId> {
        self.node(id).pages[class]
    }

    /// The key of a node, and the text from its first token up to the end of the node's page.
    pub fn text(&self, id: NodeId) -> (PrefixKey, Vec<u32>) {
        let mut nodes = vec![self.node(id)];
        while let Some(parent) = nodes.last().and_then(|node| node.parent) {
            nodes.push(self.node(parent));
        }
        let tokens = nodes.iter().rev().flat_map(|node| node.tokens.iter().copied());
        (nodes[0].key, tokens.collect())
    }

    /// All nodes, the one used last first; nodes come before those that follow them in a text.
    pub fn by_last_use(&self) -> Vec<NodeId> {
        let used = self.nodes.iter().enumerate().filter_map(|(id, node)| Some((node.as_ref()?.used, id as NodeId)));
        let mut used: Vec<(u64, NodeId)> = used.collect();
        used.sort_unstable_by(|one, other| other.cmp(one));
        used.into_iter().map(|(_, id)| id).collect()
    }

    /// When a node was used last.
    pub fn used(&self, id: NodeId) -> u64 {
        self.node(id).used
    }

    /// Nodes that could go, by key.
    pub fn idle(&self) -> impl Iterator<Item = (PrefixKey, u32)> {
        self.owners.iter().map(|(key, owner)| (*key, owner.idle))
    }

    /// Whether a node has no children and nobody runs through it.
    pub fn may_go(&self, id: NodeId) -> bool {
        let node = self.node(id);
        node.pins == 0 && node.children.is_empty()
    }

    /// The least recently used node without children of those keys that may lose one.
    pub fn oldest(&self, may_lose: impl Fn(PrefixKey, u32) -> bool) -> Option<NodeId> {
        let owners = self.owners.iter().filter(|(key, owner)| may_lose(**key, owner.idle));
        owners.filter_map(|(_, owner)| owner.leaves.first()).min().map(|(_, node)| *node)
    }

    /// Forgets the least recently used page of a class that no running sequence holds; its node stays. Of owners that may lose
    /// one, as `may_lose` says by how many they have; of any if none may.
    pub fn drop_oldest_page(
        &mut self,
        class: PageClass,
        may_lose: impl Fn(PrefixKey, u32) -> bool,
    ) -> Option<(NodeId, PageId)> {
        let oldest = |(key, owner): (&PrefixKey, &Owner)| {
            let pages = &owner.idle_pages[class];
            pages.first().map(|oldest| (!may_lose(*key, pages.len() as u32), *oldest))
        };
        let (_, (_, id)) = self.owners.iter().filter_map(oldest).min()?;
        let page = self.node(id).pages[class];
        self.refresh(id, |node| node.pages[class] = None);
        Some((id, page?))
    }

    /// Forgets a node without children that nobody runs through; returns the pages that it kept.
    pub fn remove(&mut self, id: NodeId) -> PerClass<Option<PageId>> {
        let node = self.nodes[id as usize].take().expect("a node is removed once");
        assert!(node.children.is_empty() && node.pins == 0, "what is in use stays");
        self.unused.push(id);
        let owner = self.owners.get_mut(&node.key).expect("a node has an owner");
        PageClass::ALL.iter().for_each(|class| _ = owner.idle_pages[*class].remove(&(node.used, id)));
        owner.leaves.remove(&(node.used, id));
        owner.idle -= 1;
        match node.parent {
            Some(parent) => self.refresh(parent, |parent| {
                parent.children.remove(&node.tokens);
            }),
            None => {
                let root = self.roots.get_mut(&node.key).expect("a first page has a root");
                root.remove(&node.tokens);
                if root.is_empty() {
                    self.roots.remove(&node.key);
                    self.owners.remove(&node.key);
                }
            }
        }
        node.pages
    }

    /// Changes a node, and with it the lists that it is in.
    fn refresh(&mut self, id: NodeId, change: impl FnOnce(&mut Node)) {
        let node = self.nodes[id as usize].as_mut().expect("a node that is used exists");
        let owner = self.owners.get_mut(&node.key).expect("a node has an owner");
        owner.leaves.remove(&(node.used, id));
        PageClass::ALL.iter().for_each(|class| _ = owner.idle_pages[*class].remove(&(node.used, id)));
        owner.idle -= u32::from(node.pins == 0);
        change(node);
        owner.idle += u32::from(node.pins == 0);
        if node.pins == 0 && node.children.is_empty() {
            owner.leaves.insert((node.used, id));
        }
        for class in PageClass::ALL {
            if node.pages[class].is_some() && node.page_pins[class] == 0 {
                owner.idle_pages[class].insert((node.used, id));
            }
        }
    }

    fn node(&self, id: NodeId) -> &Node {
        self.nodes[id as usize].as_ref().expect("a node that is used exists")
    }

    fn node_mut(&mut self, id: NodeId) -> &mut Node {
        self.nodes[id as usize].as_mut().expect("a node that is used exists")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_the_newest_tokens_are_lost_by_those_who_have_many() {
        let mut tree = PrefixTree::default();
        let [one, other] = [1, 2].map(|salt| PrefixKey { salt, ..PrefixKey::default() });
        let mut keep = |key: PrefixKey, token: u32| {
            let node = tree.add(key, None, &[token]);
            tree.keep_page(node, PageClass::Tail, token);
        };
        keep(one, 10);
        (20..24).for_each(|token| keep(other, token));
        let mut drop = |few: u32| {
            let may_lose = |_: PrefixKey, held: u32| held > few;
            tree.drop_oldest_page(PageClass::Tail, may_lose).map(|(_, page)| page)
        };
        // The oldest is of one who has few; then of any, because nobody has more.
        assert_eq!([drop(1), drop(1), drop(1)], [Some(20), Some(21), Some(22)]);
        assert_eq!([drop(1), drop(1), drop(1)], [Some(10), Some(23), None]);
    }
}
