//! Starts services on small models, and collects what jobs say.

use std::convert::Infallible;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cascadia_engine::service::{
    Generation, Job, JobId, JobOutcome, NewToken, Priority, Service, ServiceHandle, ServiceOptions, Task, Tenant,
    TokenLogprobs, Update,
};
use cascadia_engine::{
    CacheSize, Engine, EngineError, Flow, ModelText, OpenOptions, Outcome, Sampling, Session, Source, generate,
};
use cascadia_kernels::Pool;
use cascadia_model::{CachePages, KvFormats, KvPolicy};

/// The longest that a test waits for an update; far more than it should take.
const PATIENCE: Duration = Duration::from_secs(60);

/// How a service is set up.
#[derive(Clone)]
pub(crate) struct Setup {
    pub(crate) model: PathBuf,
    pub(crate) context: u32,
    pub(crate) cache: CachePages,
    pub(crate) rows_per_step: u32,
    pub(crate) threads: usize,
    pub(crate) options: ServiceOptions,
    pub(crate) kv: KvPolicy,
}

/// What a test asks for, of a service or of a session.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) prompt: Vec<u32>,
    pub(crate) sampling: Sampling,
    pub(crate) max_tokens: u32,
    pub(crate) stop: Vec<String>,
    pub(crate) stop_tokens: Vec<u32>,
}

/// What became of a job.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    pub(crate) started: Option<usize>,
    /// Of the tokens, those that were known from before.
    pub(crate) known: usize,
    pub(crate) tokens: Vec<NewToken>,
    pub(crate) outcome: Option<JobOutcome>,
    pub(crate) scores: Option<Vec<TokenLogprobs>>,
    pub(crate) embedding: Option<Vec<f32>>,
    pub(crate) error: Option<EngineError>,
    pub(crate) endings: usize,
}

/// When the receiver of a job goes away.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Leave {
    Never,
    /// After so many tokens.
    After(usize),
}

/// A job at whose start the service stands still until `release` is dropped.
pub(crate) struct Held {
    pub(crate) id: JobId,
    pub(crate) updates: Receiver<Update>,
    pub(crate) release: Sender<Infallible>,
}

pub(crate) fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name)
}

pub(crate) fn rainier() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../cascadia/model/rainier-33m-q4_k_m.gguf")
}

/// A fixture that says it was made for 2048 tokens.
pub(crate) fn long(name: &str) -> PathBuf {
    made_for(name, 2048)
}

/// A fixture that says it was made for so many tokens.
pub(crate) fn made_for(name: &str, tokens: u32) -> PathBuf {
    static MADE: Mutex<Option<tempfile::TempDir>> = Mutex::new(None);
    // One test makes it, the others wait for that.
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = made.get_or_insert_with(|| tempfile::tempdir().unwrap()).path().join(format!("{name}-{tokens}"));
    if folder.exists() {
        return folder;
    }
    fs::create_dir_all(&folder).unwrap();
    for file in fs::read_dir(fixture(name)).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), folder.join(file.file_name())).unwrap();
    }
    let config = fs::read_to_string(folder.join("config.json")).unwrap();
    let mut config: serde_json::Value = serde_json::from_str(&config).unwrap();
    config["max_position_embeddings"] = tokens.into();
    fs::write(folder.join("config.json"), config.to_string()).unwrap();
    folder
}

impl Setup {
    pub(crate) fn new(model: PathBuf, context: u32, cache: CachePages) -> Setup {
        let (options, kv) = (ServiceOptions::default(), KvPolicy::new(KvFormats::Exact));
        Setup { model, context, cache, rows_per_step: 128, threads: 2, options, kv }
    }

    pub(crate) fn engine(&self, cache: CacheSize) -> Engine {
        let options = OpenOptions {
            context: Some(self.context),
            rows_per_step: self.rows_per_step,
            cache,
            kv: self.kv.clone(),
            ..OpenOptions::new(Arc::new(Pool::new(self.threads)))
        };
        Engine::open(Source::Path(&self.model), &options).unwrap()
    }

    pub(crate) fn start(&self) -> Service {
        let engine = self.engine(CacheSize::Pages(self.cache));
        Service::start(engine, text(), self.options.clone()).unwrap()
    }

    /// What each request gives alone.
    pub(crate) fn alone(&self, requests: &[Request]) -> Vec<Vec<u32>> {
        let mut session = self.session();
        requests
            .iter()
            .map(|request| on_session(&mut session, &request.prompt, request.generation()).1.tokens)
            .collect()
    }

    pub(crate) fn session(&self) -> Session {
        self.engine(CacheSize::Sequences(1)).into_session()
    }
}

impl Request {
    pub(crate) fn generation(&self) -> Generation {
        Generation {
            stop: self.stop.clone(),
            stop_tokens: self.stop_tokens.clone(),
            ..Generation::new(self.sampling.clone(), self.max_tokens)
        }
    }
}

/// The text that an empty session gives, and how it ends.
pub(crate) fn on_session(session: &mut Session, prompt: &[u32], generation: Generation) -> (String, Outcome) {
    let request = cascadia_engine::Request { prompt: prompt.to_vec(), generation, draft_tokens: 0 };
    let mut shown = String::new();
    session.truncate(0);
    let outcome = generate(text().tokenizer(), session, &request, &mut |event| {
        shown.push_str(event.text());
        Flow::Continue
    });
    (shown, outcome.unwrap())
}

/// One tokenizer for all models: what text tokens become does not matter here.
pub(crate) fn text() -> Arc<ModelText> {
    let files = Source::Path(&fixture("llama3")).files().unwrap();
    Arc::new(ModelText::read(&files).unwrap())
}

pub(crate) fn request(prompt: Vec<u32>, temperature: f32, max_tokens: u32) -> Request {
    let sampling = Sampling { temperature, seed: u64::from(max_tokens), ..Sampling::default() };
    Request { prompt, sampling, max_tokens, stop: Vec::new(), stop_tokens: vec![5] }
}

/// A job that does what a request does, and where its updates arrive.
pub(crate) fn job(request: &Request, leave: Leave) -> (Job, Receiver<Update>) {
    let (sender, updates) = channel();
    let mut tokens = 0;
    let sink = move |update: Update| {
        tokens += usize::from(matches!(update, Update::Token(_)));
        // A test that has seen enough may have gone.
        let _ = sender.send(update);
        if leave == Leave::After(tokens) { Flow::Stop } else { Flow::Continue }
    };
    let job = Job {
        prompt: request.prompt.clone(),
        task: Task::Generate(request.generation()),
        tenant: Tenant(0),
        adapter: None,
        priority: Priority::Normal,
        deadline: None,
        sink: Box::new(sink),
    };
    (job, updates)
}

/// Lets a service stand still at the start of a job: what a test does next comes first, however slow its thread is.
pub(crate) fn hold(handle: &ServiceHandle, request: &Request, leave: Leave) -> Held {
    let (plain, updates) = job(request, leave);
    let (release, released) = channel::<Infallible>();
    let mut sink = plain.sink;
    let held = move |update: Update| {
        let flow = sink(update);
        // Nothing ever comes: this is over when the sender is gone.
        let _ = released.recv();
        flow
    };
    let id = handle.submit(Job { sink: Box::new(held), ..plain }).unwrap();
    updates.recv_timeout(PATIENCE).expect("a job starts");
    Held { id, updates, release }
}

/// Everything a job says until its last word.
pub(crate) fn hear(updates: &Receiver<Update>) -> Heard {
    let mut heard = Heard::default();
    while heard.endings == 0 {
        match updates.recv_timeout(PATIENCE).expect("a job ends") {
            Update::Started { reused_tokens, known } => {
                heard.started = Some(reused_tokens);
                heard.known = known.len();
                heard.tokens.extend(known);
            }
            Update::Scored(scores) => {
                assert!(heard.tokens.is_empty(), "the prompt comes before the answer");
                heard.scores = Some(scores);
            }
            Update::Token(token) => heard.tokens.push(token),
            Update::Finished(outcome) => (heard.outcome, heard.endings) = (Some(outcome), 1),
            Update::Embedded(embedding) => (heard.embedding, heard.endings) = (Some(embedding), 1),
            Update::Failed(error) => (heard.error, heard.endings) = (Some(error), 1),
        }
    }
    heard
}

impl Heard {
    pub(crate) fn numbers(&self) -> Vec<u32> {
        self.tokens.iter().map(|token| token.token).collect()
    }
}
