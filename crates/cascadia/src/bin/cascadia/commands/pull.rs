//! `cascadia pull`.

use cascadia_hub::{Network, Pulled};

use crate::flags::PullFlags;
use crate::hub;
use crate::human::size;
use crate::output::remark;
use crate::progress::Progress;

/// Makes sure that a model is stored and whole.
pub(crate) fn pull(flags: &PullFlags) -> anyhow::Result<()> {
    let store = hub::store(Network::Online)?;
    let (model, pulled) = {
        let bar = Progress::bytes("fetching");
        store.pull(&flags.model, &mut |step| bar.transfer(step))?
    };
    let (name, size) = (&model.name, size(model.bytes()));
    let done = match pulled {
        Pulled::Fetched => "is stored now",
        Pulled::Repaired => "was damaged, and has been fetched again",
        Pulled::Whole => "is stored already, and whole",
    };
    remark(&format!("{name} ({size}, {}) {done}. Next: cascadia run {name}", model.place));
    Ok(())
}
