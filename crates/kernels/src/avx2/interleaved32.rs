//! Interleaved blocks of 32, eight rows to a register.

use super::lanes::prefetch_into;
use super::turn::turn;
use super::words::*;
use crate::activations::{Int8Block32, Rows};
use crate::blocks::{int4_group128, q4_0, q8_0};
use crate::layout::{GROUP_HALF, GROUP_ROWS, GROUP_WORD};
use crate::ops::{InterleavedRows, WeightRows};
use crate::pool::TileMut;
use crate::reading::ReadAhead;
use crate::vector::interleaved32::{interleaved32_kernels, turned32_kernels};
use crate::vector::{Ahead, MANY, WHOLE_ROWS, chunk, pair};

interleaved32_kernels!("avx2,fma,f16c");
turned32_kernels!("avx2,fma,f16c");
