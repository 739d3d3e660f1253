//! Registers from arrays and back, dot products of bytes, and the sums across lanes that fix the order of additions.

use std::arch::aarch64::*;
use std::arch::asm;

use crate::reading::ReadAhead;

/// Sixteen float lanes: the unit of every float sum.
#[derive(Clone, Copy)]
pub(super) struct Lanes16(pub(super) [float32x4_t; 4]);

impl Lanes16 {
    #[inline]
    #[target_feature(enable = "neon")]
    pub(super) fn zero() -> Lanes16 {
        Lanes16::splat(0.0)
    }

    #[inline]
    #[target_feature(enable = "neon")]
    pub(super) fn load(values: &[f32; 16]) -> Lanes16 {
        let [a, b, c, d] = [0, 4, 8, 12].map(|at| values.as_ptr().wrapping_add(at));
        // SAFETY: the reference guarantees sixteen readable floats.
        unsafe { Lanes16([vld1q_f32(a), vld1q_f32(b), vld1q_f32(c), vld1q_f32(d)]) }
    }

    #[inline]
    #[target_feature(enable = "neon")]
    pub(super) fn load_halves(values: &[u16; 16]) -> Lanes16 {
        let [a, b, c, d] = fours(values);
        Lanes16([widen(a), widen(b), widen(c), widen(d)])
    }

    #[inline]
    #[target_feature(enable = "neon")]
    pub(super) fn load_brain(values: &[u16; 16]) -> Lanes16 {
        let [a, b, c, d] = fours(values);
        let widen = |brain| vreinterpretq_f32_u32(vshlq_n_u32::<16>(vmovl_u16(brain)));
        Lanes16([widen(a), widen(b), widen(c), widen(d)])
    }

    /// Floats of eight bits, widened as the specification's `byte_to_f32` does.
    #[inline]
    #[target_feature(enable = "neon")]
    pub(super) fn load_bytes(values: &[u8; 16]) -> Lanes16 {
        let bytes = load_bytes(values);
        let (low, high) = (byte_halves(vget_low_u8(bytes)), byte_halves(vget_high_u8(bytes)));
        let widen = |halves| vmulq_n_f32(widen(halves), 256.0);
        Lanes16([
            widen(vget_low_u16(low)),
            widen(vget_high_u16(low)),
            widen(vget_low_u16(high)),
            widen(vget_high_u16(high)),
        ])
    }

    #[inline]
    #[target_feature(enable = "neon")]
    pub(super) fn store(self, values: &mut [f32; 16]) {
        for (values, lanes) in values.as_chunks_mut::<4>().0.iter_mut().zip(self.0) {
            *values = store4(lanes);
        }
    }

    /// self + a × b, rounded once per lane.
    #[inline]
    #[target_feature(enable = "neon")]
    pub(super) fn add_product(self, a: Lanes16, b: Lanes16) -> Lanes16 {
        let mut sums = self.0;
        for part in 0..4 {
            sums[part] = vfmaq_f32(sums[part], a.0[part], b.0[part]);
        }
        Lanes16(sums)
    }

    #[inline]
    #[target_feature(enable = "neon")]
    pub(super) fn splat(value: f32) -> Lanes16 {
        Lanes16([vdupq_n_f32(value); 4])
    }

    #[inline]
    #[target_feature(enable = "neon")]
    pub(super) fn times(self, other: Lanes16) -> Lanes16 {
        let mut products = self.0;
        for part in 0..4 {
            products[part] = vmulq_f32(products[part], other.0[part]);
        }
        Lanes16(products)
    }

    /// The greatest size of a number.
    #[inline]
    #[target_feature(enable = "neon")]
    pub(super) fn greatest(four: [Lanes16; 4]) -> f32 {
        let mut greatest = vdupq_n_f32(0.0);
        for lanes in four.iter().flat_map(|lanes| lanes.0) {
            greatest = vmaxnmq_f32(greatest, vabsq_f32(lanes));
        }
        vmaxnmvq_f32(greatest)
    }

    /// The nearest integers of all numbers times a factor, which fit into bytes.
    #[inline]
    #[target_feature(enable = "neon")]
    pub(super) fn to_bytes(four: [Lanes16; 4], factor: Lanes16, bytes: &mut [i8; 64]) {
        for (lanes, bytes) in four.iter().zip(bytes.as_chunks_mut::<16>().0) {
            let [a, b, c, d] = lanes.times(factor).0;
            let integers = |numbers| vqmovn_s32(vcvtnq_s32_f32(numbers));
            let (low, high) = (vcombine_s16(integers(a), integers(b)), vcombine_s16(integers(c), integers(d)));
            let codes = vcombine_s8(vqmovn_s16(low), vqmovn_s16(high));
            // SAFETY: the reference guarantees sixteen writable bytes.
            unsafe { vst1q_s8(bytes.as_mut_ptr(), codes) };
        }
    }
}

/// Eight 8-bit floats as f16 numbers 256 times too small; NaN stays NaN.
#[inline]
#[target_feature(enable = "neon")]
fn byte_halves(bytes: uint8x8_t) -> uint16x8_t {
    let bytes = vmovl_u8(bytes);
    let magnitude = vandq_u16(bytes, vdupq_n_u16(0x7f));
    let sign = vshlq_n_u16::<8>(veorq_u16(bytes, magnitude));
    let special = vandq_u16(vceqq_u16(magnitude, vdupq_n_u16(0x7f)), vdupq_n_u16(0x7e00));
    vorrq_u16(vorrq_u16(sign, vshlq_n_u16::<7>(magnitude)), special)
}

/// The sums of four sets of sixteen lanes, in the order of the specification's `reduce`.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn reduce4([a, b, c, d]: [Lanes16; 4]) -> [f32; 4] {
    let four = |Lanes16([a, b, c, d])| vpaddq_f32(vaddq_f32(a, c), vaddq_f32(b, d));
    store4(vpaddq_f32(vpaddq_f32(four(a), four(b)), vpaddq_f32(four(c), four(d))))
}

/// sum + a × b, in fours of signed bytes.
#[inline]
#[target_feature(enable = "neon,dotprod")]
pub(super) fn dot(sum: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
    let mut sum = sum;
    // SAFETY: an instruction that this function's features promise, on registers alone. Its intrinsic is not stable yet.
    unsafe {
        asm!(
            "sdot {sum:v}.4s, {a:v}.16b, {b:v}.16b",
            sum = inout(vreg) sum,
            a = in(vreg) a,
            b = in(vreg) b,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    sum
}

/// sum + a × the same four bytes of `b` in every lane, those of its lane `LANE`.
#[inline]
#[target_feature(enable = "neon,dotprod")]
pub(super) fn dot_four<const LANE: usize>(sum: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
    let mut sum = sum;
    // SAFETY: an instruction that this function's features promise, on registers alone. Its intrinsic is not stable yet.
    unsafe {
        asm!(
            "sdot {sum:v}.4s, {a:v}.16b, {b:v}.4b[{lane}]",
            sum = inout(vreg) sum,
            a = in(vreg) a,
            b = in(vreg) b,
            lane = const LANE,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    sum
}

/// The sums of four vectors of four integers.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn integer_sums4([a, b, c, d]: [int32x4_t; 4]) -> int32x4_t {
    vpaddq_s32(vpaddq_s32(a, b), vpaddq_s32(c, d))
}

/// Four float lanes, one for each of four weight rows.
pub(super) type Floats4 = float32x4_t;

#[inline]
#[target_feature(enable = "neon")]
pub(super) fn zero4() -> Floats4 {
    vdupq_n_f32(0.0)
}

#[inline]
#[target_feature(enable = "neon")]
pub(super) fn load4(values: &[f32; 4]) -> Floats4 {
    // SAFETY: the reference guarantees four readable floats.
    unsafe { vld1q_f32(values.as_ptr()) }
}

#[inline]
#[target_feature(enable = "neon")]
pub(super) fn store4(values: Floats4) -> [f32; 4] {
    let mut out = [0.0; 4];
    // SAFETY: `out` has room for four floats.
    unsafe { vst1q_f32(out.as_mut_ptr(), values) };
    out
}

/// Four half-precision numbers, given as bits.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn widen(halves: uint16x4_t) -> Floats4 {
    vcvt_f32_f16(vreinterpret_f16_u16(halves))
}

/// Four half-precision numbers, given as the two bytes each has in the file.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn four_halves([a, b, c, d]: [&[u8; 2]; 4]) -> Floats4 {
    let (a, b) = (u64::from(half_bits(a)), u64::from(half_bits(b)));
    let (c, d) = (u64::from(half_bits(c)), u64::from(half_bits(d)));
    widen(vcreate_u16(a | (b << 16) | (c << 32) | (d << 48)))
}

/// The bits of a half-precision number.
#[inline]
fn half_bits(bytes: &[u8; 2]) -> u16 {
    // SAFETY: the reference guarantees two readable bytes. Written like this it is one load; the compiler does not always
    // see that.
    u16::from_le(unsafe { bytes.as_ptr().cast::<u16>().read_unaligned() })
}

#[inline]
#[target_feature(enable = "neon")]
fn fours(values: &[u16; 16]) -> [uint16x4_t; 4] {
    let [a, b, c, d] = [0, 4, 8, 12].map(|at| values.as_ptr().wrapping_add(at));
    // SAFETY: the reference guarantees sixteen readable numbers.
    unsafe { [vld1_u16(a), vld1_u16(b), vld1_u16(c), vld1_u16(d)] }
}

#[inline]
#[target_feature(enable = "neon")]
pub(super) fn load(values: &[i8; 16]) -> int8x16_t {
    // SAFETY: the reference guarantees sixteen readable bytes.
    unsafe { vld1q_s8(values.as_ptr()) }
}

#[inline]
#[target_feature(enable = "neon")]
pub(super) fn load_bytes(values: &[u8; 16]) -> uint8x16_t {
    // SAFETY: the reference guarantees sixteen readable bytes.
    unsafe { vld1q_u8(values.as_ptr()) }
}

#[inline]
#[target_feature(enable = "neon")]
pub(super) fn load_words(values: &[i16; 8]) -> int16x8_t {
    // SAFETY: the reference guarantees eight readable numbers.
    unsafe { vld1q_s16(values.as_ptr()) }
}

/// Bytes shifted to the left, or to the right by a negative number of bits.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn shifted(bytes: uint8x16_t, bits: i32) -> uint8x16_t {
    vshlq_u8(bytes, vdupq_n_s8(bits as i8))
}

/// The upper halves of the bytes of `low`, below those of `high`.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn upper_nibbles(high: uint8x16_t, low: uint8x16_t) -> uint8x16_t {
    let mut joined = high;
    // SAFETY: an instruction of NEON on registers alone. The compiler makes two of the intrinsic, `vsriq_n_u8`.
    unsafe {
        asm!(
            "sri {joined:v}.16b, {low:v}.16b, #4",
            joined = inout(vreg) joined,
            low = in(vreg) low,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    joined
}

/// Sixteen bits as bytes: all ones where the bit is set.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn bits_to_bytes(bits: u16) -> uint8x16_t {
    let [low, high] = bits.to_le_bytes();
    let own = vcreate_u8(0x8040_2010_0804_0201);
    vtstq_u8(vcombine_u8(vdup_n_u8(low), vdup_n_u8(high)), vcombine_u8(own, own))
}

/// Asks for `length` bytes that begin `distance` after `start`, in the cache that `ahead` names.
#[expect(clippy::pointers_in_nomem_asm_block, reason = "a prefetch neither reads nor writes")]
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn prefetch_into<T>(ahead: ReadAhead, start: &[T], (distance, length): (usize, usize)) {
    let start = start.as_ptr();
    macro_rules! ask {
        ($instruction:literal, $distance:expr) => {
            asm!($instruction, in(reg) start, in(reg) $distance, options(nomem, nostack, preserves_flags))
        };
    }
    for line in (0..length).step_by(64) {
        // The instruction itself adds this to the start, so that all streams share it.
        let distance = distance.wrapping_add(line);
        // SAFETY: a prefetch reads nothing and never faults, wherever the address leads.
        unsafe {
            match ahead {
                ReadAhead::None => {}
                ReadAhead::L1(_) => ask!("prfm pldl1keep, [{}, {}]", distance),
                ReadAhead::L2(_) => ask!("prfm pldl2keep, [{}, {}]", distance),
            }
        }
    }
}

/// Asks for what will be read after blocks of four streams.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn read_ahead<B>(ahead: ReadAhead, blocks: [&B; 4]) {
    for block in blocks {
        prefetch_into(ahead, std::slice::from_ref(block), (ahead.bytes(), size_of::<B>()));
    }
}

/// Asks for the cache lines of some bytes that will be read soon and begin `distance` after `start`.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn prefetch_from<T>(start: &[T], distance: usize, length: usize) {
    for line in (0..length).step_by(64) {
        let address = start.as_ptr().addr().wrapping_add(distance).wrapping_add(line);
        // SAFETY: a prefetch reads nothing and never faults, wherever the address leads.
        unsafe { asm!("prfm pldl1keep, [{}]", in(reg) address, options(nomem, nostack, preserves_flags)) };
    }
}
