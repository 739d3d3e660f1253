//! The exponential function of numbers up to zero, without branches, so that loops over a vocabulary become vector code.
//!
//! Plain additions and multiplications in one fixed order: the same bits on every machine, which the system's own
//! function does not promise, and several times faster than one that looks at each number.

use std::f64::consts::LOG2_E;

/// ln 2 in two parts; the first has so few digits that its products with whole numbers are exact.
const LN_2: [f64; 2] = [6.931_471_803_691_238e-1, 1.908_214_929_270_587_7e-10];
/// Added to a small number, it leaves the nearest whole number in the last bits.
const SHIFT: f64 = 6_755_399_441_055_744.0;
/// 1/13!, 1/12! … 1/0!: more digits of the series than a number has, up to half of ln 2.
const SERIES: [f64; 14] = [
    1.0 / 6_227_020_800.0,
    1.0 / 479_001_600.0,
    1.0 / 39_916_800.0,
    1.0 / 3_628_800.0,
    1.0 / 362_880.0,
    1.0 / 40_320.0,
    1.0 / 5_040.0,
    1.0 / 720.0,
    1.0 / 120.0,
    1.0 / 24.0,
    1.0 / 6.0,
    1.0 / 2.0,
    1.0,
    1.0,
];

/// e to the power of a number between -700 and 0.
#[inline]
pub(crate) fn exp(x: f64) -> f64 {
    let shifted = x * LOG2_E + SHIFT;
    let power = shifted - SHIFT;
    let rest = (x - power * LN_2[0]) - power * LN_2[1];
    let series = SERIES.iter().fold(0.0, |sum, term| sum * rest + term);
    // The whole number becomes the exponent's bits; what stands above it is shifted out.
    series * f64::from_bits(shifted.to_bits().wrapping_add(1023) << 52)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_exponential_function() {
        assert_eq!(exp(0.0), 1.0);
        let worst = (0..=700_000).map(|step| {
            let x = -f64::from(step) / 1000.0;
            (exp(x) / libm::exp(x) - 1.0).abs()
        });
        let worst = worst.fold(0.0, f64::max);
        assert!(worst < 5e-16, "{worst}");
    }
}
