//! The quantiser compiled for several instruction sets, all of which write the same bytes.
#![expect(unsafe_code, reason = "code compiled for an instruction set may only be called where the CPU has it")]

use super::rows::WholeBlocks;
use super::{QuantizeError, block32, block256, check_lengths, check_numbers, plain};
use crate::Dtype;

/// The quantiser as compiled for one instruction set. `Quantizer::available()` lists those that this CPU can run.
#[derive(Clone, Copy)]
pub struct Quantizer {
    name: &'static str,
    encode: Encode,
}

type Encode = unsafe fn(Dtype, &[f32], Option<&[f32]>, &mut [u8]) -> Result<(), QuantizeError>;

impl Quantizer {
    /// Those that this CPU can run, best first; the last runs everywhere and is the specification.
    pub fn available() -> Vec<Quantizer> {
        let portable = Quantizer { name: "portable", encode: encode_portable };
        Quantizer::vector_sets().into_iter().flatten().chain([portable]).collect()
    }

    /// The best for this CPU.
    pub fn best() -> Quantizer {
        let portable = Quantizer { name: "portable", encode: encode_portable };
        Quantizer::vector_sets().into_iter().flatten().next().unwrap_or(portable)
    }

    #[cfg(target_arch = "x86_64")]
    fn vector_sets() -> [Option<Quantizer>; 2] {
        let avx512 = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl");
        [
            avx512.then_some(Quantizer { name: "AVX-512", encode: encode_avx512 }),
            is_x86_feature_detected!("avx2").then_some(Quantizer { name: "AVX2", encode: encode_avx2 }),
        ]
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn vector_sets() -> [Option<Quantizer>; 0] {
        []
    }

    /// Name of the instruction set.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// As [`super::quantize`].
    ///
    /// # Errors
    /// Those of [`super::quantize`].
    pub fn quantize(
        &self,
        dtype: Dtype,
        values: &[f32],
        importance: Option<&[f32]>,
        out: &mut [u8],
    ) -> Result<(), QuantizeError> {
        // SAFETY: values of this type come from `available` and `best` only, which have checked the CPU.
        unsafe { (self.encode)(dtype, values, importance, out) }
    }
}

macro_rules! encode_for {
    ($name:ident $(, $features:literal)?) => {
        $(#[target_feature(enable = $features)])?
        fn $name(
            dtype: Dtype,
            values: &[f32],
            importance: Option<&[f32]>,
            out: &mut [u8],
        ) -> Result<(), QuantizeError> {
            encode(dtype, values, importance, out)
        }
    };
}

encode_for!(encode_portable);
#[cfg(target_arch = "x86_64")]
encode_for!(encode_avx2, "avx2");
#[cfg(target_arch = "x86_64")]
encode_for!(encode_avx512, "avx512f,avx512bw,avx512dq,avx512vl");

/// Quantises rows. Everything it calls in loops is inlined, and so compiled for the instruction set of its caller; a
/// function that is passed as a value would not be.
#[inline(always)]
fn encode(dtype: Dtype, values: &[f32], importance: Option<&[f32]>, out: &mut [u8]) -> Result<(), QuantizeError> {
    check_lengths(dtype, values, importance, out)?;
    check_numbers(dtype, values, importance)?;
    match dtype {
        Dtype::F32 => plain::write(values, out, f32::to_le_bytes),
        Dtype::F16 => plain::write(values, out, |value| half::f16::from_f32(value).to_le_bytes()),
        Dtype::BF16 => plain::write(values, out, |value| half::bf16::from_f32(value).to_le_bytes()),
        Dtype::Q8_0 => block32::quantize_q8_0(WholeBlocks::new(values, importance, out)),
        Dtype::Q5_0 => block32::quantize_q5_0(WholeBlocks::new(values, importance, out)),
        Dtype::Q4_0 => block32::quantize_q4_0(WholeBlocks::new(values, importance, out)),
        Dtype::IQ4_NL => block32::quantize_iq4_nl(WholeBlocks::new(values, importance, out)),
        Dtype::Nf4 => block32::quantize_nf4(WholeBlocks::new(values, importance, out)),
        Dtype::Int4Group128 => block32::quantize_int4_group128(WholeBlocks::new(values, importance, out)),
        Dtype::Q2_K => block256::quantize_q2_k(WholeBlocks::new(values, importance, out)),
        Dtype::Q3_K => block256::quantize_q3_k(WholeBlocks::new(values, importance, out)),
        Dtype::Q4_K => block256::quantize_q4_k(WholeBlocks::new(values, importance, out)),
        Dtype::Q5_K => block256::quantize_q5_k(WholeBlocks::new(values, importance, out)),
        Dtype::Q6_K => block256::quantize_q6_k(WholeBlocks::new(values, importance, out)),
        Dtype::IQ4_XS => block256::quantize_iq4_xs(WholeBlocks::new(values, importance, out)),
        _ => return Err(QuantizeError::ReadOnly { dtype }),
    }
    Ok(())
}
