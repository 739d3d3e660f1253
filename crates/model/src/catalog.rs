//! The tensors of a model by their GGUF names and in GGUF's form, whatever file they are stored in.

use std::collections::BTreeMap;
use std::sync::Arc;

use cascadia_kernels::{Dtype, Matrix, Shape, SharedBytes, decode_row};
use cascadia_weights::{FileKind, ModelFiles, Tensor};

use crate::ModelError;
use crate::arrange::{arranged, arranged_dtype, arranged_shape};
use crate::names::{Form, GGUF_VARIANTS, Half, Rename, plain};

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
        let renames = match files.kind() {
            FileKind::Gguf => GGUF_VARIANTS.into_iter().chain(renames).collect(),
            FileKind::HuggingFace => renames,
        };
        let mut entries: BTreeMap<String, Entry<'a>> = BTreeMap::new();
        // A shard describes what the others hold, because an architecture is read from tensors too.
        for tensor in files.tensors().iter().chain(files.elsewhere()) {
            let stored = match files.kind() {
                FileKind::Gguf => tensor.name().to_owned(),
                FileKind::HuggingFace => plain(tensor.name()),
            };
            let mut add = |name: String, expert: Option<usize>, form: Form| {
                let empty = Entry { form, stored: BTreeMap::new(), by_expert: expert.is_some() };
                entries.entry(name).or_insert(empty).stored.insert(expert.unwrap_or(0), tensor);
            };
            let mut known = false;
            for ((name, expert), form) in
                renames.iter().filter_map(|rename| Some((rename.gguf_name(&stored)?, rename.form)))
            {
                known = true;
                add(name, expert, form);
            }
            if !known && files.kind() == FileKind::Gguf {
                add(stored, None, Form::Same);
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

    /// What GGUF calls a tensor of a folder, which of several experts it is, and how its numbers become those of GGUF:
    /// more than one where GGUF has its parts apart.
    pub(crate) fn gguf_names(&self, stored: &str) -> Vec<(String, Option<usize>, Form)> {
        let name = |rename: &Rename| {
            let (name, expert) = rename.gguf_name(stored)?;
            Some((name, expert, rename.form))
        };
        self.renames.iter().filter_map(name).collect()
    }

    /// Outputs and inputs of the matrices of a tensor, and how many there are; zeros where they are none.
    pub(crate) fn matrix_shape(&self, name: &str) -> (usize, usize, usize) {
        let shape = self.entries.get(name).map(Entry::shape).unwrap_or_default();
        match *shape.as_slice() {
            [rows, columns] => (rows as usize, columns as usize, 1),
            [count, rows, columns] => (rows as usize, columns as usize, count as usize),
            [columns] => (1, columns as usize, 1),
            _ => (0, 0, 0),
        }
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
        Matrix::with_layout(bytes, dtype, entry.first().layout(), shape)
            .map_err(|_| entry.shape_error(self.files, &expected))
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

    /// The matrices of `count` experts, each of exactly this shape. Those that lie one by one, or as halves of larger
    /// ones, stay where they are.
    pub(crate) fn experts(&self, name: &str, count: usize, shape: Shape) -> Result<Vec<Matrix>, ModelError> {
        let entry = self.require(name)?;
        let expected = [count, shape.rows, shape.columns];
        entry.check_shape(self.files, &expected)?;
        let matrix = |tensor: &Tensor, bytes: SharedBytes, rows: usize| {
            let shape = Shape { rows, ..shape };
            Matrix::with_layout(bytes, entry.dtype(), tensor.layout(), shape)
                .map_err(|_| entry.shape_error(self.files, &expected))
        };
        if entry.by_expert {
            let one = |tensor: &&Tensor| matrix(tensor, arranged(tensor, entry.form), shape.rows);
            return entry.stored.values().map(one).collect();
        }
        let (all, stride, first) = match entry.form {
            Form::Rows(half @ (Half::First | Half::Second)) => {
                let first = if half == Half::First { 0 } else { shape.rows };
                (Arc::new(entry.first().bytes()) as SharedBytes, 2 * shape.rows, first)
            }
            form => (arranged(entry.first(), form), shape.rows, 0),
        };
        let all = matrix(entry.first(), all, count * stride)?;
        let start = |expert: usize| expert * stride + first;
        Ok((0..count).map(|expert| all.rows(start(expert)..start(expert) + shape.rows)).collect())
    }

    /// A vector of exactly this length for each of `count` experts.
    pub(crate) fn expert_vectors(&self, name: &str, count: usize, length: usize) -> Result<Vec<Vec<f32>>, ModelError> {
        let entry = self.require(name)?;
        let expected = [count, length];
        entry.check_shape(self.files, &expected)?;
        let (dtype, bytes) = entry.read();
        let shape = Shape { rows: count, columns: length };
        let matrix = Matrix::with_layout(bytes, dtype, entry.first().layout(), shape);
        let matrix = matrix.map_err(|_| entry.shape_error(self.files, &expected))?;
        let vector = |expert: usize| {
            let mut values = vec![0.0; length];
            matrix.decode_row(expert, &mut values);
            values
        };
        Ok((0..count).map(vector).collect())
    }

    /// A matrix of one row, which is stored as a vector of exactly this length.
    pub(crate) fn row(&self, name: &str, length: usize) -> Result<Matrix, ModelError> {
        let entry = self.require(name)?;
        entry.check_shape(self.files, &[length])?;
        let (dtype, bytes) = entry.read();
        let matrix = Matrix::new(bytes, dtype, Shape { rows: 1, columns: length });
        matrix.map_err(|_| entry.shape_error(self.files, &[length]))
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
        let mut shape = arranged_shape(self.first(), self.form);
        if self.by_expert {
            shape.insert(0, self.stored.len() as u64);
        }
        shape
    }

    /// The format of its numbers.
    pub(crate) fn dtype(&self) -> Dtype {
        arranged_dtype(self.first(), self.form)
    }

    /// Whether another shard of the model holds it.
    pub(crate) fn is_elsewhere(&self) -> bool {
        self.stored.values().any(|tensor| tensor.is_elsewhere())
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
        if same { self.check_alike(files) } else { Err(self.shape_error(files, expected)) }
    }

    /// Makes sure that experts which are stored one by one are all there and alike.
    pub(crate) fn check_alike(&self, files: &ModelFiles) -> Result<(), ModelError> {
        let first = self.first();
        if let Some(absent) = self.stored.values().find(|tensor| tensor.is_elsewhere()) {
            files.require(absent.name())?;
        }
        let alike = |tensor: &&Tensor| tensor.shape() == first.shape() && tensor.dtype() == first.dtype();
        let in_place = |at: usize, number: usize| at == number && (at == 0 || self.by_expert);
        let mut stored = self.stored.iter().enumerate();
        let stray = stored.find(|(at, (number, tensor))| !in_place(*at, **number) || !alike(tensor));
        match stray {
            None => Ok(()),
            Some((_, (_, tensor))) => Err(ModelError::Shape {
                path: files.path().to_owned(),
                name: tensor.name().to_owned(),
                expected: first.shape().iter().map(|&length| length as usize).collect(),
                found: tensor.shape().to_vec(),
            }),
        }
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
