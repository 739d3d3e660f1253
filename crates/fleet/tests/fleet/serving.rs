//! A service on a fleet, with several jobs in a step and guesses ahead, gives the tokens of one process.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use cascadia_engine::service::{Generation, Job, Priority, Service, ServiceOptions, StepCosts, Task, Tenant, Update};
use cascadia_engine::{AdapterHandle, Engine, Flow, ModelText, Sampling, Source};
use cascadia_fleet::link::{LinkFaults, fair};
use cascadia_fleet::{Manifest, OwnStage, RemoteStage, Shard, Timeouts};
use cascadia_kernels::Pool;
use cascadia_model::{CachePages, LoadOptions, ModelLimits, Stage};

use crate::harness::{PATIENCE, Workshop, fixture};
use crate::same_tokens::cuts;

/// The adapters of the jobs.
pub(crate) type Adapters = [Option<AdapterHandle>; 3];

/// Tokens of the shortest prompt, unless sealed pages are wanted.
const SHORT: u32 = 24;

/// Jobs, greedy and not.
fn jobs(adapters: &Adapters, shortest: u32) -> Vec<(Job, Receiver<Update>)> {
    let job = |seed: u32| {
        let (sender, updates) = channel();
        let sampling = Sampling {
            temperature: 0.4 * seed as f32,
            seed: u64::from(seed),
            // Answers of two words repeat themselves.
            logit_bias: if seed == 1 { vec![(7, 50.0), (8, 50.0)] } else { Vec::new() },
            ..Sampling::default()
        };
        let wanted = Generation::new(sampling, 40);
        let job = Job {
            prompt: (0..shortest + 8 * seed).map(|at| (at % 5) * 17 + seed).collect(),
            task: Task::Generate(wanted),
            tenant: Tenant(0),
            adapter: adapters[seed as usize].clone(),
            priority: Priority::Normal,
            deadline: None,
            sink: Box::new(move |update| if sender.send(update).is_ok() { Flow::Continue } else { Flow::Stop }),
        };
        (job, updates)
    };
    (0..3).map(job).collect()
}

/// The tokens of all jobs, and how many of them were guessed.
pub(crate) fn tokens(engine: Engine, draft_rows: u32) -> (Vec<Vec<u32>>, u64) {
    adapted_tokens(engine, draft_rows, &Adapters::default())
}

/// The same of jobs that are long enough to read pages that a short tail has left.
pub(crate) fn long_tokens(engine: Engine, draft_rows: u32) -> (Vec<Vec<u32>>, u64) {
    answers(engine, draft_rows, || jobs(&Adapters::default(), 6 * SHORT))
}

/// The same of jobs with adapters.
pub(crate) fn adapted_tokens(engine: Engine, draft_rows: u32, adapters: &Adapters) -> (Vec<Vec<u32>>, u64) {
    answers(engine, draft_rows, || jobs(adapters, SHORT))
}

fn answers(engine: Engine, draft_rows: u32, jobs: impl Fn() -> Vec<(Job, Receiver<Update>)>) -> (Vec<Vec<u32>>, u64) {
    let text = Arc::new(ModelText::read(&Source::Path(&fixture("llama3")).files().unwrap()).unwrap());
    let step_costs = StepCosts::PerRow(0.05);
    let options = ServiceOptions { draft_rows, step_costs, parallel: 3, ..ServiceOptions::default() };
    let service = Service::start(engine, text, options).expect("it starts");
    let handle = service.handle();
    let submit = |(job, updates): (Job, Receiver<Update>)| {
        handle.submit(job).expect("there is room");
        updates
    };
    // Alone, because speculation is expensive in a batch; and all in the same steps.
    let alone: Vec<_> = jobs().into_iter().map(|job| hear(&submit(job))).collect();
    let updates: Vec<_> = jobs().into_iter().map(submit).collect();
    assert!(updates.iter().map(hear).eq(alone.iter().cloned()), "jobs change each other");
    service.drain();
    (alone, handle.snapshot().accepted_tokens)
}

fn hear(updates: &Receiver<Update>) -> Vec<u32> {
    let mut tokens = Vec::new();
    loop {
        match updates.recv().expect("a job ends") {
            Update::Token(token) => tokens.push(token.token),
            Update::Failed(error) => panic!("{error}"),
            Update::Finished(_) => return tokens,
            Update::Started { .. } | Update::Scored(_) | Update::Embedded(_) => {}
        }
    }
}

#[test]
fn every_cut_serves_the_same_tokens_with_and_without_guesses() {
    let mut accepted = 0;
    for (model, layers) in [("llama3", 3), ("gemma3", 4)] {
        let workshop = Workshop::new(model, Some("int4"));
        let (expected, _) = tokens(workshop.open_whole(), 0);
        assert!(expected.iter().all(|tokens| tokens.len() == 40));
        for cut in (1..=layers).flat_map(|stages| cuts(layers as u32, stages)) {
            let manifest = workshop.export(&cut);
            for draft_rows in [0, 8] {
                let (tokens, guessed) = tokens(workshop.fleet(&manifest).0, draft_rows);
                assert!(tokens == expected, "{model} cut at {cut:?} with {draft_rows} guesses");
                accepted += guessed;
            }
        }
    }
    assert!(accepted > 0, "no guess was ever right, so nothing was proved about those");
}

/// Fair until so many pieces have passed; then the link is cut.
pub(crate) fn cut_after(mut pieces: u32) -> LinkFaults {
    Box::new(move |piece| {
        pieces = pieces.checked_sub(1)?;
        Some(vec![piece])
    })
}

/// The model with some stages in this process; machines of the others are lost one after the other.
pub(crate) fn with_own_stages(workshop: &Workshop, manifest: &Manifest, own: &[usize]) -> Engine {
    workshop.open(manifest, |model_workers, stage, options| {
        if own.contains(&stage) {
            let shard = &model_workers.manifest().stages[stage];
            return Box::new(OwnStage::open(workshop.folder.path(), shard, options).expect("it was written"));
        }
        [20, 45, u32::MAX].map(cut_after).into_iter().for_each(|faults| {
            workshop.admit_worker(model_workers, stage, [fair(), faults]);
        });
        Box::new(RemoteStage::new(model_workers, stage, PATIENCE))
    })
}

#[test]
fn stages_of_the_coordinator_give_the_same_tokens_also_when_others_are_lost() {
    let workshop = Workshop::new("gemma3", Some("int4"));
    let (expected, _) = tokens(workshop.open_whole(), 0);
    for (cut, own) in
        [(&[0, 2][..], &[0][..]), (&[0, 2], &[1]), (&[0, 2], &[0, 1]), (&[0, 1, 2], &[1]), (&[0, 1, 2], &[0, 2])]
    {
        let manifest = workshop.export(cut);
        let (tokens, _) = tokens(with_own_stages(&workshop, &manifest, own), 0);
        assert!(tokens == expected, "cut at {cut:?} with {own:?} here");
    }
}

#[test]
fn with_nobody_left_every_job_ends_with_an_error_that_says_so() {
    let workshop = Workshop::new("llama3", Some("int4"));
    let manifest = workshop.export(&[0, 2]);
    let engine = workshop.open(&manifest, |model_workers, stage, _| {
        // Both are lost at once, and nobody waits.
        workshop.admit_worker(model_workers, stage, [fair(), cut_after(20)]);
        Box::new(RemoteStage::new(model_workers, stage, Timeouts { worker: Duration::ZERO, ..PATIENCE }))
    });
    let text = Arc::new(ModelText::read(&Source::Path(&fixture("llama3")).files().unwrap()).unwrap());
    let service = Service::start(engine, text, ServiceOptions::default()).expect("it starts");
    let submit = |(job, updates)| {
        service.handle().submit(job).expect("there is room");
        updates
    };
    let ending = |updates: &Receiver<Update>| loop {
        match updates.recv().expect("a job ends") {
            Update::Failed(error) => return error,
            Update::Finished(_) => panic!("nobody could compute it to its end"),
            Update::Token(_) | Update::Started { .. } | Update::Scored(_) | Update::Embedded(_) => {}
        }
    };
    // Those that are under way, and those that come after.
    for _ in 0..2 {
        let updates: Vec<_> = jobs(&Adapters::default(), SHORT).into_iter().map(submit).collect();
        for error in updates.iter().map(ending) {
            assert!(error.is_lost(), "{error}");
        }
    }
    service.drain();
}

#[test]
fn a_stage_of_the_coordinator_must_be_the_one_that_was_exported() {
    let workshop = Workshop::new("llama3", None);
    let manifest = workshop.export(&[0, 1]);
    let cache = CachePages::full(2);
    let options = LoadOptions::new(ModelLimits::new(96, 16, cache), Arc::new(Pool::new(1)));
    let other = Shard { digest: manifest.stages[0].digest, ..manifest.stages[1].clone() };
    let error = OwnStage::open(workshop.folder.path(), &other, &options).err().expect("it is another");
    assert!(error.to_string().contains("is not what the manifest describes"), "{error}");
    let own = OwnStage::open(workshop.folder.path(), &manifest.stages[1], &options).expect("it is the one");
    assert_eq!((own.layers(), own.status().node.as_deref()), (1..3, Some("here")));
}
