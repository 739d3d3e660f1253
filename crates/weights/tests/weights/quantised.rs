//! Quantised checkpoints against what other programs say their numbers are (`fixtures/quantised/make.py`).

use std::path::{Path, PathBuf};

use cascadia_kernels::decode_row;
use cascadia_weights::{ModelFiles, Tensor};
use serde_json::Value;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/quantised").join(name)
}

fn values(tensor: &Tensor) -> Vec<f32> {
    let (columns, outer) = tensor.shape().split_last().unwrap();
    let mut values = vec![0.0; *columns as usize * outer.iter().product::<u64>() as usize];
    let bytes = tensor.bytes();
    let row_bytes = tensor.dtype().row_bytes(*columns).unwrap() as usize;
    let rows = bytes.as_ref().chunks_exact(row_bytes).zip(values.chunks_exact_mut(*columns as usize));
    rows.for_each(|(row, values)| decode_row(tensor.dtype(), row, values));
    values
}

/// Every weight has the format that it should have and exactly the numbers that it stands for, and nothing is left
/// of the parts that it was made from.
fn check(folder: &str) {
    let files = ModelFiles::open(&fixture(folder)).unwrap();
    let expected = ModelFiles::open(&fixture(folder).join("expected.safetensors"));
    // The config.json beside it speaks of the other file: nothing in this one is quantised.
    let expected = expected.unwrap();
    let formats = std::fs::read_to_string(fixture(folder).join("formats.json")).unwrap();
    let formats: Value = serde_json::from_str(&formats).unwrap();
    let formats = formats.as_object().unwrap();
    assert_eq!((files.tensors().len(), expected.tensors().len()), (formats.len(), formats.len()), "{folder}");
    for (name, format) in formats {
        let (found, wanted) = (files.require(name).unwrap(), expected.require(name).unwrap());
        assert_eq!(
            (found.dtype().name(), found.shape()),
            (format.as_str().unwrap(), wanted.shape()),
            "{folder}: {name}"
        );
        assert_eq!(found.byte_len(), found.bytes().as_ref().len() as u64, "{folder}: {name}");
        let (found, wanted) = (values(found), values(wanted));
        let differing = found.iter().zip(&wanted).position(|(found, wanted)| found != wanted);
        if let Some(at) = differing {
            panic!("{folder}: number {at} of {name} is {} instead of {}", found[at], wanted[at]);
        }
    }
}

#[test]
fn gptq() {
    ["gptq-4bit", "gptq-8bit", "gptq-v2"].into_iter().for_each(check);
}

#[test]
fn awq() {
    check("awq");
}

#[test]
fn compressed_tensors() {
    ["compressed-int4", "compressed-int8", "compressed-float8"].into_iter().for_each(check);
}

#[test]
fn floats_in_blocks() {
    ["float8-blocks", "mxfp4"].into_iter().for_each(check);
}

/// Who holds the bytes shares them with all others; once nobody does, they are made again.
#[test]
fn made_bytes_are_shared_while_they_are_held() {
    let files = ModelFiles::open(&fixture("awq")).unwrap();
    let tensor = files.require("zeros.weight").unwrap();
    assert_eq!(tensor.file(), fixture("awq").join("model.safetensors"));
    let (first, second) = (tensor.bytes(), tensor.clone().bytes());
    assert_eq!(first.as_ref().as_ptr(), second.as_ref().as_ptr());
    let copy = first.as_ref().to_vec();
    drop((first, second));
    assert_eq!(tensor.bytes().as_ref(), copy);
    let bytes = tensor.bytes();
    drop(files);
    assert_eq!(bytes.as_ref(), copy, "bytes outlive the model");
}
