//! The tensors of a model by their GGUF names and in GGUF's form, whatever file they are stored in.

use std::collections::BTreeMap;
use std::sync::Arc;

use cascadia_kernels::{Dtype, Matrix, Shape, SharedBytes, decode_row};
use cascadia_weights::{FileKind, ModelFiles, Tensor};

use crate::ModelError;
use crate::names::{Form, Rename, plain};

/// Every tensor that a forward pass may ask for.
pub(crate) struct Catalog<'a> {
    pub(crate) files: &'a ModelFiles,
    renames: Vec<Rename>,
    entries: BTreeMap<String, Entry<'a>>,
}

/// One tensor under its GGUF name.
pub(crate) struct Entry<'a> {
    form: Form,
    /// The stored tensor, or one for each expert.
    stored: BTreeMap<usize, &'a Tensor>,
    /// Whether the experts are stored one by one.
    by_expert: bool,
}

impl<'a> Catalog<'a> {
    /// The tensors of `files`; a folder's are found under the names that `renames` lists.
    pub(crate) fn new(files: &'a ModelFiles, renames: Vec<Rename>) -> Catalog<'a> {
        let mut entries: BTreeMap<String, Entry<'a>> = BTreeMap::new();
        for tensor in files.tensors() {
            let found = match files.kind() {
                FileKind::Gguf => Some((tensor.name().to_owned(), None, Form::Same)),
                FileKind::HuggingFace => {
                    let stored = plain(tensor.name());
                    let named = |rename: &Rename| Some((rename.gguf_name(&stored)?, rename.form));
                    renames.iter().find_map(named).map(|((name, expert), form)| (name, expert, form))
                }
            };
            if let Some((name, expert, form)) = found {
                let empty = Entry { form, stored: BTreeMap::new(), by_expert: expert.is_some() };
                entries.entry(name).or_insert(empty).stored.insert(expert.unwrap_or(0), tensor);
            }
        }
        Catalog { files, renames, entries }
    }

    /// Whether the model has this tensor.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.entries.contains_key(name)
    }

    /// The tensor, or an error that calls it what this file would.
    pub(crate) fn require(&self, name: &str) -> Result<&Entry<'a>, ModelError> {
        self.entries.get(name).ok_or_else(|| {
            let stored = match self.files.kind() {
                FileKind::Gguf => None,
                FileKind::HuggingFace => self.renames.iter().find_map(|rename| rename.stored_name(name)),
            };
            let missing = self.files.require(stored.as_deref().unwrap_or(name)).map(|_| ());
            missing.expect_err("it is in the catalogue if it is in the file").into()
        })
    }

    /// All tensors by name.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&str, &Entry<'a>)> {
        self.entries.iter().map(|(name, entry)| (name.as_str(), entry))
    }

    /// A matrix of exactly this shape.
    pub(crate) fn matrix(&self, name: &str, shape: Shape) -> Result<Matrix, ModelError> {
        let entry = self.require(name)?;
        let expected = [shape.rows, shape.columns];
        entry.check_shape(self.files, &expected)?;
        let (dtype, bytes) = entry.read();
        Matrix::new(bytes, dtype, shape).map_err(|_| entry.shape_error(self.files, &expected))
    }

    /// A vector of exactly this length, as floats; `None` when the file has none.
    pub(crate) fn vector(&self, name: &str, length: usize) -> Result<Option<Vec<f32>>, ModelError> {
        let Some(entry) = self.entries.get(name) else { return Ok(None) };
        entry.check_shape(self.files, &[length])?;
        let (dtype, bytes) = entry.read();
        let bytes = (*bytes).as_ref();
        if dtype.row_bytes(length as u64) != Some(bytes.len() as u64) {
            return Err(entry.shape_error(self.files, &[length]));
        }
        let mut values = vec![0.0; length];
        decode_row(dtype, bytes, &mut values);
        Ok(Some(values))
    }

    /// A vector that must be there.
    pub(crate) fn require_vector(&self, name: &str, length: usize) -> Result<Vec<f32>, ModelError> {
        match self.vector(name, length)? {
            Some(values) => Ok(values),
            None => Err(self.require(name).map(|_| ()).expect_err("it was not found")),
        }
    }
}

impl Entry<'_> {
    /// Outermost size first.
    pub(crate) fn shape(&self) -> Vec<u64> {
        let mut shape = self.first().shape().to_vec();
        if self.form == Form::Transposed && shape.len() == 2 {
            shape.swap(0, 1);
        }
        if self.by_expert {
            shape.insert(0, self.stored.len() as u64);
        }
        shape
    }

    /// The format of its numbers.
    pub(crate) fn dtype(&self) -> Dtype {
        match self.form {
            Form::OnePlus => Dtype::F32,
            _ => self.first().dtype(),
        }
    }

    /// Its numbers in GGUF's form, without a copy where the file has them so.
    pub(crate) fn read(&self) -> (Dtype, SharedBytes) {
        let bytes: SharedBytes = match self.stored.len() {
            1 => arranged(self.first(), self.form),
            _ => {
                let mut all = Vec::new();
                self.stored.values().for_each(|tensor| all.extend_from_slice((*arranged(tensor, self.form)).as_ref()));
                Arc::new(all)
            }
        };
        (self.dtype(), bytes)
    }

    fn first(&self) -> &Tensor {
        self.stored.values().next().expect("an entry is made for a tensor")
    }

    fn check_shape(&self, files: &ModelFiles, expected: &[usize]) -> Result<(), ModelError> {
        let same = self.shape().iter().copied().eq(expected.iter().map(|&length| length as u64));
        if same { Ok(()) } else { Err(self.shape_error(files, expected)) }
    }

    pub(crate) fn shape_error(&self, files: &ModelFiles, expected: &[usize]) -> ModelError {
        ModelError::Shape {
            path: files.path().to_owned(),
            name: self.first().name().to_owned(),
            expected: expected.to_vec(),
            found: self.shape(),
        }
    }
}

/// The bytes of `tensor` in another form.
fn arranged(tensor: &Tensor, form: Form) -> SharedBytes {
    let stored = tensor.bytes();
    let bytes = stored.as_ref();
    match (form, tensor.shape()) {
        (Form::OnePlus, shape) => {
            let mut values = vec![0.0; shape.iter().product::<u64>() as usize];
            decode_row(tensor.dtype(), bytes, &mut values);
            Arc::new(values.iter().flat_map(|value| (value + 1.0).to_le_bytes()).collect::<Vec<u8>>())
        }
        (Form::Transposed, &[rows, columns]) if tensor.dtype().is_float() => {
            let (rows, columns) = (rows as usize, columns as usize);
            let number = bytes.len() / (rows * columns).max(1);
            let places = (0..columns).flat_map(|column| (0..rows).map(move |row| row * columns + column));
            let number_at = |at: usize| bytes[at * number..(at + 1) * number].iter().copied();
            Arc::new(places.flat_map(number_at).collect::<Vec<u8>>())
        }
        (Form::GroupedHeads { heads, kv_heads }, &[rows, ..]) => {
            let row = bytes.len() / (rows as usize).max(1);
            let order = ungrouped(heads, kv_heads, rows as usize);
            Arc::new(order.flat_map(|at| bytes[at * row..(at + 1) * row].iter().copied()).collect::<Vec<u8>>())
        }
        _ => Arc::new(stored),
    }
}

/// Stored rows in the order queries, keys, values, where each group has its queries, its key and its value together.
fn ungrouped(heads: usize, kv_heads: usize, rows: usize) -> impl Iterator<Item = usize> {
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
    use super::ungrouped;

    #[test]
    fn grouped_heads_come_apart() {
        // Two groups of two queries, a key and a value, one row each.
        assert_eq!(ungrouped(4, 2, 8).collect::<Vec<_>>(), [0, 1, 4, 5, 2, 6, 3, 7]);
    }
}
