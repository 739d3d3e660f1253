//! The GGUF form of llama.cpp's importance matrices: per tensor `NAME.in_sum2` and `NAME.counts`, both F32.

use std::collections::BTreeMap;

use cascadia_kernels::{Dtype, decode_row};
use cascadia_weights::ModelFiles;

/// Mean squares by tensor name; the error says what is wrong.
pub(super) fn tensors(files: &ModelFiles) -> Result<BTreeMap<String, Vec<f32>>, String> {
    let mut tensors = BTreeMap::new();
    for sums in files.tensors() {
        let Some(name) = sums.name().strip_suffix(".in_sum2") else { continue };
        let counts = numbers(files, &format!("{name}.counts"))?;
        let mut values = numbers(files, sums.name())?;
        if counts.is_empty() || !values.len().is_multiple_of(counts.len()) {
            return Err(format!("tensor `{name}` has {} sums for {} counts", values.len(), counts.len()));
        }
        let columns = values.len() / counts.len();
        for (values, count) in values.chunks_exact_mut(columns.max(1)).zip(counts) {
            // An expert that no token reached says nothing about its columns: zeros, which count as equal.
            values.iter_mut().for_each(|value| *value = if count > 0.0 { *value / count } else { 0.0 });
        }
        tensors.insert(name.to_owned(), values);
    }
    if tensors.is_empty() {
        return Err("no tensor ends in `.in_sum2`, so it is no importance matrix; \
                    use --calibrate to measure it here"
            .into());
    }
    Ok(tensors)
}

fn numbers(files: &ModelFiles, name: &str) -> Result<Vec<f32>, String> {
    let tensor = files.tensor(name).ok_or_else(|| format!("tensor `{name}` is missing"))?;
    if tensor.dtype() != Dtype::F32 {
        return Err(format!("tensor `{name}` is {}, not F32", tensor.dtype()));
    }
    let bytes = tensor.bytes();
    let mut values = vec![0.0; bytes.as_ref().len() / size_of::<f32>()];
    decode_row(Dtype::F32, bytes.as_ref(), &mut values);
    Ok(values)
}
