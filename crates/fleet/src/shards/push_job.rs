//! Sends shards to several workers at the same time.

use std::panic::resume_unwind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::event::FleetEvent;
use crate::{
    Arrival, Arrivals, Entry, FleetError, FleetHome, HERE, Manifest, Shard, SignedShard, Verb, WorkerRegistry,
};

/// Which worker gets which shard.
pub struct PushJob<'a> {
    /// The folder of the export.
    pub folder: &'a Path,
    /// Workers and their shards.
    pub targets: &'a [(&'a str, &'a Shard)],
    /// How long to wait for each of them to connect.
    pub patience: Duration,
}

impl PushJob<'_> {
    /// Sends all at the same time. Each push is audited first, and one that fails does not keep the others from theirs.
    /// Progress goes to the home's events, what the workers answer to `say`.
    pub fn send(
        &self,
        registry: &WorkerRegistry,
        home: &FleetHome,
        say: &(dyn Fn(&str) + Sync),
    ) -> Result<(), FleetError> {
        let PushJob { folder, targets, patience } = *self;
        let done: Vec<AtomicU64> = targets.iter().map(|_| AtomicU64::new(0)).collect();
        let total = targets.iter().map(|(_, shard)| shard.bytes).sum();
        let (log, signed) = (home.audit_log(), home.sign_manifest(&Manifest::read(folder)?)?);
        let send = |((node, shard), own): (&(&str, &Shard), &AtomicU64)| {
            let progress = |bytes| {
                own.store(bytes, Ordering::Relaxed);
                let done = done.iter().map(|done| done.load(Ordering::Relaxed)).sum();
                home.notify(FleetEvent::SendingShards { done, total });
            };
            let nodes = vec![(*node).to_owned()];
            let entry = Entry { digest: Some(shard.digest), nodes, ..Entry::admin(Verb::Push) };
            let shard = SignedShard { folder, shard, signed: &signed };
            log.acting(entry, || registry.send(node, shard, patience, (progress, say)))
        };
        let problems: Vec<String> = thread::scope(|scope| {
            let send = &send;
            let sent: Vec<_> = targets.iter().zip(&done).map(|target| scope.spawn(move || send(target))).collect();
            let ended = sent.into_iter().map(|sent| sent.join().unwrap_or_else(|panic| resume_unwind(panic)));
            ended.filter_map(Result::err).map(|error| error.to_string()).collect()
        });
        match problems.is_empty() {
            true => Ok(()),
            false => Err(FleetError::PushFailed { problem: problems.join("\n") }),
        }
    }
}

/// The targets on other machines, with their shards.
pub fn remote_targets<'a>(
    targets: &'a [(String, usize)],
    manifest: &'a Manifest,
) -> Result<Vec<(&'a str, &'a Shard)>, FleetError> {
    let target = |(node, stage): &'a (String, usize)| match manifest.stages.get(*stage) {
        Some(shard) => Ok((node.as_str(), shard)),
        None => Err(FleetError::PushFailed { problem: format!("there is no stage {stage} in this export") }),
    };
    targets.iter().filter(|(node, _)| node != HERE).map(target).collect()
}

/// A registry in which workers that connect wait for shards, for as long as the process runs.
pub fn receive_workers(arrivals: Arrivals) -> Arc<WorkerRegistry> {
    let registry = Arc::new(WorkerRegistry::default());
    let receiving = Arc::clone(&registry);
    thread::spawn(move || {
        for arrival in arrivals {
            if let Arrival::Member { node, link } = arrival {
                let receiving = Arc::clone(&receiving);
                // One that cannot wait here connects again.
                thread::spawn(move || drop(receiving.admit(link, &node)));
            }
        }
    });
    registry
}
