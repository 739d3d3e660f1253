//! Opens arbitrary bytes as a whole model: architecture, tensors, tokenizer and template.
#![no_main]

use std::sync::{Arc, OnceLock};

use cascadia_engine::{Engine, ModelText, OpenOptions};
use cascadia_fuzz::bounded;
use cascadia_kernels::Pool;
use cascadia_weights::ModelFiles;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    static POOL: OnceLock<Arc<Pool>> = OnceLock::new();
    let pool = Arc::clone(POOL.get_or_init(|| Arc::new(Pool::new(1))));
    let options = OpenOptions { context: Some(64), ..OpenOptions::new(pool) };
    bounded(|| {
        let Ok(files) = ModelFiles::from_vec("fuzz.gguf", bytes.to_vec()) else { return };
        let _ = ModelText::read(&files);
        let _ = Engine::from_files(files, &options);
    });
});
