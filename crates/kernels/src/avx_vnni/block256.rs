//! Formats with blocks of 256 of six, five and four bits: the loops of AVX2 with products that are summed as they are scaled.

use std::arch::x86_64::*;

use super::dots::add_pairs_fused as add_pairs;
use super::interleaved256;
use crate::activations::{Int8Block256, Rows};
use crate::avx2::k_quants::{
    Centred, Row, SCALES_OF_HALVES, WithMinima, add_centred, add_with_minima, centre, centred, quants_q4_k,
    quants_q5_k, quants_q6_k, scales_of_halves, scales_of_runs, with_minima,
};
use crate::avx2::lanes::{Floats4, load, read_ahead, store4, unknown, zero4};
use crate::blocks::{q4_k, q5_k};
use crate::ops::WeightRows;
use crate::pool::TileMut;
use crate::vector::LEAST_TURNED;
use crate::vector::four_rows::four_row_loops;
use crate::x86::block256::block256_kernels;

block256_kernels!("avxvnni,avx2,fma,f16c");
