//! Arithmetic on quantised numbers: storage formats, matrices, attention, element-wise operations, thread pool.

mod dtype;

pub use dtype::Dtype;
