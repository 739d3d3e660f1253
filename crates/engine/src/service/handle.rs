//! How the rest of the program talks to the service.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cascadia_model::{CachePages, ModelLimits, ModelSpec, PAGE_TOKENS, PageClass, PooledRows, Span};
use cascadia_weights::MemoryProbe;

use super::active_job::{ActiveJob, ActiveTask};
use super::answer::{Answer, StartedAnswer};
use super::cache_log::{CacheEvent, CacheLog};
use super::embedding::Embedding;
use super::memory_gauge::MemoryGauge;
use super::panics::PanicBoundary;
use super::queue::{Full, Queue, QueueLimits};
use super::runner::{Runner, Submitted};
use super::schedule::{Needs, Work};
use super::scores::Scores;
use super::speculate::{DraftModel, Speculator};
use super::spill::{Spill, SpillHandle, WriterThread};
use super::{Job, JobId, Score, ServiceOptions, Snapshot, Task, Tenant};
use crate::stage_pages::StagePages;
use crate::token_limits::TokenLimits;
use crate::{AdapterHandle, Engine, EngineError, ModelText, Pipeline};

/// A running service; dropping it ends what it is doing.
pub struct Service {
    handle: ServiceHandle,
    thread: Option<JoinHandle<()>>,
}

/// Submits jobs; cheap to clone.
#[derive(Clone)]
pub struct ServiceHandle {
    pub(super) shared: Arc<Shared>,
}

/// How a model's KV cache is stored, fixed when the model is loaded.
#[derive(Clone, Debug)]
pub struct CacheLayout {
    /// The formats of keys and values, one for all layers or a list of them, and what else differs from the usual.
    pub policy: String,
    /// Tokens of a page.
    pub page_tokens: u32,
    /// What a page takes in all layers that read whole sequences.
    pub page_bytes: u64,
    /// The same of layers that read a window.
    pub window_page_bytes: u64,
    /// The same of the newest tokens of a quantised cache.
    pub tail_page_bytes: u64,
}

/// Why a job was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum SubmitError {
    /// Too many jobs wait already.
    #[error("{waiting} requests are waiting already; try again in {} s", retry_after.as_secs())]
    QueueFull {
        /// Jobs in the queue.
        waiting: u64,
        /// When it is worth trying again.
        retry_after: Duration,
    },
    /// The service is ending.
    #[error("the server is shutting down; send the request to another one")]
    ShuttingDown,
    /// The machine, or the control group of this process, has no memory left for more.
    #[error(
        "{percent} % of the memory of this machine or its control group is used; try again in {} s, or send the request to \
         another server", retry_after.as_secs()
    )]
    MemoryFull {
        /// The share that is used.
        percent: u32,
        /// When it is worth trying again.
        retry_after: Duration,
    },
    /// The job cannot be done.
    #[error(transparent)]
    Invalid(#[from] EngineError),
}

/// What the thread that owns the model is asked to do.
pub(super) enum Command {
    Submit(Box<Submitted>),
    Cancel(JobId),
    /// Release what does not compute.
    ShedMemory,
}

/// The time between two readings of the memory.
const MEMORY_INTERVAL: Duration = Duration::from_millis(250);
/// When it is worth trying again where no memory is left.
const MEMORY_RETRY: Duration = Duration::from_secs(2);

/// What the handle and the thread both see.
pub(super) struct Shared {
    /// Where jobs are sent; `None` once no more are taken.
    commands: Mutex<Option<CommandSender>>,
    queue: Mutex<Queue>,
    /// Set when the service is dropped: the answers are no longer wanted.
    pub(super) abandoned: AtomicBool,
    pub(super) snapshot: Mutex<Snapshot>,
    pub(super) cache_log: Mutex<CacheLog>,
    refused: AtomicU64,
    pub(super) panics: PanicBoundary,
    /// Set when the thread has ended although jobs may still come.
    dead: AtomicBool,
    memory: MemoryGauge,
    text: Arc<ModelText>,
    makes: Makes,
    limits: TokenLimits,
    numerics: String,
    cache: CacheLayout,
    pub(super) spill: Option<SpillHandle>,
    begin: Instant,
}

/// What a model makes of texts.
struct Makes {
    /// Further text.
    text: bool,
    /// A row of these.
    pooled: PooledRows,
    /// Numbers in an embedding.
    width: usize,
    /// What it says in place of an embedding.
    scores: Option<usize>,
    /// Every text is computed in one step.
    whole_texts: bool,
}

struct CommandSender {
    commands: Sender<Command>,
    next_id: u64,
}

impl Service {
    /// Starts the thread that owns the model.
    pub fn start(engine: Engine, text: Arc<ModelText>, options: ServiceOptions) -> Result<Service, EngineError> {
        Service::start_with(engine, None, text, options)
    }

    /// The same with a draft model: a small one of the same vocabulary, opened with room for as many sequences as run at
    /// a time.
    pub fn start_with_draft(
        engine: Engine,
        draft: Engine,
        text: Arc<ModelText>,
        options: ServiceOptions,
    ) -> Result<Service, EngineError> {
        let draft = DraftModel::new(draft, &text, engine.spec().vocabulary)?;
        Service::start_with(engine, Some(draft), text, options)
    }

    fn start_with(
        engine: Engine,
        draft: Option<DraftModel>,
        text: Arc<ModelText>,
        options: ServiceOptions,
    ) -> Result<Service, EngineError> {
        let pipeline = engine.into_pipeline();
        let limits = pipeline.limits();
        check_cache(limits, pipeline.spec())?;
        let begin = Instant::now();
        let spill = open_spill(&pipeline, &options, begin)?;
        let (commands, received) = channel();
        let shared = Arc::new(Shared {
            commands: Mutex::new(Some(CommandSender { commands, next_id: 0 })),
            queue: Mutex::new(Queue::new(QueueLimits {
                jobs: options.queue.max(1),
                seconds: options.queue_seconds,
                parallel: options.parallel.max(1),
            })),
            abandoned: AtomicBool::new(false),
            snapshot: Mutex::default(),
            cache_log: Mutex::default(),
            refused: AtomicU64::new(0),
            panics: PanicBoundary::default(),
            dead: AtomicBool::new(false),
            memory: MemoryGauge::default(),
            text,
            makes: Makes::of(pipeline.spec()),
            limits: TokenLimits {
                // A sequence that does not fit even alone is refused.
                context: limits.context.min(limits.cache.of(PageClass::Full).saturating_mul(PAGE_TOKENS)),
                vocabulary: pipeline.spec().vocabulary,
            },
            numerics: pipeline.numerics(),
            cache: CacheLayout::new(limits, pipeline.spec()),
            spill: spill.as_ref().map(|(spill, _)| spill.handle()),
            begin,
        });
        let runner = Runner::new((pipeline, draft, spill), Arc::clone(&shared), options);
        let watched = Arc::clone(&shared);
        let run = move || {
            if watched.panics.catch(|| runner.run(&received)).is_err() {
                watched.dead.store(true, Ordering::Relaxed);
            }
        };
        let thread = std::thread::spawn(run);
        Ok(Service { handle: ServiceHandle { shared }, thread: Some(thread) })
    }

    /// A handle to submit jobs with.
    pub fn handle(&self) -> ServiceHandle {
        self.handle.clone()
    }

    /// Takes no more jobs, and waits for those that were taken.
    pub fn drain(mut self) {
        self.stop();
    }

    fn stop(&mut self) {
        self.handle.shared.commands().take();
        if let Some(thread) = self.thread.take() {
            // It ends without a panic.
            let _ = thread.join();
        }
    }
}

/// The disk tier that the options ask for.
fn open_spill(
    pipeline: &Pipeline,
    options: &ServiceOptions,
    begin: Instant,
) -> Result<Option<(Spill, WriterThread)>, EngineError> {
    let Some(options) = &options.spill else { return Ok(None) };
    let pages = StagePages::new(pipeline.stages()).ok_or_else(|| EngineError::Spill {
        folder: options.folder.clone(),
        problem: "pages can be read only where the whole model runs in this process; do not spill on a fleet"
            .to_owned(),
    })?;
    let (limits, spec) = (pipeline.limits(), pipeline.spec());
    let (numerics, spans) = (pipeline.numerics(), limits.kv_layout(spec).spans());
    let context = format!("context {}, {numerics}, {spans:?}", limits.context);
    let seconds = Arc::new(move || begin.elapsed().as_secs_f64());
    Spill::open(options, Arc::new(pages), (&context, seconds)).map(Some)
}

/// An error unless the cache has room for one sequence that computes a token at a time.
fn check_cache(limits: &ModelLimits, spec: &ModelSpec) -> Result<(), EngineError> {
    let (all, layout) = (limits.context.div_ceil(PAGE_TOKENS), limits.kv_layout(spec));
    let least = CachePages::new(|class| match layout.span(class) {
        Span::All => 1,
        span => span.pages_per_sequence(1, all),
    });
    if limits.cache.covers(least) {
        return Ok(());
    }
    let [pages, window, tail] = PageClass::ALL.map(|class| limits.cache.of(class));
    let [least, least_window, least_tail] = PageClass::ALL.map(|class| least.of(class));
    Err(EngineError::Setting {
        name: "cache",
        value: format!(
            "{pages} pages, {window} for windows and {tail} for the newest tokens, where one sequence needs {least}, \
             {least_window} and {least_tail}"
        ),
        allowed: "enough for one sequence: allow more memory or a shorter context",
    })
}

impl Drop for Service {
    fn drop(&mut self) {
        self.handle.shared.abandoned.store(true, Ordering::Relaxed);
        self.stop();
    }
}

impl ServiceHandle {
    /// Puts a job into the queue; never waits. Everything that follows comes through its sink.
    pub fn submit(&self, job: Job) -> Result<JobId, SubmitError> {
        self.check_memory()?;
        let mut submitted = self.shared.check(job)?;
        self.shared.fetch_adapter(&mut submitted.job);
        let mut sender = self.shared.commands();
        let CommandSender { commands, next_id } = sender.as_mut().ok_or(SubmitError::ShuttingDown)?;
        if let Err(Full { waiting, retry_after }) = self.shared.queue().enter(submitted.work.tenant) {
            self.shared.refused.fetch_add(1, Ordering::Relaxed);
            return Err(SubmitError::QueueFull { waiting: waiting as u64, retry_after });
        }
        let id = JobId(*next_id);
        let submitted = Box::new(Submitted { work: Work { id, ..submitted.work }, ..submitted });
        if commands.send(Command::Submit(submitted)).is_err() {
            return Err(SubmitError::ShuttingDown);
        }
        *next_id += 1;
        Ok(id)
    }

    /// Jobs that are computed at a time, at most.
    pub fn parallel(&self) -> u32 {
        self.shared.queue().parallel()
    }

    /// Whether a job of this tenant would be accepted now.
    pub fn has_room(&self, tenant: Tenant) -> bool {
        self.shared.queue().has_room(tenant)
    }

    /// Ends a job whose receiver is gone, also while it waits or its prompt is computed.
    pub fn cancel(&self, id: JobId) {
        if let Some(sender) = self.shared.commands().as_ref() {
            // If the thread is gone, so is the job.
            let _ = sender.commands.send(Command::Cancel(id));
        }
    }

    /// Takes in which share is used of the memory that others use too, where that is known. What does not compute is released
    /// when it is short, and no job is taken when it is nearly used up, so that the system need not end the process.
    pub fn update_memory(&self, used: Option<f64>) {
        let is_short = self.shared.memory.update(used);
        if let Some(sender) = self.shared.commands().as_ref().filter(|_| is_short) {
            // If the thread is gone, so is what it held.
            let _ = sender.commands.send(Command::ShedMemory);
        }
    }

    /// An error while memory is so full that no job is taken.
    pub fn check_memory(&self) -> Result<(), SubmitError> {
        match self.shared.memory.is_full() {
            true => Err(SubmitError::MemoryFull { percent: self.shared.memory.percent(), retry_after: MEMORY_RETRY }),
            false => Ok(()),
        }
    }

    /// Reads the memory of the machine and of its control groups on a thread of its own, for as long as the service is there.
    pub fn watch_memory(&self) {
        let (watched, probe) = (Arc::downgrade(&self.shared), MemoryProbe::at(Path::new("/")));
        std::thread::spawn(move || {
            while let Some(shared) = watched.upgrade().filter(|shared| !shared.abandoned.load(Ordering::Relaxed)) {
                ServiceHandle { shared }.update_memory(probe.used());
                std::thread::sleep(MEMORY_INTERVAL);
            }
        });
    }

    /// An error where the model makes no text, such as an encoder.
    pub fn check_makes_text(&self) -> Result<(), EngineError> {
        self.shared.check_makes_text()
    }

    /// The most tokens of prompt and answer together.
    pub fn context(&self) -> u32 {
        self.shared.context()
    }

    /// Numbers in an embedding; `None` where the model says something of texts instead.
    pub fn embedding_width(&self) -> Option<usize> {
        let makes = &self.shared.makes;
        makes.scores.is_none().then_some(makes.width)
    }

    /// How many numbers the model says of texts in place of an embedding.
    pub fn scores(&self) -> Option<usize> {
        self.shared.makes.scores
    }

    /// How keys and values are cached, and how exactly activations meet weights: tokens depend on it.
    pub fn numerics(&self) -> &str {
        &self.shared.numerics
    }

    /// How keys and values are stored.
    pub fn cache_layout(&self) -> &CacheLayout {
        &self.shared.cache
    }

    /// Seconds since the service started, as events of the cache count them.
    pub fn seconds(&self) -> f64 {
        self.shared.now()
    }

    /// What happened to the KV cache lately, the oldest first.
    pub fn cache_events(&self) -> Vec<CacheEvent> {
        self.shared.cache_log.lock().unwrap_or_else(PoisonError::into_inner).events()
    }

    /// What the service is doing now.
    pub fn snapshot(&self) -> Snapshot {
        let snapshot = self.shared.snapshot.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Snapshot {
            waiting: self.shared.queue().count() as u64,
            refused: self.shared.refused.load(Ordering::Relaxed),
            panics: self.shared.panics.count(),
            dead: self.shared.dead.load(Ordering::Relaxed),
            memory_percent: self.shared.memory.percent(),
            memory_full: self.shared.memory.is_full(),
            spill: self.shared.spill.as_ref().and_then(SpillHandle::status),
            ..snapshot
        }
    }
}

impl Makes {
    fn of(spec: &ModelSpec) -> Makes {
        Makes {
            text: spec.head.is_some(),
            pooled: spec.pooling.rows,
            width: spec.width,
            scores: spec.pooling.classifier.map(|classifier| classifier.outputs),
            whole_texts: spec.sees_later(),
        }
    }
}

impl CacheLayout {
    fn new(limits: &ModelLimits, spec: &ModelSpec) -> CacheLayout {
        let layout = limits.kv_layout(spec);
        let [page_bytes, window_page_bytes, tail_page_bytes] = PageClass::ALL.map(|class| layout.page_bytes(class));
        let policy = limits.kv.describe(spec);
        CacheLayout { policy, page_tokens: PAGE_TOKENS, page_bytes, window_page_bytes, tail_page_bytes }
    }
}

impl Shared {
    /// Seconds since the service started.
    pub(super) fn now(&self) -> f64 {
        self.begin.elapsed().as_secs_f64()
    }

    pub(super) fn context(&self) -> u32 {
        self.limits.context
    }

    fn check_makes_text(&self) -> Result<(), EngineError> {
        if self.makes.text { Ok(()) } else { Err(self.text.makes_no_text()) }
    }

    fn commands(&self) -> MutexGuard<'_, Option<CommandSender>> {
        self.commands.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Jobs that were accepted and have not started.
    pub(super) fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the weights of a job's adapter on the thread that submits it, so that no step has to wait for them: if the job starts
    /// at once, or if nothing has to leave memory for them.
    fn fetch_adapter(&self, job: &mut ActiveJob) {
        let Some(adapter) = &job.adapter else { return };
        if self.queue().starts_at_once() {
            // If this fails, it fails again when the job starts, and is reported then.
            job.weights = adapter.activate().ok();
        } else {
            adapter.prefetch();
        }
    }

    /// A job that can be done, or why it cannot.
    fn check(&self, job: Job) -> Result<Submitted, EngineError> {
        let Job { prompt: mut tokens, task, tenant, adapter, priority, deadline, sink } = job;
        self.limits.check(&tokens, 0)?;
        let prompt_tokens = tokens.len();
        let mut known_tokens = (Vec::new(), None);
        let scores = match &task {
            Task::Score(score) => Some(Scores::new(score.alternatives)),
            Task::Generate(_) | Task::Embed { .. } => None,
        };
        let (needs, task) = match task {
            Task::Generate(generation) | Task::Score(Score { generation, .. }) => {
                self.check_makes_text()?;
                let StartedAnswer { answer, known, finish } =
                    Answer::start(generation, &tokens, self.text.tokenizer(), self.limits)?;
                tokens.extend(known.iter().map(|token| token.token));
                known_tokens = (known, finish);
                let needs = if scores.is_some() { Needs::EveryRow } else { Needs::NextToken };
                (needs, ActiveTask::Answer(Box::new(answer)))
            }
            Task::Embed { second_text } => {
                let needs = if self.makes.whole_texts { Needs::WholeText { second_text } } else { Needs::EveryRow };
                (needs, ActiveTask::Embedding(Embedding::new(self.makes.pooled)))
            }
        };
        // A token that fills the context is shown and never computed.
        tokens.truncate(self.limits.context as usize);
        let deadline = deadline.map(|deadline| deadline.saturating_duration_since(self.begin).as_secs_f64());
        let job = ActiveJob {
            task,
            sink,
            tenant,
            adapter,
            weights: None,
            prompt_tokens,
            reused_tokens: 0,
            known: known_tokens,
            scores,
            started: None,
            speculator: Speculator::default(),
            panics: 0,
        };
        let adapter = job.adapter.as_ref().map(AdapterHandle::id);
        Ok(Submitted { work: Work { id: JobId(0), tokens, needs, tenant, priority, deadline, adapter }, job })
    }
}
