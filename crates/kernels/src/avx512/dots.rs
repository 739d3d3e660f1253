//! Sums of products of bytes, the step in which the instruction sets differ.

use std::arch::x86_64::*;

use crate::x86::dots::vnni_dots;

vnni_dots!("avx512vl,avx512vnni,avx2", _mm256_dpbusd_epi32, _mm256_dpwssd_epi32);
