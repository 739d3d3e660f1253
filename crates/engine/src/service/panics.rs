//! Where panics end: each is counted, and is an error of the job or the step in which it happened.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cascadia_model::StageError;

use crate::EngineError;

/// Catches panics and counts them; clones count together.
#[derive(Clone, Debug, Default)]
pub(super) struct PanicBoundary {
    caught: Arc<AtomicU64>,
    #[cfg(test)]
    wanted: Arc<tests::Wanted>,
}

/// A part of the model, as far as a step goes through it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepPart {
    Stages,
    Logits,
    Embedding,
    Draft,
}

impl PanicBoundary {
    /// Runs something whose state is not used again if it panics, or is put right by the caller.
    pub(super) fn catch<T>(&self, action: impl FnOnce() -> T) -> Result<T, EngineError> {
        catch_unwind(AssertUnwindSafe(action)).map_err(|_| {
            self.caught.fetch_add(1, Ordering::Relaxed);
            EngineError::Panicked
        })
    }

    /// Runs a part of the model on the rows of a step. After a panic these are written again before they are read.
    pub(super) fn catch_step<T>(
        &self,
        part: StepPart,
        action: impl FnOnce() -> Result<T, StageError>,
    ) -> Result<T, StageError> {
        let broken_off =
            |_| Err(StageError::Plan { problem: format!("{} broke off; this is a bug worth reporting", part.name()) });
        let action = || {
            let done = action();
            #[cfg(test)]
            self.wanted.reach(part);
            done
        };
        self.catch(action).unwrap_or_else(broken_off)
    }

    /// How many were caught.
    pub(super) fn count(&self) -> u64 {
        self.caught.load(Ordering::Relaxed)
    }
}

impl StepPart {
    fn name(self) -> &'static str {
        match self {
            StepPart::Stages => "it",
            StepPart::Logits => "the output matrix",
            StepPart::Embedding => "an embedding",
            StepPart::Draft => "the draft model",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Mutex;
    use std::sync::mpsc::{Receiver, channel};

    use cascadia_kernels::Pool;
    use cascadia_model::CachePages;

    use super::*;
    use crate::service::{
        Generation, Job, Priority, Service, ServiceHandle, ServiceOptions, StepCosts, Task, Tenant, Update,
    };
    use crate::{CacheSize, Engine, Flow, OpenOptions, Sampling, Source};

    /// Which part is to panic, after how many times that it does not.
    #[derive(Debug, Default)]
    pub(super) struct Wanted(Mutex<Option<(StepPart, u32)>>);

    impl Wanted {
        pub(super) fn reach(&self, part: StepPart) {
            let mut wanted = self.0.lock().expect("nothing panics while it is held");
            let is_due = match &mut *wanted {
                Some((wanted, 0)) => *wanted == part,
                Some((wanted, left)) if *wanted == part => {
                    *left -= 1;
                    false
                }
                _ => false,
            };
            if is_due {
                *wanted = None;
                drop(wanted);
                panic!("the test wants this panic");
            }
        }
    }

    /// What a job came to: its tokens or its embedding as bits, or that it failed.
    type Outcome = Option<Vec<u32>>;

    fn engine(sequences: u32) -> Engine {
        let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/llama3");
        let cache = CacheSize::Pages(CachePages::full(4 * sequences));
        let options =
            OpenOptions { context: Some(64), rows_per_step: 32, cache, ..OpenOptions::new(Arc::new(Pool::new(1))) };
        Engine::open(Source::Path(&model), &options).expect("the fixture opens")
    }

    fn submit(handle: &ServiceHandle, number: u32) -> Receiver<Update> {
        let (sender, updates) = channel();
        let task = match number {
            0 => Task::Embed { second_text: None },
            _ => Task::Generate(Generation::new(Sampling { temperature: 0.0, ..Sampling::default() }, 12 + number)),
        };
        let sink = Box::new(move |update| if sender.send(update).is_ok() { Flow::Continue } else { Flow::Stop });
        let prompt = (0..20 + number).map(|at| at * (number + 3) % 200).collect();
        let (tenant, priority) = (Tenant(0), Priority::Normal);
        handle
            .submit(Job { prompt, task, tenant, priority, adapter: None, deadline: None, sink })
            .expect("there is room");
        updates
    }

    fn outcome(updates: &Receiver<Update>) -> Outcome {
        let mut tokens = Vec::new();
        for update in updates {
            match update {
                Update::Token(token) => tokens.push(token.token),
                Update::Embedded(numbers) => tokens.extend(numbers.into_iter().map(f32::to_bits)),
                Update::Failed(_) => return None,
                Update::Started { .. } | Update::Scored(_) | Update::Finished(_) => {}
            }
        }
        Some(tokens)
    }

    fn outcomes(handle: &ServiceHandle) -> Vec<Outcome> {
        let jobs: Vec<Receiver<Update>> = (0..5).map(|number| submit(handle, number)).collect();
        jobs.iter().map(outcome).collect()
    }

    fn start() -> Service {
        let engine = engine(8);
        let text = Arc::new(engine.text().expect("the fixture has a tokenizer"));
        // So cheap that the draft model is always asked.
        let options = ServiceOptions { step_costs: StepCosts::PerRow(0.1), ..ServiceOptions::default() };
        Service::start_with_draft(engine, self::engine(8), text, options).expect("it starts")
    }

    #[test]
    fn a_panic_in_any_part_of_the_model_fails_one_job_at_most() {
        let service = start();
        let expected = outcomes(&service.handle());
        assert!(expected.iter().all(Option::is_some));
        service.drain();
        for part in [StepPart::Stages, StepPart::Logits, StepPart::Embedding, StepPart::Draft] {
            for times in [0, 1, 3] {
                let service = start();
                let handle = service.handle();
                *handle.shared.panics.wanted.0.lock().expect("nothing panicked") = Some((part, times));
                let mut panics = 0;
                for round in 0..4 {
                    let found = outcomes(&handle);
                    let failed = found.iter().filter(|outcome| outcome.is_none()).count();
                    assert!(
                        failed <= usize::from(panics == 0),
                        "{part:?} {times}: {failed} jobs failed in round {round}"
                    );
                    let differ =
                        found.iter().zip(&expected).filter(|(one, other)| one.is_some() && one != other).count();
                    assert_eq!(differ, 0, "{part:?} {times}: other tokens in round {round}");
                    panics = handle.snapshot().panics;
                }
                service.drain();
                let snapshot = handle.snapshot();
                assert_eq!((snapshot.panics, snapshot.restarts), (1, 0), "{part:?} {times}");
                assert_eq!((snapshot.pages_held, snapshot.waiting, snapshot.dead), (0, 0, false), "{part:?} {times}");
                assert!(part != StepPart::Draft || snapshot.failed == 0, "a draft model is not needed");
            }
        }
    }
}
