//! Activations of one step: float rows and, on demand, their int8 forms that quantised weights multiply with.

use std::ops::Range;

use crate::precision::{ActivationPrecision, quantize_terms};
use crate::product::MOST_ROWS_PER_TASK;
use crate::{Ops, Pool};

/// Products of both terms that a thread keeps before it adds them: those of as many columns as share unpacked weights,
/// for the longest tile.
const SUMMANDS: usize = 258 * MOST_ROWS_PER_TASK;

/// So many numbers are quantised sooner than threads can be called.
const FEW_NUMBERS: usize = 4096;

/// The form of the activations that a weight format multiplies with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActivationForm {
    /// As they are.
    Float,
    /// Signed bytes with one scale per 32 numbers.
    Blocks32,
    /// Signed bytes with one scale per 256 numbers.
    Blocks256,
}

/// 32 activations as signed bytes: value ≈ scale × byte.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Int8Block32 {
    /// The bytes, within ±127.
    pub values: [i8; 32],
    /// What a byte is worth.
    pub scale: f32,
    /// Sum of the bytes, for formats with an offset.
    pub sum: i32,
}

/// 256 activations as signed bytes: value ≈ scale × byte.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C, align(64))]
pub struct Int8Block256 {
    /// The bytes, within ±127.
    pub values: [i8; 256],
    /// Sums of sixteen bytes each, for formats with an offset.
    pub sums: [i16; 16],
    /// Sums of thirty-two bytes each.
    pub wide_sums: [i16; 8],
    /// What a byte is worth.
    pub scale: f32,
}

impl Int8Block32 {
    /// Thirty-two zeros.
    pub const ZERO: Self = Int8Block32 { values: [0; 32], scale: 0.0, sum: 0 };

    /// The four bytes from `at` on, for kernels that give a lane four columns.
    #[inline]
    pub(crate) fn four(&self, at: usize) -> &[i8; 4] {
        self.values[at..].first_chunk().expect("four bytes of a block")
    }

    /// The same as one word.
    #[cfg(target_arch = "x86_64")]
    #[inline]
    pub(crate) fn four_bytes(&self, at: usize) -> i32 {
        i32::from_le_bytes(std::array::from_fn(|byte| self.values[at + byte] as u8))
    }
}

impl Int8Block256 {
    /// Two hundred and fifty-six zeros.
    pub const ZERO: Self = Int8Block256 { values: [0; 256], sums: [0; 16], wide_sums: [0; 8], scale: 0.0 };

    /// The four bytes from `at` on, for kernels that give a lane four columns.
    #[inline]
    pub(crate) fn four(&self, at: usize) -> &[i8; 4] {
        self.values[at..].first_chunk().expect("four bytes of a block")
    }

    /// The same as one word.
    #[cfg(target_arch = "x86_64")]
    #[inline]
    pub(crate) fn four_bytes(&self, at: usize) -> i32 {
        i32::from_le_bytes(std::array::from_fn(|byte| self.values[at + byte] as u8))
    }

    /// Two neighbouring sums of sixteen.
    #[inline]
    pub(crate) fn narrow_pair(&self, pair: usize) -> &[i16; 2] {
        &self.sums.as_chunks().0[pair]
    }

    /// The same as one word.
    #[cfg(target_arch = "x86_64")]
    #[inline]
    pub(crate) fn sum_pair(&self, pair: usize) -> i32 {
        // In this form the compiler sees a single load.
        i32::from(self.sums[2 * pair] as u16) | i32::from(self.sums[2 * pair + 1]) << 16
    }

    /// Two neighbouring sums of thirty-two.
    #[inline]
    pub(crate) fn wide_pair(&self, pair: usize) -> &[i16; 2] {
        &self.wide_sums.as_chunks().0[pair]
    }
}

/// Borrowed rows of numbers or blocks, all of one length.
pub struct Rows<'a, T> {
    values: &'a [T],
    length: usize,
}

impl<'a, T> Rows<'a, T> {
    /// Rows of `length` values each.
    pub fn new(values: &'a [T], length: usize) -> Self {
        assert!(length > 0 && values.len().is_multiple_of(length), "whole rows");
        Rows { values, length }
    }

    /// How many rows.
    pub fn count(&self) -> usize {
        self.values.len() / self.length
    }

    /// Values in a row.
    pub fn length(&self) -> usize {
        self.length
    }

    /// One row.
    pub fn row(&self, row: usize) -> &'a [T] {
        &self.values[row * self.length..(row + 1) * self.length]
    }

    /// Some of the rows.
    pub fn part(&self, rows: Range<usize>) -> Rows<'a, T> {
        Rows { values: &self.values[rows.start * self.length..rows.end * self.length], length: self.length }
    }
}

impl<T> Clone for Rows<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Rows<'_, T> {}

/// Rows of numbers to be multiplied with matrices. Quantised at most once per form, however many matrices read them.
pub struct Activations {
    precision: ActivationPrecision,
    rows: usize,
    width: usize,
    /// The rows, and behind them what is left of larger sets: room that is not cleared again.
    values: Vec<f32>,
    /// The terms of every row, one after the other, once they were made.
    blocks32: Prepared<Int8Block32>,
    blocks256: Prepared<Int8Block256>,
    /// Per thread, room for the products of the terms of some rows; none where rows have one term.
    summands: Vec<Vec<f32>>,
}

/// Blocks of the present rows if they are made, and room for more.
struct Prepared<T> {
    blocks: Vec<T>,
    /// How many blocks the rows have; none before they are made.
    made: usize,
}

impl Activations {
    /// Reserves room for `rows × width` numbers as bytes, so that steps up to that size allocate nothing.
    pub fn with_capacity(rows: usize, width: usize) -> Activations {
        let numbers = rows * width;
        Activations {
            precision: ActivationPrecision::Int8,
            rows: 0,
            width: 1,
            values: Vec::with_capacity(numbers),
            blocks32: Prepared::with_capacity(numbers / 32),
            blocks256: Prepared::with_capacity(numbers / 256),
            summands: Vec::new(),
        }
    }

    /// The same with another precision, for `threads` threads.
    pub fn with_precision(self, precision: ActivationPrecision, threads: usize) -> Activations {
        let (numbers, terms) = (self.values.capacity(), precision.terms());
        let summands = if terms > 1 && numbers > 0 { SUMMANDS } else { 0 };
        Activations {
            precision,
            blocks32: Prepared::with_capacity(terms * numbers / 32),
            blocks256: Prepared::with_capacity(terms * numbers / 256),
            summands: vec![vec![0.0; summands]; threads],
            ..self
        }
    }

    /// Starts a new set of rows and returns them to be written.
    pub fn reset(&mut self, rows: usize, width: usize) -> &mut [f32] {
        (self.rows, self.width) = (rows, width);
        (self.blocks32.made, self.blocks256.made) = (0, 0);
        room(&mut self.values, rows * width, 0.0)
    }

    /// How many rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The rows as floats.
    pub fn float(&self) -> Rows<'_, f32> {
        Rows::new(&self.values[..self.rows * self.width], self.width)
    }

    /// Terms of every row in this form.
    pub(crate) fn terms(&self, form: ActivationForm) -> usize {
        if form == ActivationForm::Float { 1 } else { self.precision.terms() }
    }

    /// The terms of the rows as blocks of 32, made by `prepare`.
    pub fn blocks32(&self) -> Rows<'_, Int8Block32> {
        self.blocks32.rows(32, self.precision.terms() * self.rows, self.width)
    }

    /// The terms of the rows as blocks of 256, made by `prepare`.
    pub fn blocks256(&self) -> Rows<'_, Int8Block256> {
        self.blocks256.rows(256, self.precision.terms() * self.rows, self.width)
    }

    /// Makes sure that `form` exists.
    pub fn prepare(&mut self, form: ActivationForm, ops: &Ops, pool: &Pool) {
        let (width, terms) = (self.width, self.precision.terms());
        let values = &self.values[..self.rows * width];
        let source = |row: usize| &values[row * width..(row + 1) * width];
        let share = Some(pool).filter(|_| values.len() > FEW_NUMBERS);
        match form {
            ActivationForm::Blocks32 if self.blocks32.made == 0 => {
                assert!(width.is_multiple_of(32), "rows of whole blocks");
                let blocks = self.blocks32.begin(terms * values.len() / 32, Int8Block32::ZERO);
                each_row(blocks, terms * width / 32, share, |row, out| {
                    quantize_terms(source(row), 32, out, |row, out| ops.products.quantize_blocks32(row, out));
                });
            }
            ActivationForm::Blocks256 if self.blocks256.made == 0 => {
                assert!(width.is_multiple_of(256), "rows of whole blocks");
                let blocks = self.blocks256.begin(terms * values.len() / 256, Int8Block256::ZERO);
                each_row(blocks, terms * width / 256, share, |row, out| {
                    quantize_terms(source(row), 256, out, |row, out| ops.products.quantize_blocks256(row, out));
                });
            }
            _ => {}
        }
    }

    /// Lends each of `threads` threads its room for summands while the rows are read.
    pub(crate) fn with_summands(&mut self, threads: usize, work: impl FnOnce(&Activations, &mut [Vec<f32>])) {
        let mut summands = std::mem::take(&mut self.summands);
        summands.resize_with(threads.max(summands.len()), Vec::new);
        work(self, &mut summands);
        self.summands = summands;
    }
}

impl<T: Copy> Prepared<T> {
    fn with_capacity(blocks: usize) -> Prepared<T> {
        Prepared { blocks: Vec::with_capacity(blocks), made: 0 }
    }

    /// So many blocks, to be written.
    fn begin(&mut self, count: usize, zero: T) -> &mut [T] {
        self.made = count;
        room(&mut self.blocks, count, zero)
    }

    /// The blocks of `count` rows of `width` numbers.
    fn rows(&self, numbers: usize, count: usize, width: usize) -> Rows<'_, T> {
        assert_eq!(self.made * numbers, count * width, "prepare() comes first");
        Rows::new(&self.blocks[..self.made], width / numbers)
    }
}

/// The first `count` values, whatever they are.
fn room<T: Copy>(values: &mut Vec<T>, count: usize, zero: T) -> &mut [T] {
    values.resize(values.len().max(count), zero);
    &mut values[..count]
}

/// Fills rows of `length` values, on the threads of a pool if there is one.
fn each_row<T: Send>(out: &mut [T], length: usize, pool: Option<&Pool>, fill: impl Fn(usize, &mut [T]) + Sync) {
    match pool {
        Some(pool) => pool.chunks(out, length, |_, row, out| fill(row, out)),
        None => out.chunks_mut(length).enumerate().for_each(|(row, out)| fill(row, out)),
    }
}
