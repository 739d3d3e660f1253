//! Small whole numbers packed into words, in any of the directions that checkpoints use.

use std::ops::Range;

use crate::tensor::TensorBytes;

/// A matrix of whole numbers of 4 or 8 bits, read as unsigned.
#[derive(Clone, Debug)]
pub(super) struct Codes {
    pub(super) bytes: TensorBytes,
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) word: Word,
    /// Whether the numbers of one word lie side by side in a row or one below the other in a column.
    pub(super) along: Along,
    /// Whether the file has words of a row or words of a column side by side.
    pub(super) major: Along,
}

/// A direction in a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Along {
    Row,
    Column,
}

/// How numbers are packed into a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// Eight numbers in 32 bits, lowest bits first; `order[i]` is the place of the number in bits `4 i` and up.
    Nibbles { order: [usize; 8] },
    /// Four numbers in 32 bits, lowest bits first.
    Bytes,
    /// One signed byte, read as what it is above −128.
    SignedByte,
}

impl Word {
    /// Numbers that follow each other as they are.
    pub(super) const NIBBLES: Word = Word::Nibbles { order: [0, 1, 2, 3, 4, 5, 6, 7] };

    /// The word of 32 bits that holds numbers of this many bits.
    pub(super) fn of_bits(bits: u32) -> Option<Word> {
        match bits {
            4 => Some(Word::NIBBLES),
            8 => Some(Word::Bytes),
            _ => None,
        }
    }

    /// Bits of one number.
    pub(super) fn bits(self) -> u32 {
        match self {
            Word::Nibbles { .. } => 4,
            Word::Bytes | Word::SignedByte => 8,
        }
    }

    /// Numbers in one word.
    pub(super) fn numbers(self) -> usize {
        match self {
            Word::Nibbles { .. } => 8,
            Word::Bytes => 4,
            Word::SignedByte => 1,
        }
    }

    /// The numbers of word `index`, each at its place.
    fn unpack(self, bytes: &[u8], index: usize) -> [u8; 8] {
        let word = |index: usize| u32::from_le_bytes(bytes.as_chunks::<4>().0[index]);
        let mut numbers = [0; 8];
        match self {
            Word::Nibbles { order } => {
                let word = word(index);
                (0..8).for_each(|place| numbers[order[place]] = (word >> (4 * place)) as u8 & 15);
            }
            Word::Bytes => numbers[..4].copy_from_slice(&word(index).to_le_bytes()),
            Word::SignedByte => numbers[0] = bytes[index] ^ 0x80,
        }
        numbers
    }
}

impl Codes {
    /// Words that the matrix takes, in rows and columns of words.
    pub(super) fn words(&self) -> [usize; 2] {
        let numbers = self.word.numbers();
        match self.along {
            Along::Row => [self.rows, self.columns.div_ceil(numbers)],
            Along::Column => [self.rows.div_ceil(numbers), self.columns],
        }
    }

    /// The dimensions that the stored tensor has to have.
    pub(super) fn stored_shape(&self) -> [usize; 2] {
        let [rows, columns] = self.words();
        match self.major {
            Along::Row => [rows, columns],
            Along::Column => [columns, rows],
        }
    }

    /// Writes the numbers of `rows` into `out`, row by row.
    pub(super) fn unpack(&self, rows: Range<usize>, out: &mut [u8]) {
        let bytes = self.bytes.as_ref();
        let [word_rows, word_columns] = self.words();
        let high = if self.along == Along::Column { self.word.numbers() } else { 1 };
        let mine = rows.start / high..rows.end.div_ceil(high);
        let mut place = |word_row: usize, word_column: usize, index: usize| {
            let numbers = self.word.unpack(bytes, index);
            match self.along {
                Along::Row => {
                    let start = word_column * self.word.numbers();
                    let length = self.word.numbers().min(self.columns - start);
                    let start = (word_row - rows.start) * self.columns + start;
                    out[start..][..length].copy_from_slice(&numbers[..length]);
                }
                Along::Column => {
                    let first = word_row * high;
                    for row in first.max(rows.start)..(first + high).min(rows.end) {
                        out[(row - rows.start) * self.columns + word_column] = numbers[row - first];
                    }
                }
            }
        };
        // Either way the words are read in the order in which they are stored.
        match self.major {
            Along::Row => {
                for row in mine {
                    (0..word_columns).for_each(|column| place(row, column, row * word_columns + column));
                }
            }
            Along::Column => {
                for column in 0..word_columns {
                    mine.clone().for_each(|row| place(row, column, column * word_rows + row));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;
    use std::sync::Arc;

    use super::*;
    use crate::file_bytes::FileBytes;

    /// Stores `value(row, column)` by the definition of the layout, then reads it in tiles of every height.
    fn check(word: Word, along: Along, major: Along) {
        let (rows, columns) = (13, 11);
        let value = |row: usize, column: usize| ((row * 31 + column * 7) % (1 << word.bits())) as u8;
        let empty = TensorBytes::whole(&Arc::new(FileBytes::in_memory("test", Cow::Borrowed(b""))));
        let mut codes = Codes { bytes: empty, rows, columns, word, along, major };
        let [word_rows, word_columns] = codes.words();
        let size = if word == Word::SignedByte { 1 } else { 4 };
        let mut stored = vec![0; word_rows * word_columns * size];
        for row in 0..rows {
            for column in 0..columns {
                let numbers = word.numbers();
                let (word_row, word_column, place) = match along {
                    Along::Row => (row, column / numbers, column % numbers),
                    Along::Column => (row / numbers, column, row % numbers),
                };
                let place = match word {
                    Word::Nibbles { order } => order.iter().position(|&at| at == place).unwrap(),
                    _ => place,
                };
                let index = match major {
                    Along::Row => word_row * word_columns + word_column,
                    Along::Column => word_column * word_rows + word_row,
                };
                let bit = place * word.bits() as usize;
                let flip = if word == Word::SignedByte { 0x80 } else { 0 };
                stored[index * size + bit / 8] |= (value(row, column) ^ flip) << (bit % 8);
            }
        }
        codes.bytes = TensorBytes::whole(&Arc::new(FileBytes::in_memory("test", Cow::Owned(stored))));
        for height in 1..=rows {
            for start in (0..rows).step_by(height) {
                let tile = start..(start + height).min(rows);
                let mut out = vec![0; tile.len() * columns];
                codes.unpack(tile.clone(), &mut out);
                let expected: Vec<u8> =
                    tile.flat_map(|row| (0..columns).map(move |column| value(row, column))).collect();
                assert_eq!(out, expected, "{word:?} {along:?} {major:?}, {height} rows from {start}");
            }
        }
    }

    #[test]
    fn every_direction_reads_back() {
        let interleaved = Word::Nibbles { order: [0, 2, 4, 6, 1, 3, 5, 7] };
        for word in [Word::NIBBLES, interleaved, Word::Bytes, Word::SignedByte] {
            for along in [Along::Row, Along::Column] {
                [Along::Row, Along::Column].into_iter().for_each(|major| check(word, along, major));
            }
        }
    }
}
