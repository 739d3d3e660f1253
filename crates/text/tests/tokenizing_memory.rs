//! Tokenising takes no more memory than is said before; alone in its process, since it counts all allocations.
#![expect(unsafe_code, reason = "GlobalAlloc is an unsafe trait; this is test code that only counts and passes on")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use cascadia_text::{SpecialTokens, Tokenizer};

/// Bytes of the long texts.
const LENGTH: usize = 60_000;

/// Bytes that are allocated now, and the most that were.
static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: every call is passed to the system allocator unchanged; counting touches two integers only.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let live = LIVE.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(live, Ordering::Relaxed);
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
fn tokenising_takes_what_is_said_before() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/tokenizers");
    let mut most = (0.0, String::new());
    for kind in ["llama3", "qwen2", "gpt2", "deepseek-llm", "falcon", "bloom", "llama2", "gemma", "mistral"] {
        let json = std::fs::read(folder.join(kind).join("tokenizer.json")).expect("a fixture");
        let tokenizer = Tokenizer::from_json(&json).expect("a tokenizer");
        for unit in ["a b ", "a", "1", "word ", "é", "中", "\u{1f600} ", " ", "a.", "\n", "x\ny"] {
            let text = unit.repeat(LENGTH / unit.len());
            let said = tokenizer.working_bytes(&text);
            let before = LIVE.load(Ordering::Relaxed);
            PEAK.store(before, Ordering::Relaxed);
            // A text that takes too long is refused, and must not take more for that.
            let tokens = tokenizer.encode(&text, SpecialTokens::Plain);
            let taken = PEAK.load(Ordering::Relaxed) - before;
            assert!(taken <= said, "{kind}, {unit:?}: {taken} bytes where {said} were said");
            drop(tokens);
            let per_byte = taken as f64 / text.len() as f64;
            if per_byte > most.0 {
                most = (per_byte, format!("{kind}, {unit:?}"));
            }
        }
        // A text of words is read in parts, whatever its length.
        let words = tokenizer.working_bytes(&"word ".repeat(LENGTH));
        let is_cut = ["llama3", "qwen2", "gpt2", "falcon", "bloom"].contains(&kind);
        assert_eq!(words < 8 << 20, is_cut, "{kind}: {words}");
    }
    assert!(most.0 > 128.0, "at most {:.0} times the text: {}; much less than is said", most.0, most.1);
}
