//! Norms, sums, the functions between matrices and the quantisation of activations.
//!
//! These are written once, over explicit lanes, and compiled again for every instruction set: the compiler turns the
//! lanes into vectors and may not change a bit, because it never reorders float operations by itself.

use crate::Activation;
use crate::activations::{Int8Block32, Int8Block256};
use crate::multiply_add::MultiplyAdd;
use crate::scalar::float::{LANES, dot, padded, reduce};

/// Below this `exp` is zero: next to 1 such a share is lost in rounding, and its products with small numbers would be
/// subnormal, which CPUs handle a hundred times slower.
const EXP_LOW: f32 = -70.0;
/// Above this the result would leave the range of floats.
const EXP_HIGH: f32 = 88.3;
/// ln 2 in two parts, so that n × ln 2 is subtracted without losing bits.
const LN2_HIGH: f32 = 0.693_359_4;
const LN2_LOW: f32 = -2.121_944_4e-4;
/// Coefficients of e^r for |r| ≤ ln 2 / 2, highest power first; the last two terms are r and 1.
const EXP_POLYNOMIAL: [f32; 6] = [1.987_569_1e-4, 1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_6e-1, 0.5];
/// 1.5 × 2^23: adding it rounds a small float to an integer, which then lies in the lowest bits.
const ROUNDER: f32 = 12_582_912.0;
/// Coefficients of the complementary error function divided by its exponential, as powers of 1 / (1 + ERFC_SLOPE x).
const ERFC_POLYNOMIAL: [f32; 5] = [1.061_405_4, -1.453_152, 1.421_413_7, -0.284_496_72, 0.254_829_6];
const ERFC_SLOPE: f32 = 0.327_591_1;
/// √(2 / π) and the factor of the cube in the approximation of the normal distribution.
const GELU_SLOPE: f32 = 0.797_884_6;
const GELU_CUBE: f32 = 0.044_715;
/// Below this a block of activations counts as zero, because the reciprocal of its scale would overflow.
const TINY: f32 = 1e-30;

/// e^x to within 2 units in the last place: our own, so that every machine rounds alike.
#[inline(always)]
pub(crate) fn exp<M: MultiplyAdd>(x: f32) -> f32 {
    let lost = x < EXP_LOW;
    let x = if lost { EXP_LOW } else { x };
    let x = if x > EXP_HIGH { EXP_HIGH } else { x };
    let shifted = M::fused(x, std::f32::consts::LOG2_E, ROUNDER);
    let n = shifted - ROUNDER;
    let r = M::fused(n, -LN2_HIGH, x);
    let r = M::fused(n, -LN2_LOW, r);
    let [first, rest @ ..] = EXP_POLYNOMIAL;
    let mut polynomial = first;
    for coefficient in rest {
        polynomial = M::fused(polynomial, r, coefficient);
    }
    let value = M::fused(polynomial, r * r, r) + 1.0;
    let value = value * f32::from_bits(shifted.to_bits().wrapping_add(127) << 23);
    if lost { 0.0 } else { value }
}

#[inline(always)]
pub(crate) fn rms_norm<M: MultiplyAdd>(row: &[f32], weight: &[f32], epsilon: f32, out: &mut [f32]) {
    let scale = 1.0 / (dot::<M>(row, row) / row.len() as f32 + epsilon).sqrt();
    for ((out, &value), &weight) in out.iter_mut().zip(row).zip(weight) {
        *out = (value * scale) * weight;
    }
}

#[inline(always)]
pub(crate) fn add(row: &[f32], out: &mut [f32]) {
    out.iter_mut().zip(row).for_each(|(out, &value)| *out += value);
}

#[inline(always)]
pub(crate) fn layer_norm<M: MultiplyAdd>(row: &[f32], (weight, bias): (&[f32], &[f32]), epsilon: f32, out: &mut [f32]) {
    let mean = lane_sum(row) / row.len() as f32;
    out.iter_mut().zip(row).for_each(|(out, &value)| *out = value - mean);
    let scale = 1.0 / (dot::<M>(out, out) / row.len() as f32 + epsilon).sqrt();
    for ((out, &weight), &bias) in out.iter_mut().zip(weight).zip(bias) {
        *out = (*out * scale) * weight + bias;
    }
}

/// One loop per function, so that no loop has a branch.
macro_rules! each_activation {
    ($multiply_add:ident, $activation:expr, |$function:ident| $loop:expr) => {
        match $activation {
            Activation::Silu => each_activation!(@ $function = silu::<$multiply_add>, $loop),
            Activation::Gelu => each_activation!(@ $function = gelu::<$multiply_add>, $loop),
            Activation::GeluTanh => each_activation!(@ $function = gelu_tanh::<$multiply_add>, $loop),
            Activation::Relu => each_activation!(@ $function = relu, $loop),
            Activation::ReluSquared => each_activation!(@ $function = relu_squared, $loop),
            Activation::GeluSigmoid => each_activation!(@ $function = gelu_sigmoid::<$multiply_add>, $loop),
            Activation::Sigmoid => each_activation!(@ $function = sigmoid::<$multiply_add>, $loop),
        }
    };
    (@ $function:ident = $definition:expr, $loop:expr) => {{
        let $function = $definition;
        $loop
    }};
}

#[inline(always)]
pub(crate) fn activate<M: MultiplyAdd>(activation: Activation, values: &mut [f32]) {
    each_activation!(M, activation, |function| values.iter_mut().for_each(|value| *value = function(*value)));
}

#[inline(always)]
pub(crate) fn activate_multiply<M: MultiplyAdd>(activation: Activation, gate: &[f32], out: &mut [f32]) {
    each_activation!(M, activation, |function| out
        .iter_mut()
        .zip(gate)
        .for_each(|(out, &gate)| *out *= function(gate)));
}

#[inline(always)]
fn silu<M: MultiplyAdd>(x: f32) -> f32 {
    x / (1.0 + exp::<M>(-x))
}

#[inline(always)]
fn gelu<M: MultiplyAdd>(x: f32) -> f32 {
    let z = x.abs() * std::f32::consts::FRAC_1_SQRT_2;
    let t = 1.0 / M::fused(ERFC_SLOPE, z, 1.0);
    let [first, rest @ ..] = ERFC_POLYNOMIAL;
    let mut polynomial = first;
    for coefficient in rest {
        polynomial = M::fused(polynomial, t, coefficient);
    }
    let complement = polynomial * t * exp::<M>(-z * z);
    // Either side keeps its small part, so that nothing is lost by subtracting from one.
    0.5 * x * if x < 0.0 { complement } else { 2.0 - complement }
}

#[inline(always)]
fn gelu_tanh<M: MultiplyAdd>(x: f32) -> f32 {
    // 1 + tanh(y) = 2 × sigmoid(2 y)
    let inner = GELU_SLOPE * M::fused(x * x * GELU_CUBE, x, x);
    x / (1.0 + exp::<M>(-2.0 * inner))
}

#[inline(always)]
fn gelu_sigmoid<M: MultiplyAdd>(x: f32) -> f32 {
    x * sigmoid::<M>(1.702 * x)
}

#[inline(always)]
fn sigmoid<M: MultiplyAdd>(x: f32) -> f32 {
    1.0 / (1.0 + exp::<M>(-x))
}

#[inline(always)]
fn relu(x: f32) -> f32 {
    if x > 0.0 { x } else { 0.0 }
}

#[inline(always)]
fn relu_squared(x: f32) -> f32 {
    relu(x) * relu(x)
}

#[inline(always)]
pub(crate) fn soft_cap<M: MultiplyAdd>(cap: f32, values: &mut [f32]) {
    for value in values {
        let fallen = exp::<M>(-2.0 * (*value / cap).abs());
        *value = ((1.0 - fallen) / (1.0 + fallen)).copysign(*value) * cap;
    }
}

#[inline(always)]
pub(crate) fn cut_below<M: MultiplyAdd>(deviations: f32, values: &mut [f32]) {
    let count = values.len() as f32;
    let mean = lane_sum(values) / count;
    values.iter_mut().for_each(|value| *value -= mean);
    let cut = (dot::<M>(values, values) / count).sqrt() * deviations;
    values.iter_mut().for_each(|value| *value = relu(*value - cut));
}

#[inline(always)]
pub(crate) fn match_magnitude<M: MultiplyAdd>(like: &[f32], least: f32, values: &mut [f32]) {
    let wanted = (dot::<M>(like, like) / like.len() as f32).sqrt();
    let square = dot::<M>(values, values) / values.len() as f32;
    let own = if square > least { square } else { least }.sqrt();
    values.iter_mut().for_each(|value| *value = *value * wanted / own);
}

#[inline(always)]
pub(crate) fn exp_weights<M: MultiplyAdd>(scores: &mut [f32], greatest: f32, lanes: &mut [f32; LANES]) {
    for chunk in scores.chunks_mut(LANES) {
        for (score, lane) in chunk.iter_mut().zip(&mut *lanes) {
            *score = exp::<M>(*score - greatest);
            *lane += *score;
        }
    }
}

/// Σ values over sixteen lanes.
#[inline(always)]
fn lane_sum(values: &[f32]) -> f32 {
    let mut lanes = [0.0; LANES];
    let (chunks, rest) = values.as_chunks::<LANES>();
    for chunk in chunks.iter().chain(&[padded(rest)]) {
        lanes.iter_mut().zip(chunk).for_each(|(lane, value)| *lane += value);
    }
    reduce(&lanes)
}

/// The greatest of `key(value)` and `least`; NaN is passed over.
#[inline(always)]
fn greatest(values: &[f32], least: f32, key: impl Fn(f32) -> f32) -> f32 {
    let mut lanes = [least; LANES];
    let (chunks, rest) = values.as_chunks::<LANES>();
    for chunk in chunks {
        for lane in 0..LANES {
            let value = key(chunk[lane]);
            lanes[lane] = if value > lanes[lane] { value } else { lanes[lane] };
        }
    }
    let all = lanes.iter().copied().chain(rest.iter().map(|&value| key(value)));
    all.fold(least, |greatest, value| if value > greatest { value } else { greatest })
}

/// The same for many values as they are: four sixteens at a time, none of which waits for another.
#[inline(always)]
pub(crate) fn greatest_of_many(values: &[f32], least: f32) -> f32 {
    let mut lanes = [least; 4 * LANES];
    let (chunks, rest) = values.as_chunks::<{ 4 * LANES }>();
    for chunk in chunks {
        for lane in 0..4 * LANES {
            lanes[lane] = if chunk[lane] > lanes[lane] { chunk[lane] } else { lanes[lane] };
        }
    }
    greatest(rest, greatest(&lanes, least, |value| value), |value| value)
}

#[inline(always)]
pub(crate) fn quantize_blocks32(row: &[f32], out: &mut [Int8Block32]) {
    for (values, block) in row.as_chunks::<32>().0.iter().zip(out) {
        block.scale = quantize(values, &mut block.values);
        let mut sum = 0;
        for &byte in &block.values {
            sum += i32::from(byte);
        }
        block.sum = sum;
    }
}

#[inline(always)]
pub(crate) fn quantize_blocks256(row: &[f32], out: &mut [Int8Block256]) {
    for (values, block) in row.as_chunks::<256>().0.iter().zip(out) {
        block.scale = quantize(values, &mut block.values);
        for (sum, bytes) in block.sums.iter_mut().zip(block.values.as_chunks::<16>().0) {
            *sum = 0;
            for &byte in bytes {
                *sum += i16::from(byte);
            }
        }
        for (wide, pair) in block.wide_sums.iter_mut().zip(block.sums.as_chunks::<2>().0) {
            *wide = pair[0] + pair[1];
        }
    }
}

/// Rounds one block to bytes within ±127 and returns what a byte is worth.
#[inline(always)]
fn quantize(values: &[f32], bytes: &mut [i8]) -> f32 {
    let greatest = greatest(values, 0.0, f32::abs);
    let (scale, factor) = if greatest < TINY { (0.0, 0.0) } else { (greatest / 127.0, 127.0 / greatest) };
    for (byte, &value) in bytes.iter_mut().zip(values) {
        *byte = (value * factor + ROUNDER).to_bits() as u8 as i8;
    }
    scale
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::multiply_add::Portable;

    #[test]
    fn gelu_is_close_to_the_real_one() {
        for step in -1000..1000 {
            let x = f64::from(step) * 0.01;
            let exact = 0.5 * x * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2);
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x * x * x);
            let approximation = 0.5 * x * (1.0 + libm::tanh(inner));
            assert!((f64::from(gelu::<Portable>(x as f32)) - exact).abs() < 5e-7 * x.abs().max(1.0), "gelu({x})");
            assert!(
                (f64::from(gelu_tanh::<Portable>(x as f32)) - approximation).abs() < 5e-7 * x.abs().max(1.0),
                "gelu_tanh({x})"
            );
        }
    }

    #[test]
    fn exp_is_close_to_the_real_one() {
        for step in -7000..8800 {
            let x = step as f32 * 0.01;
            let exact = libm::exp(f64::from(x));
            let error = (f64::from(exp::<Portable>(x)) - exact).abs() / exact;
            assert!(error < 2.5e-7, "exp({x}) is off by {error}");
        }
        let exp = exp::<Portable>;
        assert!(exp(f32::NAN).is_nan());
        assert!(exp(-70.1) == 0.0 && exp(1000.0) > 1e38 && exp(0.0) == 1.0);
    }
}
