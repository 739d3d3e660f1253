//! Interleaved rows: taken apart again and multiplied like any others.

use crate::Dtype;
use crate::activations::{Int8Block32, Int8Block256, Rows};
use crate::blocks::int4_group128;
use crate::codes::Int4Group128;
use crate::layout::{GROUP_ROWS, for_each_block};
use crate::ops::{InterleavedRows, WeightRows};
use crate::pool::TileMut;
use crate::reading::ReadAhead;
use crate::runs::FourRuns;
use crate::scalar::{block32, block256, codes};

fn multiply_int4(weights: WeightRows<'_>, x: Rows<'_, Int8Block32>, out: &mut TileMut<'_>) {
    codes::multiply32::<{ int4_group128::BYTES }, Int4Group128>(weights, x, out);
}

/// The rows of all groups, one after the other; those that only fill up the last group are left out.
fn apart(dtype: Dtype, groups: InterleavedRows<'_>, numbers: usize, rows: usize) -> Vec<u8> {
    let blocks = numbers / dtype.block_elements();
    let mut bytes = Vec::with_capacity(rows * blocks * dtype.block_bytes());
    for row in 0..rows {
        let group = groups.group(row / GROUP_ROWS);
        for_each_block(dtype, group, blocks, row % GROUP_ROWS, |_, block| bytes.extend_from_slice(block));
    }
    bytes
}

macro_rules! taken_apart {
    ($name:ident, $dtype:expr, $block:ty, $numbers:literal, $multiply:path) => {
        pub(super) fn $name(groups: InterleavedRows<'_>, x: Rows<'_, $block>, out: &mut TileMut<'_>) {
            let rows = out.width();
            let bytes = apart($dtype, groups, x.length() * $numbers, rows);
            // Rows of the output keep their numbers; the bytes are those of the tile alone.
            let weights = WeightRows {
                bytes: &bytes,
                row_bytes: bytes.len() / rows,
                runs: FourRuns::neighbours(0..rows),
                ahead: ReadAhead::None,
            };
            $multiply(weights, x, out);
        }
    };
}

taken_apart!(interleaved_q8_0, Dtype::Q8_0, Int8Block32, 32, block32::multiply_q8_0);
taken_apart!(interleaved_q4_0, Dtype::Q4_0, Int8Block32, 32, block32::multiply_q4_0);
taken_apart!(interleaved_int4, Dtype::Int4Group128, Int8Block32, 32, multiply_int4);
taken_apart!(interleaved_q4_k, Dtype::Q4_K, Int8Block256, 256, block256::multiply_q4_k);
taken_apart!(interleaved_q5_k, Dtype::Q5_K, Int8Block256, 256, block256::multiply_q5_k);
taken_apart!(interleaved_q6_k, Dtype::Q6_K, Int8Block256, 256, block256::multiply_q6_k);
