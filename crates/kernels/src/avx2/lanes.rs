//! Registers from arrays and back, and the sums across lanes that fix the order of additions.

use std::arch::x86_64::*;

use crate::reading::ReadAhead;

/// Sixteen float lanes: the unit of every float sum.
#[derive(Clone, Copy)]
pub(crate) struct Lanes16(pub(crate) __m256, pub(crate) __m256);

impl Lanes16 {
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(crate) fn zero() -> Lanes16 {
        Lanes16(_mm256_setzero_ps(), _mm256_setzero_ps())
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    pub(crate) fn load(values: &[f32; 16]) -> Lanes16 {
        let at = values.as_ptr();
        // SAFETY: the reference guarantees sixteen readable floats.
        unsafe { Lanes16(_mm256_loadu_ps(at), _mm256_loadu_ps(at.add(8))) }
    }

    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    pub(crate) fn load_halves(values: &[u16; 16]) -> Lanes16 {
        let bits = load(values);
        Lanes16(_mm256_cvtph_ps(_mm256_castsi256_si128(bits)), _mm256_cvtph_ps(_mm256_extracti128_si256::<1>(bits)))
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    pub(crate) fn load_brain(values: &[u16; 16]) -> Lanes16 {
        let bits = load(values);
        let widen = |half| _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(half)));
        Lanes16(widen(_mm256_castsi256_si128(bits)), widen(_mm256_extracti128_si256::<1>(bits)))
    }

    /// Floats of eight bits, widened as the specification's `byte_to_f32` does.
    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    pub(crate) fn load_bytes(values: &[u8; 16]) -> Lanes16 {
        let halves = byte_halves(values);
        let scale = _mm256_set1_ps(256.0);
        let low = _mm256_cvtph_ps(_mm256_castsi256_si128(halves));
        let high = _mm256_cvtph_ps(_mm256_extracti128_si256::<1>(halves));
        Lanes16(_mm256_mul_ps(low, scale), _mm256_mul_ps(high, scale))
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    pub(crate) fn store(self, values: &mut [f32; 16]) {
        let at = values.as_mut_ptr();
        // SAFETY: the reference guarantees sixteen writable floats.
        unsafe {
            _mm256_storeu_ps(at, self.0);
            _mm256_storeu_ps(at.add(8), self.1);
        }
    }

    /// self + a × b, rounded once per lane.
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    pub(crate) fn add_product(self, a: Lanes16, b: Lanes16) -> Lanes16 {
        Lanes16(_mm256_fmadd_ps(a.0, b.0, self.0), _mm256_fmadd_ps(a.1, b.1, self.1))
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    pub(crate) fn splat(value: f32) -> Lanes16 {
        Lanes16(_mm256_set1_ps(value), _mm256_set1_ps(value))
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    pub(crate) fn times(self, other: Lanes16) -> Lanes16 {
        Lanes16(_mm256_mul_ps(self.0, other.0), _mm256_mul_ps(self.1, other.1))
    }

    /// The greatest size of a number.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(crate) fn greatest([a, b, c, d]: [Lanes16; 4]) -> f32 {
        let size = |numbers: __m256| _mm256_andnot_ps(_mm256_set1_ps(-0.0), numbers);
        let greater = |lanes: Lanes16| _mm256_max_ps(size(lanes.0), size(lanes.1));
        let eight = _mm256_max_ps(_mm256_max_ps(greater(a), greater(b)), _mm256_max_ps(greater(c), greater(d)));
        let four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
        let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
        _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)))
    }

    /// The nearest integers of all numbers times a factor, which fit into bytes.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(crate) fn to_bytes(four: [Lanes16; 4], factor: Lanes16, bytes: &mut [i8; 64]) {
        let integers = |numbers: __m256, factor: __m256| _mm256_cvtps_epi32(_mm256_mul_ps(numbers, factor));
        let words = |lanes: Lanes16| _mm256_packs_epi32(integers(lanes.0, factor.0), integers(lanes.1, factor.1));
        // Packing works within halves of a register: this is the order of fours that it leaves.
        let order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
        for (lanes, bytes) in four.as_chunks::<2>().0.iter().zip(bytes.as_chunks_mut::<32>().0) {
            let packed = _mm256_packs_epi16(words(lanes[0]), words(lanes[1]));
            // SAFETY: the reference guarantees thirty-two writable bytes.
            unsafe {
                _mm256_storeu_si256(bytes.as_mut_ptr().cast(), _mm256_permutevar8x32_epi32(packed, order));
            }
        }
    }
}

/// Sixteen 8-bit floats as f16 numbers 256 times too small; NaN stays NaN.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn byte_halves(values: &[u8; 16]) -> __m256i {
    let bytes = _mm256_cvtepu8_epi16(load16(values));
    let magnitude = _mm256_and_si256(bytes, _mm256_set1_epi16(0x7f));
    let sign = _mm256_slli_epi16::<8>(_mm256_xor_si256(bytes, magnitude));
    let nan = _mm256_cmpeq_epi16(magnitude, _mm256_set1_epi16(0x7f));
    let special = _mm256_and_si256(nan, _mm256_set1_epi16(0x7e00));
    _mm256_or_si256(_mm256_or_si256(sign, _mm256_slli_epi16::<7>(magnitude)), special)
}

/// The sums of four sets of sixteen lanes, in the order of the specification's `reduce`.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn reduce4(sums: [Lanes16; 4]) -> [f32; 4] {
    let [a, b, c, d] = sums;
    let [a, b, c, d] =
        [_mm256_add_ps(a.0, a.1), _mm256_add_ps(b.0, b.1), _mm256_add_ps(c.0, c.1), _mm256_add_ps(d.0, d.1)];
    let pairs = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
    store4(_mm_add_ps(_mm256_castps256_ps128(pairs), _mm256_extractf128_ps::<1>(pairs)))
}

/// The sums of four vectors of eight integers.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn integer_sums4(a: __m256i, b: __m256i, c: __m256i, d: __m256i) -> __m128i {
    let pairs = _mm256_hadd_epi32(_mm256_hadd_epi32(a, b), _mm256_hadd_epi32(c, d));
    _mm_add_epi32(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256::<1>(pairs))
}

/// Four half-precision numbers, given as the two bytes each has in the file.
#[inline]
#[target_feature(enable = "avx2,f16c")]
pub(crate) fn four_halves(a: [u8; 2], b: [u8; 2], c: [u8; 2], d: [u8; 2]) -> __m128 {
    let bits = |half: [u8; 2]| u64::from(u16::from_le_bytes(half));
    let packed = bits(a) | (bits(b) << 16) | (bits(c) << 32) | (bits(d) << 48);
    _mm_cvtph_ps(_mm_cvtsi64_si128(packed as i64))
}

/// Four float lanes, one for each of four weight rows.
pub(crate) type Floats4 = __m128;

#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn zero4() -> Floats4 {
    _mm_setzero_ps()
}

#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn store4(values: Floats4) -> [f32; 4] {
    let mut out = [0.0; 4];
    // SAFETY: `out` has room for four floats.
    unsafe { _mm_storeu_ps(out.as_mut_ptr(), values) };
    out
}

/// Thirty-two bytes that are an array of plain integers.
pub(crate) trait Bytes32 {}
impl Bytes32 for [i8; 32] {}
impl Bytes32 for [u8; 32] {}
impl Bytes32 for [i16; 16] {}
impl Bytes32 for [u16; 16] {}

/// A number of one byte.
pub(crate) trait Byte {}
impl Byte for i8 {}
impl Byte for u8 {}

#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn load<T: Bytes32>(values: &T) -> __m256i {
    // SAFETY: `Bytes32` is implemented only for arrays of thirty-two readable bytes.
    unsafe { _mm256_loadu_si256(std::ptr::from_ref(values).cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn load16<T: Byte>(values: &[T; 16]) -> __m128i {
    // SAFETY: the reference guarantees sixteen readable bytes.
    unsafe { _mm_loadu_si128(values.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn load_words(values: &[i16; 8]) -> __m128i {
    // SAFETY: the reference guarantees sixteen readable bytes.
    unsafe { _mm_loadu_si128(values.as_ptr().cast()) }
}

/// The same place, of which the compiler no longer knows what is there. It then reads numbers where they are used, as part
/// of the instructions that use them; otherwise it keeps more of them than there are registers, or builds each anew.
#[inline]
pub(crate) fn unknown<T>(values: &T) -> &T {
    let mut place = std::ptr::from_ref(values);
    // SAFETY: no instruction is executed, so that the place stays what it was.
    unsafe {
        std::arch::asm!("/* {0} */", inout(reg) place, options(nostack, preserves_flags));
        &*place
    }
}

/// Thirty-two bits as bytes: all ones where the bit is set.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn bits_to_bytes(bits: u32) -> __m256i {
    // Byte i takes the byte of the word that holds bit i, and of that only its own bit.
    let spread = _mm256_setr_epi64x(0, 0x0101_0101_0101_0101, 0x0202_0202_0202_0202, 0x0303_0303_0303_0303);
    let bit = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64 as i64);
    let bytes = _mm256_shuffle_epi8(_mm256_set1_epi32(bits as i32), spread);
    _mm256_cmpeq_epi8(_mm256_and_si256(bytes, bit), bit)
}

/// Asks for the cache lines of some bytes that will be read soon and begin `distance` after `start`.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn prefetch_from<T>(start: &[T], distance: usize, length: usize) {
    for line in (0..length).step_by(64) {
        // A prefetch reads nothing and never faults, wherever the address leads.
        _mm_prefetch::<_MM_HINT_T0>(start.as_ptr().wrapping_byte_add(distance.wrapping_add(line)).cast());
    }
}

/// Asks for `length` bytes that begin `distance` after `start`, in the cache that `ahead` names.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn prefetch_into<T>(ahead: ReadAhead, start: &[T], (distance, length): (usize, usize)) {
    let address = |line: usize| start.as_ptr().wrapping_byte_add(distance.wrapping_add(line)).cast();
    let lines = (0..length).step_by(64);
    match ahead {
        ReadAhead::None => {}
        ReadAhead::L1(_) => lines.for_each(|line| _mm_prefetch::<_MM_HINT_T0>(address(line))),
        ReadAhead::L2(_) => lines.for_each(|line| _mm_prefetch::<_MM_HINT_T1>(address(line))),
    }
}

/// Asks for what will be read after blocks of four streams.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn read_ahead<B>(ahead: ReadAhead, [a, b, c, d]: [&B; 4]) {
    let ask = |block: &B| prefetch_into(ahead, std::slice::from_ref(block), (ahead.bytes(), size_of::<B>()));
    ask(a);
    ask(b);
    ask(c);
    ask(d);
}

/// Stores eight floats, which `out` must have room for exactly.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn store_floats(values: __m256, out: &mut [f32]) {
    let out: &mut [f32; 8] = out.try_into().expect("one float per lane");
    // SAFETY: the reference guarantees eight writable floats.
    unsafe { _mm256_storeu_ps(out.as_mut_ptr(), values) }
}
