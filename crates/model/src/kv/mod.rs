//! The KV cache of a stage: classes of pages, formats of cached numbers, and the memory that holds them.

mod format;
mod layout;
mod pages;
mod pool;

pub use format::{CacheFormat, KvFormat, KvFormats};
pub use layout::KvLayout;
pub(crate) use layout::LayerPlace;
pub use pages::{CacheDemand, CachePages, PageClass, PerClass};
pub(crate) use pool::{KvPool, LayerCache};
