//! Physical memory of cached keys and values, in pages that the engine numbers.

use std::ops::Range;

use cascadia_kernels::{CachedRows, KvPage};

use crate::mixer::StepView;
use crate::plan::PlanLimits;
use crate::spec::{CacheShape, CacheSource};
use crate::{CachePrecision, Compute, ModelError, ModelSpec, PAGE_TOKENS, PageId};

/// The caches of a stage; fixed in size when the model is loaded.
pub(crate) struct KvPool {
    caches: Vec<LayerCache>,
    /// Of every layer of the stage, the cache that it reads.
    read: Vec<usize>,
}

/// The cache of one layer: per page and head, `PAGE_TOKENS` keys and as many values. Values lie token by token; keys
/// number by number, because the scores of sixteen tokens are computed side by side.
pub(crate) struct LayerCache {
    shape: CacheShape,
    keys: Numbers,
    values: Numbers,
}

enum Numbers {
    F32(Vec<f32>),
    F16(Vec<u16>),
}

impl KvPool {
    /// Room for the pages of `limits` in every layer of `range` that has a cache of its own.
    pub(crate) fn new(spec: &ModelSpec, range: Range<usize>, limits: &PlanLimits) -> Result<KvPool, ModelError> {
        let mut pool = KvPool { caches: Vec::new(), read: Vec::new() };
        for layer in range.clone() {
            let mixer = &spec.layers[layer].mixer.part;
            let cache = match mixer.cache_source() {
                CacheSource::Own => {
                    pool.caches.push(LayerCache::new(mixer.cache(), spec.cache, limits)?);
                    pool.caches.len() - 1
                }
                CacheSource::Layer(owner) if owner >= range.start => pool.read[owner - range.start],
                CacheSource::Layer(owner) => return Err(ModelError::Stage { range, layer, owner }),
            };
            pool.read.push(cache);
        }
        Ok(pool)
    }

    /// The cache that a layer of the stage reads.
    pub(crate) fn of(&mut self, layer: usize) -> &mut LayerCache {
        &mut self.caches[self.read[layer]]
    }
}

impl LayerCache {
    /// Room for the pages of `limits`. The system hands out the memory when a page is first written.
    fn new(shape: CacheShape, precision: CachePrecision, limits: &PlanLimits) -> Result<LayerCache, ModelError> {
        let pages = if shape.window.is_some() { limits.window_pages } else { limits.pages };
        let tokens = u128::from(PAGE_TOKENS) * u128::from(pages);
        let numbers = |head: usize| shape.heads as u128 * head as u128 * tokens;
        let (keys, values) = (numbers(shape.key), numbers(shape.value));
        if keys.max(values) > isize::MAX as u128 / 8 {
            let bytes = u64::try_from((keys + values) * u128::from(precision.bytes())).unwrap_or(u64::MAX);
            return Err(ModelError::CacheTooLarge { context: pages.saturating_mul(PAGE_TOKENS), bytes });
        }
        let [keys, values] = [keys, values].map(|numbers| Numbers::zeros(precision, numbers as usize));
        Ok(LayerCache { shape, keys, values })
    }

    /// Stores the keys and values of the step's rows.
    pub(crate) fn write(&mut self, step: &StepView<'_>, keys: &[f32], values: &[f32], compute: &Compute) {
        let CacheShape { heads, key, value, .. } = self.shape;
        for (row, (&sequence, &position)) in step.places.sequences.iter().zip(&step.places.positions).enumerate() {
            let page = step.plan.steps[sequence as usize].page((position / PAGE_TOKENS) as usize, self.windowed());
            for head in 0..heads {
                let (source, token) = (row * heads + head, (position % PAGE_TOKENS) as usize);
                let (key_start, value_start) = (self.start(page, head, key), self.start(page, head, value));
                self.keys.store_column(key_start + token, &keys[source * key..(source + 1) * key], compute);
                let stored = value_start + token * value;
                self.values.store(stored, &values[source * value..(source + 1) * value], compute);
            }
        }
    }

    /// Whether it keeps no more than a window of each sequence.
    pub(crate) fn windowed(&self) -> bool {
        self.shape.window.is_some()
    }

    /// One head's part of a page.
    pub(crate) fn page(&self, page: PageId, head: usize) -> KvPage<'_> {
        let CacheShape { key, value, .. } = self.shape;
        KvPage {
            keys: self.keys.rows(self.start(page, head, key), PAGE_TOKENS as usize * key),
            values: self.values.rows(self.start(page, head, value), PAGE_TOKENS as usize * value),
        }
    }

    /// Bytes that the key and the value of one token take.
    pub(crate) fn token_bytes(&self) -> u64 {
        let number = if let Numbers::F16(_) = self.keys { CachePrecision::F16 } else { CachePrecision::F32 };
        let CacheShape { heads, key, value, .. } = self.shape;
        (heads * (key + value)) as u64 * number.bytes()
    }

    /// Where one head's part of a page starts, if its keys or values have `length` numbers.
    fn start(&self, page: PageId, head: usize, length: usize) -> usize {
        (page as usize * self.shape.heads + head) * PAGE_TOKENS as usize * length
    }
}

impl Numbers {
    fn zeros(precision: CachePrecision, count: usize) -> Numbers {
        match precision {
            CachePrecision::F32 => Numbers::F32(vec![0.0; count]),
            CachePrecision::F16 => Numbers::F16(vec![0; count]),
        }
    }

    fn store(&mut self, at: usize, source: &[f32], compute: &Compute) {
        match self {
            Numbers::F32(numbers) => numbers[at..at + source.len()].copy_from_slice(source),
            Numbers::F16(numbers) => compute.ops.attention.to_f16(source, &mut numbers[at..at + source.len()]),
        }
    }

    /// Stores numbers `PAGE_TOKENS` apart.
    fn store_column(&mut self, start: usize, source: &[f32], compute: &Compute) {
        let column = (start..).step_by(PAGE_TOKENS as usize);
        match self {
            Numbers::F32(numbers) => column.zip(source).for_each(|(at, &number)| numbers[at] = number),
            Numbers::F16(numbers) => {
                let mut halves = [0; 64];
                for (part, at) in source.chunks(halves.len()).zip(column.step_by(halves.len())) {
                    let halves = &mut halves[..part.len()];
                    compute.ops.attention.to_f16(part, halves);
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
