//! Admits the machines that connect to a server, and tells once why one cannot take part.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use cascadia_fleet::{Admission, Arrival, FleetEvent, FleetHome, WorkerRegistry};

/// Reasons that are remembered; after that they are told again.
const MOST_REASONS: usize = 256;

/// Admits connections.
pub(crate) struct Admissions {
    pub(crate) home: FleetHome,
    pub(crate) registry: Arc<WorkerRegistry>,
    /// The machines that may take part; all of the fleet if none are named.
    pub(crate) nodes: Arc<Mutex<Option<Vec<String>>>>,
    /// Machines that could not take part, and why: they connect again and again.
    pub(crate) told: Mutex<BTreeSet<(String, String)>>,
}

impl Admissions {
    /// Handles a connection.
    pub(crate) fn admit(&self, arrival: Arrival) {
        match arrival {
            Arrival::Member { node, link } => {
                let nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let takes_part = nodes.is_none_or(|nodes| nodes.contains(&node));
                match takes_part.then(|| self.registry.admit(link, &node)) {
                    Some(Ok(Admission::Stage(stage))) => self.home.notify(FleetEvent::Ready { node, stage }),
                    Some(Err(error)) => self.refused(node, error.to_string()),
                    Some(Ok(Admission::Waits | Admission::Early)) | None => {}
                }
            }
            Arrival::Pending { node, code } => self.home.notify(FleetEvent::Pending { node, code }),
            Arrival::Rotated { node } => self.home.notify(FleetEvent::Rotated { node }),
            Arrival::Joined { node } => self.home.notify(FleetEvent::Joined { node }),
            Arrival::TurnedAway { address, problem, is_news: true } => {
                self.home.notify(FleetEvent::TurnedAway { address, problem });
            }
            Arrival::TurnedAway { is_news: false, .. } => {}
        }
    }

    fn refused(&self, node: String, problem: String) {
        if let Ok(auditor) = self.home.auditor() {
            auditor.refused(&node, &problem);
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
