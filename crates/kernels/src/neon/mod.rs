//! Kernels for 64-bit ARM CPUs: NEON, with dot products of bytes where the CPU has them.
//!
//! NEON itself belongs to every such CPU, so what the specification leaves to the compiler is compiled for it already:
//! the element-wise kernels are the specification's own.
#![expect(unsafe_code, reason = "vector loads and stores take raw pointers, and some instructions have no stable name")]

mod attention;
mod block256;
mod block32;
mod codes256;
mod float;
mod interleaved256;
mod interleaved32;
mod kv_codes;
mod lanes;
mod peak;
mod quants256;
mod unpack256;
mod words;

use crate::ops::{AttentionOps, CeilingOps, Ops, ProductOps};
use crate::scalar;

/// With dot products of bytes.
pub(crate) const OPS: Ops = Ops {
    name: "NEON with dot products",
    products: ProductOps {
        multiply_q8_0: block32::multiply_q8_0,
        multiply_q4_0: block32::multiply_q4_0,
        multiply_q4_k: block256::multiply_q4_k,
        multiply_q5_k: block256::multiply_q5_k,
        multiply_q6_k: block256::multiply_q6_k,
        kernel32: block32::kernel,
        kernel256: codes256::kernel,
        interleaved_q8_0: interleaved32::interleaved_q8_0,
        interleaved_q4_0: interleaved32::interleaved_q4_0,
        interleaved_int4: interleaved32::interleaved_int4,
        interleaved_q4_k: interleaved256::interleaved_q4_k,
        interleaved_q5_k: interleaved256::interleaved_q5_k,
        interleaved_q6_k: interleaved256::interleaved_q6_k,
        ..FLOAT_OPS.products
    },
    attention: AttentionOps { scores_codes: kv_codes::scores, mix_codes: kv_codes::mix, ..FLOAT_OPS.attention },
    ceilings: CeilingOps { peak_int8: peak::int8, ..FLOAT_OPS.ceilings },
    ..FLOAT_OPS
};

/// Without them: floats are NEON's, quantised numbers the specification's.
pub(crate) const FLOAT_OPS: Ops = Ops {
    name: "NEON",
    products: ProductOps {
        multiply_f32: float::multiply_f32,
        multiply_f16: float::multiply_f16,
        multiply_bf16: float::multiply_bf16,
        multiply_f8: float::multiply_f8,
        ..scalar::OPS.products
    },
    attention: AttentionOps {
        exp_weights: attention::exp_weights,
        scores_f32: attention::scores_f32,
        scores_f16: attention::scores_f16,
        scores_bf16: attention::scores_bf16,
        scores_f8: attention::scores_f8,
        score_rows_f32: attention::score_rows_f32,
        score_rows_f16: attention::score_rows_f16,
        score_rows_bf16: attention::score_rows_bf16,
        score_rows_f8: attention::score_rows_f8,
        mix_f32: attention::mix_f32,
        mix_f16: attention::mix_f16,
        mix_bf16: attention::mix_bf16,
        mix_f8: attention::mix_f8,
        to_f16: attention::to_f16,
        seal: kv_codes::seal,
        ..scalar::OPS.attention
    },
    ceilings: CeilingOps { peak_float: peak::float, read: peak::read, ..scalar::OPS.ceilings },
    ..scalar::OPS
};
