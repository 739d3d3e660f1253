//! From a path, or from bytes in the program, to a model that is ready to run.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cascadia_kernels::{ActivationPrecision, OpsSlot, Pool};
use cascadia_model::{
    ActivationStats, Adapter, AdapterFiles, AdapterPart, AdapterPrecision, CacheDemand, CachePages, KvFormats,
    KvLayout, KvPolicy, LoadOptions, LoadedModel, ModelLimits, ModelSpec, PAGE_TOKENS, PageClass, Profile, Stage,
    TokenIo, load_stage,
};
use cascadia_weights::{ModelFiles, WeightPages};

use crate::{AdapterLimits, AdapterStore, EngineError, ModelText, Pipeline, Session};

/// Where a model comes from.
#[derive(Clone, Copy, Debug)]
pub enum Source<'a> {
    /// A `.gguf` file, a `.safetensors` file or a Hugging Face folder.
    Path(&'a Path),
    /// A GGUF file inside the program.
    Embedded {
        /// What messages call it.
        name: &'a str,
        /// The whole file.
        gguf: &'static [u8],
    },
}

/// How a model is opened.
#[derive(Clone)]
pub struct OpenOptions {
    /// The most tokens a sequence may hold; `None` takes the model's own limit, but no more than 4096.
    pub context: Option<u32>,
    /// How much is kept of all sequences together.
    pub cache: CacheSize,
    /// How cached keys and values are stored.
    pub kv: KvPolicy,
    /// How exactly activations meet quantised weights.
    pub activations: ActivationPrecision,
    /// The most tokens computed in one step.
    pub rows_per_step: u32,
    /// The kernels to compute with.
    pub ops: OpsSlot,
    /// The threads to compute with.
    pub pool: Arc<Pool>,
    /// Counters of what they do.
    pub profile: Arc<Profile>,
    /// The most bytes the process may take; layers that do not fit are read again in every step.
    pub memory: Option<u64>,
    /// Bytes of them that are kept for others in the process.
    pub reserved: u64,
    /// What is done with the pages of weights at once.
    pub pages: WeightPages,
    /// Measures the activations that meet each matrix; `None` unless the model is run to be calibrated.
    pub stats: Option<ActivationStats>,
    /// Adapters that change its weights, by the places of their files, and how much each counts.
    pub adapters: Vec<(PathBuf, f32)>,
}

/// How many keys and values a model may keep at a time.
#[derive(Clone, Copy, Debug)]
pub enum CacheSize {
    /// Enough for so many sequences at their full length.
    Sequences(u32),
    /// What the cap on memory leaves beside the weights when so many sequences run at a time; at least enough for one at
    /// its full length, so that large weights are streamed and not the cache given up, and at most four times what can
    /// run, which is prefixes for later. Without a cap, enough for all that run.
    Rest(u32),
    /// Exactly these pages.
    Pages(CachePages),
}

/// Tokens computed in one step: enough to keep the matrices busy, few enough for the caches.
const ROWS_PER_STEP: u32 = 512;

/// The same where memory is short: large models are busy with fewer rows, and buffers and the newest tokens of quantised caches
/// take memory by rows.
const TIGHT_ROWS_PER_STEP: u32 = 128;

/// Contexts beyond this cost much memory, so they have to be asked for.
const DEFAULT_CONTEXT: u32 = 4096;

/// An open model, to be run by one [`Session`] or by a [`Service`](crate::service::Service).
pub struct Engine {
    files: Arc<ModelFiles>,
    memory_bytes: u64,
    pipeline: Pipeline,
}

impl OpenOptions {
    /// The model's own limits on these threads, without a cap on memory.
    pub fn new(pool: Arc<Pool>) -> OpenOptions {
        OpenOptions {
            context: None,
            cache: CacheSize::Sequences(1),
            kv: KvPolicy::default(),
            activations: ActivationPrecision::default(),
            rows_per_step: ROWS_PER_STEP,
            ops: OpsSlot::default(),
            pool,
            profile: Arc::default(),
            memory: None,
            reserved: 0,
            pages: WeightPages::default(),
            stats: None,
            adapters: Vec::new(),
        }
    }
}

impl CacheSize {
    /// The pages of a model whose sequences are as `demand` says, but for their number, with `rest` bytes beside weights.
    fn pages(&self, layout: &KvLayout, demand: CacheDemand, rest: Option<u64>) -> CachePages {
        match (*self, rest) {
            (CacheSize::Pages(pages), _) => pages,
            (CacheSize::Rest(sequences), Some(bytes)) => {
                let most = CachePages::whole(layout, &CacheDemand { sequences: sequences.saturating_mul(4), ..demand });
                CachePages::within(layout, &CacheDemand { sequences, ..demand }, bytes).at_most(most)
            }
            (CacheSize::Sequences(sequences) | CacheSize::Rest(sequences), _) => {
                CachePages::whole(layout, &CacheDemand { sequences, ..demand })
            }
        }
    }

    /// The same of a model that keeps nothing between steps: enough for the largest step, whose sequences fill no page.
    fn of_one_step(self, rows_per_step: u32) -> CacheSize {
        match self {
            CacheSize::Sequences(sequences) | CacheSize::Rest(sequences) => {
                let pages = rows_per_step.div_ceil(PAGE_TOKENS).saturating_add(sequences);
                CacheSize::Pages(CachePages::full(pages))
            }
            CacheSize::Pages(pages) => CacheSize::Pages(pages),
        }
    }

    /// Tokens of all sequences at once, about: a step need not be larger.
    fn most_tokens(&self, context: u32) -> u32 {
        match *self {
            CacheSize::Sequences(sequences) | CacheSize::Rest(sequences) => context.saturating_mul(sequences),
            CacheSize::Pages(pages) => pages.of(PageClass::Full).saturating_mul(PAGE_TOKENS),
        }
        .max(1)
    }
}

impl Source<'_> {
    /// Opens the files without loading the model.
    pub fn files(&self) -> Result<ModelFiles, EngineError> {
        match *self {
            Source::Path(path) => Ok(ModelFiles::open(path)?),
            Source::Embedded { name, gguf } => Ok(ModelFiles::from_static(name, gguf)?),
        }
    }
}

impl Engine {
    /// Opens the files and loads the model. The weights stay mapped; memory for the context is taken now.
    pub fn open(source: Source<'_>, options: &OpenOptions) -> Result<Engine, EngineError> {
        Engine::from_files(source.files()?, options)
    }

    /// Loads the model of files that are already open.
    pub fn from_files(files: ModelFiles, options: &OpenOptions) -> Result<Engine, EngineError> {
        let files = Arc::new(files);
        let own = Arc::clone(&files);
        Engine::with_stages(files, options, |spec, options| {
            Ok(vec![load_stage(&own, spec, 0..spec.layers.len() as u32, options)?])
        })
    }

    /// Loads both ends of a model of files that are already open. `stages` gives what lies between them, loaded with
    /// exactly these options.
    pub fn with_stages<E: From<EngineError>>(
        files: Arc<ModelFiles>,
        options: &OpenOptions,
        stages: impl FnOnce(&ModelSpec, &LoadOptions) -> Result<Vec<Box<dyn Stage>>, E>,
    ) -> Result<Engine, E> {
        let adapter = adapter(&files, options)?;
        let (spec, options) = limits(&files, options)?;
        let token_io = TokenIo::new(&files, &spec, &options).map_err(EngineError::from)?;
        let stages = stages(&spec, &options)?;
        // Those of stages are prepared; both ends may lie in another file.
        files.prepare_pages(options.pages).map_err(EngineError::from)?;
        let cache_bytes = options.limits.cache.bytes(&options.limits.kv_layout(&spec));
        let memory_bytes = options.bytes_beside_cache(&files, &spec).saturating_add(cache_bytes);
        let memory_bytes = memory_bytes.saturating_add(adapter.as_ref().map_or(0, |adapter| adapter.bytes()));
        let pipeline = Pipeline::new(LoadedModel { spec, token_io, stages }, &options).with_adapter(adapter);
        Ok(Engine { files, memory_bytes, pipeline })
    }

    /// What a model of these files takes when it is whole in memory, with one sequence at its full length.
    pub fn bytes_of_one(files: &ModelFiles, options: &OpenOptions) -> Result<u64, EngineError> {
        let options = OpenOptions { memory: None, cache: CacheSize::Sequences(1), ..options.clone() };
        let (spec, options) = limits(files, &options)?;
        let cache_bytes = options.limits.cache.bytes(&options.limits.kv_layout(&spec));
        Ok(options.bytes_beside_cache(files, &spec).saturating_add(cache_bytes))
    }

    /// The files the model came from.
    pub fn files(&self) -> &ModelFiles {
        &self.files
    }

    /// A store for adapters of this model, which requests select by name.
    pub fn adapters(&self, limits: AdapterLimits) -> AdapterStore {
        AdapterStore::new(Arc::clone(&self.files), self.spec().clone(), limits)
    }

    /// What weights, cache and buffers take when all of them are in memory.
    pub fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    /// An empty sequence on the model.
    pub fn into_session(self) -> Session {
        Session::new(self.pipeline)
    }

    /// What runs the model's steps.
    pub fn into_pipeline(self) -> Pipeline {
        self.pipeline
    }

    /// The model's description.
    pub fn spec(&self) -> &ModelSpec {
        self.pipeline.spec()
    }

    /// Reads tokenizer and template from the same files.
    pub fn text(&self) -> Result<ModelText, EngineError> {
        ModelText::read(&self.files)
    }
}

/// The adapter that a model is opened with.
fn adapter(files: &ModelFiles, options: &OpenOptions) -> Result<Option<Arc<Adapter>>, EngineError> {
    if options.adapters.is_empty() {
        return Ok(None);
    }
    let opened = options.adapters.iter().map(|(path, weight)| Ok((AdapterFiles::open(path)?, *weight)));
    let opened = opened.collect::<Result<Vec<(AdapterFiles, f32)>, EngineError>>()?;
    let parts: Vec<_> = opened.iter().map(|(files, weight)| AdapterPart { files, weight: *weight }).collect();
    let adapter = Adapter::load(&parts, files, &ModelSpec::from_files(files)?, AdapterPrecision::LikeBase)?;
    Ok(Some(Arc::new(adapter)))
}

/// What a model is loaded for.
fn limits(files: &ModelFiles, options: &OpenOptions) -> Result<(ModelSpec, LoadOptions), EngineError> {
    let spec = ModelSpec::from_files(files)?;
    let usual = spec.pooling.most_tokens.unwrap_or(DEFAULT_CONTEXT).min(DEFAULT_CONTEXT);
    let context = options.context.unwrap_or(spec.context.min(usual));
    if context == 0 || context > spec.context {
        return Err(EngineError::Setting {
            name: "context",
            value: format!("{context} for a model made for {}", spec.context),
            allowed: "at least 1 and at most what the model was made for",
        });
    }
    let whole_texts = spec.sees_later();
    if whole_texts && !matches!(options.kv.formats, KvFormats::Auto | KvFormats::Exact) {
        return Err(EngineError::Setting {
            name: "the format of the KV cache",
            value: format!("{} for an encoder", options.kv.describe(&spec)),
            allowed: "auto or exact: keys and values of an encoder are kept for one step, and not rounded",
        });
    }
    let most_rows = match whole_texts {
        // A text is computed in one step.
        true => options.rows_per_step.max(context),
        false => options.rows_per_step.clamp(1, options.cache.most_tokens(context)),
    };
    let mut load_options = LoadOptions {
        limits: ModelLimits { kv: options.kv.clone(), ..ModelLimits::new(context, most_rows, CachePages::full(0)) },
        ops: options.ops.clone(),
        pool: Arc::clone(&options.pool),
        profile: Arc::clone(&options.profile),
        memory: options.memory,
        reserved: options.reserved,
        pages: options.pages,
        stats: options.stats.clone(),
    };
    load_options.limits.activations = options.activations;
    let layout = load_options.limits.kv_layout(&spec);
    let least_rows = if whole_texts { context } else { most_rows.min(TIGHT_ROWS_PER_STEP) };
    for rows_per_step in [most_rows, least_rows] {
        let demand = CacheDemand { context, rows_per_step, sequences: 1 };
        let one = CachePages::whole(&layout, &demand);
        (load_options.limits.rows_per_step, load_options.limits.cache) = (rows_per_step, one);
        let rest = options.memory.map(|memory| memory.saturating_sub(load_options.bytes_beside_cache(files, &spec)));
        let size = if whole_texts { options.cache.of_one_step(rows_per_step) } else { options.cache };
        load_options.limits.cache = size.pages(&layout, demand, rest);
        if rest.is_none_or(|rest| one.bytes(&layout) <= rest) {
            break;
        }
    }
    Ok((spec, load_options))
}
