//! Sends shards to several machines at the same time.

use std::panic::resume_unwind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::Duration;

use anyhow::bail;
use cascadia_fleet::{Arrival, AuditLog, Entry, Shard, Verb, WorkerRegistry};

use crate::progress::Progress;

/// What is sent to whom.
pub(crate) struct Shipment<'a> {
    /// The folder of the export.
    pub(crate) folder: &'a Path,
    /// Machines and their shards.
    pub(crate) targets: &'a [(&'a str, &'a Shard)],
    /// How long to wait for each of them to connect.
    pub(crate) patience: Duration,
}

/// Lets machines that come wait for shards, as long as the program runs.
pub(crate) fn registry(arrivals: Receiver<Arrival>) -> Arc<WorkerRegistry> {
    let registry = Arc::new(WorkerRegistry::default());
    let port = Arc::clone(&registry);
    thread::spawn(move || {
        for arrival in arrivals {
            if let Arrival::Member { node, link } = arrival {
                let port = Arc::clone(&port);
                // Who cannot wait here comes again.
                thread::spawn(move || drop(port.admit(link, &node)));
            }
        }
    });
    registry
}

impl Shipment<'_> {
    /// Sends all at the same time. Each is written down first, and one that fails does not keep the others from theirs.
    pub(crate) fn send(
        &self,
        registry: &WorkerRegistry,
        log: &AuditLog,
        say: &(dyn Fn(&str) + Sync),
    ) -> anyhow::Result<()> {
        let Shipment { folder, targets, patience } = *self;
        let done: Vec<AtomicU64> = targets.iter().map(|_| AtomicU64::new(0)).collect();
        let total = targets.iter().map(|(_, shard)| shard.bytes).sum();
        let bar = Progress::bytes("shards");
        let send = |((node, shard), own): (&(&str, &Shard), &AtomicU64)| {
            let progress = |bytes| {
                own.store(bytes, Ordering::Relaxed);
                bar.set(done.iter().map(|done| done.load(Ordering::Relaxed)).sum(), total);
            };
            let nodes = vec![(*node).to_owned()];
            let entry = Entry { digest: Some(shard.digest), nodes, ..Entry::admin(Verb::Push) };
            log.acting(entry, || registry.send(node, (folder, shard), patience, (progress, say)))
        };
        let problems: Vec<String> = thread::scope(|scope| {
            let send = &send;
            let sent: Vec<_> = targets.iter().zip(&done).map(|target| scope.spawn(move || send(target))).collect();
            let ended = sent.into_iter().map(|sent| sent.join().unwrap_or_else(|panic| resume_unwind(panic)));
            ended.filter_map(Result::err).map(|error| error.to_string()).collect()
        });
        match problems.is_empty() {
            true => Ok(()),
            false => bail!("{}", problems.join("\n")),
        }
    }
}
