//! Physical memory of the KV cache, in pages that the engine numbers.

use bytemuck::{cast_slice, cast_slice_mut};
use cascadia_kernels::{CachedRows, KvPage, Ops, Stored};
use memmap2::MmapMut;

use super::{CacheFormat, CachePages, KvLayout, LayerPlace, PageClass, PerClass};
use crate::spec::CacheShape;
use crate::step::Step;
use crate::{ModelError, PAGE_TOKENS, PageId};

const TOKENS: usize = PAGE_TOKENS as usize;

/// The pages of a stage; their number is fixed when the model is loaded.
pub(crate) struct KvPool {
    layout: KvLayout,
    pages: PerClass<Vec<MmapMut>>,
}

/// The cache that one layer reads. Per page and head there are `PAGE_TOKENS` keys and as many values. Values lie token by
/// token; keys number by number, because the scores of sixteen tokens are computed side by side.
pub(crate) struct LayerCache<'a> {
    place: &'a LayerPlace,
    pages: &'a mut [MmapMut],
}

impl KvPool {
    /// Room for so many pages. The system hands out the memory of a page when it is first written.
    pub(crate) fn new(layout: KvLayout, counts: CachePages) -> Result<KvPool, ModelError> {
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
        Ok(KvPool { layout, pages })
    }

    /// The cache that a layer of the stage reads.
    pub(crate) fn of(&mut self, layer: usize) -> LayerCache<'_> {
        let place = self.layout.of(layer);
        LayerCache { place, pages: &mut self.pages[place.class] }
    }

    /// The bytes of a page: of all layers of its class. Nothing where no layer is of this class, or no page has this id.
    pub(crate) fn page(&self, class: PageClass, page: PageId) -> &[u8] {
        self.pages[class].get(page as usize).map_or(&[], |bytes| bytes)
    }

    /// Where the bytes of a page are written.
    pub(crate) fn page_mut(&mut self, class: PageClass, page: PageId) -> &mut [u8] {
        self.pages[class].get_mut(page as usize).map_or(&mut [], |bytes| bytes)
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
    /// Stores the keys and values of the step's rows.
    pub(crate) fn write(&mut self, step: &Step<'_>, keys: &[f32], values: &[f32]) {
        let LayerPlace { class, shape: CacheShape { heads, key, value, .. }, format, .. } = *self.place;
        for (row, (&sequence, &position)) in step.places.sequences.iter().zip(&step.places.positions).enumerate() {
            let page = step.plan.steps[sequence as usize].page(class, position / PAGE_TOKENS);
            let bytes = &mut self.pages[page as usize];
            let token = position as usize % TOKENS;
            for head in 0..heads {
                let source = row * heads + head;
                let column = &mut bytes[self.place.keys_of(head)];
                store_column(format.keys, column, token, &keys[source * key..(source + 1) * key], step.ops);
                let rows = &mut bytes[self.place.values_of(head)];
                store_row(format.values, rows, token, &values[source * value..(source + 1) * value], step.ops);
            }
        }
    }

    /// The class of pages it lies in.
    pub(crate) fn class(&self) -> PageClass {
        self.place.class
    }

    /// One head's part of a page.
    pub(crate) fn page(&self, page: PageId, head: usize) -> KvPage<'_> {
        let (LayerPlace { shape, format, .. }, bytes) = (self.place, &self.pages[page as usize]);
        KvPage {
            keys: rows(format.keys, &bytes[self.place.keys_of(head)], shape.key),
            values: rows(format.values, &bytes[self.place.values_of(head)], shape.value),
        }
    }

    /// Bytes that the key and the value of one token take.
    pub(crate) fn token_bytes(&self) -> u64 {
        self.place.token_bytes()
    }
}

fn rows(format: CacheFormat, bytes: &[u8], head: usize) -> CachedRows<'_> {
    let stored = match format {
        CacheFormat::F32 => Stored::F32(cast_slice(bytes)),
        CacheFormat::F16 => Stored::F16(cast_slice(bytes)),
    };
    CachedRows::new(stored, head)
}

/// Stores the numbers of a token one after the other.
fn store_row(format: CacheFormat, bytes: &mut [u8], token: usize, source: &[f32], ops: &Ops) {
    let range = token * source.len()..(token + 1) * source.len();
    match format {
        CacheFormat::F32 => cast_slice_mut(bytes)[range].copy_from_slice(source),
        CacheFormat::F16 => ops.attention.to_f16(source, &mut cast_slice_mut(bytes)[range]),
    }
}

/// Stores the numbers of a token `PAGE_TOKENS` apart.
fn store_column(format: CacheFormat, bytes: &mut [u8], token: usize, source: &[f32], ops: &Ops) {
    match format {
        CacheFormat::F32 => {
            let numbers: &mut [f32] = cast_slice_mut(bytes);
            numbers.chunks_exact_mut(TOKENS).zip(source).for_each(|(tokens, number)| tokens[token] = *number);
        }
        CacheFormat::F16 => {
            let numbers: &mut [u16] = cast_slice_mut(bytes);
            let mut halves = [0; 64];
            for (part, columns) in source.chunks(halves.len()).zip(numbers.chunks_mut(halves.len() * TOKENS)) {
                let halves = &mut halves[..part.len()];
                ops.attention.to_f16(part, halves);
                columns.chunks_exact_mut(TOKENS).zip(halves).for_each(|(tokens, half)| tokens[token] = *half);
            }
        }
    }
}
