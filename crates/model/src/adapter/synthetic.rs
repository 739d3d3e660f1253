//! Adapters of random numbers, to measure what adapters cost.

use cascadia_weights::ModelFiles;

use super::arrange::{Base, Factors};
use super::low_rank::{AdapterPrecision, LowRank};
use super::mixture::base_dtype;
use super::{Adapter, AdapterId};
use crate::{ModelError, ModelSpec};

/// What an adapter of random numbers changes.
#[derive(Clone, Copy, Debug)]
pub struct SyntheticAdapter {
    /// The rank of its updates.
    pub rank: usize,
    /// Which matrices it changes.
    pub targets: AdapterTargets,
    /// Other numbers for other seeds.
    pub seed: u64,
}

/// Matrices of layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdapterTargets {
    /// Those before and after attention.
    Attention,
    /// Those of the feed-forward part too, where that has no experts.
    All,
}

impl AdapterTargets {
    fn parts(self) -> &'static [&'static str] {
        const ATTENTION: [&str; 5] = ["attn_q", "attn_k", "attn_v", "attn_qkv", "attn_output"];
        const ALL: [&str; 8] =
            ["attn_q", "attn_k", "attn_v", "attn_qkv", "attn_output", "ffn_gate", "ffn_up", "ffn_down"];
        match self {
            AdapterTargets::Attention => &ATTENTION,
            AdapterTargets::All => &ALL,
        }
    }
}

impl SyntheticAdapter {
    /// Makes it for a model.
    pub fn make(&self, files: &ModelFiles, spec: &ModelSpec) -> Result<Adapter, ModelError> {
        let base = Base::new(files, spec)?;
        let mut state = self.seed;
        let mut number = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 40) as f32 / (1 << 24) as f32 - 0.5) / 32.0
        };
        let mut adapter =
            Adapter { id: AdapterId([0; 32]), rank: self.rank, updates: Default::default(), embedding: None };
        adapter.id.0[..8].copy_from_slice(&self.seed.to_le_bytes());
        for layer in 0..spec.layers.len() {
            for part in self.targets.parts() {
                let name = format!("blk.{layer}.{part}.weight");
                if !base.catalog.has(&name) {
                    continue;
                }
                let (outputs, inputs, _) = base.shape(&name);
                let factors = Factors {
                    rank: self.rank,
                    down: (0..self.rank * inputs).map(|_| number()).collect(),
                    up: (0..self.rank * outputs).map(|_| number()).collect(),
                    magnitude: None,
                };
                let update = LowRank::new(&factors, base_dtype(&base, &name), AdapterPrecision::LikeBase);
                let members = vec![Some(update.expect("small numbers"))];
                adapter.updates.of(&name).members = members;
            }
        }
        Ok(adapter)
    }
}
