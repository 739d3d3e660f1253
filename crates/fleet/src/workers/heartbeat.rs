//! Signs of life of a busy worker: while it computes, and while a large step is still arriving.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::wire::frame::{Kind, Outgoing};
use crate::wire::link::{Link, LinkError};

/// The time between two signs of life; whoever waits for them is more patient than that.
const BEAT: Duration = Duration::from_millis(50);

/// A link whose peer hears something in about every [`BEAT`] while there is something to do.
pub(crate) struct Heartbeat<'a> {
    link: &'a mut dyn Link,
    epoch: u32,
    /// When something was sent last.
    sent: Instant,
}

impl Heartbeat<'_> {
    /// A link of this epoch.
    pub(crate) fn new(link: &mut dyn Link, epoch: u32) -> Mutex<Heartbeat<'_>> {
        Mutex::new(Heartbeat { link, epoch, sent: Instant::now() })
    }

    /// Gives a sign of life unless something was sent just now.
    fn beat(&mut self) -> Result<(), LinkError> {
        if self.sent.elapsed() < BEAT / 2 {
            return Ok(());
        }
        let beat = Outgoing { epoch: self.epoch, ..Outgoing::message(Kind::Beat, &[]) };
        beat.send(self, &mut Vec::new()).map(|_| ())
    }
}

/// The link for as long as something is read or sent. Whoever computes leaves it to the signs of life meanwhile.
pub(crate) fn hold<'a, 'b>(link: &'a Mutex<Heartbeat<'b>>) -> MutexGuard<'a, Heartbeat<'b>> {
    link.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Gives signs of life whenever nobody holds the link, until the other end of `ended` is gone.
pub(crate) fn keep_alive(link: &Mutex<Heartbeat<'_>>, ended: &Receiver<()>) {
    while ended.recv_timeout(BEAT) == Err(RecvTimeoutError::Timeout) {
        // A link that fails here fails for whoever computes, too.
        if link.try_lock().is_ok_and(|mut link| link.beat().is_err()) {
            return;
        }
    }
}

impl Link for Heartbeat<'_> {
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
