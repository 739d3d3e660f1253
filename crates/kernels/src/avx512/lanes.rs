//! Sixteen floats in one register, with the sums across lanes that fix the order of additions.

use std::arch::x86_64::*;

use crate::avx2::lanes::{byte_halves, load, store4};

/// Sixteen float lanes: the unit of every float sum.
#[derive(Clone, Copy)]
pub(super) struct Lanes16(__m512);

impl Lanes16 {
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(super) fn zero() -> Lanes16 {
        Lanes16(_mm512_setzero_ps())
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(super) fn load(values: &[f32; 16]) -> Lanes16 {
        // SAFETY: the reference guarantees sixteen readable floats.
        Lanes16(unsafe { _mm512_loadu_ps(values.as_ptr()) })
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx2")]
    pub(super) fn load_halves(values: &[u16; 16]) -> Lanes16 {
        Lanes16(_mm512_cvtph_ps(load(values)))
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx2")]
    pub(super) fn load_brain(values: &[u16; 16]) -> Lanes16 {
        Lanes16(_mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(load(values)))))
    }

    /// Floats of eight bits, widened as the specification's `byte_to_f32` does.
    #[inline]
    #[target_feature(enable = "avx512f,avx2")]
    pub(super) fn load_bytes(values: &[u8; 16]) -> Lanes16 {
        Lanes16(_mm512_mul_ps(_mm512_cvtph_ps(byte_halves(values)), _mm512_set1_ps(256.0)))
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(super) fn from_integers(integers: __m512i) -> Lanes16 {
        Lanes16(_mm512_cvtepi32_ps(integers))
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(super) fn store(self, values: &mut [f32; 16]) {
        // SAFETY: the reference guarantees sixteen writable floats.
        unsafe { _mm512_storeu_ps(values.as_mut_ptr(), self.0) }
    }

    /// self + a × b, rounded once per lane.
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(super) fn add_product(self, a: Lanes16, b: Lanes16) -> Lanes16 {
        Lanes16(_mm512_fmadd_ps(a.0, b.0, self.0))
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(super) fn splat(value: f32) -> Lanes16 {
        Lanes16(_mm512_set1_ps(value))
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(super) fn times(self, other: Lanes16) -> Lanes16 {
        Lanes16(_mm512_mul_ps(self.0, other.0))
    }

    /// The greatest size of a number.
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(super) fn greatest([a, b, c, d]: [Lanes16; 4]) -> f32 {
        let greater = |a: Lanes16, b: Lanes16| _mm512_max_ps(_mm512_abs_ps(a.0), _mm512_abs_ps(b.0));
        _mm512_reduce_max_ps(_mm512_max_ps(greater(a, b), greater(c, d)))
    }

    /// The nearest integers of all numbers times a factor, which fit into bytes.
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(super) fn to_bytes(four: [Lanes16; 4], factor: Lanes16, bytes: &mut [i8; 64]) {
        for (lanes, bytes) in four.iter().zip(bytes.as_chunks_mut::<16>().0) {
            let integers = _mm512_cvtps_epi32(_mm512_mul_ps(lanes.0, factor.0));
            // SAFETY: the reference guarantees sixteen writable bytes.
            unsafe { _mm_storeu_si128(bytes.as_mut_ptr().cast(), _mm512_cvtepi32_epi8(integers)) };
        }
    }
}

/// The sums of four sets of sixteen lanes, in the order of the specification's `reduce`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2")]
pub(super) fn reduce4([a, b, c, d]: [Lanes16; 4]) -> [f32; 4] {
    let upper = |lanes: __m512| _mm256_castsi256_ps(_mm512_extracti64x4_epi64::<1>(_mm512_castps_si512(lanes)));
    let eight = |lanes: Lanes16| _mm256_add_ps(_mm512_castps512_ps256(lanes.0), upper(lanes.0));
    let pairs = _mm256_hadd_ps(_mm256_hadd_ps(eight(a), eight(b)), _mm256_hadd_ps(eight(c), eight(d)));
    store4(_mm_add_ps(_mm256_castps256_ps128(pairs), _mm256_extractf128_ps::<1>(pairs)))
}
