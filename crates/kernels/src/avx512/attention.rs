//! The two products of attention over one page of cached keys or values, sixteen numbers in one register.

use std::ops::Range;

use super::lanes::{Lanes16, reduce4};
use crate::avx2::lanes::prefetch_from;
use crate::blocks::{brain_to_f32, byte_to_f32, half_to_f32};
use crate::cached_rows::{Keys, TokenRows};
use crate::multiply_add::{Instruction, MultiplyAdd};
use crate::scalar;
use crate::scalar::elementwise::exp;
use crate::scalar::float::padded;
use crate::vector::attention::{PART, attention_kernels};
use crate::vector::row_scores::row_score_kernels;

/// Query heads that share one pass over the keys, as many as there are registers for.
const HEADS: usize = 8;
/// Sixteens that share a broadcast.
const SIDES: usize = 2;

attention_kernels!("avx512f,avx512bw,avx512vl,avx2,fma,f16c");
row_score_kernels!("avx512f,avx512bw,avx512vl,avx2,fma,f16c");
