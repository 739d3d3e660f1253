//! Collects draft tokens for the answers that the next step continues.

use super::JobId;
use super::active_job::{ActiveJob, ActiveTask};
use super::run::Runner;
use super::speculate::{DraftBudget, Wish};

impl Runner {
    /// Gives the scheduler draft tokens: first those that constraints force or the texts suggest, then those of the draft model.
    pub(super) fn guess(&mut self) {
        let drafting = self.scheduler.drafting();
        let streams = drafting.len();
        let mut wishes: Vec<(JobId, usize)> = Vec::new();
        for (id, most) in drafting {
            let (Some(live), Some(tokens)) = (self.jobs.get_mut(&id), self.scheduler.tokens(id)) else { continue };
            let ActiveTask::Answer(answer) = &mut live.task else { continue };
            // Nothing comes after the last token of an answer.
            let budget = DraftBudget { most: most.min(answer.room().saturating_sub(1)), streams };
            if budget.most == 0 {
                continue;
            }
            let forced = answer.forced();
            let found = match forced.is_empty() {
                true => live.speculator.look_up(tokens, budget),
                false => live.speculator.take_forced(forced, budget),
            };
            if !found.is_empty() {
                self.scheduler.guess(id, found);
            } else if self.draft.is_some() {
                wishes.push((id, live.speculator.draft_depth(budget)));
            }
        }
        wishes.retain(|(_, depth)| *depth > 0);
        if !wishes.is_empty() {
            self.ask_draft(&wishes);
        }
    }

    fn ask_draft(&mut self, wishes: &[(JobId, usize)]) {
        let (Some(draft), scheduler, jobs) = (&mut self.draft, &self.scheduler, &mut self.jobs) else { return };
        let wish = |&(id, depth): &(JobId, usize)| Wish { id, tokens: scheduler.tokens(id).unwrap_or(&[]), depth };
        let wanted: Vec<Wish<'_>> = wishes.iter().map(wish).collect();
        let choose = |id: JobId, logits: &[f32], position: u32| match jobs.get_mut(&id) {
            Some(ActiveJob { task: ActiveTask::Answer(answer), .. }) => answer.draft(logits, position),
            _ => None,
        };
        // Speculation is optional: a draft model that fails is not used again.
        match draft.guess(&wanted, choose) {
            Ok(guesses) => wishes.iter().zip(guesses).for_each(|((id, _), guess)| self.scheduler.guess(*id, guess)),
            Err(_) => self.draft = None,
        }
    }
}
