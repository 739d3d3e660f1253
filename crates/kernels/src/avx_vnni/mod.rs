//! Kernels for x86-64 CPUs with AVX-VNNI: those of AVX2, but for sums of products of bytes over many columns.

mod codes256;
mod codes32;
mod dots;
mod interleaved256;
mod interleaved32;
mod words;

use crate::activations::{Int8Block32, Int8Block256, Rows};
use crate::avx2::{self, block32, block256};
use crate::ops::{Ops, ProductOps, WeightRows};
use crate::pool::TileMut;
use crate::vector::LEAST_TURNED;

pub(crate) const OPS: Ops = Ops {
    name: "AVX-VNNI",
    products: ProductOps {
        multiply_q8_0,
        multiply_q4_0,
        multiply_q4_k,
        multiply_q5_k,
        multiply_q6_k,
        kernel32: codes32::kernel,
        kernel256: codes256::kernel,
        interleaved_q8_0: interleaved32::interleaved_q8_0,
        interleaved_q4_0: interleaved32::interleaved_q4_0,
        interleaved_int4: interleaved32::interleaved_int4,
        interleaved_q4_k: interleaved256::interleaved_q4_k,
        interleaved_q5_k: interleaved256::interleaved_q5_k,
        interleaved_q6_k: interleaved256::interleaved_q6_k,
        ..avx2::OPS.products
    },
    ..avx2::OPS
};

/// A kernel that is AVX2's for a few columns, where memory is the limit.
macro_rules! multiply_rows {
    ($name:ident, $block:ty, $few:path, $many:path) => {
        #[target_feature(enable = "avxvnni,avx2,fma,f16c")]
        fn $name(weights: WeightRows<'_>, x: Rows<'_, $block>, out: &mut TileMut<'_>) {
            if x.count() < LEAST_TURNED { $few(weights, x, out) } else { $many(weights, x, out) }
        }
    };
}

multiply_rows!(multiply_q8_0, Int8Block32, block32::multiply_q8_0, interleaved32::turned_q8_0);
multiply_rows!(multiply_q4_0, Int8Block32, block32::multiply_q4_0, interleaved32::turned_q4_0);
multiply_rows!(multiply_q4_k, Int8Block256, block256::multiply_q4_k, interleaved256::turned_q4_k);
multiply_rows!(multiply_q5_k, Int8Block256, block256::multiply_q5_k, interleaved256::turned_q5_k);
multiply_rows!(multiply_q6_k, Int8Block256, block256::multiply_q6_k, interleaved256::turned_q6_k);
