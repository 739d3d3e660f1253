//! Float matrices, sixteen numbers in one register.

use super::lanes::{Lanes16, reduce4};
use crate::activations::Rows;
use crate::ops::WeightRows;
use crate::pool::TileMut;
use crate::vector::float::float_kernels;

float_kernels!("avx512f,avx512bw,avx512vl,avx2,fma,f16c");
