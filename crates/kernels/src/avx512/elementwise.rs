//! The element-wise kernels of the specification, compiled for AVX-512.

use crate::Activation;
use crate::activations::{Int8Block32, Int8Block256};
use crate::multiply_add::Instruction;
use crate::scalar::elementwise as specification;
use crate::x86::elementwise::elementwise_kernels;

elementwise_kernels!("avx512f,avx512bw,avx512vl,avx2,fma");
