//! A machine that becomes slow is replaced by a standby that is not, and kept where there is none.

use std::cell::Cell;
use std::ops::Range;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cascadia_fleet::link::fair;
use cascadia_fleet::{AuditLog, Auditor, Clock, Identity, ModelWorkers, RemoteStage, StageStatus, Verb};
use cascadia_model::{Hidden, Placement, Stage, StageError, StageTraits, StepPlan};

use crate::hash_model::{HashStage, WIDTH, model_workers, simulated};
use crate::standbys::{PATIENCE, admit_worker, hashes, plan, run, step};

/// What a step takes on a slow machine; otherwise it takes no time.
const DELAY: Duration = Duration::from_millis(200);
/// After so many steps of a sequence it is known what is usual for about as many rows before: for 32 to 63 after eight.
/// None of those eight is compared with anything, so that nothing depends on how long one of them took.
const KNOWN: u32 = 31 + 8;
/// Steps in which something comes to be that is sure to.
const ENOUGH: usize = 100;

/// A stage that may become slow.
struct Delayed {
    inner: HashStage,
    clock: Clock,
    is_slow: Arc<AtomicBool>,
}

impl Stage for Delayed {
    fn layers(&self) -> Range<u32> {
        self.inner.layers()
    }

    fn traits(&self) -> StageTraits {
        StageTraits::exact(Placement::Remote)
    }

    fn run(&self, plan: &StepPlan, hidden: &mut Hidden) -> Result<(), StageError> {
        if self.is_slow.load(Ordering::SeqCst) {
            self.clock.sleep(DELAY);
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
    steps: Cell<u64>,
}

impl Drill {
    fn new(model_workers: ModelWorkers) -> Drill {
        let stage = RemoteStage::new(&model_workers, 0, PATIENCE);
        Drill { clock: model_workers.clock().clone(), model_workers, stage, local: hashes(0), steps: Cell::new(0) }
    }

    /// Brings a machine; says where it can be made a slow one.
    fn bring(&self, node: &str) -> Arc<AtomicBool> {
        let is_slow = Arc::new(AtomicBool::new(false));
        let (asked, clock) = (Arc::clone(&is_slow), self.clock.clone());
        let stage = move || Delayed { inner: hashes(0), clock: clock.clone(), is_slow: Arc::clone(&asked) };
        admit_worker(&self.model_workers, node, (0, stage), [fair(), fair()]);
        is_slow
    }

    /// Computes these positions of a sequence there and here, and finds the same.
    fn compute(&self, sequence: u64, positions: Range<u32>) -> StageStatus {
        for start in positions {
            let plan = plan(sequence, start, 0);
            let mut hidden = Hidden { values: vec![1.0; WIDTH], width: WIDTH };
            run(&self.clock, slice::from_ref(&self.stage), &plan, &mut hidden).expect("nobody is lost");
            assert_eq!(hidden.values, step(&self.local, &plan).expect("it runs here"), "{sequence} at {start}");
            self.steps.set(self.steps.get() + 1);
        }
        self.stage.status()
    }

    /// Computes the next position again and again until the stage is as it should be.
    fn compute_until(&self, is_so: impl Fn(&StageStatus) -> bool) -> StageStatus {
        let mut all = (0..ENOUGH).map(|_| self.compute(0, KNOWN..KNOWN + 1));
        all.find(is_so).unwrap_or_else(|| panic!("it does not come to that: {:?}", self.stage.status()))
    }
}

fn shows(StageStatus { node, standby, slow, .. }: &StageStatus) -> (Option<&str>, Option<&str>, Vec<&str>) {
    (node.as_deref(), standby.as_deref(), slow.iter().map(String::as_str).collect())
}

#[test]
fn the_standby_of_a_slow_machine_replaces_it() {
    simulated(|clock| {
        let folder = tempfile::tempdir().expect("a folder");
        let log = AuditLog::at(&folder.path().join("audit"));
        let identity = Identity::open_or_make(&folder.path().join("key")).expect("a key");
        let auditor = Arc::new(Auditor::new(log.clone(), identity));
        let drill = Drill::new(model_workers().on_clock(clock).audited(&auditor));
        let [first, _] = ["first", "second"].map(|node| drill.bring(node));
        drill.compute(0, 0..KNOWN);
        first.store(true, Ordering::SeqCst);
        let status = drill.compute_until(|status| status.bypassed > 0);
        // Nothing was computed again, and nobody was lost.
        assert_eq!((status.bypassed, status.lost, status.rows), (1, 0, drill.steps.get()));
        assert_eq!(shows(&status), (Some("second"), Some("first"), vec!["first"]));
        auditor.tick(|_| {}).expect("it can be written");
        let mut told = Vec::new();
        log.read(|record, _| told.push((record.entry.verb, record.entry.who.clone()))).expect("it can be read");
        let machine = |verb, node: &str| (verb, node.to_owned());
        let expected = [(Verb::StageTaken, "first"), (Verb::StageSlow, "first"), (Verb::StageTaken, "second")];
        assert_eq!(told, expected.map(|(verb, node)| machine(verb, node)));
        // It is a spare like others once it is as quick as before.
        first.store(false, Ordering::SeqCst);
        drill.compute(1, 0..KNOWN);
        let status = drill.compute_until(|status| status.slow.is_empty());
        assert_eq!((status.bypassed, shows(&status)), (1, (Some("second"), Some("first"), vec![])));
    });
}

#[test]
fn a_slow_machine_is_better_than_none_and_than_one_that_lacks_caches() {
    simulated(|clock| {
        let drill = Drill::new(model_workers().on_clock(clock));
        let first = drill.bring("first");
        drill.compute(0, 0..KNOWN);
        first.store(true, Ordering::SeqCst);
        let status = drill.compute_until(|status| !status.slow.is_empty());
        assert_eq!((status.bypassed, shows(&status)), (0, (Some("first"), None, vec!["first"])));
        drill.bring("late");
        let status = drill.compute(0, KNOWN - 4..KNOWN);
        assert_eq!((status.bypassed, shows(&status)), (0, (Some("first"), Some("late"), vec!["first"])));
        // What begins from now on, the other has too.
        let status = drill.compute(1, 0..2);
        assert_eq!((status.bypassed, status.lost), (1, 0));
        assert_eq!(shows(&status), (Some("late"), Some("first"), vec!["first"]));
    });
}

#[test]
fn where_both_are_slow_nothing_changes() {
    simulated(|clock| {
        let drill = Drill::new(model_workers().on_clock(clock));
        let [first, second] = ["first", "second"].map(|node| drill.bring(node));
        drill.compute(0, 0..KNOWN);
        // The one that would take over is slow before the other is.
        second.store(true, Ordering::SeqCst);
        drill.compute_until(|status| status.slow == ["second"]);
        first.store(true, Ordering::SeqCst);
        drill.compute_until(|status| status.slow == ["first", "second"]);
        let status = drill.compute(0, KNOWN - 4..KNOWN);
        assert_eq!((status.bypassed, shows(&status)), (0, (Some("first"), Some("second"), vec!["first", "second"])));
    });
}
