//! A step as the scheduler plans it, and what came of it.

use std::ops::Range;

use cascadia_model::StepPlan;

use crate::service::JobId;

/// A step to compute. It goes back to `commit` exactly once.
#[derive(Debug, Default)]
pub struct Plan {
    /// What the pipeline runs.
    pub step: StepPlan,
    /// Which rows belong to which job, in the order of the rows.
    pub jobs: Vec<JobRows>,
    /// Rows of tenants that took too much, in a step that was to be kept short for others' answers.
    pub restrained: Option<usize>,
}

/// The rows of one job in a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobRows {
    /// The job.
    pub id: JobId,
    /// Its rows.
    pub rows: Range<u32>,
    /// Of those, the rows that are read.
    pub wanted: Range<u32>,
    /// Position in its sequence of the first row that is read.
    pub position: u32,
    /// Draft tokens in its last rows.
    pub drafted: u32,
    /// In its first plan, how many of its tokens were cached.
    pub reused: Option<usize>,
}

/// What came of a job's rows in a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Advance {
    /// Its rows were computed, and these tokens follow; they may be more than one row gives, if they are known.
    Computed(Vec<u32>),
    /// The same, and nobody wants more of it.
    Finished(Vec<u32>),
    /// Its rows were not computed: they are tried again in a step of its own.
    Again,
}
