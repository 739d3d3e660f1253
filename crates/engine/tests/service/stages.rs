//! Stages that fail: jobs are computed again or fail alone, and the service lives on.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, mpsc::Receiver};

use cascadia_engine::service::{Service, Update};
use cascadia_engine::{CacheSize, Engine, EngineError, OpenOptions, Source};
use cascadia_kernels::Pool;
use cascadia_model::{
    CachePages, Hidden, LoadOptions, LocalStage, Placement, Stage, StageError, StageTraits, StepPlan,
};

use crate::harness::{Leave, Request, Setup, hear, job, long, request, text};

/// A token that no step with it survives.
const POISON: u32 = 250;
/// A token that is worse.
const VENOM: u32 = 251;
/// A token that takes the machine with it.
const CURSE: u32 = 252;

/// How a stage is lost.
enum Loss {
    /// Nobody is there to compute a step.
    Away,
    /// Somebody was.
    Computing,
    /// What it gave before may be wrong.
    Doubted,
}

/// A stage with the habits of a machine far away.
struct Flaky {
    inner: Box<dyn Stage>,
    runs: AtomicU32,
    /// Which of its runs end in nothing.
    lost: fn(u32) -> Option<Loss>,
    /// Steps of earlier generations count on a cache that is gone.
    generation: AtomicU64,
    traits: StageTraits,
}

impl Stage for Flaky {
    fn layers(&self) -> Range<u32> {
        self.inner.layers()
    }

    fn run(&self, plan: &StepPlan, hidden: &mut Hidden) -> Result<(), StageError> {
        let gone = plan.generation < self.generation.load(Ordering::Relaxed);
        let cursed = plan.tokens.contains(&CURSE).then_some(Loss::Computing);
        let loss = if gone { Some(Loss::Away) } else { (self.lost)(self.runs.fetch_add(1, Ordering::Relaxed)) };
        if let Some(loss) = loss.or(cursed) {
            self.generation.fetch_max(plan.generation + 1, Ordering::Relaxed);
            if matches!(loss, Loss::Doubted) {
                return Err(StageError::Wrong { layers: self.layers(), problem: "the memory".into() });
            }
            let while_computing = matches!(loss, Loss::Computing);
            return Err(StageError::Lost { layers: self.layers(), problem: "the cable".into(), while_computing });
        }
        if plan.tokens.contains(&POISON) {
            return Err(StageError::Plan { problem: "it is poisoned".into() });
        }
        assert!(!plan.tokens.contains(&VENOM), "the test wants this panic");
        self.inner.run(plan, hidden)
    }

    fn traits(&self) -> StageTraits {
        self.traits
    }
}

fn setup() -> Setup {
    Setup::new(long("llama3"), 512, CachePages::full(20))
}

fn start(lost: fn(u32) -> Option<Loss>) -> Service {
    start_stages(lost, &[false])
}

/// A service over stages that are here, with the threads of both ends, or have a thread of their own.
fn start_stages(lost: fn(u32) -> Option<Loss>, here: &[bool]) -> Service {
    let options = OpenOptions {
        context: Some(512),
        rows_per_step: 64,
        cache: CacheSize::Pages(setup().cache),
        // Two threads notice it if anything shares them without taking turns.
        ..OpenOptions::new(Arc::new(Pool::new(2)))
    };
    let files = Arc::new(Source::Path(&setup().model).files().unwrap());
    let engine = Engine::with_stages(Arc::clone(&files), &options, |spec, own| {
        let (layers, stages) = (spec.layers.len() as u32, here.len() as u32);
        let stage = |at: u32| {
            let range = at * layers / stages..(at + 1) * layers / stages;
            let is_here = here[at as usize];
            let pool = if is_here { Arc::clone(&own.pool) } else { Arc::new(Pool::new(1)) };
            let options = LoadOptions { pool, ..own.clone() };
            let inner = Box::new(LocalStage::new(&files, spec, range, &options).unwrap());
            let (runs, generation) = (AtomicU32::new(at), AtomicU64::new(0));
            let traits = StageTraits::exact(if is_here { Placement::Local } else { Placement::Remote });
            Box::new(Flaky { inner, runs, lost, generation, traits }) as Box<dyn Stage>
        };
        Ok::<_, EngineError>((0..stages).map(stage).collect())
    });
    Service::start(engine.unwrap(), text(), setup().options).unwrap()
}

fn requests() -> Vec<Request> {
    (1..7).map(|seed| request((0..60 * seed).map(|at| at * seed % 240).collect(), 0.8, 30 + seed)).collect()
}

fn submit(service: &Service, requests: &[Request]) -> Vec<Receiver<Update>> {
    let submit = |request| {
        let (job, updates) = job(request, Leave::Never);
        service.handle().submit(job).unwrap();
        updates
    };
    requests.iter().map(submit).collect()
}

#[test]
fn what_a_lost_stage_held_is_computed_again() {
    let service = start(|run| (run % 9 == 4).then_some(Loss::Computing));
    let alone = setup().alone(&requests());
    for (updates, alone) in submit(&service, &requests()).iter().zip(alone) {
        assert!(hear(updates).numbers() == alone);
    }
    let handle = service.handle();
    service.drain();
    assert!(handle.snapshot().recomputed_tokens > 0);
    assert_eq!((handle.snapshot().failed, handle.snapshot().pages_held), (0, 0));
}

#[test]
fn several_steps_under_way_change_no_token() {
    let alone = setup().alone(&requests());
    let places = [[false, false], [true, false], [false, true], [true, true]];
    // Losses follow no rhythm: one that met the same tokens every time would look like their fault.
    let losses: [fn(u32) -> Option<Loss>; 2] =
        [|_| None, |run| (run.wrapping_mul(0x9e37_79b1) >> 27 == 7).then_some(Loss::Computing)];
    for (lost, here) in losses.into_iter().flat_map(|lost| places.map(|here| (lost, here))) {
        let service = start_stages(lost, &here);
        for (updates, alone) in submit(&service, &requests()).iter().zip(&alone) {
            let heard = hear(updates);
            assert!(heard.numbers() == *alone, "{:?} {} of {}", heard.error, heard.numbers().len(), alone.len());
        }
        let handle = service.handle();
        service.drain();
        assert_eq!((handle.snapshot().failed, handle.snapshot().pages_held), (0, 0));
    }
}

#[test]
fn answers_made_of_rows_that_may_be_wrong_end_with_an_error() {
    let alone = setup().alone(&requests());
    for here in [&[false][..], &[false, false]] {
        let service = start_stages(|run| (run == 20).then_some(Loss::Doubted), here);
        let fails = |(updates, alone): (&Receiver<Update>, &Vec<u32>)| {
            let heard = hear(updates);
            assert!(alone.starts_with(&heard.numbers()));
            match &heard.error {
                Some(error) => assert!(error.is_lost() && error.to_string().contains("cannot be trusted"), "{error}"),
                None => assert!(heard.numbers() == *alone),
            }
            heard.error.is_some()
        };
        let ask = || submit(&service, &requests()).iter().zip(&alone).filter(|heard| fails(*heard)).count() as u64;
        let mut failed = ask();
        assert!(failed > 0, "some answers were under way");
        while service.handle().snapshot().finished == 0 {
            failed += ask();
        }
        let handle = service.handle();
        service.drain();
        assert_eq!((handle.snapshot().failed, handle.snapshot().pages_held), (failed, 0));
    }
}

#[test]
fn a_stage_that_stays_away_fails_jobs_and_not_the_service() {
    let service = start(|run| (run < 20).then_some(Loss::Away));
    for updates in submit(&service, &requests()) {
        let error = hear(&updates).error.expect("nothing can be computed");
        assert!(error.to_string().contains("lost: the cable"), "{error}");
    }
    while service.handle().snapshot().steps == 0 {
        submit(&service, &requests()[..1]).iter().for_each(|updates| drop(hear(updates)));
    }
    let again = submit(&service, &requests()[..1]);
    assert_eq!(vec![hear(&again[0]).numbers()], setup().alone(&requests()[..1]));
}

#[test]
fn a_poisoned_job_fails_alone() {
    let mut requests = requests();
    let alone = setup().alone(&requests);
    requests[2].prompt[70] = POISON;
    requests[4].prompt[10] = VENOM;
    let service = start(|_| None);
    for (index, updates) in submit(&service, &requests).iter().enumerate() {
        let heard = hear(updates);
        match index {
            2 | 4 => assert!(matches!(heard.error, Some(EngineError::Stage(StageError::Plan { .. })))),
            // One that chose the poison itself fails too, after the same tokens.
            _ => assert!(
                alone[index].starts_with(&heard.numbers())
                    && (heard.error.is_some() || heard.numbers() == alone[index])
            ),
        }
    }
}

#[test]
fn a_job_that_takes_every_machine_with_it_is_given_up() {
    let mut requests = requests();
    let alone = setup().alone(&requests);
    // Not in the first step of its prompt, so that others and the job itself get on in between.
    requests[2].prompt[70] = CURSE;
    for here in [&[false][..], &[false, false]] {
        let service = start_stages(|_| None, here);
        for (index, updates) in submit(&service, &requests).iter().enumerate() {
            let heard = hear(updates);
            match (index, &heard.error) {
                (2, Some(error)) => assert!(error.to_string().contains("3 machines were lost"), "{error}"),
                (2, None) => panic!("it cannot be computed"),
                // One that chose the curse itself fails too, after the same tokens.
                (_, Some(_)) => assert!(alone[index].starts_with(&heard.numbers()) && alone[index].contains(&CURSE)),
                (_, None) => assert!(heard.numbers() == alone[index]),
            }
        }
    }
}
