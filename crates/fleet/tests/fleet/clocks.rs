//! Clocks that are set, and machines that are suspended: tokens and leases do not change, and what a machine says after
//! it wakes up counts for nothing.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cascadia_fleet::clock::Simulation;
use cascadia_fleet::frame::Kind;
use cascadia_fleet::link::{LinkFaults, fair};
use cascadia_fleet::{Clock, Digest, Invitation, Members, RemoteStage, Timeouts};
use cascadia_model::{Hidden, Placement, Stage, StageError, StageTraits, StepPlan};

use crate::hash_model::{Chance, HashStage, generate, model_workers, simulated};
use crate::standbys::{PATIENCE, admit_worker, hashes, oracle};

const HOUR: i64 = 3600;

#[test]
fn invitations_expire_by_the_wall_clock() {
    let simulation = Simulation::new(1);
    let clock = simulation.clock();
    let folder = tempfile::tempdir().expect("a folder");
    let members = Members::at(&folder.path().join("members.json")).on_clock(clock);
    let invitation = Invitation::new(Vec::new(), Digest::of(b"key"), clock.unix_seconds() + 1800).expect("random");
    members.invite(&invitation, 1).expect("it can be written");
    // Half an hour is over once the clock says so, and lasts longer when the clock is set back.
    for (set, is_open) in [(0, true), (HOUR, false), (-HOUR, true), (-HOUR, true)] {
        let before = clock.unix_seconds();
        simulation.set_wall_clock(set);
        assert_eq!(members.invites(), is_open, "{set}");
        assert!(set == 0 || clock.unix_seconds().abs_diff(before) == HOUR.unsigned_abs());
    }
    simulation.finish();
}

/// A machine that is suspended in one of its steps, for so long.
struct Suspended {
    inner: HashStage,
    clock: Clock,
    steps: AtomicU64,
    sleep: Duration,
    until: Arc<Mutex<Option<Instant>>>,
}

impl Stage for Suspended {
    fn layers(&self) -> Range<u32> {
        self.inner.layers()
    }

    fn traits(&self) -> StageTraits {
        StageTraits::exact(Placement::Remote)
    }

    fn run(&self, plan: &StepPlan, hidden: &mut Hidden) -> Result<(), StageError> {
        if self.steps.fetch_add(1, Ordering::Relaxed) == 20 {
            *self.until.lock().unwrap() = Some(self.clock.now() + self.sleep);
            self.clock.sleep(self.sleep);
        }
        self.inner.run(plan, hidden)
    }
}

/// Nothing leaves a machine while it is suspended; what it says of the step afterwards is counted.
fn suspended(clock: &Clock, until: &Arc<Mutex<Option<Instant>>>, stale: &Arc<AtomicU64>) -> LinkFaults {
    let (clock, until, stale) = (clock.clone(), Arc::clone(until), Arc::clone(stale));
    let slept = AtomicBool::new(false);
    Box::new(move |piece| match *until.lock().unwrap() {
        Some(until) if clock.now() < until => {
            slept.store(true, Ordering::Relaxed);
            Some(Vec::new())
        }
        _ => {
            let is_stale = slept.load(Ordering::Relaxed) && piece.first() == Some(&(Kind::Rows as u8));
            stale.fetch_add(u64::from(is_stale), Ordering::Relaxed);
            Some(vec![piece])
        }
    })
}

#[test]
fn what_a_machine_says_after_it_was_suspended_counts_for_nothing() {
    for (seconds, has_standby) in [(5, true), (60, true), (5, false), (60, false)] {
        simulated(|clock| {
            let (expected, _) = oracle();
            let (model_workers, until, stale) = (model_workers().on_clock(clock), Arc::default(), Arc::default());
            let (own, asleep) = (clock.clone(), Arc::clone(&until));
            let sleep = Duration::from_secs(seconds);
            let stage = move || Suspended {
                inner: hashes(0),
                clock: own.clone(),
                steps: AtomicU64::new(0),
                sleep,
                until: Arc::clone(&asleep),
            };
            admit_worker(&model_workers, "sleeper", (0, stage), [fair(), suspended(clock, &until, &stale)]);
            admit_worker(&model_workers, "other", (0, || hashes(0)), [fair(), fair()]);
            admit_worker(&model_workers, "last", (1, || hashes(1)), [fair(), fair()]);
            let timeouts = Timeouts { silence: Timeouts::default().silence, ..PATIENCE };
            let stages = [0, 1].map(|stage| RemoteStage::new(&model_workers, stage, timeouts));
            let stages = stages.map(|stage| if has_standby { stage } else { stage.without_standby() });
            let begin = clock.now();
            let tokens =
                generate(&mut Chance(1), |plan, hidden| stages.iter().try_for_each(|stage| stage.run(plan, hidden)));
            assert!(tokens == expected, "other tokens after {seconds} s");
            let status = stages[0].status();
            assert_eq!((status.lost, status.node.as_deref()), (1, Some("other")), "{seconds} s");
            assert!(clock.since(begin) < Duration::from_secs(2), "nobody waits until it wakes up");
            clock.sleep(sleep);
            assert_eq!(stale.load(Ordering::Relaxed), 1, "it answers when it wakes up, after {seconds} s");
            assert_eq!(stages[0].status().steps, status.steps, "nobody takes that");
        });
    }
}
