//! Reads and writes model files as named tensors, moving numbers between formats but never rounding them.

mod cold_read;
mod error;
mod file_bytes;
pub mod gguf;
pub mod hf_folder;
mod made;
mod mapped;
mod metadata;
mod metadata_value;
mod model_files;
mod names;
mod os;
mod quantised;
mod safetensors;
mod scratch_file;
mod tensor;

pub use cold_read::{ColdRead, read_cold};
pub use error::WeightsError;
pub use metadata::{FromMetadata, Metadata};
pub use metadata_value::{MetadataArray, MetadataValue, StringArray};
pub use model_files::{FileKind, ModelFiles, WeightPages};
pub use os::{MEMORY_REFUSE, MEMORY_SHED, MemoryAdvice, MemoryProbe, interleave_memory};
pub use scratch_file::ScratchFile;
pub use tensor::{Tensor, TensorBytes};
