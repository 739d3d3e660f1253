//! `cascadia eval compare`.

use cascadia_eval::report::{Comparison, Report};

use crate::flags::CompareFlags;

/// Compares two reports; fails where the second is worse.
pub(super) fn compare(flags: &CompareFlags) -> anyhow::Result<()> {
    flags.report.check()?;
    let (before, after) = (Report::read(&flags.before)?, Report::read(&flags.after)?);
    let comparison = Comparison::of(&before, (flags.after.as_path(), &after), flags.tolerance)?;
    flags.report.deliver_as(&comparison, &comparison.table(), &before.beside(&after))?;
    let (failures, all) = (comparison.failures(), comparison.changes.len());
    let percent = 100.0 * flags.tolerance;
    anyhow::ensure!(failures == 0, "{failures} of {all} values are missing, or worse by more than {percent} %");
    Ok(())
}
