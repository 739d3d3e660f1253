//! A machine that has become slow: the one that computes along goes on in its place.

use super::standby_state::CATCHING_UP;
use super::{RemoteStage, State};
use crate::audit::Verb;
use crate::failover::standby::{End, Standby};

impl RemoteStage {
    /// Lets the shadow compute from now on if the machine is slow and the shadow is not. The machine is a spare then.
    pub(super) fn bypass(&self, state: &mut State) {
        let Some(slow) = state.current.as_ref().filter(|worker_link| worker_link.pace.is_slow()) else { return };
        let can_go_on = |shadow: &mut Standby| {
            shadow.is_level() && ![&slow.node, &shadow.node].iter().any(|node| self.stage_workers.doubts(node))
        };
        let Some(shadow) = state.company.shadow.take_if(can_go_on) else { return };
        let node = shadow.node.clone();
        match shadow.hand_over(CATCHING_UP) {
            End::HandedOver(followed) if self.stage_workers.admits(&node) => {
                if let Some(slow) = state.current.take() {
                    self.note(|status| status.bypassed += 1);
                    // Others come before it, and it is held back if this happens again and again.
                    self.stage_workers.remember_loss(&slow.node);
                    self.stage_workers.note(Verb::StageSlow, &slow.node, self.shows());
                    self.stage_workers.put(slow);
                }
                self.adopt(followed, state);
            }
            // A slow machine is better than none.
            end => self.hear_end(&node, end, state),
        }
    }
}
