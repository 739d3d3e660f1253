//! Rows as the blocks of a format, each with the importances of its columns.

/// Rows of whole blocks: `E` numbers become `B` bytes.
pub(super) struct WholeBlocks<'a, const E: usize, const B: usize> {
    /// The numbers.
    pub(super) values: &'a [[f32; E]],
    /// How much their columns matter.
    pub(super) importance: ImportanceBlocks<'a, E>,
    /// Where they are written.
    pub(super) out: &'a mut [[u8; B]],
}

/// The importances of a row's blocks: the same for every row.
#[derive(Clone, Copy)]
pub(super) struct ImportanceBlocks<'a, const E: usize> {
    /// Empty where all columns matter the same.
    columns: &'a [[f32; E]],
}

impl<'a, const E: usize, const B: usize> WholeBlocks<'a, E, B> {
    /// Rows whose lengths were checked.
    #[inline(always)]
    pub(super) fn new(values: &'a [f32], importance: Option<&'a [f32]>, out: &'a mut [u8]) -> Self {
        let columns = importance.unwrap_or_default().as_chunks().0;
        WholeBlocks {
            values: values.as_chunks().0,
            importance: ImportanceBlocks { columns },
            out: out.as_chunks_mut().0,
        }
    }
}

impl<const E: usize> ImportanceBlocks<'_, E> {
    /// The importances of a block, counted through all rows.
    #[inline(always)]
    pub(super) fn of_block(&self, block: usize) -> &[f32; E] {
        match self.columns {
            [] => &[1.0; E],
            columns => &columns[block % columns.len()],
        }
    }
}
