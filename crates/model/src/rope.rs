//! Rotary position encoding: frequencies as data, rotation of heads.

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
}

/// Radians per position for every pair, and what rotated numbers are multiplied with.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rotation {
    pub(crate) frequencies: Vec<f32>,
    pub(crate) magnitude: f32,
}

impl RopeSpec {
    /// The rotation for texts of up to `context` tokens.
    pub(crate) fn rotation(&self, _context: u32) -> Rotation {
        let mut frequencies = frequencies(self.base, self.dimensions);
        match &self.scaling {
            RopeScaling::None => {}
            RopeScaling::Linear(factor) => frequencies.iter_mut().for_each(|frequency| *frequency /= factor),
            RopeScaling::Divisors(divisors) => {
                frequencies.iter_mut().zip(divisors).for_each(|(frequency, divisor)| *frequency /= divisor);
            }
            RopeScaling::Wavelengths(scaling) => {
                frequencies.iter_mut().for_each(|frequency| *frequency /= scaling.divisor(*frequency));
            }
        }
        Rotation { frequencies, magnitude: 1.0 }
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

/// Frequencies of `dimensions / 2` pairs for a base, as the original implementation rounds them.
pub(crate) fn frequencies(base: f32, dimensions: usize) -> Vec<f32> {
    let exponent = |pair: usize| (2 * pair) as f64 / dimensions as f64;
    (0..dimensions / 2).map(|pair| (1.0 / libm::pow(f64::from(base), exponent(pair))) as f32).collect()
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

/// Cosines and sines of the rows of one step, shared by all layers of one kind.
#[derive(Default)]
pub(crate) struct RopeTable {
    pairs: usize,
    /// Per row: the cosines of all pairs, then the sines.
    values: Vec<f32>,
}

impl RopeTable {
    pub(crate) fn with_capacity(rows: usize, spec: &RopeSpec) -> RopeTable {
        let pairs = spec.dimensions / 2;
        RopeTable { pairs, values: Vec::with_capacity(rows * 2 * pairs) }
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
    pub(crate) fn rotate(&self, row: usize, style: RopeStyle, heads: &mut [f32], head: usize) {
        if self.pairs == 0 {
            return;
        }
        let (cosines, sines) = self.row(row);
        for numbers in heads.chunks_exact_mut(head) {
            match style {
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
