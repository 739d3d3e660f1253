//! Collects guesses for the answers that the next step continues.

use super::JobId;
use super::active_job::{ActiveJob, ActiveTask};
use super::run::Runner;
use super::speculate::{GuessRoom, Wish};

impl Runner {
    /// Tells the scheduler what may come next: first from the texts themselves, then from the small model.
    pub(super) fn guess(&mut self) {
        let drafting = self.scheduler.drafting();
        let streams = drafting.len();
        let mut wishes: Vec<(JobId, usize)> = Vec::new();
        for (id, most) in drafting {
            let (Some(live), Some(tokens)) = (self.jobs.get_mut(&id), self.scheduler.tokens(id)) else { continue };
            let ActiveTask::Answer(answer) = &mut live.task else { continue };
            // The last token of an answer needs no guess: nothing comes after it.
            let room = GuessRoom { most: most.min(answer.room().saturating_sub(1)), streams };
            if room.most == 0 {
                continue;
            }
            let forced = answer.forced();
            let found = match forced.is_empty() {
                true => live.guesser.look_up(tokens, room),
                false => live.guesser.take_forced(forced, room),
            };
            if !found.is_empty() {
                self.scheduler.guess(id, found);
            } else if self.draft.is_some() {
                wishes.push((id, live.guesser.draft_wish(room)));
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
        // Guesses are a help, never a need: a small model that fails is not asked again.
        match draft.guess(&wanted, choose) {
            Ok(guesses) => wishes.iter().zip(guesses).for_each(|((id, _), guess)| self.scheduler.guess(*id, guess)),
            Err(_) => self.draft = None,
        }
    }
}
