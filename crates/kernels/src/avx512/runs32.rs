//! Formats with runs of 32 in registers: sixteen rows at a time, turned so that a lane belongs to a row.

use std::arch::x86_64::*;

use super::words::{Floats, Words, lower_halves, splat};
use crate::avx2::lanes::{prefetch_from, prefetch_into};
use crate::blocks::{q4_0, q8_0};
use crate::codes::{Format32, Scale, Zero};
use crate::reading::ReadAhead;

/// Rows that are multiplied together.
pub(super) const ROWS: usize = 16;

/// A format with runs of 32: number = scale × (quant − offset − zero) + minimum.
pub(super) trait Runs<const BYTES: usize> {
    /// Runs in a block.
    const RUNS: usize = 1;
    /// What was added to quants, which are unsigned bytes.
    const OFFSET: i32;
    /// Whether a block says which code stands for zero, in its third byte.
    const OWN_ZERO: bool = false;
    /// Whether the second half-precision number of a block is added to every number.
    const HAS_MINIMUM: bool = false;
    /// What lies at the start of a block.
    const SCALE: Scale = Scale::Half;

    /// The quants of a run whose block begins at byte `at` of every row: four of them to a lane.
    ///
    /// # Safety
    /// The CPU must have AVX-512 F and BW.
    unsafe fn quants(rows: &SixteenRows<'_>, at: usize, run: usize) -> [Words; 8];
}

/// What quants of signed codes are too large by.
const SIGNED: i32 = 128;

impl<const BYTES: usize, F: Format32<BYTES>> Runs<BYTES> for F {
    const RUNS: usize = F::RUNS;
    const OFFSET: i32 = match (F::LEVELS, F::ZERO) {
        (Some(_), _) => SIGNED,
        (None, Zero::Always(zero)) => zero,
        (None, Zero::At(_)) => 0,
    };
    const OWN_ZERO: bool = match F::ZERO {
        Zero::Always(_) => false,
        Zero::At(at) => at == 2 || panic!("a zero point follows the scale"),
    };
    const HAS_MINIMUM: bool = match F::MINIMUM {
        None => false,
        Some(at) => at == 2 || panic!("a minimum follows the scale"),
    };
    const SCALE: Scale = F::SCALE;

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    unsafe fn quants(rows: &SixteenRows<'_>, at: usize, run: usize) -> [Words; 8] {
        let mut quants = nibbles(rows.four_words(at + F::QUANTS + 16 * run));
        if let Some(levels) = F::LEVELS {
            let zero = if let Zero::Always(zero) = F::ZERO { zero } else { 0 };
            let levels = levels.map(|level| (i32::from(level) - zero + SIGNED) as u8);
            // SAFETY: the array has sixteen readable bytes.
            let levels = _mm512_broadcast_i32x4(unsafe { _mm_loadu_si128(levels.as_ptr().cast()) });
            for quants in &mut quants {
                *quants = _mm512_shuffle_epi8(levels, *quants);
            }
        }
        if let Some(place) = F::HIGH_BITS {
            let mut bits = rows.word(at + place);
            for quants in &mut quants {
                // Copies that are seven bits apart bring each of four bits to the start of its own byte.
                let apart = _mm512_mullo_epi32(_mm512_and_si512(bits, splat(15)), splat(0x0020_4081));
                let fifths = _mm512_slli_epi32::<4>(_mm512_and_si512(apart, splat(0x0101_0101)));
                *quants = _mm512_or_si512(*quants, fifths);
                bits = _mm512_srli_epi32::<4>(bits);
            }
        }
        quants
    }
}

/// Q8_0.
pub(super) struct Q80;
/// Q4_0.
pub(super) struct Q40;

impl Runs<{ q8_0::BYTES }> for Q80 {
    const OFFSET: i32 = SIGNED;

    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn quants(rows: &SixteenRows<'_>, at: usize, _run: usize) -> [Words; 8] {
        let [a, b, c, d] = rows.four_words(at + q8_0::QUANTS);
        let [e, f, g, h] = rows.four_words(at + q8_0::QUANTS + 16);
        let unsigned = |words| _mm512_xor_si512(words, splat(0x8080_8080_u32 as i32));
        [unsigned(a), unsigned(b), unsigned(c), unsigned(d), unsigned(e), unsigned(f), unsigned(g), unsigned(h)]
    }
}

impl Format32<{ q4_0::BYTES }> for Q40 {
    const QUANTS: usize = q4_0::QUANTS;
    const ZERO: Zero = Zero::Always(q4_0::OFFSET);
}

/// The lower nibbles of four words, and then the upper.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn nibbles([a, b, c, d]: [Words; 4]) -> [Words; 8] {
    let low = |words| _mm512_and_si512(words, splat(0x0f0f_0f0f));
    let high = |words| low(_mm512_srli_epi32::<4>(words));
    [low(a), low(b), low(c), low(d), high(a), high(b), high(c), high(d)]
}

/// What the numbers of a block of sixteen rows have in common.
#[derive(Clone, Copy)]
pub(super) struct Head {
    pub(super) scales: Floats,
    /// What is added to every number, in formats that have it.
    pub(super) minima: Floats,
    /// The codes that stand for zero, in formats that have them.
    pub(super) zeros: Words,
}

/// The heads of the blocks that begin at byte `at` of every row.
#[inline]
#[target_feature(enable = "avx512f,avx2,f16c")]
pub(super) fn head<const BYTES: usize, F: Runs<BYTES>>(rows: &SixteenRows<'_>, at: usize) -> Head {
    let first = rows.word(at);
    let second = _mm512_srli_epi32::<16>(first);
    let scales = match F::SCALE {
        Scale::Half => lower_halves(first),
        Scale::Exponent => powers_of_two(_mm512_and_si512(first, splat(0xff))),
    };
    Head { scales, minima: lower_halves(second), zeros: _mm512_and_si512(second, splat(0xff)) }
}

/// Half of 2^(exponent − 127), as the specification's `mxfp4::scale`.
#[inline]
#[target_feature(enable = "avx512f")]
fn powers_of_two(exponents: Words) -> Floats {
    let normal = _mm512_slli_epi32::<23>(_mm512_sub_epi32(exponents, splat(1)));
    let subnormal = _mm512_sllv_epi32(splat(0x0020_0000), exponents);
    let small = _mm512_cmplt_epi32_mask(exponents, splat(2));
    _mm512_castsi512_ps(_mm512_mask_blend_epi32(small, normal, subnormal))
}

/// −(offset + zero) × sum of x, which products of quants are too large by; `sum` fills a register.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn deficit(offset: i32, own_zeros: Option<Words>, sum: Words) -> Words {
    let surplus = match offset {
        0 => splat(0),
        8 => _mm512_slli_epi32::<3>(sum),
        16 => _mm512_slli_epi32::<4>(sum),
        SIGNED => _mm512_slli_epi32::<7>(sum),
        _ => _mm512_mullo_epi32(splat(offset), sum),
    };
    let surplus = match own_zeros {
        None => surplus,
        Some(zeros) => _mm512_add_epi32(surplus, _mm512_mullo_epi32(zeros, sum)),
    };
    _mm512_sub_epi32(splat(0), surplus)
}

/// Sixteen neighbouring rows.
pub(super) struct SixteenRows<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) row_bytes: usize,
}

impl SixteenRows<'_> {
    /// Four words from byte `at` of every row on: word j of every row in register j.
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(super) fn four_words(&self, at: usize) -> [Words; 4] {
        assert!(self.bytes.len() == ROWS * self.row_bytes && at + 16 <= self.row_bytes, "they lie in every row");
        // SAFETY: the assertion keeps sixteen bytes of each of the sixteen rows in reach.
        let [a, b, c, d] = unsafe {
            let start = self.bytes.as_ptr().add(at);
            let four = |row: usize| _mm_loadu_si128(start.add(row * self.row_bytes).cast());
            let every_fourth = |row: usize| {
                let two = _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(four(row)), four(row + 4));
                let three = _mm512_inserti32x4::<2>(_mm512_castsi256_si512(two), four(row + 8));
                _mm512_inserti32x4::<3>(three, four(row + 12))
            };
            [every_fourth(0), every_fourth(1), every_fourth(2), every_fourth(3)]
        };
        let (low, low_too) = (_mm512_unpacklo_epi32(a, b), _mm512_unpacklo_epi32(c, d));
        let (high, high_too) = (_mm512_unpackhi_epi32(a, b), _mm512_unpackhi_epi32(c, d));
        [
            _mm512_unpacklo_epi64(low, low_too),
            _mm512_unpackhi_epi64(low, low_too),
            _mm512_unpacklo_epi64(high, high_too),
            _mm512_unpackhi_epi64(high, high_too),
        ]
    }

    /// The word at byte `at` of every row.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn word(&self, at: usize) -> Words {
        assert!(self.bytes.len() == ROWS * self.row_bytes && at + 4 <= self.row_bytes, "they lie in every row");
        let offsets = _mm512_mullo_epi32(
            _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
            splat(i32::try_from(self.row_bytes).expect("a row is far shorter")),
        );
        // SAFETY: the assertion keeps four bytes of each of the sixteen rows in reach.
        unsafe { _mm512_i32gather_epi32::<1>(offsets, self.bytes.as_ptr().add(at).cast()) }
    }

    /// Asks for as much of the rows that come next as sixteen blocks of `bytes` at byte `at` are.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) fn ask_for_next(&self, at: usize, bytes: usize) {
        // Memory is faster when half of them are read beside the other half.
        for half in 0..2 {
            let soon = (ROWS + ROWS / 2 * half) * self.row_bytes + ROWS / 2 * at;
            prefetch_from(self.bytes, soon, ROWS / 2 * bytes);
        }
    }

    /// Asks for as much of what comes `rows` later as sixteen blocks of `bytes` at byte `at` are.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) fn ask_for(&self, rows: usize, at: usize, bytes: usize) {
        prefetch_into(ReadAhead::L2(0), self.bytes, (rows * self.row_bytes + ROWS * at, ROWS * bytes));
    }
}
