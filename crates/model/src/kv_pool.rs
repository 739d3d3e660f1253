//! Physical memory of cached keys and values, in pages that the engine numbers.

use cascadia_kernels::{CachedRows, KvPage};

use crate::mixer::StepView;
use crate::{CachePrecision, LayerSpec, Machine, ModelError, PAGE_TOKENS, PageId};

/// The cache of every layer of a stage; fixed in size when the model is loaded.
pub(crate) struct KvPool {
    pub(crate) layers: Vec<LayerCache>,
}

/// The cache of one layer: per page and key/value head, `PAGE_TOKENS × head` numbers. Values lie token by token; keys
/// number by number, because the scores of sixteen tokens are computed side by side.
pub(crate) struct LayerCache {
    kv_heads: usize,
    head: usize,
    keys: Numbers,
    values: Numbers,
}

enum Numbers {
    F32(Vec<f32>),
    F16(Vec<u16>),
}

impl KvPool {
    /// Room for `pages` pages in every layer. The system hands out the memory when a page is first written.
    pub(crate) fn new(layers: &[LayerSpec], precision: CachePrecision, pages: u32) -> Result<KvPool, ModelError> {
        let layers = layers.iter().map(|layer| {
            let layer = &layer.mixer.part;
            let numbers = layer.kv_heads as u128 * layer.head as u128 * u128::from(PAGE_TOKENS) * u128::from(pages);
            if numbers > isize::MAX as u128 / 8 {
                let bytes = u64::try_from(numbers * 2 * u128::from(precision.bytes())).unwrap_or(u64::MAX);
                return Err(ModelError::CacheTooLarge { context: pages.saturating_mul(PAGE_TOKENS), bytes });
            }
            let numbers = numbers as usize;
            let keys = Numbers::zeros(precision, numbers);
            let values = Numbers::zeros(precision, numbers);
            Ok(LayerCache { kv_heads: layer.kv_heads, head: layer.head, keys, values })
        });
        Ok(KvPool { layers: layers.collect::<Result<_, _>>()? })
    }
}

impl LayerCache {
    /// Stores the keys and values of the step's rows.
    pub(crate) fn write(&mut self, step: &StepView<'_>, keys: &[f32], values: &[f32], machine: &Machine) {
        let row_width = self.kv_heads * self.head;
        for (row, (&sequence, &position)) in step.places.sequences.iter().zip(&step.places.positions).enumerate() {
            let page = step.plan.steps[sequence as usize].pages[(position / PAGE_TOKENS) as usize];
            for kv_head in 0..self.kv_heads {
                let source = row * row_width + kv_head * self.head;
                let source = source..source + self.head;
                let (start, token) = (self.page_start(page, kv_head), (position % PAGE_TOKENS) as usize);
                self.keys.store_column(start + token, &keys[source.clone()], machine);
                self.values.store(start + token * self.head, &values[source], machine);
            }
        }
    }

    /// One head's part of a page.
    pub(crate) fn page(&self, page: PageId, kv_head: usize) -> KvPage<'_> {
        let start = self.page_start(page, kv_head);
        let length = PAGE_TOKENS as usize * self.head;
        KvPage { keys: self.keys.rows(start, length), values: self.values.rows(start, length) }
    }

    fn page_start(&self, page: PageId, kv_head: usize) -> usize {
        (page as usize * self.kv_heads + kv_head) * PAGE_TOKENS as usize * self.head
    }
}

impl Numbers {
    fn zeros(precision: CachePrecision, count: usize) -> Numbers {
        match precision {
            CachePrecision::F32 => Numbers::F32(vec![0.0; count]),
            CachePrecision::F16 => Numbers::F16(vec![0; count]),
        }
    }

    fn store(&mut self, at: usize, source: &[f32], machine: &Machine) {
        match self {
            Numbers::F32(numbers) => numbers[at..at + source.len()].copy_from_slice(source),
            Numbers::F16(numbers) => machine.ops.to_f16(source, &mut numbers[at..at + source.len()]),
        }
    }

    /// Stores numbers `PAGE_TOKENS` apart.
    fn store_column(&mut self, start: usize, source: &[f32], machine: &Machine) {
        let column = (start..).step_by(PAGE_TOKENS as usize);
        match self {
            Numbers::F32(numbers) => column.zip(source).for_each(|(at, &number)| numbers[at] = number),
            Numbers::F16(numbers) => {
                let mut halves = [0; 64];
                for (part, at) in source.chunks(halves.len()).zip(column.step_by(halves.len())) {
                    let halves = &mut halves[..part.len()];
                    machine.ops.to_f16(part, halves);
                    let places = (at..).step_by(PAGE_TOKENS as usize);
                    places.zip(halves).for_each(|(at, half)| numbers[at] = *half);
                }
            }
        }
    }

    fn rows(&self, start: usize, length: usize) -> CachedRows<'_> {
        match self {
            Numbers::F32(numbers) => CachedRows::F32(&numbers[start..start + length]),
            Numbers::F16(numbers) => CachedRows::F16(&numbers[start..start + length]),
        }
    }
}
