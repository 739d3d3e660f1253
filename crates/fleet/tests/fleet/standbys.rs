//! A standby continues where a machine is lost, without computing anything again, and changes nothing where it is slow
//! or lost itself.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cascadia_fleet::frame::Kind;
use cascadia_fleet::link::{LinkFaults, fair};
use cascadia_fleet::{Clock, ModelWorkers, RemoteStage, StageStatus, Timeouts};
use cascadia_model::{
    Hidden, NumericsClass, PageClass, PageRun, Placement, SequenceStep, Stage, StageError, StageTraits, StepPlan,
};

use crate::hash_model::{Cache, Chance, HashStage, STAGES, WIDTH, generate, model_workers, simulated, worker_on};

pub(crate) const PATIENCE: Timeouts = Timeouts {
    step: Duration::from_secs(60),
    row: Duration::ZERO,
    worker: Duration::from_millis(20),
    silence: LONGEST,
};
/// What has not happened by then never will.
const LONGEST: Duration = Duration::from_secs(60);

/// A stage of hashes with a cache of its own.
pub(crate) fn hashes(layer: u32) -> HashStage {
    HashStage { cache: Cache::default(), layer }
}

/// The tokens of one process, and how many rows a stage computes for them.
pub(crate) fn oracle() -> (Vec<Vec<u32>>, u64) {
    let local: Vec<_> = (0..STAGES as u32).map(hashes).collect();
    let mut rows = 0;
    let tokens = generate(&mut Chance(1), |plan, hidden| {
        rows += plan.tokens.len() as u64;
        local.iter().try_for_each(|stage| stage.run(plan, hidden))
    });
    (tokens, rows)
}

/// Brings a machine for a stage.
pub(crate) fn admit_worker<S: Stage + 'static>(
    model_workers: &ModelWorkers,
    node: &str,
    (number, stage): (usize, impl Fn() -> S + Send + 'static),
    faults: [LinkFaults; 2],
) {
    let stage = move || Box::new(stage()) as Box<dyn Stage>;
    let link = worker_on(model_workers.clock(), number, stage, faults);
    assert_eq!(model_workers.admit(Box::new(link), node), Ok(number));
}

/// Stage 0 on machines that were brought for it, stage 1 on one that never fails.
pub(crate) fn stages(model_workers: &ModelWorkers) -> [RemoteStage; STAGES] {
    admit_worker(model_workers, "last", (1, || hashes(1)), [fair(), fair()]);
    [0, 1].map(|stage| RemoteStage::new(model_workers, stage, PATIENCE))
}

/// Runs a step on all stages, and waits until the standby of the first has computed it too, as it does where steps take
/// their time.
pub(crate) fn run(
    clock: &Clock,
    stages: &[RemoteStage],
    plan: &StepPlan,
    hidden: &mut Hidden,
) -> Result<(), StageError> {
    let before = stages[0].status().followed;
    stages.iter().try_for_each(|stage| stage.run(plan, hidden))?;
    let standby = stages[0].status().standby;
    // Another has not been sent the step.
    let has_followed = |now: &StageStatus| standby.is_none() || now.standby != standby || now.followed > before;
    assert!(has_followed(&look_after(clock, &stages[0], has_followed)), "the standby does not follow");
    Ok(())
}

/// Looks after a stage until it is as it should be, and says how it is then.
pub(crate) fn look_after(clock: &Clock, stage: &RemoteStage, is_well: impl Fn(&StageStatus) -> bool) -> StageStatus {
    let begin = clock.now();
    loop {
        let status = stage.status();
        if is_well(&status) || clock.since(begin) > LONGEST {
            return status;
        }
        clock.sleep(Duration::from_micros(200));
        stage.check();
    }
}

/// Fair until so many pieces have passed; then the link is cut, or nothing passes any more. And whether it is so far.
pub(crate) fn deadly(mut pieces: u32, cut: bool) -> (LinkFaults, Arc<AtomicBool>) {
    let is_over = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&is_over);
    let faults: LinkFaults = Box::new(move |piece| {
        // How many of these there are depends on the time.
        if pieces > 0 && piece.first() == Some(&(Kind::Beat as u8)) {
            return Some(vec![piece]);
        }
        let passes = pieces > 0;
        pieces = pieces.saturating_sub(1);
        over.store(!passes, Ordering::SeqCst);
        (passes || !cut).then(|| Vec::from_iter(passes.then_some(piece)))
    });
    (faults, is_over)
}

/// Brings a machine for stage 0 that says so many pieces.
fn admit_mortal(model_workers: &ModelWorkers, node: &str, pieces: u32, cut: bool) {
    admit_worker(model_workers, node, (0, || hashes(0)), [fair(), deadly(pieces, cut).0]);
}

/// Fair until the machine dies.
fn mortal(dead: &Arc<AtomicBool>) -> LinkFaults {
    let dead = Arc::clone(dead);
    Box::new(move |piece| (!dead.load(Ordering::SeqCst)).then(|| vec![piece]))
}

#[test]
fn a_standby_continues_in_the_middle_of_a_step() {
    simulated(|clock| {
        let ((expected, rows), mut saved) = (oracle(), 0);
        // The first pieces are its greeting, that it is ready, and that it is there.
        let deaths = [3, 4, 6, 20, 45, 70].map(|pieces| (pieces, true)).into_iter().chain([(3, false), (30, false)]);
        for (pieces, cut) in deaths {
            let model_workers = model_workers().on_clock(clock);
            admit_mortal(&model_workers, "first", pieces, cut);
            admit_worker(&model_workers, "standby", (0, || hashes(0)), [fair(), fair()]);
            let stages = stages(&model_workers);
            let tokens = generate(&mut Chance(1), |plan, hidden| {
                let ran = run(clock, &stages, plan, hidden);
                assert!(ran.is_ok(), "after {pieces} pieces: {ran:?}");
                ran
            });
            let status = stages[0].status();
            assert!(tokens == expected, "after {pieces} pieces");
            assert_eq!(status.rows, rows, "something was computed again after {pieces} pieces");
            let continued =
                (status.lost, status.node.as_deref(), status.standby.as_deref()) == (1, Some("standby"), None);
            // One that has too much to do may be passed over before it dies.
            assert!(continued || status.bypassed > 0, "after {pieces} pieces: {status:?}");
            saved += status.saved;
        }
        // Some die between two steps.
        assert!(saved >= 2, "the first steps are answered by standbys");
    });
}

/// A step of one sequence in one page.
pub(crate) fn plan(sequence: u64, start: u32, generation: u64) -> StepPlan {
    let runs = vec![PageRun { class: PageClass::Full, first: 0, pages: vec![sequence as u32] }];
    let step = SequenceStep { id: sequence, rows: 0..1, start, runs, adapter: None, second_text: None };
    StepPlan { tokens: vec![1], steps: vec![step], generation }
}

pub(crate) fn step(stage: &dyn Stage, plan: &StepPlan) -> Result<Vec<f32>, StageError> {
    let mut hidden = Hidden { values: vec![1.0; WIDTH], width: WIDTH };
    stage.run(plan, &mut hidden).map(|()| hidden.values)
}

/// A stage of hashes whose pages cannot be copied.
struct Uncopied(HashStage);

impl Stage for Uncopied {
    fn layers(&self) -> std::ops::Range<u32> {
        self.0.layers()
    }

    fn traits(&self) -> StageTraits {
        self.0.traits()
    }

    fn run(&self, plan: &StepPlan, hidden: &mut Hidden) -> Result<(), StageError> {
        self.0.run(plan, hidden)
    }
}

#[test]
fn a_standby_that_came_late_continues_with_what_it_has_seen() {
    simulated(|clock| {
        let (model_workers, dead, local) =
            (model_workers().on_clock(clock), Arc::new(AtomicBool::new(false)), hashes(0));
        admit_worker(&model_workers, "first", (0, || Uncopied(hashes(0))), [mortal(&dead), mortal(&dead)]);
        let stage = RemoteStage::new(&model_workers, 0, PATIENCE);
        let check = |sequence, start| {
            let plan = plan(sequence, start, 0);
            let expected = step(&local, &plan).expect("it runs here");
            assert_eq!(step(&stage, &plan).expect("it runs there"), expected, "sequence {sequence} at {start}");
        };
        check(0, 0);
        admit_worker(&model_workers, "late", (0, || hashes(0)), [fair(), fair()]);
        check(0, 1);
        check(1, 0);
        check(0, 2);
        check(1, 1);
        dead.store(true, Ordering::SeqCst);
        check(1, 2);
        check(2, 0);
        check(1, 3);
        let status = stage.status();
        assert_eq!((status.node.as_deref(), status.saved), (Some("late"), 1));
        let error = step(&stage, &plan(0, 3, 0)).expect_err("it never had the beginning").to_string();
        assert!(error.contains("the machine that ran them is gone"), "{error}");
        // What was computed before counts no more, as everything is computed again.
        assert_eq!(
            step(&stage, &plan(0, 0, 1)).expect("it is there"),
            step(&hashes(0), &plan(0, 0, 1)).expect("it is here")
        );
        assert!(step(&stage, &plan(1, 4, 0)).is_err(), "the old generation is over");
    });
}

/// A stage that takes its time: until all others are done.
struct Slow {
    clock: Clock,
    inner: HashStage,
    are_others_done: Arc<AtomicBool>,
}

impl Stage for Slow {
    fn layers(&self) -> std::ops::Range<u32> {
        self.inner.layers()
    }

    fn traits(&self) -> StageTraits {
        StageTraits::exact(Placement::Remote)
    }

    fn run(&self, plan: &StepPlan, hidden: &mut Hidden) -> Result<(), StageError> {
        while !self.are_others_done.load(Ordering::SeqCst) {
            self.clock.sleep(Duration::from_millis(1));
        }
        self.inner.run(plan, hidden)
    }
}

#[test]
fn a_standby_that_is_slow_or_lost_changes_nothing() {
    simulated(|clock| {
        let (expected, rows) = oracle();
        let check = |name: &str, bring: &dyn Fn(&ModelWorkers)| {
            let model_workers = model_workers().on_clock(clock);
            admit_worker(&model_workers, "first", (0, || hashes(0)), [fair(), fair()]);
            bring(&model_workers);
            let stages = stages(&model_workers);
            let tokens = generate(&mut Chance(1), |plan, hidden| {
                let ran = stages.iter().try_for_each(|stage| stage.run(plan, hidden));
                assert!(ran.is_ok(), "{name}: {ran:?}");
                ran
            });
            // One that is lost is noticed the next time that it is looked after.
            let status = look_after(clock, &stages[0], |status| status.standby.is_none());
            assert!(tokens == expected, "{name}");
            assert_eq!((status.rows, status.lost, status.node.as_deref()), (rows, 0, Some("first")), "{name}");
            assert_eq!(status.standby, None, "{name}");
        };
        for pieces in [2, 3, 4, 10] {
            for cut in [true, false] {
                check(&format!("a standby that says {pieces} pieces"), &|model_workers| {
                    admit_mortal(model_workers, "dies", pieces, cut)
                });
            }
        }
        let done = Arc::new(AtomicBool::new(false));
        check("a slow standby", &|model_workers| {
            let done = Arc::clone(&done);
            let clock = clock.clone();
            let slow = move || Slow { clock: clock.clone(), inner: hashes(0), are_others_done: Arc::clone(&done) };
            admit_worker(model_workers, "slow", (0, slow), [fair(), fair()]);
        });
        done.store(true, Ordering::SeqCst);
    });
}

#[test]
fn spares_only_wait_where_people_say_so() {
    simulated(|clock| {
        let model_workers = model_workers().on_clock(clock);
        for node in ["first", "spare"] {
            admit_worker(&model_workers, node, (0, || hashes(0)), [fair(), fair()]);
        }
        let stage = RemoteStage::new(&model_workers, 0, PATIENCE).without_standby();
        step(&stage, &plan(0, 0, 0)).expect("it computes");
        stage.check();
        let status = stage.status();
        assert_eq!((status.standby, status.spares), (None, vec!["spare".to_owned()]));
    });
}

/// A stage of hashes that says it computes other bits.
struct OtherNumerics(HashStage);

impl Stage for OtherNumerics {
    fn layers(&self) -> std::ops::Range<u32> {
        self.0.layers()
    }

    fn traits(&self) -> StageTraits {
        StageTraits { numerics: NumericsClass("other"), ..self.0.traits() }
    }

    fn run(&self, plan: &StepPlan, hidden: &mut Hidden) -> Result<(), StageError> {
        self.0.run(plan, hidden)
    }
}

#[test]
fn rows_are_compared_only_within_a_class_of_numerics() {
    simulated(|clock| {
        let model_workers = model_workers().on_clock(clock);
        admit_worker(&model_workers, "first", (0, || hashes(0)), [fair(), fair()]);
        admit_worker(&model_workers, "other", (0, || OtherNumerics(hashes(0))), [fair(), fair()]);
        let stage = RemoteStage::new(&model_workers, 0, PATIENCE);
        step(&stage, &plan(0, 0, 0)).expect("it computes");
        let status = stage.status();
        assert_eq!((status.standby, status.spares), (None, vec!["other".to_owned()]));
        admit_worker(&model_workers, "same", (0, || hashes(0)), [fair(), fair()]);
        step(&stage, &plan(0, 1, 0)).expect("it computes");
        assert_eq!(stage.status().standby.as_deref(), Some("same"));
    });
}

/// A stage that counts the sequences which have not ended.
struct Counting {
    inner: HashStage,
    sequences: Arc<Mutex<BTreeSet<u64>>>,
}

impl Stage for Counting {
    fn layers(&self) -> std::ops::Range<u32> {
        self.inner.layers()
    }

    fn traits(&self) -> StageTraits {
        self.inner.traits()
    }

    fn run(&self, plan: &StepPlan, hidden: &mut Hidden) -> Result<(), StageError> {
        self.sequences.lock().unwrap().extend(plan.steps.iter().map(|step| step.id));
        self.inner.run(plan, hidden)
    }

    fn end_sequence(&self, id: u64) {
        assert!(self.sequences.lock().unwrap().remove(&id), "{id} was never there, or has ended before");
    }
}

#[test]
fn workers_hear_of_the_sequences_they_compute_and_of_their_end() {
    simulated(|clock| {
        let (model_workers, all) =
            (model_workers().on_clock(clock), [0, 1].map(|_| Arc::<Mutex<BTreeSet<u64>>>::default()));
        for (node, sequences) in ["first", "second"].into_iter().zip(&all) {
            let sequences = Arc::clone(sequences);
            let counting = move || Counting { inner: hashes(0), sequences: Arc::clone(&sequences) };
            admit_worker(&model_workers, node, (0, counting), [fair(), fair()]);
        }
        let stage = RemoteStage::new(&model_workers, 0, PATIENCE);
        let known = || all.each_ref().map(|sequences| Vec::from_iter(sequences.lock().unwrap().iter().copied()));
        for (sequence, start) in [(3, 0), (5, 0), (5, 1)] {
            step(&stage, &plan(sequence, start, 0)).expect("it computes");
            clock.sleep(Duration::from_millis(1));
        }
        assert_eq!(known(), [[3, 5], [3, 5]]);
        stage.end_sequence(3);
        step(&stage, &plan(5, 2, 0)).expect("it computes");
        clock.sleep(Duration::from_millis(1));
        assert_eq!(known(), [[5], [5]]);
        // What a coordinator leaves behind ends with its connection.
        drop((stage, model_workers));
        clock.sleep(Duration::from_secs(1));
        assert_eq!(known(), [[0; 0], [0; 0]]);
    });
}
