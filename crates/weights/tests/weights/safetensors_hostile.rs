//! Safetensors files and indices that lie: each gets an error that names the file and the field.

use std::path::Path;

use cascadia_weights::ModelFiles;
use proptest::prelude::*;
use tempfile::TempDir;

use crate::counting_allocator::peak_bytes;
use crate::gguf_hostile::check_views;
use crate::raw_safetensors::RawSafetensors;

const MIB: usize = 1 << 20;

/// Opening must fail with a message that has all of `parts`, without asking for much memory.
fn check(file: &RawSafetensors, parts: &[&str]) {
    let bytes = file.bytes();
    let limit = 64 * MIB + 2 * bytes.len();
    let (result, peak) = peak_bytes(|| ModelFiles::from_vec("test.safetensors", bytes));
    let message = result.expect_err(&format!("expected {parts:?}")).to_string();
    assert!(message.starts_with("test.safetensors"), "{message}");
    parts.iter().for_each(|part| assert!(message.contains(part), "{part:?} is not in: {message}"));
    assert!(peak < limit, "{peak} bytes for {parts:?}");
}

fn check_header(header: &str, parts: &[&str]) {
    check(&RawSafetensors::new(header, 16), parts);
}

#[test]
fn header_lengths() {
    for length in [u64::MAX, 1 << 63, 1 << 32, (16 << 20) + 1, 10_000] {
        let file = RawSafetensors { header_len: Some(length), ..RawSafetensors::seed() };
        check(&file, &["header length", &length.to_string()]);
    }
    for length in [0, 1, 50] {
        check(&RawSafetensors { header_len: Some(length), ..RawSafetensors::seed() }, &["header"]);
    }
    let short = ModelFiles::from_vec("x.safetensors", vec![1, 2, 3]).unwrap_err().to_string();
    assert!(short.contains("header length") && short.contains("3 bytes"), "{short}");
}

#[test]
fn headers_that_are_no_headers() {
    check_header("", &["header"]);
    check_header("[]", &["header"]);
    check_header("{", &["header"]);
    check_header("nonsense", &["header"]);
    check_header(r#"{"a":7}"#, &["header"]);
    check_header(r#"{"a":{"dtype":"F99","shape":[4],"data_offsets":[0,16]}}"#, &["header"]);
    check_header(r#"{"a":{"dtype":"F32","shape":[-4],"data_offsets":[0,16]}}"#, &["header"]);
    check_header(r#"{"a":{"dtype":"F32","shape":[4.5],"data_offsets":[0,16]}}"#, &["header"]);
    check_header(&"[".repeat(100_000), &["header", "deeper than 3"]);
    check_header(&format!(r#"{{"a":{}1{}}}"#, "[".repeat(50_000), "]".repeat(50_000)), &["header", "deeper than 3"]);
    let not_text = RawSafetensors { header: vec![b'{', 0xff, 0xfe, b'}'], ..RawSafetensors::new("", 16) };
    check(&not_text, &["header", "UTF-8"]);
}

#[test]
fn positions_and_shapes() {
    let one =
        |shape: &str, offsets: &str| format!(r#"{{"a":{{"dtype":"F32","shape":{shape},"data_offsets":{offsets}}}}}"#);
    let two = |first: &str, second: &str| {
        format!(
            r#"{{"a":{{"dtype":"U8","shape":[8],"data_offsets":{first}}},"b":{{"dtype":"U8","shape":[8],"data_offsets":{second}}}}}"#
        )
    };
    check_header(&two("[0,8]", "[4,12]"), &["tensor `b`", "overlap"]);
    check_header(&two("[0,8]", "[9,17]"), &["tensor `b`", "gap"]);
    check_header(&two("[0,8]", "[0,8]"), &["tensor `", "overlap"]);
    check_header(&one("[4]", "[16,0]"), &["tensor `a`"]);
    check_header(&one("[2]", "[0,8]"), &["data", "do not end where the file ends"]);
    check_header(&one("[8]", "[0,32]"), &["data", "do not end where the file ends"]);
    check_header(&one("[4]", "[0,12]"), &["header", "shape"]);
    check_header(&one("[18446744073709551615]", "[0,16]"), &["header", "overflow"]);
    check_header(&one("[4294967296,4294967296]", "[0,16]"), &["header", "overflow"]);
    check_header(&one("[4]", "[0,18446744073709551615]"), &["header"]);
    check_header(&one("[18446744073709551616]", "[0,16]"), &["header"]);
}

#[test]
fn repeated_names_and_too_many_tensors() {
    let entry = r#""a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}"#;
    check_header(&format!("{{{entry},{entry}}}"), &["header", "twice"]);
    let empty = |index: u32| format!(r#""{index}":{{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}"#);
    let many: Vec<String> = (0..70_000).map(empty).collect();
    check(&RawSafetensors::new(&format!("{{{}}}", many.join(",")), 0), &["header", "70000", "65536"]);
}

/// A folder whose index has `weight_map`, with one good shard called `one.safetensors`.
fn folder(weight_map: &str) -> TempDir {
    let folder = TempDir::new().unwrap();
    let write = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).unwrap();
    write("config.json", b"{}");
    write("one.safetensors", &RawSafetensors::seed().bytes());
    write("model.safetensors.index.json", format!(r#"{{"weight_map":{weight_map}}}"#).as_bytes());
    folder
}

fn check_index(weight_map: &str, parts: &[&str]) {
    let folder = folder(weight_map);
    let message = ModelFiles::open(folder.path()).expect_err(weight_map).to_string();
    parts.iter().for_each(|part| assert!(message.contains(part), "{part:?} is not in: {message}"));
}

#[test]
fn indices() {
    let one = r#""a":"one.safetensors","b":"one.safetensors","ids":"one.safetensors","mask":"one.safetensors""#;
    ModelFiles::open(folder(&format!("{{{one}}}")).path()).unwrap();
    check_index(&format!(r#"{{{one},"c":"one.safetensors"}}"#), &["weight_map", "`c`", "does not hold it"]);
    check_index(
        &format!(r#"{{{one},"c":"two.safetensors"}}"#),
        &["lacks two.safetensors", "download the missing file"],
    );
    check_index(r#"{"a":"one.safetensors"}"#, &["weight_map", "leaves out tensor `b` of one.safetensors"]);
    for outside in [
        "../one.safetensors",
        "/etc/one.safetensors",
        "sub/one.safetensors",
        "..",
        "",
        ".",
        "C:\\\\one.safetensors",
        "C:one.safetensors",
        "..\\\\one.safetensors",
        "config.json",
        "a\\u0000.safetensors",
    ] {
        check_index(&format!(r#"{{"a":"{outside}"}}"#), &["weight_map", "`a`", "plain name"]);
    }
    for nonsense in ["{}", "[]", "7", r#"{"a":7}"#, "null"] {
        check_index(nonsense, &["model.safetensors.index.json", "weight_map"]);
    }
    check_index("{", &["model.safetensors.index.json", "JSON"]);
    check_index(&"[".repeat(100_000), &["model.safetensors.index.json", "JSON"]);
    let many: Vec<String> = (0..1100).map(|index| format!(r#""{index}":"{index}.safetensors""#)).collect();
    check_index(&format!("{{{}}}", many.join(",")), &["weight_map", "1100 files"]);
}

#[test]
fn side_files() {
    let folder =
        folder(r#"{"a":"one.safetensors","b":"one.safetensors","ids":"one.safetensors","mask":"one.safetensors"}"#);
    let files = ModelFiles::open(folder.path()).unwrap();
    let write = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).unwrap();
    let json_error = |name: &str| files.json(name).unwrap_err().to_string();
    write("config.json", b"{\"a\": ");
    assert!(json_error("config.json").contains("config.json: JSON"));
    write("config.json", &[b'['; 100_000]);
    assert!(json_error("config.json").contains("recursion limit"));
    write("config.json", b"\xff\xfe");
    assert!(json_error("config.json").contains("is not UTF-8"));
    let long = std::fs::File::create(folder.path().join("tokenizer.json")).unwrap();
    long.set_len((64 << 20) + 1).unwrap();
    let (result, peak) = peak_bytes(|| files.text("tokenizer.json"));
    assert!(result.unwrap_err().to_string().contains("67108864 bytes allowed"));
    assert!(peak < 200 * MIB);
    assert_eq!(files.json("absent.json").unwrap(), None);
    assert!(std::panic::catch_unwind(|| files.text("../config.json").is_ok()).is_err());
    assert!(Path::new(files.path()).is_dir());
}

proptest! {
    /// Random damage anywhere in the file: an answer, never a panic.
    #[test]
    fn random_damage(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)) {
        let mut bytes = RawSafetensors::seed().bytes();
        for (index, value) in changes {
            let position = index.index(bytes.len());
            bytes[position] = value;
        }
        check_views(&bytes);
    }

    /// Random shapes and offsets in a well-formed header.
    #[test]
    fn random_positions(shape in prop::collection::vec(prop_oneof![0u64..5, any::<u64>()], 0..5), offsets in (0u64..40, 0u64..40)) {
        let header = format!(r#"{{"a":{{"dtype":"F32","shape":{shape:?},"data_offsets":[{},{}]}}}}"#, offsets.0, offsets.1);
        check_views(&RawSafetensors::new(&header, 32).bytes());
    }
}
