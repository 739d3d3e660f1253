//! Linux and macOS: the guard that survives the truncation of a mapped file, memory advice, file modes.
#![expect(unsafe_code, reason = "signal handlers and mmap have no safe interface")]

use std::fs::File;
use std::io;
use std::ops::Range;
#[cfg(target_os = "linux")]
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use memmap2::{Advice, Mmap, UncheckedAdvice};

use super::MemoryAdvice;

/// While it lives, a page of `map` that its file no longer backs reads as zeros instead of killing the process.
///
/// Touching a mapped page beyond the end of a truncated file raises SIGBUS. The handler finds the mapping in
/// [`TABLE`], puts zero pages over the lost part and marks the entry, so that execution continues and whoever uses
/// the mapping learns from [`FaultGuard::is_damaged`] that its results are worthless.
#[derive(Debug)]
pub(crate) struct FaultGuard {
    entry: &'static Entry,
}

impl FaultGuard {
    /// Starts guarding `map`, which the caller must keep mapped for as long as the guard lives.
    pub(crate) fn new(map: &Mmap) -> io::Result<FaultGuard> {
        install_handler()?;
        let start = map.as_ptr().addr();
        let end = start + map.len();
        TABLE
            .iter()
            .find(|entry| entry.claim(start, end))
            .map(|entry| FaultGuard { entry })
            .ok_or_else(|| io::Error::other(format!("more than {TABLE_SIZE} model files are open; close some")))
    }

    /// Whether a page of the mapping was lost since the guard was made.
    pub(crate) fn is_damaged(&self) -> bool {
        self.entry.damaged.load(Ordering::Acquire)
    }
}

impl Drop for FaultGuard {
    fn drop(&mut self) {
        self.entry.release();
    }
}

/// Tells the system how a range of `map`, which maps the whole of `file`, will be read.
pub(crate) fn advise(map: &Mmap, file: &File, range: Range<usize>, advice: MemoryAdvice) -> io::Result<()> {
    let (start, length) = (range.start, range.len());
    match advice {
        MemoryAdvice::WillNeed => map.advise_range(Advice::WillNeed, start, length),
        MemoryAdvice::Sequential => map.advise_range(Advice::Sequential, start, length),
        MemoryAdvice::Random => map.advise_range(Advice::Random, start, length),
        MemoryAdvice::Release | MemoryAdvice::Unload => {
            // SAFETY: the mapping is of a file and nobody writes to it, so a page that is dropped reads the same again.
            unsafe { map.unchecked_advise_range(UncheckedAdvice::DontNeed, start, length)? };
            if advice == MemoryAdvice::Release { forget_cached(file, range) } else { Ok(()) }
        }
    }
}

/// Asks for huge pages, which the system can give where its file systems keep large pieces of files together.
/// Others refuse, which changes nothing.
pub(crate) fn prefer_huge_pages(map: &Mmap) {
    #[cfg(target_os = "linux")]
    let _ = map.advise(Advice::HugePage);
    #[cfg(not(target_os = "linux"))]
    let _ = map;
}

/// Brings all of a mapping into memory; an error where the system has no such call.
pub(crate) fn populate(map: &Mmap) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    return map.advise(Advice::PopulateRead);
    #[cfg(not(target_os = "linux"))]
    {
        let _ = map;
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Keeps all of a mapping in memory for as long as it lives.
pub(crate) fn lock(map: &Mmap) -> io::Result<()> {
    map.lock()
}

/// What to do where locking was refused.
pub(crate) fn lock_advice() -> String {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the call writes to `limit`, which outlives it.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit) } == 0;
    let raise = "`ulimit -l unlimited` as root, LimitMEMLOCK=infinity in a systemd unit, or --ulimit memlock=-1 for a \
                 container";
    match known && limit.rlim_cur != libc::RLIM_INFINITY {
        true => format!("this process may lock {} bytes; raise the limit with {raise}", limit.rlim_cur),
        false => "there may be too little free memory".to_owned(),
    }
}

/// Takes a range of a file out of the system's cache.
#[cfg(target_os = "linux")]
fn forget_cached(file: &File, range: Range<usize>) -> io::Result<()> {
    // SAFETY: the descriptor is open for as long as `file` is borrowed; the call only hints.
    let code = unsafe {
        libc::posix_fadvise(
            file.as_raw_fd(),
            range.start as libc::off_t,
            range.len() as libc::off_t,
            libc::POSIX_FADV_DONTNEED,
        )
    };
    if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code)) }
}

/// Other systems take pages out of their cache when they see fit.
#[cfg(not(target_os = "linux"))]
fn forget_cached(_file: &File, _range: Range<usize>) -> io::Result<()> {
    Ok(())
}

/// Opens a file whose reads go past the system's cache; where that is not possible, its cached part is dropped first.
pub(crate) fn open_uncached(path: &Path) -> io::Result<File> {
    #[cfg(target_os = "linux")]
    {
        use std::os::unix::fs::OpenOptionsExt;
        if let Ok(file) = File::options().read(true).custom_flags(libc::O_DIRECT).open(path) {
            return Ok(file);
        }
    }
    let file = File::open(path)?;
    forget_cached(&file, 0..file.metadata()?.len() as usize)?;
    Ok(file)
}

/// Reads at `offset` without moving a position that threads share.
pub(crate) fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    file.read_at(buffer, offset)
}

/// Makes a rename inside `folder` survive a power cut.
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Mappings that can be guarded at once; the largest sharded models have a few hundred files.
const TABLE_SIZE: usize = 4096;

/// A signal handler may neither lock nor allocate and gets no argument of ours: hence a fixed global table.
static TABLE: [Entry; TABLE_SIZE] = [const { Entry::new() }; TABLE_SIZE];

/// What handled SIGBUS before us; faults outside the table are passed on to it.
static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

/// One guarded address range; free while `start` is zero and being filled while `end` is zero.
#[derive(Debug)]
struct Entry {
    start: AtomicUsize,
    end: AtomicUsize,
    damaged: AtomicBool,
}

impl Entry {
    const fn new() -> Entry {
        Entry { start: AtomicUsize::new(0), end: AtomicUsize::new(0), damaged: AtomicBool::new(false) }
    }

    fn claim(&self, start: usize, end: usize) -> bool {
        if self.start.compare_exchange(0, start, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return false;
        }
        self.damaged.store(false, Ordering::Relaxed);
        self.end.store(end, Ordering::Release);
        true
    }

    fn release(&self) {
        self.end.store(0, Ordering::Release);
        self.start.store(0, Ordering::Release);
    }

    fn end_if_contains(&self, address: usize) -> Option<usize> {
        let end = self.end.load(Ordering::Acquire);
        let start = self.start.load(Ordering::Acquire);
        // The entry may be given to another mapping between the two loads; then its end has changed, too.
        let same = self.end.load(Ordering::Acquire) == end;
        (same && start <= address && address < end).then_some(end)
    }
}

fn install_handler() -> io::Result<()> {
    static INSTALLED: OnceLock<Result<(), i32>> = OnceLock::new();
    INSTALLED.get_or_init(replace_handler).map_err(io::Error::from_raw_os_error)
}

fn replace_handler() -> Result<(), i32> {
    let last_error = || io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL);
    // SAFETY: `sigaction` is a plain C struct for which all zeros is a valid value.
    let mut previous: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: a null new action only queries; `previous` is valid for writing.
    if unsafe { libc::sigaction(libc::SIGBUS, ptr::null(), &mut previous) } != 0 {
        return Err(last_error());
    }
    // Stored before our handler can run, so that the handler always finds it.
    PREVIOUS.get_or_init(|| previous);
    // SAFETY: as above.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_bus_error as *const () as libc::sighandler_t;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: `action` is initialised, `on_bus_error` has the signature SA_SIGINFO asks for and only makes
    // async-signal-safe calls.
    if unsafe { libc::sigaction(libc::SIGBUS, &action, ptr::null_mut()) } != 0 {
        return Err(last_error());
    }
    Ok(())
}

extern "C" fn on_bus_error(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid `siginfo_t` to a handler installed with SA_SIGINFO.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr().addr()) };
    // A positive code means the kernel reports a fault; others were sent by a process and carry no address.
    let origin = if code > 0 { Origin::Fault } else { Origin::Process };
    if origin == Origin::Fault && replace_lost_pages(address) {
        return;
    }
    pass_on(Signal { number: signal, info, context, origin });
}

/// A signal as it was delivered.
struct Signal {
    number: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
    origin: Origin,
}

/// Who caused a signal.
#[derive(PartialEq, Eq)]
enum Origin {
    Fault,
    Process,
}

/// Puts zero pages from `address` to the end of the guarded mapping around it, if there is one.
fn replace_lost_pages(address: usize) -> bool {
    let Some((entry, end)) = TABLE.iter().find_map(|entry| Some((entry, entry.end_if_contains(address)?))) else {
        return false;
    };
    entry.damaged.store(true, Ordering::Release);
    // SAFETY: `sysconf` and the errno location have no preconditions.
    let (page, errno) = unsafe { (libc::sysconf(libc::_SC_PAGESIZE) as usize, *errno_location()) };
    let start = address & !(page - 1);
    // SAFETY: [start, end) lies inside a mapping that is alive: the faulting thread is reading it through a
    // reference, and a guard leaves the table before its mapping is unmapped. Nobody writes to these pages.
    let replaced = unsafe {
        libc::mmap(
            ptr::without_provenance_mut(start),
            end - start,
            libc::PROT_READ,
            libc::MAP_PRIVATE | libc::MAP_ANON | libc::MAP_FIXED,
            -1,
            0,
        )
    };
    // SAFETY: writes this thread's own errno, which the interrupted code may be about to read.
    unsafe { *errno_location() = errno };
    replaced != libc::MAP_FAILED
}

/// Does with a signal that is not ours what would have happened without us.
fn pass_on(signal: Signal) {
    let (handler, flags) = match PREVIOUS.get() {
        Some(previous) => (previous.sa_sigaction, previous.sa_flags),
        None => (libc::SIG_DFL, 0),
    };
    match handler {
        libc::SIG_IGN if signal.origin == Origin::Process => {}
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: restoring the default action and raising are async-signal-safe. The signal is blocked until
            // we return: then either the fault repeats or the raised signal is delivered, and the process ends.
            unsafe {
                libc::signal(signal.number, libc::SIG_DFL);
                libc::raise(signal.number);
            }
        }
        _ if flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: an address registered with SA_SIGINFO is a function of this signature.
            let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                unsafe { std::mem::transmute(handler) };
            handler(signal.number, signal.info, signal.context);
        }
        _ => {
            // SAFETY: an address registered without SA_SIGINFO takes the signal number only.
            let handler: extern "C" fn(libc::c_int) = unsafe { std::mem::transmute(handler) };
            handler(signal.number);
        }
    }
}

/// Where this thread keeps `errno`.
///
/// # Safety
/// Always sound to call; the pointer is valid for the current thread only.
unsafe fn errno_location() -> *mut libc::c_int {
    // SAFETY: both functions return a valid pointer to thread-local storage.
    #[cfg(target_os = "linux")]
    unsafe {
        libc::__errno_location()
    }
    // SAFETY: as above.
    #[cfg(not(target_os = "linux"))]
    unsafe {
        libc::__error()
    }
}
