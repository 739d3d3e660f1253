//! Formats of nibbles, four runs of 32 at a time.

use std::arch::x86_64::*;

use super::dots::{lane_sums4, nibble_products};
use super::{codes32, interleaved32};
use crate::Dtype;
use crate::activations::{Int8Block32, Rows};
use crate::avx2::lanes::{load16, read_ahead, store4, zero4};
use crate::avx2::nibbles::{Int4, Nibbles, Q40, Q41, factors, quants};
use crate::blocks::{int4_group128, q4_0, q4_1};
use crate::ops::{Multiply, WeightRows};
use crate::pool::TileMut;
use crate::vector::LEAST_TURNED;
use crate::x86::four_blocks::four_blocks_kernels;
use crate::x86::four_blocks_loop::four_blocks_loop;

four_blocks_kernels!("avx2,fma,f16c");
