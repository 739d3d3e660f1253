//! Opens arbitrary bytes as a GGUF file, then reads every value and every tensor it claims to have.
#![no_main]

use std::hint::black_box;

use cascadia_fuzz::bounded;
use cascadia_weights::{ModelFiles, StringArray};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    bounded(|| read(bytes));
});

fn read(bytes: &[u8]) {
    let Ok(files) = ModelFiles::from_vec("fuzz.gguf", bytes.to_vec()) else { return };
    for (key, value) in files.metadata().entries() {
        black_box(value.to_string());
        black_box(files.metadata().value::<u32>(key).is_ok());
        black_box(files.metadata().value::<&str>(key).is_ok());
        black_box(files.metadata().value::<&StringArray>(key).is_ok());
    }
    let total: usize = files.tensors().iter().map(|tensor| tensor.bytes().as_ref().to_vec().len()).sum();
    assert!(total <= bytes.len());
}
