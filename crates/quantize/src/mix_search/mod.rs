//! Finds the smallest mix of formats that keeps a model's loss within a target.
//!
//! 1. Each group of like matrices is stored in few bits while the others stay wide, and the divergence from the source
//!    is measured: how much errors there matter.
//! 2. The error of every matrix in every format is computed; times what it matters it predicts the divergence.
//! 3. For a budget of divergence the smallest mix is chosen, written and measured in full. The budget grows or shrinks
//!    until the measured loss just meets the target.

mod choose;
mod sensitivity;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use cascadia_kernels::{Dtype, Pool};
use cascadia_weights::{ModelFiles, ScratchFile};

use self::choose::{Choice, choose};
use self::sensitivity::{Group, Stored, errors, slopes};
use crate::convert::{Planned, plan};
use crate::recipe::{Keep, fitting, is_quantized, layer};
use crate::{Importance, QuantizeError, QuantizeJob, Recipe, quantize};

/// Formats to choose from, all of which llama.cpp reads too.
const FORMATS: [Dtype; 7] =
    [Dtype::Q2_K, Dtype::Q3_K, Dtype::IQ4_XS, Dtype::Q4_K, Dtype::Q5_K, Dtype::Q6_K, Dtype::Q8_0];

/// The mix that everything is compared with while one group is probed.
const BASE: &str = "q8_0";

/// The format, among [`FORMATS`], of the group that is probed: errors large enough to be seen, small enough to add up.
const PROBE: usize = 1;

/// Mixes that are measured in full.
const VERIFIED: usize = 5;

/// What to search for.
pub struct MixSearch<'a> {
    /// The source model.
    pub files: &'a ModelFiles,
    /// The file that will be written in the end; candidates lie beside it for a while.
    pub out: &'a Path,
    /// How much each column of each matrix matters.
    pub importance: Option<&'a Importance>,
    /// The largest loss allowed.
    pub target: f64,
    /// The threads to compute with.
    pub pool: &'a Pool,
}

/// How much of the text to measure on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// A part that shows how much a group matters.
    Probe,
    /// All of it.
    Full,
}

/// What a measurement found, relative to the source model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// Mean divergence of the predictions.
    pub divergence: f64,
    /// The loss that the target is for.
    pub loss: f64,
}

/// How far a search is.
#[derive(Clone, Copy, Debug)]
pub struct SearchProgress {
    /// Measurements done.
    pub done: usize,
    /// The most measurements there will be.
    pub total: usize,
}

/// What a search found.
#[derive(Clone, Debug)]
pub struct FoundMix {
    /// The mix, to be given to [`quantize`].
    pub recipe: Recipe,
    /// Its loss as measured.
    pub measured: Measured,
    /// Bytes of its tensors.
    pub bytes: u64,
    /// How many matrices have each format.
    pub formats: BTreeMap<Dtype, usize>,
}

/// A matrix of the model.
struct Candidate {
    name: String,
    shape: Vec<u64>,
    group: Group,
    /// Errors in each of [`FORMATS`].
    errors: Vec<f64>,
}

impl MixSearch<'_> {
    /// Searches. `measure` compares a written candidate with the source model; `progress` is called before each measurement.
    pub fn run<E: From<QuantizeError>>(
        &self,
        mut measure: impl FnMut(&Path, Depth) -> Result<Measured, E>,
        mut progress: impl FnMut(SearchProgress),
    ) -> Result<FoundMix, E> {
        let candidates = self.candidates()?;
        let groups: BTreeSet<&Group> = candidates.iter().map(|candidate| &candidate.group).collect();
        let total = groups.len() + 1 + VERIFIED;
        let mut done = 0;
        let mut measure = |path: &Path, depth: Depth| {
            progress(SearchProgress { done, total });
            done += 1;
            measure(path, depth)
        };
        let slopes = self.probe(&candidates, &mut measure)?;
        let ways: Vec<_> = candidates.iter().map(|candidate| ways(candidate, slopes[&candidate.group])).collect();
        self.verify(&candidates, &ways, &mut measure)
    }

    /// The matrices that fewer bits pay for, with the errors that each format makes in them.
    fn candidates(&self) -> Result<Vec<Candidate>, QuantizeError> {
        let (_, numbers) = plan(self.files)?;
        let planned = numbers.planned();
        let layers = planned.iter().filter_map(|planned| layer(&planned.name)).max().map_or(0, |last| last + 1);
        let mut candidates = Vec::new();
        for (index, planned) in planned.into_iter().enumerate() {
            let Planned { name, shape, .. } = planned;
            if is_quantized(&name, &shape) {
                let formats = FORMATS.map(|dtype| fitting(dtype, columns(&shape)));
                let (dtype, bytes) = numbers.read(index)?;
                let matrix = Stored { name: &name, shape: &shape, dtype, bytes: (*bytes).as_ref() };
                let errors = errors(&matrix, self.importance, &formats)?;
                candidates.push(Candidate { group: Group::of(&name, layers), name, shape, errors });
            }
        }
        Ok(candidates)
    }

    /// Measures how much errors in each group matter.
    fn probe<E: From<QuantizeError>>(
        &self,
        candidates: &[Candidate],
        measure: &mut impl FnMut(&Path, Depth) -> Result<Measured, E>,
    ) -> Result<BTreeMap<Group, f64>, E> {
        let (base, probe) = (self.scratch()?, self.scratch()?);
        self.write(self.files, base.path(), BASE.parse()?)?;
        let least = measure(base.path(), Depth::Probe)?.divergence;
        // Wide enough to stand for the source, and only the probed group has to be computed again.
        let base_files = ModelFiles::open(base.path()).map_err(QuantizeError::from)?;
        let (mut measured, mut error_sums) = (BTreeMap::new(), BTreeMap::new());
        for candidate in candidates {
            *error_sums.entry(candidate.group.clone()).or_insert(0.0) += candidate.errors[PROBE];
        }
        for group in error_sums.keys() {
            let members = candidates.iter().filter(|candidate| candidate.group == *group);
            let keep = members.map(|candidate| Keep::one(&candidate.name, FORMATS[PROBE])).collect();
            self.write(&base_files, probe.path(), BASE.parse::<Recipe>()?.keeping(keep))?;
            measured.insert(group.clone(), measure(probe.path(), Depth::Probe)?.divergence - least);
        }
        Ok(slopes(&measured, &error_sums))
    }

    /// Measures mixes of growing or shrinking budgets, and returns the smallest one that meets the target.
    fn verify<E: From<QuantizeError>>(
        &self,
        candidates: &[Candidate],
        ways: &[Vec<Choice>],
        measure: &mut impl FnMut(&Path, Depth) -> Result<Measured, E>,
    ) -> Result<FoundMix, E> {
        let scratch = self.scratch()?;
        let mut budget = self.target;
        let (mut met, mut missed) = (0.0, f64::INFINITY);
        let mut best: Option<(f64, FoundMix)> = None;
        let mut tried: Vec<Vec<usize>> = Vec::new();
        for _ in 0..VERIFIED {
            let chosen = choose(ways, budget);
            if tried.contains(&chosen) {
                break;
            }
            let recipe = recipe(candidates, ways, &chosen)?;
            self.write(self.files, scratch.path(), recipe.clone())?;
            let measured = measure(scratch.path(), Depth::Full)?;
            tried.push(chosen.clone());
            if measured.loss <= self.target {
                met = budget;
                best = Some((budget, found(recipe, measured, ways, &chosen)));
            } else {
                missed = budget;
            }
            let scaled = budget * libm::pow(self.target / measured.loss.max(self.target / 4.0), 0.9);
            let inside = if met > 0.0 { (met * missed.min(met * 4.0)).sqrt() } else { missed / 2.0 };
            budget = if scaled > met * 1.02 && scaled < missed * 0.98 { scaled } else { inside };
        }
        best.map(|(_, found)| found).ok_or_else(|| {
            E::from(QuantizeError::Setting {
                name: "target-loss",
                value: format!("{:.4} %, which no mix met", 100.0 * self.target),
                allowed: "larger, or measured on a longer text",
            })
        })
    }

    /// A file beside the result for a mix that is only measured.
    fn scratch(&self) -> Result<ScratchFile, QuantizeError> {
        Ok(ScratchFile::beside(self.out)?)
    }

    fn write(&self, files: &ModelFiles, out: &Path, recipe: Recipe) -> Result<(), QuantizeError> {
        let job = QuantizeJob { files, out, recipe, importance: self.importance, pool: self.pool };
        quantize(&job, |_| {}).map(drop)
    }
}

/// The mix named after the format that most bytes have, with every matrix as an exception.
fn recipe(candidates: &[Candidate], ways: &[Vec<Choice>], chosen: &[usize]) -> Result<Recipe, QuantizeError> {
    let chosen = || ways.iter().zip(chosen).map(|(ways, &way)| &ways[way]);
    let mut bytes: BTreeMap<Dtype, u64> = BTreeMap::new();
    chosen().for_each(|way| *bytes.entry(way.dtype).or_default() += way.bytes);
    let most = bytes.iter().max_by_key(|(_, bytes)| **bytes).and_then(|(dtype, _)| Recipe::mostly(*dtype));
    let keep = candidates.iter().zip(chosen()).map(|(candidate, way)| Keep::one(&candidate.name, way.dtype));
    Ok(most.map_or_else(|| BASE.parse(), Ok)?.keeping(keep.collect()))
}

fn columns(shape: &[u64]) -> u64 {
    shape.last().copied().unwrap_or(0)
}

/// Every format of a matrix with its size and its predicted cost.
fn ways(candidate: &Candidate, slope: f64) -> Vec<Choice> {
    let columns = columns(&candidate.shape);
    let rows = candidate.shape.iter().product::<u64>() / columns.max(1);
    let way = |(dtype, error): (Dtype, &f64)| {
        let dtype = fitting(dtype, columns);
        Choice { dtype, bytes: dtype.row_bytes(columns).unwrap_or(0) * rows, cost: error * slope }
    };
    FORMATS.into_iter().zip(&candidate.errors).map(way).collect()
}

fn found(recipe: Recipe, measured: Measured, ways: &[Vec<Choice>], chosen: &[usize]) -> FoundMix {
    let mut formats = BTreeMap::new();
    let mut bytes = 0;
    for (ways, &way) in ways.iter().zip(chosen) {
        *formats.entry(ways[way].dtype).or_insert(0) += 1;
        bytes += ways[way].bytes;
    }
    FoundMix { recipe, measured, bytes, formats }
}
