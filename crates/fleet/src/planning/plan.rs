//! Which machine should run which layers: the split with the best predicted speed that fits into memory.
//!
//! A step of some rows takes a machine as long as reading its weights once and multiplying them with every further row.
//! The coordinator has both ends of the model besides its layers, and every stage elsewhere costs a round trip and its rows
//! on the wire. As many steps are under way as there are stages, so that the slowest machine sets the pace, unless a
//! step takes longer to come through than all machines together need for theirs.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::FleetError;
use crate::shards::own_stage::HERE;
use crate::workers::machine::{LinkSpeed, MachineSpeed};

/// The most machines among which the best are looked for.
pub const MOST_MACHINES: usize = 16;
/// How much faster another machine must make a fleet to be worth it.
const WORTH: f64 = 1.05;
/// The part of its free memory that a machine should give.
const MEMORY_PART: f64 = 0.9;

/// What a model costs.
#[derive(Clone, Debug)]
pub struct ModelCosts {
    /// Its layers in order.
    pub layers: Vec<Cost>,
    /// Both ends; of its embeddings, a token reads a row.
    pub ends: Cost,
    /// Where stages may begin.
    pub starts: Vec<u32>,
    /// Bytes of a row between stages.
    pub row_bytes: u64,
    /// Whether layers make inputs from token ids.
    pub needs_tokens: bool,
}

/// What a part of a model costs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Bytes of its weights.
    pub bytes: u64,
    /// Those that one row reads; fewer where there are experts.
    pub row_reads: u64,
    /// Products of one row.
    pub products: u64,
    /// Bytes of its cache.
    pub cache_bytes: u64,
}

/// A machine that may run a stage.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// What people call it.
    pub name: String,
    /// What it can do.
    pub speed: MachineSpeed,
    /// The link to it; none to the coordinator itself, which comes first.
    pub link: Option<LinkSpeed>,
}

/// What is to be planned.
#[derive(Clone, Debug)]
pub struct Task<'a> {
    /// The model.
    pub model: &'a ModelCosts,
    /// What the coordinator can do, which has both ends whether it runs a stage or not.
    pub coordinator: MachineSpeed,
    /// Who may run stages, in the order of their layers.
    pub machines: &'a [Candidate],
    /// How many users there are at a time.
    pub users: u32,
}

/// A stage of a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlannedStage {
    /// The machine, by its place among the candidates.
    #[serde(skip)]
    pub machine: usize,
    /// Its name.
    pub node: String,
    /// Its layers.
    pub layers: Range<u32>,
    /// Bytes of weights and cache.
    pub bytes: u64,
    /// Seconds that it computes for a token of one user.
    pub seconds: f64,
    /// Seconds that one user's token is on the way there and back.
    pub network_seconds: f64,
}

/// Who runs what, and what is expected of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FleetPlan {
    /// The stages in order.
    pub stages: Vec<PlannedStage>,
    /// Seconds of both ends for one user's token.
    pub ends_seconds: f64,
    /// Tokens per second of one user alone.
    pub one_user: f64,
    /// How many users there are at a time.
    pub users: u32,
    /// Tokens per second of all of them together.
    pub all_users: f64,
    /// The machine that is busy longest.
    pub slowest: String,
    /// Whether token ids, which are the text itself, are sent to other machines.
    #[serde(default)]
    pub sends_tokens: bool,
}

impl Cost {
    fn seconds(&self, speed: &MachineSpeed, rows: f64) -> f64 {
        let read = (self.bytes as f64).min(self.row_reads as f64 * rows);
        // A machine that has not measured itself is not fast, but no reason to divide by nothing.
        let a_second = |speed: u64| speed.max(1) as f64;
        let reading = read / a_second(speed.read_bytes_per_second);
        let row = self.products as f64 / a_second(speed.products_per_second);
        // The first row is multiplied while weights are read.
        reading.max(row) + (rows - 1.0) * row
    }

    fn memory(&self) -> f64 {
        self.bytes as f64 + self.cache_bytes as f64
    }
}

/// The plan with the fewest machines, unless more are noticeably faster; the first [`MOST_MACHINES`] are looked at.
pub fn plan(task: &Task<'_>) -> Result<FleetPlan, FleetError> {
    let machines = &task.machines[..task.machines.len().min(MOST_MACHINES)];
    let (task, most) = (&Task { machines, ..task.clone() }, machines.len().min(task.model.starts.len()));
    let plans: Vec<FleetPlan> = (1..=most).filter_map(|stages| plan_with_stages(task, stages)).collect();
    let best = plans.iter().map(|plan| plan.all_users).fold(0.0, f64::max);
    plans.into_iter().find(|plan| plan.all_users * WORTH >= best).ok_or_else(|| misfit(task))
}

/// The fastest plan of so many stages; none if it does not fit.
pub fn plan_with_stages(task: &Task<'_>, stages: usize) -> Option<FleetPlan> {
    let search = Search::new(task, stages);
    let parts = search.parts.iter().flatten().flatten();
    let mut paces: Vec<f64> = parts.map(|part| part.busy).chain([search.ends]).collect();
    paces.sort_unstable_by(f64::total_cmp);
    // A faster pace leaves fewer splits, so a step takes at least as long to come through: the best is where the two
    // meet, or just before.
    let ready = |pace: f64| search.quickest(pace).is_some_and(|found| search.steps * pace >= found.seconds);
    let meet = paces.partition_point(|pace| !ready(*pace));
    let around = paces[meet.saturating_sub(1)..paces.len().min(meet + 1)].iter().chain(paces.last());
    let found = around.filter_map(|pace| search.quickest(*pace));
    let plans = found.map(|found| predict(task, &found.segments));
    plans.max_by(|one, other| one.all_users.total_cmp(&other.all_users))
}

/// What is expected of a split: layers for some of the machines, in order.
pub fn predict(task: &Task<'_>, segments: &[(usize, Range<u32>)]) -> FleetPlan {
    let (one, all) = (Rows::of(1, segments.len()), Rows::of(task.users, segments.len()));
    let stage = |(machine, layers): &(usize, Range<u32>)| {
        let candidate = &task.machines[*machine];
        let part = Part::of(task, (*machine, layers), one);
        PlannedStage {
            machine: *machine,
            node: candidate.name.clone(),
            layers: layers.clone(),
            bytes: part.memory as u64,
            seconds: part.computing,
            network_seconds: part.network,
        }
    };
    let busy = |(machine, layers): &(usize, Range<u32>)| {
        (task.machines[*machine].name.as_str(), Part::of(task, (*machine, layers), all).busy)
    };
    let ends = (HERE, all.ends(task));
    let busiest = segments.iter().map(busy).chain([ends]).max_by(|one, other| one.1.total_cmp(&other.1));
    FleetPlan {
        stages: segments.iter().map(stage).collect(),
        ends_seconds: one.ends(task),
        one_user: one.speed(task, segments),
        users: task.users,
        all_users: all.speed(task, segments),
        slowest: busiest.unwrap_or(ends).0.to_owned(),
        sends_tokens: task.model.needs_tokens
            && segments.iter().any(|(machine, _)| task.machines[*machine].link.is_some()),
    }
}

/// How the rows of all users are spread over steps.
#[derive(Clone, Copy)]
struct Rows {
    users: f64,
    steps: f64,
    each: f64,
}

impl Rows {
    fn of(users: u32, stages: usize) -> Rows {
        let users = users.max(1);
        let steps = users.min(stages as u32).max(1);
        Rows { users: users.into(), steps: steps.into(), each: users.div_ceil(steps).into() }
    }

    fn ends(&self, task: &Task<'_>) -> f64 {
        task.model.ends.seconds(&task.coordinator, self.each)
    }

    /// Tokens per second.
    fn speed(&self, task: &Task<'_>, segments: &[(usize, Range<u32>)]) -> f64 {
        let parts = || segments.iter().map(|(machine, layers)| Part::of(task, (*machine, layers), *self));
        let busiest = parts().map(|part| part.busy).fold(self.ends(task), f64::max);
        let through = parts().map(|part| part.computing + part.network).sum::<f64>() + self.ends(task);
        self.users / through.max(self.steps * busiest)
    }
}

/// Layers on a machine.
struct Part {
    computing: f64,
    network: f64,
    /// How long the machine is busy with a step: the coordinator has both ends besides.
    busy: f64,
    memory: f64,
}

impl Part {
    fn of(task: &Task<'_>, (machine, layers): (usize, &Range<u32>), rows: Rows) -> Part {
        let Candidate { speed, link, .. } = &task.machines[machine];
        let costs = || task.model.layers[layers.start as usize..layers.end as usize].iter();
        let computing = costs().map(|cost| cost.seconds(speed, rows.each)).sum();
        let memory: f64 = costs().map(Cost::memory).sum();
        let wire = 2.0 * rows.each * task.model.row_bytes as f64;
        match link {
            Some(link) => {
                let network = link.round_trip_microseconds as f64 / 1e6 + wire / link.bytes_per_second.max(1) as f64;
                Part { computing, network, busy: computing, memory }
            }
            None => {
                let memory = memory + task.model.ends.memory();
                Part { computing, network: 0.0, busy: computing + rows.ends(task), memory }
            }
        }
    }

    fn fits(&self, speed: &MachineSpeed) -> bool {
        self.memory <= MEMORY_PART * speed.memory_bytes as f64
    }
}

/// Splits of one number of stages.
struct Search {
    stages: usize,
    steps: f64,
    ends: f64,
    /// Where stages may begin or end.
    cuts: Vec<u32>,
    /// Layers that follow each other, by the cuts they lie between.
    segments: Vec<Range<usize>>,
    /// By machine and segment; none where it does not fit.
    parts: Vec<Vec<Option<Part>>>,
}

/// A split, and how long a step takes to come through it.
#[derive(Clone)]
struct Found {
    seconds: f64,
    segments: Vec<(usize, Range<u32>)>,
}

impl Search {
    fn new(task: &Task<'_>, stages: usize) -> Search {
        let rows = Rows::of(task.users, stages);
        let cuts: Vec<u32> = task.model.starts.iter().copied().chain([task.model.layers.len() as u32]).collect();
        let segments = (0..cuts.len()).flat_map(|end| (0..end).map(move |start| start..end));
        let segments: Vec<Range<usize>> = segments.collect();
        let part = |machine: usize, segment: &Range<usize>| {
            let part = Part::of(task, (machine, &(cuts[segment.start]..cuts[segment.end])), rows);
            Some(part).filter(|part| part.fits(&task.machines[machine].speed))
        };
        let parts = (0..task.machines.len())
            .map(|machine| segments.iter().map(|segment| part(machine, segment)).collect())
            .collect();
        Search { stages, steps: rows.steps, ends: rows.ends(task), cuts, segments, parts }
    }

    /// The split through which a step comes quickest while no machine is busy with it for longer than `pace`.
    fn quickest(&self, pace: f64) -> Option<Found> {
        if self.ends > pace {
            return None;
        }
        // The best for the first layers, by how many stages they make and at which cut they end.
        let mut best: Vec<Vec<Option<Found>>> = vec![vec![None; self.cuts.len()]; self.stages + 1];
        best[0][0] = Some(Found { seconds: self.ends, segments: Vec::new() });
        for (machine, parts) in self.parts.iter().enumerate() {
            // From many stages to few, so that no machine gets two.
            for stages in (1..=self.stages).rev() {
                for (segment, part) in self.segments.iter().zip(parts) {
                    let Some(before) = &best[stages - 1][segment.start] else { continue };
                    let Some(part) = part.as_ref().filter(|part| part.busy <= pace) else { continue };
                    let seconds = before.seconds + part.computing + part.network;
                    if best[stages][segment.end].as_ref().is_none_or(|known| seconds < known.seconds) {
                        let mut segments = before.segments.clone();
                        segments.push((machine, self.cuts[segment.start]..self.cuts[segment.end]));
                        best[stages][segment.end] = Some(Found { seconds, segments });
                    }
                }
            }
        }
        best[self.stages].pop().flatten()
    }
}

/// Why nothing fits.
fn misfit(task: &Task<'_>) -> FleetError {
    let needed: f64 = task.model.layers.iter().map(Cost::memory).sum::<f64>() + task.model.ends.memory();
    let free: f64 = task.machines.iter().map(|machine| MEMORY_PART * machine.speed.memory_bytes as f64).sum();
    let problem = format!(
        "weights and cache take {:.1} GB, and these machines can give {:.1} GB in all; let more machines join, take a \
         smaller precision or fewer users",
        needed / 1e9,
        free / 1e9
    );
    FleetError::Plan { machines: task.machines.len(), problem }
}
