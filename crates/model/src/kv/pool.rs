//! Physical memory of the KV cache, in pages that the engine numbers.

use std::ops::Range;

use cascadia_kernels::{KvPage, Ops, Pool, SealScratch, Side};
use memmap2::MmapMut;

use super::stored::{quantise, read_tokens, rows, store_column, store_row};
use super::{CachePages, KvLayout, LayerPlace, PageClass, PagePart, PerClass};
use crate::spec::CacheShape;
use crate::step::Step;
use crate::{ModelError, PAGE_TOKENS, PageId, SequenceStep};

const TOKENS: usize = PAGE_TOKENS as usize;

/// The pages of a stage; their number is fixed when the model is loaded.
pub(crate) struct KvPool {
    layout: KvLayout,
    pages: PerClass<Vec<MmapMut>>,
    /// Of every thread.
    scratch: Vec<SealScratch>,
}

/// The cache that one layer reads. Per page and head there are `PAGE_TOKENS` keys and as many values.
pub(crate) struct LayerCache<'a> {
    place: &'a LayerPlace,
    pages: &'a mut PerClass<Vec<MmapMut>>,
    scratch: &'a mut [SealScratch],
}

impl KvPool {
    /// Room for so many pages, which so many threads write. The system hands out the memory of a page when it is first written.
    pub(crate) fn new(layout: KvLayout, counts: CachePages, threads: usize) -> Result<KvPool, ModelError> {
        let too_large = |bytes: u64| {
            let context = counts.of(PageClass::Full).max(counts.of(PageClass::Window)).saturating_mul(PAGE_TOKENS);
            ModelError::CacheTooLarge { context, bytes }
        };
        let bytes = counts.bytes(&layout);
        if bytes > isize::MAX as u64 {
            return Err(too_large(bytes));
        }
        let mut pages = PerClass::default();
        for class in PageClass::ALL {
            let length = layout.page_bytes(class) as usize;
            let count = if length == 0 { 0 } else { counts.of(class) };
            pages[class] = (0..count)
                .map(|_| MmapMut::map_anon(length))
                .collect::<Result<_, _>>()
                .map_err(|_| too_large(bytes))?;
        }
        let scratch = (0..threads).map(|_| layout.seal_scratch()).collect();
        Ok(KvPool { layout, pages, scratch })
    }

    /// The cache that a layer of the stage reads.
    pub(crate) fn of(&mut self, layer: usize) -> LayerCache<'_> {
        let place = self.layout.of(layer);
        LayerCache { place, pages: &mut self.pages, scratch: &mut self.scratch }
    }

    /// The bytes of a page: of all layers of its class. Nothing where no layer is of this class, or no page has this id.
    pub(crate) fn page(&self, class: PageClass, page: PageId) -> &[u8] {
        self.pages[class].get(page as usize).map_or(&[], |bytes| bytes)
    }

    /// Where the bytes of a page are written.
    pub(crate) fn page_mut(&mut self, class: PageClass, page: PageId) -> &mut [u8] {
        self.pages[class].get_mut(page as usize).map_or(&mut [], |bytes| bytes)
    }

    /// Where some tokens lie in a page of a class.
    pub(crate) fn tokens(&self, class: PageClass, tokens: &Range<u32>) -> impl Iterator<Item = Range<usize>> {
        self.layout.tokens(class, tokens)
    }

    /// Gives the memory of a page back to the system. The page stays usable, and is zero until it is written again.
    pub(crate) fn give_back(&mut self, class: PageClass, page: PageId) -> Result<(), ModelError> {
        let Some(old) = self.pages[class].get_mut(page as usize) else { return Ok(()) };
        let bytes = old.len();
        *old = MmapMut::map_anon(bytes)
            .map_err(|_| ModelError::CacheTooLarge { context: PAGE_TOKENS, bytes: bytes as u64 })?;
        Ok(())
    }
}

impl LayerCache<'_> {
    /// Stores the keys and values of the step's rows. A page that the tail may leave now that it is full is quantised as
    /// well: what becomes of it depends on its tokens alone, not on when that happens.
    pub(crate) fn write(&mut self, step: &Step<'_>, keys: &[f32], values: &[f32]) {
        let CacheShape { heads, key, value, .. } = self.place.shape;
        let written = *self.place.written();
        for (row, (&sequence, &position)) in step.places.sequences.iter().zip(&step.places.positions).enumerate() {
            let (sequence, number) = (&step.plan.steps[sequence as usize], position / PAGE_TOKENS);
            let bytes = &mut self.pages[written.class][sequence.page(written.class, number) as usize];
            let token = position as usize % TOKENS;
            for head in 0..heads {
                let source = row * heads + head;
                let (cached, key) = (&mut bytes[written.of_head(Side::Keys, head)], &keys[source * key..][..key]);
                if written.shares_rows() {
                    store_row(written.format(Side::Keys), cached, token, key, step.ops);
                    continue;
                }
                store_column(written.format(Side::Keys), cached, token, key, step.ops);
                let (rows, value) =
                    (&mut bytes[written.of_head(Side::Values, head)], &values[source * value..][..value]);
                store_row(written.format(Side::Values), rows, token, value, step.ops);
            }
            if token == TOKENS - 1 && self.place.tail.is_some() {
                self.seal(sequence, number, (step.ops, step.pool));
            }
        }
    }

    /// Quantises a full page of the tail.
    fn seal(&mut self, sequence: &SequenceStep, number: u32, (ops, pool): (&Ops, &Pool)) {
        let LayerPlace { shape, stored, .. } = *self.place;
        let written = *self.place.written();
        let [from, to] = [written.class, stored.class].map(|class| sequence.page(class, number) as usize);
        let [tail, pages] = self.pages.two_mut([written.class, stored.class]);
        let (tail, page) = (&tail[from], &mut pages[to]);
        for side in [Side::Keys, Side::Values] {
            let (heads, bytes, width) = (stored.of_all_heads(side), stored.head_bytes(side), shape.width(side));
            let (order, length) = written.order(side);
            pool.chunks_with(&mut page[heads], bytes, self.scratch, |_, head, bytes, scratch| {
                let exact = &tail[written.of_head(side, head)];
                read_tokens((written.format(side), order), exact, (length, width), scratch.room(TOKENS * width));
                quantise((stored.format(side), side), bytes, width, (scratch, ops));
            });
        }
    }

    /// One head's part of page `number` of a sequence, as a token at `position` sees it.
    pub(crate) fn page(&self, sequence: &SequenceStep, position: u32, number: u32, head: usize) -> KvPage<'_> {
        let part: &PagePart = self.place.seen_from(position, number);
        let bytes = &self.pages[part.class][sequence.page(part.class, number) as usize];
        let shape = self.place.shape;
        let of = |side| {
            let rows = rows((part.format(side), side), &bytes[part.of_head(side, head)], shape.width(side));
            if part.shares_rows() { rows.in_shared_rows(shape.key) } else { rows }
        };
        KvPage { keys: of(Side::Keys), values: of(Side::Values) }
    }

    /// Bytes that the key and the value of one token take.
    pub(crate) fn token_bytes(&self) -> u64 {
        self.place.token_bytes()
    }
}
