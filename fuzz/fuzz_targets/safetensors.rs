//! Opens arbitrary bytes as a safetensors file, then reads every tensor it claims to have.
#![no_main]

use cascadia_weights::ModelFiles;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|header_and_data: (&str, &[u8])| {
    // A length that fits, so that the fuzzer spends its time on the header and not on guessing eight bytes.
    let (header, data) = header_and_data;
    let file = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), data].concat();
    let length = file.len();
    let Ok(files) = ModelFiles::from_vec("fuzz.safetensors", file) else { return };
    let total: usize = files.tensors().iter().map(|tensor| tensor.bytes().as_ref().to_vec().len()).sum();
    assert!(total <= length);
});
