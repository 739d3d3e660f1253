//! Sums of products of bytes, the step in which the instruction sets differ.

use std::arch::x86_64::*;

use crate::x86::dots::vnni_dots;

vnni_dots!("avxvnni,avx2", _mm256_dpbusd_avx_epi32, _mm256_dpwssd_avx_epi32);
