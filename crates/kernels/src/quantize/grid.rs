//! The levels that numbers of a block may take, in units of the block's step.

/// Levels in ascending order.
pub(super) trait Grid: Copy {
    /// The lowest level, below zero.
    fn lowest(&self) -> f32;
    /// The highest level, above zero.
    fn highest(&self) -> f32;
    /// The level nearest to a number.
    fn nearest(&self, scaled: f32) -> f32;
    /// Which level this is, counted from the lowest.
    fn index(&self, level: f32) -> u8;
}

/// Every whole number of a range.
#[derive(Clone, Copy)]
pub(super) struct Even {
    /// The lowest level.
    pub(super) lowest: f32,
    /// The highest level.
    pub(super) highest: f32,
}

impl Even {
    /// The levels of a signed number of so many bits.
    pub(super) const fn bits(bits: u32) -> Even {
        let half = (1_u32 << (bits - 1)) as f32;
        Even { lowest: -half, highest: half - 1.0 }
    }
}

impl Grid for Even {
    #[inline(always)]
    fn lowest(&self) -> f32 {
        self.lowest
    }

    #[inline(always)]
    fn highest(&self) -> f32 {
        self.highest
    }

    #[inline(always)]
    fn nearest(&self, scaled: f32) -> f32 {
        round(clamp(scaled, self.lowest, self.highest))
    }

    #[inline(always)]
    fn index(&self, level: f32) -> u8 {
        (level - self.lowest) as u8
    }
}

/// Sixteen levels from a table.
#[derive(Clone, Copy)]
pub(super) struct Uneven {
    levels: [f32; 16],
    middles: [f32; 15],
    gaps: [f32; 15],
}

impl Uneven {
    /// The levels of a format's table, which ascends.
    pub(super) const fn new(table: &[i8; 16]) -> Uneven {
        let mut grid = Uneven { levels: [0.0; 16], middles: [0.0; 15], gaps: [0.0; 15] };
        let mut i = 0;
        while i < 16 {
            grid.levels[i] = table[i] as f32;
            if i > 0 {
                grid.middles[i - 1] = (grid.levels[i - 1] + grid.levels[i]) / 2.0;
                grid.gaps[i - 1] = grid.levels[i] - grid.levels[i - 1];
            }
            i += 1;
        }
        grid
    }
}

impl Grid for Uneven {
    #[inline(always)]
    fn lowest(&self) -> f32 {
        self.levels[0]
    }

    #[inline(always)]
    fn highest(&self) -> f32 {
        self.levels[15]
    }

    /// Climbs every gap whose middle lies below the number: no branches, so that loops over it become vector code.
    #[inline(always)]
    fn nearest(&self, scaled: f32) -> f32 {
        let mut level = self.levels[0];
        for (middle, gap) in self.middles.iter().zip(&self.gaps) {
            level += if scaled > *middle { *gap } else { 0.0 };
        }
        level
    }

    #[inline(always)]
    fn index(&self, level: f32) -> u8 {
        let mut below = 0;
        for middle in &self.middles {
            below += u8::from(level > *middle);
        }
        below
    }
}

/// The nearest number of a range; the lowest for what is no number. Each comparison is one instruction.
#[inline(always)]
pub(super) fn clamp(number: f32, lowest: f32, highest: f32) -> f32 {
    let raised = if number > lowest { number } else { lowest };
    if raised < highest { raised } else { highest }
}

/// Rounds to the nearest whole number, ties to even; correct below 2²², and vector code on every machine.
#[inline(always)]
pub(super) fn round(value: f32) -> f32 {
    const SHIFT: f32 = 12_582_912.0;
    (value + SHIFT) - SHIFT
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::{iq4_nl, nf4};

    #[test]
    fn the_nearest_level_is_the_nearest() {
        for table in [&iq4_nl::LEVELS, &nf4::LEVELS] {
            let grid = Uneven::new(table);
            for tenth in -1500..1500 {
                let number = tenth as f32 / 10.0 + 0.03;
                let distance = |level: f32| (level - number).abs();
                let best = table.iter().map(|&level| distance(f32::from(level))).fold(f32::MAX, f32::min);
                let found = grid.nearest(number);
                assert_eq!(distance(found), best, "{number}");
                assert_eq!(f32::from(table[usize::from(grid.index(found))]), found);
            }
        }
        assert_eq!((Even::bits(4).nearest(-9.0), Even::bits(4).index(7.0)), (-8.0, 15));
    }
}
