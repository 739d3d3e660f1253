//! Thousands of different formats leave memory as it was; alone in its process, since it counts all allocations.
#![expect(unsafe_code, reason = "GlobalAlloc is an unsafe trait; this is test code that only counts and passes on")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use cascadia_text::{GrammarCompiler, MAX_CACHED_FORMATS, OutputFormat, Tokenizer};
use serde_json::json;

/// What may be allocated more than before: the formats that are kept differ a little in size.
const TOLERANCE: usize = 1 << 20;

/// Bytes that are allocated now, by all threads.
static LIVE: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: every call is passed to the system allocator unchanged; counting touches one integer only.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

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
    let in_two_threads = |numbers: std::ops::Range<usize>| {
        let half = numbers.start + numbers.len() / 2;
        std::thread::scope(|scope| {
            scope.spawn(|| compile(numbers.start..half));
            scope.spawn(|| compile(half..numbers.end));
        });
    };
    in_two_threads(0..600);
    let before = LIVE.load(Ordering::Relaxed);
    in_two_threads(600..3_000);
    let after = LIVE.load(Ordering::Relaxed);
    assert_eq!(compiler.cached(), MAX_CACHED_FORMATS);
    assert!(after < before + TOLERANCE, "{before} bytes became {after}");
    // The count sees what is kept: without the cache it is less.
    drop(compiler);
    assert!(LIVE.load(Ordering::Relaxed) + TOLERANCE < after, "{after} bytes hold nothing");
}
