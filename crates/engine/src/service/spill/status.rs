//! What the disk tier has done, as numbers.

/// The disk tier at one moment; all but `records`, `bytes` and `waiting_bytes` only grow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpillStatus {
    /// Why the disk is not used at the moment; nothing while it is.
    pub problem: Option<String>,
    /// Pages on disk.
    pub records: u64,
    /// Bytes that they take there.
    pub bytes: u64,
    /// The most that they may take.
    pub most_bytes: u64,
    /// Bytes that wait to be written.
    pub waiting_bytes: u64,
    /// Pages written.
    pub written: u64,
    /// Bytes of them.
    pub written_bytes: u64,
    /// Pages that were not written: too many waited, or the disk was not used.
    pub dropped: u64,
    /// Pages that came back.
    pub restored: u64,
    /// Bytes of them.
    pub restored_bytes: u64,
    /// Prompts of which the next page was neither in memory nor on disk.
    pub absent: u64,
    /// Records that were not what was written.
    pub damaged: u64,
    /// Records that the disk did not read.
    pub unreadable: u64,
}
