//! A machine that runs out of memory leaves before the system ends its worker, and answers continue elsewhere.

use std::sync::Arc;
use std::time::Duration;

use cascadia_fleet::link::{fair, timed_pair};
use cascadia_fleet::{AuditLog, Auditor, Availability, Identity, RemoteStage, Verb, WorkerStage};
use cascadia_model::Stage;

use crate::hash_model::{Chance, LEASE, generate, hello, model_workers, shape, simulated};
use crate::standbys::{PATIENCE, admit_worker, hashes, oracle};

/// Generates while the machine that computes has used this share of its memory since step 20; says how often machines were
/// lost, who computed at the end, and why machines were lost.
fn generate_with(used: f64) -> (u64, Option<String>, Vec<String>) {
    let mut seen = None;
    simulated(|clock| {
        let ((expected, _), memory) = (oracle(), Arc::new(Availability::default()));
        let folder = tempfile::tempdir().expect("a folder");
        let log = AuditLog::at(&folder.path().join("audit"));
        let identity = Identity::open_or_make(&folder.path().join("key")).expect("a key");
        let auditor = Arc::new(Auditor::new(log.clone(), identity));
        let model_workers = model_workers().on_clock(clock).audited(&auditor);
        let load = |_: &_| Ok(Box::new(hashes(0)) as Box<dyn Stage>);
        let worker = WorkerStage::new(hello(0), shape(), LEASE, Box::new(load));
        let mut worker = worker.with_availability(Arc::clone(&memory));
        let (here, mut there) = timed_pair(clock, Duration::ZERO, [fair(), fair()]);
        clock.spawn(move || worker.serve(&mut there));
        assert_eq!(model_workers.admit(Box::new(here), "full"), Ok(0));
        admit_worker(&model_workers, "well", (0, || hashes(0)), [fair(), fair()]);
        let (stage, local, mut steps) = (RemoteStage::new(&model_workers, 0, PATIENCE), hashes(1), 0);
        let tokens = generate(&mut Chance(1), |plan, hidden| {
            steps += 1;
            memory.update_memory((steps > 20).then_some(used), clock.now());
            stage.run(plan, hidden)?;
            local.run(plan, hidden)
        });
        assert!(tokens == expected, "other tokens");
        auditor.tick(|_| {}).expect("it can be written");
        let mut lost = Vec::new();
        log.read(|record, _| lost.extend((record.entry.verb == Verb::StageLost).then(|| record.entry.note.clone())))
            .expect("it can be read");
        let status = stage.status();
        seen = Some((status.lost, status.node, lost));
    });
    seen.expect("it was run")
}

#[test]
fn a_machine_without_memory_leaves_and_its_standby_continues() {
    assert_eq!(generate_with(0.94), (0, Some("full".to_owned()), Vec::new()), "it sheds what it does not need");
    let (lost, node, why) = generate_with(0.96);
    assert_eq!((lost, node.as_deref()), (1, Some("well")));
    assert!(why.len() == 1 && why[0].contains("its memory is nearly used up: 96 %"), "{why:?}");
}
