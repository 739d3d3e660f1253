//! The specification: every kernel in plain Rust, with the exact order of operations that all tables keep.

pub(crate) mod attention;
mod block256;
mod block32;
pub(crate) mod codes;
mod decode;
pub(crate) mod elementwise;
pub(crate) mod float;
mod interleaved;
mod kv_codes;
pub(crate) mod peak;

pub use decode::decode_row;

use crate::multiply_add::Portable;
use crate::ops::{AttentionOps, CeilingOps, Ops, ProductOps, RowOps};

pub(crate) const OPS: Ops = Ops {
    name: "scalar",
    products: ProductOps {
        multiply_f32: float::multiply_f32,
        multiply_f16: float::multiply_f16,
        multiply_bf16: float::multiply_bf16,
        multiply_f8: float::multiply_f8,
        multiply_q8_0: block32::multiply_q8_0,
        multiply_q4_0: block32::multiply_q4_0,
        multiply_q4_k: block256::multiply_q4_k,
        multiply_q5_k: block256::multiply_q5_k,
        multiply_q6_k: block256::multiply_q6_k,
        kernel32: codes::kernel32,
        kernel256: codes::kernel256,
        interleaved_q8_0: interleaved::interleaved_q8_0,
        interleaved_q4_0: interleaved::interleaved_q4_0,
        interleaved_int4: interleaved::interleaved_int4,
        interleaved_q4_k: interleaved::interleaved_q4_k,
        interleaved_q5_k: interleaved::interleaved_q5_k,
        interleaved_q6_k: interleaved::interleaved_q6_k,
        quantize_blocks32: elementwise::quantize_blocks32,
        quantize_blocks256: elementwise::quantize_blocks256,
    },
    attention: AttentionOps {
        greatest: elementwise::greatest_of_many,
        exp_weights: elementwise::exp_weights::<Portable>,
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
        rms_norm: elementwise::rms_norm::<Portable>,
        add: elementwise::add,
        layer_norm: elementwise::layer_norm::<Portable>,
        activate: elementwise::activate::<Portable>,
        activate_multiply: elementwise::activate_multiply::<Portable>,
        soft_cap: elementwise::soft_cap::<Portable>,
        cut_below: elementwise::cut_below::<Portable>,
        match_magnitude: elementwise::match_magnitude::<Portable>,
    },
    ceilings: CeilingOps { peak_int8: peak::int8, peak_float: peak::float, read: peak::read },
};
