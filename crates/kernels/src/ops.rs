//! The table of low-level kernels for one instruction set, chosen once at start.
//!
//! Every table gives the same bits: a kernel is a fixed sequence of exactly rounded operations (integer sums inside a
//! block, then one fused multiply-add per block in block order; float sums over sixteen lanes with a fixed reduction).
//! The scalar table is that specification in plain Rust; the others are only faster.
#![expect(unsafe_code, reason = "kernels compiled for an instruction set may only be called where the CPU has it")]

use std::ops::Range;

use crate::activations::{Int8Block32, Int8Block256, Rows};
use crate::cached_rows::{CachedRows, Keys, Values};
use crate::layout::{GROUP_ROWS, group_bytes};
use crate::pool::TileMut;
use crate::{Activation, Dtype, scalar};

/// Rows of a weight matrix as they lie in the file, one after the other.
#[derive(Clone, Copy)]
pub struct WeightRows<'a> {
    /// The bytes of all rows.
    pub bytes: &'a [u8],
    /// Bytes of one row.
    pub row_bytes: usize,
}

impl<'a> WeightRows<'a> {
    /// How many rows.
    pub fn count(&self) -> usize {
        self.bytes.len() / self.row_bytes
    }

    /// The bytes of one row.
    pub fn row(&self, row: usize) -> &'a [u8] {
        &self.bytes[row * self.row_bytes..(row + 1) * self.row_bytes]
    }
}

/// Groups of sixteen interleaved weight rows, one group after the other.
#[derive(Clone, Copy)]
pub struct InterleavedRows<'a> {
    /// The bytes of all groups.
    pub bytes: &'a [u8],
    /// Bytes of one group.
    pub group_bytes: usize,
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

/// Row, weight and bias, epsilon, result.
type LayerNorm = unsafe fn(&[f32], (&[f32], &[f32]), f32, &mut [f32]);

/// Like [`Multiply`], for interleaved rows.
pub(crate) type MultiplyInterleaved<T> = unsafe fn(InterleavedRows<'_>, Rows<'_, T>, &mut TileMut<'_>);

/// Kernels of one instruction set. `Ops::available()` lists those that this CPU can run.
pub struct Ops {
    pub(crate) name: &'static str,
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
    pub(crate) rms_norm: unsafe fn(&[f32], &[f32], f32, &mut [f32]),
    pub(crate) add: unsafe fn(&[f32], &mut [f32]),
    pub(crate) layer_norm: LayerNorm,
    pub(crate) activate: unsafe fn(Activation, &mut [f32]),
    pub(crate) activate_multiply: unsafe fn(Activation, &[f32], &mut [f32]),
    pub(crate) soft_cap: unsafe fn(f32, &mut [f32]),
    pub(crate) cut_below: unsafe fn(f32, &mut [f32]),
    pub(crate) match_magnitude: unsafe fn(&[f32], f32, &mut [f32]),
    pub(crate) exp_weights: unsafe fn(&mut [f32], f32) -> f32,
    pub(crate) scores_f32: unsafe fn(&[f32], Keys<'_, f32>, &mut [f32], usize),
    pub(crate) scores_f16: unsafe fn(&[f32], Keys<'_, u16>, &mut [f32], usize),
    pub(crate) mix_f32: unsafe fn(&[f32], usize, Values<'_, f32>, &mut [f32]),
    pub(crate) mix_f16: unsafe fn(&[f32], usize, Values<'_, u16>, &mut [f32]),
    pub(crate) to_f16: unsafe fn(&[f32], &mut [u16]),
    pub(crate) peak_int8: unsafe fn(usize) -> u64,
    pub(crate) peak_float: unsafe fn(usize) -> u64,
    pub(crate) read: unsafe fn(&[u8]) -> u64,
}

impl Ops {
    /// The tables this CPU can run, best first; the last one is the scalar specification.
    pub fn available() -> Vec<&'static Ops> {
        let mut tables = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 =
                is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c");
            let avx512 = is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512vnni");
            if avx2 && avx512 {
                tables.push(&crate::avx512::OPS);
            }
            if avx2 && is_x86_feature_detected!("avxvnni") {
                tables.push(&crate::avx_vnni::OPS);
            }
            if avx2 {
                tables.push(&crate::avx2::OPS);
            }
        }
        #[cfg(target_arch = "aarch64")]
        if std::arch::is_aarch64_feature_detected!("neon") {
            if std::arch::is_aarch64_feature_detected!("dotprod") {
                tables.push(&crate::neon::OPS);
            }
            tables.push(&crate::neon::FLOAT_OPS);
        }
        tables.push(&scalar::OPS);
        tables
    }

    /// The best table for this CPU.
    pub fn best() -> &'static Ops {
        Ops::available()[0]
    }

    /// Name of the instruction set.
    pub fn name(&self) -> &'static str {
        self.name
    }

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
        // SAFETY: a table is reachable only through `available`, which has checked the CPU.
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
        // SAFETY: as above.
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
        // SAFETY: as above.
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
        // SAFETY: as above.
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
        // SAFETY: as above.
        unsafe { kernel(weights, x, out) }
    }

    /// Quantises a row to int8 blocks of 32.
    pub fn quantize_blocks32(&self, row: &[f32], out: &mut [Int8Block32]) {
        assert_eq!(row.len(), out.len() * 32);
        // SAFETY: as above.
        unsafe { (self.quantize_blocks32)(row, out) }
    }

    /// Quantises a row to int8 blocks of 256.
    pub fn quantize_blocks256(&self, row: &[f32], out: &mut [Int8Block256]) {
        assert_eq!(row.len(), out.len() * 256);
        // SAFETY: as above.
        unsafe { (self.quantize_blocks256)(row, out) }
    }

    /// out = row / root-mean-square(row) × weight.
    pub fn rms_norm(&self, row: &[f32], weight: &[f32], epsilon: f32, out: &mut [f32]) {
        assert!(row.len() == weight.len() && row.len() == out.len());
        // SAFETY: as above.
        unsafe { (self.rms_norm)(row, weight, epsilon, out) }
    }

    /// out += row.
    pub fn add(&self, row: &[f32], out: &mut [f32]) {
        assert_eq!(row.len(), out.len());
        // SAFETY: as above.
        unsafe { (self.add)(row, out) }
    }

    /// out = (row − mean) / standard deviation × weight + bias.
    pub fn layer_norm(&self, row: &[f32], (weight, bias): (&[f32], &[f32]), epsilon: f32, out: &mut [f32]) {
        assert!([weight.len(), bias.len(), out.len()] == [row.len(); 3]);
        // SAFETY: as above.
        unsafe { (self.layer_norm)(row, (weight, bias), epsilon, out) }
    }

    /// values = activation(values).
    pub fn activate(&self, activation: Activation, values: &mut [f32]) {
        // SAFETY: as above.
        unsafe { (self.activate)(activation, values) }
    }

    /// out = activation(gate) × out.
    pub fn activate_multiply(&self, activation: Activation, gate: &[f32], out: &mut [f32]) {
        assert_eq!(gate.len(), out.len());
        // SAFETY: as above.
        unsafe { (self.activate_multiply)(activation, gate, out) }
    }

    /// values = cap × tanh(values / cap).
    pub fn soft_cap(&self, cap: f32, values: &mut [f32]) {
        // SAFETY: as above.
        unsafe { (self.soft_cap)(cap, values) }
    }

    /// values = what they exceed their mean plus so many standard deviations by, zero where they do not.
    pub fn cut_below(&self, deviations: f32, values: &mut [f32]) {
        // SAFETY: as above.
        unsafe { (self.cut_below)(deviations, values) }
    }

    /// Scales `values` to the mean square that `like` has. Their own counts as no less than `least`.
    pub fn match_magnitude(&self, like: &[f32], least: f32, values: &mut [f32]) {
        // SAFETY: as above.
        unsafe { (self.match_magnitude)(like, least, values) }
    }

    /// Replaces scores by exp(score − greatest score) and returns their sum. `sink` is one more score, which counts
    /// in both; minus infinity where there is none.
    pub fn exp_weights(&self, scores: &mut [f32], sink: f32) -> f32 {
        // SAFETY: as above.
        unsafe { (self.exp_weights)(scores, sink) }
    }

    /// Query · key for every query row and wanted token of a page of `page_tokens` keys, stored at `query × stride + token`
    /// and counted from the first wanted one. What is read next lies `ahead` bytes after the page.
    pub(crate) fn scores(
        &self,
        queries: &[f32],
        (keys, ahead): (CachedRows<'_>, usize),
        (page_tokens, tokens): (usize, Range<usize>),
        (scores, stride): (&mut [f32], usize),
    ) {
        let count = queries.len() / (keys.len() / page_tokens);
        assert!(page_tokens.is_multiple_of(16) && tokens.start < tokens.end && tokens.end <= page_tokens && count > 0);
        assert!(scores.len() >= (count - 1) * stride + tokens.len());
        // SAFETY: as above.
        match keys {
            CachedRows::F32(numbers) => unsafe {
                (self.scores_f32)(queries, Keys { numbers, page_tokens, tokens, ahead }, scores, stride)
            },
            CachedRows::F16(numbers) => unsafe {
                (self.scores_f16)(queries, Keys { numbers, page_tokens, tokens, ahead }, scores, stride)
            },
        }
    }

    /// Adds `weights × values`, in key order, to every query of `out`: the weight of a key for a query lies at
    /// `query × stride + key`.
    pub fn mix(&self, weights: &[f32], stride: usize, values: CachedRows<'_>, head: usize, out: &mut [f32]) {
        self.mix_page((weights, stride), (values, head, 0), out);
    }

    /// The same where what is read next lies `ahead` bytes after the values.
    pub(crate) fn mix_page(
        &self,
        (weights, stride): (&[f32], usize),
        (values, head, ahead): (CachedRows<'_>, usize, usize),
        out: &mut [f32],
    ) {
        let (count, keys) = (out.len() / head, values.len() / head);
        assert!(count > 0 && keys > 0 && weights.len() >= (count - 1) * stride + keys);
        // SAFETY: as above.
        unsafe {
            match values {
                CachedRows::F32(numbers) => (self.mix_f32)(weights, stride, Values { numbers, head, ahead }, out),
                CachedRows::F16(numbers) => (self.mix_f16)(weights, stride, Values { numbers, head, ahead }, out),
            }
        }
    }

    /// Rounds floats to half precision, as bits.
    pub fn to_f16(&self, row: &[f32], out: &mut [u16]) {
        assert_eq!(row.len(), out.len());
        // SAFETY: as above.
        unsafe { (self.to_f16)(row, out) }
    }

    /// Multiplies and adds bytes in registers for `rounds` rounds; returns how many operations that were.
    pub(crate) fn peak_int8(&self, rounds: usize) -> u64 {
        // SAFETY: as above.
        unsafe { (self.peak_int8)(rounds) }
    }

    /// Multiplies and adds floats in registers for `rounds` rounds; returns how many operations that were.
    pub(crate) fn peak_float(&self, rounds: usize) -> u64 {
        // SAFETY: as above.
        unsafe { (self.peak_float)(rounds) }
    }

    /// Reads every byte and returns a sum that nobody needs.
    pub(crate) fn read(&self, bytes: &[u8]) -> u64 {
        // SAFETY: as above.
        unsafe { (self.read)(bytes) }
    }
}

fn check_shapes(dtype: Dtype, weights: WeightRows<'_>, columns: usize, out: &TileMut<'_>) {
    assert_eq!(dtype.row_bytes(columns as u64), Some(weights.row_bytes as u64), "weights and activations of one width");
    assert_eq!(weights.count(), out.columns().len(), "one output column per weight row");
}

fn check_groups(dtype: Dtype, weights: InterleavedRows<'_>, columns: usize, out: &TileMut<'_>) {
    assert_eq!(
        group_bytes(dtype, columns as u64),
        Some(weights.group_bytes as u64),
        "weights and activations of one width"
    );
    assert_eq!(weights.count(), out.columns().len().div_ceil(GROUP_ROWS), "one output column per weight row");
}
