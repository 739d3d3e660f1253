//! Kernels for x86-64 CPUs with AVX-512 and VNNI: the products of quantised weights; all else is inherited from AVX2.
#![expect(unsafe_code, reason = "vector loads take raw pointers")]

mod block256;

use crate::{Ops, avx2};

pub(crate) const OPS: Ops = Ops {
    name: "AVX-512 VNNI",
    multiply_q4_k: block256::multiply_q4_k,
    multiply_q5_k: block256::multiply_q5_k,
    multiply_q6_k: block256::multiply_q6_k,
    ..avx2::OPS
};
