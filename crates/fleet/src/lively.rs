//! Signs of life of a busy worker: while it computes, and while a large step is still arriving.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use crate::frame::{Kind, Outgoing};
use crate::link::{Link, LinkError};

/// The time between two signs of life; whoever waits for them is more patient than that.
const BEAT: Duration = Duration::from_millis(50);

/// A link whose peer hears something in every [`BEAT`] while there is something to do.
pub(crate) struct Lively<'a> {
    link: &'a mut dyn Link,
    epoch: u32,
    /// When something was sent last.
    sent: Instant,
}

impl Lively<'_> {
    /// A link of this epoch.
    pub(crate) fn new(link: &mut dyn Link, epoch: u32) -> Lively<'_> {
        Lively { link, epoch, sent: Instant::now() }
    }

    /// Waits for a result; nothing if nobody computes it any more.
    pub(crate) fn wait_for<T>(&mut self, results: &Receiver<T>) -> Result<Option<T>, LinkError> {
        loop {
            match results.recv_timeout(BEAT.saturating_sub(self.sent.elapsed())) {
                Ok(result) => return Ok(Some(result)),
                Err(RecvTimeoutError::Timeout) => self.beat()?,
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
            }
        }
    }

    fn beat(&mut self) -> Result<(), LinkError> {
        let beat = Outgoing { epoch: self.epoch, ..Outgoing::message(Kind::Pong, &[]) };
        beat.send(self, &mut Vec::new()).map(|_| ())
    }
}

impl Link for Lively<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<(), LinkError> {
        self.sent = Instant::now();
        self.link.write(bytes)
    }

    fn read(&mut self, out: &mut [u8], deadline: Instant) -> Result<usize, LinkError> {
        let count = self.link.read(out, deadline)?;
        if self.sent.elapsed() >= BEAT {
            self.beat()?;
        }
        Ok(count)
    }
}
