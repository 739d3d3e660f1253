//! The names of adapters, and what is behind them now.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cascadia_model::{Adapter, AdapterFiles, AdapterId, AdapterPart, AdapterPrecision, ModelSpec};
use cascadia_weights::ModelFiles;

use super::selection::{AdapterHandle, Chosen, parse};
use crate::EngineError;
use crate::service::schedule::ResidentAdapters;

/// Adapters in memory together where nothing else is said.
const DEFAULT_BYTES: u64 = 512 << 20;
/// Names where nothing else is said.
const DEFAULT_COUNT: usize = 10_000;

/// Adapters of one model. Cheap to clone, shared by all threads.
#[derive(Clone)]
pub struct AdapterStore {
    shared: Arc<Shared>,
}

/// Limits of a store.
#[derive(Clone, Copy, Debug)]
pub struct AdapterLimits {
    /// What adapters may always take in memory together. As many as requests run at a time always fit: larger ones are refused.
    pub bytes: u64,
    /// Requests that run at a time, each of which may use another adapter.
    pub parallel: u32,
    /// The most names.
    pub count: usize,
}

/// An adapter, as those who look after a server see it.
#[derive(Clone, Debug)]
pub struct AdapterStatus {
    /// What requests call it.
    pub name: String,
    /// Names its content.
    pub id: AdapterId,
    /// "LoRA", "rsLoRA" or "DoRA".
    pub kind: &'static str,
    /// The greatest rank of its updates.
    pub rank: usize,
    /// What it takes in memory while it is used.
    pub bytes: u64,
    /// Whether it is in memory now.
    pub in_memory: bool,
    /// Whether it stays there.
    pub pinned: bool,
    /// Requests that have selected it so far.
    pub requests: u64,
    /// Where its files are.
    pub path: PathBuf,
}

struct Shared {
    base: Arc<ModelFiles>,
    spec: ModelSpec,
    limits: AdapterLimits,
    entries: Mutex<BTreeMap<String, Entry>>,
    resident: ResidentAdapters,
}

/// What is behind a name.
#[derive(Clone)]
struct Entry {
    files: Arc<AdapterFiles>,
    kind: &'static str,
    rank: usize,
    bytes: u64,
    pinned: bool,
    requests: Arc<AtomicU64>,
    path: PathBuf,
}

impl AdapterLimits {
    /// The usual limits for so many requests at a time.
    pub fn new(parallel: u32) -> AdapterLimits {
        AdapterLimits { bytes: DEFAULT_BYTES, parallel: parallel.max(1), count: DEFAULT_COUNT }
    }
}

impl AdapterStore {
    /// No adapters yet, for a model.
    pub fn new(base: Arc<ModelFiles>, spec: ModelSpec, limits: AdapterLimits) -> AdapterStore {
        let (entries, resident) = (Mutex::default(), ResidentAdapters::new(limits.bytes));
        AdapterStore { shared: Arc::new(Shared { base, spec, limits, entries, resident }) }
    }

    /// Opens, checks and adds an adapter. One of the same name is replaced: requests that run keep the old one.
    pub fn insert(&self, name: &str, path: &Path) -> Result<AdapterStatus, EngineError> {
        check_name(name)?;
        let files = Arc::new(AdapterFiles::open(path)?);
        // Everything is checked before any weight of it is used.
        let adapter = self.load(&[AdapterPart { files: &files, weight: 1.0 }])?;
        let (rank, bytes) = (adapter.rank(), adapter.bytes());
        self.check_size(bytes).map_err(|problem| EngineError::Adapter { name: name.to_owned(), problem })?;
        self.keep(Arc::new(adapter));
        let mut entries = self.entries();
        if !entries.contains_key(name) && entries.len() >= self.shared.limits.count {
            let problem = format!("cannot be added: there are {} already; remove one", entries.len());
            return Err(EngineError::Adapter { name: name.to_owned(), problem });
        }
        let requests = entries.get(name).map_or_else(Arc::default, |old| Arc::clone(&old.requests));
        let kind = files.summary().kind;
        let entry = Entry { files, kind, rank, bytes, pinned: false, requests, path: path.to_owned() };
        let replaced = entries.insert(name.to_owned(), entry.clone());
        let unnamed = replaced.filter(|old| entries.values().all(|other| other.files.id() != old.files.id()));
        drop(entries);
        if let Some(old) = unnamed {
            self.resident().remove(old.files.id());
        }
        Ok(self.status(name, &entry))
    }

    /// Forgets a name; requests that run keep the adapter. Whether there was one.
    pub fn remove(&self, name: &str) -> bool {
        let removed = self.entries().remove(name);
        if let Some(entry) = &removed {
            self.resident().remove(entry.files.id());
        }
        removed.is_some()
    }

    /// Keeps an adapter in memory from now on.
    pub fn pin(&self, name: &str) -> Result<(), EngineError> {
        let selected = self.select(name)?;
        selected.keep(selected.activate()?, |_| {});
        if let Some(entry) = self.entries().get_mut(name) {
            entry.pinned = true;
            self.resident().pin(entry.files.id());
        }
        Ok(())
    }

    /// One adapter, `pepys`, or several with weights, `pepys:0.7+rust:0.3`, as they are now.
    pub fn select(&self, selection: &str) -> Result<AdapterHandle, EngineError> {
        let mut chosen = Vec::new();
        let mut bytes = 0u64;
        for (name, weight) in parse(selection)? {
            let entries = self.entries();
            let Some(entry) = entries.get(name) else {
                let problem = format!("is not there; {} adapters are", entries.len());
                return Err(EngineError::Adapter { name: name.to_owned(), problem });
            };
            bytes += entry.bytes;
            entry.requests.fetch_add(1, Ordering::Relaxed);
            chosen.push(Chosen { name: name.to_owned(), files: Arc::clone(&entry.files), weight });
        }
        self.check_size(bytes).map_err(|problem| EngineError::Setting {
            name: "adapter",
            value: format!("{selection}, which {problem}"),
            allowed: "small enough for every request that runs at a time",
        })?;
        Ok(AdapterHandle::new(selection, chosen, (bytes, self.clone())))
    }

    /// Whether there is an adapter of this name.
    pub fn has(&self, name: &str) -> bool {
        self.entries().contains_key(name)
    }

    /// All adapters, by name.
    pub fn list(&self) -> Vec<AdapterStatus> {
        let entries = self.entries().clone();
        entries.iter().map(|(name, entry)| self.status(name, entry)).collect()
    }

    /// What adapters take in memory now.
    pub fn bytes(&self) -> u64 {
        self.resident().bytes()
    }

    /// Of that, what lies in memory that the KV cache lends.
    pub fn borrowed_bytes(&self) -> u64 {
        self.resident().borrowed_bytes()
    }

    /// An adapter that is in memory, which counts as used.
    pub(super) fn find(&self, id: AdapterId) -> Option<Arc<Adapter>> {
        self.resident().find(id)?.downcast().ok()
    }

    /// Keeps an adapter in memory if it fits. Gives the one to use: another thread may have been faster.
    pub(super) fn keep(&self, adapter: Arc<Adapter>) -> Arc<Adapter> {
        let kept = self.resident().keep(adapter.id(), adapter.bytes(), adapter.clone());
        kept.downcast().unwrap_or(adapter)
    }

    /// Reads adapters into memory, for whoever asked; the store does not keep them.
    pub(super) fn load(&self, parts: &[AdapterPart<'_>]) -> Result<Adapter, EngineError> {
        Ok(Adapter::load(parts, &self.shared.base, &self.shared.spec, AdapterPrecision::LikeBase)?)
    }

    /// Those that are in memory.
    pub(crate) fn resident(&self) -> &ResidentAdapters {
        &self.shared.resident
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<String, Entry>> {
        self.shared.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn status(&self, name: &str, entry: &Entry) -> AdapterStatus {
        AdapterStatus {
            name: name.to_owned(),
            id: entry.files.id(),
            kind: entry.kind,
            rank: entry.rank,
            bytes: entry.bytes,
            in_memory: self.resident().has(entry.files.id()),
            pinned: entry.pinned,
            requests: entry.requests.load(Ordering::Relaxed),
            path: entry.path.clone(),
        }
    }

    /// Says what is wrong unless every request that runs could have an adapter of this size.
    fn check_size(&self, bytes: u64) -> Result<(), String> {
        let AdapterLimits { bytes: limit, parallel, .. } = self.shared.limits;
        let all = bytes.saturating_mul(u64::from(parallel));
        if all <= limit {
            return Ok(());
        }
        let mib = |bytes: u64| bytes.div_ceil(1 << 20);
        Err(format!(
            "takes {} MiB in memory, {} MiB for {parallel} requests at a time, where adapters have {} MiB; allow them \
             more memory, or run fewer requests at a time",
            mib(bytes),
            mib(all),
            mib(limit)
        ))
    }
}

impl fmt::Debug for AdapterStore {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("AdapterStore").field("limits", &self.shared.limits).finish_non_exhaustive()
    }
}

/// An error unless a name can be part of a model's name.
fn check_name(name: &str) -> Result<(), EngineError> {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if (1..=64).contains(&name.len()) && name.bytes().all(known) && !name.starts_with('.') {
        return Ok(());
    }
    let problem = "is no name for an adapter: 1 to 64 letters, digits, `.`, `_` and `-` are, without a `.` in front";
    Err(EngineError::Adapter { name: name.chars().take(64).collect(), problem: problem.to_owned() })
}
