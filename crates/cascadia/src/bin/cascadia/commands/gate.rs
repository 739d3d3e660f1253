//! Where machines come to a server: each takes part, or people hear once why it cannot.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use cascadia_fleet::{Admission, Arrival, Auditor, WorkerRegistry};

use crate::output::remark;

/// Reasons that are remembered; after that they are said again.
const MOST_SAID: usize = 256;

/// Lets machines in.
pub(super) struct Gate {
    pub(super) registry: Arc<WorkerRegistry>,
    /// The machines that may take part; all of the fleet if none are named.
    pub(super) nodes: Arc<Mutex<Option<Vec<String>>>>,
    pub(super) auditor: Arc<Auditor>,
    /// Machines that could not take part, and why: they come again and again.
    pub(super) said: Mutex<BTreeSet<(String, String)>>,
}

impl Gate {
    /// Talks to one that has come.
    pub(super) fn welcome(&self, arrival: Arrival) {
        match arrival {
            Arrival::Member { node, link } => {
                let nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let takes_part = nodes.is_none_or(|nodes| nodes.contains(&node));
                match takes_part.then(|| self.registry.admit(link, &node)) {
                    Some(Ok(Admission::Stage(stage))) => remark(&format!("{node} is ready for stage {stage}.")),
                    Some(Err(error)) => self.refused(node, error.to_string()),
                    Some(Ok(Admission::Waits | Admission::Early)) | None => {}
                }
            }
            Arrival::Joined { node } => remark(&format!("{node} has joined the fleet.")),
            Arrival::TurnedAway { address, problem } => remark(&format!("{address} was turned away: {problem}")),
        }
    }

    fn refused(&self, node: String, problem: String) {
        self.auditor.refused(&node, &problem);
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.len() >= MOST_SAID {
            said.clear();
        }
        let line = format!("{node} cannot take part: {problem}");
        if said.insert((node, problem)) {
            remark(&line);
        }
    }
}
