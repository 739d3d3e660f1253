//! Admits the machines that connect to a server, and tells once why one cannot take part.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use cascadia_fleet::{Admission, Arrival, FleetEvent, FleetHome, WorkerRegistry, remember};

use crate::waiting::Nodes;

/// Reasons that are remembered; after that they are told again.
const MOST_REASONS: usize = 256;
/// Seconds for which it is good enough what was measured of a machine that connects again.
const FRESH: u64 = 3600;

/// Admits connections.
pub(crate) struct Admissions {
    home: FleetHome,
    registry: Arc<WorkerRegistry>,
    /// The machines that may take part; all of the fleet if none are named.
    nodes: Nodes,
    /// Machines that could not take part, and why: they connect again and again.
    told: Mutex<BTreeSet<(String, String)>>,
    /// Machines are measured one after the other, so that none slows down another.
    measuring: Mutex<()>,
}

impl Admissions {
    pub(crate) fn new(home: &FleetHome, registry: &Arc<WorkerRegistry>, nodes: Nodes) -> Admissions {
        let (told, measuring) = (Mutex::default(), Mutex::default());
        Admissions { home: home.clone(), registry: Arc::clone(registry), nodes, told, measuring }
    }

    /// Handles a connection.
    pub(crate) fn admit(&self, arrival: Arrival) {
        match arrival {
            Arrival::Member { node, link } => {
                let nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let takes_part = nodes.is_none_or(|nodes| nodes.contains(&node));
                match takes_part.then(|| self.registry.admit(link, &node)) {
                    Some(Ok(Admission::Stage(stage))) => self.home.notify(FleetEvent::Ready { node, stage }),
                    Some(Err(error)) => self.refused(node, error.to_string()),
                    Some(Ok(Admission::Waits)) => self.measure(&node),
                    Some(Ok(Admission::Early)) | None => {}
                }
            }
            Arrival::Pending { node, code } => self.home.notify(FleetEvent::Pending { node, code }),
            Arrival::Rotated { node } => self.home.notify(FleetEvent::Rotated { node }),
            Arrival::Paired { node } => self.home.notify(FleetEvent::Paired { node }),
            Arrival::Joined { node } => self.home.notify(FleetEvent::Joined { node }),
            Arrival::TurnedAway { address, problem, is_news: true } => {
                self.home.notify(FleetEvent::TurnedAway { address, problem });
            }
            Arrival::TurnedAway { is_news: false, .. } => {}
        }
    }

    /// Measures a machine of which nothing new is known, so that plans can count on it.
    fn measure(&self, node: &str) {
        let _one_at_a_time = self.measuring.lock().unwrap_or_else(PoisonError::into_inner);
        let (known, now) = (self.home.machines().unwrap_or_default(), self.registry.clock().unix_seconds());
        if known.get(node).is_some_and(|known| now.abs_diff(known.time) < FRESH) {
            return;
        }
        let measured = self.registry.measure(&[node.to_owned()], self.registry.clock().now());
        // Where that cannot be written, it is measured when a model is planned.
        let _ = remember(&self.home, measured);
    }

    fn refused(&self, node: String, problem: String) {
        if let Ok(auditor) = self.home.auditor() {
            auditor.refused(&node, &problem);
        }
        // It comes with a shard of a model that was replaced, and has one of the new model already.
        if self.registry.has_stage(&node) {
            return;
        }
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.len() >= MOST_REASONS {
            told.clear();
        }
        if told.insert((node.clone(), problem.clone())) {
            self.home.notify(FleetEvent::Refused { node, problem });
        }
    }
}
