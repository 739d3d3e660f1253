//! Formats with blocks of 256: the loops of AVX2 with products that are summed as they are made.

use std::arch::x86_64::*;
use std::ops::Range;

use super::dots::{add_pairs, add_scaled};
use crate::Dtype;
use crate::activations::{Int8Block256, Rows};
use crate::avx2::codes32::ROWS;
use crate::avx2::codes256::{
    Registers, Tile, Unpacked, even_then_odd, offset_factors, scales4, turn, unpack, unsigned,
};
use crate::avx2::lanes::{four_halves, integer_sums4, load, read_ahead, store_floats, store4};
use crate::codes::{CodeRange, with_format256};
use crate::ops::{Multiply, WeightRows};
use crate::pool::TileMut;
use crate::vector::pair;
use crate::x86::codes256::codes256_kernels;

codes256_kernels!("avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c");
