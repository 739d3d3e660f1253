//! A machine that becomes slow is bypassed where another computes along that is not, and kept where none does.

use std::cell::Cell;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use cascadia_fleet::frame::Kind;
use cascadia_fleet::link::{LinkFaults, fair};
use cascadia_fleet::{AuditLog, Auditor, Identity, ModelWorkers, RemoteStage, StageStatus, Verb};
use cascadia_model::Hidden;

use crate::hash_model::{HashStage, WIDTH, model_workers};
use crate::shadowing::{PATIENCE, hashes, plan, run, stage_workers, step};

/// What rows take on a slow link; otherwise they take next to nothing.
const DELAY: Duration = Duration::from_millis(200);
/// After so many steps of a sequence it is known what is usual for about as many rows before: for 32 to 63 after eight.
/// None of those eight is compared with anything, so that nothing depends on how long one of them took.
const KNOWN: u32 = 31 + 8;
/// Steps in which something comes to be that is sure to.
const ENOUGH: usize = 100;

/// Stage 0 beside the same stage in this process.
struct Drill {
    model_workers: ModelWorkers,
    stage: RemoteStage,
    local: HashStage,
    steps: Cell<u64>,
}

impl Drill {
    fn new(model_workers: ModelWorkers) -> Drill {
        let stage = RemoteStage::new(&model_workers, 0, PATIENCE);
        Drill { model_workers, stage, local: hashes(0), steps: Cell::new(0) }
    }

    /// Brings a machine; says where its link can be made a slow one.
    fn bring(&self, node: &str) -> Arc<AtomicBool> {
        let is_slow = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&is_slow);
        let faults: LinkFaults = Box::new(move |piece| {
            if piece.first() == Some(&(Kind::Rows as u8)) && asked.load(Ordering::SeqCst) {
                thread::sleep(DELAY);
            }
            Some(vec![piece])
        });
        stage_workers(&self.model_workers, node, (0, || hashes(0)), [fair(), faults]);
        is_slow
    }

    /// Computes these positions of a sequence there and here, and finds the same.
    fn compute(&self, sequence: u64, positions: std::ops::Range<u32>) -> StageStatus {
        for start in positions {
            let plan = plan(sequence, start, 0);
            let mut hidden = Hidden { values: vec![1.0; WIDTH], width: WIDTH };
            run(slice::from_ref(&self.stage), &plan, &mut hidden).expect("nobody is lost");
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

fn shows(StageStatus { node, shadow, slow, .. }: &StageStatus) -> (Option<&str>, Option<&str>, Vec<&str>) {
    (node.as_deref(), shadow.as_deref(), slow.iter().map(String::as_str).collect())
}

#[test]
fn the_machine_that_computes_along_goes_on_for_one_that_is_slow() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = AuditLog::at(&folder.path().join("audit"));
    let identity = Identity::open_or_make(&folder.path().join("key")).expect("a key");
    let auditor = Arc::new(Auditor::new(log.clone(), identity));
    let drill = Drill::new(model_workers().audited(&auditor));
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
}

#[test]
fn a_slow_machine_is_better_than_none_and_than_one_that_lacks_caches() {
    let drill = Drill::new(model_workers());
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
}

#[test]
fn where_both_are_slow_nothing_changes() {
    let drill = Drill::new(model_workers());
    let [first, second] = ["first", "second"].map(|node| drill.bring(node));
    drill.compute(0, 0..KNOWN);
    // The one that would go on is slow before the other is.
    second.store(true, Ordering::SeqCst);
    drill.compute_until(|status| status.slow == ["second"]);
    first.store(true, Ordering::SeqCst);
    drill.compute_until(|status| status.slow == ["first", "second"]);
    let status = drill.compute(0, KNOWN - 4..KNOWN);
    assert_eq!((status.bypassed, shows(&status)), (0, (Some("first"), Some("second"), vec!["first", "second"])));
}
