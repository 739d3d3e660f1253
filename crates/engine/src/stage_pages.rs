//! The pages of a model whose stages all run in this process.

use std::sync::Arc;

use cascadia_model::{PageBytes, PageClass, PageId, Placement, Stage, StageCache, StageError};

/// A page is what all stages hold of it, one after the other.
pub(crate) struct StagePages {
    stages: Arc<[Box<dyn Stage>]>,
}

impl StagePages {
    /// Nothing where a stage runs elsewhere, or does not cache in pages that can be read.
    pub(crate) fn new(stages: Arc<[Box<dyn Stage>]>) -> Option<StagePages> {
        let is_readable = |stage: &dyn Stage| {
            let traits = stage.traits();
            traits.placement == Placement::Local && traits.cache == StageCache::Paged && stage.pages().is_some()
        };
        stages.iter().all(|stage| is_readable(&**stage)).then_some(StagePages { stages })
    }

    fn parts(&self) -> impl Iterator<Item = &dyn PageBytes> {
        self.stages.iter().filter_map(|stage| stage.pages())
    }
}

impl PageBytes for StagePages {
    fn page_bytes(&self, class: PageClass) -> usize {
        self.parts().map(|part| part.page_bytes(class)).sum()
    }

    fn copy_page(&self, class: PageClass, page: PageId) -> Vec<u8> {
        let parts: Vec<Vec<u8>> = self.parts().map(|part| part.copy_page(class, page)).collect();
        // Usually there is one, which need not be copied again.
        match <[Vec<u8>; 1]>::try_from(parts) {
            Ok([whole]) => whole,
            Err(parts) => parts.concat(),
        }
    }

    fn fill_page(&self, class: PageClass, page: PageId, bytes: &[u8]) -> Result<(), StageError> {
        let (held, length) = (bytes.len(), self.page_bytes(class));
        if held != length {
            return Err(StageError::Plan { problem: format!("{held} bytes for {class:?} page {page} of {length}") });
        }
        let mut rest = bytes;
        for part in self.parts() {
            let (own, after) = rest.split_at(part.page_bytes(class));
            part.fill_page(class, page, own)?;
            rest = after;
        }
        Ok(())
    }

    fn give_back_page(&self, class: PageClass, page: PageId) -> Result<(), StageError> {
        self.parts().try_for_each(|part| part.give_back_page(class, page))
    }
}
