//! The factors of quantised weights, and which columns share one.

use half::{bf16, f16};
use safetensors::tensor::Dtype as StoredDtype;

use super::codes::Along;
use super::parts::Part;
use crate::WeightsError;
use crate::tensor::TensorBytes;

/// A factor per row, or per some rows, and group of columns.
#[derive(Clone, Debug)]
pub(super) struct Scales {
    bytes: TensorBytes,
    dtype: StoredDtype,
    rows: usize,
    groups: usize,
    major: Along,
    /// Rows of the weight that share a factor.
    row_span: usize,
}

/// The size of the matrix of factors, how it lies in the file, and how many rows of the weight share one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub(super) rows: usize,
    pub(super) groups: usize,
    pub(super) major: Along,
    pub(super) row_span: usize,
}

impl Scales {
    /// Takes a stored tensor whose shape the caller has compared with `layout`.
    pub(super) fn new(part: Part<'_>, layout: Layout) -> Result<Scales, WeightsError> {
        part.expect_dtype(&[StoredDtype::F32, StoredDtype::F16, StoredDtype::BF16])?;
        let Layout { rows, groups, major, row_span } = layout;
        let scales = Scales { bytes: part.bytes().clone(), dtype: part.dtype(), rows, groups, major, row_span };
        let strange = scales.iter().find(|scale| !scale.is_finite());
        strange.map_or(Ok(scales), |scale| Err(part.malformed(format!("holds {scale} as a scale"))))
    }

    pub(super) fn groups(&self) -> usize {
        self.groups
    }

    /// The factor of `group` in `row` of the weight.
    pub(super) fn at(&self, row: usize, group: usize) -> f32 {
        let row = row / self.row_span;
        self.value(match self.major {
            Along::Row => row * self.groups + group,
            Along::Column => group * self.rows + row,
        })
    }

    /// All factors, in the order of the file.
    pub(super) fn iter(&self) -> impl Iterator<Item = f32> {
        (0..self.rows * self.groups).map(|index| self.value(index))
    }

    /// Whether every factor can be stored as f16 without loss.
    pub(super) fn fit_f16(&self) -> bool {
        self.dtype == StoredDtype::F16 || self.iter().all(|scale| f16::from_f32(scale).to_f32() == scale)
    }

    fn value(&self, index: usize) -> f32 {
        let bytes = self.bytes.as_ref();
        match self.dtype {
            StoredDtype::F16 => f16::from_le_bytes(bytes.as_chunks().0[index]).to_f32(),
            StoredDtype::BF16 => bf16::from_le_bytes(bytes.as_chunks().0[index]).to_f32(),
            _ => f32::from_le_bytes(bytes.as_chunks().0[index]),
        }
    }
}

/// Which group each column belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Groups {
    /// This many columns after each other, never zero.
    Runs(usize),
    /// As listed; every number is below the number of groups.
    Listed(Box<[u32]>),
}

impl Groups {
    pub(super) fn of(&self, column: usize) -> usize {
        match self {
            Groups::Runs(length) => column / length,
            Groups::Listed(groups) => groups[column] as usize,
        }
    }

    /// Runs of `size` columns, where −1 means all of them; `problem` says what is wrong with other numbers.
    pub(super) fn runs(size: i64, columns: usize, groups: usize) -> Result<Groups, String> {
        let size = match size {
            -1 => columns,
            size => usize::try_from(size).ok().filter(|&size| size > 0).ok_or_else(|| bad_size(size))?,
        };
        if columns.div_ceil(size) == groups {
            return Ok(Groups::Runs(size));
        }
        Err(format!("has {groups} groups for {columns} columns in groups of {size}"))
    }

    /// As `index` lists them, which often is in runs after all.
    pub(super) fn listed(index: &[i64], groups: usize) -> Result<Groups, String> {
        let valid = |&group: &i64| u32::try_from(group).ok().filter(|&group| (group as usize) < groups);
        let listed = index.iter().map(|group| valid(group).ok_or(*group)).collect::<Result<Box<[u32]>, i64>>();
        let listed = listed.map_err(|group| format!("names group {group} of {groups}"))?;
        let run = listed.iter().take_while(|&&group| group == 0).count();
        let in_runs = run > 0 && listed.iter().enumerate().all(|(column, &group)| column / run == group as usize);
        Ok(if in_runs { Groups::Runs(run) } else { Groups::Listed(listed) })
    }

    /// Whether blocks of `length` columns never span two groups.
    pub(super) fn suit_blocks(&self, length: usize, columns: usize) -> bool {
        let mut starts = (0..columns).step_by(length);
        columns.is_multiple_of(length)
            && match self {
                Groups::Runs(run) => run.is_multiple_of(length) || *run >= columns,
                Groups::Listed(groups) => starts.all(|start| {
                    let block = &groups[start..start + length];
                    block.iter().all(|group| group == &block[0])
                }),
            }
    }
}

fn bad_size(size: i64) -> String {
    format!("the group size of config.json is {size}; it should be −1 or above 0")
}
