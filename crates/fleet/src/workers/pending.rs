//! A worker that has connected and has no assignment yet: who it is, and how fast the link to it is.

use std::time::Duration;

use crate::wire::frame::{Bounds, Frame, Kind, Outgoing, Wait, receive};
use crate::wire::link::{Link, LinkError};
use crate::wire::message::{Hello, MOST_MESSAGE, Writer};
use crate::wire::verbs::Expecting;
use crate::workers::machine::{LinkSpeed, MachineSpeed};

/// Bytes of a message that shows how fast a link is: a fiftieth of a second at 100 Mbit/s.
pub(crate) const PROBE: u32 = 256 << 10;
/// How often each is sent; the quickest counts.
const PROBES: u32 = 3;
/// How long a worker may take to say who it is.
const GREETING: Duration = Duration::from_secs(5);
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// A worker that waits for what the coordinator wants.
pub struct PendingWorker {
    /// Its name.
    pub node: String,
    /// What it says of itself.
    pub hello: Hello,
    pub(crate) link: Box<dyn Link>,
}

impl PendingWorker {
    /// Hears what a worker that has connected says of itself. Nothing is sent before it has.
    pub fn hear(mut link: Box<dyn Link>, node: &str) -> Result<PendingWorker, LinkError> {
        let mut frame = Frame::default();
        receive(&mut *link, &Bounds::table(Expecting::Greeting, MOST_MESSAGE), &mut frame, Wait::For(GREETING))?;
        let hello = Hello::parse(frame.table())?;
        Ok(PendingWorker { node: node.to_owned(), hello, link })
    }

    /// Asks what the machine has measured of itself, and measures the link to it.
    pub fn measure(&mut self) -> Result<(MachineSpeed, LinkSpeed), LinkError> {
        let (speed, short) = self.quickest(&[])?;
        let (_, long) = self.quickest(&vec![0; PROBE as usize])?;
        let transfer = long.saturating_sub(short).as_secs_f64().max(1e-6);
        let link = LinkSpeed {
            round_trip_microseconds: short.as_micros() as u64,
            bytes_per_second: (f64::from(PROBE) / transfer) as u64,
        };
        Ok((speed, link))
    }

    /// Sends it away with a reason; it will connect again.
    pub fn send_away(mut self, reason: &str) {
        let message = Writer::default().text(reason).0;
        // If it hears nothing, it finds the link closed.
        let _ = Outgoing::message(Kind::Refused, &message).send(&mut *self.link, &mut Vec::new());
    }

    /// Whether it answers in time.
    pub(crate) fn is_alive(&mut self, patience: Duration) -> bool {
        self.ask(&[], patience).is_ok()
    }

    /// What it answers to a message, and the least time that takes.
    fn quickest(&mut self, message: &[u8]) -> Result<(MachineSpeed, Duration), LinkError> {
        let (mut speed, mut least) = (MachineSpeed::default(), PATIENCE);
        for _ in 0..PROBES {
            let begin = self.link.clock().now();
            speed = self.ask(message, PATIENCE)?;
            least = least.min(self.link.clock().since(begin));
        }
        Ok((speed, least))
    }

    fn ask(&mut self, message: &[u8], patience: Duration) -> Result<MachineSpeed, LinkError> {
        let (mut frame, bounds) = (Frame::default(), Bounds::table(Expecting::Measure, MOST_MESSAGE));
        Outgoing::message(Kind::Ping, message).send(&mut *self.link, &mut Vec::new())?;
        receive(&mut *self.link, &bounds, &mut frame, Wait::For(patience))?;
        MachineSpeed::parse(frame.table())
    }
}
