//! Reads arbitrary bytes as the manifest of an exported model; what is accepted is written as it was read.
#![no_main]

use cascadia_fleet::{MANIFEST_FILE, Manifest};
use cascadia_fuzz::{folder, with_file};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(manifest) = with_file(MANIFEST_FILE, bytes, |_| Manifest::read(folder())) else { return };
    manifest.write(folder()).expect("it can be written");
    assert_eq!(Manifest::read(folder()).expect("it was written by this program"), manifest);
});
