//! Rows in every format: so many bytes, and the same tokens whatever else is in a step and whoever is lost.

use cascadia_fleet::frame::{Bounds, Frame, HEADER_BYTES, Kind, Outgoing, Wait, receive};
use cascadia_fleet::link::{ChannelLink, fair};
use cascadia_fleet::verbs::Expecting;
use cascadia_fleet::{ModelWorkers, RemoteStage, RowFormat, StageLimits};
use cascadia_model::{Hidden, PageClass, PageRun, SequenceStep, Stage, StageError, StepPlan};

use crate::harness::{PATIENCE, PROGRAM, Workshop, continuation, prompt};
use crate::hash_model::{Cache, HashStage, WIDTH, model_workers, worker};
use crate::serving::{cut_after, tokens};

const FORMATS: [RowFormat; 3] = [RowFormat::F32, RowFormat::F16, RowFormat::Int8];

#[test]
fn every_format_has_its_bytes() {
    // The second has rows of several streams and sends tokens, the third rows of 40 numbers.
    for model in ["llama3", "gemma3n", "llama2"] {
        let mut workshop = Workshop::new(model, None);
        let whole = continuation(&mut workshop.open_whole().into_session(), &prompt(40), 8);
        for wire in FORMATS {
            workshop.wire = wire;
            let manifest = workshop.export(&[0, 1]);
            let width = manifest.numerics.hidden_width as usize;
            let row = match wire {
                RowFormat::F32 => 4 * width,
                RowFormat::Int8 if width.is_multiple_of(32) => width + 2 * (width / 32),
                RowFormat::F16 | RowFormat::Int8 => 2 * width,
            };
            let (fleet, traffic) = workshop.fleet(&manifest);
            let mut fleet = fleet.into_session();
            let same = continuation(&mut fleet, &prompt(40), 8) == whole;
            assert_eq!(same, wire == RowFormat::F32, "{model} {wire:?}: nothing else is rounded");
            let tokens = if manifest.numerics.stages_need_tokens { 4 } else { 0 };
            let sent = traffic.lock().unwrap().clone();
            let steps: Vec<usize> = sent.into_iter().filter(|bytes| *bytes >= row + HEADER_BYTES).collect();
            // The prompt takes three steps; each goes to both stages and comes back.
            assert_eq!(steps.len(), (3 + 7) * 4, "{model} {wire:?}");
            for bytes in steps {
                let fits = [16, 8, 1].iter().any(|rows| (rows * row..=rows * (row + tokens) + 64).contains(&bytes));
                assert!(fits, "{model} {wire:?}: {bytes} bytes for rows of {row}");
            }
        }
    }
}

#[test]
fn no_format_minds_batches_drafts_or_losses() {
    for model in ["llama3", "gemma3"] {
        let mut workshop = Workshop::new(model, Some("int4"));
        let manifest = workshop.export(&[0, 2]);
        let mut all = Vec::new();
        for wire in FORMATS {
            workshop.wire = wire;
            let (expected, _) = tokens(workshop.fleet(&manifest).0, 0);
            assert!(tokens(workshop.fleet(&manifest).0, 8).0 == expected, "{model} {wire:?} with guesses");
            let lossy = workshop.open(&manifest, |model_workers, stage, _| {
                for faults in [20, 45, u32::MAX].map(cut_after) {
                    workshop.admit_worker(model_workers, stage, [fair(), faults]);
                }
                Box::new(RemoteStage::new(model_workers, stage, PATIENCE))
            });
            assert!(tokens(lossy, 0).0 == expected, "{model} {wire:?} with machines that are lost");
            all.push(expected);
        }
        assert!(all[0] != all[2], "{model}: a byte a number changes no token, so nothing was proved about it");
    }
}

/// One row of a sequence of its own, of equal numbers.
fn step(stage: &RemoteStage, sequence: u32, value: f32) -> Result<(), StageError> {
    let runs = vec![PageRun { class: PageClass::Full, first: 0, pages: vec![sequence] }];
    let steps =
        vec![SequenceStep { id: u64::from(sequence), rows: 0..1, start: 0, runs, adapter: None, second_text: None }];
    let plan = StepPlan { tokens: vec![1], steps, generation: 0 };
    stage.run(&plan, &mut Hidden { values: vec![value; WIDTH], width: WIDTH })
}

#[test]
fn rows_that_cannot_be_written_are_an_error_of_their_step_alone() {
    let usual = model_workers();
    let limits = StageLimits { wire: RowFormat::F16, ..usual.limits() };
    let model_workers = ModelWorkers::new(usual.manifest().clone(), limits, PROGRAM);
    let link = worker(0, || Box::new(HashStage { cache: Cache::default(), layer: 0 }), [fair(), fair()]);
    model_workers.admit(Box::new(link), "one").expect("it fits");
    let stage = RemoteStage::new(&model_workers, 0, PATIENCE);
    for sequence in 0..4 {
        let error = step(&stage, sequence, 70_000.0).expect_err("it is too large");
        assert!(matches!(&error, StageError::Plan { problem } if problem.contains("--wire f32")), "{error}");
        step(&stage, sequence, 7.0).expect("the machine continues");
    }
    assert_eq!((stage.status().steps, stage.status().lost), (4, 0));
}

fn hear(link: &mut ChannelLink, hearing: Expecting) -> (Kind, String) {
    let mut frame = Frame::default();
    receive(link, &Bounds::table(hearing, 2048), &mut frame, Wait::For(PATIENCE.silence)).expect("it speaks");
    (frame.header.kind, String::from_utf8_lossy(frame.table()).into_owned())
}

#[test]
fn a_worker_that_does_not_know_a_format_says_so() {
    let stage = || Box::new(HashStage { cache: Cache::default(), layer: 0 }) as _;
    let mut link = worker(0, stage, [fair(), fair()]);
    assert_eq!(hear(&mut link, Expecting::Greeting).0, Kind::Hello);
    let limits: Vec<u8> = [128u32, 32, 16, 0, 0, 9].iter().flat_map(|number| number.to_le_bytes()).collect();
    Outgoing::message(Kind::Welcome, &limits).send(&mut link, &mut Vec::new()).expect("it listens");
    let (kind, reason) = hear(&mut link, Expecting::Load);
    assert!(
        kind == Kind::Refused && reason.contains("format 9, which this program does not know"),
        "{kind:?} {reason}"
    );
}
