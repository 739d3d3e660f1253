//! From a source to a model that answers requests.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cascadia_engine::service::schedule::Sharing;
use cascadia_engine::service::spill::{QUEUE_BYTES, SpillOptions};
use cascadia_engine::service::{Service, ServiceHandle, ServiceOptions};
use cascadia_engine::{AdapterLimits, AdapterStore, CacheSize, Engine, EngineError, ModelText, OpenOptions};
use cascadia_kernels::ActivationPrecision;
#[cfg(feature = "server")]
use cascadia_kernels::Pool;
use cascadia_model::{AdapterFiles, KvPolicy};
#[cfg(feature = "quantize")]
use cascadia_quantize::{QuantizedCache, Recipe};
use cascadia_weights::{ModelFiles, WeightPages};

use crate::{Error, Kernels, ModelSource, Threads};

/// Requests that are computed at a time unless others are asked for.
const PARALLEL: u32 = 8;

/// An open model. Requests run at the same time, in continuous batches on its own threads.
pub struct Model {
    pub(crate) name: String,
    pub(crate) text: Arc<ModelText>,
    pub(crate) service: Service,
    pub(crate) info: ModelInfo,
    pub(crate) queue: usize,
    /// Requests that are computed at a time.
    pub(crate) parallel: u32,
    pub(crate) adapters: AdapterStore,
}

/// What a model's files say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelInfo {
    /// Its architecture.
    pub architecture: String,
    /// Bytes of all weights.
    pub bytes: u64,
    /// Numbers in all weights.
    pub parameters: u64,
    /// The number format that holds most of the bytes.
    pub format: String,
    /// Tells models apart whose answers may differ.
    pub digest: String,
}

/// How a model is opened.
#[derive(Clone, Debug)]
pub struct ModelBuilder {
    pub(crate) threads: Threads,
    kernels: Kernels,
    activations: ActivationPrecision,
    pub(crate) kv: KvPolicy,
    pub(crate) context: Option<u32>,
    pub(crate) memory: Option<u64>,
    pub(crate) reserved: u64,
    pages: WeightPages,
    pub(crate) parallel: u32,
    /// Kept free for adapters; `None` keeps nothing free.
    adapter_bytes: Option<u64>,
    adapters: Vec<(PathBuf, f32)>,
    draft: Option<ModelSource>,
    template: Option<String>,
    #[cfg(feature = "quantize")]
    quantized: Option<(Recipe, QuantizedCache)>,
    options: ServiceOptions,
}

/// What a model is opened with.
pub(crate) struct Preparation {
    pub(crate) options: OpenOptions,
    /// The small model that speculates for it.
    pub(crate) draft: Option<Engine>,
}

impl Model {
    /// Opens a `.gguf` file, a `.safetensors` file or a Hugging Face folder with the usual settings.
    pub fn open(path: impl AsRef<Path>) -> Result<Model, Error> {
        Model::builder().open(path.as_ref())
    }

    /// Settings other than the usual ones.
    pub fn builder() -> ModelBuilder {
        let options = ServiceOptions::default();
        let (threads, kernels, parallel) = (Threads::default(), Kernels::Default, PARALLEL);
        ModelBuilder {
            threads,
            kernels,
            activations: ActivationPrecision::default(),
            kv: KvPolicy::default(),
            context: None,
            memory: None,
            reserved: 0,
            pages: WeightPages::default(),
            parallel,
            adapter_bytes: None,
            adapters: Vec::new(),
            draft: None,
            template: None,
            #[cfg(feature = "quantize")]
            quantized: None,
            options,
        }
    }

    /// What people call it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What its files say.
    pub fn info(&self) -> &ModelInfo {
        &self.info
    }

    /// Its tokenizer and chat template.
    pub fn text(&self) -> &ModelText {
        &self.text
    }

    /// The most tokens of prompt and answer together.
    pub fn context(&self) -> u32 {
        self.service.handle().context()
    }

    /// How many requests may wait.
    pub fn queue(&self) -> usize {
        self.queue
    }

    /// Its adapters, which jobs select by name.
    pub fn adapters(&self) -> &AdapterStore {
        &self.adapters
    }

    /// Submits jobs of other kinds than [`Model::generate`] does.
    pub fn service(&self) -> ServiceHandle {
        self.service.handle()
    }
}

impl ModelBuilder {
    /// Computes with these threads; a number will do.
    pub fn threads(self, threads: impl Into<Threads>) -> ModelBuilder {
        ModelBuilder { threads: threads.into(), ..self }
    }

    /// Reads weights in this way.
    pub fn kernels(self, kernels: Kernels) -> ModelBuilder {
        ModelBuilder { kernels, ..self }
    }

    /// Multiplies quantised weights with activations of this precision; bytes by default. Sixteen bits compute what the
    /// weights say, and are slower. On a fleet, all machines compute with what is set here.
    pub fn activations(self, precision: ActivationPrecision) -> ModelBuilder {
        ModelBuilder { activations: precision, ..self }
    }

    /// Caches keys and values like this; see [`KvFormats::Auto`](cascadia_model::KvFormats::Auto) for the default. Integers take
    /// less memory and round all but the newest tokens. On a fleet, all machines cache with what is set here.
    pub fn kv_policy(self, policy: KvPolicy) -> ModelBuilder {
        ModelBuilder { kv: policy, ..self }
    }

    /// Allows so many tokens of prompt and answer together; the model's own limit, up to 4096, by default.
    pub fn context(self, tokens: u32) -> ModelBuilder {
        ModelBuilder { context: Some(tokens), ..self }
    }

    /// Takes no more memory than this: weights first, the rest caches prompts and answers. Layers that do not fit are
    /// read from disk for every step.
    pub fn memory(self, bytes: u64) -> ModelBuilder {
        ModelBuilder { memory: Some(bytes), ..self }
    }

    /// Leaves so many bytes of that memory to the rest of the program, such as a server's clients.
    pub fn reserve(self, bytes: u64) -> ModelBuilder {
        ModelBuilder { reserved: bytes, ..self }
    }

    /// Brings the pages of weights into memory, or keeps them there, before the first request.
    pub fn pages(self, pages: WeightPages) -> ModelBuilder {
        ModelBuilder { pages, ..self }
    }

    /// Computes so many requests at a time; 8 by default.
    pub fn parallel(self, requests: u32) -> ModelBuilder {
        ModelBuilder { parallel: requests, ..self }
    }

    /// Lets so many requests wait, and refuses more at once; 64 by default.
    pub fn queue(mut self, requests: u32) -> ModelBuilder {
        self.options.queue = requests as usize;
        self
    }

    /// Lets adapters take so many bytes together, which are part of [`ModelBuilder::memory`], and beyond these the memory of
    /// cached prefixes that were used longer ago. Those that do not fit are read again when a request needs them.
    pub fn adapter_memory(self, bytes: u64) -> ModelBuilder {
        ModelBuilder { adapter_bytes: Some(bytes), ..self }
    }

    /// Computes with an adapter, a PEFT folder or a GGUF file, whose change is multiplied with `weight`. Several add up. Requests
    /// that name another adapter have that one instead.
    pub fn adapter(mut self, path: impl AsRef<Path>, weight: f32) -> ModelBuilder {
        self.adapters.push((path.as_ref().to_owned(), weight));
        self
    }

    /// Speculates with a small model of the same vocabulary; answers stay the same.
    pub fn draft(self, source: impl Into<ModelSource>) -> ModelBuilder {
        ModelBuilder { draft: Some(source.into()), ..self }
    }

    /// Speculates so many tokens in a step, of all answers together; 32 by default, 0 turns speculation off.
    pub fn draft_tokens(mut self, tokens: u32) -> ModelBuilder {
        self.options.draft_rows = tokens;
        self
    }

    /// Lets tenants use each other's cached prefixes.
    pub fn share_prefixes(mut self) -> ModelBuilder {
        self.options.sharing = Sharing::Everyone;
        self
    }

    /// Writes pages of the KV cache that memory has no room for to this folder, encrypted, so many bytes at most, and reads them
    /// back when a prompt continues their text. No other model may spill to the folder. Not offered on a fleet.
    pub fn spill(mut self, folder: impl AsRef<Path>, bytes: u64) -> ModelBuilder {
        let (folder, keep_prefixes, model) = (folder.as_ref().to_owned(), false, String::new());
        self.options.spill = Some(SpillOptions { folder, bytes, keep_prefixes, model });
        self
    }

    /// Keeps what was spilled, with its key, for the next time that the model is opened, and spills cached prompts when it is
    /// closed. Does nothing without [`ModelBuilder::spill`].
    pub fn keep_prefixes(mut self) -> ModelBuilder {
        self.options.spill.iter_mut().for_each(|spill| spill.keep_prefixes = true);
        self
    }

    /// Renders conversations with this template instead of the model's own.
    pub fn template(self, source: String) -> ModelBuilder {
        ModelBuilder { template: Some(source), ..self }
    }

    /// Quantises models when they are opened, each once; the cache keeps what was written.
    #[cfg(feature = "quantize")]
    pub fn quantized(self, recipe: Recipe, cache: QuantizedCache) -> ModelBuilder {
        ModelBuilder { quantized: Some((recipe, cache)), ..self }
    }

    /// What a model takes when it is whole in memory, with one request of full length.
    #[cfg(feature = "server")]
    pub(crate) fn bytes_of_one(&self, files: &ModelFiles) -> Result<u64, Error> {
        let (context, activations, kv) = (self.context, self.activations, self.kv.clone());
        let options = OpenOptions { context, activations, kv, ..OpenOptions::new(Arc::new(Pool::new(1))) };
        Ok(Engine::bytes_of_one(files, &options)?)
    }

    /// Opens a model.
    pub fn open(&self, source: impl Into<ModelSource>) -> Result<Model, Error> {
        let source = source.into();
        let Preparation { options, draft } = self.prepare()?;
        #[cfg(feature = "quantize")]
        let source = match &self.quantized {
            Some((recipe, cache)) => source.quantized(recipe, cache, &options.pool, |_| {})?,
            None => source,
        };
        let engine = Engine::from_files(source.files()?, &options)?;
        self.start(source.name(), engine, (source.digest(), draft))
    }

    /// The options of the engine, with the draft model's memory taken off.
    pub(crate) fn prepare(&self) -> Result<Preparation, Error> {
        let cache = CacheSize::Rest(self.parallel);
        let pool = self.threads.pool();
        let ops = self.kernels.slot(pool.threads());
        let waiting = if self.options.spill.is_some() { QUEUE_BYTES } else { 0 };
        let reserved = self.reserved.saturating_add(waiting).saturating_add(self.adapter_bytes.unwrap_or(0));
        let (context, memory) = (self.context, self.memory);
        let (activations, kv, pages) = (self.activations, self.kv.clone(), self.pages);
        let mut options =
            OpenOptions { context, memory, reserved, activations, kv, pages, cache, ops, ..OpenOptions::new(pool) };
        options.adapters.clone_from(&self.adapters);
        let draft = self.draft.as_ref().map(|draft| open_draft(draft, &options)).transpose()?;
        if let (Some(draft), Some(memory)) = (&draft, &mut options.memory) {
            *memory = memory.saturating_sub(draft.memory_bytes());
        }
        Ok(Preparation { options, draft })
    }

    /// Starts the service of an engine that was opened with these options. Without a digest, the model is told from
    /// others by its tensors and the times of its files.
    pub(crate) fn start(
        &self,
        name: String,
        engine: Engine,
        (digest, draft): (Option<String>, Option<Engine>),
    ) -> Result<Model, Error> {
        let mut text = engine.text()?;
        if let Some(template) = &self.template {
            text = text.with_template(template.clone());
        }
        let (mut info, text) = (ModelInfo::of(engine.files(), digest), Arc::new(text));
        info.digest = adapted(info.digest, &self.adapters)?;
        let mut options = ServiceOptions { parallel: self.parallel, ..self.options.clone() };
        options.spill.iter_mut().for_each(|spill| spill.model.clone_from(&info.digest));
        let queue = options.queue;
        let usual = AdapterLimits::new(self.parallel);
        let adapters = engine.adapters(AdapterLimits { bytes: self.adapter_bytes.unwrap_or(usual.bytes), ..usual });
        options.adapters = Some(adapters.clone());
        let service = match draft {
            None => Service::start(engine, Arc::clone(&text), options)?,
            Some(draft) => Service::start_with_draft(engine, draft, Arc::clone(&text), options)?,
        };
        Ok(Model { name, text, service, info, queue, parallel: self.parallel, adapters })
    }
}

/// A small model that is always whole in memory: streaming it would make speculation worthless.
fn open_draft(source: &ModelSource, options: &OpenOptions) -> Result<Engine, Error> {
    let options = OpenOptions { memory: None, adapters: Vec::new(), ..options.clone() };
    Engine::from_files(source.files()?, &options).map_err(|error| Error::Draft { name: source.name(), source: error })
}

impl ModelInfo {
    pub(crate) fn of(files: &ModelFiles, digest: Option<String>) -> ModelInfo {
        ModelInfo {
            architecture: files.architecture().unwrap_or_default(),
            bytes: files.weight_bytes(),
            parameters: files.parameters(),
            format: files.main_format().unwrap_or_default().to_owned(),
            digest: digest.unwrap_or_else(|| fingerprint(files)),
        }
    }
}

/// The digest of a model that always computes with these adapters.
fn adapted(digest: String, adapters: &[(PathBuf, f32)]) -> Result<String, Error> {
    if adapters.is_empty() {
        return Ok(digest);
    }
    let mut facts = digest;
    for (path, weight) in adapters {
        let files = AdapterFiles::open(path).map_err(EngineError::from)?;
        facts += &format!("\n{} {weight:?}", files.id());
    }
    Ok(blake3::hash(facts.as_bytes()).to_hex().to_string())
}

/// Tells files apart without reading all of them: by their tensors, and by when they were written.
fn fingerprint(files: &ModelFiles) -> String {
    let mut facts = String::new();
    let mut last = Path::new("");
    for tensor in files.tensors() {
        facts += &format!("{} {} {:?}\n", tensor.name(), tensor.dtype().name(), tensor.shape());
        if tensor.file() != last {
            last = tensor.file();
            let written = last.metadata().and_then(|metadata| metadata.modified());
            facts += &format!("{} {written:?}\n", last.display());
        }
    }
    blake3::hash(facts.as_bytes()).to_hex().to_string()
}
