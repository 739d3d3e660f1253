//! Decoding of every storage format to f32: the specification all faster decoders are tested against.

use crate::Dtype;
use crate::blocks::{
    SMALL_BLOCK, SUPER_BLOCK, byte_to_f32, half_at, half_to_f32, q4_0, q4_k, q5_k, q6_k, q8_0, unpack_scales,
};
use crate::scalar::codes::{decoder32, decoder256};

/// Decodes whole blocks of `dtype` from little-endian `bytes` into `out`.
///
/// The bytes may lie at any address. NaN and infinite scales decode to NaN and infinite numbers.
///
/// # Panics
/// When `bytes` is not exactly the storage of `out.len()` numbers; callers have checked sizes when they opened the file.
pub fn decode_row(dtype: Dtype, bytes: &[u8], out: &mut [f32]) {
    let expected = dtype.row_bytes(out.len() as u64);
    assert!(expected == Some(bytes.len() as u64), "{} bytes cannot be {} numbers of {dtype}", bytes.len(), out.len());
    match dtype {
        Dtype::F32 => plain(bytes, out, f32::from_le_bytes),
        Dtype::F16 => plain(bytes, out, |word| half_to_f32(u16::from_le_bytes(word))),
        Dtype::BF16 => plain(bytes, out, |word| f32::from_bits(u32::from(u16::from_le_bytes(word)) << 16)),
        Dtype::Q8_0 => blocks(bytes, out, decode_q8_0),
        Dtype::Q4_0 => blocks(bytes, out, decode_q4_0),
        Dtype::Q4_K => blocks(bytes, out, decode_q4_k),
        Dtype::Q5_K => blocks(bytes, out, decode_q5_k),
        Dtype::Q6_K => blocks(bytes, out, decode_q6_k),
        Dtype::F8_E4M3 => plain(bytes, out, |[byte]| byte_to_f32(byte)),
        _ if dtype.block_elements() == SUPER_BLOCK => decoder256(dtype)(bytes, out),
        _ => decoder32(dtype)(bytes, out),
    }
}

fn plain<const N: usize>(bytes: &[u8], out: &mut [f32], number: impl Fn([u8; N]) -> f32) {
    for (value, word) in out.iter_mut().zip(bytes.as_chunks::<N>().0) {
        *value = number(*word);
    }
}

fn blocks<const B: usize, const E: usize>(bytes: &[u8], out: &mut [f32], block: impl Fn(&[u8; B], &mut [f32; E])) {
    for (numbers, bytes) in out.as_chunks_mut::<E>().0.iter_mut().zip(bytes.as_chunks::<B>().0) {
        block(bytes, numbers);
    }
}

/// A run of `N` bytes of a block; `at + N` lies inside it.
#[inline]
fn field<const N: usize>(block: &[u8], at: usize) -> &[u8; N] {
    block[at..].first_chunk().expect("the layout keeps every field inside its block")
}

/// Decodes one Q8_0 block.
fn decode_q8_0(block: &[u8; q8_0::BYTES], out: &mut [f32; SMALL_BLOCK]) {
    let scale = half_at(block, 0);
    let quants: &[u8; 32] = field(block, q8_0::QUANTS);
    for (value, &quant) in out.iter_mut().zip(quants) {
        *value = f32::from(quant as i8) * scale;
    }
}

/// Decodes one Q4_0 block.
fn decode_q4_0(block: &[u8; q4_0::BYTES], out: &mut [f32; SMALL_BLOCK]) {
    let scale = half_at(block, 0);
    let quants: &[u8; 16] = field(block, q4_0::QUANTS);
    let (low, high) = out.split_at_mut(SMALL_BLOCK / 2);
    for i in 0..16 {
        low[i] = scale * (i32::from(quants[i] & 15).wrapping_sub(q4_0::OFFSET) as f32);
        high[i] = scale * (i32::from(quants[i] >> 4).wrapping_sub(q4_0::OFFSET) as f32);
    }
}

/// Decodes one Q4_K block.
fn decode_q4_k(block: &[u8; q4_k::BYTES], out: &mut [f32; SUPER_BLOCK]) {
    let (scales, minima) = steps(block);
    let quants: &[u8; 128] = field(block, q4_k::QUANTS);
    for (pair, numbers) in out.as_chunks_mut::<64>().0.iter_mut().enumerate() {
        let quants: &[u8; 32] = field(quants, 32 * pair);
        for i in 0..32 {
            numbers[i] = scales[2 * pair] * f32::from(quants[i] & 15) - minima[2 * pair];
            numbers[i + 32] = scales[2 * pair + 1] * f32::from(quants[i] >> 4) - minima[2 * pair + 1];
        }
    }
}

/// Decodes one Q5_K block.
fn decode_q5_k(block: &[u8; q5_k::BYTES], out: &mut [f32; SUPER_BLOCK]) {
    let (scales, minima) = steps(block);
    let high: &[u8; 32] = field(block, q5_k::HIGH_BITS);
    let quants: &[u8; 128] = field(block, q5_k::QUANTS);
    for (pair, numbers) in out.as_chunks_mut::<64>().0.iter_mut().enumerate() {
        let quants: &[u8; 32] = field(quants, 32 * pair);
        for i in 0..32 {
            let bits = high[i] >> (2 * pair);
            let first = (quants[i] & 15) | ((bits & 1) << 4);
            let second = (quants[i] >> 4) | ((bits & 2) << 3);
            numbers[i] = scales[2 * pair] * f32::from(first) - minima[2 * pair];
            numbers[i + 32] = scales[2 * pair + 1] * f32::from(second) - minima[2 * pair + 1];
        }
    }
}

/// The eight step sizes and eight minima of a Q4_K or Q5_K block, whose headers are the same.
#[inline]
fn steps(block: &[u8]) -> ([f32; 8], [f32; 8]) {
    let (scale, minimum) = (half_at(block, 0), half_at(block, q4_k::MINIMUM_SCALE));
    let (scales, minima) = unpack_scales(field(block, q4_k::SCALES));
    (scales.map(|value| scale * f32::from(value)), minima.map(|value| minimum * f32::from(value)))
}

/// Decodes one Q6_K block.
fn decode_q6_k(block: &[u8; q6_k::BYTES], out: &mut [f32; SUPER_BLOCK]) {
    let scale = half_at(block, q6_k::SCALE);
    let scales: &[u8; 16] = field(block, q6_k::SCALES);
    let steps = scales.map(|value| scale * f32::from(value as i8));
    for (half, numbers) in out.as_chunks_mut::<128>().0.iter_mut().enumerate() {
        let low: &[u8; 64] = field(block, 64 * half);
        let high: &[u8; 32] = field(block, q6_k::HIGH_BITS + 32 * half);
        for (quarter, numbers) in numbers.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            let nibbles: &[u8; 32] = field(low, 32 * (quarter % 2));
            let shift = 4 * (quarter / 2);
            for (group, numbers) in numbers.as_chunks_mut::<16>().0.iter_mut().enumerate() {
                let step = steps[8 * half + 2 * quarter + group];
                for i in 0..16 {
                    let at = 16 * group + i;
                    let quant = ((nibbles[at] >> shift) & 15) | (((high[at] >> (2 * quarter)) & 3) << 4);
                    numbers[i] = step * (i32::from(quant).wrapping_sub(q6_k::OFFSET) as f32);
                }
            }
        }
    }
}
