//! The stored tensors from which a weight is made, with errors that name them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use cascadia_kernels::Dtype;
use safetensors::tensor::Dtype as StoredDtype;

use crate::WeightsError;
use crate::safetensors::{Contents, Stored};
use crate::tensor::TensorBytes;

/// Everything the files store, by name.
pub(super) struct Parts {
    path: PathBuf,
    stored: BTreeMap<String, Stored>,
}

impl Parts {
    /// The stored tensors of `contents`; `path` is what errors are about when a tensor is missing.
    pub(super) fn new(path: PathBuf, contents: &Contents) -> Parts {
        let usable = contents.tensors.iter().filter_map(|tensor| {
            let dtype = match tensor.dtype() {
                Dtype::F32 => StoredDtype::F32,
                Dtype::F16 => StoredDtype::F16,
                Dtype::BF16 => StoredDtype::BF16,
                Dtype::F8_E4M3 => StoredDtype::F8_E4M3,
                _ => return None,
            };
            let (shape, bytes) = (tensor.shape().into(), tensor.stored_bytes()?.clone());
            Some((tensor.name().to_owned(), Stored { dtype, shape, bytes }))
        });
        let unusable = contents.set_aside.iter().map(|tensor| (tensor.name.clone(), tensor.stored.clone()));
        Parts { path, stored: usable.chain(unusable).collect() }
    }

    /// Names that end in `suffix`, without it.
    pub(super) fn stems<'a>(&'a self, suffix: &'a str) -> impl Iterator<Item = &'a str> {
        self.stored.keys().filter_map(move |name| name.strip_suffix(suffix))
    }

    /// The tensor called `stem` + `suffix`.
    pub(super) fn find(&self, stem: &str, suffix: &str) -> Option<Part<'_>> {
        let (name, stored) = self.stored.get_key_value(&format!("{stem}{suffix}"))?;
        Some(Part { name, stored })
    }

    /// Like [`Parts::find`], with an error when there is no such tensor.
    pub(super) fn require(&self, stem: &str, suffix: &str) -> Result<Part<'_>, WeightsError> {
        self.find(stem, suffix).ok_or_else(|| {
            let problem = format!("is missing, but other parts of the quantised weight `{stem}` are there");
            WeightsError::malformed(&self.path, format!("tensor `{stem}{suffix}`"), problem)
        })
    }
}

/// One stored tensor.
#[derive(Clone, Copy)]
pub(super) struct Part<'a> {
    name: &'a str,
    stored: &'a Stored,
}

impl<'a> Part<'a> {
    pub(super) fn dtype(self) -> StoredDtype {
        self.stored.dtype
    }

    pub(super) fn bytes(self) -> &'a TensorBytes {
        &self.stored.bytes
    }

    /// Dimensions, outermost first.
    pub(super) fn shape(self) -> Vec<usize> {
        // The bytes are mapped, so none of these is beyond the address space.
        self.stored.shape.iter().map(|&dimension| dimension as usize).collect()
    }

    /// The dimensions of a matrix of `dtype` that is not empty.
    pub(super) fn matrix(self, dtype: StoredDtype) -> Result<[usize; 2], WeightsError> {
        self.expect_dtype(&[dtype])?;
        match *self.shape() {
            [rows, columns] if rows > 0 && columns > 0 => Ok([rows, columns]),
            _ => Err(self.malformed(format!("should be a matrix but has shape {:?}", self.stored.shape))),
        }
    }

    pub(super) fn expect_dtype(self, allowed: &[StoredDtype]) -> Result<(), WeightsError> {
        if allowed.contains(&self.stored.dtype) {
            return Ok(());
        }
        let names: Vec<String> = allowed.iter().map(StoredDtype::to_string).collect();
        Err(self.malformed(format!("should be stored as {} but is {}", names.join(" or "), self.stored.dtype)))
    }

    pub(super) fn expect_shape(self, expected: &[usize]) -> Result<(), WeightsError> {
        let same = self.stored.shape.iter().copied().eq(expected.iter().map(|&length| length as u64));
        if same {
            return Ok(());
        }
        Err(self.malformed(format!("should have shape {expected:?} but has {:?}", self.stored.shape)))
    }

    /// Whole numbers, which are few: an index or a shape.
    pub(super) fn integers(self) -> Result<Vec<i64>, WeightsError> {
        self.expect_dtype(&[StoredDtype::I32, StoredDtype::I64])?;
        let bytes = self.stored.bytes.as_ref();
        Ok(match self.stored.dtype {
            StoredDtype::I32 => bytes.as_chunks().0.iter().map(|word| i32::from_le_bytes(*word).into()).collect(),
            _ => bytes.as_chunks().0.iter().map(|word| i64::from_le_bytes(*word)).collect(),
        })
    }

    pub(super) fn malformed(self, problem: String) -> WeightsError {
        WeightsError::malformed(self.stored.bytes.file(), format!("tensor `{}`", self.name), problem)
    }

    pub(super) fn unsupported(self, problem: String) -> WeightsError {
        WeightsError::unsupported(self.stored.bytes.file(), format!("tensor `{}`", self.name), problem)
    }
}
