//! GGUF files that lie: each gets an error that names the file and the field.

use std::ops::Range;

use cascadia_weights::{MetadataValue, ModelFiles};
use proptest::prelude::*;

use crate::counting_allocator::peak_bytes;
use crate::raw_gguf::{RawGguf, array_head, string};

const MIB: usize = 1 << 20;

/// Opening must fail with a message that has all of `parts`, without asking for much memory.
fn check(file: &RawGguf, parts: &[&str]) {
    let bytes = file.bytes();
    let limit = 16 * MIB + 2 * bytes.len();
    let (result, peak) = peak_bytes(|| ModelFiles::from_vec("test.gguf", bytes));
    let message = result.expect_err(&format!("expected {parts:?}")).to_string();
    assert!(message.starts_with("test.gguf"), "{message}");
    parts.iter().for_each(|part| assert!(message.contains(part), "{part:?} is not in: {message}"));
    assert!(peak < limit, "{peak} bytes for {parts:?}");
}

#[test]
fn versions_and_byte_order() {
    let with_version = |version: [u8; 4]| RawGguf { version, ..RawGguf::seed() };
    check(&with_version(3u32.to_be_bytes()), &["version", "big-endian", "little-endian file"]);
    check(&with_version(1u32.to_le_bytes()), &["version", "too old"]);
    check(&with_version(4u32.to_le_bytes()), &["version 4 is unknown"]);
    check(&with_version([0; 4]), &["version 0 is unknown"]);
    with_version(2u32.to_le_bytes()).open().unwrap();
}

#[test]
fn absurd_counts() {
    for count in [u64::MAX, 1 << 63, 1 << 32, 1 << 31, 1_000_000] {
        let announced = count.to_string();
        check(&RawGguf { tensor_count: Some(count), ..RawGguf::seed() }, &["tensor count", &announced]);
        check(&RawGguf { key_count: Some(count), ..RawGguf::seed() }, &["metadata count", &announced]);
        for kind in 0..=12 {
            let array = RawGguf::new().key("many", 9, &array_head(kind, count));
            check(&array, &["metadata key `many`", &announced]);
        }
        check(&RawGguf::new().key("long", 8, &count.to_le_bytes()), &["metadata key `long`", &announced]);
    }
    let roomy = RawGguf { tensor_count: Some(70_000), ..RawGguf::new().data(4 * MIB) };
    check(&roomy, &["tensor count", "70000", "65536"]);
}

#[test]
fn absurd_dimensions() {
    let tensor = |dimensions: &[u64], kind| RawGguf::new().tensor("w", dimensions, kind, 0).data(64);
    for dimension in [1 << 31, 1 << 32, (1 << 42) + 1, 1 << 63, u64::MAX] {
        check(&tensor(&[dimension], 0), &["tensor `w`"]);
        check(&tensor(&[4, dimension], 0), &["tensor `w`"]);
        check(&tensor(&[dimension; 4], 0), &["tensor `w`", "larger than any file"]);
    }
    check(&tensor(&[0], 0), &["tensor `w`", "dimension of zero"]);
    check(&tensor(&[4, 0, u64::MAX], 0), &["tensor `w`", "dimension of zero"]);
    check(&tensor(&[], 0), &["tensor `w`", "0 dimensions"]);
    check(&tensor(&[1; 5], 0), &["tensor `w`", "5 dimensions"]);
    // Products that wrap to something small: 2^32 · 2^32, and 2^62 · 4 bytes.
    check(&tensor(&[1 << 32, 1 << 32], 0), &["larger than any file"]);
    check(&tensor(&[1 << 62], 0), &["larger than any file"]);
    check(&tensor(&[1 << 31, 1 << 31, 4], 0), &["larger than any file"]);
    // Rows that do not fill whole blocks.
    check(&tensor(&[33], 8), &["tensor `w`", "Q8_0 blocks of 32"]);
    check(&tensor(&[128, 2], 12), &["tensor `w`", "Q4_K blocks of 256"]);
    check(&tensor(&[64, 2], 10003), &["tensor `w`", "rows of 64 numbers do not fill whole INT4_G128 blocks of 128"]);
}

#[test]
fn storage_types() {
    let stored_as = |kind| RawGguf::new().tensor("w", &[256], kind, 0).data(1024);
    check(&stored_as(9), &["tensor w has type Q8_1, which this version does not read"]);
    check(&stored_as(26), &["tensor w has type I32, which"]);
    check(&stored_as(31), &["tensor w has type Q4_0_4_4, which"]);
    check(&stored_as(43), &["tensor w has type number 43, which this version does not read"]);
    check(&stored_as(u32::MAX), &["tensor w has type number 4294967295, which"]);
}

#[test]
fn positions_outside_the_file() {
    let at = |offset| RawGguf::new().tensor("w", &[8], 0, offset).data(64);
    at(32).open().unwrap();
    check(&at(64), &["tensor `w`", "beyond the file"]);
    check(&at(u64::MAX - 31), &["tensor `w`", "beyond the file"]);
    check(&at(1 << 63), &["tensor `w`", "beyond the file"]);
    check(&at(33), &["tensor `w`", "offset 33 is not a multiple of 32"]);
    let overlapping = RawGguf::new().tensor("a", &[16], 0, 0).tensor("b", &[8], 0, 32).data(64);
    check(&overlapping, &["tensor `b`", "overlaps tensor `a`"]);
}

#[test]
fn alignment() {
    let aligned = |kind, value: &[u8], alignment| {
        let file = RawGguf::new().key("general.alignment", kind, value).tensor("w", &[8], 0, 0).data(32);
        RawGguf { alignment, ..file }
    };
    for good in [1usize, 2, 64, 4096, 65_536] {
        let file = aligned(4, &(good as u32).to_le_bytes(), good).open().unwrap();
        assert_eq!(file.require("w").unwrap().bytes().as_ref(), (0..32).collect::<Vec<u8>>());
    }
    aligned(10, &64u64.to_le_bytes(), 64).open().unwrap();
    for bad in [0u32, 3, 33, 1 << 17, 1 << 31, u32::MAX] {
        check(&aligned(4, &bad.to_le_bytes(), 32), &["general.alignment", "power of two"]);
    }
    check(&aligned(8, &string(b"32"), 32), &["general.alignment", "string \"32\""]);
    check(&aligned(6, &32f32.to_le_bytes(), 32), &["general.alignment", "f32 32"]);
    check(&aligned(5, &(-32i32).to_le_bytes(), 32), &["general.alignment", "i32 -32"]);
    check(&aligned(9, &[&array_head(4, 1)[..], &[32, 0, 0, 0]].concat(), 32), &["general.alignment", "array of 1 u32"]);
}

#[test]
fn names_and_values() {
    let twice = RawGguf::new().key("a", 0, &[1]).key("b", 0, &[1]).key("a", 0, &[2]);
    check(&twice, &["metadata key `a`", "occurs twice"]);
    let twice = RawGguf::new().tensor("w", &[8], 0, 0).tensor("w", &[8], 0, 32).data(64);
    check(&twice, &["tensor `w`", "occurs twice"]);
    check(&RawGguf::new().key("k", 13, &[0; 8]), &["metadata key `k`", "value type 13"]);
    check(&RawGguf::new().key("k", 9, &array_head(77, 0)), &["metadata key `k`", "value type 77"]);
    check(&RawGguf::new().key("k", 7, &[2]), &["metadata key `k`", "0 or 1, not 2"]);
    let mut nameless = RawGguf::new();
    nameless.keys.push([&string(b"\xff\xff")[..], &0u32.to_le_bytes(), &[1]].concat());
    check(&nameless, &["metadata key number 0", "not UTF-8"]);
    check(&RawGguf::new().key(&"k".repeat(70_000), 0, &[1]), &["70000", "65535"]);
}

#[test]
fn nested_arrays_are_limited() {
    let nested = |depth: usize| {
        let value: Vec<u8> = (1..depth).flat_map(|_| array_head(9, 1)).chain(array_head(0, 0)).collect();
        RawGguf::new().key("deep", 9, &value)
    };
    let file = nested(4).open().unwrap();
    assert!(matches!(file.metadata().get("deep"), Some(MetadataValue::Array(_))));
    check(&nested(5), &["metadata key `deep`", "nest deeper than 4"]);
    check(&nested(100_000), &["metadata key `deep`", "nest deeper than 4"]);
    let wide: Vec<u8> = [array_head(9, 5000), array_head(0, 0).repeat(5000)].concat();
    check(&RawGguf::new().key("wide", 9, &wide), &["metadata key `wide`", "4096 nested arrays"]);
}

/// The heaviest headers per byte that are still accepted stay within the promised memory.
#[test]
fn memory_is_bounded_by_the_header() {
    let mut many_keys = RawGguf::new();
    many_keys.keys = (0..65_536u32)
        .map(|index| [&string(&index.to_be_bytes().map(|b| b & 63))[..], &[0; 4], &[1]].concat())
        .collect();
    many_keys.keys.sort();
    many_keys.keys.dedup();
    let mut many_tensors = RawGguf::new().data(32 * 65_536);
    for index in 0..65_536u64 {
        many_tensors = many_tensors.tensor(&index.to_string(), &[1], 0, index * 32);
    }
    let vocabulary: Vec<u8> =
        [array_head(8, 150_000), (0..150_000u32).flat_map(|index| string(&index.to_le_bytes())).collect()].concat();
    let vocabulary = RawGguf::new().key("tokens", 9, &vocabulary);
    for file in [many_keys, many_tensors, vocabulary] {
        let (header, bytes) = (file.header().len(), file.bytes());
        let (result, peak) = peak_bytes(|| ModelFiles::from_vec("test.gguf", bytes));
        result.unwrap();
        assert!(peak <= 16 * MIB + 2 * header, "{peak} bytes for a header of {header}");
    }
}

/// No view of an accepted file may reach outside of it, whatever was done to its header.
pub(crate) fn check_views(bytes: &[u8]) {
    let length = bytes.len();
    let (result, peak) = peak_bytes(|| ModelFiles::from_vec("test", bytes.to_vec()));
    assert!(peak < 64 * MIB, "{peak} bytes");
    let Ok(files) = result else { return };
    let views: Vec<_> = files.tensors().iter().map(|tensor| tensor.bytes()).collect();
    let ranges: Vec<Range<usize>> = views
        .iter()
        .map(|view| view.as_ref().as_ptr_range())
        .map(|range| range.start.addr()..range.end.addr())
        .collect();
    let total: usize = ranges.iter().map(ExactSizeIterator::len).sum();
    assert!(total <= length, "views of {total} bytes into a file of {length}");
    if let (Some(first), Some(last)) =
        (ranges.iter().map(|range| range.start).min(), ranges.iter().map(|range| range.end).max())
    {
        assert!(last - first <= length);
    }
}

proptest! {
    /// Random damage to several header bytes: an answer, never a panic.
    #[test]
    fn random_damage(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)) {
        let file = RawGguf::seed();
        let (header, mut bytes) = (file.header().len(), file.bytes());
        for (index, value) in changes {
            bytes[index.index(header)] = value;
        }
        check_views(&bytes);
    }

    /// Random headers behind a valid start.
    #[test]
    fn random_bytes(tail in prop::collection::vec(any::<u8>(), 0..400), counts in (0u64..4, 0u64..4)) {
        let file = RawGguf { tensor_count: Some(counts.0), key_count: Some(counts.1), ..RawGguf::new() };
        check_views(&[file.header(), tail].concat());
    }

    /// The padded tensors of an accepted file fit into it, whatever dimensions it claims.
    #[test]
    fn sizes_never_exceed_the_file(dimensions in prop::collection::vec(prop_oneof![0u64..70, any::<u64>()], 1..5), kind in 0u32..44) {
        check_views(&RawGguf::new().tensor("w", &dimensions, kind, 0).data(4096).bytes());
    }
}
