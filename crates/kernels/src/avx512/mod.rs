//! Kernels for x86-64 CPUs with AVX-512 and VNNI.
#![expect(unsafe_code, reason = "vector loads take raw pointers")]

mod attention;
mod block256;
mod block32;
mod codes256;
mod codes32;
mod dots;
mod elementwise;
mod float;
mod four_blocks;
mod interleaved256;
mod interleaved32;
mod kv_codes;
mod lanes;
mod many_columns32;
mod peak;
mod runs32;
mod sixteen_rows;
pub(crate) mod words;

use crate::ops::{AttentionOps, CeilingOps, Ops, ProductOps, RowOps};

pub(crate) const OPS: Ops = Ops {
    name: "AVX-512 VNNI",
    products: ProductOps {
        multiply_q8_0: block32::multiply_q8_0,
        multiply_q4_0: block32::multiply_q4_0,
        multiply_q4_k: block256::multiply_q4_k,
        multiply_q5_k: block256::multiply_q5_k,
        multiply_q6_k: block256::multiply_q6_k,
        kernel32: block32::kernel,
        kernel256: codes256::kernel,
        multiply_f32: float::multiply_f32,
        multiply_f16: float::multiply_f16,
        multiply_bf16: float::multiply_bf16,
        multiply_f8: float::multiply_f8,
        interleaved_q8_0: interleaved32::interleaved_q8_0,
        interleaved_q4_0: interleaved32::interleaved_q4_0,
        interleaved_int4: interleaved32::interleaved_int4,
        interleaved_q4_k: block256::interleaved_q4_k,
        interleaved_q5_k: interleaved256::interleaved_q5_k,
        interleaved_q6_k: interleaved256::interleaved_q6_k,
        quantize_blocks32: elementwise::quantize_blocks32,
        quantize_blocks256: elementwise::quantize_blocks256,
    },
    attention: AttentionOps {
        greatest: elementwise::greatest,
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
        scores_codes: kv_codes::scores,
        mix_codes: kv_codes::mix,
        to_f16: attention::to_f16,
        seal: kv_codes::seal,
    },
    rows: RowOps {
        rms_norm: elementwise::rms_norm,
        add: elementwise::add,
        layer_norm: elementwise::layer_norm,
        activate: elementwise::activate,
        activate_multiply: elementwise::activate_multiply,
        soft_cap: elementwise::soft_cap,
        cut_below: elementwise::cut_below,
        match_magnitude: elementwise::match_magnitude,
    },
    ceilings: CeilingOps { peak_int8: peak::int8, peak_float: peak::float, read: peak::read },
};
