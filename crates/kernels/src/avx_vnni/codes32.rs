//! Formats with runs of 32: the loops of AVX2 with products that are summed as they are made.

use std::arch::x86_64::*;
use std::ops::Range;

use super::dots::{add_fours, add_small_fours};
use crate::Dtype;
use crate::activations::{Int8Block32, Rows};
use crate::avx2::codes32::{ROWS, Tile, codes, scales4, turn, unsigned, zeros4};
use crate::avx2::lanes::{four_halves, integer_sums4, load, read_ahead, store_floats, store4};
use crate::codes::{Format32, with_format32};
use crate::ops::{Multiply, WeightRows};
use crate::pool::TileMut;
use crate::vector::{LEAST_TURNED, pair};
use crate::x86::codes32::{codes32_kernels, few_codes32_kernels};

codes32_kernels!("avxvnni,avx2,fma,f16c");
