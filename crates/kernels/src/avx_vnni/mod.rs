//! Kernels for x86-64 CPUs with AVX-VNNI: those of AVX2, but for sums of products of bytes.
#![expect(unsafe_code, reason = "the compiler splits an instruction that only assembly keeps whole")]

mod block256;
mod codes256;
mod codes32;
mod dots;
mod four_blocks;
mod interleaved256;
mod interleaved32;
mod words;

use crate::activations::{Int8Block32, Rows};
use crate::avx2::{self, block32};
use crate::ops::{Ops, ProductOps, WeightRows};
use crate::pool::TileMut;
use crate::vector::LEAST_TURNED;

pub(crate) const OPS: Ops = Ops {
    name: "AVX-VNNI",
    products: ProductOps {
        multiply_q8_0,
        multiply_q4_0: four_blocks::multiply_q4_0,
        multiply_q4_k: block256::multiply_q4_k,
        multiply_q5_k: block256::multiply_q5_k,
        multiply_q6_k: block256::multiply_q6_k,
        kernel32: four_blocks::kernel,
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

#[target_feature(enable = "avxvnni,avx2,fma,f16c")]
fn multiply_q8_0(weights: WeightRows<'_>, x: Rows<'_, Int8Block32>, out: &mut TileMut<'_>) {
    // For a few columns memory is the limit, with AVX2 too.
    if x.count() < LEAST_TURNED {
        block32::multiply_q8_0(weights, x, out);
    } else {
        interleaved32::turned_q8_0(weights, x, out);
    }
}
