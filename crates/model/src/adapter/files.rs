//! The files of an adapter: a PEFT folder, its safetensors file, or a GGUF adapter.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::path::Path;

use cascadia_weights::{FileKind, MemoryAdvice, ModelFiles};

use super::AdapterId;
use super::config::AdapterConfig;
use super::pairs::{self, Pair};
use crate::ModelError;

/// What PEFT calls the weights in a folder.
const WEIGHTS_FILE: &str = "adapter_model.safetensors";

/// An adapter whose files are open and whose tensors have found their places.
pub struct AdapterFiles {
    pub(super) files: ModelFiles,
    pub(super) config: AdapterConfig,
    id: AdapterId,
}

/// An adapter in a few words and numbers.
#[derive(Clone, Debug)]
pub struct AdapterSummary {
    /// "PEFT" or "GGUF".
    pub format: &'static str,
    /// "LoRA", "rsLoRA" or "DoRA".
    pub kind: &'static str,
    /// The model that it was trained on, as its author calls it.
    pub base: Option<String>,
    /// What updates are multiplied with, before they are divided by their rank.
    pub alpha: f32,
    /// The least and the greatest rank.
    pub ranks: RangeInclusive<usize>,
    /// The kinds of modules that it changes, sorted.
    pub modules: Vec<String>,
    /// How many tensors it has.
    pub tensors: usize,
    /// How many numbers they hold.
    pub parameters: u64,
    /// How many bytes they take in the file.
    pub bytes: u64,
}

impl AdapterFiles {
    /// Opens a PEFT folder, a safetensors file with adapter_config.json beside it, or a GGUF adapter.
    pub fn open(path: &Path) -> Result<AdapterFiles, ModelError> {
        let weights = path.join(WEIGHTS_FILE);
        let files = if weights.is_file() { ModelFiles::open(&weights)? } else { open_other(path)? };
        let config = AdapterConfig::read(&files)?;
        let pairs = pairs::read(&files, &config.parameters)?;
        if let Some((_, pair)) =
            pairs.iter().find(|(_, pair)| pair.down.is_some() && config.magnitudes != pair.magnitude.is_some())
        {
            let has = if config.magnitudes { "has no" } else { "has a" };
            let problem = format!("{has} magnitude, and use_dora is {}", config.magnitudes);
            return Err(error(&files, pair.name(), problem));
        }
        let id = digest(&files, &config);
        let adapter = AdapterFiles { files, config, id };
        adapter.unload();
        Ok(adapter)
    }

    /// Takes what was read of its files out of this process: there may be a thousand, and only some are used. The system may keep
    /// it, so that it is read again fast.
    pub(super) fn unload(&self) {
        // Where the system does not do it, the pages stay.
        let _ = self.files.advise(MemoryAdvice::Unload);
    }

    /// Names its content.
    pub fn id(&self) -> AdapterId {
        self.id
    }

    /// The file that holds its weights.
    pub fn path(&self) -> &Path {
        self.files.path()
    }

    /// What there is to say of it.
    pub fn summary(&self) -> AdapterSummary {
        let pairs = self.pairs();
        let rank = |pair: &Pair<'_>| self.config.rank.filter(|_| pair.parameter).unwrap_or(pair.rank());
        let ranks: BTreeSet<usize> = pairs.iter().map(|(_, pair)| rank(pair)).filter(|rank| *rank > 0).collect();
        let last_part = |module: &str| {
            let module = module.strip_suffix(".weight").unwrap_or(module).trim_end_matches(pairs::WRAPPED);
            module.rsplit('.').next().unwrap_or(module).to_owned()
        };
        let modules: BTreeSet<String> = pairs.iter().map(|(module, _)| last_part(module)).collect();
        AdapterSummary {
            format: if self.files.kind() == FileKind::Gguf { "GGUF" } else { "PEFT" },
            kind: match (self.config.magnitudes, self.config.by_root) {
                (true, _) => "DoRA",
                (false, true) => "rsLoRA",
                (false, false) => "LoRA",
            },
            base: self.config.base.clone(),
            alpha: self.config.alpha,
            ranks: ranks.first().copied().unwrap_or(0)..=ranks.last().copied().unwrap_or(0),
            modules: modules.into_iter().collect(),
            tensors: self.files.tensors().len(),
            parameters: self.files.parameters(),
            bytes: self.files.weight_bytes(),
        }
    }

    /// Its tensors by module.
    pub(super) fn pairs(&self) -> Vec<(String, Pair<'_>)> {
        pairs::read(&self.files, &self.config.parameters).expect("they were read when it was opened")
    }
}

fn open_other(path: &Path) -> Result<ModelFiles, ModelError> {
    if !path.is_dir() {
        return Ok(ModelFiles::open(path)?);
    }
    let ggufs = std::fs::read_dir(path).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    let mut ggufs = ggufs.filter(|file| file.extension().is_some_and(|extension| extension == "gguf"));
    match (ggufs.next(), ggufs.next()) {
        (Some(only), None) => Ok(ModelFiles::open(&only)?),
        _ => Err(ModelError::Adapter {
            path: path.to_owned(),
            name: WEIGHTS_FILE.to_owned(),
            problem: "is not there; give the folder of a PEFT adapter, or a .gguf adapter".to_owned(),
        }),
    }
}

/// A digest of everything that tokens depend on.
fn digest(files: &ModelFiles, config: &AdapterConfig) -> AdapterId {
    let mut hasher = blake3::Hasher::new();
    hasher.update(format!("{:?}", AdapterConfig { base: None, ..config.clone() }).as_bytes());
    let mut tensors: Vec<_> = files.tensors().iter().collect();
    tensors.sort_by_key(|tensor| tensor.name());
    for tensor in tensors {
        let stored = tensor.bytes();
        let bytes: &[u8] = stored.as_ref();
        let (name, dtype, shape, length) = (tensor.name(), tensor.dtype().name(), tensor.shape(), bytes.len());
        hasher.update(format!("\n{name} {dtype} {shape:?} {length}\n").as_bytes()).update(bytes);
    }
    AdapterId(*hasher.finalize().as_bytes())
}

/// An error about a tensor or a setting of an adapter.
pub(super) fn error(files: &ModelFiles, name: &str, problem: impl Into<String>) -> ModelError {
    ModelError::Adapter { path: files.path().to_owned(), name: name.to_owned(), problem: problem.into() }
}
