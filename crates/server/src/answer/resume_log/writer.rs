//! The thread that writes the resume log, and keeps it within its limits.

use std::collections::{HashMap, VecDeque};
use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant, SystemTime};

use super::record::{self, Found};
use super::{FILE_BYTES, ResumeLogOptions, WAITING, path, read};
use crate::os;

/// Tokens, and time, after which files are synced to survive a power loss.
const SYNC_TOKENS: usize = 32;
const SYNC_TIME: Duration = Duration::from_millis(100);
/// How often old files are removed, and open files closed that were not appended to meanwhile.
const SWEEP_TIME: Duration = Duration::from_secs(60);

/// What the thread is asked to do.
pub(super) enum Command {
    /// A stream has one more token, after `before` others.
    Token { stream: Arc<str>, before: usize, token: u32 },
    /// It is not running any more.
    Close(Arc<str>),
    /// It was sent completely.
    Forget(Arc<str>),
}

pub(super) struct Writer {
    options: ResumeLogOptions,
    open: HashMap<Arc<str>, Log>,
    /// Streams that were sent completely, and when; at most as many as commands that may wait.
    finished: VecDeque<(Instant, Arc<str>)>,
    /// Bytes of all files, about.
    bytes: u64,
    swept: Instant,
}

/// An open file. Several connections may have the same stream, with the same tokens: each is written once.
struct Log {
    stream: Arc<str>,
    /// `None` when it cannot be written any further; what it has stays valid.
    file: Option<File>,
    bytes: u64,
    written: usize,
    pending: Vec<u32>,
    unsynced: usize,
    unsynced_since: Instant,
    used: Instant,
}

impl Writer {
    pub(super) fn new(options: ResumeLogOptions) -> Writer {
        Writer { options, open: HashMap::new(), finished: VecDeque::new(), bytes: 0, swept: Instant::now() }
    }

    /// Applies commands until all senders are gone.
    pub(super) fn run(mut self, commands: &Receiver<Command>) {
        self.sweep();
        loop {
            let first = match commands.recv_timeout(self.time_until_next_task()) {
                Ok(command) => Some(command),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            // Everything received so far is written at once.
            first.into_iter().chain(commands.try_iter().take(WAITING)).for_each(|command| self.apply(command));
            self.write();
        }
    }

    /// How long the thread may wait for commands.
    fn time_until_next_task(&self) -> Duration {
        let unsynced = self.open.values().any(|log| log.unsynced > 0).then_some(SYNC_TIME);
        let finished = self.finished.front().map(|(since, _)| self.options.linger.saturating_sub(since.elapsed()));
        unsynced.into_iter().chain(finished).fold(SWEEP_TIME, Ord::min)
    }

    /// Writes pending tokens, and removes files that are finished or over the limit.
    fn write(&mut self) {
        for log in self.open.values_mut() {
            self.bytes += log.write();
            log.sync();
        }
        let linger = self.options.linger;
        while self.finished.front().is_some_and(|(since, _)| since.elapsed() >= linger || self.finished.len() > WAITING)
        {
            let Some((_, stream)) = self.finished.pop_front() else { break };
            self.open.remove(&stream);
            // It may be gone already.
            let _ = fs::remove_file(path(&self.options.folder, &stream));
        }
        if self.bytes > self.options.bytes || self.swept.elapsed() >= SWEEP_TIME {
            self.sweep();
        }
    }

    fn apply(&mut self, command: Command) {
        match command {
            Command::Token { stream, before, token } => {
                let log = self.open.entry(stream);
                let log = log.or_insert_with_key(|stream| Log::open(&self.options, stream, before));
                log.add(before, token);
            }
            Command::Close(stream) => {
                if let Some(mut log) = self.open.remove(&stream) {
                    self.bytes += log.write();
                }
            }
            Command::Forget(stream) => self.finished.push_back((Instant::now(), stream)),
        }
    }

    /// Removes files that are too old, and the oldest ones when they are too large together.
    fn sweep(&mut self) {
        self.swept = Instant::now();
        self.open.retain(|_, log| log.used.elapsed() < SWEEP_TIME);
        let mut files = self.files();
        files.sort_by_key(|file| file.modified);
        self.bytes = files.iter().map(|file| file.bytes).sum();
        // Some room is made at once, so that not every token scans the folder.
        let is_full = self.bytes > self.options.bytes;
        let limit = if is_full { self.options.bytes - self.options.bytes / 8 } else { self.options.bytes };
        for Stored { stream, path, bytes, modified } in files {
            // A file from the future counts as new.
            let age = modified.elapsed().unwrap_or_default();
            if (self.bytes > limit || age > self.options.age) && fs::remove_file(path).is_ok() {
                self.open.remove(stream.as_str());
                self.bytes -= bytes;
            }
        }
    }

    /// The files of the log; others in its folder are ignored.
    fn files(&self) -> Vec<Stored> {
        let entries = fs::read_dir(&self.options.folder).into_iter().flatten().flatten();
        let stored = |entry: fs::DirEntry| {
            let name = entry.file_name().into_string().ok()?;
            let stream = name.strip_suffix(".tokens")?;
            let is_ours = stream.len() == 32 && stream.bytes().all(|byte| byte.is_ascii_hexdigit());
            let metadata = entry.metadata().ok().filter(|metadata| is_ours && metadata.is_file())?;
            let (stream, path) = (stream.to_owned(), entry.path());
            Some(Stored { stream, path, bytes: metadata.len(), modified: metadata.modified().ok()? })
        };
        entries.filter_map(stored).collect()
    }
}

struct Stored {
    stream: String,
    path: PathBuf,
    bytes: u64,
    modified: SystemTime,
}

impl Log {
    /// Continues after the last complete record of a stream's file. Without its beginning a stream is useless.
    fn open(options: &ResumeLogOptions, stream: &Arc<str>, before: usize) -> Log {
        let now = Instant::now();
        let Found { tokens, bytes } = read(&options.folder, stream);
        let mut log = Log {
            stream: Arc::clone(stream),
            file: None,
            bytes,
            written: tokens.len(),
            pending: Vec::new(),
            unsynced: 0,
            unsynced_since: now,
            used: now,
        };
        let open = || -> io::Result<File> {
            let mut file = os::private_file().create(true).truncate(false).open(path(&options.folder, stream))?;
            file.set_len(bytes)?;
            file.seek(SeekFrom::Start(bytes))?;
            if bytes == 0 {
                // Where a folder cannot be opened, its entries are safe without.
                let _ = File::open(&options.folder).and_then(|folder| folder.sync_all());
            }
            Ok(file)
        };
        if before <= tokens.len() {
            match open() {
                Ok(file) => log.file = Some(file),
                Err(problem) => log.end(&problem),
            }
        }
        log
    }

    /// Adds a token that is not there yet.
    fn add(&mut self, before: usize, token: u32) {
        self.used = Instant::now();
        let known = self.written + self.pending.len();
        if before == known {
            self.pending.push(token);
        } else if before > known {
            self.file = None;
        }
    }

    /// Writes what was added; returns the bytes of it.
    fn write(&mut self) -> u64 {
        let pending = std::mem::take(&mut self.pending);
        let Some(file) = self.file.as_mut().filter(|_| !pending.is_empty()) else { return 0 };
        let record = record::encode(&self.stream, self.written, &pending);
        let length = self.bytes + record.len() as u64;
        let wrote = match length > FILE_BYTES {
            true => Err(io::Error::other("the file has reached its size limit")),
            false => file.write_all(&record),
        };
        if let Err(problem) = wrote {
            self.end(&problem);
            return 0;
        }
        if self.unsynced == 0 {
            self.unsynced_since = self.used;
        }
        self.written += pending.len();
        self.unsynced += pending.len();
        self.bytes = length;
        record.len() as u64
    }

    /// Syncs what was written, if that is due.
    fn sync(&mut self) {
        let is_late = self.unsynced > 0 && self.unsynced_since.elapsed() >= SYNC_TIME;
        let Some(file) = self.file.as_ref().filter(|_| is_late || self.unsynced >= SYNC_TOKENS) else { return };
        match file.sync_data() {
            Ok(()) => self.unsynced = 0,
            Err(problem) => self.end(&problem),
        }
    }

    /// Stops logging the stream; the answer itself continues.
    fn end(&mut self, problem: &io::Error) {
        tracing::warn!(%problem, "cannot log a stream any further");
        self.file = None;
        self.unsynced = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(stream: &str, before: usize) -> Command {
        Command::Token { stream: stream.into(), before, token: 7 }
    }

    fn write(writer: &mut Writer, stream: &str, tokens: std::ops::Range<usize>) {
        tokens.for_each(|before| writer.apply(token(stream, before)));
        writer.write();
    }

    #[test]
    fn a_log_keeps_to_its_limits() {
        let folder = tempfile::tempdir().unwrap();
        let options = ResumeLogOptions { bytes: 1000, ..ResumeLogOptions::new(folder.path().to_owned()) };
        let mut writer = Writer::new(options.clone());
        let names = [1, 2, 3].map(|number| format!("{number:032}"));
        let has = || [0, 1, 2].map(|number| path(folder.path(), &names[number]).exists());
        let other = folder.path().join("notes.tokens");
        fs::write(&other, [0; 2000]).unwrap();
        for (name, seconds) in names.iter().zip([300, 200, 100]) {
            write(&mut writer, name, 0..90);
            let file = File::options().write(true).open(path(folder.path(), name)).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(seconds)).unwrap();
        }
        assert_eq!(has(), [false, true, true], "the oldest is removed to make room");
        write(&mut writer, &names[0], 90..91);
        assert_eq!(has(), [false, true, true], "a stream without its beginning is not written");
        writer.options.age = Duration::from_secs(150);
        writer.sweep();
        assert_eq!((has(), other.exists()), ([false, false, true], true), "other files in the folder stay");
        writer.apply(Command::Forget(names[2].as_str().into()));
        writer.write();
        assert_eq!(has(), [false, false, true], "its client may not have the end");
        writer.options.linger = Duration::ZERO;
        writer.write();
        assert_eq!(has(), [false; 3]);
    }

    #[test]
    fn a_file_continues_after_its_last_complete_record() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = Writer::new(ResumeLogOptions::new(folder.path().to_owned()));
        let (name, tokens) = (format!("{:032}", 7), |name: &str| read(folder.path(), name).tokens.len());
        write(&mut writer, &name, 0..5);
        write(&mut writer, &name, 3..8);
        assert_eq!(tokens(&name), 8, "two connections of one stream write it once");
        writer.apply(Command::Close(name.as_str().into()));
        let file = File::options().write(true).open(path(folder.path(), &name)).unwrap();
        file.set_len(file.metadata().unwrap().len() - 1).unwrap();
        assert_eq!(tokens(&name), 5);
        write(&mut writer, &name, 5..9);
        assert_eq!(tokens(&name), 9, "an incomplete record is overwritten");
        write(&mut writer, &name, 12..13);
        write(&mut writer, &name, 9..10);
        assert_eq!(tokens(&name), 9, "nothing is written after a gap");
    }
}
