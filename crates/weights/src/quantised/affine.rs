//! Weights that are scale × (code − zero): which of our formats holds them exactly, and how they get there.

use cascadia_kernels::Dtype;
use half::f16;

use super::codes::Codes;
use super::floats;
use super::scales::{Groups, Scales};
use crate::made::Recipe;

/// Rows that are unpacked at a time: enough to read whole cache lines where a file has columns side by side.
const TILE_ROWS: usize = 64;

/// A matrix of codes with a scale and a zero point per row and group of columns.
#[derive(Clone, Debug)]
pub(super) struct Affine {
    pub(super) codes: Codes,
    pub(super) zeros: Zeros,
    pub(super) scales: Scales,
    pub(super) groups: Groups,
}

/// Which code stands for zero.
#[derive(Clone, Debug)]
pub(super) enum Zeros {
    /// The middle of the range: 8 of 4 bits, 128 of 8 bits.
    Middle,
    /// One per row and group; the stored number plus `offset`, without carry, is the zero point.
    Stored { codes: Codes, offset: u8 },
}

/// Block formats and what they can hold, best first.
const BLOCKS: [Block; 4] = [
    Block { dtype: Dtype::Int4Group128, bits: 4, any_zero: false },
    Block { dtype: Dtype::Q4_0, bits: 4, any_zero: false },
    Block { dtype: Dtype::Int4Zero32, bits: 4, any_zero: true },
    Block { dtype: Dtype::Q8_0, bits: 8, any_zero: false },
];

struct Block {
    dtype: Dtype,
    bits: u32,
    any_zero: bool,
}

/// A weight with the format that was chosen for it.
#[derive(Debug)]
pub(super) struct AffineRecipe {
    weight: Affine,
    pub(super) dtype: Dtype,
}

impl AffineRecipe {
    /// Chooses the format.
    pub(super) fn new(weight: Affine) -> AffineRecipe {
        let (bits, columns) = (weight.codes.word.bits(), weight.codes.columns);
        let symmetric = weight.is_symmetric();
        let holds = |block: &&Block| {
            block.bits == bits
                && (block.any_zero || symmetric)
                && weight.groups.suit_blocks(block.dtype.block_elements(), columns)
        };
        let block = BLOCKS.iter().find(holds).filter(|_| weight.scales.fit_f16());
        let dtype = block.map_or_else(|| weight.narrowest_float(symmetric), |block| block.dtype);
        AffineRecipe { weight, dtype }
    }

    fn push_row(&self, row: usize, codes: &[u8], zeros: &[u8], out: &mut Vec<u8>) {
        let Affine { scales, groups, .. } = &self.weight;
        if self.dtype.is_float() {
            for (column, &code) in codes.iter().enumerate() {
                let group = groups.of(column);
                let steps = i32::from(code) - i32::from(zeros[group]);
                floats::push(self.dtype, scales.at(row, group) * steps as f32, out);
            }
            return;
        }
        let length = self.dtype.block_elements();
        for (index, block) in codes.chunks_exact(length).enumerate() {
            let group = groups.of(index * length);
            out.extend(f16::from_f32(scales.at(row, group)).to_le_bytes());
            match self.dtype {
                Dtype::Q8_0 => out.extend(block.iter().map(|code| code ^ 0x80)),
                Dtype::Int4Zero32 => {
                    out.extend([zeros[group], 0]);
                    push_nibbles(block, out);
                }
                _ => push_nibbles(block, out),
            }
        }
    }
}

impl Recipe for AffineRecipe {
    fn build(&self) -> Vec<u8> {
        let Affine { codes, scales, .. } = &self.weight;
        let row_bytes = self.dtype.row_bytes(codes.columns as u64).expect("the format suits the columns") as usize;
        let mut out = Vec::with_capacity(codes.rows * row_bytes);
        let mut unpacked = vec![0; TILE_ROWS * codes.columns];
        let mut zeros = vec![0; TILE_ROWS * scales.groups()];
        for start in (0..codes.rows).step_by(TILE_ROWS) {
            let rows = start..codes.rows.min(start + TILE_ROWS);
            codes.unpack(rows.clone(), &mut unpacked);
            self.weight.unpack_zeros(rows.clone(), &mut zeros);
            let rows = rows.zip(unpacked.chunks_exact(codes.columns).zip(zeros.chunks_exact(scales.groups())));
            rows.for_each(|(row, (codes, zeros))| self.push_row(row, codes, zeros, &mut out));
        }
        out
    }
}

impl Affine {
    fn middle(&self) -> u8 {
        1 << (self.codes.word.bits() - 1)
    }

    fn unpack_zeros(&self, rows: std::ops::Range<usize>, out: &mut [u8]) {
        match &self.zeros {
            Zeros::Middle => out.fill(self.middle()),
            Zeros::Stored { codes, offset } => {
                codes.unpack(rows, out);
                let mask = u8::MAX >> (8 - codes.word.bits());
                out.iter_mut().for_each(|zero| *zero = zero.wrapping_add(*offset) & mask);
            }
        }
    }

    /// Whether all zero points are in the middle.
    fn is_symmetric(&self) -> bool {
        let mut zeros = vec![0; self.scales.groups()];
        matches!(self.zeros, Zeros::Middle)
            || (0..self.codes.rows).all(|row| {
                self.unpack_zeros(row..row + 1, &mut zeros);
                zeros.iter().all(|&zero| zero == self.middle())
            })
    }

    /// The narrowest float format for every number that scales and codes could give.
    fn narrowest_float(&self, symmetric: bool) -> Dtype {
        let most = if symmetric { i32::from(self.middle()) } else { (1 << self.codes.word.bits()) - 1 };
        floats::narrowest(|| self.scales.iter().flat_map(|scale| (1..=most).map(move |steps| scale * steps as f32)))
    }
}

/// Two codes to a byte: in each run of 32 the low nibbles hold the first sixteen.
fn push_nibbles(codes: &[u8], out: &mut Vec<u8>) {
    for run in codes.as_chunks::<32>().0 {
        out.extend((0..16).map(|place| run[place] | run[place + 16] << 4));
    }
}
