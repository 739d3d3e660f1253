//! Real models with a disk below the KV cache: their tokens are those of a pool that holds everything.

use std::fs;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use cascadia_engine::service::spill::{SpillOptions, SpillStatus};
use cascadia_engine::service::{Service, ServiceOptions, Tenant};
use cascadia_engine::{CacheSize, Engine, EngineError, OpenOptions, Source};
use cascadia_kernels::Pool;
use cascadia_model::{
    CacheFormat, CachePages, Hidden, KvPolicy, LocalStage, PageClass, Placement, Stage, StageError, StageTraits,
    StepPlan,
};

use crate::harness::{Heard, Leave, Request, Setup, hear, job, long, on_session, request, text};

/// The longest that a test waits for files to be written; far more than it should take.
const PATIENCE: Duration = Duration::from_secs(60);

fn spill(folder: &Path) -> SpillOptions {
    SpillOptions { folder: folder.to_owned(), bytes: 1 << 30, keep_prefixes: false, model: "a model".to_owned() }
}

fn with_spill(setup: &Setup, spill: SpillOptions) -> Setup {
    Setup { options: ServiceOptions { spill: Some(spill), ..setup.options.clone() }, ..setup.clone() }
}

fn run(service: &Service, request: &Request, tenant: u64) -> Heard {
    let (mut job, updates) = job(request, Leave::Never);
    job.tenant = Tenant(tenant);
    service.handle().submit(job).unwrap();
    hear(&updates)
}

/// The numbers once everything is written.
fn settled(service: &Service) -> SpillStatus {
    let begin = Instant::now();
    loop {
        let status = service.handle().snapshot().spill.expect("there is a disk");
        if status.waiting_bytes == 0 {
            return status;
        }
        assert!(begin.elapsed() < PATIENCE, "{status:?}");
        thread::yield_now();
    }
}

fn damage(folder: &Path) {
    for file in fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()) {
        let mut bytes = fs::read(&file).unwrap();
        let at = bytes.len() / 2;
        bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1);
        fs::write(&file, bytes).unwrap();
    }
}

/// Conversations that take turns in a pool which has room for one or two of them. In some turns every file is damaged.
fn check(setup: &Setup, seed: u32) -> SpillStatus {
    let folder = tempfile::tempdir().unwrap();
    let service = with_spill(setup, spill(folder.path())).start();
    let mut session = setup.session();
    let tokens = |count: u32, from: u32| (0..count).map(move |at| (at * 31 + from * 17 + seed * 7 + at / 13) % 96);
    let mut texts: Vec<Vec<u32>> = (0..4).map(|number| tokens(150 + 20 * number, number).collect()).collect();
    for turn in 0..4 {
        for (number, prompt) in (0..).zip(&mut texts) {
            let temperature = if number % 2 == 0 { 0.0 } else { 0.8 };
            let request = request(prompt.clone(), temperature, 12 + seed);
            let expected = on_session(&mut session, prompt, request.generation()).1.tokens;
            if turn == 2 && number == 1 {
                settled(&service);
                damage(folder.path());
            }
            assert!(run(&service, &request, 0).numbers() == expected, "seed {seed}, turn {turn}, text {number}");
            prompt.extend(expected);
            prompt.extend(tokens(60, turn + 4));
            settled(&service);
        }
    }
    let status = settled(&service);
    service.drain();
    let left: Vec<String> = names(folder.path());
    assert_eq!(left, ["cascadia-spill.lock"], "nothing is left that nobody can read");
    status
}

fn names(folder: &Path) -> Vec<String> {
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name());
    files.map(|name| name.into_string().unwrap()).collect()
}

#[test]
fn a_disk_below_the_cache_changes_no_token() {
    let small = CachePages::new(|class| if class == PageClass::Full { 10 } else { 12 });
    let cases = [
        ("llama3", CacheFormat::F16, 0..3),
        ("llama3", CacheFormat::Int4, 0..2),
        ("gemma3", CacheFormat::F16, 0..2),
        ("gemma3", CacheFormat::Int4, 0..2),
    ];
    for (model, format, seeds) in cases {
        let setup = Setup { kv: KvPolicy::uniform(format), ..Setup::new(long(model), 1024, small) };
        for seed in seeds {
            let status = check(&setup, seed);
            assert!(status.restored > 10 && status.damaged > 0, "{model} {format:?}: {status:?}");
            assert_eq!((status.unreadable, status.problem), (0, None));
        }
    }
}

#[test]
fn prefixes_survive_a_restart_if_they_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let setup = Setup::new(long("llama3"), 1024, CachePages::full(20));
    let kept = SpillOptions { keep_prefixes: true, ..spill(folder.path()) };
    let prompt = request((0..300).map(|at| at * 7 % 96).collect(), 0.8, 20);
    let expected = setup.alone(std::slice::from_ref(&prompt)).remove(0);
    let started = |options: &SpillOptions, tenant| {
        let service = with_spill(&setup, options.clone()).start();
        let heard = run(&service, &prompt, tenant);
        assert!(heard.numbers() == expected);
        heard.started.expect("it has begun")
    };
    assert_eq!(started(&kept, 1), 0);
    assert_eq!(started(&kept, 1), 256, "it was kept when the service ended");
    assert_eq!(started(&kept, 2), 0, "by another tenant");
    assert_eq!(started(&SpillOptions { model: "another".to_owned(), ..kept.clone() }, 1), 0);
    assert_eq!(started(&kept, 1), 256);
    damage(folder.path());
    assert_eq!(started(&kept, 1), 0, "the key is damaged, or the records are");
    assert_eq!(started(&kept, 1), 256, "it was kept anew");
    assert_eq!(started(&SpillOptions { keep_prefixes: false, ..kept.clone() }, 1), 0, "nobody wants them");
    assert_eq!(names(folder.path()), ["cascadia-spill.lock"]);
}

#[test]
fn two_services_do_not_share_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let setup = with_spill(&Setup::new(long("llama3"), 512, CachePages::full(20)), spill(folder.path()));
    let first = setup.start();
    let engine = setup.engine(CacheSize::Pages(setup.cache));
    let error = Service::start(engine, text(), setup.options.clone()).err().expect("it is in use").to_string();
    assert!(error.contains("another server uses it"), "{error}");
    let handle = first.handle();
    first.drain();
    // Whoever still has a handle does not keep the folder.
    drop(setup.start());
    assert_eq!(handle.snapshot().spill, None);
}

/// Layers on another machine, as far as anybody can tell.
struct Elsewhere(LocalStage);

impl Stage for Elsewhere {
    fn layers(&self) -> Range<u32> {
        self.0.layers()
    }

    fn traits(&self) -> StageTraits {
        StageTraits::exact(Placement::Remote)
    }

    fn run(&self, plan: &StepPlan, hidden: &mut Hidden) -> Result<(), StageError> {
        self.0.run(plan, hidden)
    }
}

#[test]
fn pages_of_other_machines_are_not_spilled() {
    let folder = tempfile::tempdir().unwrap();
    let setup = with_spill(&Setup::new(long("llama3"), 512, CachePages::full(20)), spill(folder.path()));
    let options = OpenOptions {
        context: Some(512),
        cache: CacheSize::Pages(setup.cache),
        ..OpenOptions::new(Arc::new(Pool::new(1)))
    };
    let files = Arc::new(Source::Path(&setup.model).files().unwrap());
    let engine = Engine::with_stages(Arc::clone(&files), &options, |spec, options| {
        let layers = 0..spec.layers.len() as u32;
        let stage = Elsewhere(LocalStage::new(&files, spec, layers, options)?);
        Ok::<_, EngineError>(vec![Box::new(stage) as Box<dyn Stage>])
    });
    let error = Service::start(engine.unwrap(), text(), setup.options).err().expect("it is refused").to_string();
    assert!(error.contains("the whole model runs in this process"), "{error}");
}
