//! Reads arbitrary bytes as an importance matrix, in its GGUF form or the older one.
#![no_main]

use cascadia_fuzz::with_file;
use cascadia_quantize::Importance;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(importance) = with_file("importance", bytes, Importance::read) {
        assert!(!importance.is_empty());
    }
});
