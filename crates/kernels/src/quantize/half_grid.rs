//! The f16 numbers that scales may take, seen from numbers normalised by a power of two.
//!
//! All searching happens on numbers whose largest magnitude was brought into `[1, 2)`, so that squares neither overflow
//! nor vanish whatever the input's magnitude; only the stored f16 scale has to know the true one.

use half::f16;

use super::grid::clamp;
use super::groups::{Groups, LANES, Lanes};
use super::symmetric::Steps;

/// The way from normalised to real scales.
#[derive(Clone, Copy)]
pub(super) struct HalfGrid {
    to_real: f32,
    to_normalised: f32,
}

/// A grid for every lane of groups.
pub(super) struct HalfGrids {
    to_real: Lanes,
    to_normalised: Lanes,
}

/// Below this magnitude every f16 scale turns a block into zeros.
const SMALLEST: f32 = 1.0 / (1_u32 << 30) as f32;

impl HalfGrid {
    /// Normalises `values` in place; `None` when all are so small that every f16 scale would turn them into zeros.
    #[inline(always)]
    pub(super) fn normalise(values: &mut [f32]) -> Option<HalfGrid> {
        let grid = HalfGrid::for_magnitude(magnitude(values))?;
        for value in values {
            *value *= grid.to_normalised;
        }
        Some(grid)
    }

    #[inline(always)]
    fn for_magnitude(largest: f32) -> Option<HalfGrid> {
        if largest < SMALLEST {
            return None;
        }
        let exponent = largest.to_bits() >> 23;
        let power = |biased: u32| f32::from_bits(biased << 23);
        Some(HalfGrid { to_real: power(exponent), to_normalised: power(254 - exponent) })
    }

    /// The nearest scale the format can store.
    #[inline(always)]
    pub(super) fn nearest(self, scale: f32) -> f32 {
        nearest_half(self.real(scale)) * self.to_normalised
    }

    /// The bytes of a scale.
    pub(super) fn bytes(self, scale: f32) -> [u8; 2] {
        f16::from_f32(self.real(scale)).to_le_bytes()
    }

    #[inline(always)]
    fn real(self, scale: f32) -> f32 {
        clamp(scale * self.to_real, f16::MIN.to_f32_const(), f16::MAX.to_f32_const())
    }
}

impl HalfGrids {
    /// Normalises every group by itself. One that is too small becomes zeros, and zero its only scale.
    #[inline(always)]
    pub(super) fn normalise<const E: usize>(groups: &mut Groups<E>) -> Self {
        let largest = groups.largest();
        let mut grids = HalfGrids { to_real: [1.0; LANES], to_normalised: [0.0; LANES] };
        for lane in 0..LANES {
            if let Some(grid) = HalfGrid::for_magnitude(largest[lane].abs()) {
                (grids.to_real[lane], grids.to_normalised[lane]) = (grid.to_real, grid.to_normalised);
            }
        }
        for values in &mut groups.values {
            for lane in 0..LANES {
                values[lane] *= grids.to_normalised[lane];
            }
        }
        grids
    }

    #[inline(always)]
    fn of_lane(&self, lane: usize) -> HalfGrid {
        HalfGrid { to_real: self.to_real[lane], to_normalised: self.to_normalised[lane] }
    }

    /// The bytes of the scale of a lane.
    pub(super) fn bytes(&self, lane: usize, scale: f32) -> [u8; 2] {
        self.of_lane(lane).bytes(scale)
    }
}

impl Steps for HalfGrids {
    #[inline(always)]
    fn nearest(&self, steps: Lanes) -> Lanes {
        let mut nearest = steps;
        for lane in 0..LANES {
            nearest[lane] = self.of_lane(lane).nearest(steps[lane]);
        }
        nearest
    }
}

/// The largest magnitude. Magnitudes order as their bits do, and the largest of integers becomes vector code.
#[inline(always)]
pub(super) fn magnitude(values: &[f32]) -> f32 {
    let mut largest = 0;
    for value in values {
        largest = largest.max(value.abs().to_bits());
    }
    f32::from_bits(largest)
}

/// The f16 nearest to a number of its range, ties to even, as `f16::from_f32` does it one number at a time.
#[inline(always)]
fn nearest_half(number: f32) -> f32 {
    /// Where floats are as far apart as the subnormal numbers of f16.
    const SHIFT: f32 = 0.75;
    const SMALLEST_NORMAL: f32 = 1.0 / 16_384.0;
    let (bits, magnitude) = (number.to_bits(), number.abs());
    let normal = f32::from_bits(bits.wrapping_add(0xfff + ((bits >> 13) & 1)) & !0x1fff);
    let subnormal = ((magnitude + SHIFT) - SHIFT).copysign(number);
    if magnitude < SMALLEST_NORMAL { subnormal } else { normal }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_half_is_that_of_the_half_crate() {
        let check = |number: f32| {
            let expected = f16::from_f32(number).to_f32();
            assert_eq!(nearest_half(number).to_bits(), expected.to_bits(), "{number:e}");
        };
        // Every f16 of the range, the middle to the next one, and the floats around both.
        for bits in 0..f16::MAX.to_bits() {
            let (number, next) = (f16::from_bits(bits).to_f32(), f16::from_bits(bits + 1).to_f32());
            for base in [number, (number + next) / 2.0] {
                for near in [base.to_bits().saturating_sub(1), base.to_bits(), base.to_bits() + 1] {
                    check(f32::from_bits(near));
                    check(-f32::from_bits(near));
                }
            }
        }
        check(f16::MAX.to_f32());
        check(f16::MIN.to_f32());
    }
}
