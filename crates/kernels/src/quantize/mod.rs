//! Quantisation: f32 rows to blocks of any storage format, with the least weighted squared error we can find.

mod affine;
mod affine_scales;
mod block256;
mod block32;
mod error;
mod grid;
mod half_grid;
mod plain;
mod signed_scales;
mod symmetric;
mod weights;

pub use error::QuantizeError;

use crate::Dtype;

/// The formats that numbers can be quantised to; the others are only read.
pub const TARGETS: [Dtype; 15] = [
    Dtype::F32,
    Dtype::F16,
    Dtype::BF16,
    Dtype::Q8_0,
    Dtype::Q6_K,
    Dtype::Q5_K,
    Dtype::Q5_0,
    Dtype::Q4_K,
    Dtype::Q4_0,
    Dtype::IQ4_NL,
    Dtype::IQ4_XS,
    Dtype::Nf4,
    Dtype::Int4Group128,
    Dtype::Q3_K,
    Dtype::Q2_K,
];

/// Quantises whole rows of `values` to `dtype`, writing exactly their storage to `out`.
///
/// `importance` holds one weight per column (how strongly an error in that column reaches the output, for example the
/// mean square of the activation it multiplies); its length is the row length. The result depends on nothing but the
/// arguments, and each block only on its own numbers, so rows may be spread over threads.
///
/// # Errors
/// [`QuantizeError`] when the format is none of [`TARGETS`], when an input is not finite or too large for the format,
/// when an importance is negative or not finite, and when the lengths do not fit together.
pub fn quantize(dtype: Dtype, values: &[f32], importance: Option<&[f32]>, out: &mut [u8]) -> Result<(), QuantizeError> {
    check_lengths(dtype, values, importance, out)?;
    check_numbers(dtype, values, importance)?;
    match dtype {
        Dtype::F32 => plain::write(values, out, f32::to_le_bytes),
        Dtype::F16 => plain::write(values, out, |value| half::f16::from_f32(value).to_le_bytes()),
        Dtype::BF16 => plain::write(values, out, |value| half::bf16::from_f32(value).to_le_bytes()),
        Dtype::Q8_0 => blocks(values, None, out, |values, _, out| block32::quantize_q8_0(values, out)),
        Dtype::Q5_0 => blocks(values, importance, out, block32::quantize_q5_0),
        Dtype::Q4_0 => blocks(values, importance, out, block32::quantize_q4_0),
        Dtype::IQ4_NL => blocks(values, importance, out, block32::quantize_iq4_nl),
        Dtype::Nf4 => blocks(values, importance, out, block32::quantize_nf4),
        Dtype::Int4Group128 => blocks(values, importance, out, block32::quantize_int4_group128),
        Dtype::Q2_K => blocks(values, importance, out, block256::quantize_q2_k),
        Dtype::Q3_K => blocks(values, importance, out, block256::quantize_q3_k),
        Dtype::Q4_K => blocks(values, importance, out, block256::quantize_q4_k),
        Dtype::Q5_K => blocks(values, importance, out, block256::quantize_q5_k),
        Dtype::Q6_K => blocks(values, importance, out, block256::quantize_q6_k),
        Dtype::IQ4_XS => blocks(values, importance, out, block256::quantize_iq4_xs),
        _ => return Err(QuantizeError::ReadOnly { dtype }),
    }
    Ok(())
}

/// Calls `block` for every block of the rows with the importances of its columns (ones when none are given).
fn blocks<const E: usize, const B: usize>(
    values: &[f32],
    importance: Option<&[f32]>,
    out: &mut [u8],
    block: impl Fn(&[f32; E], &[f32; E], &mut [u8; B]),
) {
    let equal = [[1.0; E]];
    let columns = importance.map_or(&equal[..], |importance| importance.as_chunks().0);
    let importances = columns.iter().cycle();
    for ((values, out), importance) in values.as_chunks().0.iter().zip(out.as_chunks_mut().0).zip(importances) {
        block(values, importance, out);
    }
}

/// The largest magnitude every block of `dtype` can hold.
fn limit(dtype: Dtype) -> f32 {
    const LARGEST_HALF: f32 = 65504.0;
    match dtype {
        Dtype::F16 => LARGEST_HALF,
        Dtype::BF16 => half::bf16::MAX.to_f32(),
        Dtype::Q8_0 | Dtype::Nf4 => LARGEST_HALF * 127.0,
        Dtype::Q5_0 => LARGEST_HALF * 15.0,
        Dtype::Q4_0 | Dtype::Int4Group128 => LARGEST_HALF * 7.0,
        Dtype::IQ4_NL => LARGEST_HALF * 113.0,
        Dtype::IQ4_XS => LARGEST_HALF * 31.0 * 113.0,
        Dtype::Q2_K => LARGEST_HALF * 15.0,
        Dtype::Q3_K => LARGEST_HALF * 31.0 * 3.0,
        Dtype::Q4_K | Dtype::Q5_K => LARGEST_HALF * 63.0,
        Dtype::Q6_K => LARGEST_HALF * 127.0 * 31.0,
        _ => f32::MAX,
    }
}

fn check_lengths(dtype: Dtype, values: &[f32], importance: Option<&[f32]>, out: &[u8]) -> Result<(), QuantizeError> {
    let columns = importance.map_or(values.len(), <[f32]>::len);
    let whole_rows = columns == values.len() || (columns > 0 && values.len().is_multiple_of(columns));
    let whole_blocks = columns.is_multiple_of(dtype.block_elements());
    if whole_rows && whole_blocks && dtype.row_bytes(values.len() as u64) == Some(out.len() as u64) {
        return Ok(());
    }
    Err(QuantizeError::Length { dtype, values: values.len(), columns, bytes: out.len() })
}

fn check_numbers(dtype: Dtype, values: &[f32], importance: Option<&[f32]>) -> Result<(), QuantizeError> {
    let limit = limit(dtype);
    if let Some((index, &value)) = values.iter().enumerate().find(|(_, value)| value.is_nan() || value.abs() > limit) {
        return Err(if value.is_finite() {
            QuantizeError::TooLarge { dtype, index, value, limit }
        } else {
            QuantizeError::NotFinite { dtype, index, value }
        });
    }
    let mut importances = importance.unwrap_or_default().iter().enumerate();
    match importances.find(|(_, importance)| !importance.is_finite() || **importance < 0.0) {
        Some((column, &value)) => Err(QuantizeError::Importance { column, value }),
        None => Ok(()),
    }
}
