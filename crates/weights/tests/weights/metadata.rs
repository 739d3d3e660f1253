//! Typed access to metadata: conversions that lose nothing, errors that name file and key.

use cascadia_weights::{ModelFiles, StringArray};

use crate::raw_gguf::{RawGguf, array_head, string};

fn files() -> ModelFiles {
    RawGguf::seed()
        .key("u8", 0, &[200])
        .key("negative", 5, &(-1i32).to_le_bytes())
        .key("huge", 10, &u64::MAX.to_le_bytes())
        .key("double", 12, &0.5f64.to_le_bytes())
        .key("raw", 8, &string(b"\xff\xfe"))
        .key("types", 9, &[&array_head(5, 2)[..], &1i32.to_le_bytes(), &(-6i32).to_le_bytes()].concat())
        .key("wide", 9, &[&array_head(10, 2)[..], &8u64.to_le_bytes(), &4u64.to_le_bytes()].concat())
        .open()
        .unwrap()
}

#[test]
fn values_convert_when_they_fit() {
    let files = files();
    let metadata = files.metadata();
    assert_eq!(metadata.require::<u32>("llama.block_count").unwrap(), 7);
    assert_eq!(metadata.require::<usize>("u8").unwrap(), 200);
    assert_eq!(metadata.require::<u64>("huge").unwrap(), u64::MAX);
    assert_eq!(metadata.require::<i32>("negative").unwrap(), -1);
    assert_eq!(metadata.require::<f32>("double").unwrap(), 0.5);
    assert_eq!(metadata.require::<f32>("llama.epsilon").unwrap(), 1e-5);
    assert!(metadata.require::<bool>("tokenizer.ggml.add_bos_token").unwrap());
    assert_eq!(metadata.require::<&str>("general.architecture").unwrap(), "llama");
    assert_eq!(metadata.require::<&[u8]>("raw").unwrap(), b"\xff\xfe");
    assert_eq!(metadata.require::<Vec<f32>>("tokenizer.ggml.scores").unwrap(), [0.0, 0.0]);
    assert_eq!(metadata.require::<Vec<i32>>("types").unwrap(), [1, -6]);
    assert_eq!(metadata.require::<Vec<u32>>("wide").unwrap(), [8, 4]);
    let tokens = metadata.require::<&StringArray>("tokenizer.ggml.tokens").unwrap();
    assert_eq!(tokens.iter().collect::<Vec<_>>(), [&b"<s>"[..], b"\xff\xfe", b"hello"]);
    assert_eq!((tokens.get(2), tokens.get(3)), (Some(&b"hello"[..]), None));
    assert_eq!(metadata.value::<u32>("absent").unwrap(), None);
    assert_eq!(metadata.entries()[0].0, "general.architecture");
}

#[test]
fn wrong_types_are_explained() {
    let files = files();
    let metadata = files.metadata();
    let check = |message: String, expected: &str| {
        assert!(message.starts_with(&format!("test.gguf: metadata key {expected}")), "{message}");
    };
    check(metadata.require::<u32>("absent").unwrap_err().to_string(), "`absent` is missing");
    check(
        metadata.value::<u32>("negative").unwrap_err().to_string(),
        "`negative` should be an integer that fits u32 but is i32 -1",
    );
    check(
        metadata.value::<u32>("huge").unwrap_err().to_string(),
        "`huge` should be an integer that fits u32 but is u64 18446744073709551615",
    );
    check(
        metadata.value::<u32>("double").unwrap_err().to_string(),
        "`double` should be an integer that fits u32 but is f64 0.5",
    );
    check(metadata.value::<bool>("u8").unwrap_err().to_string(), "`u8` should be a bool but is u8 200");
    check(metadata.value::<f32>("u8").unwrap_err().to_string(), "`u8` should be a float but is u8 200");
    check(
        metadata.value::<&str>("raw").unwrap_err().to_string(),
        "`raw` should be text in UTF-8 but is string of 2 bytes",
    );
    check(metadata.value::<&str>("u8").unwrap_err().to_string(), "`u8` should be a string but is u8 200");
    check(
        metadata.value::<Vec<u32>>("types").unwrap_err().to_string(),
        "`types` should be an array of integers that fit u32 but element 1 is -6",
    );
    check(metadata.value::<Vec<u32>>("u8").unwrap_err().to_string(), "`u8` should be an array of integers");
    check(
        metadata.value::<Vec<f32>>("types").unwrap_err().to_string(),
        "`types` should be an array of floats but is array of 2 i32",
    );
    check(
        metadata.value::<Vec<&str>>("tokenizer.ggml.tokens").unwrap_err().to_string(),
        "`tokenizer.ggml.tokens` should be text in UTF-8 but element 1 is not",
    );
    check(
        metadata.value::<&StringArray>("types").unwrap_err().to_string(),
        "`types` should be an array of strings but is array of 2 i32",
    );
}
