//! Opens arbitrary bytes as a safetensors file, then reads every tensor it claims to have.
#![no_main]

use cascadia_fuzz::bounded;
use cascadia_weights::ModelFiles;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // A line of header, then data, with a length that fits: the time is better spent than on guessing eight bytes.
    let end = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
    let (header, data) = (&bytes[..end], &bytes[(end + 1).min(bytes.len())..]);
    let file = [&(header.len() as u64).to_le_bytes()[..], header, data].concat();
    let length = file.len();
    bounded(|| {
        let Ok(files) = ModelFiles::from_vec("fuzz.safetensors", file) else { return };
        let total: usize = files.tensors().iter().map(|tensor| tensor.bytes().as_ref().to_vec().len()).sum();
        assert!(total <= length);
    });
});
