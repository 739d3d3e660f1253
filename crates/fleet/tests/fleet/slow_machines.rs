//! A machine that becomes slow is bypassed where another computes along that is not, and kept where none does.

use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use cascadia_fleet::frame::Kind;
use cascadia_fleet::link::{Weather, fair};
use cascadia_fleet::{AuditLog, Auditor, Harbour, Identity, RemoteStage, StageStatus, Verb};
use cascadia_model::Hidden;

use crate::hash_model::{HashStage, WIDTH, harbour};
use crate::shadowing::{PATIENCE, dock, hashes, plan, run, step};

/// What rows take on a slow link; otherwise they take next to nothing.
const DELAY: Duration = Duration::from_millis(100);
/// Steps of about the same size: between two powers of two.
const FIRST: u32 = 31;
const LAST: u32 = 63;

/// Stage 0 beside the same stage in this process, and whether the links of slow machines are slow now.
struct Drill {
    harbour: Harbour,
    stage: RemoteStage,
    local: HashStage,
    is_slow: Arc<AtomicBool>,
}

impl Drill {
    fn new(harbour: Harbour) -> Drill {
        let stage = RemoteStage::new(&harbour, 0, PATIENCE);
        Drill { harbour, stage, local: hashes(0), is_slow: Arc::default() }
    }

    /// Brings a machine whose link is a slow one.
    fn bring_slow(&self, node: &str) {
        let is_slow = Arc::clone(&self.is_slow);
        let weather: Weather = Box::new(move |piece| {
            if piece.first() == Some(&(Kind::Rows as u8)) && is_slow.load(Ordering::SeqCst) {
                thread::sleep(DELAY);
            }
            Some(vec![piece])
        });
        dock(&self.harbour, node, (0, || hashes(0)), [fair(), weather]);
    }

    fn bring(&self, node: &str) {
        dock(&self.harbour, node, (0, || hashes(0)), [fair(), fair()]);
    }

    /// Computes these positions of a sequence there and here, and finds the same.
    fn compute(&self, sequence: u64, positions: std::ops::Range<u32>) -> StageStatus {
        for start in positions {
            let plan = plan(sequence, start, 0);
            let mut hidden = Hidden { values: vec![1.0; WIDTH], width: WIDTH };
            run(slice::from_ref(&self.stage), &plan, &mut hidden).expect("nobody is lost");
            assert_eq!(hidden.values, step(&self.local, &plan).expect("it runs here"), "{sequence} at {start}");
        }
        self.stage.status()
    }

    /// The same, with slow links from then on. Of the steps of about the same size, the first nine are quick.
    fn become_slow(&self, sequence: u64) -> StageStatus {
        self.is_slow.store(false, Ordering::SeqCst);
        self.compute(sequence, 0..FIRST + 9);
        self.is_slow.store(true, Ordering::SeqCst);
        self.compute(sequence, FIRST + 9..LAST)
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
    let drill = Drill::new(harbour().audited(&auditor));
    drill.bring_slow("first");
    drill.bring("second");
    let status = drill.become_slow(0);
    // Nothing was computed again, and nobody was lost.
    assert_eq!((status.bypassed, status.lost, status.rows), (1, 0, LAST.into()));
    assert_eq!(shows(&status), (Some("second"), Some("first"), vec!["first"]));
    auditor.tick(|_| {}).expect("it can be written");
    let mut told = Vec::new();
    log.read(|record, _| told.push((record.entry.verb, record.entry.who.clone()))).expect("it can be read");
    let machine = |verb, node: &str| (verb, node.to_owned());
    let expected = [(Verb::StageTaken, "first"), (Verb::StageSlow, "first"), (Verb::StageTaken, "second")];
    assert_eq!(told, expected.map(|(verb, node)| machine(verb, node)));
    // It is a spare like others once it is as quick as before.
    drill.is_slow.store(false, Ordering::SeqCst);
    let status = drill.compute(1, 0..LAST);
    assert_eq!((status.bypassed, shows(&status)), (1, (Some("second"), Some("first"), vec![])));
}

#[test]
fn a_slow_machine_is_better_than_none_and_than_one_that_lacks_caches() {
    let drill = Drill::new(harbour());
    drill.bring_slow("first");
    let status = drill.become_slow(0);
    assert_eq!((status.bypassed, shows(&status)), (0, (Some("first"), None, vec!["first"])));
    drill.bring("late");
    let status = drill.compute(0, LAST - 8..LAST);
    assert_eq!((status.bypassed, shows(&status)), (0, (Some("first"), Some("late"), vec!["first"])));
    // What begins from now on, the other has too.
    let status = drill.compute(1, 0..2);
    assert_eq!((status.bypassed, status.lost), (1, 0));
    assert_eq!(shows(&status), (Some("late"), Some("first"), vec!["first"]));
}

#[test]
fn where_both_are_slow_nothing_changes() {
    let drill = Drill::new(harbour());
    drill.bring_slow("first");
    drill.bring_slow("second");
    let status = drill.become_slow(0);
    assert_eq!((status.bypassed, shows(&status)), (0, (Some("first"), Some("second"), vec!["first", "second"])));
}
