//! A stored tensor in the form that GGUF gives it.

use std::ops::Range;
use std::sync::Arc;

use cascadia_kernels::{Dtype, Ops, SharedBytes, decode_row};
use cascadia_weights::Tensor;

use crate::names::{Form, Half, HeadRows};

/// The shape of `tensor` in another form, outermost size first.
pub(crate) fn arranged_shape(tensor: &Tensor, form: Form) -> Vec<u64> {
    let mut shape = tensor.shape().to_vec();
    if let (Form::KeysOfHeads(rows) | Form::ValuesOfHeads(rows), &[all, columns]) = (form, tensor.shape())
        && let Some(heads) = rows.heads(all as usize)
    {
        return match form {
            Form::KeysOfHeads(_) => vec![heads as u64, columns, rows.key as u64],
            _ => vec![heads as u64, rows.value as u64, columns],
        };
    }
    if let (Form::Transposed | Form::Columns(_), [.., rows, columns]) = (form, shape.as_mut_slice())
        && tensor.dtype().is_float()
    {
        std::mem::swap(rows, columns);
    }
    match (form, shape.as_mut_slice()) {
        (Form::Rows(_) | Form::Columns(_), [_, rows, ..]) => *rows /= 2,
        (Form::Row, [1, _]) => drop(shape.remove(0)),
        _ => {}
    }
    shape
}

/// The format of the numbers of `tensor` in another form.
pub(crate) fn arranged_dtype(tensor: &Tensor, form: Form) -> Dtype {
    match form {
        Form::OnePlus => Dtype::F32,
        // Blocks cannot be turned; half precision holds what they say.
        Form::KeysOfHeads(_) if !tensor.dtype().is_float() => Dtype::F16,
        _ => tensor.dtype(),
    }
}

/// The bytes of `tensor` in another form, without a copy where that is possible.
pub(crate) fn arranged(tensor: &Tensor, form: Form) -> SharedBytes {
    let stored = tensor.bytes();
    let bytes = stored.as_ref();
    let float = tensor.dtype().is_float();
    match (form, sizes(tensor).as_slice()) {
        (Form::OnePlus, shape) => {
            let mut values = vec![0.0; shape.iter().product::<usize>()];
            decode_row(tensor.dtype(), bytes, &mut values);
            Arc::new(values.iter().flat_map(|value| (value + 1.0).to_le_bytes()).collect::<Vec<u8>>())
        }
        (Form::Transposed, &[.., rows, columns]) if float => {
            Arc::new(transposed(bytes, tensor.dtype(), (rows, columns)))
        }
        (Form::Columns(half), &[experts, rows, columns]) if float => {
            Arc::new(half_of(&transposed(bytes, tensor.dtype(), (rows, columns)), half, (experts, columns)))
        }
        (Form::KeysOfHeads(head), &[rows, columns]) if head.heads(rows).is_some() => {
            let kept = picked(bytes, rows, head.places(rows, 0..head.key));
            let dtype = arranged_dtype(tensor, form);
            let kept = if float { kept } else { halves(&kept, tensor.dtype(), columns) };
            Arc::new(transposed(&kept, dtype, (head.key, columns)))
        }
        (Form::ValuesOfHeads(head), &[rows, _]) if head.heads(rows).is_some() => {
            Arc::new(picked(bytes, rows, head.places(rows, head.key..head.key + head.value)))
        }
        (Form::Rows(half) | Form::Columns(half), &[experts, rows, ..]) => {
            Arc::new(half_of(bytes, half, (experts, rows)))
        }
        (Form::GroupedHeads { heads, kv_heads }, &[rows, ..]) => {
            Arc::new(picked(bytes, rows, ungrouped(heads, kv_heads, rows)))
        }
        _ => Arc::new(stored),
    }
}

fn sizes(tensor: &Tensor) -> Vec<usize> {
    tensor.shape().iter().map(|&size| size as usize).collect()
}

/// Matrices of so many rows and columns with both in each other's place.
fn transposed(bytes: &[u8], dtype: Dtype, (rows, columns): (usize, usize)) -> Vec<u8> {
    let number = dtype.block_bytes();
    let places = (0..columns).flat_map(|column| (0..rows).map(move |row| (row * columns + column) * number));
    let matrices = bytes.chunks_exact((rows * columns * number).max(1));
    matrices.flat_map(|matrix| places.clone().flat_map(|at| &matrix[at..at + number])).copied().collect()
}

/// Rows of `columns` numbers in half precision.
fn halves(bytes: &[u8], dtype: Dtype, columns: usize) -> Vec<u8> {
    let row_bytes = dtype.row_bytes(columns as u64).map_or(1, |bytes| bytes.max(1) as usize);
    let (mut values, mut halves) = (vec![0.0; columns], vec![0; columns]);
    let rows = bytes.chunks_exact(row_bytes).flat_map(|row| {
        decode_row(dtype, row, &mut values);
        Ops::best().attention.to_f16(&values, &mut halves);
        halves.iter().flat_map(|half| half.to_le_bytes()).collect::<Vec<u8>>()
    });
    rows.collect()
}

impl HeadRows {
    /// How many heads so many rows have; `None` where they do not come out even.
    fn heads(self, rows: usize) -> Option<usize> {
        let each = self.key.checked_add(self.value)?;
        (each > 0 && rows.is_multiple_of(each)).then(|| rows / each)
    }

    /// Where some of the rows of every head lie.
    fn places(self, rows: usize, wanted: Range<usize>) -> impl Iterator<Item = usize> {
        (0..rows).step_by(self.key + self.value).flat_map(move |start| wanted.clone().map(move |row| start + row))
    }
}

/// Half of the rows of every expert.
fn half_of(bytes: &[u8], half: Half, (experts, rows): (usize, usize)) -> Vec<u8> {
    let place = move |row: usize| match half {
        Half::First => row,
        Half::Second => row + rows / 2,
        Half::Odd => 2 * row,
        Half::Even => 2 * row + 1,
    };
    let order = (0..experts).flat_map(|expert| (0..rows / 2).map(move |row| expert * rows + place(row)));
    picked(bytes, experts * rows, order)
}

/// Some of the `rows` rows that `bytes` has, in another order.
fn picked(bytes: &[u8], rows: usize, order: impl Iterator<Item = usize>) -> Vec<u8> {
    let row = bytes.len() / rows.max(1);
    order.flat_map(|at| &bytes[at * row..(at + 1) * row]).copied().collect()
}

/// Stored rows in the order queries, keys, values, where each group has its queries, its key and its value together.
pub(crate) fn ungrouped(heads: usize, kv_heads: usize, rows: usize) -> impl Iterator<Item = usize> {
    let head = rows / (heads + 2 * kv_heads).max(1);
    let queries = heads / kv_heads.max(1);
    let parts = [(0, queries), (queries, 1), (queries + 1, 1)];
    parts.into_iter().flat_map(move |(first, count)| {
        (0..kv_heads).flat_map(move |group| {
            let start = (group * (queries + 2) + first) * head;
            start..start + count * head
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grouped_heads_come_apart() {
        // Two groups of two queries, a key and a value, one row each.
        assert_eq!(ungrouped(4, 2, 8).collect::<Vec<_>>(), [0, 1, 4, 5, 2, 6, 3, 7]);
    }

    #[test]
    fn halves_of_experts_come_apart() {
        let bytes = [10, 11, 12, 13, 20, 21, 22, 23];
        let cases = [
            (Half::First, [10, 11, 20, 21]),
            (Half::Second, [12, 13, 22, 23]),
            (Half::Odd, [10, 12, 20, 22]),
            (Half::Even, [11, 13, 21, 23]),
        ];
        for (half, expected) in cases {
            assert_eq!(half_of(&bytes, half, (2, 4)), expected, "{half:?}");
        }
    }
}
