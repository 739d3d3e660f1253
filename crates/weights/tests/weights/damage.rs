//! Every cut and every flipped bit of small files: an answer within bounds, never a panic.

use std::path::Path;

use cascadia_weights::ModelFiles;

use crate::gguf_hostile::check_views;
use crate::raw_gguf::RawGguf;
use crate::raw_safetensors::RawSafetensors;

/// Files whose headers are short enough to try every bit, with the length of what is tried.
fn seeds() -> Vec<(Vec<u8>, usize)> {
    let gguf = RawGguf::seed();
    let version_2 = RawGguf { version: 2u32.to_le_bytes(), ..RawGguf::seed() };
    let aligned =
        RawGguf::new().key("general.alignment", 4, &64u32.to_le_bytes()).tensor("w", &[256, 2], 12, 0).data(288);
    let aligned = RawGguf { alignment: 64, ..aligned };
    let safetensors = RawSafetensors::seed();
    let bare = RawSafetensors::new(r#"{"a":{"dtype":"F16","shape":[2,2],"data_offsets":[0,8]}}"#, 8);
    let mut seeds: Vec<_> = [gguf, version_2, aligned].map(|file| (file.bytes(), file.header().len())).into();
    seeds.extend([safetensors, bare].map(|file| (file.bytes(), file.bytes().len())));
    seeds
}

#[test]
fn every_seed_opens() {
    for (bytes, _) in seeds() {
        ModelFiles::from_vec("seed", bytes).unwrap();
    }
}

#[test]
fn every_cut_is_noticed() {
    for (bytes, _) in seeds() {
        for length in 0..bytes.len() {
            let result = ModelFiles::from_vec("cut", bytes[..length].to_vec());
            let message = result.expect_err(&format!("cut at {length} of {}", bytes.len())).to_string();
            assert!(message.starts_with("cut"), "{message}");
        }
    }
}

#[test]
fn every_flipped_bit_is_survived() {
    for (bytes, header) in seeds() {
        for bit in 0..header * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            check_views(&flipped);
        }
    }
}

/// A larger file, cut at every boundary between fields and one byte to either side.
#[test]
fn cuts_at_header_boundaries_of_a_real_file() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/foreign.gguf");
    let bytes = std::fs::read(path).unwrap();
    let files = ModelFiles::from_vec("whole", bytes.clone()).unwrap();
    let keys = files.metadata().entries().iter().map(|(key, _)| key.as_str());
    let names = keys.chain(files.tensors().iter().map(|tensor| tensor.name()));
    for name in names {
        let start = bytes.windows(name.len()).position(|window| window == name.as_bytes()).unwrap();
        for boundary in [start - 8, start, start + name.len(), start + name.len() + 4, start + name.len() + 8] {
            for length in [boundary - 1, boundary, boundary + 1] {
                ModelFiles::from_vec("cut", bytes[..length].to_vec()).expect_err("cut inside the header");
            }
        }
    }
}
