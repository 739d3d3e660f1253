//! Answers under way: what each must be, what it was, and when its tokens came.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use cascadia_engine::service::{
    Generation, Job, Priority, Service, ServiceHandle, ServiceOptions, Task, Tenant, Update,
};
use cascadia_engine::{AdapterHandle, AdapterLimits, CacheSize, Engine, Flow, OpenOptions, Sampling};
use cascadia_kernels::Pool;
use cascadia_model::ModelSpec;
use cascadia_weights::ModelFiles;

use super::fault::SeededRandom;
use super::test_fleet::TestFleet;
use crate::flags::ChaosFlags;

/// Tokens of the longest prompt, and of every answer.
const PROMPT: u64 = 200;
const ANSWER: u32 = 120;
/// Different requests; streams take them in turn.
const REQUESTS: u64 = 8;
/// How long the next fault waits for a stream that does not continue.
const STREAM_TIMEOUT: Duration = Duration::from_secs(20);

/// Requests, and what one process answers.
pub(super) struct Streams {
    options: OpenOptions,
    requests: Vec<(Vec<u32>, Sampling)>,
    /// Requests have these in turn, and none.
    adapters: Vec<AdapterHandle>,
    expected: Vec<Vec<u32>>,
    /// Tokens that every stream has received.
    tokens: Vec<AtomicU64>,
}

/// What one stream received.
#[derive(Default)]
pub(super) struct StreamLog {
    /// When something was asked, and when tokens came.
    pub(super) times: Vec<Instant>,
    pub(super) answers: u64,
    pub(super) tokens: u64,
    /// Tokens that differ from those of one process.
    pub(super) differing: u64,
    /// Why answers ended early.
    pub(super) dropped: Vec<String>,
}

impl Streams {
    /// Makes requests, and has them answered in this process.
    pub(super) fn new(flags: &ChaosFlags, fleet: &TestFleet) -> anyhow::Result<Streams> {
        let files = ModelFiles::open(&fleet.model)?;
        let vocabulary = ModelSpec::from_files(&files)?.vocabulary as u64;
        let mut random = SeededRandom(flags.seed ^ 0x5eed);
        let request = |number: u64| {
            let length = 16 + random.below(PROMPT - 16);
            let prompt = (0..length).map(|_| random.below(vocabulary) as u32).collect();
            // The likeliest tokens, and random tokens.
            (prompt, Sampling { temperature: (number % 2) as f32, seed: number, ..Sampling::default() })
        };
        let requests = (0..REQUESTS).map(request).collect();
        let options = OpenOptions {
            context: Some(PROMPT as u32 + ANSWER),
            cache: CacheSize::Sequences(flags.streams),
            ..OpenOptions::new(Arc::new(Pool::new(1)))
        };
        let engine = Engine::from_files(files, &options)?;
        let text = Arc::new(engine.text()?);
        let adapters = open_adapters(flags, &engine)?;
        let service = Service::start(engine, text, ServiceOptions::default())?;
        let tokens = (0..flags.streams).map(|_| AtomicU64::new(0)).collect();
        let mut streams = Streams { options, requests, adapters, expected: Vec::new(), tokens };
        let mut log = StreamLog::default();
        streams.expected = (0..REQUESTS as usize).map(|at| streams.ask(&service.handle(), (0, at), &mut log)).collect();
        anyhow::ensure!(log.dropped.is_empty(), "one process cannot answer: {}", log.dropped.join("; "));
        Ok(streams)
    }

    /// Tokens that every stream has received so far.
    pub(super) fn tokens(&self) -> Vec<u64> {
        self.tokens.iter().map(|tokens| tokens.load(Ordering::Relaxed)).collect()
    }

    /// Waits until every stream has received more.
    pub(super) fn wait_for_all(&self, so_far: &[u64]) {
        let begin = Instant::now();
        while begin.elapsed() < STREAM_TIMEOUT && self.tokens().iter().zip(so_far).any(|(now, before)| now == before) {
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// How a service for them is opened.
    pub(super) fn options(&self) -> &OpenOptions {
        &self.options
    }

    /// Asks one thing after the other until it is over.
    pub(super) fn listen(&self, handle: &ServiceHandle, number: usize, over: &AtomicBool) -> StreamLog {
        let mut log = StreamLog::default();
        for at in (0..self.requests.len()).cycle().skip(number) {
            if over.load(Ordering::Relaxed) {
                break;
            }
            let (tokens, expected) = (self.ask(handle, (number, at), &mut log), &self.expected[at]);
            log.answers += 1;
            log.tokens += tokens.len() as u64;
            log.differing += tokens.iter().zip(expected).filter(|(token, expected)| token != expected).count() as u64;
            log.differing += tokens.len().saturating_sub(expected.len()) as u64;
        }
        log
    }

    /// The tokens of the answer to a request, as one of the streams receives them.
    fn ask(&self, handle: &ServiceHandle, (stream, at): (usize, usize), log: &mut StreamLog) -> Vec<u32> {
        let (sender, updates) = channel();
        let (prompt, sampling) = self.requests[at].clone();
        let task = Task::Generate(Generation::new(sampling, ANSWER));
        let sink = Box::new(move |update| if sender.send(update).is_ok() { Flow::Continue } else { Flow::Stop });
        let (tenant, priority, deadline) = (Tenant(0), Priority::Normal, None);
        let adapter = self.adapters.get(at % (self.adapters.len() + 1)).cloned();
        log.times.push(Instant::now());
        if let Err(error) = handle.submit(Job { prompt, task, tenant, adapter, priority, deadline, sink }) {
            log.dropped.push(error.to_string());
            return Vec::new();
        }
        let (mut tokens, dropped) = (Vec::new(), log.dropped.len());
        for update in updates {
            match update {
                Update::Token(token) => {
                    log.times.push(Instant::now());
                    tokens.push(token.token);
                    self.tokens[stream].fetch_add(1, Ordering::Relaxed);
                }
                Update::Failed(error) => log.dropped.push(error.to_string()),
                Update::Started { .. } | Update::Scored(_) | Update::Finished(_) | Update::Embedded(_) => {}
            }
        }
        // An answer that did not fail has all its tokens.
        if tokens.len() < self.expected.get(at).map_or(0, Vec::len) && log.dropped.len() == dropped {
            log.dropped.push(format!("it ended after {} tokens", tokens.len()));
        }
        tokens
    }
}

/// The adapters of a folder, by name.
fn open_adapters(flags: &ChaosFlags, engine: &Engine) -> anyhow::Result<Vec<AdapterHandle>> {
    let Some(folder) = &flags.adapters else { return Ok(Vec::new()) };
    let store = engine.adapters(AdapterLimits::new(flags.streams));
    let entries = std::fs::read_dir(folder)?.map(|entry| Ok(entry?.path()));
    let mut paths = entries.collect::<std::io::Result<Vec<_>>>()?;
    paths.retain(|path| path.is_dir());
    paths.sort();
    let open = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        store.insert(&name, path)?;
        Ok(store.select(&name)?)
    };
    paths.iter().map(open).collect()
}
