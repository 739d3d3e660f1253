//! Interleaved blocks of 256, sixteen rows to a register.

use super::words::*;
use crate::activations::{Int8Block256, Rows};
use crate::avx2::lanes::prefetch_into;
use crate::blocks::{q4_k, q5_k, q6_k};
use crate::layout::{GROUP_HALF, GROUP_ROWS, GROUP_WORD};
use crate::ops::{InterleavedRows, WeightRows};
use crate::pool::TileMut;
use crate::reading::ReadAhead;
use crate::vector::formats::{Format, Q4K, Q5K, Q6K};
use crate::vector::interleaved_formats::{interleaved256_formats, interleaved256_kernels};
use crate::vector::interleaved256::interleaved256_loops;
use crate::vector::{Ahead, MANY, chunk, in_sixes, pair};

interleaved256_loops!("avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c");
interleaved256_formats!("avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c");

/// Q4_K for CPUs that multiply 32-bit numbers as fast as 16-bit ones.
struct Q4KWide;

impl Format<{ q4_k::BYTES }> for Q4KWide {
    const OWN_MINIMUM: bool = true;
    const SCALE: usize = 0;
    const GREATEST: i32 = u8::MAX as i32;
}

interleaved256_kernels!(
    "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c",
    Q4KWide,
    header_with_minima,
    quants_q4_k,
    interleaved_q4_k_wide,
    turned_q4_k_wide
);
