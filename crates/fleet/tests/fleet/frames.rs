//! Whatever bytes come, neither end panics, and memory follows what was agreed.

use std::ops::Range;
use std::thread;
use std::time::Duration;

use cascadia_fleet::frame::{Bounds, Frame, HEADER_BYTES, Kind, Outgoing, Wait, receive};
use cascadia_fleet::link::{Link, LinkError, channel_pair, fair};
use cascadia_fleet::verbs::Expecting;
use cascadia_fleet::{
    Assignment, Clock, Hello, RemoteStage, RowShape, Sandbox, StageLimits, Timeouts, WorkerStage, greet,
};
use cascadia_model::{Hidden, Placement, Stage, StageError, StageTraits, StepPlan};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::harness::PROGRAM;
use crate::hash_model::{self, model_workers};

const WIDTH: usize = 32;
/// Bytes of a row in every format, and of one that is none.
const ROW_BYTES: [usize; 4] = [128, 64, 34, 36];

/// A stage that checks what reaches it.
struct Checked;

impl Stage for Checked {
    fn layers(&self) -> Range<u32> {
        0..1
    }

    fn traits(&self) -> StageTraits {
        StageTraits::exact(Placement::Remote)
    }

    fn run(&self, plan: &StepPlan, hidden: &mut Hidden) -> Result<(), StageError> {
        assert_eq!(hidden.values.len(), plan.tokens.len() * WIDTH);
        let rows = plan.steps.iter().try_fold(0, |next, step| (step.rows.start == next).then_some(step.rows.end));
        assert_eq!(rows, Some(plan.tokens.len() as u32));
        Ok(())
    }
}

fn soon() -> Wait {
    Wait::For(Duration::from_secs(1))
}

fn kind() -> impl Strategy<Value = Kind> {
    use Kind::*;
    prop::sample::select(vec![
        Hello, Welcome, Ready, Refused, Step, Step, Step, Rows, Ping, Pong, Join, Offer, Chunk, Compressed, Beat,
        Fetch, Page,
    ])
}

proptest! {
    #[test]
    fn any_bytes(bytes in vec(any::<u8>(), 0..200), rows in 0u32..9, table in 0u32..40) {
        let (mut here, mut there) = channel_pair([fair(), fair()]);
        here.write(&bytes).unwrap();
        drop(here);
        let bounds = Bounds { hearing: Expecting::Work, rows, row_bytes: 8, table };
        let mut frame = Frame::default();
        if receive(&mut there, &bounds, &mut frame, soon()).is_ok() {
            prop_assert!(frame.table().len() <= table as usize && frame.rows().len() <= rows as usize * 8);
        }
    }

    #[test]
    fn damaged_frames(table in vec(any::<u8>(), 0..60), at in any::<prop::sample::Index>(), bit in 0u8..8) {
        let (mut here, mut there) = channel_pair([fair(), fair()]);
        let mut sent = Vec::new();
        Outgoing::message(Kind::Step, &table).send(&mut here, &mut sent).unwrap();
        there.read(&mut vec![0; HEADER_BYTES + table.len()], Clock::system().now() + Duration::from_secs(1)).unwrap();
        let at = at.index(sent.len());
        sent[at] ^= 1 << bit;
        here.write(&sent).unwrap();
        drop(here);
        let error = receive(&mut there, &Bounds::table(Expecting::Work, u32::MAX >> 8), &mut Frame::default(), soon());
        prop_assert!(matches!(error, Err(LinkError::Broken(_) | LinkError::Closed)), "{:?}", error);
    }

    #[test]
    fn a_worker_survives_any_frames(
        frames in vec((kind(), vec(any::<u8>(), 0..30), 0u16..4, 0u32..3, 0u32..4), 0..12),
        limits in vec(any::<u8>(), 0..24),
        sound in any::<bool>(),
        (wire, row_bytes) in (0u32..4, prop::sample::select(&ROW_BYTES[..])),
    ) {
        let (mut here, mut there) = channel_pair([fair(), fair()]);
        let good: Vec<u8> = [128u32, 4, 8, 0, wire].iter().flat_map(|number| number.to_le_bytes()).collect();
        let welcome = Outgoing { epoch: 1, ..Outgoing::message(Kind::Welcome, if sound { &good } else { &limits }) };
        welcome.send(&mut here, &mut Vec::new()).unwrap();
        for (kind, table, rows, epoch, step) in &frames {
            let row_bytes = vec![0; usize::from(*rows) * row_bytes];
            let frame = Outgoing { kind: *kind, epoch: *epoch, step: *step, table, rows: *rows, row_bytes: &row_bytes };
            frame.send(&mut here, &mut Vec::new()).unwrap();
        }
        let hello = Hello { program: PROGRAM.to_owned(), shard: None, sandbox: Sandbox::None };
        let shape = RowShape { hidden_width: WIDTH, needs_tokens: false };
        let load = |_: &StageLimits| Ok(Box::new(Checked) as Box<dyn Stage>);
        let mut worker = WorkerStage::new(hello, shape, Duration::from_millis(1), Box::new(load));
        worker.serve(&mut there);
        drop(here);
    }

    #[test]
    fn a_coordinator_survives_any_worker(
        frames in vec((kind(), vec(any::<u8>(), 0..30), 0u16..4, 0u32..3, 0u32..4), 0..12),
        sound in any::<bool>(),
    ) {
        let (here, mut there) = channel_pair([fair(), fair()]);
        let model_workers = model_workers();
        let shard = Some(model_workers.manifest().stages[0].digest);
        let hello = Hello { program: PROGRAM.to_owned(), shard, sandbox: Sandbox::None };
        let hostile = thread::spawn(move || {
            if sound && let Ok(Assignment::Load { epoch, .. }) = greet(&mut there, &hello) {
                let ready = Outgoing { epoch, ..Outgoing::message(Kind::Ready, &[]) };
                ready.send(&mut there, &mut Vec::new()).unwrap();
            }
            for (kind, table, rows, epoch, step) in &frames {
                let row_bytes = vec![0; usize::from(*rows) * hash_model::WIDTH * 4];
                let (kind, epoch, step, rows) = (*kind, *epoch, *step, *rows);
                // Whoever is turned away speaks to nobody.
                let _ = Outgoing { kind, epoch, step, table, rows, row_bytes: &row_bytes }.send(&mut there, &mut Vec::new());
            }
        });
        let short = Duration::from_millis(1);
        let patience = Timeouts { worker: short, silence: short, ..Timeouts::default() };
        if model_workers.admit(Box::new(here), "hostile").is_ok() {
            let stage = RemoteStage::new(&model_workers, 0, patience);
            let plan = StepPlan { tokens: vec![1], steps: Vec::new(), generation: 0 };
            let _ = stage.run(&plan, &mut Hidden { values: vec![0.0; hash_model::WIDTH], width: hash_model::WIDTH });
        }
        hostile.join().expect("it ends");
    }
}
