//! A machine that is revoked is cut off, whatever it does at that moment, and what it saw is known.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cascadia_fleet::link::{fair, timed_pair};
use cascadia_fleet::{
    AuditLog, Auditor, Clock, Digest, Hello, Identity, Member, Members, RemoteStage, Sandbox, SeenRequests, Timeouts,
    WorkerRegistry, WorkerStage, greet, write_json,
};
use cascadia_model::{Hidden, PageClass, PageRun, SequenceStep, Stage, StepPlan};

use crate::harness::PROGRAM;
use crate::hash_model::{Cache, HashStage, WIDTH, hello, model_workers, shape, simulated};

/// How often a coordinator looks after its workers.
const CHECK: Duration = Duration::from_secs(1);
/// How long a machine may stay connected after it was revoked.
const CUT_OFF: Duration = Duration::from_secs(2);
/// The one that computes, its standby, one that waits for a stage, and one that waits for a shard.
const NODES: [&str; 4] = ["computes", "standby", "spare", "waits"];

/// A coordinator with four machines, in simulated time.
struct Office {
    clock: Clock,
    members: Arc<Members>,
    registry: Arc<WorkerRegistry>,
    auditor: Arc<Auditor>,
    stage: Arc<RemoteStage>,
    /// When the links of machines ended.
    ended: Arc<Mutex<Vec<(&'static str, Instant)>>>,
}

impl Office {
    fn open(clock: &Clock, folder: &Path) -> Office {
        let path = folder.join("members.json");
        let members: Vec<Member> = NODES.iter().map(|name| Member::new(*name, Digest::of(name.as_bytes()))).collect();
        write_json(&path, &serde_json::json!({ "members": members, "invitations": [] })).expect("it can be written");
        let members = Arc::new(Members::at(&path).on_clock(clock));
        let key = Identity::open_or_make(&folder.join("key")).expect("a key");
        let auditor = Arc::new(Auditor::new(AuditLog::at(&folder.join("audit")).on_clock(clock), key));
        let workers = Arc::new(model_workers().on_clock(clock).for_members(&members).audited(&auditor));
        let registry = Arc::new(WorkerRegistry::on_clock(clock));
        registry.open(&workers);
        let stage = Arc::new(RemoteStage::new(&workers, 0, Timeouts::default()));
        let office = Office { clock: clock.clone(), members, registry, auditor, stage, ended: Arc::default() };
        NODES.iter().for_each(|node| office.connect(node));
        office
    }

    fn connect(&self, node: &'static str) {
        let (here, mut there) = timed_pair(&self.clock, Duration::from_millis(1), [fair(), fair()]);
        let (ended, clock, registry) = (Arc::clone(&self.ended), self.clock.clone(), Arc::clone(&self.registry));
        self.clock.spawn(move || {
            let cache = Cache::default();
            let load = move |_: &_| Ok(Box::new(HashStage { cache: Arc::clone(&cache), layer: 0 }) as Box<dyn Stage>);
            match node {
                "waits" => {
                    let hello = Hello { program: PROGRAM.to_owned(), shard: None, sandbox: Sandbox::None };
                    while greet(&mut there, &hello).is_ok() {}
                }
                _ => {
                    drop(WorkerStage::new(hello(0), shape(), Duration::from_secs(5), Box::new(load)).serve(&mut there))
                }
            }
            ended.lock().unwrap().push((node, clock.now()));
        });
        registry.admit(Box::new(here), node).expect("it fits");
    }

    /// A step of one row of a request.
    fn step(&self, request: u64) {
        let runs = vec![PageRun { class: PageClass::Full, first: 0, pages: vec![request as u32] }];
        let step = SequenceStep { id: request, rows: 0..1, start: 0, runs, adapter: None, second_text: None };
        let plan = StepPlan { tokens: vec![1], steps: vec![step], generation: request };
        let mut hidden = Hidden { values: vec![0.0; WIDTH], width: WIDTH };
        self.stage.run(&plan, &mut hidden).expect("somebody computes");
    }

    /// Lets time pass as it does on a coordinator, with or without requests.
    fn pass(&self, time: Duration, mut request: Option<u64>) {
        let end = self.clock.now() + time;
        while self.clock.now() < end {
            self.registry.sweep(CHECK, |node| self.members.has(node));
            self.stage.check();
            let next = self.clock.now() + CHECK;
            while self.clock.now() < next {
                request.iter().for_each(|request| self.step(*request));
                request = request.map(|request| (request + 1) % 8);
                self.clock.sleep(Duration::from_millis(100));
            }
        }
    }

    fn seen_by(&self, node: &str, folder: &Path) -> Vec<String> {
        self.auditor.tick(|_| {}).expect("it can be written");
        SeenRequests::of(&folder.join("audit"), node).unwrap().iter().map(SeenRequests::numbers).collect()
    }
}

#[test]
fn a_revoked_machine_is_cut_off_within_two_seconds() {
    for victim in NODES {
        for is_busy in [true, false] {
            let folder = tempfile::tempdir().expect("a folder");
            simulated(|clock| {
                let office = Office::open(clock, folder.path());
                office.step(0);
                office.pass(3 * CHECK, is_busy.then_some(1));
                let status = office.stage.status();
                assert_eq!((status.node.as_deref(), status.standby.as_deref()), (Some("computes"), Some("standby")));
                assert!(office.ended.lock().unwrap().is_empty(), "all are there");
                // Not at the moment at which it is looked.
                clock.sleep(Duration::from_millis(37));
                let begin = clock.now();
                assert!(office.members.revoke(victim).expect("it can be written"));
                office.pass(3 * CHECK, is_busy.then_some(2));
                let ended = office.ended.lock().unwrap().clone();
                let [(node, end)] = ended[..] else { panic!("{victim} should be cut off alone: {ended:?}") };
                assert_eq!(node, victim);
                assert!(end - begin <= CUT_OFF, "{victim} was there for {:?}", end - begin);
                drop(office);
            });
        }
    }
}

#[test]
fn what_a_machine_saw_is_known_and_no_more() {
    let folder = tempfile::tempdir().expect("a folder");
    simulated(|clock| {
        let office = Office::open(clock, folder.path());
        (0..3).for_each(|request| office.step(request));
        // The standby follows from the second step on at the latest.
        let [computes, standby, spare] =
            ["computes", "standby", "spare"].map(|node| office.seen_by(node, folder.path()).join("; "));
        assert_eq!(computes, "0-2");
        assert!(["0-2", "1-2"].contains(&standby.as_str()) && spare.is_empty(), "{standby}, {spare}");
        assert!(office.members.revoke("computes").expect("it can be written"));
        office.pass(2 * CHECK, None);
        office.step(7);
        assert_eq!(office.seen_by("computes", folder.path()), ["0-2"]);
        assert!(office.seen_by("standby", folder.path())[0].ends_with("-2, 7"));
        drop(office);
    });
}
