//! The update of the embeddings of tokens.

use cascadia_kernels::{Dtype, Matrix, Shape};
use cascadia_weights::FileKind;

use super::AdapterFiles;
use super::arrange::{Base, Factors, transposed};
use super::files::error;
use super::low_rank::{AdapterPrecision, LowRank, add_weighted, stored};
use super::pairs::{Pair, floats};
use crate::ModelError;

/// The tensor that it changes.
pub(super) const NAME: &str = "token_embd.weight";

/// Adds `up × (the row of a token)` to its embedding.
pub(super) struct EmbeddingUpdate {
    /// A row for each token.
    pub(super) tokens: Matrix,
    pub(super) up: Matrix,
}

impl EmbeddingUpdate {
    /// An update in the format that suits a base of this format; `None` where a number is too large for it. `down` has
    /// a column for each token.
    pub(super) fn new(factors: &Factors, base: Dtype, precision: AdapterPrecision) -> Option<EmbeddingUpdate> {
        // As an update of a matrix whose inputs are tokens: rounded alike, and then turned.
        let LowRank { up, .. } =
            LowRank::new(&Factors { down: vec![0.0; factors.rank * 32], ..factors.clone() }, base, precision)?;
        let rank = up.shape().columns;
        let rows = factors.down.len() / factors.rank;
        let mut down = factors.down.clone();
        down.resize(rank * rows, 0.0);
        let dtype = if up.dtype() == Dtype::F32 { Dtype::F32 } else { Dtype::F16 };
        let tokens = stored(dtype, &transposed(&down, rows), Shape { rows, columns: rank })?;
        Some(EmbeddingUpdate { tokens, up })
    }

    /// What it takes in memory.
    pub(super) fn bytes(&self) -> u64 {
        self.tokens.bytes() + self.up.bytes()
    }

    /// Adds the update to the embeddings of tokens from `first` on.
    pub(super) fn merge(&self, first: usize, columns: usize, rows: &mut [f32]) {
        let rank = self.up.shape().columns;
        let mut up = vec![0.0; columns * rank];
        up.chunks_exact_mut(rank).enumerate().for_each(|(row, out)| self.up.decode_row(row, out));
        let (up, mut weights) = (transposed(&up, rank), vec![0.0; rank]);
        for (token, out) in (first..).zip(rows.chunks_exact_mut(columns)) {
            self.tokens.decode_row(token, &mut weights);
            add_weighted(&weights, &up, out);
        }
    }
}

/// The factors of the update that an adapter has for embeddings, checked against the base.
pub(super) fn factors(
    base: &Base<'_>,
    adapter: &AdapterFiles,
    (module, pair): (&str, &Pair<'_>),
) -> Result<Factors, ModelError> {
    let files = &adapter.files;
    let refuse = |problem: String| Err(error(files, pair.name(), problem));
    let (Some(down), Some(up)) = (pair.down, pair.up) else { return refuse("has no counterpart".to_owned()) };
    if pair.magnitude.is_some() || pair.bias.is_some() || pair.up_bias.is_some() {
        return refuse("changes embeddings with a magnitude or a bias, which is not supported".to_owned());
    }
    let rank = pair.rank();
    let mut down = floats(files, down)?;
    if files.kind() == FileKind::Gguf {
        down = transposed(&down, rank);
    }
    let scale = adapter.config.scale(module, rank);
    let up: Vec<f32> = floats(files, up)?.into_iter().map(|value| value * scale).collect();
    let (tokens, width, _) = base.shape(NAME);
    if (down.len(), up.len()) != (rank * tokens, rank * width) {
        let (found, wide) = (down.len() / rank, up.len() / rank);
        return refuse(format!("is for {found} tokens of {wide} numbers, and the model has {tokens} of {width}"));
    }
    Ok(Factors { rank, down, up, magnitude: None })
}
