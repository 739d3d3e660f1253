//! Losses that come together, during recovery, and again and again: the same tokens, or an error that says so.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cascadia_fleet::frame::Kind;
use cascadia_fleet::link::{Weather, fair};
use cascadia_fleet::{Harbour, Patience, Quarantine, RemoteStage};
use cascadia_model::{Hidden, Stage, StageError, StepPlan};

use crate::hash_model::{Cache, Chance, HashStage, STAGES, generate, harbour, worker};
use crate::kill_points::{Moment, Point, Sender, deadly};

/// Deaths are told here; a machine that only takes its time is not taken for dead.
const PATIENCE: Patience = Patience {
    step: Duration::from_secs(60),
    row: Duration::ZERO,
    worker: Duration::from_millis(50),
    silence: Duration::from_secs(60),
};

fn dock(harbour: &Harbour, (node, stage): (&str, usize), weather: [Weather; 2]) {
    let cache = Cache::default();
    let hashes = move || Box::new(HashStage { cache: Arc::clone(&cache), layer: stage as u32 }) as Box<dyn Stage>;
    // One that dies at the door is not let in.
    let _ = harbour.admit(Box::new(worker(stage, hashes, weather)), node);
}

/// Without spares that compute along: who dies when would depend on how far behind they are.
fn stages(harbour: &Harbour) -> Vec<RemoteStage> {
    (0..STAGES).map(|stage| RemoteStage::new(harbour, stage, PATIENCE).without_shadow()).collect()
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
fn dies_at_step(count: u32) -> ([Weather; 2], Arc<AtomicBool>) {
    let point = Point { name: "step", sender: Sender::Coordinator, kind: Kind::Step, count, moments: &[] };
    deadly(&point, Moment::Before)
}

/// Dies with another.
fn dies_with(other: &Arc<AtomicBool>) -> [Weather; 2] {
    [0, 1].map(|_| -> Weather {
        let other = Arc::clone(other);
        Box::new(move |piece| (!other.load(Ordering::SeqCst)).then(|| vec![piece]))
    })
}

#[test]
fn two_machines_at_once_and_one_that_takes_over_change_no_token() {
    let expected = expected();
    for (count, during_recovery) in [(1, 1), (2, 1), (20, 1), (20, 2), (20, 7), (50, 1)] {
        let harbour = harbour();
        let (weather, first) = dies_at_step(count);
        dock(&harbour, ("first", 0), weather);
        dock(&harbour, ("beside", 1), dies_with(&first));
        // Who takes over dies while it catches up, and so does who had taken over beside it.
        let (weather, second) = dies_at_step(during_recovery);
        dock(&harbour, ("second", 0), weather);
        dock(&harbour, ("beside the second", 1), dies_with(&second));
        (0..STAGES).for_each(|stage| dock(&harbour, ("last", stage), [fair(), fair()]));
        let stages = stages(&harbour);
        let tokens = generate(&mut Chance(1), |plan, hidden| run(&stages, plan, hidden));
        assert!(tokens == expected, "{count} and {during_recovery}");
        assert!([first, second].iter().all(|died| died.load(Ordering::SeqCst)), "{count} and {during_recovery}");
        assert!(stages.iter().all(|stage| stage.status().node.as_deref() == Some("last")));
    }
}

#[test]
fn a_machine_that_flaps_is_used_only_where_there_is_no_other() {
    let quarantine = Arc::new(Quarantine::lasting(Duration::from_secs(300)));
    let harbour = harbour().wary(&quarantine);
    dock(&harbour, ("flapping", 0), dies_at_step(6).0);
    dock(&harbour, ("steady", 1), [fair(), fair()]);
    let (stages, mut restarts) = (stages(&harbour), 0);
    let tokens = generate(&mut Chance(1), |plan, hidden| {
        let ran = run(&stages, plan, hidden);
        if ran.is_err() && restarts < 10 && harbour.docks()[0].count() == 0 {
            restarts += 1;
            let weather = if restarts < 10 { dies_at_step(6).0 } else { [fair(), fair()] };
            dock(&harbour, ("flapping", 0), weather);
        }
        ran
    });
    assert!(tokens == expected(), "it did not lose a token while there was no other");
    assert_eq!((restarts, stages[0].status().lost), (10, 10));
    assert!(quarantine.held_back(Instant::now()).contains_key("flapping"));
    // It waits, and is no spare; who looks for a machine waits for another.
    dock(&harbour, ("flapping", 1), [fair(), fair()]);
    let other = &harbour.docks()[1];
    assert_eq!((other.names(), other.spares()), (vec!["flapping".to_owned()], Vec::new()));
    thread::scope(|scope| {
        let taken = scope.spawn(|| other.take(Instant::now() + Duration::from_secs(3600)).map(|docked| docked.node));
        dock(&harbour, ("new", 1), [fair(), fair()]);
        assert_eq!(taken.join().expect("it ends").as_deref(), Some("new"));
    });
    assert_eq!(other.take(Instant::now()).map(|docked| docked.node).as_deref(), Some("flapping"));
}

#[test]
fn spares_that_come_and_go_are_held_back_too() {
    let quarantine = Arc::new(Quarantine::lasting(Duration::from_secs(300)));
    let harbour = harbour().wary(&quarantine);
    let point = Point { name: "ping", sender: Sender::Coordinator, kind: Kind::Ping, count: 1, moments: &[] };
    for _ in 0..3 {
        assert!(quarantine.held_back(Instant::now()).is_empty());
        dock(&harbour, ("flapping", 0), deadly(&point, Moment::Before).0);
        harbour.docks()[0].sweep(PATIENCE.silence);
        assert_eq!(harbour.docks()[0].count(), 0);
    }
    assert!(quarantine.held_back(Instant::now()).contains_key("flapping"));
}
