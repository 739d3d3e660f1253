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
    /// Pages whose memory others use.
    lent: Vec<PageId>,
    /// Whether a page was used since its memory was given back.
    written: Vec<bool>,
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
        let (held, free) = (vec![Counts::default(); count as usize], (0..count).rev().collect());
        Pages { held, free, lent: Vec::new(), written: vec![false; count as usize], running: 0 }
    }

    /// The same pages, which nobody holds any more; those that are lent stay lent.
    pub fn emptied(&self) -> Pages {
        let mut pages = Pages::new(self.count());
        let mut is_lent = vec![false; pages.held.len()];
        self.lent.iter().for_each(|page| is_lent[*page as usize] = true);
        pages.free.retain(|page| !is_lent[*page as usize]);
        Pages { lent: self.lent.clone(), written: self.written.clone(), ..pages }
    }

    /// A free page, which a running sequence holds from now on.
    pub fn take(&mut self) -> Option<PageId> {
        let page = self.free.pop()?;
        self.written[page as usize] = true;
        self.hold(page, Holder::Running);
        Some(page)
    }

    /// Free pages that have memory, which is about to be given back.
    pub fn take_written(&mut self) -> Vec<PageId> {
        let written = &mut self.written;
        self.free.iter().copied().filter(|page| std::mem::take(&mut written[*page as usize])).collect()
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

    /// Lends the memory of a free page to others.
    pub fn lend(&mut self) -> Option<PageId> {
        let page = self.free.pop()?;
        self.lent.push(page);
        Some(page)
    }

    /// The page that was lent last is free again.
    pub fn take_back(&mut self) {
        self.free.extend(self.lent.pop());
    }

    /// Whether a running sequence holds the page.
    pub fn runs(&self, page: PageId) -> bool {
        self.held[page as usize].running > 0
    }

    /// All pages.
    pub fn count(&self) -> u32 {
        self.held.len() as u32
    }

    /// Pages whose memory others use.
    pub fn lent(&self) -> u32 {
        self.lent.len() as u32
    }

    /// Pages that are not lent.
    pub fn kept(&self) -> u32 {
        self.count() - self.lent()
    }

    /// Pages that nobody holds, and that are not lent.
    pub fn free(&self) -> u32 {
        self.free.len() as u32
    }

    /// Pages that running sequences hold.
    pub fn running(&self) -> u32 {
        self.running
    }

    /// Pages that only the cache of prefixes holds.
    pub fn cached(&self) -> u32 {
        self.kept() - self.free() - self.running
    }
}
