//! Weights that are scale × an 8-bit float.

use cascadia_kernels::{Dtype, decode_row};

use super::floats;
use super::scales::{Groups, Scales};
use crate::made::Recipe;
use crate::tensor::TensorBytes;

/// A matrix of bytes with scales, and the format that was chosen for the products.
#[derive(Debug)]
pub(super) struct ScaledFloats {
    bytes: TensorBytes,
    columns: usize,
    scales: Scales,
    groups: Groups,
    pub(super) dtype: Dtype,
}

impl ScaledFloats {
    /// `bytes` are rows of `columns` numbers in F8_E4M3.
    pub(super) fn new(bytes: TensorBytes, columns: usize, scales: Scales, groups: Groups) -> ScaledFloats {
        // The positive finite numbers; the negative ones take the same bits.
        let levels = &levels()[..0x7f];
        let dtype = floats::narrowest(|| scales.iter().flat_map(|scale| levels.iter().map(move |level| scale * level)));
        ScaledFloats { bytes, columns, scales, groups, dtype }
    }
}

impl Recipe for ScaledFloats {
    fn build(&self) -> Vec<u8> {
        let (bytes, levels) = (self.bytes.as_ref(), levels());
        let mut out = Vec::with_capacity(bytes.len() * self.dtype.block_bytes());
        for (row, numbers) in bytes.chunks_exact(self.columns).enumerate() {
            for (column, &number) in numbers.iter().enumerate() {
                let scale = self.scales.at(row, self.groups.of(column));
                floats::push(self.dtype, scale * levels[usize::from(number)], &mut out);
            }
        }
        out
    }
}

/// What each byte stands for.
fn levels() -> [f32; 256] {
    let bytes: [u8; 256] = std::array::from_fn(|byte| byte as u8);
    let mut levels = [0.0; 256];
    decode_row(Dtype::F8_E4M3, &bytes, &mut levels);
    levels
}
