//! Tensors that no file holds as such: they are put together from several stored ones when somebody asks.

use std::borrow::Cow;
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::file_bytes::FileBytes;
use crate::tensor::TensorBytes;

/// How the bytes of a tensor come about. Everything that could be wrong was checked when the recipe was written.
pub(crate) trait Recipe: fmt::Debug + Send + Sync + UnwindSafe + RefUnwindSafe {
    /// The bytes, exactly as many as format and shape of the tensor say.
    fn build(&self) -> Vec<u8>;
}

/// A recipe and what it made last.
#[derive(Debug)]
pub(crate) struct Made {
    /// The file that holds most of what goes in.
    pub(crate) path: PathBuf,
    pub(crate) byte_len: u64,
    recipe: Box<dyn Recipe>,
    /// Kept only while somebody else keeps it: a converter that reads one tensor after the other needs memory for one.
    bytes: Mutex<Weak<FileBytes>>,
}

impl Made {
    pub(crate) fn new(path: &Path, byte_len: u64, recipe: Box<dyn Recipe>) -> Made {
        Made { path: path.to_owned(), byte_len, recipe, bytes: Mutex::new(Weak::new()) }
    }

    /// The bytes, built by the first who asks and shared by all who ask while they exist.
    pub(crate) fn bytes(&self) -> TensorBytes {
        let mut kept = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = kept.upgrade().unwrap_or_else(|| {
            let built = Arc::new(FileBytes::in_memory(&self.path, Cow::Owned(self.recipe.build())));
            *kept = Arc::downgrade(&built);
            built
        });
        assert_eq!(bytes.bytes().len() as u64, self.byte_len, "a recipe keeps its word");
        TensorBytes::whole(&bytes)
    }
}
