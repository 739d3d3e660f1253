//! From the files of one adapter, or of several that are used together, to an adapter that computes.

use std::collections::{BTreeMap, BTreeSet};

use cascadia_kernels::Dtype;
use cascadia_weights::{FileKind, ModelFiles};

use super::arrange::{Base, Factors, Placed, PlacedBias};
use super::embedding::{self, EmbeddingUpdate};
use super::files::error;
use super::low_rank::{AdapterPrecision, LowRank};
use super::{Adapter, AdapterFiles, AdapterId, AdapterPart, Updates};
use crate::{ModelError, ModelSpec};

/// The greatest rank of several updates together.
const MOST_RANK_TOGETHER: usize = 1024;

/// What several adapters change together.
#[derive(Default)]
struct Sum {
    /// By tensor and number of the matrix.
    factors: BTreeMap<(String, usize), Factors>,
    embedding: Option<Factors>,
    biases: BTreeMap<String, Vec<f32>>,
}

pub(super) fn load(
    parts: &[AdapterPart<'_>],
    base_files: &ModelFiles,
    spec: &ModelSpec,
    precision: AdapterPrecision,
) -> Result<Adapter, ModelError> {
    let base = Base::new(base_files, spec)?;
    let mut sum = Sum::default();
    for part in parts {
        base.check(part.files)?;
        if !part.weight.is_finite() || (part.files.config.magnitudes && (parts.len() > 1 || part.weight != 1.0)) {
            let problem = "cannot be weighted or mixed: DoRA scales whole rows of weights".to_owned();
            return Err(error(&part.files.files, "use_dora", problem));
        }
        sum.add(&base, part)?;
        part.files.files.check_intact()?;
        part.files.unload();
    }
    let named = parts.first().map_or(base_files, |part| &part.files.files);
    sum.finish(&base, (precision, AdapterId::of(parts)), named)
}

impl Sum {
    /// Adds what one adapter changes.
    fn add(&mut self, base: &Base<'_>, part: &AdapterPart<'_>) -> Result<(), ModelError> {
        let AdapterPart { files, weight } = *part;
        let mut own = BTreeSet::new();
        for (module, pair) in files.pairs() {
            let gguf_embedding = files.files.kind() == FileKind::Gguf && module == embedding::NAME;
            if pair.embeds || gguf_embedding {
                let factors = embedding::factors(base, files, (&module, &pair))?.weighted(weight);
                self.embedding = Some(match self.embedding.take() {
                    None => factors,
                    Some(others) => others.beside(factors),
                });
                continue;
            }
            let (placed, bias) = base.place(files, (&module, &pair))?;
            for Placed { name, member, factors } in placed {
                if !own.insert((name.clone(), member)) {
                    return Err(error(&files.files, pair.name(), format!("changes `{name}` a second time")));
                }
                self.add_factors((name, member), factors.weighted(weight));
            }
            if let Some(bias) = bias {
                self.add_bias(base, files, (bias, weight))?;
            }
        }
        Ok(())
    }

    fn add_factors(&mut self, place: (String, usize), factors: Factors) {
        let sum = match self.factors.remove(&place) {
            None => factors,
            Some(others) => others.beside(factors),
        };
        self.factors.insert(place, sum);
    }

    /// Adds the difference that an adapter makes to a bias.
    fn add_bias(
        &mut self,
        base: &Base<'_>,
        files: &AdapterFiles,
        (bias, weight): (PlacedBias, f32),
    ) -> Result<(), ModelError> {
        let PlacedBias { name, whole, more } = bias;
        let outputs = base.shape(&name).0;
        let own_name = name.strip_suffix("weight").map(|stem| format!("{stem}bias"));
        let Some(own_name) = own_name else { return Err(error(&files.files, &name, "has no bias")) };
        let own = base.catalog.vector(&own_name, outputs)?.unwrap_or_else(|| vec![0.0; outputs]);
        let sum = self.biases.entry(name).or_insert_with(|| own.clone());
        if let Some(whole) = whole {
            // A whole one that counts fully takes the place of the base's, exactly.
            let changed = |(sum, (whole, own)): (&mut f32, (&f32, &f32))| match weight == 1.0 && *sum == *own {
                true => *sum = *whole,
                false => *sum += weight * (whole - own),
            };
            sum.iter_mut().zip(whole.iter().zip(&own)).for_each(changed);
        }
        more.iter().for_each(|more| sum.iter_mut().zip(more).for_each(|(sum, more)| *sum += weight * more));
        Ok(())
    }

    /// Brings everything into the formats that kernels multiply with.
    fn finish(
        self,
        base: &Base<'_>,
        (precision, id): (AdapterPrecision, AdapterId),
        files: &ModelFiles,
    ) -> Result<Adapter, ModelError> {
        let too_large = |name: &str| error(files, name, "gets numbers that are too large, or too great a rank");
        let Sum { factors, embedding, biases } = self;
        let mut rank = 0;
        let mut updates = Updates::default();
        for ((name, member), factors) in factors {
            let update = LowRank::new(&factors, base_dtype(base, &name), precision)
                .filter(|_| factors.rank <= MOST_RANK_TOGETHER)
                .ok_or_else(|| too_large(&name))?;
            rank = rank.max(factors.rank);
            let members = &mut updates.of(&name).members;
            members.resize_with(members.len().max(member + 1), || None);
            members[member] = Some(update);
        }
        for (name, bias) in biases {
            updates.of(&name).bias = Some(bias);
        }
        let embed = |factors: Factors| {
            let update = EmbeddingUpdate::new(&factors, base_dtype(base, embedding::NAME), precision);
            update.ok_or_else(|| too_large(embedding::NAME))
        };
        let adapter = Adapter { id, rank, updates, embedding: embedding.map(embed).transpose()? };
        adapter.see(&base.catalog)?;
        Ok(adapter)
    }
}

impl Factors {
    /// The same, counting so much.
    fn weighted(mut self, weight: f32) -> Factors {
        if weight != 1.0 {
            self.up.iter_mut().for_each(|value| *value *= weight);
        }
        self
    }

    /// Both updates as one, whose rank is the sum of theirs.
    fn beside(self, other: Factors) -> Factors {
        let rows = self.up.chunks_exact(self.rank).zip(other.up.chunks_exact(other.rank));
        Factors {
            rank: self.rank + other.rank,
            up: rows.flat_map(|(own, others)| own.iter().chain(others)).copied().collect(),
            down: [self.down, other.down].concat(),
            magnitude: None,
        }
    }
}

/// The format of a tensor of the base.
pub(super) fn base_dtype(base: &Base<'_>, name: &str) -> Dtype {
    let entry = base.catalog.require(name).or_else(|_| base.catalog.require(embedding::NAME));
    entry.map_or(Dtype::F32, |entry| entry.dtype())
}

impl AdapterId {
    /// Names what adapters with weights contain together.
    pub fn of(parts: &[AdapterPart<'_>]) -> AdapterId {
        if let [AdapterPart { files, weight }] = parts
            && *weight == 1.0
        {
            return files.id();
        }
        let mut hasher = blake3::Hasher::new();
        for AdapterPart { files, weight } in parts {
            hasher.update(&files.id().0).update(&weight.to_le_bytes());
        }
        AdapterId(*hasher.finalize().as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_updates_are_one_of_greater_rank() {
        let one = Factors { rank: 1, down: vec![1.0, 2.0], up: vec![3.0, 4.0], magnitude: None };
        let two = Factors { rank: 2, down: vec![5.0, 6.0, 7.0, 8.0], up: vec![1.0, 2.0, 3.0, 4.0], magnitude: None };
        let both = one.weighted(0.5).beside(two);
        assert_eq!((both.rank, both.down.as_slice()), (3, [1.0, 2.0, 5.0, 6.0, 7.0, 8.0].as_slice()));
        assert_eq!(both.up, [1.5, 1.0, 2.0, 2.0, 3.0, 4.0]);
    }
}
