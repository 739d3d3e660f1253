//! What was written is what is read.

use cascadia_kernels::Dtype;
use cascadia_weights::gguf::write::{Outline, TensorEntry, write};
use cascadia_weights::{MetadataArray, MetadataValue, ModelFiles, StringArray, WeightsError};
use proptest::prelude::*;
use tempfile::TempDir;

use crate::sample;

#[test]
fn the_sample_comes_back() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("sample.gguf");
    sample::write_sample(&path).unwrap();
    let files = ModelFiles::open(&path).unwrap();
    assert_eq!(files.metadata().entries(), sample::metadata());
    assert_eq!(files.tensors().len(), sample::tensors().len());
    for (index, (found, wanted)) in files.tensors().iter().zip(sample::tensors()).enumerate() {
        assert_eq!((found.name(), found.dtype(), found.shape()), (&*wanted.name, wanted.dtype, &*wanted.shape));
        let bytes = found.bytes();
        let expected = (0..bytes.as_ref().len()).map(|position| sample::byte_at(index, position));
        assert!(bytes.as_ref().iter().copied().eq(expected), "{}", found.name());
        assert_eq!(bytes.as_ref().len() as u64, found.byte_len());
    }
}

#[test]
fn the_same_input_gives_the_same_bytes() {
    let folder = TempDir::new().unwrap();
    let paths = [folder.path().join("one.gguf"), folder.path().join("two.gguf")];
    paths.iter().for_each(|path| sample::write_sample(path).unwrap());
    let [one, two] = paths.map(|path| std::fs::read(path).unwrap());
    assert!(one == two);
    assert_eq!(one.len() % 32, 0);
}

fn value() -> impl Strategy<Value = MetadataValue> {
    let text = prop::collection::vec(any::<u8>(), 0..20);
    prop_oneof![
        any::<u8>().prop_map(MetadataValue::U8),
        any::<i64>().prop_map(MetadataValue::I64),
        any::<bool>().prop_map(MetadataValue::Bool),
        (-1e9f32..1e9).prop_map(MetadataValue::F32),
        text.clone().prop_map(MetadataValue::from),
        prop::collection::vec(text, 0..10).prop_map(|strings| StringArray::from_iter(strings).into()),
        prop::collection::vec(any::<u16>(), 0..10).prop_map(|numbers| MetadataArray::U16(numbers.into()).into()),
        prop::collection::vec(any::<bool>(), 0..10).prop_map(|flags| MetadataArray::from(flags).into()),
        prop::collection::vec(any::<i32>(), 0..4)
            .prop_map(|numbers| MetadataArray::Array([numbers.clone().into(), numbers.into()].into()).into()),
    ]
}

fn tensor() -> impl Strategy<Value = (Dtype, Vec<u64>)> {
    (prop::sample::select(&Dtype::ALL[..]), prop::collection::vec(1u64..4, 1..5)).prop_map(|(dtype, mut shape)| {
        *shape.last_mut().unwrap() *= dtype.block_elements() as u64;
        (dtype, shape)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn anything_valid_comes_back(
        values in prop::collection::btree_map("[a-z.]{1,12}", value(), 0..8),
        tensors in prop::collection::btree_map("[a-z.]{1,12}", tensor(), 0..6),
    ) {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("random.gguf");
        let metadata: Vec<_> = values.into_iter().collect();
        let entry = |(name, (dtype, shape))| TensorEntry { name, dtype, shape };
        let tensors: Vec<TensorEntry> = tensors.into_iter().map(entry).collect();
        write::<WeightsError, _>(&path, Outline { metadata: &metadata, tensors: &tensors }, |index, sink| {
            sink.write(&vec![index as u8 + 1; sink.left() as usize])
        }).unwrap();
        let files = ModelFiles::open(&path).unwrap();
        prop_assert_eq!(files.metadata().entries(), metadata);
        for (index, entry) in tensors.iter().enumerate() {
            let found = files.require(&entry.name).unwrap();
            prop_assert_eq!((found.dtype(), found.shape()), (entry.dtype, &entry.shape[..]));
            prop_assert!(found.bytes().as_ref().iter().all(|&byte| byte == index as u8 + 1));
        }
    }
}
