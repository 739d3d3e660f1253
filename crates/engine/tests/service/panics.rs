//! Panics: in what belongs to a job it fails alone, anywhere else the service begins again, and it always serves on.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::Receiver;

use cascadia_engine::service::{Job, Service, Snapshot, Update};
use cascadia_engine::{CacheSize, Engine, EngineError, OpenOptions, Source};
use cascadia_kernels::Pool;
use cascadia_model::{
    CachePages, Hidden, LoadOptions, LocalStage, Placement, Stage, StageError, StageTraits, StepPlan,
};

use crate::harness::{Leave, Request, Setup, hear, job, long, request, text};

/// A stage that panics where no step does: when it is told that a sequence has ended.
struct Forgetful {
    inner: Box<dyn Stage>,
    /// How often it still does so.
    panics: AtomicU32,
    placement: Placement,
}

impl Stage for Forgetful {
    fn layers(&self) -> Range<u32> {
        self.inner.layers()
    }

    fn run(&self, plan: &StepPlan, hidden: &mut Hidden) -> Result<(), StageError> {
        self.inner.run(plan, hidden)
    }

    fn end_sequence(&self, id: u64) {
        let left = self.panics.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        assert!(left.is_err(), "the test wants this panic");
        self.inner.end_sequence(id);
    }

    fn traits(&self) -> StageTraits {
        StageTraits::exact(self.placement)
    }
}

fn setup() -> Setup {
    Setup::new(long("llama3"), 512, CachePages::full(40))
}

fn requests() -> Vec<Request> {
    (1..6).map(|seed| request((0..40 * seed).map(|at| at * seed % 240).collect(), 0.8, 20 * seed)).collect()
}

/// A service over two stages that panic so often, with one step in flight or several.
fn start(panics: u32, placement: Placement) -> Service {
    let cache = CacheSize::Pages(setup().cache);
    let options =
        OpenOptions { context: Some(512), rows_per_step: 64, cache, ..OpenOptions::new(Arc::new(Pool::new(2))) };
    let files = Arc::new(Source::Path(&setup().model).files().unwrap());
    let engine = Engine::with_stages(Arc::clone(&files), &options, |spec, own| {
        let layers = spec.layers.len() as u32;
        let stage = |(range, panics)| {
            let pool = match placement {
                Placement::Local => Arc::clone(&own.pool),
                Placement::Remote => Arc::new(Pool::new(1)),
            };
            let inner = Box::new(LocalStage::new(&files, spec, range, &LoadOptions { pool, ..own.clone() }).unwrap());
            Box::new(Forgetful { inner, panics: AtomicU32::new(panics), placement }) as Box<dyn Stage>
        };
        Ok::<_, EngineError>([(0..layers / 2, panics), (layers / 2..layers, 0)].map(stage).into())
    });
    Service::start(engine.unwrap(), text(), setup().options).unwrap()
}

fn submit(service: &Service, requests: &[Request]) -> Vec<Receiver<Update>> {
    let submit = |request| {
        let (job, updates) = job(request, Leave::Never);
        service.handle().submit(job).unwrap();
        updates
    };
    requests.iter().map(submit).collect()
}

fn drained(service: Service) -> Snapshot {
    let handle = service.handle();
    service.drain();
    handle.snapshot()
}

#[test]
fn a_receiver_that_panics_ends_its_own_job_only() {
    let alone = setup().alone(&requests());
    // The update at which it panics: that it has started, a token, and the last one.
    for panics_at in [1, 4, 22] {
        let service = setup().start();
        let others = submit(&service, &requests()[1..]);
        let (plain, _) = job(&Request { stop_tokens: Vec::new(), ..requests()[0].clone() }, Leave::Never);
        let mut updates = 0;
        let (mut sink, seen) = (plain.sink, Arc::new(AtomicU32::new(0)));
        let counter = Arc::clone(&seen);
        let sink = move |update: Update| {
            updates += 1;
            counter.fetch_add(1, Ordering::Relaxed);
            assert!(updates != panics_at, "the test wants this panic");
            sink(update)
        };
        service.handle().submit(Job { sink: Box::new(sink), ..plain }).unwrap();
        for (updates, alone) in others.iter().zip(&alone[1..]) {
            assert!(hear(updates).numbers() == *alone);
        }
        let again = submit(&service, &requests()[2..3]);
        assert!(hear(&again[0]).numbers() == alone[2]);
        let snapshot = drained(service);
        assert_eq!((snapshot.panics, snapshot.restarts, snapshot.failed), (1, 0, 1));
        assert_eq!((snapshot.pages_held, snapshot.waiting, snapshot.dead), (0, 0, false));
        assert_eq!(seen.load(Ordering::Relaxed), panics_at + 1, "it is told that it failed");
    }
}

#[test]
fn a_panic_outside_of_any_step_changes_no_token() {
    let alone = setup().alone(&requests());
    for placement in [Placement::Local, Placement::Remote] {
        let service = start(1, placement);
        for (updates, alone) in submit(&service, &requests()).iter().zip(&alone) {
            let heard = hear(updates);
            assert!(heard.numbers() == *alone, "{:?}", heard.error);
        }
        let snapshot = drained(service);
        assert_eq!((snapshot.panics, snapshot.restarts, snapshot.failed, snapshot.pages_held), (1, 1, 0, 0));
        assert!(!snapshot.restarting && !snapshot.dead);
    }
}

#[test]
fn a_panic_that_returns_fails_jobs_and_not_the_service() {
    let alone = setup().alone(&requests());
    let service = start(7, Placement::Local);
    let mut failed = 0;
    // As long as it panics whatever it does, each job is tried twice and told why it fails.
    while service.handle().snapshot().panics < 7 {
        for (updates, alone) in submit(&service, &requests()).iter().zip(&alone) {
            let heard = hear(updates);
            match &heard.error {
                Some(EngineError::Panicked) => failed += 1,
                Some(error) => panic!("{error}"),
                None => assert!(heard.numbers() == *alone),
            }
        }
    }
    assert!(failed > 0);
    for (updates, alone) in submit(&service, &requests()).iter().zip(&alone) {
        assert!(hear(updates).numbers() == *alone);
    }
    let snapshot = drained(service);
    assert_eq!((snapshot.failed, snapshot.pages_held, snapshot.dead), (failed, 0, false));
}
