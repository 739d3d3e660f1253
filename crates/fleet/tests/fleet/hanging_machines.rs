//! A machine whose computation hangs while it sends heartbeats is not waited for longer than that is worth.

use std::ops::Range;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cascadia_fleet::link::fair;
use cascadia_fleet::{Clock, ModelWorkers, RemoteStage, StageStatus, Timeouts};
use cascadia_model::{Hidden, Placement, Stage, StageError, StageTraits, StepPlan};

use crate::hash_model::{HashStage, WIDTH, model_workers, simulated};
use crate::standbys::{admit_worker, hashes, plan, run, step};

/// As long as anyone would ever wait for a step.
const HANG: u64 = 600_000;
const TIMEOUTS: Timeouts = Timeouts {
    step: Duration::from_secs(2),
    row: Duration::from_secs(3600),
    worker: Duration::from_millis(20),
    silence: Duration::from_millis(250),
};
/// Steps in which something comes to be that is sure to.
const ENOUGH: u32 = 40;

/// A stage that takes its time, and tells how far it is.
struct Lengthy {
    inner: HashStage,
    clock: Clock,
    pace: Arc<StepPace>,
    layers: AtomicU64,
}

/// How long steps take, in milliseconds.
#[derive(Default)]
struct StepPace {
    /// In all.
    all: AtomicU64,
    /// After each of these a layer is computed; none if this is 0.
    a_layer: AtomicU64,
}

impl Stage for Lengthy {
    fn layers(&self) -> Range<u32> {
        self.inner.layers()
    }

    fn traits(&self) -> StageTraits {
        StageTraits::exact(Placement::Remote)
    }

    fn progress(&self) -> Option<u64> {
        Some(self.layers.load(Ordering::SeqCst))
    }

    fn run(&self, plan: &StepPlan, hidden: &mut Hidden) -> Result<(), StageError> {
        let (all, a_layer) = (self.pace.all.load(Ordering::SeqCst), self.pace.a_layer.load(Ordering::SeqCst));
        match a_layer {
            0 => self.clock.sleep(Duration::from_millis(all)),
            a_layer => (0..all / a_layer).for_each(|_| {
                self.clock.sleep(Duration::from_millis(a_layer));
                self.layers.fetch_add(1, Ordering::SeqCst);
            }),
        }
        self.inner.run(plan, hidden)
    }
}

/// Stage 0 beside the same stage in this process.
struct Drill {
    clock: Clock,
    model_workers: ModelWorkers,
    stage: RemoteStage,
    local: HashStage,
}

impl Drill {
    fn new(clock: &Clock) -> Drill {
        let model_workers = model_workers().on_clock(clock);
        let stage = RemoteStage::new(&model_workers, 0, TIMEOUTS);
        Drill { clock: clock.clone(), model_workers, stage, local: hashes(0) }
    }

    /// Brings a machine; says where its pace can be changed.
    fn bring(&self, node: &str) -> Arc<StepPace> {
        let pace = Arc::<StepPace>::default();
        let (own, clock) = (Arc::clone(&pace), self.clock.clone());
        let stage = move || Lengthy {
            inner: hashes(0),
            clock: clock.clone(),
            pace: Arc::clone(&own),
            layers: AtomicU64::new(0),
        };
        admit_worker(&self.model_workers, node, (0, stage), [fair(), fair()]);
        pace
    }

    /// Computes a position of a sequence there and here, and finds the same; gives how long that took.
    fn compute(&self, start: u32) -> (Result<StageStatus, StageError>, Duration) {
        let plan = plan(0, start, 0);
        let mut hidden = Hidden { values: vec![1.0; WIDTH], width: WIDTH };
        let begin = self.clock.now();
        let ran = run(&self.clock, slice::from_ref(&self.stage), &plan, &mut hidden);
        let time = self.clock.since(begin);
        if ran.is_ok() {
            assert_eq!(hidden.values, step(&self.local, &plan).expect("it runs here"), "at {start}");
        }
        (ran.map(|()| self.stage.status()), time)
    }
}

#[test]
fn the_standby_answers_for_a_machine_that_hangs() {
    // From its very first step on, and when it is known how long its steps take.
    for known in [0, 20] {
        simulated(|clock| {
            let drill = Drill::new(clock);
            let [first, _] = ["first", "second"].map(|node| drill.bring(node));
            (0..known).for_each(|start| assert!(drill.compute(start).0.is_ok()));
            first.all.store(HANG, Ordering::SeqCst);
            let (status, time) = drill.compute(known);
            let status = status.expect("the other has computed it too");
            assert_eq!((status.lost, status.saved, status.node.as_deref()), (1, 1, Some("second")));
            assert!(time < Duration::from_secs(1), "it took {time:?}");
        });
    }
}

#[test]
fn a_machine_that_is_slow_from_the_beginning_is_bypassed() {
    simulated(|clock| {
        let drill = Drill::new(clock);
        let [first, _] = ["first", "second"].map(|node| drill.bring(node));
        first.all.store(100, Ordering::SeqCst);
        let status = (0..ENOUGH).map(|start| drill.compute(start).0.expect("nobody is lost"));
        let status = status.last().expect("there were steps");
        assert_eq!((status.bypassed, status.lost, status.node.as_deref()), (1, 0, Some("second")));
    });
}

#[test]
fn a_machine_that_stands_still_is_lost_and_one_that_advances_is_not() {
    simulated(|clock| {
        let drill = Drill::new(clock);
        let only = drill.bring("only");
        only.all.store(HANG, Ordering::SeqCst);
        only.a_layer.store(4000, Ordering::SeqCst);
        let (status, time) = drill.compute(0);
        assert!(status.is_ok() && time >= Duration::from_millis(HANG), "{status:?} after {time:?}");
        only.a_layer.store(0, Ordering::SeqCst);
        let (status, time) = drill.compute(1);
        let problem = status.expect_err("it stands still").to_string();
        assert!(problem.contains("computed nothing for 6 s"), "{problem}");
        assert!(time < Duration::from_secs(7), "it took {time:?}");
    });
}
