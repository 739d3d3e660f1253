//! Float matrices, sixteen numbers in two registers.

use super::lanes::{Lanes16, reduce4};
use crate::activations::Rows;
use crate::ops::WeightRows;
use crate::pool::TileMut;
use crate::vector::float::float_kernels;

float_kernels!("avx2,fma,f16c");
