//! Shards: files that hold some tensors of a model and describe the others, so that each tells the whole architecture.

use std::sync::Arc;

use super::ggml_type;
use super::read::byte_len;
use super::write::TensorEntry;
use crate::file_bytes::FileBytes;
use crate::tensor::Tensor;
use crate::{Metadata, MetadataValue, StringArray, WeightsError};
use cascadia_kernels::Layout;

/// The key under which a shard lists the tensors of the other shards.
pub const ELSEWHERE_KEY: &str = "cascadia.shard.elsewhere";

/// Metadata that lists tensors which other shards hold.
pub fn elsewhere<'a>(tensors: impl IntoIterator<Item = &'a TensorEntry>) -> (String, MetadataValue) {
    let line = |tensor: &TensorEntry| {
        let shape: Vec<String> = tensor.shape.iter().map(u64::to_string).collect();
        format!("{} {} {}", ggml_type::id(tensor.dtype), shape.join(","), tensor.name)
    };
    (ELSEWHERE_KEY.to_owned(), tensors.into_iter().map(line).collect::<StringArray>().into())
}

/// The tensors that a file says other shards hold; none where it is no shard.
pub(crate) fn read(file: &Arc<FileBytes>, metadata: &Metadata) -> Result<Vec<Tensor>, WeightsError> {
    let Some(lines) = metadata.value::<Vec<&str>>(ELSEWHERE_KEY)? else { return Ok(Vec::new()) };
    let tensor = |line: &str| {
        let mut parts = line.splitn(3, ' ');
        let [kind, shape, name] = [parts.next()?, parts.next()?, parts.next()?];
        let (dtype, layout) = ggml_type::stored(kind.parse().ok()?)?;
        let shape: Box<[u64]> = shape.split(',').map(|size| size.parse().ok()).collect::<Option<_>>()?;
        let sound = layout == Layout::Rows && byte_len((dtype, layout), &shape).is_ok();
        sound.then(|| Tensor::elsewhere(name.to_owned(), dtype, shape, file))
    };
    let unreadable = |line: &str| metadata.error(ELSEWHERE_KEY, format!("lists `{line}`, which describes no tensor"));
    lines.iter().map(|line| tensor(line).ok_or_else(|| unreadable(line))).collect()
}
