//! The disk as the scheduler sees it: keeps pages that are given up, and fills free ones with what was kept.

use std::fmt;
use std::io::{self, ErrorKind};
use std::sync::{Arc, Weak};
use std::time::Instant;

use cascadia_model::{PAGE_TOKENS, PageBytes, PageClass, PageId, PerClass};

use super::cipher::{Cipher, Secret, sealed_bytes};
use super::disk::{Disk, Folder};
use super::index::{Found, disk_bytes};
use super::record::{self, Names, RecordId};
use super::shared::Shared;
use super::writer::{END_TIME, SpillWriter, WriterThread};
use super::{QUEUE_BYTES, Seconds, SpillOptions, SpillStatus};
use crate::EngineError;
use crate::service::schedule::{Block, Fetched, PageTier, PrefixKey};

/// How long a step may wait for pages, about: that of one more may be on top.
const READ_SECONDS: f64 = 0.02;

/// The disk tier.
pub struct Spill {
    shared: Arc<Shared>,
    pub(super) names: Names,
    pages: Arc<dyn PageBytes>,
    page_bytes: PerClass<usize>,
    /// What this step has waited so far.
    waited: f64,
    /// The service ends.
    conclusion: Option<Conclusion>,
}

/// What may still be kept when a service ends.
struct Conclusion {
    /// Until when pages wait for room in the queue.
    until: Instant,
    /// Bytes on disk that are left for more: what was used last comes first, and nothing takes its place.
    room: u64,
}

/// What a disk tier works with.
pub struct SpillSetup<'a> {
    /// The pages.
    pub pages: Arc<dyn PageBytes>,
    /// Where records are.
    pub disk: Arc<dyn Disk>,
    /// What they are encrypted with.
    pub secret: Secret,
    /// What pages depend on besides text and owner.
    pub context: &'a str,
    /// The most bytes on disk.
    pub bytes: u64,
    /// The most bytes that wait to be written.
    pub queue_bytes: u64,
    /// The time.
    pub seconds: Seconds,
}

/// The numbers of a disk tier, and what they depend on. It does not keep the folder locked.
#[derive(Clone)]
pub struct SpillHandle {
    shared: Weak<Shared>,
}

/// Why a record gives no page.
enum Miss {
    Absent,
    Damaged,
    Unreadable(io::Error),
}

impl Spill {
    /// A tier, and what has to write for it; nothing where the system has no random numbers.
    pub fn new(setup: SpillSetup<'_>) -> Option<(Spill, SpillWriter)> {
        let SpillSetup { pages, disk, secret, context, bytes, queue_bytes, seconds } = setup;
        let names = Names::new(&secret, context);
        let cipher = Cipher::new(secret)?;
        let shared = Arc::new(Shared::new((disk, cipher), (bytes, queue_bytes), seconds));
        let page_bytes = PerClass::new(|class| pages.page_bytes(class));
        let writer = SpillWriter { shared: Arc::clone(&shared), keep: false };
        Some((Spill { shared, names, pages, page_bytes, waited: 0.0, conclusion: None }, writer))
    }

    /// A tier in a folder, and the thread that writes for it. `context` says what pages depend on besides text, owner and what
    /// the options say.
    pub(crate) fn open(
        options: &SpillOptions,
        pages: Arc<dyn PageBytes>,
        (context, seconds): (&str, Seconds),
    ) -> Result<(Spill, WriterThread), EngineError> {
        let failed = |problem: String| EngineError::Spill { folder: options.folder.clone(), problem };
        let folder = Folder::open(&options.folder)?;
        let (secret, stored) = folder.begin(options.keep_prefixes)?;
        let (version, model) = (env!("CARGO_PKG_VERSION"), &options.model);
        let page = PerClass::new(|class| pages.page_bytes(class));
        let context = format!("{version}, {model}, {context}, {PAGE_TOKENS} tokens a page of {page:?}");
        let (disk, bytes) = (Arc::new(folder), options.bytes);
        let setup = SpillSetup { pages, disk, secret, context: &context, bytes, queue_bytes: QUEUE_BYTES, seconds };
        let made = Spill::new(setup).ok_or_else(|| failed("the system has no random numbers".to_owned()));
        let (spill, writer) = made?;
        let mut state = spill.shared.state();
        stored.into_iter().for_each(|record| state.index.add_file(record.id, record.bytes));
        drop(state);
        let writer = SpillWriter { keep: options.keep_prefixes, ..writer };
        let thread = writer.start().map_err(|error| failed(format!("cannot start a thread: {error}")))?;
        Ok((spill, thread))
    }

    /// What others may know of it.
    pub fn handle(&self) -> SpillHandle {
        SpillHandle { shared: Arc::downgrade(&self.shared) }
    }

    /// Bytes of a record before it is encrypted.
    fn plain_bytes(&self, block: &Block<'_>) -> usize {
        record::head_bytes(block.tokens.len()) + self.page_bytes[block.class]
    }

    /// Whether a record may still be kept; at the end of a service, it waits for room in the queue.
    fn concludes(&mut self, bytes: u64, on_disk: u64) -> bool {
        let Some(Conclusion { until, room }) = &mut self.conclusion else { return true };
        if *room < on_disk {
            return false;
        }
        *room -= on_disk;
        self.shared.wait_for_room(bytes, until.saturating_duration_since(Instant::now()));
        true
    }

    /// Fills a page with what a record holds; returns the bytes of it.
    fn fill(&self, block: &Block<'_>, plain: &[u8], page: PageId) -> Result<u64, Miss> {
        let bytes = record::decode(block, plain).ok_or(Miss::Damaged)?;
        self.pages.fill_page(block.class, page, bytes).map_err(|_| Miss::Damaged)?;
        Ok(bytes.len() as u64)
    }

    /// Reads a record into a page; returns the bytes of the page.
    fn read(&mut self, id: &RecordId, block: &Block<'_>, page: PageId) -> Result<u64, Miss> {
        let begin = self.shared.now();
        let length = sealed_bytes(self.plain_bytes(block));
        let sealed = self.shared.disk.read(&id.file_name(), length).map_err(|error| self.unreadable(id, error))?;
        let plain = self.shared.cipher.open(id, sealed).ok_or(Miss::Damaged)?;
        let bytes = self.fill(block, &plain, page)?;
        let seconds = self.shared.now() - begin;
        self.waited += seconds;
        let mut state = self.shared.state();
        state.costs.learn(block.class, seconds);
        if state.reads.open() {
            tracing::info!("the KV cache restores again");
        }
        Ok(bytes)
    }

    /// A file that was removed to make room while somebody wanted to read it is no fault of the disk.
    fn unreadable(&self, id: &RecordId, error: io::Error) -> Miss {
        let is_gone = error.kind() == ErrorKind::NotFound && self.shared.state().index.find(id).is_none();
        if is_gone { Miss::Absent } else { Miss::Unreadable(error) }
    }

    /// Counts a miss, and gives up what caused it.
    fn missed(&self, id: &RecordId, miss: &Miss) {
        let mut state = self.shared.state();
        state.index.spoil(id);
        match miss {
            Miss::Absent => state.counted.absent += 1,
            Miss::Damaged => state.counted.damaged += 1,
            Miss::Unreadable(_) => state.counted.unreadable += 1,
        }
        drop(state);
        if let Miss::Unreadable(error) = miss {
            self.shared.reading_failed(error);
        }
        self.shared.notify();
    }
}

impl PageTier for Spill {
    fn begin_plan(&mut self) {
        self.waited = 0.0;
    }

    fn keep(&mut self, block: Block<'_>, page: PageId) {
        let Some(id) = self.names.id(&block) else { return };
        let bytes = self.plain_bytes(&block) as u64;
        let on_disk = disk_bytes(sealed_bytes(bytes as usize) as u64);
        if !self.concludes(bytes, on_disk) {
            return;
        }
        let mut state = self.shared.state();
        if state.index.contains(&id) {
            return state.index.touch(&id);
        }
        let is_used = state.writes.is_open(self.shared.now()) && !state.ended;
        if !is_used || on_disk > self.shared.most_bytes || !self.shared.fits(&state, bytes) {
            state.counted.dropped += 1;
            return;
        }
        drop(state);
        // Nobody else adds records, so there is still room.
        let plain = record::encode(&block, &self.pages.copy_page(block.class, page));
        let mut state = self.shared.state();
        state.index.wait(id, block.owner.salt, plain);
        state.queue.push_back(id);
        drop(state);
        self.shared.notify();
    }

    fn find(&mut self, owner: PrefixKey, tokens: &[u32], held: usize) -> Vec<PerClass<bool>> {
        let names = self.names.of(owner, tokens);
        let mut state = self.shared.state();
        let kept =
            |name: &[u8; 32]| PerClass::new(|class| state.index.find(&RecordId { name: *name, class }).is_some());
        let kept: Vec<PerClass<bool>> = match state.reads.is_open(self.shared.now()) {
            true => names.iter().map(kept).collect(),
            false => Vec::new(),
        };
        // The last page first, so that it counts as the one used longest ago: without an earlier one it is of no use.
        for name in names.iter().rev() {
            PageClass::ALL.iter().for_each(|class| state.index.touch(&RecordId { name: *name, class: *class }));
        }
        let next_is_kept = kept.get(held).is_some_and(|kept| kept[PageClass::Full]);
        state.counted.absent += u64::from(held < names.len() && !next_is_kept);
        kept
    }

    fn pays(&mut self, pages: &PerClass<usize>, tokens: usize) -> bool {
        let now = self.shared.now();
        self.shared.state().costs.pays(pages, tokens, now)
    }

    fn fetch(&mut self, block: Block<'_>, page: PageId) -> Fetched {
        let Some(id) = self.names.id(&block) else { return Fetched::Missing };
        let found = self.shared.state().index.find(&id);
        let filled = match found {
            None => Err(Miss::Absent),
            Some(Found::Memory(plain)) => self.fill(&block, &plain, page),
            Some(Found::Disk) if self.waited >= READ_SECONDS => return Fetched::Later,
            Some(Found::Disk) => self.read(&id, &block, page),
        };
        match filled {
            Ok(bytes) => {
                let mut state = self.shared.state();
                state.counted.restored += 1;
                state.counted.restored_bytes += bytes;
                Fetched::Filled
            }
            Err(miss) => {
                self.missed(&id, &miss);
                Fetched::Missing
            }
        }
    }

    fn conclude(&mut self) {
        self.conclusion = Some(Conclusion { until: Instant::now() + END_TIME, room: self.shared.most_bytes });
    }

    fn forget(&mut self) {
        let mut state = self.shared.state();
        state.queue.clear();
        state.index.spoil_all();
        drop(state);
        self.shared.notify();
    }
}

impl SpillHandle {
    /// What the tier has done so far; nothing once it is gone.
    pub fn status(&self) -> Option<SpillStatus> {
        let shared = self.shared.upgrade()?;
        let status = shared.state().status(shared.most_bytes);
        Some(status)
    }

    /// A row of a prompt takes so many seconds.
    pub fn set_row_seconds(&self, seconds: f64) {
        if let Some(shared) = self.shared.upgrade() {
            shared.state().costs.set_row_seconds(seconds);
        }
    }
}

impl fmt::Debug for Spill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spill").field("status", &self.handle().status()).finish_non_exhaustive()
    }
}
