//! How the rows of a matrix lie in memory: one after the other, or sixteen interleaved word by word.
//!
//! The interleaved layout is what vector kernels want to load: a register of sixteen 32-bit lanes holds the same word
//! of sixteen rows, so that a lane belongs to a row and no sum crosses lanes. It holds exactly the bits of the rows,
//! in another order; `docs/format.md` describes it byte by byte.

use std::fmt;

use crate::Dtype;
use crate::blocks::{int4_group128, q4_0, q6_k, q8_0};

/// Rows that are interleaved with each other.
pub(crate) const GROUP_ROWS: usize = 16;
/// Bytes of one word of each row of a group.
pub(crate) const GROUP_WORD: usize = 4 * GROUP_ROWS;
/// Bytes of one half-precision scale of each row of a group.
pub(crate) const GROUP_HALF: usize = 2 * GROUP_ROWS;
/// No block of a format that can be interleaved is longer.
const LONGEST_BLOCK: usize = 256;

/// The order of a matrix's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Layout {
    /// Row after row, as GGUF and safetensors files have them.
    Rows,
    /// Groups of sixteen rows, interleaved word by word.
    Interleaved,
}

/// How a block is cut up: words that are interleaved, and for some formats one half-precision scale.
#[derive(Clone, Copy)]
struct Cut {
    words_at: usize,
    words: usize,
    half_at: Option<usize>,
}

impl Layout {
    /// Bytes of a matrix; `None` when the rows are not whole blocks, the size overflows or the format has no such layout.
    pub fn matrix_bytes(self, dtype: Dtype, rows: u64, columns: u64) -> Option<u64> {
        match self {
            Layout::Rows => dtype.row_bytes(columns)?.checked_mul(rows),
            Layout::Interleaved => group_bytes(dtype, columns)?.checked_mul(rows.div_ceil(GROUP_ROWS as u64)),
        }
    }

    /// Whether matrices of `dtype` can lie this way.
    pub fn holds(self, dtype: Dtype) -> bool {
        self == Layout::Rows || cut(dtype).is_some()
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Layout::Rows => "rows",
            Layout::Interleaved => "interleaved",
        })
    }
}

/// Bytes of sixteen interleaved rows of `columns` numbers; `None` when there is no such thing.
pub(crate) fn group_bytes(dtype: Dtype, columns: u64) -> Option<u64> {
    let cut = cut(dtype)?;
    dtype.row_bytes(columns)?;
    let blocks = columns / dtype.block_elements() as u64;
    let words = blocks.checked_mul((cut.words * GROUP_WORD) as u64)?;
    let halves = cut.half_at.map_or(0, |_| blocks * GROUP_HALF as u64);
    words.checked_add(halves)?.checked_next_multiple_of(GROUP_WORD as u64)
}

/// Interleaves up to sixteen rows, which lie one after the other in `rows`; missing rows become zeros.
///
/// # Panics
/// When `dtype` cannot be interleaved or `out` is not one group of rows of `row_bytes`.
pub fn interleave(dtype: Dtype, row_bytes: usize, rows: &[u8], out: &mut [u8]) {
    let cut = cut(dtype).unwrap_or_else(|| unreachable!("{dtype} has no interleaved layout"));
    let blocks = row_bytes / dtype.block_bytes();
    let columns = (blocks * dtype.block_elements()) as u64;
    assert_eq!(group_bytes(dtype, columns), Some(out.len() as u64), "room for one group");
    assert!(rows.len().is_multiple_of(row_bytes) && rows.len() <= GROUP_ROWS * row_bytes, "at most sixteen whole rows");
    out.fill(0);
    for (row, bytes) in rows.chunks_exact(row_bytes).enumerate() {
        for (at, block) in bytes.chunks_exact(dtype.block_bytes()).enumerate() {
            for word in 0..cut.words {
                let place = word_place(cut, at, word, row);
                out[place..place + 4].copy_from_slice(&block[cut.words_at + 4 * word..][..4]);
            }
            if let Some(half_at) = cut.half_at {
                let place = half_place(cut, blocks, at, row);
                out[place..place + 2].copy_from_slice(&block[half_at..half_at + 2]);
            }
        }
    }
}

/// Calls `visit` with every block of row `row` of a group, in order, as it lay before it was interleaved.
pub(crate) fn for_each_block(
    dtype: Dtype,
    group: &[u8],
    blocks: usize,
    row: usize,
    mut visit: impl FnMut(usize, &[u8]),
) {
    let cut = cut(dtype).unwrap_or_else(|| unreachable!("{dtype} has no interleaved layout"));
    let mut block = [0; LONGEST_BLOCK];
    for at in 0..blocks {
        for word in 0..cut.words {
            let place = word_place(cut, at, word, row);
            block[cut.words_at + 4 * word..][..4].copy_from_slice(&group[place..place + 4]);
        }
        if let Some(half_at) = cut.half_at {
            let place = half_place(cut, blocks, at, row);
            block[half_at..half_at + 2].copy_from_slice(&group[place..place + 2]);
        }
        visit(at, &block[..dtype.block_bytes()]);
    }
}

fn cut(dtype: Dtype) -> Option<Cut> {
    let (words_at, half_at) = match dtype {
        Dtype::Q4_K | Dtype::Q5_K => (0, None),
        Dtype::Q6_K => (0, Some(q6_k::SCALE)),
        Dtype::Q8_0 => (q8_0::QUANTS, Some(0)),
        Dtype::Q4_0 => (q4_0::QUANTS, Some(0)),
        Dtype::Int4Group128 => (int4_group128::QUANTS, Some(0)),
        _ => return None,
    };
    Some(Cut { words_at, words: dtype.block_bytes() / 4, half_at })
}

/// Where a word of a row lies in its group.
fn word_place(cut: Cut, block: usize, word: usize, row: usize) -> usize {
    (block * cut.words + word) * GROUP_WORD + 4 * row
}

/// Where the scale of a row's block lies in its group: behind the words of all `blocks`.
fn half_place(cut: Cut, blocks: usize, block: usize, row: usize) -> usize {
    blocks * cut.words * GROUP_WORD + block * GROUP_HALF + 2 * row
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(dtype: Dtype, columns: usize, rows: usize, expected_group: u64) {
        assert_eq!(group_bytes(dtype, columns as u64), Some(expected_group), "{dtype}");
        let row_bytes = dtype.row_bytes(columns as u64).expect("whole blocks") as usize;
        let bytes: Vec<u8> = (0..rows * row_bytes).map(|at| (at * 31 + at / 251) as u8).collect();
        let mut group = vec![0xff; expected_group as usize];
        interleave(dtype, row_bytes, &bytes, &mut group);
        let blocks = columns / dtype.block_elements();
        for row in 0..GROUP_ROWS {
            let mut back = Vec::new();
            for_each_block(dtype, &group, blocks, row, |_, block| back.extend_from_slice(block));
            let zeros = vec![0; row_bytes];
            let expected = bytes.get(row * row_bytes..(row + 1) * row_bytes).unwrap_or(&zeros);
            assert_eq!(back, expected, "{dtype}, row {row} of {rows}");
        }
    }

    #[test]
    fn rows_come_back_as_they_were() {
        check(Dtype::Q4_K, 512, 16, 2 * 16 * 144);
        check(Dtype::Q5_K, 256, 3, 16 * 176);
        check(Dtype::Q6_K, 512, 16, 2 * 16 * 210);
        check(Dtype::Q6_K, 256, 1, 16 * 210 + 32);
        check(Dtype::Q8_0, 64, 15, 2 * 16 * 34);
        check(Dtype::Int4Group128, 384, 5, 3 * 16 * 66 + 32);
        check(Dtype::Q4_0, 96, 16, 3 * 16 * 18 + 32);
    }

    #[test]
    fn sizes_count_whole_groups() {
        assert_eq!(Layout::Interleaved.matrix_bytes(Dtype::Q4_K, 17, 256), Some(2 * 16 * 144));
        assert_eq!(Layout::Rows.matrix_bytes(Dtype::Q4_K, 17, 256), Some(17 * 144));
        assert_eq!(Layout::Interleaved.matrix_bytes(Dtype::Q4_K, u64::MAX, 1 << 40), None);
        assert_eq!(Layout::Interleaved.matrix_bytes(Dtype::Q4_K, 16, 100), None);
        assert!(!Layout::Interleaved.holds(Dtype::F16) && Layout::Interleaved.holds(Dtype::Q8_0));
    }
}
