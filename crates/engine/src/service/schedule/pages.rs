//! Numbers of pages: which are free, and who holds the others.

use cascadia_model::PageId;

/// What a page is held for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// A sequence that runs.
    Running,
    /// The cache of prefixes.
    Cached,
}

/// Hands out pages and counts their holders. A page that nobody holds is free; its bytes are simply written again.
#[derive(Debug)]
pub struct Pages {
    held: Vec<Counts>,
    free: Vec<PageId>,
    running: u32,
}

/// How often a page is held, by kind of holder.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    running: u32,
    cached: u32,
}

impl Pages {
    /// Pages `0..count`, all of them free.
    pub fn new(count: u32) -> Pages {
        Pages { held: vec![Counts::default(); count as usize], free: (0..count).rev().collect(), running: 0 }
    }

    /// A free page, which a running sequence holds from now on.
    pub fn take(&mut self) -> Option<PageId> {
        let page = self.free.pop()?;
        self.hold(page, Holder::Running);
        Some(page)
    }

    /// One more holder of a page that is held already.
    pub fn hold(&mut self, page: PageId, holder: Holder) {
        let counts = &mut self.held[page as usize];
        match holder {
            Holder::Running => {
                self.running += u32::from(counts.running == 0);
                counts.running += 1;
            }
            Holder::Cached => counts.cached += 1,
        }
    }

    /// One holder fewer; without any, the page is free.
    pub fn release(&mut self, page: PageId, holder: Holder) {
        let counts = &mut self.held[page as usize];
        match holder {
            Holder::Running => {
                counts.running -= 1;
                self.running -= u32::from(counts.running == 0);
            }
            Holder::Cached => counts.cached -= 1,
        }
        if counts.running == 0 && counts.cached == 0 {
            self.free.push(page);
        }
    }

    /// Whether a running sequence holds the page.
    pub fn runs(&self, page: PageId) -> bool {
        self.held[page as usize].running > 0
    }

    /// All pages.
    pub fn count(&self) -> u32 {
        self.held.len() as u32
    }

    /// Pages that nobody holds.
    pub fn free(&self) -> u32 {
        self.free.len() as u32
    }

    /// Pages that running sequences hold.
    pub fn running(&self) -> u32 {
        self.running
    }

    /// Pages that only the cache of prefixes holds.
    pub fn cached(&self) -> u32 {
        self.count() - self.free() - self.running
    }
}
