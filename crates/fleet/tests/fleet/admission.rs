//! Who is admitted, who computes, and how machines that hang are told from machines that are busy.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use cascadia_fleet::link::{Link, LinkFaults, channel_pair, fair, timed_pair};
use cascadia_fleet::{
    Availability, Clock, Digest, Hello, OwnerLimits, Reading, RemoteStage, RowShape, Sandbox, StageLimits, Timeouts,
    WorkerStage,
};
use cascadia_model::{Hidden, PageClass, PageRun, Placement, SequenceStep, Stage, StageError, StageTraits, StepPlan};

use crate::harness::PROGRAM;
use crate::hash_model::{LEASE, WIDTH, hello, model_workers, shape, simulated, worker, worker_on};
use crate::standbys::deadly;

/// A machine that hangs is noticed by its silence alone.
const PATIENCE: Timeouts = Timeouts {
    step: Duration::from_secs(3600),
    row: Duration::ZERO,
    worker: Duration::from_millis(20),
    silence: Duration::from_secs(60),
};

/// A stage that takes its time and adds one.
struct Slow {
    clock: Clock,
    time: Duration,
}

impl Stage for Slow {
    fn layers(&self) -> Range<u32> {
        0..1
    }

    fn traits(&self) -> StageTraits {
        StageTraits::exact(Placement::Remote)
    }

    fn run(&self, _: &StepPlan, hidden: &mut Hidden) -> Result<(), StageError> {
        self.clock.sleep(self.time);
        hidden.values.iter_mut().for_each(|value| *value += 1.0);
        Ok(())
    }
}

/// A worker that takes so long for a step.
fn slow(clock: &Clock, time: Duration, faults: [LinkFaults; 2]) -> Box<dyn Link> {
    let slow = clock.clone();
    Box::new(worker_on(clock, 0, move || Box::new(Slow { clock: slow.clone(), time }), faults))
}

fn quick(clock: &Clock, faults: [LinkFaults; 2]) -> Box<dyn Link> {
    slow(clock, Duration::ZERO, faults)
}

/// Fair until so many pieces have passed besides heartbeats; then nothing does, and nobody is told.
fn partition(pieces: u32) -> LinkFaults {
    deadly(pieces, false).0
}

/// A step of one row.
fn plan(generation: u64) -> StepPlan {
    let step = SequenceStep {
        id: 0,
        rows: 0..1,
        start: 0,
        runs: vec![PageRun { class: PageClass::Full, first: 0, pages: vec![0] }],
        adapter: None,
        second_text: None,
    };
    StepPlan { tokens: vec![1], steps: vec![step], generation }
}

/// Runs it.
fn step(stage: &RemoteStage, generation: u64) -> Result<Vec<f32>, StageError> {
    let mut hidden = Hidden { values: vec![0.0; WIDTH], width: WIDTH };
    stage.run(&plan(generation), &mut hidden).map(|()| hidden.values)
}

#[test]
fn a_busy_machine_is_waited_for() {
    simulated(|clock| {
        let (model_workers, minutes) = (model_workers().on_clock(clock), Duration::from_secs(600));
        model_workers.admit(slow(clock, minutes, [fair(), fair()]), "busy").expect("it fits");
        let (stage, begin) = (RemoteStage::new(&model_workers, 0, PATIENCE), clock.now());
        assert_eq!(step(&stage, 0).expect("it answers in the end"), [1.0; WIDTH]);
        assert_eq!((stage.status().lost, clock.since(begin)), (0, minutes));
    });
}

#[test]
fn a_machine_that_falls_silent_is_left_for_a_spare() {
    simulated(|clock| {
        let model_workers = model_workers().on_clock(clock);
        // What the first says: hello, ready, a heartbeat when it is taken. Its rows never come.
        model_workers.admit(quick(clock, [fair(), partition(3)]), "silent").expect("it fits");
        // The second says nothing any more while it waits.
        model_workers.admit(quick(clock, [fair(), partition(2)]), "gone").expect("it fits");
        model_workers.admit(quick(clock, [fair(), fair()]), "spare").expect("it fits");
        let stage = RemoteStage::new(&model_workers, 0, PATIENCE).without_standby();
        let begin = clock.now();
        let error = step(&stage, 0).expect_err("it is silent").to_string();
        assert!(error.contains("silent: it did not answer in time"), "{error}");
        assert_eq!(clock.since(begin), PATIENCE.silence);
        let error = step(&stage, 0).expect_err("it counts on what is lost").to_string();
        assert!(error.contains("the machine that ran them is gone"), "{error}");
        assert_eq!(step(&stage, 1).expect("the spare computes"), [1.0; WIDTH]);
        let error = step(&stage, 0).expect_err("the spare never had its cache").to_string();
        assert!(error.contains("the machine that ran them is gone"), "{error}");
        stage.check();
        assert_eq!(stage.status().node.as_deref(), Some("spare"));
        assert_eq!(model_workers.stages()[0].count(), 0, "the one that was gone was released");
    });
}

#[test]
fn a_machine_whose_owner_needs_it_leaves_between_steps() {
    simulated(|clock| {
        let (model_workers, turn) = (model_workers().on_clock(clock), Arc::new(Availability::default()));
        let (here, mut there) = timed_pair(clock, Duration::ZERO, [fair(), fair()]);
        let quick_stage = Slow { clock: clock.clone(), time: Duration::ZERO };
        let mut stage = Some(quick_stage);
        let load = move |_: &StageLimits| Ok(Box::new(stage.take().expect("it is loaded once")) as Box<dyn Stage>);
        let worker = WorkerStage::new(hello(0), shape(), LEASE, Box::new(load));
        let mut worker = worker.with_availability(Arc::clone(&turn));
        let left = clock.spawn(move || worker.serve(&mut there).to_string());
        model_workers.admit(Box::new(here), "laptop").expect("it fits");
        model_workers.admit(quick(clock, [fair(), fair()]), "spare").expect("it fits");
        let stage = RemoteStage::new(&model_workers, 0, PATIENCE).without_standby();
        assert_eq!(step(&stage, 0).expect("it computes"), [1.0; WIDTH]);
        let reading = Reading { on_battery: Some(true), ..Reading::default() };
        turn.update(&OwnerLimits::default(), &reading, clock.now());
        // It answers what comes while it decides, and then it is gone.
        let error = (0..).find_map(|_| step(&stage, 0).err()).expect("it leaves").to_string();
        assert!(error.contains("laptop: it left, because it runs on battery"), "{error}");
        assert!(left.join(None).expect("it ends").contains("this machine left, because it runs on battery"));
        assert_eq!(step(&stage, 1).expect("the spare computes"), [1.0; WIDTH]);
        assert_eq!(stage.status().node.as_deref(), Some("spare"));
    });
}

#[test]
fn old_heartbeats_of_a_spare_do_not_count() {
    simulated(|clock| {
        let model_workers = model_workers().on_clock(clock);
        // Hello, ready, and answers to two questions, each after heartbeats that nobody asked for.
        model_workers.admit(quick(clock, [fair(), partition(4)]), "spare").expect("it fits");
        for left in [1, 1, 0, 0] {
            clock.sleep(Duration::from_millis(80));
            model_workers.stages()[0].sweep(PATIENCE.silence);
            assert_eq!(model_workers.stages()[0].count(), left);
        }
    });
}

#[test]
fn machines_that_are_lost_often_come_last() {
    simulated(|clock| {
        let model_workers = model_workers().on_clock(clock);
        let admit = |name: &str, says: u32| {
            model_workers.admit(quick(clock, [fair(), partition(says)]), name).expect("it fits");
        };
        admit("flapping", 3);
        let stage = RemoteStage::new(&model_workers, 0, PATIENCE);
        step(&stage, 0).expect_err("it falls silent");
        admit("flapping", u32::MAX);
        admit("steady", u32::MAX);
        step(&stage, 1).expect("someone computes");
        assert_eq!(stage.status().node.as_deref(), Some("steady"));
    });
}

/// A stage whose rows are no numbers.
struct Nonsense;

impl Stage for Nonsense {
    fn layers(&self) -> Range<u32> {
        0..1
    }

    fn traits(&self) -> StageTraits {
        StageTraits::exact(Placement::Remote)
    }

    fn run(&self, _: &StepPlan, hidden: &mut Hidden) -> Result<(), StageError> {
        hidden.values.fill(f32::NAN);
        Ok(())
    }
}

/// A stage that computes nothing.
struct Refusal;

impl Stage for Refusal {
    fn layers(&self) -> Range<u32> {
        0..1
    }

    fn traits(&self) -> StageTraits {
        StageTraits::exact(Placement::Remote)
    }

    fn run(&self, _: &StepPlan, _: &mut Hidden) -> Result<(), StageError> {
        Err(StageError::Plan { problem: "it will not".into() })
    }
}

#[test]
fn a_step_is_at_fault_where_two_machines_agree() {
    let kinds: [fn() -> Box<dyn Stage>; 2] = [|| Box::new(Nonsense), || Box::new(Refusal)];
    for kind in kinds {
        let model_workers = model_workers();
        for node in ["one", "other"] {
            let link = worker(0, kind, [fair(), fair()]);
            model_workers.admit(Box::new(link), node).expect("it fits");
        }
        let stage = RemoteStage::new(&model_workers, 0, PATIENCE).without_standby();
        let error = step(&stage, 0).expect_err("it gives no numbers");
        assert!(matches!(error, StageError::Lost { while_computing: true, .. }), "{error}");
        let error = step(&stage, 1).expect_err("nor does the other");
        let both = error.to_string().contains("neither one nor other");
        assert!(matches!(error, StageError::Plan { .. }) && both, "{error}");
        assert_eq!(stage.status().node.as_deref(), Some("other"), "the machine is not at fault");
    }
    let model_workers = model_workers();
    model_workers.admit(Box::new(worker(0, kinds[0], [fair(), fair()])), "one").expect("it fits");
    let stage = RemoteStage::new(&model_workers, 0, PATIENCE);
    let mut hidden = Hidden { values: vec![f32::INFINITY; WIDTH], width: WIDTH };
    let error = stage.run(&plan(2), &mut hidden).expect_err("nobody is asked to compute with that");
    assert!(matches!(error, StageError::Plan { .. }), "{error}");
}

#[test]
fn without_any_worker_a_stage_says_so() {
    let stage = RemoteStage::new(&model_workers(), 1, PATIENCE);
    let error = step(&stage, 0).expect_err("nobody is there");
    assert!(matches!(&error, StageError::Lost { layers, .. } if *layers == (1..2)), "{error}");
}

#[test]
fn workers_that_do_not_fit_hear_why() {
    let model_workers = model_workers();
    let check = |program: &str, shard: Option<Digest>, expected: &str| {
        let (here, mut there) = channel_pair([fair(), fair()]);
        let hello = Hello { program: program.to_owned(), shard, sandbox: Sandbox::None };
        let shape = RowShape { hidden_width: WIDTH, needs_tokens: false };
        let load = |_: &StageLimits| Err("it is not asked to load anything".to_owned());
        let mut worker = WorkerStage::new(hello, shape, Duration::from_secs(5), Box::new(load));
        let heard = thread::spawn(move || worker.serve(&mut there).to_string());
        let refused = model_workers.admit(Box::new(here), "node-07").expect_err("it does not fit").to_string();
        assert!(refused.contains(expected) && refused.contains("node-07"), "{refused}");
        assert_eq!(heard.join().expect("the worker hears it"), refused);
    };
    let first = model_workers.manifest().stages[0].digest;
    check("0.0.9", Some(first), "runs version 0.0.9, the coordinator runs test");
    check(PROGRAM, Some(Digest::of(b"another")), "which is none of");
    check(PROGRAM, None, "holds no shard");
}

#[test]
fn machines_that_say_nothing_do_not_pile_up() {
    let (model_workers, ends, is_over) = (model_workers(), Mutex::new(Vec::new()), AtomicBool::new(false));
    // Who is released before all are there comes again: after a time in which it said nothing, or because the one who
    // looks whether they are had a place at that moment.
    let come = |node: &str| {
        while !is_over.load(Ordering::SeqCst) {
            let (link, end) = channel_pair([fair(), fair()]);
            ends.lock().unwrap().push(end);
            let _ = model_workers.admit(Box::new(link), node);
        }
    };
    thread::scope(|scope| {
        // Eight machines, each with as many connections as one may have.
        let nodes: Vec<String> = (0..256).map(|number| format!("silent-{}", number / 32)).collect();
        nodes.into_iter().for_each(|node| drop(scope.spawn(move || come(&node))));
        let refused = || {
            let link = channel_pair([fair(), fair()]).0;
            model_workers.admit(Box::new(link), "late").is_err_and(|error| error.to_string().contains("too many"))
        };
        while !refused() {
            thread::yield_now();
        }
        is_over.store(true, Ordering::SeqCst);
        ends.lock().unwrap().clear();
    });
}
