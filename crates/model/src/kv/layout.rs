//! Where everything lies in a page of the KV cache.
//!
//! A page of a class holds the keys and values of all layers of that class, one layer after the other, so that it can be
//! given back, copied and moved as one piece. Where values are the first numbers of keys and both are floats of one format, as in
//! latent attention, one row per token is both.

use std::ops::Range;

use cascadia_kernels::{SealScratch, Side};

use super::{CacheFormat, KvFormat, KvPolicy, PageClass, PerClass, Span, Tail};
use crate::spec::{CacheShape, CacheSource, MixerSpec};
use crate::{ModelError, ModelSpec, PAGE_TOKENS};

/// Layers begin on the boundary of a cache line.
const ALIGNMENT: u64 = 64;

/// The pages of a range of layers.
#[derive(Clone, Debug)]
pub struct KvLayout {
    page_bytes: PerClass<u64>,
    spans: PerClass<Span>,
    /// Of each layer that has a cache of its own.
    places: Vec<LayerPlace>,
    /// Of every layer of the range, the place that it reads.
    read: Vec<usize>,
}

/// Where the keys and values of one layer lie.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LayerPlace {
    pub(crate) shape: CacheShape,
    /// All tokens, or with a tail those that are quantised.
    pub(crate) stored: PagePart,
    /// The newest tokens, where older ones are quantised.
    pub(crate) tail: Option<(Tail, PagePart)>,
}

/// The part of a page that belongs to one layer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PagePart {
    pub(crate) class: PageClass,
    format: KvFormat,
    shape: CacheShape,
    /// The first byte of the keys.
    keys: u64,
    /// The first byte of the values; `None` where they are the first numbers of the keys.
    values: Option<u64>,
}

impl KvLayout {
    /// The pages of a whole model.
    pub fn whole(spec: &ModelSpec, policy: &KvPolicy) -> KvLayout {
        let all = 0..spec.layers.len();
        KvLayout::new(spec, all, policy).expect("a whole model holds every cache that its layers read")
    }

    /// The pages of some layers of a model; an error if one of them reads the cache of a layer before them.
    pub(crate) fn new(spec: &ModelSpec, range: Range<usize>, policy: &KvPolicy) -> Result<KvLayout, ModelError> {
        let spans = PerClass::new(|class| if class == PageClass::Full { Span::All } else { Span::Nothing });
        let mut layout = KvLayout { page_bytes: PerClass::default(), spans, places: Vec::new(), read: Vec::new() };
        for layer in range.clone() {
            let mixer = &spec.layers[layer].mixer.part;
            let place = match mixer.cache_source() {
                CacheSource::Own => layout.add(mixer, policy.of(spec, layer), policy.tail(spec)),
                CacheSource::Layer(owner) if owner >= range.start => layout.read[owner - range.start],
                CacheSource::Layer(owner) => return Err(ModelError::Stage { range, layer, owner }),
            };
            layout.read.push(place);
        }
        Ok(layout)
    }

    /// Appends the cache of a layer to the pages of its classes; returns the number of its place.
    fn add(&mut self, mixer: &MixerSpec, format: KvFormat, tail: Tail) -> usize {
        let shape = mixer.cache();
        let class = if shape.window.is_some() { PageClass::Window } else { PageClass::Full };
        let stored = self.take(class, shape, format);
        shape.window.into_iter().for_each(|window| self.widen(class, window));
        let tail = format.is_quantised().then(|| {
            self.widen(PageClass::Tail, tail.span());
            (tail, self.take(PageClass::Tail, shape, tail.format))
        });
        self.places.push(LayerPlace { shape, stored, tail });
        self.places.len() - 1
    }

    /// Lets the pages of a class hold at least so many of the newest positions.
    fn widen(&mut self, class: PageClass, newest: u32) {
        self.spans[class] = match self.spans[class] {
            Span::Newest(span) => Span::Newest(span.max(newest)),
            _ => Span::Newest(newest),
        };
    }

    /// Appends room for keys and values to the pages of a class.
    fn take(&mut self, class: PageClass, shape: CacheShape, format: KvFormat) -> PagePart {
        let end = &mut self.page_bytes[class];
        let mut take = |bytes: u64| {
            let start = *end;
            let bytes = bytes.saturating_mul(shape.heads as u64);
            *end = end.saturating_add(bytes.checked_next_multiple_of(ALIGNMENT).unwrap_or(u64::MAX));
            start
        };
        let keys = take(format.keys.key_bytes(shape.key));
        let shares_rows = shape.value_in_key && format.is_one_float();
        let values = (!shares_rows).then(|| take(format.values.value_bytes(shape.value)));
        PagePart { class, format, shape, keys, values }
    }

    /// Room to quantise a page of any layer.
    pub(crate) fn seal_scratch(&self) -> SealScratch {
        let longest = self.places.iter().map(|place| place.shape.key.max(place.shape.value)).max();
        SealScratch::with_capacity(longest.unwrap_or(0))
    }

    /// Bytes of a page; zero where no layer is of this class.
    pub fn page_bytes(&self, class: PageClass) -> u64 {
        self.page_bytes[class]
    }

    /// Which positions pages of a class hold.
    pub fn span(&self, class: PageClass) -> Span {
        self.spans[class]
    }

    /// The same of every class.
    pub fn spans(&self) -> PerClass<Span> {
        self.spans
    }

    /// Bytes that the cached keys and values of one sequence of `tokens` tokens take, in whole pages.
    pub fn sequence_bytes(&self, tokens: u32) -> u64 {
        let pages = |class| self.span(class).pages_per_sequence(1, tokens.div_ceil(PAGE_TOKENS));
        let bytes =
            PageClass::ALL.into_iter().map(|class| self.page_bytes[class].saturating_mul(u64::from(pages(class))));
        bytes.fold(0, u64::saturating_add)
    }

    /// Where some tokens lie in a page of a class, in all its layers. Pages that are quantised as a whole are part of their last
    /// token.
    pub(crate) fn tokens(&self, class: PageClass, tokens: &Range<u32>) -> impl Iterator<Item = Range<usize>> {
        let tokens = tokens.start as usize..tokens.end as usize;
        self.places.iter().flat_map(move |place| place.tokens(class, tokens.clone()))
    }

    /// Where a layer, counted from the first of the range, finds keys and values.
    pub(crate) fn of(&self, layer: usize) -> &LayerPlace {
        &self.places[self.read[layer]]
    }
}

impl LayerPlace {
    /// Where a token at `position` finds page `number` of its sequence. That depends on its position alone: whatever else is
    /// stored by then, it sees the same bytes.
    pub(crate) fn seen_from(&self, position: u32, number: u32) -> &PagePart {
        match &self.tail {
            Some((tail, part)) if number >= tail.first_page(position) => part,
            _ => &self.stored,
        }
    }

    /// Where new tokens are written.
    pub(crate) fn written(&self) -> &PagePart {
        self.tail.as_ref().map_or(&self.stored, |(_, part)| part)
    }

    /// Where some tokens lie in a page of a class.
    fn tokens(&self, class: PageClass, tokens: Range<usize>) -> Vec<Range<usize>> {
        let mut ranges = Vec::new();
        let written = self.written();
        if written.class == class {
            written.tokens(tokens.clone(), &mut ranges);
        }
        if self.tail.is_some() && self.stored.class == class && tokens.end == PAGE_TOKENS as usize {
            ranges.extend([Side::Keys, Side::Values].map(|side| self.stored.of_all_heads(side)));
        }
        ranges
    }

    /// Bytes that the key and the value of one token take.
    pub(crate) fn token_bytes(&self) -> u64 {
        let values = if self.stored.shares_rows() { 0 } else { self.stored.head_bytes(Side::Values) };
        let bytes = (self.stored.head_bytes(Side::Keys) + values) * self.shape.heads;
        bytes as u64 / u64::from(PAGE_TOKENS)
    }
}

impl PagePart {
    /// How keys or values are stored.
    pub(crate) fn format(&self, side: Side) -> CacheFormat {
        self.format.of(side)
    }

    /// Whether key and value of a token are one row, as long as the key, and rows lie token by token.
    pub(crate) fn shares_rows(&self) -> bool {
        self.values.is_none()
    }

    /// The side in whose order keys or values lie, and how many numbers of a token lie there: shared rows lie as values do,
    /// and are as long as keys.
    pub(crate) fn order(&self, side: Side) -> (Side, usize) {
        match self.shares_rows() {
            true => (Side::Values, self.shape.key),
            false => (side, self.shape.width(side)),
        }
    }

    /// Bytes of one head's keys or values in a page; those of its rows where they share them.
    pub(crate) fn head_bytes(&self, side: Side) -> usize {
        match side {
            Side::Values if !self.shares_rows() => self.format.values.value_bytes(self.shape.value) as usize,
            Side::Keys | Side::Values => self.format.keys.key_bytes(self.shape.key) as usize,
        }
    }

    /// Where one head's keys or values lie in a page.
    pub(crate) fn of_head(&self, side: Side, head: usize) -> Range<usize> {
        let (start, bytes) = (self.start(side), self.head_bytes(side));
        start + head * bytes..start + (head + 1) * bytes
    }

    /// Where the keys or values of all heads lie in a page.
    pub(crate) fn of_all_heads(&self, side: Side) -> Range<usize> {
        let start = self.start(side);
        start..start + self.shape.heads * self.head_bytes(side)
    }

    /// Appends where some tokens lie that are floats: keys number by number, values and shared rows token by token.
    fn tokens(&self, tokens: Range<usize>, ranges: &mut Vec<Range<usize>>) {
        let sides = if self.shares_rows() { &[Side::Keys][..] } else { &[Side::Keys, Side::Values] };
        for &side in sides {
            let (number, (order, length)) = (self.format(side).number_bytes(), self.order(side));
            for head in 0..self.shape.heads {
                let start = self.of_head(side, head).start;
                let of = |first: usize, end: usize| start + first * number..start + end * number;
                match order {
                    Side::Keys => ranges.extend((0..length).map(|at| {
                        let column = at * PAGE_TOKENS as usize;
                        of(column + tokens.start, column + tokens.end)
                    })),
                    Side::Values => ranges.push(of(tokens.start * length, tokens.end * length)),
                }
            }
        }
    }

    fn start(&self, side: Side) -> usize {
        match side {
            Side::Keys => self.keys as usize,
            Side::Values => self.values.unwrap_or(self.keys) as usize,
        }
    }
}
