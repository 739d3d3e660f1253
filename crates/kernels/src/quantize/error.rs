//! What can stop numbers from being quantised.

use crate::Dtype;

/// Why numbers could not be quantised; nothing was written that may be used.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum QuantizeError {
    /// The format can be read but not written.
    #[error("cannot quantise to {dtype}: this version only reads it; choose another format")]
    ReadOnly {
        /// The wanted format.
        dtype: Dtype,
    },
    /// An input is NaN or infinite.
    #[error(
        "cannot quantise to {dtype}: number {index} is {value}; the source tensor is damaged, so export the model again"
    )]
    NotFinite {
        /// The wanted format.
        dtype: Dtype,
        /// Position in the values given.
        index: usize,
        /// The offending number.
        value: f32,
    },
    /// An input is finite but larger than the format can hold.
    #[error(
        "cannot quantise to {dtype}: number {index} is {value}, beyond the format's limit of {limit}; keep this tensor in F32"
    )]
    TooLarge {
        /// The wanted format.
        dtype: Dtype,
        /// Position in the values given.
        index: usize,
        /// The offending number.
        value: f32,
        /// The largest magnitude the format holds.
        limit: f32,
    },
    /// An importance is negative, NaN or infinite.
    #[error("cannot quantise: importance of column {column} is {value}; importances must be finite and not negative")]
    Importance {
        /// Column of the importance.
        column: usize,
        /// The offending importance.
        value: f32,
    },
    /// The numbers do not fill whole blocks, whole rows of importances, or the room given for the result.
    #[error(
        "cannot quantise {values} numbers in rows of {columns} into {bytes} bytes of {dtype}; rows must fill whole blocks"
    )]
    Length {
        /// The wanted format.
        dtype: Dtype,
        /// How many numbers were given.
        values: usize,
        /// Columns of a row: how many importances were given, or all values without them.
        columns: usize,
        /// Room for the result.
        bytes: usize,
    },
}
