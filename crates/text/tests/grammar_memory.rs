//! Thousands of different formats leave memory as it was; alone in its process, since it looks at the whole of it.

use cascadia_text::{GrammarCompiler, MAX_CACHED_FORMATS, OutputFormat, Tokenizer};
use serde_json::json;

#[test]
fn many_formats_leave_memory_alone() {
    let path = format!("{}/../../fixtures/tokenizers/llama3/tokenizer.json", env!("CARGO_MANIFEST_DIR"));
    let tokenizer = Tokenizer::from_json(&std::fs::read(path).unwrap()).unwrap();
    let compiler = GrammarCompiler::new(&tokenizer, &[]).unwrap();
    let compile = |numbers: std::ops::Range<usize>| {
        for number in numbers {
            let schema = json!({"type": "object", "properties": {format!("field{number}"): {"enum": ["a"]}}});
            compiler.compile(&OutputFormat::JsonSchema(schema)).unwrap();
            assert!(compiler.cached() <= MAX_CACHED_FORMATS);
        }
    };
    let resident = || memory_stats::memory_stats().map_or(0, |stats| stats.physical_mem);
    let in_two_threads = |numbers: std::ops::Range<usize>| {
        let half = numbers.start + numbers.len() / 2;
        std::thread::scope(|scope| {
            scope.spawn(|| compile(numbers.start..half));
            scope.spawn(|| compile(half..numbers.end));
        });
    };
    in_two_threads(0..600);
    let before = resident();
    in_two_threads(600..3_000);
    assert_eq!(compiler.cached(), MAX_CACHED_FORMATS);
    assert!(resident() < before + (16 << 20), "{before} bytes became {}", resident());
}
