//! The KV cache of a stage: classes of pages, formats of cached numbers, and the memory that holds them.

mod format;
mod layout;
mod pages;
mod policy;
mod pool;
mod stored;

pub use format::{CacheFormat, KvFormat};
pub use layout::KvLayout;
pub(crate) use layout::{LayerPlace, PagePart};
pub use pages::{CacheDemand, CachePages, PageClass, PerClass, Span};
pub(crate) use policy::Tail;
pub use policy::{KvFormats, KvPolicy};
pub(crate) use pool::{KvPool, LayerCache};
