//! Formats with runs of 32 times few columns: the loops of AVX2 with products that are summed as they are made.

use std::arch::x86_64::*;

use super::dots::add_fours;
use crate::activations::{Int8Block32, Rows};
use crate::avx2::codes32::{codes, scales4, unsigned, zeros4};
use crate::avx2::lanes::{four_halves, integer_sums4, load, read_ahead, store4};
use crate::codes::Format32;
use crate::ops::WeightRows;
use crate::pool::TileMut;
use crate::vector::{LEAST_TURNED, pair};
use crate::x86::codes32::few_codes32_kernels;

few_codes32_kernels!("avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c");
