//! Plans are the best of all splits, fit into memory, and take no machine that is not worth it.

use std::ops::Range;
use std::thread;

use cascadia_fleet::link::{channel_pair, fair};
use cascadia_fleet::{
    Candidate, Cost, FleetPlan, Hello, LinkSpeed, MOST_MACHINES, MachineSpeed, ModelCosts, PendingWorker, Sandbox,
    Task, greet_measured, plan, plan_with_stages, predict,
};

use crate::hash_model::Chance;

/// Machines and their layers.
type Split = Vec<(usize, Range<u32>)>;

/// A model and machines of chance.
struct Case {
    model: ModelCosts,
    coordinator: MachineSpeed,
    machines: Vec<Candidate>,
    users: u32,
}

fn speed(chance: &mut Chance) -> MachineSpeed {
    MachineSpeed {
        read_bytes_per_second: 1_000_000_000 * (1 + chance.below(20)),
        products_per_second: 10_000_000_000 * (1 + chance.below(30)),
        memory_bytes: (1 + chance.below(8)) << 30,
        threads: 1,
    }
}

impl Case {
    fn new(seed: u64) -> Case {
        let mut chance = Chance(seed);
        let layers = 1 + chance.below(6) as usize;
        let mut cost = || {
            let bytes = (1 + chance.below(10)) << 27;
            Cost { bytes, row_reads: bytes >> chance.below(3), products: 2 * bytes, cache_bytes: bytes / 8 }
        };
        let model = ModelCosts {
            layers: (0..layers).map(|_| cost()).collect(),
            ends: cost(),
            starts: (0..layers as u32).filter(|start| start % 3 != 2).collect(),
            row_bytes: 8192,
            needs_tokens: false,
        };
        let coordinator = speed(&mut chance);
        let mut machines: Vec<Candidate> = (0..1 + chance.below(4))
            .map(|number| Candidate {
                name: format!("node-{number}"),
                speed: speed(&mut chance),
                link: Some(LinkSpeed {
                    round_trip_microseconds: 1000 * chance.below(8),
                    bytes_per_second: 10_000_000 * (1 + chance.below(12)),
                }),
            })
            .collect();
        if chance.below(2) == 0 {
            machines.insert(0, Candidate { name: "here".to_owned(), speed: coordinator, link: None });
        }
        Case { model, coordinator, machines, users: 1 + chance.below(8) as u32 }
    }

    fn task(&self) -> Task<'_> {
        let Case { model, coordinator, machines, users } = self;
        Task { model, coordinator: *coordinator, machines, users: *users }
    }

    /// Every split over so many machines that fits.
    fn all(&self, stages: usize) -> Vec<FleetPlan> {
        let layers = self.model.layers.len() as u32;
        let mut splits: Vec<(u32, Split)> = vec![(0, Vec::new())];
        for machine in 0..self.machines.len() {
            let longer = |(from, split): &(u32, Split)| {
                let ends = (from + 1..=layers).filter(|end| *end == layers || self.model.starts.contains(end));
                let grown = ends.map(|end| (end, [split.as_slice(), &[(machine, *from..end)]].concat()));
                grown.collect::<Vec<_>>()
            };
            let grown: Vec<_> = splits.iter().flat_map(longer).collect();
            splits.extend(grown);
        }
        let whole = splits.into_iter().filter(|(end, split)| *end == layers && split.len() == stages);
        whole.map(|(_, split)| predict(&self.task(), &split)).filter(|plan| self.fits(plan)).collect()
    }

    fn fits(&self, plan: &FleetPlan) -> bool {
        let room = |machine: usize| 0.9 * self.machines[machine].speed.memory_bytes as f64;
        plan.stages.iter().all(|stage| stage.bytes as f64 <= room(stage.machine))
    }
}

#[test]
fn no_split_is_faster_than_the_plan() {
    let mut planned = 0;
    for seed in 0..600 {
        let case = Case::new(seed);
        let mut best_of_any = 0.0_f64;
        for stages in 1..=case.machines.len() {
            let best = case
                .all(stages)
                .into_iter()
                .map(|plan| plan.all_users)
                .fold(None, |best: Option<f64>, speed| Some(best.map_or(speed, |best| best.max(speed))));
            let found = plan_with_stages(&case.task(), stages);
            assert_eq!(found.is_some(), best.is_some(), "seed {seed}, {stages} stages");
            let (Some(found), Some(best)) = (found, best) else { continue };
            assert!(case.fits(&found) && found.stages.len() == stages, "seed {seed}: {found:?}");
            assert!((found.all_users / best - 1.0).abs() < 1e-9, "seed {seed}: {best} and {found:?}");
            best_of_any = best_of_any.max(best);
            planned += 1;
        }
        match plan(&case.task()) {
            Ok(plan) => {
                assert!(plan.all_users >= best_of_any / 1.05 - 1e-9, "seed {seed}");
                for fewer in 1..plan.stages.len() {
                    let fewer = plan_with_stages(&case.task(), fewer);
                    assert!(fewer.is_none_or(|fewer| fewer.all_users * 1.05 < best_of_any), "seed {seed}");
                }
            }
            Err(error) => {
                assert!(best_of_any == 0.0 && error.to_string().contains("let more machines join"), "{error}");
            }
        }
    }
    assert!(planned > 600, "{planned} plans prove little");
}

#[test]
fn a_plan_says_what_it_expects() {
    let cost = |bytes: u64| Cost { bytes, row_reads: bytes, products: 0, cache_bytes: 0 };
    let layers = vec![cost(50_000_000); 20];
    let model =
        ModelCosts { layers, ends: cost(100_000_000), starts: (0..20).collect(), row_bytes: 8000, needs_tokens: false };
    let speed = |read: u64| MachineSpeed {
        read_bytes_per_second: read,
        products_per_second: 1_000_000_000_000,
        memory_bytes: 4 << 30,
        threads: 1,
    };
    let link = Some(LinkSpeed { round_trip_microseconds: 1000, bytes_per_second: 100_000_000 });
    let machines = [
        Candidate { name: "here".to_owned(), speed: speed(10_000_000_000), link: None },
        Candidate { name: "node-00".to_owned(), speed: speed(5_000_000_000), link },
    ];
    let task = |users: u32| Task { model: &model, coordinator: speed(10_000_000_000), machines: &machines, users };
    // Alone, 1.1 GB take 110 ms here; a second machine only adds its way.
    let alone = plan(&task(1)).expect("it fits");
    assert_eq!((alone.stages.len(), alone.one_user.round()), (1, 9.0));
    // With two users, the coordinator has 13 layers and both ends, 75 ms, and the other 70 ms and its way.
    let both = plan_with_stages(&task(2), 2).expect("it fits");
    let layers: Vec<_> = both.stages.iter().map(|stage| stage.layers.clone()).collect();
    assert_eq!((layers, both.slowest.as_str()), (vec![0..13, 13..20], "here"));
    assert!((both.all_users - 2.0 / 0.15).abs() < 1e-9 && (both.one_user - 1.0 / 0.14616).abs() < 1e-9, "{both:?}");
    // Token ids leave the coordinator only with layers that need them.
    let needy = ModelCosts { needs_tokens: true, ..model.clone() };
    let sends = |model, stages| plan_with_stages(&Task { model, ..task(2) }, stages).expect("it fits").sends_tokens;
    assert_eq!([sends(&model, 2), sends(&needy, 1), sends(&needy, 2)], [false, false, true]);
    // Both ends stay with a coordinator that is slow at them, whoever else there is.
    let (coordinator, others) = (speed(1_000_000_000), vec![machines[1].clone(); 40]);
    let slow = Task { coordinator, machines: &others, ..task(8) };
    assert_eq!(plan_with_stages(&slow, 4).expect("it fits").slowest, "here");
    assert!(plan(&slow).expect("a part of them is looked at").stages.len() <= MOST_MACHINES);
}

#[test]
fn a_worker_tells_its_speed_and_shows_that_of_its_link() {
    let (here, mut there) = channel_pair([fair(), fair()]);
    let speed = speed(&mut Chance(1));
    let worker = thread::spawn(move || {
        let hello = Hello { program: "test".to_owned(), shard: None, sandbox: Sandbox::None };
        greet_measured(&mut there, &hello, (&speed, &|| true)).err().map(|error| error.to_string())
    });
    let mut pending_worker = PendingWorker::hear(Box::new(here), "node-00").expect("it says hello");
    let (told, link) = pending_worker.measure().expect("it answers");
    assert_eq!(told, speed);
    assert!(link.bytes_per_second > 0);
    pending_worker.send_away("come back");
    assert_eq!(worker.join().expect("it ends").as_deref(), Some("come back"));
}
