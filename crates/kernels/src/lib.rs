//! Arithmetic on quantised numbers: storage formats, matrices, attention, element-wise operations, thread pool.

mod activation;
mod activations;
mod attention;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod avx_vnni;
mod blocks;
mod cached_rows;
mod ceilings;
mod codes;
mod dtype;
#[cfg_attr(
    not(any(target_arch = "x86_64", target_arch = "aarch64")),
    expect(dead_code, reason = "the scalar kernels, which other CPUs have of it, read nothing ahead")
)]
mod kv_codes;
mod layout;
mod matrix;
mod multiply_add;
#[cfg(target_arch = "aarch64")]
mod neon;
mod ops;
mod pool;
mod precision;
mod product;
pub mod quantize;
mod reading;
mod readings;
mod runs;
mod scalar;
mod share;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod vector;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use activation::Activation;
pub use activations::{ActivationForm, Activations, Int8Block32, Int8Block256, Rows};
pub use attention::{Attention, AttentionScratch, KvPage, RowPlace};
pub use blocks::{f32_to_byte, half_to_f32};
pub use cached_rows::{CachedRows, Stored};
pub use ceilings::{Peak, barrier_seconds, peak_speed, read_speed};
pub use dtype::Dtype;
pub use kv_codes::{CodeBits, Codes, CodesMut, SealScratch, Side};
pub use layout::{Layout, interleave};
pub use matrix::{Matrix, MatrixError, Shape, SharedBytes};
pub use ops::{AttentionOps, CeilingOps, InterleavedRows, Ops, OpsSlot, ProductOps, RowOps, WeightRows};
pub use pool::{Pool, TileMut, TiledRows, Worker};
pub use precision::ActivationPrecision;
pub use product::{Groups, Product, add_all, multiply_all, multiply_groups};
pub use reading::{ReadAhead, Reading, ReadingError};
pub use readings::{MatrixKind, Readings, TimedReading, time_readings};
pub use runs::{FourRuns, Tiling};
pub use scalar::decode_row;
pub use share::TilePlace;
