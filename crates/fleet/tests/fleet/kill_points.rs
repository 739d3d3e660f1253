//! A machine that dies at a named point of its work: never another token, never a broken file.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use cascadia_fleet::frame::Kind;
use cascadia_fleet::link::{LinkFaults, fair};
use cascadia_fleet::{Digest, RemoteStage, Timeouts};
use cascadia_model::Stage;

use crate::hash_model::{Cache, Chance, HashStage, STAGES, Watched, generate, model_workers, worker};
use crate::pushing::{MIB, check, shard};

/// Who sends the frame at which a machine dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sender {
    Coordinator,
    Worker,
}

/// When it dies: the frame is not sent, half of it is, or all of it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Moment {
    Before,
    Within,
    After,
}

/// A point in the life of a connection: a frame, by its kind and how many of that kind there were.
pub(crate) struct Point {
    pub(crate) name: &'static str,
    pub(crate) sender: Sender,
    pub(crate) kind: Kind,
    pub(crate) count: u32,
    pub(crate) moments: &'static [Moment],
}

/// A machine under load is not taken for a dead one, whose point would never come; deaths are noticed much sooner.
const PATIENCE: Timeouts = Timeouts {
    step: Duration::from_secs(60),
    row: Duration::ZERO,
    worker: Duration::from_secs(2),
    silence: Duration::from_secs(60),
};
/// Points that are tried at the same time.
const THREADS: usize = 6;

const ALWAYS: &[Moment] = &[Moment::Before, Moment::Within, Moment::After];
/// Half a frame is not followed by an end of the link here, and nobody waits for the rest for less than a minute.
const WHOLE: &[Moment] = &[Moment::Before, Moment::After];

const fn point(name: &'static str, (sender, kind): (Sender, Kind), count: u32, moments: &'static [Moment]) -> Point {
    Point { name, sender, kind, count, moments }
}

const WORK: [Point; 15] = [
    point("greeting", (Sender::Worker, Kind::Hello), 1, WHOLE),
    point("order to load", (Sender::Coordinator, Kind::Welcome), 1, WHOLE),
    point("loaded", (Sender::Worker, Kind::Ready), 1, WHOLE),
    point("question whether it is there", (Sender::Coordinator, Kind::Ping), 1, ALWAYS),
    point("its answer", (Sender::Worker, Kind::Pong), 1, ALWAYS),
    point("first part of a prompt", (Sender::Coordinator, Kind::Step), 1, ALWAYS),
    point("its rows", (Sender::Worker, Kind::Rows), 1, ALWAYS),
    point("second part of a prompt", (Sender::Coordinator, Kind::Step), 2, ALWAYS),
    point("its rows", (Sender::Worker, Kind::Rows), 2, ALWAYS),
    point("first tokens", (Sender::Coordinator, Kind::Step), 5, ALWAYS),
    point("their rows", (Sender::Worker, Kind::Rows), 5, ALWAYS),
    point("answers under way", (Sender::Coordinator, Kind::Step), 20, ALWAYS),
    point("their rows", (Sender::Worker, Kind::Rows), 20, ALWAYS),
    point("answers beyond a page", (Sender::Coordinator, Kind::Step), 50, ALWAYS),
    point("their rows", (Sender::Worker, Kind::Rows), 50, ALWAYS),
];

const PUSH: [Point; 6] = [
    point("offer", (Sender::Coordinator, Kind::Offer), 1, WHOLE),
    point("what is there", (Sender::Worker, Kind::Have), 1, WHOLE),
    point("first piece", (Sender::Coordinator, Kind::Chunk), 1, ALWAYS),
    point("second piece", (Sender::Coordinator, Kind::Chunk), 2, ALWAYS),
    point("last piece", (Sender::Coordinator, Kind::Chunk), 4, WHOLE),
    point("all of it", (Sender::Worker, Kind::Have), 2, WHOLE),
];

/// No faults until the machine dies, then nothing in either direction; and whether it has died.
pub(crate) fn deadly(point: &Point, moment: Moment) -> ([LinkFaults; 2], Arc<AtomicBool>) {
    let dead = Arc::new(AtomicBool::new(false));
    let faults = |sender: Sender| -> LinkFaults {
        let (dead, kind) = (Arc::clone(&dead), point.kind as u8);
        let mut left = if sender == point.sender { point.count } else { 0 };
        Box::new(move |piece| {
            if dead.load(Ordering::SeqCst) {
                return None;
            }
            if left == 0 || piece[0] != kind {
                return Some(vec![piece]);
            }
            left -= 1;
            if left > 0 {
                return Some(vec![piece]);
            }
            dead.store(true, Ordering::SeqCst);
            match moment {
                Moment::Before => None,
                Moment::Within => Some(vec![piece[..piece.len() / 2].to_vec()]),
                Moment::After => Some(vec![piece]),
            }
        })
    };
    ([faults(Sender::Coordinator), faults(Sender::Worker)], dead)
}

fn points(table: &[Point]) -> impl Iterator<Item = (&Point, Moment, String)> {
    table.iter().flat_map(|point| {
        let name = move |moment: &Moment| format!("{moment:?} {} ({:?} {})", point.name, point.kind, point.count);
        point.moments.iter().map(move |moment| (point, *moment, name(moment)))
    })
}

/// The tokens of a fleet whose first machine dies there; the others live.
fn survive(point: &Point, moment: Moment, name: &str) -> Vec<Vec<u32>> {
    let model_workers = model_workers();
    let admit_worker = |node: &str, stage: usize, (faults, dead): ([LinkFaults; 2], Arc<AtomicBool>)| {
        let cache = Cache::default();
        let hashes = move || Box::new(HashStage { cache: Arc::clone(&cache), layer: stage as u32 }) as Box<dyn Stage>;
        model_workers.admit(Box::new(Watched { link: worker(stage, hashes, faults), is_silent: dead }), node)
    };
    let lives = || ([fair(), fair()], Arc::<AtomicBool>::default());
    let (faults, dead) = deadly(point, moment);
    // One that dies before it is let in is not let in.
    let worker = admit_worker("first", 0, (faults, Arc::clone(&dead)));
    assert!(worker.is_ok() || dead.load(Ordering::SeqCst), "{name}");
    for stage in 0..STAGES {
        assert_eq!(admit_worker("other", stage, lives()), Ok(stage));
    }
    let stages: Vec<_> = (0..STAGES).map(|stage| RemoteStage::new(&model_workers, stage, PATIENCE)).collect();
    let tokens = generate(&mut Chance(1), |plan, hidden| {
        stages.iter().enumerate().try_for_each(|(index, stage)| {
            let ran = stage.run(plan, hidden);
            // A machine may be taken for dead where this one has too much to do.
            if ran.is_err() && model_workers.stages()[index].count() == 0 {
                drop(admit_worker("another", index, lives()));
            }
            ran
        })
    });
    // One that has too much to do may be passed over for the other before it comes to that.
    let is_passed_over = stages[0].status().bypassed > 0;
    assert!(dead.load(Ordering::SeqCst) || is_passed_over, "{name} never came");
    tokens
}

#[test]
fn a_death_at_a_named_point_changes_no_token() {
    let local: Vec<_> = (0..STAGES as u32).map(|layer| HashStage { cache: Cache::default(), layer }).collect();
    let expected = generate(&mut Chance(1), |plan, hidden| local.iter().try_for_each(|stage| stage.run(plan, hidden)));
    let (all, expected): (Vec<_>, _) = (points(&WORK).collect(), &expected);
    // Most of the time they wait.
    thread::scope(|scope| {
        for share in all.chunks(all.len().div_ceil(THREADS)) {
            scope.spawn(move || {
                for (point, moment, name) in share {
                    assert!(survive(point, *moment, name) == *expected, "{name}");
                }
            });
        }
    });
    assert!(points(&WORK).chain(points(&PUSH)).count() >= 40, "there are too few points");
}

#[test]
fn a_push_continues_after_a_death_at_a_named_point() {
    let from = tempfile::tempdir().expect("a folder");
    let shard = shard(from.path(), 3 * MIB + 4567);
    for (point, moment, name) in points(&PUSH) {
        let to = tempfile::tempdir().expect("a folder");
        let (faults, dead) = deadly(point, moment);
        let (pushed, taken, _) = check(from.path(), &shard, (to.path(), u64::MAX), faults);
        assert!(dead.load(Ordering::SeqCst), "{name} never came");
        let said_all = matches!(moment, Moment::After) && point.name == "all of it";
        assert_eq!(pushed.is_ok() && taken.is_ok(), said_all, "{name}");
        let (pushed, taken, _) = check(from.path(), &shard, (to.path(), u64::MAX), [fair(), fair()]);
        assert!(pushed.is_ok() && taken.is_ok(), "{name}");
        let found = Digest::of_file(&to.path().join(shard.digest.to_string())).expect("it is there");
        assert_eq!(found, (shard.digest, shard.bytes), "{name}");
    }
}
