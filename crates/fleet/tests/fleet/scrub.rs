//! A stored shard that is damaged while a worker runs is found, removed and not used any more.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use cascadia_fleet::link::{fair, timed_pair};
use cascadia_fleet::{
    AuditLog, Auditor, Digest, FleetEvent, FleetHome, Identity, KnownKeys, RemoteStage, Sandbox, Store, Verb,
    WorkerOptions, WorkerProcess, WorkerSettings, WorkerStage,
};
use cascadia_kernels::{OpsSlot, Pool};
use cascadia_model::Stage;
use cascadia_weights::WeightPages;

use crate::harness::Workshop;
use crate::hash_model::{Chance, LEASE, generate, hello, model_workers, shape, simulated};
use crate::standbys::{PATIENCE, admit_worker, hashes, oracle};

#[test]
fn a_damaged_shard_is_removed_and_forgotten() {
    let (workshop, folder) = (Workshop::new("llama3", None), tempfile::tempdir().expect("a folder"));
    let manifest = workshop.export(&[0, 1]);
    let events: Arc<Mutex<Vec<String>>> = Arc::default();
    let heard = Arc::clone(&events);
    let home = FleetHome::open(folder.path()).expect("a folder");
    let home = home.with_notify(Arc::new(move |event: &FleetEvent| heard.lock().unwrap().push(event.to_string())));
    let shards: Vec<Digest> = manifest.stages.iter().map(|shard| shard.digest).collect();
    let store = Store::open(&home.blobs(), u64::MAX).expect("a folder");
    for shard in &manifest.stages {
        fs::copy(workshop.folder.path().join(&shard.file), store.path(shard.digest)).expect("it can be copied");
    }
    // Nobody listens there.
    let (addresses, node) = (vec!["127.0.0.1:9".to_owned()], "node".to_owned());
    let keys = KnownKeys::invited(Digest::of(b"key"));
    let settings = WorkerSettings { addresses, keys, node, shards: shards.clone() };
    home.set_worker(&settings).expect("it can be written");
    let options = WorkerOptions {
        shard: None,
        coordinator: None,
        disk: None,
        memory: None,
        pool: Box::new(|_| Arc::new(Pool::new(1))),
        ops: Box::new(|_| OpsSlot::default()),
        pages: WeightPages::default(),
        sandbox: Sandbox::None,
    };
    let worker = WorkerProcess::start(home.clone(), options).expect("it starts");
    worker.scrub();
    assert_eq!(home.worker().expect("settings").shards, shards, "both are well");
    let path = store.path(shards[0]);
    let mut bytes = fs::read(&path).expect("it is there");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&path, bytes).expect("it can be written");
    worker.scrub();
    assert!(!path.exists() && store.path(shards[1]).exists());
    assert_eq!(home.worker().expect("settings").shards, shards[1..]);
    let short = shards[0].short();
    assert!(events.lock().unwrap().iter().any(|event| event.contains(&short) && event.contains("damaged")));
    worker.stop();
}

#[test]
fn a_machine_whose_shard_is_damaged_leaves_and_its_standby_continues() {
    simulated(|clock| {
        let ((expected, _), is_damaged) = (oracle(), Arc::new(AtomicBool::new(false)));
        let folder = tempfile::tempdir().expect("a folder");
        let log = AuditLog::at(&folder.path().join("audit"));
        let identity = Identity::open_or_make(&folder.path().join("key")).expect("a key");
        let auditor = Arc::new(Auditor::new(log.clone(), identity));
        let model_workers = model_workers().on_clock(clock).audited(&auditor);
        let load = |_: &_| Ok(Box::new(hashes(0)) as Box<dyn Stage>);
        let worker = WorkerStage::new(hello(0), shape(), LEASE, Box::new(load));
        let mut worker = worker.with_damage(Arc::clone(&is_damaged));
        let (here, mut there) = timed_pair(clock, std::time::Duration::ZERO, [fair(), fair()]);
        let works = clock.spawn(move || worker.serve(&mut there));
        assert_eq!(model_workers.admit(Box::new(here), "damaged"), Ok(0));
        admit_worker(&model_workers, "well", (0, || hashes(0)), [fair(), fair()]);
        let (stage, local, mut steps) = (RemoteStage::new(&model_workers, 0, PATIENCE), hashes(1), 0);
        let tokens = generate(&mut Chance(1), |plan, hidden| {
            steps += 1;
            is_damaged.store(steps > 20, Ordering::SeqCst);
            stage.run(plan, hidden)?;
            local.run(plan, hidden)
        });
        let status = stage.status();
        assert!(tokens == expected, "other tokens");
        assert_eq!((status.lost, status.node.as_deref()), (1, Some("well")));
        auditor.tick(|_| {}).expect("it can be written");
        let mut lost = Vec::new();
        log.read(|record, _| lost.extend((record.entry.verb == Verb::StageLost).then(|| record.entry.note.clone())))
            .expect("it can be read");
        assert!(lost.len() == 1 && lost[0].contains("its shard is damaged"), "{lost:?}");
        let ended = works.join(Some(clock.now())).expect("it has left");
        assert!(ended.to_string().contains("its shard is damaged"), "{ended}");
    });
}
