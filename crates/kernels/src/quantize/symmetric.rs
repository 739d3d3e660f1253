//! Fits `value ≈ step · level` with whole levels around zero.

/// The levels a format has.
#[derive(Clone, Copy)]
pub(super) struct Levels {
    /// The lowest level.
    pub(super) lowest: f32,
    /// The highest level.
    pub(super) highest: f32,
}

/// Numbers that share one step.
pub(super) struct Symmetric<'a, const E: usize> {
    /// Normalised numbers.
    pub(super) values: &'a [f32; E],
    /// Their weights.
    pub(super) weights: &'a [f32; E],
    /// The levels they may take.
    pub(super) levels: Levels,
}

/// What a step costs, with the sums from which the least-squares step follows.
#[derive(Clone, Copy)]
pub(super) struct Fit {
    /// Weighted squared error.
    pub(super) error: f32,
    /// Σ weight · level².
    pub(super) level_square: f32,
    /// Σ weight · value · level.
    pub(super) value_level: f32,
}

impl Fit {
    /// The step with the least error for these levels.
    pub(super) fn best_step(&self) -> f32 {
        if self.level_square > 0.0 { self.value_level / self.level_square } else { 0.0 }
    }
}

const LANES: usize = 8;

impl<const E: usize> Symmetric<'_, E> {
    /// The nearest level of each number.
    pub(super) fn assign(&self, step: f32) -> [f32; E] {
        let inverse = if step == 0.0 { 0.0 } else { 1.0 / step };
        self.values.map(|value| nearest_level(value * inverse, self.levels))
    }

    /// Measures a step; sums run in lanes so that they become vector code with one fixed order.
    #[inline]
    pub(super) fn measure(&self, step: f32) -> Fit {
        let inverse = if step == 0.0 { 0.0 } else { 1.0 / step };
        let (mut error, mut square, mut product) = ([0.0; LANES], [0.0; LANES], [0.0; LANES]);
        let values = self.values.as_chunks::<LANES>().0;
        let weights = self.weights.as_chunks::<LANES>().0;
        for (values, weights) in values.iter().zip(weights) {
            for lane in 0..LANES {
                let level = nearest_level(values[lane] * inverse, self.levels);
                let rest = values[lane] - step * level;
                let weighted = weights[lane] * level;
                error[lane] += weights[lane] * rest * rest;
                square[lane] += weighted * level;
                product[lane] += weighted * values[lane];
            }
        }
        Fit { error: total(error), level_square: total(square), value_level: total(product) }
    }
}

#[inline]
fn nearest_level(scaled: f32, levels: Levels) -> f32 {
    round(scaled.max(levels.lowest).min(levels.highest))
}

/// Rounds to the nearest whole number, ties to even; correct below 2²², and vector code on every machine.
#[inline]
pub(super) fn round(value: f32) -> f32 {
    const SHIFT: f32 = 12_582_912.0;
    (value + SHIFT) - SHIFT
}

/// The number with the largest magnitude, sign included; the first of several.
pub(super) fn largest(values: impl Iterator<Item = f32>) -> f32 {
    values.fold(0.0, |largest, value| if value.abs() > largest.abs() { value } else { largest })
}

/// Adds up lanes in a fixed order.
#[inline]
pub(super) fn total(lanes: [f32; LANES]) -> f32 {
    ((lanes[0] + lanes[4]) + (lanes[1] + lanes[5])) + ((lanes[2] + lanes[6]) + (lanes[3] + lanes[7]))
}
