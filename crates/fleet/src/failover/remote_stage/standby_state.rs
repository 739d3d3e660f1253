//! The machine that computes and its shadow: who goes on where one is lost, and whom to believe where they differ.

use std::time::{Duration, Instant};

use cascadia_model::{Hidden, StepPlan};

use super::{Failure, GONE, RemoteStage, State};
use crate::audit::Verb;
use crate::clock::Task;
use crate::failover::coverage::Coverage;
use crate::failover::standby::{End, Followed, Standby};
use crate::wire::exchange::StepReply;
use crate::workers::stage_workers::WorkerLink;

/// How long a stage does without a shadow after one fell behind.
const REST: Duration = Duration::from_secs(30);

/// How long a shadow may take to finish the steps it is behind. Machines that hear nothing leave soon after.
pub(super) const CATCHING_UP: Duration = Duration::from_secs(4);

/// Steps in which a machine in doubt must give the rows of another to be believed again.
const TRIAL: u64 = 512;

/// Who computes along with a machine.
#[derive(Default)]
pub(super) struct StandbyState {
    pub(super) shadow: Option<Standby>,
    /// Those that were let go and have something to finish, with whom they compute along: what they find still counts.
    leaving: Vec<(String, Task<End>)>,
    /// When a shadow fell behind.
    fell_behind: Option<Instant>,
    /// What the machine holds if it was a shadow, and the last generation in which that is not everything.
    holds: Option<(u64, Coverage)>,
    /// Why rows may be wrong that were given to the engine.
    pub(super) doubt: Option<String>,
}

impl StandbyState {
    /// Tells the shadow of this machine something. One that cannot keep up is a spare again.
    pub(super) fn tell(&mut self, (node, now): (&str, Instant), tell: impl FnOnce(&mut Standby) -> bool) {
        if self.shadow.as_mut().is_some_and(|shadow| !tell(shadow)) {
            self.fell_behind = Some(now);
            self.dismiss(node);
        }
    }

    fn dismiss(&mut self, node: &str) {
        self.leaving.extend(self.shadow.take().map(|shadow| (node.to_owned(), shadow.dismiss())));
    }
}

impl RemoteStage {
    /// Lets go of the machine that computes; its shadow goes on. Gives the name of the first, and what the second says to
    /// the last step.
    pub(super) fn lose(&self, state: &mut State) -> (String, Option<StepReply>) {
        let hand_over = |shadow: Standby| (shadow.node.clone(), shadow.hand_over(CATCHING_UP));
        let (shadow, end) = state.company.shadow.take().map(hand_over).unzip();
        self.note(|status| {
            (status.lost, status.node, status.shadow) = (status.lost + 1, None, None);
            status.slow.clear();
        });
        state.seen = self.now();
        let node = state.current.take().map(|worker_link| worker_link.node).unwrap_or_default();
        self.stage_workers.remember_loss(&node);
        self.stage_workers.note(Verb::StageLost, &node, self.shows());
        match end {
            Some(End::HandedOver(followed)) if self.stage_workers.admits(&followed.worker_link.node) => {
                return (node, self.adopt(followed, state));
            }
            Some(End::Differs(other)) => self.dispute(&node, other, state),
            Some(End::Lost) => shadow.iter().for_each(|node| self.stage_workers.remember_loss(node)),
            Some(End::HandedOver(_) | End::LetGo) | None => {}
        }
        (node, None)
    }

    /// Lets a machine compute that was a shadow; gives what it says to the last step.
    pub(super) fn adopt(&self, followed: Followed, state: &mut State) -> Option<StepReply> {
        let Followed { worker_link, coverage, answer, frame } = followed;
        state.company.holds = Some((state.served.unwrap_or(0), coverage));
        state.frame = frame;
        self.take(worker_link, state);
        answer
    }

    /// What becomes of a step whose machine failed: its shadow has computed the step as well.
    pub(super) fn go_on(
        &self,
        failure: Failure,
        plan: &StepPlan,
        hidden: &mut Hidden,
        state: &mut State,
    ) -> Result<u32, Failure> {
        let Failure::Lost(problem) = failure else { return Err(failure) };
        let (node, answer) = self.lose(state);
        let lost = Failure::Lost(format!("{node}: {problem}"));
        let Some((worker_link, answer)) = state.current.as_ref().zip(answer) else { return Err(lost) };
        match self.judge(plan, (&worker_link.node, answer), (&state.frame, hidden), &mut state.suspected) {
            Ok(computed) => {
                self.note(|status| status.saved += 1);
                Ok(computed)
            }
            Err(Failure::Plan(problem)) => Err(Failure::Plan(problem)),
            Err(Failure::Lost(problem)) => Err(Failure::Lost(format!("{}: {problem}", self.lose(state).0))),
        }
    }

    /// An error if a step reads what a machine that was a shadow does not hold.
    pub(super) fn check_caches(&self, plan: &StepPlan, state: &mut State) -> Result<(), String> {
        match &state.company.holds {
            Some((last, coverage)) if plan.generation <= *last && !coverage.holds(plan) => Err(GONE.to_owned()),
            // Everything is computed anew from here on.
            Some((last, _)) if plan.generation > *last => {
                (state.taken_for, state.company.holds) = (plan.generation, None);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Takes a spare as a shadow if there is none. After enough equal steps, machines are no longer in doubt.
    pub(super) fn find_shadow(&self, state: &mut State) {
        let State { current: Some(WorkerLink { node, .. }), company, .. } = state else { return };
        let in_doubt = |shadow: &Standby| self.stage_workers.doubts(&shadow.node) || self.stage_workers.doubts(node);
        let is_tried = |shadow: &&Standby| shadow.agreed() >= TRIAL && in_doubt(shadow);
        if let Some(shadow) = company.shadow.as_ref().filter(is_tried) {
            self.stage_workers.agree(&shadow.node, node);
            // The turn of another that is in doubt.
            if self.stage_workers.has_doubted() {
                company.dismiss(node);
            }
        }
        let rests = company.fell_behind.is_some_and(|time| self.now().saturating_duration_since(time) < REST)
            && !self.stage_workers.doubts(node);
        if self.is_shadowed && company.shadow.is_none() && !rests {
            let spare = self.stage_workers.take_beside(node);
            company.shadow = spare.map(|spare| Standby::start(spare, &self.stage_workers, self.terms, &self.tally));
        }
        self.note_company(state);
    }

    /// Shows who computes along, and who of both is slow.
    fn note_company(&self, State { current, company, .. }: &State) {
        let shadow = company.shadow.as_ref().map(|shadow| shadow.node.as_str());
        let machine = current
            .as_ref()
            .filter(|worker_link| worker_link.pace.is_slow())
            .map(|worker_link| worker_link.node.as_str());
        let slow =
            || machine.into_iter().chain(shadow.filter(|_| company.shadow.as_ref().is_some_and(Standby::is_slow)));
        self.note(|status| {
            if status.shadow.as_deref() != shadow {
                status.shadow = shadow.map(str::to_owned);
            }
            if !status.slow.iter().map(String::as_str).eq(slow()) {
                status.slow = slow().map(str::to_owned).collect();
            }
        });
    }

    /// Takes note of a shadow that has ended.
    pub(super) fn hear_shadow(&self, state: &mut State) {
        let ended = state.company.shadow.take_if(|shadow| shadow.has_ended());
        ended.into_iter().for_each(|shadow| self.part_from(shadow, state));
        let left: Vec<_> = state.company.leaving.extract_if(.., |(_, thread)| thread.is_finished()).collect();
        for (node, thread) in left {
            if let Some(End::Differs(other)) = thread.join(None) {
                self.dispute(&node, other, state);
            }
        }
    }

    fn part_from(&self, shadow: Standby, state: &mut State) {
        let name = shadow.node.clone();
        let end = shadow.hand_over(CATCHING_UP);
        self.hear_end(&name, end, state);
    }

    /// What becomes of a shadow that computes along no more.
    pub(super) fn hear_end(&self, name: &str, end: End, state: &mut State) {
        self.note(|status| status.shadow = None);
        match end {
            End::Differs(other) => {
                let node = state.current.as_ref().map(|worker_link| worker_link.node.clone()).unwrap_or_default();
                self.dispute(&node, other, state);
            }
            End::HandedOver(followed) => {
                self.stage_workers.put(followed.worker_link);
            }
            End::Lost => self.stage_workers.remember_loss(name),
            End::LetGo => {}
        }
    }

    /// The machine that computes and its shadow gave different rows. Unless the shadow is known to be wrong, neither is
    /// believed: what was made of such rows is in doubt, and both wait for a third, or compute together.
    fn dispute(&self, node: &str, other: WorkerLink, state: &mut State) {
        let wrong = self.stage_workers.differ(node, &other.node, &self.shows());
        let is_wrong = |node: &str| wrong.iter().any(|name| name == node);
        let problem = format!("{node} and {} computed different rows", other.node);
        if !is_wrong(&other.node) {
            self.stage_workers.put(other);
        }
        if is_wrong(node) || self.stage_workers.doubts(node) {
            state.company.doubt = Some(problem);
            if let Some(worker_link) = state.current.take_if(|worker_link| worker_link.node == node) {
                self.note(|status| status.node = None);
                if !is_wrong(node) {
                    self.stage_workers.put(worker_link);
                }
            }
        }
        self.note(|status| {
            status.wrong.retain(|name| !wrong.contains(name));
            status.wrong.extend(wrong);
        });
    }

    /// Lets rows pass that were computed. Those of a machine in doubt count only if its shadow computed the same.
    pub(super) fn confirm(&self, plan: &StepPlan, state: &mut State) -> Result<(), String> {
        let State { current: Some(WorkerLink { node, .. }), company, .. } = state else { return Ok(()) };
        if let Some((_, coverage)) = &mut company.holds {
            coverage.wrote(plan);
        }
        if !self.stage_workers.doubts(node) || company.shadow.as_ref().is_some_and(Standby::confirms) {
            return Ok(());
        }
        let problem = format!("{node} may be wrong, and no other machine confirms what it computes");
        if let Some(shadow) = company.shadow.take() {
            self.part_from(shadow, state);
        }
        Err(state.company.doubt.take().unwrap_or(problem))
    }
}
