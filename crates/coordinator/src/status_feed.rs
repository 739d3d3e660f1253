//! What a dashboard shows of a fleet: its machines, and which of them connected, took over or were lost.

use std::collections::VecDeque;
use std::sync::Arc;

use cascadia_fleet::{FleetStatus, Members, StageStatus};
use serde::Serialize;
use serde_json::json;

use crate::StatusSink;

/// Events that are kept.
const EVENTS: usize = 20;

/// Compares each status with the one before, and passes both on as one JSON object.
pub(crate) struct StatusFeed {
    sink: StatusSink,
    members: Arc<Members>,
    before: Option<FleetStatus>,
    events: VecDeque<Event>,
}

/// A machine connected, was lost, or has another role.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Event {
    /// Seconds since 1970.
    time: u64,
    node: String,
    /// Of which stage, where it is about one.
    stage: Option<usize>,
    role: Role,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Role {
    Computes,
    ComputesAlong,
    Spare,
    Slow,
    Doubted,
    Wrong,
    Gone,
    Quarantined,
}

impl StatusFeed {
    pub(crate) fn new(sink: StatusSink, members: Arc<Members>) -> StatusFeed {
        StatusFeed { sink, members, before: None, events: VecDeque::new() }
    }

    /// Takes in the status of now.
    pub(crate) fn update(&mut self, status: &FleetStatus) {
        self.events.extend(changes(self.before.as_ref(), status));
        self.events.drain(..self.events.len().saturating_sub(EVENTS));
        self.before = Some(status.clone());
        // Machines that are not connected are left out when the list cannot be read.
        let members = self.members.all().unwrap_or_default();
        let machines: Vec<String> = members.into_iter().map(|member| member.name).collect();
        let FleetStatus { time, model, name, connected, stages, sends_tokens, plan, quarantined } = status;
        (self.sink)(json!({
            "time": time, "model": model, "name": name, "connected": connected, "machines": machines, "stages": stages,
            "sends_tokens": sends_tokens, "plan": plan, "quarantined": quarantined, "events": self.events,
        }));
    }
}

/// What is new since the last status.
fn changes(before: Option<&FleetStatus>, now: &FleetStatus) -> Vec<Event> {
    let mut events = Vec::new();
    let mut tell = |node: &str, stage, role| events.push(Event { time: now.time, node: node.to_owned(), stage, role });
    let (nobody, stages) = (StageStatus::default(), before.map_or(&[][..], |before| before.stages.as_slice()));
    for stage in 0..stages.len().max(now.stages.len()) {
        let (old, new) = (stages.get(stage).unwrap_or(&nobody), now.stages.get(stage).unwrap_or(&nobody));
        for (node, _) in machines(old) {
            if machines(new).all(|(other, _)| other != node) {
                tell(node, Some(stage), Role::Gone);
            }
        }
        for (node, role) in machines(new) {
            if machines(old).all(|known| known != (node, role)) {
                tell(node, Some(stage), role);
            }
        }
    }
    let known = |node: &str| before.is_some_and(|before| before.quarantined.contains_key(node));
    now.quarantined.keys().filter(|node| !known(node)).for_each(|node| tell(node, None, Role::Quarantined));
    events
}

fn machines(stage: &StageStatus) -> impl Iterator<Item = (&str, Role)> {
    fn all(nodes: &[String], role: Role) -> impl Iterator<Item = (&str, Role)> {
        nodes.iter().map(move |node| (node.as_str(), role))
    }
    let waits = |node: &&str| stage.standby.as_deref() != Some(*node);
    all(stage.node.as_slice(), Role::Computes)
        .chain(all(stage.standby.as_slice(), Role::ComputesAlong))
        .chain(all(&stage.spares, Role::Spare).filter(move |(node, _)| waits(node)))
        .chain(all(&stage.slow, Role::Slow))
        .chain(all(&stage.doubted, Role::Doubted))
        .chain(all(&stage.wrong, Role::Wrong))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_that_connect_take_over_or_are_lost_are_told() {
        let stage = |node: Option<&str>, spares: &[&str]| StageStatus {
            node: node.map(str::to_owned),
            spares: spares.iter().map(|spare| (*spare).to_owned()).collect(),
            ..StageStatus::default()
        };
        let status = |stages: Vec<StageStatus>, held_back: &[&str]| FleetStatus {
            time: 7,
            stages,
            quarantined: held_back.iter().map(|node| ((*node).to_owned(), 300)).collect(),
            ..FleetStatus::default()
        };
        let a = || Some("a".to_owned());
        let statuses = [
            (
                status(vec![stage(Some("a"), &["b"]), stage(Some("c"), &[])], &[]),
                "a computes 0, b spare 0, c computes 1",
            ),
            (
                status(vec![stage(Some("b"), &[]), stage(Some("c"), &[])], &["a"]),
                "a gone 0, b computes 0, a quarantined",
            ),
            (status(vec![stage(Some("b"), &["a"]), stage(None, &[])], &["a"]), "a spare 0, c gone 1"),
            (status(vec![stage(Some("b"), &["a"])], &[]), ""),
            (status(vec![StageStatus { standby: a(), ..stage(Some("b"), &["a"]) }], &[]), "a computesalong 0"),
            (
                status(vec![StageStatus { slow: Vec::from_iter(a()), ..stage(Some("b"), &["a"]) }], &[]),
                "a spare 0, a slow 0",
            ),
            (
                status(vec![StageStatus { doubted: Vec::from_iter(a()), ..stage(Some("b"), &["a"]) }], &[]),
                "a doubted 0",
            ),
            (status(vec![StageStatus { wrong: Vec::from_iter(a()), ..stage(Some("b"), &[]) }], &[]), "a wrong 0"),
        ];
        let mut before = None;
        for (now, expected) in statuses {
            let told = |Event { node, role, stage, .. }| {
                let stage = stage.map(|stage| format!(" {stage}")).unwrap_or_default();
                format!("{node} {}{stage}", format!("{role:?}").to_lowercase())
            };
            let told: Vec<String> = changes(before.as_ref(), &now).into_iter().map(told).collect();
            assert_eq!(told.join(", "), expected);
            before = Some(now);
        }
    }
}
