//! What the dashboard shows of a fleet: how its machines are, and who came and went.

use std::collections::VecDeque;
use std::sync::Arc;

use cascadia_fleet::{Members, StageStatus};
use cascadia_server::FleetBoard;
use serde::Serialize;
use serde_json::json;

use crate::fleet_home::FleetStatus;

/// Events that are kept.
const EVENTS: usize = 20;

/// Sees what changes from one look to the next, and shows it.
pub(super) struct Lookout {
    board: FleetBoard,
    members: Arc<Members>,
    before: Vec<StageStatus>,
    events: VecDeque<Event>,
}

/// A machine came, went, or changed places.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Event {
    /// Seconds since 1970.
    time: u64,
    node: String,
    stage: usize,
    role: Role,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Role {
    Computes,
    Spare,
    Gone,
}

impl Lookout {
    pub(super) fn new(board: FleetBoard, members: Arc<Members>) -> Lookout {
        Lookout { board, members, before: Vec::new(), events: VecDeque::new() }
    }

    /// Takes a look.
    pub(super) fn see(&mut self, status: &FleetStatus) {
        self.events.extend(changes(&self.before, status));
        self.events.drain(..self.events.len().saturating_sub(EVENTS));
        self.before.clone_from(&status.stages);
        // Who is not connected is left out when the list cannot be read; the next look may see it.
        let members = self.members.all().unwrap_or_default();
        let machines: Vec<String> = members.into_iter().map(|member| member.name).collect();
        let FleetStatus { time, model, stages, plan } = status;
        self.board.show(json!({
            "time": time, "model": model, "machines": machines, "stages": stages, "plan": plan, "events": self.events,
        }));
    }
}

/// What is new since the stages were as they were before.
fn changes(before: &[StageStatus], now: &FleetStatus) -> Vec<Event> {
    let mut events = Vec::new();
    let nobody = StageStatus::default();
    for stage in 0..before.len().max(now.stages.len()) {
        let (old, new) = (before.get(stage).unwrap_or(&nobody), now.stages.get(stage).unwrap_or(&nobody));
        let mut tell = |node: &str, role| events.push(Event { time: now.time, node: node.to_owned(), stage, role });
        for (node, _) in machines(old) {
            if machines(new).all(|(other, _)| other != node) {
                tell(node, Role::Gone);
            }
        }
        for (node, role) in machines(new) {
            if machines(old).all(|known| known != (node, role)) {
                tell(node, role);
            }
        }
    }
    events
}

fn machines(stage: &StageStatus) -> impl Iterator<Item = (&str, Role)> {
    let computing = stage.node.iter().map(|node| (node.as_str(), Role::Computes));
    computing.chain(stage.spares.iter().map(|node| (node.as_str(), Role::Spare)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use cascadia_fleet::Digest;

    #[test]
    fn who_comes_goes_or_takes_over_is_told() {
        let stage = |node: Option<&str>, spares: &[&str]| StageStatus {
            node: node.map(str::to_owned),
            spares: spares.iter().map(|spare| (*spare).to_owned()).collect(),
            ..StageStatus::default()
        };
        let status = |stages: Vec<StageStatus>| FleetStatus { time: 7, model: Digest([0; 32]), stages, plan: None };
        let looks = [
            (vec![stage(Some("a"), &["b"]), stage(Some("c"), &[])], "a computes 0, b spare 0, c computes 1"),
            (vec![stage(Some("b"), &[]), stage(Some("c"), &[])], "a gone 0, b computes 0"),
            (vec![stage(Some("b"), &["a"]), stage(None, &[])], "a spare 0, c gone 1"),
            (vec![stage(Some("b"), &["a"])], ""),
        ];
        let mut before = Vec::new();
        for (stages, expected) in looks {
            let now = status(stages);
            let told =
                |event: Event| format!("{} {} {}", event.node, format!("{:?}", event.role).to_lowercase(), event.stage);
            let told: Vec<String> = changes(&before, &now).into_iter().map(told).collect();
            assert_eq!(told.join(", "), expected);
            before = now.stages;
        }
    }
}
