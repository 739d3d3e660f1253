//! Where everything lies in a page of the KV cache.
//!
//! A page of a class holds the keys and values of all layers of that class, one layer after the other, so that it can be
//! given back, copied and moved as one piece.

use std::ops::Range;

use super::{KvFormat, KvFormats, PageClass, PerClass};
use crate::spec::{CacheShape, CacheSource, MixerSpec};
use crate::{ModelError, ModelSpec, PAGE_TOKENS};

/// Layers begin on the boundary of a cache line.
const ALIGNMENT: u64 = 64;

/// The pages of a range of layers.
#[derive(Clone, Debug)]
pub struct KvLayout {
    page_bytes: PerClass<u64>,
    /// Of each layer that has a cache of its own.
    places: Vec<LayerPlace>,
    /// Of every layer of the range, the place that it reads.
    read: Vec<usize>,
}

/// Where the keys and values of one layer lie in a page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LayerPlace {
    pub(crate) class: PageClass,
    pub(crate) shape: CacheShape,
    pub(crate) format: KvFormat,
    /// The first byte of the keys.
    pub(crate) keys: u64,
    /// The first byte of the values.
    pub(crate) values: u64,
}

impl KvLayout {
    /// The pages of a whole model.
    pub fn whole(spec: &ModelSpec, formats: &KvFormats) -> KvLayout {
        let all = 0..spec.layers.len();
        KvLayout::new(spec, all, formats).expect("a whole model holds every cache that its layers read")
    }

    /// The pages of some layers of a model; an error if one of them reads the cache of a layer before them.
    pub(crate) fn new(spec: &ModelSpec, range: Range<usize>, formats: &KvFormats) -> Result<KvLayout, ModelError> {
        let mut layout = KvLayout { page_bytes: PerClass::default(), places: Vec::new(), read: Vec::new() };
        for layer in range.clone() {
            let mixer = &spec.layers[layer].mixer.part;
            let place = match mixer.cache_source() {
                CacheSource::Own => layout.add(mixer, formats.of(spec, layer)),
                CacheSource::Layer(owner) if owner >= range.start => layout.read[owner - range.start],
                CacheSource::Layer(owner) => return Err(ModelError::Stage { range, layer, owner }),
            };
            layout.read.push(place);
        }
        Ok(layout)
    }

    /// Appends the cache of a layer to the pages of its class; returns the number of its place.
    fn add(&mut self, mixer: &MixerSpec, format: KvFormat) -> usize {
        let shape = mixer.cache();
        let class = if shape.window.is_some() { PageClass::Window } else { PageClass::Full };
        let end = &mut self.page_bytes[class];
        let mut take = |bytes: u64| {
            let start = *end;
            *end = end.saturating_add(bytes.checked_next_multiple_of(ALIGNMENT).unwrap_or(u64::MAX));
            start
        };
        let tokens = u64::from(PAGE_TOKENS) * shape.heads as u64;
        let keys = take(format.keys.bytes(tokens, shape.key as u64));
        let values = take(format.values.bytes(tokens, shape.value as u64));
        self.places.push(LayerPlace { class, shape, format, keys, values });
        self.places.len() - 1
    }

    /// Bytes of a page; zero where no layer is of this class.
    pub fn page_bytes(&self, class: PageClass) -> u64 {
        self.page_bytes[class]
    }

    /// Bytes that the cached keys and values of one sequence of `tokens` tokens take.
    pub fn sequence_bytes(&self, tokens: u32) -> u64 {
        let bytes = |place: &LayerPlace| {
            let kept = place.shape.window.map_or(tokens, |window| window.min(tokens));
            place.token_bytes().saturating_mul(u64::from(kept))
        };
        self.places.iter().map(bytes).fold(0, u64::saturating_add)
    }

    /// Where a layer, counted from the first of the range, finds keys and values.
    pub(crate) fn of(&self, layer: usize) -> &LayerPlace {
        &self.places[self.read[layer]]
    }
}

impl LayerPlace {
    /// Bytes that the key and the value of one token take.
    pub(crate) fn token_bytes(&self) -> u64 {
        let CacheShape { heads, key, value, .. } = self.shape;
        self.format.keys.bytes(heads as u64, key as u64) + self.format.values.bytes(heads as u64, value as u64)
    }

    /// The bytes of one head's keys in a page.
    pub(crate) fn keys_of(&self, head: usize) -> Range<usize> {
        part(self.keys, head, self.format.keys.bytes(u64::from(PAGE_TOKENS), self.shape.key as u64))
    }

    /// The bytes of one head's values in a page.
    pub(crate) fn values_of(&self, head: usize) -> Range<usize> {
        part(self.values, head, self.format.values.bytes(u64::from(PAGE_TOKENS), self.shape.value as u64))
    }
}

fn part(start: u64, head: usize, bytes: u64) -> Range<usize> {
    let start = start as usize + head * bytes as usize;
    start..start + bytes as usize
}
