//! A machine without a standby that computes wrong rows is found by the coordinator, which computes some of them again;
//! one that computes the right rows never is.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use cascadia_engine::{Engine, EngineError};
use cascadia_fleet::clock::Simulation;
use cascadia_fleet::link::{fair, timed_pair};
use cascadia_fleet::{
    Clock, ModelWorkers, OpenRecheck, RemoteStage, RowFormat, StageLimits, StageStatus, TOKEN_IO_FILE, recheck_exported,
};
use cascadia_model::{Stage, StageError};
use cascadia_weights::ModelFiles;

use crate::harness::{PROGRAM, Workshop, continuation, prompt};
use crate::hash_model::{Chance, STAGES, model_workers, simulated, try_generate};
use crate::standbys::{PATIENCE, admit_worker, hashes, oracle};
use crate::wrong_rows::bring;

const SEEDS: u64 = 300;
/// Steps within which a machine that is always wrong has to be found.
const SOON: u64 = 500;

/// Requests one after the other on a machine that is wrong in these steps: how many steps it computed before it was
/// excluded, or within `most` was not, and how its stage is then.
fn run(seed: u64, wrong: Range<u32>, most: u64) -> (u64, StageStatus) {
    let simulation = Simulation::new(seed);
    let model_workers = model_workers().on_clock(simulation.clock());
    bring(&model_workers, "only", wrong);
    admit_worker(&model_workers, "last", (1, || hashes(1)), [fair(), fair()]);
    let open: OpenRecheck = Box::new(|_| Ok(Box::new(hashes(0))));
    let mut stages = Vec::from([0, 1].map(|stage| RemoteStage::new(&model_workers, stage, PATIENCE)));
    let checked = stages.remove(0).with_recheck(&model_workers.limits().model, open, seed);
    stages.insert(0, checked);
    let (mut steps, mut round) = (0, 0);
    while steps < most && stages[0].status().wrong.is_empty() {
        round += 1;
        let answer = try_generate(&mut Chance(seed + round), |plan, hidden| {
            steps += 1;
            if steps > most {
                return Err(StageError::Wrong { layers: 0..1, problem: "that is enough".to_owned() });
            }
            stages.iter().try_for_each(|stage| stage.run(plan, hidden))
        });
        assert!(answer.is_ok() || steps > most || !stages[0].status().wrong.is_empty(), "{answer:?}");
    }
    let status = stages[0].status();
    drop(stages);
    model_workers.close();
    simulation.finish();
    (steps, status)
}

#[test]
fn a_machine_that_is_wrong_is_excluded_within_five_hundred_steps() {
    for (name, begins) in [("always", 0), ("later", 150)] {
        let runs: Vec<_> = (0..SEEDS).map(|seed| run(seed, begins..u32::MAX, u64::from(begins) + SOON)).collect();
        let caught: Vec<u64> =
            runs.iter().filter(|(_, status)| status.wrong == ["only"]).map(|(steps, _)| *steps).collect();
        let latest = caught.iter().max().copied().unwrap_or(0).saturating_sub(u64::from(begins));
        eprintln!("wrong {name}: {} of {SEEDS} were excluded, the latest after {latest} steps", caught.len());
        assert!(caught.len() as u64 * 100 >= SEEDS * 99, "wrong {name}: {} of {SEEDS}", caught.len());
        for (_, status) in runs.iter().filter(|(_, status)| status.wrong == ["only"]) {
            assert_eq!(status.node, None, "nobody computes with it any more");
        }
    }
}

#[test]
fn a_machine_that_is_right_stays() {
    for seed in 0..SEEDS / 10 {
        let (_, status) = run(seed, 0..0, 1000);
        assert!(status.wrong.is_empty() && status.node.as_deref() == Some("only") && status.is_checked, "{status:?}");
        assert!(status.rechecked > 200, "seed {seed}: {} rows", status.rechecked);
    }
}

#[test]
fn a_stage_whose_weights_are_nowhere_is_shown_as_unchecked() {
    simulated(|clock| {
        let (_, rows) = oracle();
        let opens: [fn() -> Option<OpenRecheck>; 2] = [|| None, || Some(Box::new(|_| Err("they are gone".to_owned())))];
        for open in opens {
            let model_workers = model_workers().on_clock(clock);
            bring(&model_workers, "only", 0..0);
            let stage = RemoteStage::new(&model_workers, 0, PATIENCE);
            let stage = match open() {
                Some(open) => stage.with_recheck(&model_workers.limits().model, open, 1),
                None => stage,
            };
            let local = hashes(1);
            try_generate(&mut Chance(1), |plan, hidden| {
                stage.run(plan, hidden)?;
                local.run(plan, hidden)
            })
            .expect("it runs");
            let status = stage.status();
            assert_eq!((status.rows, status.is_checked, status.rechecked), (rows, false, 0));
        }
    });
}

/// A small model on one worker for each stage, all of which are computed again here.
pub(crate) fn open_rechecked(workshop: &Workshop, clock: &Clock, cut: &[u32]) -> (Engine, Arc<[RemoteStage]>) {
    let manifest = workshop.export(cut);
    let files = ModelFiles::open(&workshop.folder.path().join(TOKEN_IO_FILE)).expect("it was written");
    let mut remote: Arc<[RemoteStage]> = Arc::default();
    let engine = Engine::with_stages(Arc::new(files), &workshop.options(), |_, options| {
        let limits = StageLimits { model: options.limits.clone(), wire: workshop.wire };
        let model_workers = ModelWorkers::new(manifest.clone(), limits, PROGRAM).on_clock(clock);
        let stage = |number: usize| {
            let (here, mut there) = timed_pair(clock, Duration::ZERO, [fair(), fair()]);
            let mut worker = workshop.worker(&manifest, number);
            clock.spawn(move || worker.serve(&mut there));
            model_workers.admit(Box::new(here), "worker").expect("it is let in");
            let open = recheck_exported(workshop.folder.path(), &manifest.stages[number], options);
            RemoteStage::new(&model_workers, number, PATIENCE).with_recheck(&options.limits, open, number as u64)
        };
        remote = (0..manifest.stages.len()).map(stage).collect();
        let shared = |number| Box::new(Shared(Arc::clone(&remote), number)) as Box<dyn Stage>;
        Ok::<_, EngineError>((0..remote.len()).map(shared).collect())
    });
    (engine.expect("the shards load"), remote)
}

/// One of several stages that are looked at while an engine has them.
struct Shared(Arc<[RemoteStage]>, usize);

impl Stage for Shared {
    fn layers(&self) -> Range<u32> {
        self.0[self.1].layers()
    }

    fn traits(&self) -> cascadia_model::StageTraits {
        self.0[self.1].traits()
    }

    fn run(&self, plan: &cascadia_model::StepPlan, hidden: &mut cascadia_model::Hidden) -> Result<(), StageError> {
        self.0[self.1].run(plan, hidden)
    }
}

#[test]
fn a_real_model_comes_to_the_same_rows_again() {
    // With windows, with tokens beside rows, with latent attention, and with rows that are rounded on their way.
    let cases = [
        ("llama3", None, RowFormat::F32),
        ("gemma3", Some("int4"), RowFormat::F32),
        ("gemma3n", Some("q8_0"), RowFormat::F32),
        ("deepseek-v3", Some("q8_0"), RowFormat::F32),
        ("llama3", Some("int4"), RowFormat::Int8),
    ];
    for (model, precision, wire) in cases {
        simulated(|clock| {
            let workshop = Workshop { wire, ..Workshop::new(model, precision) };
            let expected = continuation(&mut workshop.open_whole().into_session(), &prompt(40), 50);
            let (engine, stages) = open_rechecked(&workshop, clock, &[0, 1]);
            let mut session = engine.into_session();
            for _ in 0..3 {
                let found = continuation(&mut session, &prompt(40), 50);
                assert!(wire != RowFormat::F32 || found == expected, "{model}: other tokens");
            }
            clock.sleep(Duration::from_secs(1));
            for stage in stages.iter() {
                let status = stage.status();
                assert!(status.wrong.is_empty() && status.is_checked, "{model}: {status:?}");
                assert!(status.rechecked >= 89, "{model}: {} rows", status.rechecked);
            }
            assert_eq!(stages.len(), STAGES);
        });
    }
}
