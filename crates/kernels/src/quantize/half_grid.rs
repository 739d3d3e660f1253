//! The f16 numbers a block's scale may take, seen from numbers normalised by a power of two.

use half::f16;

use super::symmetric::largest;

/// A block whose largest magnitude was brought into `[1, 2)`, with the way back to real scales.
///
/// All searching happens on normalised numbers, so that squares neither overflow nor vanish whatever the input's
/// magnitude; only the stored f16 scale has to know the true one.
#[derive(Clone, Copy)]
pub(super) struct HalfGrid {
    to_real: f32,
    to_normalised: f32,
}

impl HalfGrid {
    /// Normalises `values` in place; `None` when all are so small that every f16 scale would turn them into zeros.
    pub(super) fn normalise(values: &mut [f32]) -> Option<HalfGrid> {
        let largest = largest(values.iter().copied()).abs();
        if largest < 2.0_f32.powi(-30) {
            return None;
        }
        let exponent = (largest.to_bits() >> 23) as i32 - 127;
        let grid = HalfGrid { to_real: 2.0_f32.powi(exponent), to_normalised: 2.0_f32.powi(-exponent) };
        for value in values {
            *value *= grid.to_normalised;
        }
        Some(grid)
    }

    /// The nearest scale the format can store.
    pub(super) fn nearest(self, scale: f32) -> f32 {
        self.stored(scale).to_f32() * self.to_normalised
    }

    /// The bytes of a scale.
    pub(super) fn bytes(self, scale: f32) -> [u8; 2] {
        self.stored(scale).to_le_bytes()
    }

    fn stored(self, scale: f32) -> f16 {
        f16::from_f32((scale * self.to_real).clamp(f16::MIN.to_f32(), f16::MAX.to_f32()))
    }
}
