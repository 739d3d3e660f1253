//! A log of the tokens of streams, so that one that goes on after the server was killed is not drawn again.
//!
//! It is a help and never a need: what cannot be written is not there, and what is not there is drawn again, see
//! [`crate::resume`]. Nobody waits for the disk but one thread.

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
use self::writer::{Order, Writer};
use crate::error::ServerError;
use crate::os;

/// Orders that may wait for the disk; a stream whose token finds no room is not written down any further.
const WAITING: usize = 8192;
/// The most bytes of one file; more tokens than fit are not written down.
const FILE_BYTES: u64 = 4 << 20;

/// Where tokens of streams are kept, and how much of them.
#[derive(Clone, Debug)]
pub struct ResumeLogOptions {
    /// A folder that only this server uses.
    pub folder: PathBuf,
    /// Bytes of all files; the oldest go first.
    pub bytes: u64,
    /// How long a stream that broke off may be waited for.
    pub age: Duration,
    /// The same for one that was told to its end: its client may have lost that on the way.
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
    orders: SyncSender<Order>,
}

/// What the log has of one stream.
#[derive(Clone)]
pub(crate) struct StreamLog {
    log: ResumeLog,
    name: Arc<str>,
}

/// Writes down the tokens of a stream that runs.
pub(crate) struct Recorder {
    stream: StreamLog,
    /// Tokens so far.
    tokens: usize,
    ended: bool,
}

impl ResumeLog {
    /// Makes the folder if need be, and starts the thread that writes.
    pub(crate) fn start(options: ResumeLogOptions) -> Result<ResumeLog, ServerError> {
        let folder: Arc<Path> = options.folder.as_path().into();
        let unusable = |error: io::Error| ServerError::File {
            what: "the folder of the resume log",
            path: options.folder.clone(),
            problem: format!("{error}; give a folder that can be written with --resume-log, or leave it out"),
        };
        os::private_folder(&folder).map_err(unusable)?;
        let (orders, received) = sync_channel(WAITING);
        let writer = Writer::new(options);
        std::thread::Builder::new().name("cascadia-resume-log".to_owned()).spawn(move || writer.run(&received))?;
        Ok(ResumeLog { folder, orders })
    }

    /// What it has of the stream with this name.
    pub(crate) fn stream(&self, name: &str) -> StreamLog {
        StreamLog { log: self.clone(), name: name.into() }
    }
}

impl StreamLog {
    /// The tokens that are known of it; none where nothing can be read.
    pub(crate) fn read(&self) -> Vec<u32> {
        read(&self.log.folder, &self.name).tokens
    }

    /// Who writes down its tokens.
    pub(crate) fn recorder(&self) -> Recorder {
        Recorder { stream: self.clone(), tokens: 0, ended: false }
    }

    /// Forgets it soon, because all of it was told. If there is no room for that, age will.
    pub(crate) fn forget(&self) {
        let _ = self.log.orders.try_send(Order::Forget(Arc::clone(&self.name)));
    }
}

impl Recorder {
    /// A sink that writes tokens down before it passes them on.
    pub(crate) fn before(mut self, mut sink: JobSink) -> JobSink {
        Box::new(move |update| {
            self.hear(&update);
            sink(update)
        })
    }

    fn hear(&mut self, update: &Update) {
        match update {
            Update::Started { known, .. } => self.tokens = known.len(),
            Update::Token(token) if !self.ended => {
                let (stream, before) = (Arc::clone(&self.stream.name), self.tokens);
                let order = Order::Token { stream, before, token: token.token };
                self.ended = self.stream.log.orders.try_send(order).is_err();
                self.tokens += 1;
            }
            _ => {}
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        // If there is no room for that, the writer closes what nothing was added to for long.
        let _ = self.stream.log.orders.try_send(Order::Close(Arc::clone(&self.stream.name)));
    }
}

fn path(folder: &Path, stream: &str) -> PathBuf {
    folder.join(format!("{stream}.tokens"))
}

/// What the file of a stream holds; nothing where it cannot be read.
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
    fn a_disk_that_is_too_slow_ends_the_log_and_no_answer() {
        let (orders, received) = sync_channel(2);
        let log = ResumeLog { folder: Path::new("nowhere").into(), orders };
        let told = Arc::new(AtomicUsize::new(0));
        let counting = Arc::clone(&told);
        let mut sink = log.stream("one").recorder().before(Box::new(move |_| {
            counting.fetch_add(1, Ordering::Relaxed);
            Flow::Continue
        }));
        let mut tell = |token| sink(Update::Token(NewToken { token, text: String::new(), logprobs: None }));
        assert!((10..14).all(|token| tell(token) == Flow::Continue));
        let written = || -> Vec<(usize, u32)> {
            let tokens = received.try_iter().filter_map(|order| match order {
                Order::Token { before, token, .. } => Some((before, token)),
                Order::Close(_) | Order::Forget(_) => None,
            });
            tokens.collect()
        };
        assert_eq!(written(), [(0, 10), (1, 11)]);
        // There is room again, but what is missing stays missing.
        assert_eq!(tell(14), Flow::Continue);
        assert_eq!((written(), told.load(Ordering::Relaxed)), (Vec::new(), 5));
    }
}
