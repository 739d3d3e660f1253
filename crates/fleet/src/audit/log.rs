//! The files of the audit log: lines are added at the end, and are on the disk before anyone continues.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::record::{Decision, Entry, MOST_LINE, Position, Record, Verb};
use crate::json_file::sync_folder;
use crate::{Clock, Digest, FleetError};

/// How the first line of a file begins.
const HEADER: &str = "cascadia-audit-1";
/// What the record says after which old ones are gone.
const UP_TO: &str = "records up to ";

/// How much of a log is kept.
#[derive(Clone, Copy, Debug)]
pub struct LogLimits {
    /// Bytes after which a new file begins.
    pub file_bytes: u64,
    /// Files; when there are more, the oldest is removed, and a record says so.
    pub files: usize,
}

impl Default for LogLimits {
    fn default() -> LogLimits {
        LogLimits { file_bytes: 8 << 20, files: 64 }
    }
}

/// A log in a folder. Several processes may add to it.
#[derive(Clone, Debug)]
pub struct AuditLog {
    folder: PathBuf,
    limits: LogLimits,
    clock: Clock,
}

impl AuditLog {
    /// The log in a folder, which is made with the first record.
    pub fn at(folder: &Path) -> AuditLog {
        AuditLog { folder: folder.to_owned(), limits: LogLimits::default(), clock: Clock::default() }
    }

    /// The same with other limits.
    pub fn with_limits(self, limits: LogLimits) -> AuditLog {
        AuditLog { limits, ..self }
    }

    /// The same with the times of another clock than the system's.
    pub fn on_clock(self, clock: &Clock) -> AuditLog {
        AuditLog { clock: clock.clone(), ..self }
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    pub(crate) fn limits(&self) -> LogLimits {
        self.limits
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Adds a record. When this returns without an error it is on the disk: whoever does something that must be
    /// recorded does it after that, or not at all.
    pub fn append(&self, entry: Entry) -> Result<Position, FleetError> {
        let _alone = self.lock()?;
        let mut end = self.end()?;
        if end.length >= self.limits.file_bytes {
            end = self.begin(end.position)?;
            end.add(entry, self.clock.unix_seconds())?;
            self.forget(&mut end)?;
        } else {
            end.add(entry, self.clock.unix_seconds())?;
        }
        Ok(end.position)
    }

    /// Does something that must be recorded: not before the record is on the disk, and a failure is recorded too.
    pub fn acting<T, E: From<FleetError>>(&self, entry: Entry, act: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        self.append(entry.clone())?;
        act().inspect_err(|_| {
            // What failed is the answer; that it could not be recorded as failed changes nothing about it.
            let _ = self.append(Entry { decision: Decision::Failed, ..entry });
        })
    }

    /// How far the log goes; what a crash left at its end is cut off.
    pub fn position(&self) -> Result<Position, FleetError> {
        match self.files()?.is_empty() {
            true => Ok(Position::START),
            false => {
                let _alone = self.lock()?;
                self.end().map(|end| end.position)
            }
        }
    }

    /// The files from the oldest to the newest.
    pub(crate) fn files(&self) -> Result<Vec<PathBuf>, FleetError> {
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(FleetError::io("list", &self.folder)(error)),
        };
        let paths = entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<_>, _>>();
        let mut paths = paths.map_err(FleetError::io("list", &self.folder))?;
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "log"));
        paths.sort();
        Ok(paths)
    }

    fn lock(&self) -> Result<File, FleetError> {
        fs::create_dir_all(&self.folder).map_err(FleetError::io("make the folder", &self.folder))?;
        let path = self.folder.join("lock");
        let file = File::create(&path).map_err(FleetError::io("write", &path))?;
        file.lock().map_err(FleetError::io("lock", &path))?;
        Ok(file)
    }

    /// The end of the newest file.
    fn end(&self) -> Result<LogEnd, FleetError> {
        let Some(path) = self.files()?.pop() else { return self.begin(Position::START) };
        let (mut end, torn) = LogEnd::find(&path)?;
        if torn > 0 {
            end.file.set_len(end.length).map_err(FleetError::io("write", &path))?;
            let mut entry = Entry::new("coordinator", Verb::Recover, Decision::Noted);
            entry.note = format!("{torn} bytes of a record that was never finished are cut off");
            end.add(entry, self.clock.unix_seconds())?;
        }
        Ok(end)
    }

    /// Begins a file for the records after `position`; it is there with its first line or not at all.
    fn begin(&self, position: Position) -> Result<LogEnd, FleetError> {
        let path = self.folder.join(format!("{:020}.log", position.count));
        let header = header(position);
        let written = tempfile::NamedTempFile::new_in(&self.folder).and_then(|mut file| {
            file.write_all(header.as_bytes())?;
            file.as_file().sync_all()?;
            file.persist_noclobber(&path).map_err(|error| error.error)
        });
        let file = written.map_err(FleetError::io("begin", &path))?;
        sync_folder(&self.folder);
        Ok(LogEnd { path, file, length: header.len() as u64, position })
    }

    /// Removes the oldest files when there are too many.
    fn forget(&self, end: &mut LogEnd) -> Result<(), FleetError> {
        let files = self.files()?;
        let excess = files.len().saturating_sub(self.limits.files.max(1));
        let Some(kept) = files.get(excess).filter(|_| excess > 0) else { return Ok(()) };
        let first = read_header(kept)?.count;
        let mut entry = Entry::new("coordinator", Verb::Forget, Decision::Noted);
        entry.note = format!("{UP_TO}{first}");
        end.add(entry, self.clock.unix_seconds())?;
        files[..excess].iter().try_for_each(|path| fs::remove_file(path).map_err(FleetError::io("remove", path)))
    }
}

/// Up to which record this one says that they are gone.
pub(crate) fn forgotten(entry: &Entry) -> Option<u64> {
    let asked = entry.verb == Verb::Forget;
    entry.note.strip_prefix(UP_TO).filter(|_| asked)?.parse().ok()
}

fn header(position: Position) -> String {
    format!("{HEADER} {} {}\n", position.count, position.hash)
}

/// Where the log was when a file began.
pub(crate) fn parse_header(line: &str) -> Option<Position> {
    let (count, hash) = line.strip_prefix(HEADER)?.strip_prefix(' ')?.split_once(' ')?;
    let position = Position { count: count.parse().ok()?, hash: hash.parse::<Digest>().ok()? };
    (header(position).trim_end() == line).then_some(position)
}

fn read_header(path: &Path) -> Result<Position, FleetError> {
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(FleetError::io("open", path))?;
    file.take(MOST_LINE as u64).read_to_end(&mut bytes).map_err(FleetError::io("read", path))?;
    let text = String::from_utf8_lossy(&bytes);
    text.split('\n').next().and_then(parse_header).ok_or_else(|| broken(path))
}

fn broken(path: &Path) -> FleetError {
    FleetError::file(path, "it is no audit log, or was changed; look with `cascadia audit verify`")
}

/// Where the next record goes.
struct LogEnd {
    path: PathBuf,
    file: File,
    length: u64,
    position: Position,
}

impl LogEnd {
    /// The end of a file, and how many bytes of an unfinished line come after it.
    fn find(path: &Path) -> Result<(LogEnd, u64), FleetError> {
        let mut file = OpenOptions::new().read(true).write(true).open(path).map_err(FleetError::io("open", path))?;
        let read = file.metadata().and_then(|metadata| {
            // The last whole line and an unfinished one are in there.
            let begin = metadata.len().saturating_sub(2 * MOST_LINE as u64);
            let mut bytes = Vec::new();
            file.seek(SeekFrom::Start(begin))?;
            file.read_to_end(&mut bytes)?;
            Ok((begin, bytes))
        });
        let (begin, bytes) = read.map_err(FleetError::io("read", path))?;
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').ok_or_else(|| broken(path))?;
        let line = bytes[..whole].rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
        let line = std::str::from_utf8(line).map_err(|_| broken(path))?;
        let record = || Record::parse(line).ok().map(|(hash, record)| Position { count: record.count, hash });
        let position = parse_header(line).or_else(record).ok_or_else(|| broken(path))?;
        let torn = (bytes.len() - whole - 1) as u64;
        Ok((LogEnd { path: path.to_owned(), file, length: begin + whole as u64 + 1, position }, torn))
    }

    fn add(&mut self, entry: Entry, time: u64) -> Result<(), FleetError> {
        let next = Record::after(self.position, time, entry);
        let (line, _, position) = next.ok_or_else(|| FleetError::file(&self.path, "no more records fit"))?;
        let written = self.file.seek(SeekFrom::Start(self.length)).and_then(|_| {
            self.file.write_all(line.as_bytes())?;
            self.file.sync_all()
        });
        if let Err(error) = written {
            // A record that nobody counts on; if it cannot be taken back, the next process does that.
            let _ = self.file.set_len(self.length);
            return Err(FleetError::io("record what is done in", &self.path)(error));
        }
        self.length += line.len() as u64;
        self.position = position;
        Ok(())
    }
}
