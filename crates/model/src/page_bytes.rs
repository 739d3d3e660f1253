//! What pages of the KV cache hold, as bytes that can be kept elsewhere and put back.

use std::ops::Range;

use crate::{PageClass, PageId, StageError};

/// Pages whose bytes are in this process. A copy fits into any page of the same class, of layers that cache alike.
pub trait PageBytes: Send + Sync {
    /// Bytes of a page; zero where no layer is of this class.
    fn page_bytes(&self, class: PageClass) -> usize;
    /// A copy of what a page holds in all layers of its class.
    fn copy_page(&self, class: PageClass, page: PageId) -> Vec<u8>;
    /// Fills a page with a copy that was made of one.
    fn fill_page(&self, class: PageClass, page: PageId, bytes: &[u8]) -> Result<(), StageError>;
    /// Gives the memory of a page back to the system. The page stays usable, and is zero until it is written again.
    fn give_back_page(&self, class: PageClass, page: PageId) -> Result<(), StageError>;
}

/// Pages that can be copied some tokens at a time, while others are still written. A copy fits into the same tokens of any page
/// of the same class, of layers that cache alike. What is quantised by the page comes with its last token.
pub trait PageRows: Send + Sync {
    /// Bytes of these tokens of a page in all layers of its class.
    fn row_bytes(&self, class: PageClass, tokens: &Range<u32>) -> usize;
    /// A copy of these tokens of a page.
    fn copy_rows(&self, class: PageClass, page: PageId, tokens: &Range<u32>) -> Result<Vec<u8>, StageError>;
    /// Fills these tokens of a page with a copy, and leaves the others as they are.
    fn fill_rows(&self, class: PageClass, page: PageId, tokens: &Range<u32>, bytes: &[u8]) -> Result<(), StageError>;
}
