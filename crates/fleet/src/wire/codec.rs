//! Hidden rows as bytes: the one place that knows how numbers are written on the wire.

use cascadia_kernels::quantize::quantize;
use cascadia_kernels::{Dtype, decode_row};

/// How hidden rows are sent. A number is rounded by itself, or with the 31 beside it in its row, so what is lost never
/// depends on what else is in a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum RowFormat {
    /// Four bytes a number: nothing is lost, and tokens are those of one machine.
    #[default]
    F32 = 0,
    /// Two bytes a number.
    F16 = 1,
    /// A byte a number, and two for the scale of 32 of them; [`RowFormat::F16`] where rows are no multiple of 32.
    Int8 = 2,
}

impl RowFormat {
    /// The one that is called so in a message.
    pub(crate) fn numbered(number: u32) -> Option<RowFormat> {
        [RowFormat::F32, RowFormat::F16, RowFormat::Int8].into_iter().find(|wire| *wire as u32 == number)
    }

    /// What people call it.
    pub fn name(self) -> &'static str {
        match self {
            RowFormat::F32 => "f32",
            RowFormat::F16 => "f16",
            RowFormat::Int8 => "int8",
        }
    }
}

/// Writes and reads rows of one length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Codec {
    dtype: Dtype,
    width: usize,
}

impl Codec {
    /// For rows of `width` numbers.
    pub(crate) fn new(wire: RowFormat, width: usize) -> Codec {
        let dtype = match wire {
            RowFormat::F32 => Dtype::F32,
            RowFormat::Int8 if width.is_multiple_of(Dtype::Q8_0.block_elements()) => Dtype::Q8_0,
            RowFormat::F16 | RowFormat::Int8 => Dtype::F16,
        };
        Codec { dtype, width }
    }

    /// Numbers of a row.
    pub(crate) fn width(&self) -> usize {
        self.width
    }

    /// Bytes of a row.
    pub(crate) fn row_bytes(&self) -> usize {
        self.width / self.dtype.block_elements() * self.dtype.block_bytes()
    }

    /// Makes `bytes` whole rows as they are sent; says why not if a number is none, or larger than can be written.
    pub(crate) fn encode(&self, rows: &[f32], bytes: &mut Vec<u8>) -> Result<(), String> {
        bytes.resize(rows.len() / self.width.max(1) * self.row_bytes(), 0);
        quantize(self.dtype, rows, None, bytes).map_err(|_| {
            let format = self.dtype;
            format!("its hidden states are not finite, or too large for {format}; `serve --wire f32` sends any number")
        })
    }

    /// Reads rows back; `false` if one of the numbers is none. The lengths have been compared.
    pub(crate) fn decode(&self, bytes: &[u8], rows: &mut [f32]) -> bool {
        decode_row(self.dtype, bytes, rows);
        rows.iter().all(|value| value.is_finite())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows with small and large numbers beside each other.
    fn rows(width: usize, count: usize) -> Vec<f32> {
        (0..width * count).map(|at| ((at * 37 % 101) as f32 - 50.0) * if at % 61 == 0 { 40.0 } else { 0.03 }).collect()
    }

    #[test]
    fn a_row_is_the_same_bytes_in_any_batch() {
        for (wire, width, row_bytes) in [
            (RowFormat::F32, 64, 256),
            (RowFormat::F16, 64, 128),
            (RowFormat::Int8, 64, 68),
            (RowFormat::F16, 40, 80),
            (RowFormat::Int8, 40, 80),
            (RowFormat::Int8, 2048, 2176),
        ] {
            let (codec, all) = (Codec::new(wire, width), rows(width, 5));
            assert_eq!(codec.row_bytes(), row_bytes, "{wire:?} {width}");
            let mut together = vec![7; 3];
            codec.encode(&all, &mut together).expect("they can be written");
            let mut alone = Vec::new();
            for (row, expected) in all.chunks(width).zip(together.chunks(row_bytes)) {
                codec.encode(row, &mut alone).expect("it can be written");
                assert!(alone == expected, "{wire:?} {width}");
                let mut read = vec![0.0; width];
                assert!(codec.decode(&alone, &mut read));
                // The largest number is 2000.
                let close = |(one, other): (&f32, &f32)| (one - other).abs() <= 2000.0 / 250.0;
                assert!(row.iter().zip(&read).all(close), "{wire:?} {width}");
                assert_eq!(row == read, wire == RowFormat::F32, "{wire:?} {width}");
            }
        }
    }

    #[test]
    fn numbers_that_cannot_be_written_are_noticed_at_both_ends() {
        for (wire, largest) in
            [(RowFormat::F32, f32::MAX), (RowFormat::F16, 65504.0), (RowFormat::Int8, 65504.0 * 127.0)]
        {
            let (codec, mut bytes) = (Codec::new(wire, 32), Vec::new());
            let mut row = vec![1.0; 32];
            row[9] = largest;
            codec.encode(&row, &mut bytes).expect("it can be written");
            assert!(codec.decode(&bytes, &mut row.clone()));
            for wrong in [f32::NAN, f32::INFINITY, -2.0 * largest] {
                row[9] = wrong;
                let problem = codec.encode(&row, &mut bytes).expect_err("it cannot be written");
                assert!(problem.contains("--wire f32"), "{problem}");
            }
            let nonsense = vec![0xff; codec.row_bytes()];
            assert!(!codec.decode(&nonsense, &mut row), "{wire:?}");
        }
    }
}
