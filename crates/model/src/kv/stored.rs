//! Keys or values of one head in the bytes of a page, in every format.
//!
//! Values lie token by token. Keys lie number by number, because the scores of sixteen tokens are computed side by side; where
//! values are the first numbers of keys, both are one row, token by token.
//! Integers come in the order that their kernels want, then the scales of all tokens, then the means of keys and the token that
//! stays as it is.

use bytemuck::{cast_slice, cast_slice_mut};
use cascadia_kernels::{CachedRows, Codes, CodesMut, Ops, SealScratch, Side, Stored, f32_to_byte, half_to_f32};
use half::{bf16, f16};

use super::CacheFormat;
use crate::PAGE_TOKENS;

const TOKENS: usize = PAGE_TOKENS as usize;

/// As kernels read them.
pub(super) fn rows((format, side): (CacheFormat, Side), bytes: &[u8], head: usize) -> CachedRows<'_> {
    let stored = match (format, format.bits()) {
        (_, Some(bits)) => {
            let (codes, rest) = bytes.split_at(codes_length(format, side, head));
            let (scales, rest) = rest.split_at(2 * TOKENS);
            let (means, rest) = rest.split_at(means_length(side, head));
            let apart = &rest[..apart_length(side, head)];
            Stored::Codes(Codes {
                bits,
                codes,
                scales: cast_slice(scales),
                means: cast_slice(means),
                apart: cast_slice(apart),
            })
        }
        (CacheFormat::F32, None) => Stored::F32(cast_slice(bytes)),
        (CacheFormat::Bf16, None) => Stored::Bf16(cast_slice(bytes)),
        (CacheFormat::Fp8, None) => Stored::F8(bytes),
        (_, None) => Stored::F16(cast_slice(bytes)),
    };
    CachedRows::new(stored, head)
}

/// The first `width` numbers of all tokens of a page that is not quantised, of `length` each, token by token.
pub(super) fn read_tokens(
    (format, side): (CacheFormat, Side),
    bytes: &[u8],
    (length, width): (usize, usize),
    out: &mut [f32],
) {
    let place = |token: usize, at: usize| match side {
        Side::Keys => at * TOKENS + token,
        Side::Values => token * length + at,
    };
    for (token, row) in out.chunks_exact_mut(width).enumerate() {
        let numbers = row.iter_mut().enumerate().map(|(at, number)| (number, place(token, at)));
        match format {
            CacheFormat::F32 => copy(cast_slice(bytes), numbers, |number: f32| number),
            _ => copy(cast_slice(bytes), numbers, half_to_f32),
        }
    }
}

/// Copies numbers from their places.
fn copy<'a, T: Copy>(from: &[T], to: impl Iterator<Item = (&'a mut f32, usize)>, widen: impl Fn(T) -> f32) {
    to.for_each(|(number, place)| *number = widen(from[place]));
}

/// Stores the tokens that `scratch` has in a page. Where only keys or only values are integers, the others move as they are.
pub(super) fn quantise(
    (format, side): (CacheFormat, Side),
    bytes: &mut [u8],
    head: usize,
    (scratch, ops): (&mut SealScratch, &Ops),
) {
    if let Some(bits) = format.bits() {
        let (codes, rest) = bytes.split_at_mut(codes_length(format, side, head));
        let (scales, rest) = rest.split_at_mut(2 * TOKENS);
        let (means, rest) = rest.split_at_mut(means_length(side, head));
        let apart = &mut rest[..apart_length(side, head)];
        let [scales, means, apart] = [scales, means, apart].map(cast_slice_mut);
        CodesMut { bits, codes, scales, means, apart }.seal(side, head, scratch, ops);
        return;
    }
    for (token, row) in scratch.tokens().chunks_exact(head).enumerate() {
        for (at, number) in row.iter().enumerate() {
            let index = if side == Side::Keys { at * TOKENS + token } else { token * head + at };
            store_number(format, bytes, index, *number);
        }
    }
}

/// Stores one number of a page that is not quantised.
fn store_number(format: CacheFormat, bytes: &mut [u8], index: usize, number: f32) {
    match format {
        CacheFormat::F32 => cast_slice_mut::<u8, f32>(bytes)[index] = number,
        CacheFormat::Bf16 => cast_slice_mut::<u8, u16>(bytes)[index] = bf16::from_f32(number).to_bits(),
        CacheFormat::Fp8 => bytes[index] = f32_to_byte(number),
        _ => cast_slice_mut::<u8, u16>(bytes)[index] = f16::from_f32(number).to_bits(),
    }
}

fn codes_length(format: CacheFormat, side: Side, head: usize) -> usize {
    format.bits().map_or(0, |bits| match side {
        Side::Keys => bits.bytes(head, TOKENS),
        Side::Values => bits.bytes(TOKENS, head),
    })
}

fn means_length(side: Side, head: usize) -> usize {
    if side == Side::Keys { 2 * head } else { 0 }
}

/// The token that stays as it is: its number in the page, and those of its key.
fn apart_length(side: Side, head: usize) -> usize {
    if side == Side::Keys { 2 * (1 + head) } else { 0 }
}

/// Stores the numbers of a token one after the other.
pub(super) fn store_row(format: CacheFormat, bytes: &mut [u8], token: usize, source: &[f32], ops: &Ops) {
    let range = token * source.len()..(token + 1) * source.len();
    match format {
        CacheFormat::F32 => cast_slice_mut(bytes)[range].copy_from_slice(source),
        CacheFormat::F16 => ops.attention.to_f16(source, &mut cast_slice_mut(bytes)[range]),
        _ => range.zip(source).for_each(|(index, number)| store_number(format, bytes, index, *number)),
    }
}

/// Stores the numbers of a token `PAGE_TOKENS` apart.
pub(super) fn store_column(format: CacheFormat, bytes: &mut [u8], token: usize, source: &[f32], ops: &Ops) {
    if format != CacheFormat::F16 {
        for (at, number) in source.iter().enumerate() {
            store_number(format, bytes, at * TOKENS + token, *number);
        }
        return;
    }
    let numbers: &mut [u16] = cast_slice_mut(bytes);
    let mut halves = [0; 64];
    for (part, columns) in source.chunks(halves.len()).zip(numbers.chunks_mut(halves.len() * TOKENS)) {
        let halves = &mut halves[..part.len()];
        ops.attention.to_f16(part, halves);
        columns.chunks_exact_mut(TOKENS).zip(halves).for_each(|(tokens, half)| tokens[token] = *half);
    }
}
