//! Products of weight rows with activations, and the quantising of activations for them.
#![expect(unsafe_code, reason = "kernels compiled for an instruction set may only be called where the CPU has it")]

use std::ops::Range;

use crate::Dtype;
use crate::activations::{Int8Block32, Int8Block256, Rows};
use crate::layout::{GROUP_ROWS, group_bytes};
use crate::pool::TileMut;
use crate::reading::ReadAhead;
use crate::runs::{FourRuns, STREAMS};

/// Some rows of a weight matrix, whose rows lie one after the other.
#[derive(Clone, Copy)]
pub struct WeightRows<'a> {
    /// The bytes of the whole matrix.
    pub bytes: &'a [u8],
    /// Bytes of one row.
    pub row_bytes: usize,
    /// Which rows.
    pub runs: FourRuns,
    /// How far ahead of what is multiplied memory is asked for more.
    pub ahead: ReadAhead,
}

impl<'a> WeightRows<'a> {
    /// Rows of each run.
    #[inline]
    pub fn fours(&self) -> usize {
        self.runs.fours()
    }

    /// The bytes of row `at` of each run; where a run has no such row, those of the last there is.
    #[inline]
    pub fn four(&self, at: usize) -> [&'a [u8]; STREAMS] {
        let [a, b, c, d] = self.runs.four(at);
        [self.bytes_of(a), self.bytes_of(b), self.bytes_of(c), self.bytes_of(d)]
    }

    /// How many rows, where they are neighbours.
    pub fn count(&self) -> usize {
        self.neighbours().len()
    }

    /// The bytes of one of neighbouring rows, counted from the first.
    pub fn row(&self, row: usize) -> &'a [u8] {
        self.bytes_of(self.neighbours().start + row)
    }

    /// The bytes of `count` of neighbouring rows, from one on.
    pub fn rows_from(&self, row: usize, count: usize) -> &'a [u8] {
        let first = self.neighbours().start + row;
        &self.bytes[first * self.row_bytes..(first + count) * self.row_bytes]
    }

    #[inline]
    fn bytes_of(&self, row: usize) -> &'a [u8] {
        &self.bytes[row * self.row_bytes..(row + 1) * self.row_bytes]
    }

    fn neighbours(&self) -> Range<usize> {
        self.runs.as_range().expect("a kernel for many columns gets neighbouring rows")
    }
}

/// Groups of sixteen interleaved weight rows, one group after the other.
#[derive(Clone, Copy)]
pub struct InterleavedRows<'a> {
    /// The bytes of all groups.
    pub bytes: &'a [u8],
    /// Bytes of one group.
    pub group_bytes: usize,
    /// How far ahead of what is multiplied memory is asked for more.
    pub ahead: ReadAhead,
}

impl<'a> InterleavedRows<'a> {
    /// How many groups.
    pub fn count(&self) -> usize {
        self.bytes.len() / self.group_bytes
    }

    /// The bytes of one group.
    pub fn group(&self, group: usize) -> &'a [u8] {
        &self.bytes[group * self.group_bytes..(group + 1) * self.group_bytes]
    }
}

/// Weight rows · columns of x; the rows of the output are the columns of x.
pub(crate) type Multiply<T> = unsafe fn(WeightRows<'_>, Rows<'_, T>, &mut TileMut<'_>);

/// Like [`Multiply`], for interleaved rows.
pub(crate) type MultiplyInterleaved<T> = unsafe fn(InterleavedRows<'_>, Rows<'_, T>, &mut TileMut<'_>);

/// Matrix products of one instruction set.
pub struct ProductOps {
    pub(crate) multiply_f32: Multiply<f32>,
    pub(crate) multiply_f16: Multiply<f32>,
    pub(crate) multiply_bf16: Multiply<f32>,
    pub(crate) multiply_f8: Multiply<f32>,
    pub(crate) multiply_q8_0: Multiply<Int8Block32>,
    pub(crate) multiply_q4_0: Multiply<Int8Block32>,
    pub(crate) multiply_q4_k: Multiply<Int8Block256>,
    pub(crate) multiply_q5_k: Multiply<Int8Block256>,
    pub(crate) multiply_q6_k: Multiply<Int8Block256>,
    /// The kernel of any other format with runs of 32.
    pub(crate) kernel32: fn(Dtype) -> Multiply<Int8Block32>,
    /// The kernel of any other format with blocks of 256.
    pub(crate) kernel256: fn(Dtype) -> Multiply<Int8Block256>,
    pub(crate) interleaved_q8_0: MultiplyInterleaved<Int8Block32>,
    pub(crate) interleaved_q4_0: MultiplyInterleaved<Int8Block32>,
    pub(crate) interleaved_int4: MultiplyInterleaved<Int8Block32>,
    pub(crate) interleaved_q4_k: MultiplyInterleaved<Int8Block256>,
    pub(crate) interleaved_q5_k: MultiplyInterleaved<Int8Block256>,
    pub(crate) interleaved_q6_k: MultiplyInterleaved<Int8Block256>,
    pub(crate) quantize_blocks32: unsafe fn(&[f32], &mut [Int8Block32]),
    pub(crate) quantize_blocks256: unsafe fn(&[f32], &mut [Int8Block256]),
}

impl ProductOps {
    /// Multiplies float weights of `dtype`.
    pub fn multiply_float(&self, dtype: Dtype, weights: WeightRows<'_>, x: Rows<'_, f32>, out: &mut TileMut<'_>) {
        let kernel = match dtype {
            Dtype::F32 => self.multiply_f32,
            Dtype::F16 => self.multiply_f16,
            Dtype::BF16 => self.multiply_bf16,
            Dtype::F8_E4M3 => self.multiply_f8,
            _ => unreachable!("{dtype} is no float format"),
        };
        check_shapes(dtype, weights, x.length(), out);
        // SAFETY: a table is reachable only through `Ops::available`, which has checked the CPU.
        unsafe { kernel(weights, x, out) }
    }

    /// Multiplies weights of a format whose numbers come in runs of 32, with activations in blocks of 32.
    pub fn multiply_blocks32(
        &self,
        dtype: Dtype,
        weights: WeightRows<'_>,
        x: Rows<'_, Int8Block32>,
        out: &mut TileMut<'_>,
    ) {
        let kernel = match dtype {
            Dtype::Q8_0 => self.multiply_q8_0,
            Dtype::Q4_0 => self.multiply_q4_0,
            _ => (self.kernel32)(dtype),
        };
        check_shapes(dtype, weights, x.length() * 32, out);
        // SAFETY: a table is reachable only through `Ops::available`, which has checked the CPU.
        unsafe { kernel(weights, x, out) }
    }

    /// Multiplies weights of a format with blocks of 256.
    pub fn multiply_blocks256(
        &self,
        dtype: Dtype,
        weights: WeightRows<'_>,
        x: Rows<'_, Int8Block256>,
        out: &mut TileMut<'_>,
    ) {
        let kernel = match dtype {
            Dtype::Q4_K => self.multiply_q4_k,
            Dtype::Q5_K => self.multiply_q5_k,
            Dtype::Q6_K => self.multiply_q6_k,
            _ => (self.kernel256)(dtype),
        };
        check_shapes(dtype, weights, x.length() * 256, out);
        // SAFETY: a table is reachable only through `Ops::available`, which has checked the CPU.
        unsafe { kernel(weights, x, out) }
    }

    /// Multiplies interleaved weights of a format with blocks of 32.
    pub fn multiply_interleaved32(
        &self,
        dtype: Dtype,
        weights: InterleavedRows<'_>,
        x: Rows<'_, Int8Block32>,
        out: &mut TileMut<'_>,
    ) {
        let kernel = match dtype {
            Dtype::Q8_0 => self.interleaved_q8_0,
            Dtype::Q4_0 => self.interleaved_q4_0,
            Dtype::Int4Group128 => self.interleaved_int4,
            _ => unreachable!("{dtype} has no interleaved blocks of 32"),
        };
        check_groups(dtype, weights, x.length() * 32, out);
        // SAFETY: a table is reachable only through `Ops::available`, which has checked the CPU.
        unsafe { kernel(weights, x, out) }
    }

    /// Multiplies interleaved weights of a format with blocks of 256.
    pub fn multiply_interleaved256(
        &self,
        dtype: Dtype,
        weights: InterleavedRows<'_>,
        x: Rows<'_, Int8Block256>,
        out: &mut TileMut<'_>,
    ) {
        let kernel = match dtype {
            Dtype::Q4_K => self.interleaved_q4_k,
            Dtype::Q5_K => self.interleaved_q5_k,
            Dtype::Q6_K => self.interleaved_q6_k,
            _ => unreachable!("{dtype} has no interleaved blocks of 256"),
        };
        check_groups(dtype, weights, x.length() * 256, out);
        // SAFETY: a table is reachable only through `Ops::available`, which has checked the CPU.
        unsafe { kernel(weights, x, out) }
    }

    /// Quantises a row to int8 blocks of 32.
    pub fn quantize_blocks32(&self, row: &[f32], out: &mut [Int8Block32]) {
        assert_eq!(row.len(), out.len() * 32);
        // SAFETY: a table is reachable only through `Ops::available`, which has checked the CPU.
        unsafe { (self.quantize_blocks32)(row, out) }
    }

    /// Quantises a row to int8 blocks of 256.
    pub fn quantize_blocks256(&self, row: &[f32], out: &mut [Int8Block256]) {
        assert_eq!(row.len(), out.len() * 256);
        // SAFETY: a table is reachable only through `Ops::available`, which has checked the CPU.
        unsafe { (self.quantize_blocks256)(row, out) }
    }
}

fn check_shapes(dtype: Dtype, weights: WeightRows<'_>, columns: usize, out: &TileMut<'_>) {
    assert_eq!(dtype.row_bytes(columns as u64), Some(weights.row_bytes as u64), "weights and activations of one width");
    assert_eq!(weights.runs, out.columns(), "one output column per weight row");
}

fn check_groups(dtype: Dtype, weights: InterleavedRows<'_>, columns: usize, out: &TileMut<'_>) {
    assert_eq!(
        group_bytes(dtype, columns as u64),
        Some(weights.group_bytes as u64),
        "weights and activations of one width"
    );
    assert_eq!(weights.count(), out.width().div_ceil(GROUP_ROWS), "one output column per weight row");
}
