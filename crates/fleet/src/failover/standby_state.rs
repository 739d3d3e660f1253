//! The standby of a stage, those before it that are still finishing, and what a machine that was one holds.

use std::time::{Duration, Instant};

use cascadia_model::StepPlan;

use crate::clock::Task;
use crate::failover::coverage::Coverage;
use crate::failover::standby::{Standby, StandbyEnd};
use crate::wire::link::LinkError;
use crate::workers::stage_workers::StageWorkers;
use crate::workers::worker_link::{StepTerms, WorkerLink};

/// How long a stage does without a standby after one fell behind.
const REST: Duration = Duration::from_secs(30);

/// Who computes along with a machine.
#[derive(Default)]
pub(crate) struct StandbyState {
    pub(crate) standby: Option<Standby>,
    /// Those that were dismissed and have something to finish, with the machine they compute along with: what they find
    /// still counts.
    leaving: Vec<(String, Task<StandbyEnd>)>,
    /// When a standby fell behind.
    fell_behind: Option<Instant>,
    /// What the machine holds if it was a standby, and the last generation in which that is not everything.
    holds: Option<(u64, Coverage)>,
    /// Why rows may be wrong that were given to the engine.
    pub(crate) doubt: Option<String>,
}

/// What a machine's caches say about a step.
pub(crate) enum CacheCheck {
    /// It holds all that the step reads.
    Complete,
    /// It holds all that steps of this generation on read: everything is computed anew.
    CompleteFrom(u64),
    /// The step reads what it does not hold.
    Missing,
}

impl StandbyState {
    /// Tells the standby of this machine something. One that cannot keep up is a spare again.
    pub(crate) fn tell(&mut self, (node, now): (&str, Instant), tell: impl FnOnce(&mut Standby) -> bool) {
        if self.standby.as_mut().is_some_and(|standby| !tell(standby)) {
            self.fell_behind = Some(now);
            self.dismiss(node);
        }
    }

    /// Copies some of what this machine has cached to its standby, if that came later: between two steps, when both have
    /// computed the same. Nothing is copied where one of them may be wrong.
    pub(crate) fn copy_pages(
        &mut self,
        worker: &mut WorkerLink,
        (terms, workers): (&StepTerms, &StageWorkers),
    ) -> Result<(), LinkError> {
        let believed = |standby: &&mut Standby| ![&worker.node, &standby.node].iter().any(|node| workers.doubts(node));
        let Some(standby) = self.standby.as_mut().filter(believed) else { return Ok(()) };
        let pieces = standby.fetch_pages(worker, (terms, workers))?;
        if !pieces.is_empty() {
            self.tell((&worker.node, workers.clock().now()), |standby| standby.store(pieces));
        }
        Ok(())
    }

    /// Lets the standby of this machine finish what it was told, and be a spare again.
    pub(crate) fn dismiss(&mut self, node: &str) {
        self.leaving.extend(self.standby.take().map(|standby| (node.to_owned(), standby.dismiss())));
    }

    /// Whether it is too soon for another standby.
    pub(crate) fn rests(&self, now: Instant) -> bool {
        self.fell_behind.is_some_and(|time| now.saturating_duration_since(time) < REST)
    }

    /// The standby, if it has ended.
    pub(crate) fn take_ended(&mut self) -> Option<Standby> {
        self.standby.take_if(|standby| standby.has_ended())
    }

    /// How those ended that were dismissed, and with whom they had computed along.
    pub(crate) fn take_left(&mut self) -> Vec<(String, Option<StandbyEnd>)> {
        let left = self.leaving.extract_if(.., |(_, task)| task.is_finished());
        left.map(|(node, task)| (node, task.join(None))).collect()
    }

    /// The machine that computes was a standby, and holds this of all steps up to `generation`.
    pub(crate) fn set_holds(&mut self, generation: u64, coverage: Coverage) {
        self.holds = Some((generation, coverage));
    }

    /// Notes that the machine has computed a step.
    pub(crate) fn wrote(&mut self, plan: &StepPlan) {
        if let Some((_, coverage)) = &mut self.holds {
            coverage.wrote(plan);
        }
    }

    /// Whether a step reads what a machine that was a standby does not hold.
    pub(crate) fn check_caches(&mut self, plan: &StepPlan) -> CacheCheck {
        match &self.holds {
            Some((last, coverage)) if plan.generation <= *last && !coverage.holds(plan) => CacheCheck::Missing,
            Some((last, _)) if plan.generation > *last => {
                self.holds = None;
                CacheCheck::CompleteFrom(plan.generation)
            }
            _ => CacheCheck::Complete,
        }
    }
}
