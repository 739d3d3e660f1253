//! The workers of one stage: the first that came computes, the others are spares.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cascadia_model::StepPlan;

use crate::audit::{Auditor, Decision, Entry, KnownRequests, ServedModel, SignedHead, Verb};
use crate::clock::{Guard, Monitor};
use crate::failover::trust::{Dispute, Trust};
use crate::workers::worker_link::WorkerLink;
use crate::{Clock, Members, Quarantine, Sandbox};

/// Workers that may wait for one stage; more are told to come back.
const MOST_SPARES: usize = 8;
/// How often to look whether a worker that is being pinged is back.
const GLANCE: Duration = Duration::from_millis(10);

/// Workers that wait for a stage, and what is known of all that ever did.
#[derive(Default)]
pub struct StageWorkers {
    waiting: Monitor<VecDeque<WorkerLink>>,
    /// Others that wait, but are being pinged just now.
    pinged: AtomicUsize,
    closed: AtomicBool,
    rules: AdmissionRules,
    /// Whose rows are believed.
    trust: Trust,
    /// For which requests who was sent rows.
    seen: Mutex<KnownRequests>,
    /// The sandboxes of all that were admitted.
    sandboxes: Mutex<BTreeMap<String, Sandbox>>,
}

/// What holds for all stages of a model.
#[derive(Clone, Default)]
pub(crate) struct AdmissionRules {
    /// Who may stay; everyone if there is no list.
    pub(crate) members: Option<Arc<Members>>,
    /// Who writes down what happens, if anyone does.
    pub(crate) auditor: Option<Arc<Auditor>>,
    /// Who was lost too often.
    pub(crate) quarantine: Arc<Quarantine>,
    /// The clock by which all that is decided.
    pub(crate) clock: Clock,
    /// Which model it is, for records.
    pub(crate) served: Option<ServedModel>,
}

impl StageWorkers {
    /// Nobody yet.
    pub(crate) fn new(rules: AdmissionRules) -> StageWorkers {
        StageWorkers { waiting: Monitor::new(&rules.clock, VecDeque::new()), rules, ..StageWorkers::default() }
    }

    pub(crate) fn rules(&self) -> &AdmissionRules {
        &self.rules
    }

    /// The clock by which workers are waited for.
    pub(crate) fn clock(&self) -> &Clock {
        self.waiting.clock()
    }

    /// Takes a worker that waits, or the next that comes before `deadline`: one that is not in doubt, of those the one
    /// that was lost least often lately, and of those the one that waits longest. One that is held back is taken when
    /// time is up and no other came: a stage that may be lost again is better than none.
    pub fn take(&self, deadline: Instant) -> Option<WorkerLink> {
        let mut waiting = self.waiting();
        while !self.is_closed() {
            let now = self.clock().now();
            let is_over = now >= deadline && self.pinged.load(Ordering::Acquire) == 0;
            let ranked = (0..waiting.len()).filter_map(|at| Some((self.rank(&waiting[at].node)?, at)));
            let best = ranked.min().map(|(_, at)| at);
            let chosen = best.or_else(|| is_over.then_some(0));
            if let Some(worker) = chosen.and_then(|at| waiting.remove(at)) {
                return Some(worker);
            }
            if is_over {
                return None;
            }
            waiting = self.waiting.wait(waiting, Some(deadline.max(now + GLANCE)));
        }
        None
    }

    /// Takes a worker that waits and can be the standby of another, because both compute the same bits; those in doubt
    /// first, so that it shows which of them is wrong.
    pub(crate) fn take_beside(&self, beside: &WorkerLink) -> Option<WorkerLink> {
        let mut waiting = self.waiting();
        let fits = |other: &WorkerLink| other.node != beside.node && other.numerics == beside.numerics;
        let others = (0..waiting.len()).filter(|&at| fits(&waiting[at]));
        let ranked = others.filter_map(|at| Some((self.rank(&waiting[at].node)?, at)));
        let (_, best) = ranked.min_by_key(|((is_doubted, losses), at)| (!is_doubted, *losses, *at))?;
        waiting.remove(best)
    }

    /// Lets a worker wait; `false` when enough do, or nobody may. Each machine has one place: a new connection replaces
    /// the old.
    pub fn put(&self, worker: WorkerLink) -> bool {
        let mut waiting = self.waiting();
        waiting.retain(|other| other.node != worker.node);
        if waiting.len() >= MOST_SPARES || self.is_closed() {
            return false;
        }
        self.hold_sandboxes().insert(worker.node.clone(), worker.sandbox);
        waiting.push_back(worker);
        self.waiting.notify();
        true
    }

    /// The sandboxes of these machines.
    pub(crate) fn sandboxes<'a>(&self, nodes: impl Iterator<Item = &'a String>) -> BTreeMap<String, Sandbox> {
        let known = self.hold_sandboxes();
        nodes.filter_map(|node| Some((node.clone(), *known.get(node)?))).collect()
    }

    fn hold_sandboxes(&self) -> MutexGuard<'_, BTreeMap<String, Sandbox>> {
        // Nothing in there can be left half done.
        self.sandboxes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Pings everyone who waits, and releases those that do not answer or no longer belong to the fleet. The others stay
    /// while one is pinged, and whoever needs that one waits for its answer.
    pub fn sweep(&self, patience: Duration) {
        for _ in 0..self.count() {
            let mut waiting = self.waiting();
            let Some(mut worker) = waiting.pop_front() else { return };
            // Before anyone else sees that it is not in the list.
            self.pinged.fetch_add(1, Ordering::AcqRel);
            drop(waiting);
            if self.admits(&worker.node) {
                if worker.ping(patience, self).is_ok() {
                    self.put(worker);
                } else {
                    self.remember_loss(&worker.node);
                }
            }
            self.pinged.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Releases everyone who waits, and admits nobody any more; whoever computes is released at the next check.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.waiting().clear();
        self.waiting.notify();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Workers that wait.
    pub fn count(&self) -> usize {
        self.waiting().len()
    }

    /// Their names.
    pub fn names(&self) -> Vec<String> {
        self.waiting().iter().map(|worker| worker.node.clone()).collect()
    }

    /// The names of those that would take over.
    pub fn spares(&self) -> Vec<String> {
        let (mut names, now) = (self.names(), self.clock().now());
        names.retain(|node| self.rules.quarantine.losses(node, now).is_some());
        names
    }

    /// The names of those that were slow when they computed last.
    pub(crate) fn slow(&self) -> Vec<String> {
        self.waiting().iter().filter(|worker| worker.pace.is_slow()).map(|worker| worker.node.clone()).collect()
    }

    /// Whether one waits that is not in doubt, and not held back.
    pub(crate) fn has_believed(&self) -> bool {
        self.waiting().iter().any(|worker| self.rank(&worker.node).is_some_and(|(is_doubted, _)| !is_doubted))
    }

    /// Whether one waits that is in doubt.
    pub(crate) fn has_doubted(&self) -> bool {
        self.waiting().iter().any(|worker| self.doubts(&worker.node))
    }

    /// Smaller is better to compute with: whether a machine is in doubt, and how often it was lost lately. Nothing while
    /// it is held back.
    fn rank(&self, node: &str) -> Option<(bool, usize)> {
        let losses = self.rules.quarantine.losses(node, self.clock().now())?;
        Some((self.doubts(node), losses))
    }

    /// Remembers that a machine was lost: others come before it for a while, and it is held back if that was once too
    /// often.
    pub(crate) fn remember_loss(&self, node: &str) {
        if self.is_closed() {
            return;
        }
        if let Some(time) = self.rules.quarantine.lost(node, self.clock().now()) {
            self.note(Verb::Quarantine, node, format!("lost too often, and held back for {} s", time.as_secs()));
        }
    }

    /// Whether a machine is a member of the fleet, and may work here.
    fn belongs(&self, node: &str) -> bool {
        !self.is_closed() && self.rules.members.as_ref().is_none_or(|members| members.has(node))
    }

    /// The same for a machine that was not found to be wrong.
    pub(crate) fn admits(&self, node: &str) -> bool {
        self.belongs(node) && !self.trust.is_wrong(node)
    }

    /// Whether a machine may be wrong: its rows differed from those of a machine that may be wrong as well.
    pub(crate) fn doubts(&self, node: &str) -> bool {
        self.trust.doubts(node, |other| self.belongs(other))
    }

    /// Those that may be wrong.
    pub(crate) fn doubted(&self) -> Vec<String> {
        let doubted = |node: &String| self.doubts(node) && self.admits(node);
        self.trust.names().into_iter().filter(doubted).collect()
    }

    /// Two machines gave the same rows for long enough.
    pub(crate) fn agree(&self, one: &str, other: &str) {
        self.trust.agree(one, other);
    }

    /// Two machines gave different rows for one step of `what`. Gives those that are wrong, which are never used again
    /// unless people say so.
    pub(crate) fn differ(&self, one: &str, other: &str, what: &str) -> Vec<String> {
        let Dispute { wrong, is_new } = self.trust.differ(one, other, |node| self.belongs(node));
        if is_new {
            self.note(Verb::RowsDiffer, one, format!("{what}: {other} computed other rows"));
        }
        wrong.iter().for_each(|node| self.exclude(node, format!("two machines computed other rows for {what}")));
        wrong
    }

    /// A machine gave other rows for `what` than the coordinator itself, and is never used again unless people say so.
    pub(crate) fn refute(&self, node: &str, what: &str) {
        self.trust.refute(node);
        self.exclude(node, format!("the coordinator computed other rows for {what}"));
    }

    fn exclude(&self, node: &str, why: String) {
        // A list that cannot be written must not bring it back.
        match self.rules.members.as_ref().map(|members| members.distrust(node, &why)) {
            Some(Ok(true)) => self.trust.forget(node),
            _ => self.note(Verb::Distrust, node, why),
        }
    }

    /// The newest head of the audit log, if a worker that was told of `count` records does not know it.
    pub(crate) fn head_after(&self, count: u64) -> Option<SignedHead> {
        self.rules.auditor.as_ref()?.head_after(count)
    }

    /// Takes what a worker says to a head of the audit log.
    pub(crate) fn take_countersignature(&self, node: &str, countersignature: &[u8]) {
        if let Some((auditor, members)) = self.rules.auditor.as_ref().zip(self.rules.members.as_ref()) {
            auditor.heard(node, members, countersignature);
        }
    }

    /// Writes down for which requests a machine is sent rows, once for each.
    pub(crate) fn saw(&self, node: &str, plan: &StepPlan) {
        let Some((auditor, served)) = self.rules.auditor.as_ref().zip(self.rules.served) else { return };
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let new = seen.add(node, plan.steps.iter().map(|step| step.id));
        if !new.is_empty() {
            auditor.saw(node, served, &new);
        }
    }

    /// Writes down what happened with a worker of this stage.
    pub(crate) fn note(&self, verb: Verb, node: &str, note: String) {
        if let Some(auditor) = &self.rules.auditor {
            auditor.note(Entry { note, ..Entry::new(node, verb, Decision::Noted) });
        }
    }

    fn waiting(&self) -> Guard<'_, VecDeque<WorkerLink>> {
        self.waiting.lock()
    }
}
