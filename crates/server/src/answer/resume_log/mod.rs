//! A log of the tokens of streams, so that a stream resumed after the server was killed is not computed again.
//!
//! It is optional: tokens that cannot be written or read are computed again, see [`crate::answer::resume`]. Only one
//! thread waits for the disk.

mod record;
mod writer;

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use cascadia_engine::service::{JobSink, Update};

use self::record::Found;
use self::writer::{Command, Writer};
use crate::error::ServerError;
use crate::os;

/// Commands that may wait for the disk; a stream whose token finds no room is not logged any further.
const WAITING: usize = 8192;
/// The most bytes of one file; tokens that do not fit are not logged.
const FILE_BYTES: u64 = 4 << 20;

/// Where the tokens of streams are kept, and for how long.
#[derive(Clone, Debug)]
pub struct ResumeLogOptions {
    /// A folder that only this server uses.
    pub folder: PathBuf,
    /// Bytes of all files; the oldest go first.
    pub bytes: u64,
    /// How long a stream that broke off is kept.
    pub age: Duration,
    /// How long a stream that was sent completely is kept: its client may not have received the end.
    pub linger: Duration,
}

impl ResumeLogOptions {
    /// The usual limits.
    pub fn new(folder: PathBuf) -> ResumeLogOptions {
        let (age, linger) = (Duration::from_secs(60 * 60), Duration::from_secs(30));
        ResumeLogOptions { folder, bytes: 64 << 20, age, linger }
    }
}

/// The log of a server.
#[derive(Clone)]
pub(crate) struct ResumeLog {
    folder: Arc<Path>,
    commands: SyncSender<Command>,
}

/// The log of one stream.
#[derive(Clone)]
pub(crate) struct StreamLog {
    log: ResumeLog,
    id: Arc<str>,
}

/// Logs the tokens of a running stream.
pub(crate) struct Recorder {
    stream: StreamLog,
    /// Tokens so far.
    tokens: usize,
    ended: bool,
}

impl ResumeLog {
    /// Creates the folder if necessary, and starts the thread that writes.
    pub(crate) fn start(options: ResumeLogOptions) -> Result<ResumeLog, ServerError> {
        let folder: Arc<Path> = options.folder.as_path().into();
        let unusable = |error: io::Error| ServerError::File {
            what: "the resume log folder",
            path: options.folder.clone(),
            problem: format!("{error}; pass a writable folder with --resume-log, or leave it out"),
        };
        os::private_folder(&folder).map_err(unusable)?;
        let (commands, received) = sync_channel(WAITING);
        let writer = Writer::new(options);
        std::thread::Builder::new().name("cascadia-resume-log".to_owned()).spawn(move || writer.run(&received))?;
        Ok(ResumeLog { folder, commands })
    }

    /// The log of the stream with this id.
    pub(crate) fn stream(&self, id: &str) -> StreamLog {
        StreamLog { log: self.clone(), id: id.into() }
    }
}

impl StreamLog {
    /// Its tokens; none where nothing can be read.
    pub(crate) fn read(&self) -> Vec<u32> {
        read(&self.log.folder, &self.id).tokens
    }

    /// Logs more of its tokens.
    pub(crate) fn recorder(&self) -> Recorder {
        Recorder { stream: self.clone(), tokens: 0, ended: false }
    }

    /// Removes it soon, because it was sent completely. If there is no room for the command, its age will.
    pub(crate) fn forget(&self) {
        let _ = self.log.commands.try_send(Command::Forget(Arc::clone(&self.id)));
    }
}

impl Recorder {
    /// A sink that logs tokens before it passes them on.
    pub(crate) fn before(mut self, mut sink: JobSink) -> JobSink {
        Box::new(move |update| {
            self.record(&update);
            sink(update)
        })
    }

    fn record(&mut self, update: &Update) {
        match update {
            Update::Started { known, .. } => self.tokens = known.len(),
            Update::Token(token) if !self.ended => {
                let (stream, before) = (Arc::clone(&self.stream.id), self.tokens);
                let command = Command::Token { stream, before, token: token.token };
                self.ended = self.stream.log.commands.try_send(command).is_err();
                self.tokens += 1;
            }
            _ => {}
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        // If there is no room for the command, the writer closes files that are not appended to.
        let _ = self.stream.log.commands.try_send(Command::Close(Arc::clone(&self.stream.id)));
    }
}

fn path(folder: &Path, stream: &str) -> PathBuf {
    folder.join(format!("{stream}.tokens"))
}

/// The contents of the file of a stream; empty where it cannot be read.
fn read(folder: &Path, stream: &str) -> Found {
    let mut bytes = Vec::new();
    let file = File::open(path(folder, stream));
    match file.and_then(|file| file.take(FILE_BYTES).read_to_end(&mut bytes)) {
        Ok(_) => record::decode(stream, &bytes),
        Err(_) => Found::default(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use cascadia_engine::Flow;
    use cascadia_engine::service::NewToken;

    use super::*;

    #[test]
    fn a_disk_that_is_too_slow_ends_the_log_but_no_answer() {
        let (commands, received) = sync_channel(2);
        let log = ResumeLog { folder: Path::new("nowhere").into(), commands };
        let passed_on = Arc::new(AtomicUsize::new(0));
        let counting = Arc::clone(&passed_on);
        let mut sink = log.stream("one").recorder().before(Box::new(move |_| {
            counting.fetch_add(1, Ordering::Relaxed);
            Flow::Continue
        }));
        let mut send = |token| sink(Update::Token(NewToken { token, text: String::new(), logprobs: None }));
        assert!((10..14).all(|token| send(token) == Flow::Continue));
        let written = || -> Vec<(usize, u32)> {
            let tokens = received.try_iter().filter_map(|command| match command {
                Command::Token { before, token, .. } => Some((before, token)),
                Command::Close(_) | Command::Forget(_) => None,
            });
            tokens.collect()
        };
        assert_eq!(written(), [(0, 10), (1, 11)]);
        // There is room again, but the gap stays.
        assert_eq!(send(14), Flow::Continue);
        assert_eq!((written(), passed_on.load(Ordering::Relaxed)), (Vec::new(), 5));
    }
}
