//! The two products of attention over one page of cached keys or values, sixteen numbers in two registers.

use super::lanes::{Lanes16, reduce4};
use crate::blocks::half_to_f32;
use crate::scalar;
use crate::x86::attention::attention_kernels;

attention_kernels!("avx2,fma,f16c");
