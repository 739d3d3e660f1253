//! What would make a planned fleet faster.

use serde::Serialize;

use crate::planning::plan::{Candidate, FleetPlan, MOST_MACHINES, Task, plan};
use crate::workers::machine::LinkSpeed;

/// How much faster a change must make it to be worth telling.
const WORTH: f64 = 1.05;
/// A good cable: a fifth of a millisecond, 10 Gbit/s.
const CABLE: LinkSpeed = LinkSpeed { round_trip_microseconds: 200, bytes_per_second: 1_250_000_000 };

/// A change, and what it would bring.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Suggestion {
    /// What to change.
    pub change: String,
    /// Tokens per second of all users together after that.
    pub all_users: f64,
}

/// Changes that are worth it, best first.
pub fn suggestions(task: &Task<'_>, now: &FleetPlan) -> Vec<Suggestion> {
    let remote = || task.machines.iter().filter(|machine| machine.link.is_some());
    let fastest = remote().max_by_key(|machine| machine.speed.read_bytes_per_second);
    let like = fastest.or(task.machines.first()).map(|machine| {
        let another = Candidate { link: machine.link.or(Some(CABLE)), ..machine.clone() };
        let machines = task.machines.iter().cloned().chain([another]).take(MOST_MACHINES).collect();
        (format!("another machine like {}", machine.name), machines)
    });
    let cabled = |machine: &Candidate| {
        let better = |link: LinkSpeed| LinkSpeed {
            round_trip_microseconds: link.round_trip_microseconds.min(CABLE.round_trip_microseconds),
            bytes_per_second: link.bytes_per_second.max(CABLE.bytes_per_second),
        };
        Candidate { link: machine.link.map(better), ..machine.clone() }
    };
    let cables = ("faster cables (0.2 ms, 10 Gbit/s)".to_owned(), task.machines.iter().map(cabled).collect());
    let changes: Vec<(String, Vec<Candidate>)> = like.into_iter().chain([cables]).collect();
    let after = |(change, machines): &(String, Vec<Candidate>)| {
        let all_users = plan(&Task { machines, ..task.clone() }).ok()?.all_users;
        Some(Suggestion { change: change.clone(), all_users })
    };
    let mut found: Vec<Suggestion> = changes.iter().filter_map(after).collect();
    found.retain(|help| help.all_users > WORTH * now.all_users);
    found.sort_by(|one, other| other.all_users.total_cmp(&one.all_users));
    found
}
