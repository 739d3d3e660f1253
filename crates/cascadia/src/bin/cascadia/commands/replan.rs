//! A stage for which nobody is left: the model is planned again over the machines that remain and those that have come.

use std::time::Duration;

use cascadia_fleet::{HERE, ReplanTimer};

use super::serve::open_options;
use super::serve_live::{LiveReplacement, Old};
use super::serve_model::{ModelChoice, SENDING};
use crate::flags::ServeFlags;
use crate::handover::PushWish;
use crate::output::remark;

/// How long a stage is without a machine before that, unless the flags say otherwise: one that is started anew is back.
const REPLAN_SECONDS: u64 = 15;
/// How long machines may take to come and be measured.
const COMING: Duration = Duration::from_secs(3);

/// When to plan again, as the flags say.
pub(super) fn timer(flags: &ServeFlags) -> ReplanTimer {
    let seconds = Some(flags.replan_seconds.unwrap_or(REPLAN_SECONDS)).filter(|seconds| *seconds > 0);
    ReplanTimer::new(seconds.map(Duration::from_secs))
}

impl LiveReplacement {
    /// Plans again, and says how that ended.
    pub(super) fn plan_again(&self, missing: &[usize]) {
        let stages: Vec<String> = missing.iter().map(|stage| format!("stage {stage}")).collect();
        remark(&format!("No machine is left for {}; planning again.", stages.join(", ")));
        match self.try_plan_again() {
            Ok(Some(old)) => self.end(old),
            Ok(None) => {}
            Err(error) => remark(&format!("It could not be planned again, and will be tried later: {error:#}")),
        }
    }

    fn try_plan_again(&self) -> anyhow::Result<Option<Old>> {
        let Some(choice) = ModelChoice::of(&self.flags) else { return Ok(None) };
        // Threads of its own: those of the server may be computing.
        let prepared = choice.prepare(&self.fleet, &open_options(&self.flags)?.pool, COMING)?;
        if self.fleet.missing().is_empty() {
            remark("A machine came back meanwhile; nothing changes.");
            return Ok(None);
        }
        let served = self.fleet.model() == Some(prepared.model);
        let has_own = || prepared.cast.own.iter().all(|stage| self.fleet.has(HERE, *stage as usize));
        if !(served && has_own()) {
            // Nobody can be served by it, and machines may not have room for both.
            self.fleet.let_go();
        }
        let wish = PushWish::new(prepared.cast.folder, prepared.targets, SENDING.as_secs());
        self.push(&wish, prepared.cast.plan, &remark)
    }
}
