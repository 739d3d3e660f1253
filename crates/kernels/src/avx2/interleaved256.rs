//! Interleaved blocks of 256, eight rows to a register.

use super::lanes::prefetch_into;
use super::turn::turn;
use super::words::*;
use crate::activations::{Int8Block256, Rows};
use crate::blocks::{q4_k, q5_k, q6_k};
use crate::layout::{GROUP_HALF, GROUP_ROWS, GROUP_WORD};
use crate::ops::{InterleavedRows, WeightRows};
use crate::pool::TileMut;
use crate::reading::ReadAhead;
use crate::vector::formats::{Format, Q4K, Q5K, Q6K};
use crate::vector::interleaved_formats::{interleaved256_formats, interleaved256_kernels};
use crate::vector::interleaved256::interleaved256_loops;
use crate::vector::{Ahead, MANY, chunk, in_sixes, pair};

interleaved256_loops!("avx2,fma,f16c");
interleaved256_formats!("avx2,fma,f16c");
