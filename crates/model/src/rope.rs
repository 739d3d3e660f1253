//! Rotary position encoding: frequencies as data, rotation of heads.

use std::f64::consts::TAU;

/// How one kind of layer encodes positions.
#[derive(Clone, Debug, PartialEq)]
pub struct RopeSpec {
    /// Which two numbers of a head form a pair.
    pub style: RopeStyle,
    /// What the frequencies are powers of.
    pub base: f32,
    /// Numbers of a head that are rotated, the first ones.
    pub dimensions: usize,
    /// How frequencies are stretched for longer texts.
    pub scaling: RopeScaling,
}

/// How frequencies are stretched so that a model reads longer texts than it was first trained on.
#[derive(Clone, Debug, PartialEq)]
pub enum RopeScaling {
    /// Not at all.
    None,
    /// All are divided by one number.
    Linear(f32),
    /// Each is divided by its own number.
    Divisors(Vec<f32>),
    /// Only long wavelengths are stretched.
    Wavelengths(WavelengthScaling),
    /// The base grows with the context.
    Dynamic(DynamicScaling),
    /// The stretching rises from pair to pair.
    Yarn(YarnScaling),
    /// Each is divided by its own number, which is another for a long context.
    Long(LongScaling),
}

/// Radians per position for every pair, and what rotated numbers are multiplied with.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rotation {
    pub(crate) frequencies: Vec<f32>,
    pub(crate) magnitude: f32,
}

impl RopeSpec {
    /// The rotation for texts of up to `context` tokens.
    ///
    /// Rules that depend on the length of a text take the context that the model was loaded with for it, never how far
    /// a text has come: otherwise the angles would change under keys that are already cached, and results would depend
    /// on how a prompt is cut. So one position always has one angle, in every step and for every sequence.
    pub(crate) fn rotation(&self, context: u32) -> Rotation {
        let base = f64::from(self.base);
        let plain = frequencies(base, self.dimensions);
        let divided = |divisors: &[f32]| plain.iter().zip(divisors).map(|(plain, divisor)| plain / divisor).collect();
        let (frequencies, magnitude) = match &self.scaling {
            RopeScaling::None => (plain, 1.0),
            RopeScaling::Linear(factor) => (plain.iter().map(|frequency| frequency / factor).collect(), 1.0),
            RopeScaling::Divisors(divisors) => (divided(divisors), 1.0),
            RopeScaling::Wavelengths(scaling) => {
                (plain.iter().map(|frequency| frequency / scaling.divisor(*frequency)).collect(), 1.0)
            }
            RopeScaling::Dynamic(scaling) => {
                (frequencies(base * scaling.growth(context, self.dimensions), self.dimensions), 1.0)
            }
            RopeScaling::Yarn(scaling) => (divided(&scaling.divisors(base, self.dimensions)), scaling.magnitude),
            RopeScaling::Long(scaling) => (divided(scaling.divisors(context)), scaling.magnitude),
        };
        Rotation { frequencies, magnitude }
    }
}

/// Which numbers are rotated together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopeStyle {
    /// Number i with number i + half (Hugging Face).
    Halves,
    /// Number 2 i with number 2 i + 1 (GGUF files of the Llama family, whose rows are stored to match).
    Interleaved,
}

/// Stretching of long wavelengths only, which keeps near positions as they were.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WavelengthScaling {
    /// By how much the longest wavelengths are stretched.
    pub factor: f32,
    /// Wavelengths above `original_context / low` are stretched fully.
    pub low: f32,
    /// Wavelengths below `original_context / high` are kept.
    pub high: f32,
    /// Context before the stretching.
    pub original_context: f32,
}

/// A base that grows with the context ("dynamic NTK"): nothing changes up to the original context.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DynamicScaling {
    /// How fast the base grows.
    pub factor: f32,
    /// Context before the stretching.
    pub original_context: u32,
}

/// Pairs that turn often within the original context are kept, those that turn little are stretched, and between them
/// the stretching rises from pair to pair ("YaRN").
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct YarnScaling {
    /// By how much the slowest pairs are stretched.
    pub factor: f32,
    /// Context before the stretching.
    pub original_context: u32,
    /// Pairs with more turns than this are kept.
    pub fast: f32,
    /// Pairs with fewer turns than this are stretched fully.
    pub slow: f32,
    /// Whether the rise begins and ends at whole pairs.
    pub whole_pairs: bool,
    /// What rotated numbers are multiplied with.
    pub magnitude: f32,
}

/// Divisors that were searched for: some for the original context, others for all beyond it ("longrope").
#[derive(Clone, Debug, PartialEq)]
pub struct LongScaling {
    /// Divisors up to the original context.
    pub short: Vec<f32>,
    /// Divisors for longer ones.
    pub long: Vec<f32>,
    /// Context before the stretching.
    pub original_context: u32,
    /// What rotated numbers are multiplied with, whatever the context.
    pub magnitude: f32,
}

/// Frequencies of `dimensions / 2` pairs for a base, as the original implementation rounds them.
pub(crate) fn frequencies(base: f64, dimensions: usize) -> Vec<f32> {
    let exponent = |pair: usize| (2 * pair) as f64 / dimensions as f64;
    (0..dimensions / 2).map(|pair| (1.0 / libm::pow(base, exponent(pair))) as f32).collect()
}

impl WavelengthScaling {
    /// What a frequency is divided by.
    pub(crate) fn divisor(&self, frequency: f32) -> f32 {
        let wavelength = 2.0 * std::f32::consts::PI / frequency;
        let (long, short) = (self.original_context / self.low, self.original_context / self.high);
        if wavelength < short {
            1.0
        } else if wavelength > long {
            self.factor
        } else {
            let smooth = (self.original_context / wavelength - self.low) / (self.high - self.low);
            1.0 / ((1.0 - smooth) / self.factor + smooth)
        }
    }
}

impl DynamicScaling {
    /// What the base is multiplied with.
    fn growth(&self, context: u32, dimensions: usize) -> f64 {
        let longer = f64::from(context.max(self.original_context)) / f64::from(self.original_context);
        let exponent = dimensions as f64 / (dimensions as f64 - 2.0);
        libm::pow(1.0 + f64::from(self.factor) * (longer - 1.0), exponent)
    }
}

impl YarnScaling {
    /// What the frequency of each pair is divided by.
    fn divisors(&self, base: f64, dimensions: usize) -> Vec<f32> {
        let context = f64::from(self.original_context);
        // The pair, as a fraction, that makes so many turns within the original context.
        let pair_of =
            |turns: f32| dimensions as f64 * libm::log(context / (f64::from(turns) * TAU)) / (2.0 * libm::log(base));
        let (mut first, mut last) = (pair_of(self.fast), pair_of(self.slow));
        if self.whole_pairs {
            (first, last) = (first.floor(), last.ceil());
        }
        let (first, last) = (first.max(0.0), last.min(dimensions as f64 - 1.0));
        let length = if first == last { 0.001 } else { last - first };
        let stretched = |pair: usize| ((pair as f64 - first) / length).clamp(0.0, 1.0);
        let divisor = |stretched: f64| 1.0 / (stretched / f64::from(self.factor) + (1.0 - stretched));
        (0..dimensions / 2).map(|pair| divisor(stretched(pair)) as f32).collect()
    }
}

/// What YaRN usually multiplies with when it stretches by `factor`; `share` is how much of that is wanted.
pub(crate) fn yarn_magnitude(factor: f32, share: f32) -> f32 {
    if factor <= 1.0 { 1.0 } else { (1.0 + 0.1 * f64::from(share) * libm::log(f64::from(factor))) as f32 }
}

impl LongScaling {
    fn divisors(&self, context: u32) -> &[f32] {
        if context > self.original_context { &self.long } else { &self.short }
    }
}

/// Cosines and sines of the rows of one step, shared by all layers of one kind.
pub(crate) struct RopeTable {
    style: RopeStyle,
    pairs: usize,
    /// Per row: the cosines of all pairs, then the sines.
    values: Vec<f32>,
}

impl RopeTable {
    pub(crate) fn with_capacity(rows: usize, spec: &RopeSpec) -> RopeTable {
        let pairs = spec.dimensions / 2;
        RopeTable { style: spec.style, pairs, values: Vec::with_capacity(rows * 2 * pairs) }
    }

    /// Computes the table for rows at `positions`.
    pub(crate) fn fill(&mut self, rotation: &Rotation, positions: &[u32]) {
        self.values.resize(positions.len() * 2 * self.pairs, 0.0);
        for (row, &position) in self.values.chunks_exact_mut(2 * self.pairs).zip(positions) {
            let (cosines, sines) = row.split_at_mut(self.pairs);
            for ((cosine, sine), &frequency) in cosines.iter_mut().zip(sines).zip(&rotation.frequencies) {
                // The angle is rounded to single precision as the original does; its cosine is then exact, and our
                // own library makes it the same on every machine.
                let angle = f64::from(position as f32 * frequency);
                *sine = libm::sin(angle) as f32 * rotation.magnitude;
                *cosine = libm::cos(angle) as f32 * rotation.magnitude;
            }
        }
    }

    /// Rotates every head of one row.
    pub(crate) fn rotate(&self, row: usize, heads: &mut [f32], head: usize) {
        if self.pairs == 0 {
            return;
        }
        let (cosines, sines) = self.row(row);
        for numbers in heads.chunks_exact_mut(head) {
            match self.style {
                RopeStyle::Halves => {
                    let (first, second) = numbers[..2 * self.pairs].split_at_mut(self.pairs);
                    for (((a, b), cosine), sine) in first.iter_mut().zip(second).zip(cosines).zip(sines) {
                        (*a, *b) = (*a * cosine - *b * sine, *b * cosine + *a * sine);
                    }
                }
                RopeStyle::Interleaved => {
                    let pairs = numbers.as_chunks_mut::<2>().0;
                    for (([a, b], cosine), sine) in pairs.iter_mut().zip(cosines).zip(sines) {
                        (*a, *b) = (*a * cosine - *b * sine, *b * cosine + *a * sine);
                    }
                }
            }
        }
    }

    fn row(&self, row: usize) -> (&[f32], &[f32]) {
        let range = row * 2 * self.pairs..(row + 1) * 2 * self.pairs;
        self.values[range].split_at(self.pairs)
    }
}
