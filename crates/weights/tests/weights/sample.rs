//! A file with every kind of value and every storage format, which `check_gguf_py.py` knows by heart.

use std::path::Path;

use cascadia_kernels::Dtype;
use cascadia_weights::gguf::write::{Outline, TensorEntry, write};
use cascadia_weights::{MetadataArray, MetadataValue, StringArray, WeightsError};

/// Key-values, in order.
pub(crate) fn metadata() -> Vec<(String, MetadataValue)> {
    let strings = StringArray::from_iter(["<s>", "", "Grüße"]);
    let entries: [(&str, MetadataValue); 19] = [
        ("general.architecture", "sample".into()),
        ("sample.u8", 200u8.into()),
        ("sample.i8", (-100i8).into()),
        ("sample.u16", 60_000u16.into()),
        ("sample.i16", (-30_000i16).into()),
        ("sample.u32", 4_000_000_000u32.into()),
        ("sample.i32", (-2_000_000_000i32).into()),
        ("sample.f32", 0.5f32.into()),
        ("sample.bool", true.into()),
        ("sample.u64", (1u64 << 60).into()),
        ("sample.i64", (-(1i64 << 60)).into()),
        ("sample.f64", 0.1f64.into()),
        ("sample.text", "Grüße, 世界".into()),
        ("sample.strings", strings.into()),
        ("sample.u32s", MetadataArray::from(vec![1u32, 2, 3]).into()),
        ("sample.i32s", MetadataArray::from(vec![-1i32, 0, 1]).into()),
        ("sample.f32s", MetadataArray::from(vec![0.25f32, -0.5]).into()),
        ("sample.bools", MetadataArray::from(vec![true, false]).into()),
        ("sample.i64s", MetadataArray::I64([-1, i64::MAX].into()).into()),
    ];
    entries.map(|(key, value)| (key.to_owned(), value)).into()
}

/// One matrix of three rows per storage format, and one vector.
pub(crate) fn tensors() -> Vec<TensorEntry> {
    let matrix = |dtype: Dtype| TensorEntry { name: format!("matrix.{dtype}"), dtype, shape: vec![3, 256] };
    let vector = TensorEntry { name: "vector".to_owned(), dtype: Dtype::F32, shape: vec![5] };
    Dtype::ALL.into_iter().map(matrix).chain([vector]).collect()
}

/// Byte `position` of tensor `index`.
pub(crate) fn byte_at(index: usize, position: usize) -> u8 {
    ((position * 31 + index * 7) % 251) as u8
}

/// Writes the file.
pub(crate) fn write_sample(path: &Path) -> Result<(), WeightsError> {
    let (metadata, tensors) = (metadata(), tensors());
    write(path, Outline { metadata: &metadata, tensors: &tensors }, |index, sink| {
        let bytes: Vec<u8> = (0..sink.left() as usize).map(|position| byte_at(index, position)).collect();
        // In uneven pieces, as a quantiser would.
        bytes.chunks(1000).try_for_each(|piece| sink.write(piece))
    })
}
