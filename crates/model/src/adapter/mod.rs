//! Adapters: low-rank changes to the matrices of a model, which every sequence may have others of.

mod arrange;
mod config;
mod embedding;
mod files;
mod low_rank;
mod magnitude;
mod mixture;
mod pairs;
mod portable;
mod row_updates;
mod rows;
mod synthetic;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use cascadia_weights::ModelFiles;

pub use files::{AdapterFiles, AdapterSummary};
pub use low_rank::AdapterPrecision;
pub(crate) use rows::{AdapterRows, Target};
pub use synthetic::{AdapterTargets, SyntheticAdapter};

use crate::catalog::Catalog;
use crate::{ModelError, ModelSpec};
use embedding::EmbeddingUpdate;
use low_rank::LowRank;

/// Names what an adapter contains: tokens depend on it, and on no name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AdapterId(pub [u8; 32]);

/// One of the adapters that are used together, and how much it counts.
#[derive(Clone, Copy)]
pub struct AdapterPart<'a> {
    /// Its files.
    pub files: &'a AdapterFiles,
    /// What its change is multiplied with.
    pub weight: f32,
}

/// Adapter weights ready to compute beside a model's own.
pub struct Adapter {
    id: AdapterId,
    rank: usize,
    updates: Updates,
    embedding: Option<EmbeddingUpdate>,
}

/// What an adapter changes, by tensor.
#[derive(Default)]
struct Updates(BTreeMap<TargetKey, Update>);

/// Stands for the GGUF name of a tensor: projections look for it in every step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TargetKey(u64);

/// What an adapter changes in the matrices of one tensor.
#[derive(Default)]
struct Update {
    /// The tensor's GGUF name.
    name: String,
    /// One for each expert or head; one where the tensor is a single matrix.
    members: Vec<Option<LowRank>>,
    /// What is added instead of the base's bias.
    bias: Option<Vec<f32>>,
}

impl Adapter {
    /// Reads adapters, checks every tensor against the base, and arranges them as its matrices are.
    pub fn load(
        parts: &[AdapterPart<'_>],
        base: &ModelFiles,
        spec: &ModelSpec,
        precision: AdapterPrecision,
    ) -> Result<Adapter, ModelError> {
        mixture::load(parts, base, spec, precision)
    }

    /// Names its content.
    pub fn id(&self) -> AdapterId {
        self.id
    }

    /// The greatest rank of its updates.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// What it takes in memory.
    pub fn bytes(&self) -> u64 {
        let update = |update: &Update| {
            let bias = update.bias.as_ref().map_or(0, |bias| 4 * bias.len() as u64);
            bias + update.members.iter().flatten().map(LowRank::bytes).sum::<u64>()
        };
        self.updates.0.values().map(update).sum::<u64>() + self.embedding.as_ref().map_or(0, EmbeddingUpdate::bytes)
    }

    /// Products that are added up for each row, with the zeros that fill blocks; of tensors with several matrices, as if a row met all.
    pub fn multiply_adds(&self) -> u64 {
        let update = |update: &Update| update.members.iter().flatten().map(LowRank::multiply_adds).sum::<u64>();
        self.updates.0.values().map(update).sum::<u64>()
    }

    /// The GGUF names of the tensors that it changes, sorted.
    pub fn targets(&self) -> Vec<&str> {
        let embedding = self.embedding.as_ref().map(|_| embedding::NAME);
        let mut names: Vec<&str> = self.updates.names().chain(embedding).collect();
        names.sort_unstable();
        names
    }

    /// Adds the change to rows from `first_row` on of a matrix of the base, in the base's own order of rows; `member` is the
    /// number of the expert or head, 0 of a single matrix. Returns whether there is one.
    pub fn merge(&self, name: &str, member: usize, first_row: usize, columns: usize, rows: &mut [f32]) -> bool {
        if let Some(embedding) = self.embedding.as_ref().filter(|_| name == embedding::NAME) {
            embedding.merge(first_row, columns, rows);
            return true;
        }
        let update = self.update(TargetKey::of(name), member);
        update.iter().for_each(|update| update.merge(first_row, columns, rows));
        update.is_some()
    }

    /// The bias of a projection with this adapter, by the name of its matrix, where it changes that.
    pub fn bias(&self, name: &str) -> Option<&[f32]> {
        self.bias_of(TargetKey::of(name))
    }

    /// Finds what outputs are scaled with, as far as that depends on matrices which are here and which it has not seen.
    pub(crate) fn see(&self, catalog: &Catalog<'_>) -> Result<(), ModelError> {
        for update in self.updates.0.values().filter(|update| !update.is_complete()) {
            let Some(matrices) = magnitude::matrices(catalog, &update.name)? else { continue };
            let members = update.members.iter().zip(&matrices);
            members.for_each(|(member, matrix)| member.iter().for_each(|member| member.see(matrix)));
        }
        Ok(())
    }

    /// Whether it can be computed in these layers without having seen more matrices.
    pub(crate) fn is_complete_in(&self, layers: &Range<u32>) -> bool {
        self.updates.0.values().all(|update| update.is_complete() || !update.is_in(layers))
    }

    fn bias_of(&self, target: TargetKey) -> Option<&[f32]> {
        self.updates.0.get(&target)?.bias.as_deref()
    }

    fn update(&self, target: TargetKey, member: usize) -> Option<&LowRank> {
        self.updates.0.get(&target)?.members.get(member)?.as_ref()
    }
}

impl Update {
    /// Whether the matrices that it changes lie in one of these layers.
    fn is_in(&self, layers: &Range<u32>) -> bool {
        let layer = self.name.strip_prefix("blk.").and_then(|rest| rest.split_once('.')?.0.parse().ok());
        layer.is_some_and(|layer| layers.contains(&layer))
    }

    fn is_complete(&self) -> bool {
        self.members.iter().flatten().all(LowRank::is_complete)
    }
}

impl TargetKey {
    /// The key of a tensor. Models have some thousands of names, far too few for two of one key.
    pub(crate) fn of(name: &str) -> TargetKey {
        let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        TargetKey(name.bytes().fold(0xcbf2_9ce4_8422_2325, mix))
    }
}

impl Updates {
    /// What is changed in a tensor, to be added to.
    fn of(&mut self, name: &str) -> &mut Update {
        let empty = || Update { name: name.to_owned(), ..Update::default() };
        self.0.entry(TargetKey::of(name)).or_insert_with(empty)
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.0.values().map(|update| update.name.as_str())
    }
}

impl fmt::Display for AdapterId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

impl fmt::Debug for AdapterId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{self}")
    }
}

impl fmt::Debug for Adapter {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Adapter({})", self.id)
    }
}
