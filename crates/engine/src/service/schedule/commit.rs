//! What came of a plan.

use cascadia_model::StageCache;

use super::sequence::State;
use super::{Plan, Scheduler};
use crate::service::JobId;

/// What came of a job's rows in a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Advance {
    /// Its rows were computed, and these tokens follow; they may be more than one row gives, if they are known.
    Computed(Vec<u32>),
    /// The same, and nobody wants more of it.
    Finished(Vec<u32>),
    /// Its rows were not computed: they are tried again in a step of its own.
    Again,
}

impl Scheduler {
    /// Takes in the results of a plan, one for each of its jobs in order.
    pub fn commit(&mut self, plan: Plan, results: Vec<Advance>) {
        assert_eq!(plan.jobs.len(), results.len(), "every job has a result");
        for (job, advance) in plan.jobs.iter().zip(results) {
            self.settle(job.id, job.rows.len(), &advance);
        }
    }

    /// A machine was lost while it computed this plan: each job in it may be why, and has steps of its own when it
    /// happens again. Says how often a job was lost in a step that it had for itself; zero of several.
    pub fn suspect(&mut self, plan: &Plan) -> u32 {
        for job in &plan.jobs {
            let Some(sequence) = self.sequences.get_mut(&job.id) else { continue };
            sequence.suspect_next(job.rows.len());
            // The first two losses made it suspect; those of its own steps follow.
            sequence.lost_alone += u32::from(plan.jobs.len() == 1 && sequence.losses > 2);
        }
        let [job] = plan.jobs.as_slice() else { return 0 };
        self.sequences.get(&job.id).map_or(0, |sequence| sequence.lost_alone)
    }

    /// The caches of a stage are gone: the plan was not computed, and everything that ran must be computed again. Plans
    /// that were in flight with this one and meet the same loss change nothing but their own sequences.
    pub fn lose(&mut self, plan: Plan) {
        for job in &plan.jobs {
            if let Some(sequence) = self.sequences.get_mut(&job.id) {
                sequence.state = State::Ready;
                sequence.draft.clear();
                sequence.lost = false;
            }
        }
        let known = plan.step.generation < self.memory.generation();
        let affected: Vec<JobId> =
            if known { plan.jobs.iter().map(|job| job.id).collect() } else { self.running.clone() };
        // Each goes to the front of its queue, so that the first of them is there in the end.
        for id in affected.into_iter().rev() {
            match self.sequences.get_mut(&id) {
                Some(sequence) if sequence.state == State::InFlight => sequence.lost = true,
                Some(sequence) if sequence.ending => self.remove(id),
                Some(_) => self.requeue(id),
                None => {}
            }
        }
        if !known {
            self.memory.forget();
        }
    }

    fn settle(&mut self, id: JobId, rows: usize, advance: &Advance) {
        let Some(sequence) = self.sequences.get_mut(&id) else { return };
        sequence.state = State::Ready;
        let start = sequence.computed;
        let ends = match advance {
            Advance::Computed(tokens) | Advance::Finished(tokens) => {
                sequence.advance(start, rows - sequence.draft.len(), tokens);
                self.memory.settle(&mut sequence.holding, &sequence.work.tokens, sequence.computed);
                sequence.alone = false;
                matches!(advance, Advance::Finished(_))
            }
            Advance::Again => {
                sequence.alone = true;
                false
            }
        };
        sequence.draft.clear();
        let lost = std::mem::take(&mut sequence.lost);
        if ends || sequence.ending {
            sequence.ending = false;
            self.remove(id);
        } else if lost || (*advance == Advance::Again && self.limits.cache == StageCache::PerSequence) {
            self.requeue(id);
        }
    }
}
