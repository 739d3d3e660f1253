//! Interleaved blocks of 32 times few columns, sixteen rows to a register.

use super::many_columns32::{many_int4, many_q4_0, many_q8_0};
use super::words::*;
use crate::activations::{Int8Block32, Rows};
use crate::avx2::lanes::prefetch_into;
use crate::blocks::{int4_group128, q4_0};
use crate::layout::{GROUP_HALF, GROUP_ROWS, GROUP_WORD};
use crate::ops::InterleavedRows;
use crate::pool::TileMut;
use crate::reading::ReadAhead;
use crate::vector::interleaved32::interleaved32_kernels;
use crate::vector::{Ahead, WHOLE_ROWS, chunk};

interleaved32_kernels!("avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c");
