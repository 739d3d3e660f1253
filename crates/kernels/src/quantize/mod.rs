//! Quantisation: f32 rows to blocks of any storage format, with the least weighted squared error we can find.

mod affine;
mod affine_scales;
mod block256;
mod block32;
mod error;
mod grid;
mod groups;
mod half_grid;
mod instruction_sets;
mod plain;
mod ranking;
mod rows;
mod signed_scales;
mod super_blocks;
mod symmetric;
mod weights;

pub use error::QuantizeError;
pub use instruction_sets::Quantizer;

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
    Quantizer::best().quantize(dtype, values, importance, out)
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

#[inline(always)]
fn check_numbers(dtype: Dtype, values: &[f32], importance: Option<&[f32]>) -> Result<(), QuantizeError> {
    let limit = limit(dtype);
    let mut all_good = true;
    for value in values {
        all_good &= value.abs() <= limit;
    }
    let mut bad = values.iter().enumerate().filter(|(_, value)| value.is_nan() || value.abs() > limit);
    if let (false, Some((index, &value))) = (all_good, bad.next()) {
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
