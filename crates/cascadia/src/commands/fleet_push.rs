//! Sends shards to several machines at the same time.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::bail;
use cascadia_fleet::{Arrival, Entry, FleetError, Shard, Verb, push};

use crate::fleet_home::FleetHome;
use crate::output::remark;
use crate::progress::Progress;

/// How often a machine is tried: a connection may have ended before anything was sent on it.
const ATTEMPTS: u32 = 3;

/// How often it is looked whether a machine has got all of its shard.
const GLANCE: Duration = Duration::from_millis(50);

/// Sends shards to machines as they connect, all at the same time, and waits no longer than `patience` for the next that
/// should. One that fails does not keep the others from theirs.
pub(crate) fn send_shards(
    home: &FleetHome,
    arrivals: &Receiver<Arrival>,
    (folder, targets): (&Path, Vec<(String, &Shard)>),
    patience: Duration,
) -> anyhow::Result<()> {
    let target = |(node, shard)| Target { node, shard, state: State::Waiting, failures: 0 };
    let mut targets: Vec<Target<'_>> = targets.into_iter().map(target).collect();
    let done: Vec<AtomicU64> = targets.iter().map(|_| AtomicU64::new(0)).collect();
    let total = targets.iter().map(|target| target.shard.bytes).sum();
    let (bar, (sender, ends)) = (Progress::bytes("shards"), channel());
    thread::scope(|scope| {
        let mut deadline = Instant::now() + patience;
        while targets.iter().any(|target| target.state == State::Sending)
            || (Instant::now() < deadline && targets.iter().any(|target| target.state == State::Waiting))
        {
            if let Ok(Arrival::Member { node, mut link }) = arrivals.recv_timeout(GLANCE)
                && let Some(at) = take(&mut targets, &node)
            {
                let (shard, sender, done, bar) = (targets[at].shard, sender.clone(), &done, &bar);
                let entry = Entry { digest: Some(shard.digest), nodes: vec![node.clone()], ..Entry::admin(Verb::Push) };
                scope.spawn(move || {
                    let progress = |bytes| {
                        done[at].store(bytes, Ordering::Relaxed);
                        bar.set(done.iter().map(|done| done.load(Ordering::Relaxed)).sum(), total);
                    };
                    let ended = home.audit_log().acting(entry, || push(&mut *link, &node, (folder, shard), progress));
                    drop(sender.send((at, ended)));
                });
            }
            for (at, ended) in ends.try_iter() {
                targets[at].end(ended);
                deadline = Instant::now() + patience;
            }
        }
    });
    drop(bar);
    let problems: Vec<String> = targets.into_iter().filter_map(Target::problem).collect();
    match problems.is_empty() {
        true => Ok(()),
        false => bail!("{}", problems.join("\n")),
    }
}

/// A machine and what it should have.
struct Target<'a> {
    node: String,
    shard: &'a Shard,
    state: State,
    failures: u32,
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    Waiting,
    Sending,
    Done,
    Failed(String),
}

/// The target for a machine that has connected, which is being sent to from now on.
fn take(targets: &mut [Target<'_>], node: &str) -> Option<usize> {
    let at = targets.iter().position(|target| target.node == node && target.state == State::Waiting)?;
    targets[at].state = State::Sending;
    Some(at)
}

impl Target<'_> {
    fn end(&mut self, ended: Result<(), FleetError>) {
        self.failures += u32::from(ended.is_err());
        self.state = match ended {
            Ok(()) => {
                remark(&format!("{} holds {} ({})", self.node, self.shard.file, self.shard.digest.short()));
                State::Done
            }
            Err(error) if self.failures >= ATTEMPTS => State::Failed(error.to_string()),
            Err(error) => {
                remark(&format!("{error}; it is tried again when the machine connects"));
                State::Waiting
            }
        };
    }

    /// Why it does not have its shard.
    fn problem(self) -> Option<String> {
        match self.state {
            State::Done => None,
            State::Failed(problem) => Some(problem),
            State::Waiting | State::Sending => {
                Some(format!("{} did not connect in time; is `cascadia worker start` running there?", self.node))
            }
        }
    }
}
