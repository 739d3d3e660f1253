//! A tiny random model for tests: float weights, a context of 256 tokens.

use std::path::Path;
use std::sync::Arc;

use cascadia_engine::{Engine, OpenOptions, Session};
use cascadia_kernels::Pool;
use cascadia_model::KvPolicy;
use cascadia_weights::ModelFiles;

use crate::random::Random;

/// Tokens of its vocabulary.
const VOCABULARY: u64 = 96;

pub(crate) fn files() -> ModelFiles {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/smollm3");
    ModelFiles::open(&path).expect("the fixture can be opened")
}

pub(crate) fn options(kv: KvPolicy) -> OpenOptions {
    OpenOptions { kv, ..OpenOptions::new(Arc::new(Pool::new(1))) }
}

pub(crate) fn session(kv: KvPolicy, context: u32) -> Session {
    let options = OpenOptions { context: Some(context), ..options(kv) };
    Engine::from_files(files(), &options).expect("the fixture can be loaded").into_session()
}

/// Random tokens, the same for the same seed.
pub(crate) fn tokens(seed: u64, count: usize) -> Vec<u32> {
    let mut random = Random::new(seed, 0);
    (0..count).map(|_| random.below(VOCABULARY) as u32).collect()
}
