//! The table of low-level kernels for one instruction set, in parts that can be replaced one by one.
//!
//! Every table gives the same bits: a kernel is a fixed sequence of exactly rounded operations (integer sums inside a
//! block, then one fused multiply-add per block in block order; float sums over sixteen lanes with a fixed reduction).
//! The scalar table is that specification in plain Rust; the others are only faster.

mod attention;
mod ceilings;
mod products;
mod rows;
mod slot;

pub use attention::AttentionOps;
pub(crate) use attention::{Queries, Softmax};
pub use ceilings::CeilingOps;
pub(crate) use products::Multiply;
pub use products::{InterleavedRows, ProductOps, WeightRows};
pub use rows::RowOps;
pub use slot::OpsSlot;

use crate::scalar;

/// Kernels of one instruction set. `Ops::available()` lists those that this CPU can run.
pub struct Ops {
    pub(crate) name: &'static str,
    /// Weights times activations.
    pub products: ProductOps,
    /// Scores and weighted sums over the KV cache.
    pub attention: AttentionOps,
    /// Norms, activation functions, sums.
    pub rows: RowOps,
    /// What the CPU could do at most.
    pub ceilings: CeilingOps,
}

impl Ops {
    /// The tables this CPU can run, best first; the last one is the scalar specification.
    pub fn available() -> Vec<&'static Ops> {
        let mut tables = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 =
                is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c");
            let avx512 = is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512vnni");
            if avx2 && avx512 {
                tables.push(&crate::avx512::OPS);
            }
            if avx2 && is_x86_feature_detected!("avxvnni") {
                tables.push(&crate::avx_vnni::OPS);
            }
            if avx2 {
                tables.push(&crate::avx2::OPS);
            }
        }
        #[cfg(target_arch = "aarch64")]
        if std::arch::is_aarch64_feature_detected!("neon") {
            if std::arch::is_aarch64_feature_detected!("dotprod") {
                tables.push(&crate::neon::OPS);
            }
            tables.push(&crate::neon::FLOAT_OPS);
        }
        tables.push(&scalar::OPS);
        tables
    }

    /// The best table for this CPU.
    pub fn best() -> &'static Ops {
        Ops::available()[0]
    }

    /// Name of the instruction set.
    pub fn name(&self) -> &'static str {
        self.name
    }
}
