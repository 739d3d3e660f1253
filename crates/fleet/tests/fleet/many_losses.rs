//! Losses that come together, during recovery, and again and again: the same tokens, or an error that says so.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cascadia_fleet::frame::Kind;
use cascadia_fleet::link::{LinkFaults, fair};
use cascadia_fleet::{ModelWorkers, Quarantine, RemoteStage, Timeouts};
use cascadia_model::{Hidden, Stage, StageError, StepPlan};

use crate::hash_model::{Cache, Chance, HashStage, STAGES, generate, model_workers, simulated, worker_on};
use crate::kill_points::{Moment, Point, Sender, deadly};

/// Deaths are told here; a machine that only takes its time is not taken for dead.
const PATIENCE: Timeouts = Timeouts {
    step: Duration::from_secs(60),
    row: Duration::ZERO,
    worker: Duration::from_millis(50),
    silence: Duration::from_secs(60),
};

fn admit_worker(model_workers: &ModelWorkers, (node, stage): (&str, usize), faults: [LinkFaults; 2]) {
    let cache = Cache::default();
    let hashes = move || Box::new(HashStage { cache: Arc::clone(&cache), layer: stage as u32 }) as Box<dyn Stage>;
    // One that dies while it is admitted is not.
    let link = worker_on(model_workers.clock(), stage, hashes, faults);
    let _ = model_workers.admit(Box::new(link), node);
}

/// Without spares that compute along: who dies when would depend on how far behind they are.
fn stages(model_workers: &ModelWorkers) -> Vec<RemoteStage> {
    (0..STAGES).map(|stage| RemoteStage::new(model_workers, stage, PATIENCE).without_standby()).collect()
}

fn run(stages: &[RemoteStage], plan: &StepPlan, hidden: &mut Hidden) -> Result<(), StageError> {
    stages.iter().try_for_each(|stage| stage.run(plan, hidden))
}

/// The tokens of a process that loses nothing.
fn expected() -> Vec<Vec<u32>> {
    let local: Vec<_> = (0..STAGES as u32).map(|layer| HashStage { cache: Cache::default(), layer }).collect();
    generate(&mut Chance(1), |plan, hidden| local.iter().try_for_each(|stage| stage.run(plan, hidden)))
}

/// Dies before it is sent its step of this number.
fn dies_at_step(count: u32) -> ([LinkFaults; 2], Arc<AtomicBool>) {
    let point = Point { name: "step", sender: Sender::Coordinator, kind: Kind::Step, count, moments: &[] };
    deadly(&point, Moment::Before)
}

/// Dies with another.
fn dies_with(other: &Arc<AtomicBool>) -> [LinkFaults; 2] {
    [0, 1].map(|_| -> LinkFaults {
        let other = Arc::clone(other);
        Box::new(move |piece| (!other.load(Ordering::SeqCst)).then(|| vec![piece]))
    })
}

#[test]
fn two_machines_at_once_and_one_that_takes_over_change_no_token() {
    simulated(|clock| {
        let expected = expected();
        for (count, during_recovery) in [(1, 1), (2, 1), (20, 1), (20, 2), (20, 7), (50, 1)] {
            let model_workers = model_workers().on_clock(clock);
            let (faults, first) = dies_at_step(count);
            admit_worker(&model_workers, ("first", 0), faults);
            admit_worker(&model_workers, ("beside", 1), dies_with(&first));
            // Who takes over dies while it catches up, and so does who had taken over beside it.
            let (faults, second) = dies_at_step(during_recovery);
            admit_worker(&model_workers, ("second", 0), faults);
            admit_worker(&model_workers, ("beside the second", 1), dies_with(&second));
            (0..STAGES).for_each(|stage| admit_worker(&model_workers, ("last", stage), [fair(), fair()]));
            let stages = stages(&model_workers);
            let tokens = generate(&mut Chance(1), |plan, hidden| run(&stages, plan, hidden));
            assert!(tokens == expected, "{count} and {during_recovery}");
            assert!([first, second].iter().all(|died| died.load(Ordering::SeqCst)), "{count} and {during_recovery}");
            assert!(stages.iter().all(|stage| stage.status().node.as_deref() == Some("last")));
        }
    });
}

#[test]
fn a_machine_that_flaps_is_used_only_where_there_is_no_other() {
    simulated(|clock| {
        let quarantine = Arc::new(Quarantine::lasting(Duration::from_secs(300)));
        let model_workers = model_workers().on_clock(clock).with_quarantine(&quarantine);
        admit_worker(&model_workers, ("flapping", 0), dies_at_step(6).0);
        admit_worker(&model_workers, ("steady", 1), [fair(), fair()]);
        let (stages, mut restarts) = (stages(&model_workers), 0);
        let tokens = generate(&mut Chance(1), |plan, hidden| {
            let ran = run(&stages, plan, hidden);
            if ran.is_err() && restarts < 10 && model_workers.stages()[0].count() == 0 {
                restarts += 1;
                let faults = if restarts < 10 { dies_at_step(6).0 } else { [fair(), fair()] };
                admit_worker(&model_workers, ("flapping", 0), faults);
            }
            ran
        });
        assert!(tokens == expected(), "it did not lose a token while there was no other");
        assert_eq!((restarts, stages[0].status().lost), (10, 10));
        assert!(quarantine.held_back(clock.now()).contains_key("flapping"));
        // It waits, and is no spare; who looks for a machine waits for another.
        admit_worker(&model_workers, ("flapping", 1), [fair(), fair()]);
        let other = &model_workers.stages()[1];
        assert_eq!((other.names(), other.spares()), (vec!["flapping".to_owned()], Vec::new()));
        let (waiting, deadline) = (Arc::clone(other), clock.now() + Duration::from_secs(3600));
        let taken = clock.spawn(move || waiting.take(deadline).map(|worker| worker.node));
        admit_worker(&model_workers, ("new", 1), [fair(), fair()]);
        assert_eq!(taken.join(None).expect("it ends").as_deref(), Some("new"));
        assert_eq!(other.take(clock.now()).map(|worker| worker.node).as_deref(), Some("flapping"));
    });
}

#[test]
fn spares_that_come_and_go_are_held_back_too() {
    simulated(|clock| {
        let quarantine = Arc::new(Quarantine::lasting(Duration::from_secs(300)));
        let model_workers = model_workers().on_clock(clock).with_quarantine(&quarantine);
        let point = Point { name: "ping", sender: Sender::Coordinator, kind: Kind::Ping, count: 1, moments: &[] };
        for _ in 0..3 {
            assert!(quarantine.held_back(clock.now()).is_empty());
            admit_worker(&model_workers, ("flapping", 0), deadly(&point, Moment::Before).0);
            model_workers.stages()[0].sweep(PATIENCE.silence);
            assert_eq!(model_workers.stages()[0].count(), 0);
        }
        assert!(quarantine.held_back(clock.now()).contains_key("flapping"));
    });
}
