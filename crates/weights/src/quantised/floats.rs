//! Plain floats as the way out for weights that no block format holds exactly.

use cascadia_kernels::Dtype;
use half::{bf16, f16};

/// The narrowest float format that holds all `values` exactly; single precision if none does.
pub(super) fn narrowest<I: Iterator<Item = f32>>(values: impl Fn() -> I) -> Dtype {
    if values().all(|value| bf16::from_f32(value).to_f32() == value) {
        Dtype::BF16
    } else if values().all(|value| f16::from_f32(value).to_f32() == value) {
        Dtype::F16
    } else {
        Dtype::F32
    }
}

/// Appends `value` in one of the formats that [`narrowest`] gives.
pub(super) fn push(dtype: Dtype, value: f32, out: &mut Vec<u8>) {
    match dtype {
        Dtype::BF16 => out.extend(bf16::from_f32(value).to_le_bytes()),
        Dtype::F16 => out.extend(f16::from_f32(value).to_le_bytes()),
        _ => out.extend(value.to_le_bytes()),
    }
}
